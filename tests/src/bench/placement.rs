//! On which processors a client and a server run while a round trip is measured.
//!
//! A wake-up across processors that sleep costs several times one on the same processor, and the scheduler chooses anew in each
//! run: a server that is not pinned is compared by lot. So whoever is compared runs in the same places, in processes of its own.

use std::process::Command;

use rustix::process::Pid;

use crate::Outcome;

/// Where the client and where the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    /// How it is called in the figures.
    pub(super) name: &'static str,
    client: usize,
    server: usize,
}

impl Placement {
    /// Those that this machine has: on one processor, and on two if this process may use two.
    pub(super) fn all() -> Outcome<Vec<Self>> {
        let allowed = allowed()?;
        let first = *allowed.first().ok_or("no processor")?;
        let one = Self { name: "one processor", client: first, server: first };
        let two = allowed.get(1).map(|second| Self {
            name: "two processors",
            client: first,
            server: *second,
        });
        Ok([one].into_iter().chain(two).collect())
    }

    /// The server's processor.
    pub(super) fn server(&self) -> String {
        self.server.to_string()
    }

    /// Starts a program where the client belongs.
    pub(super) fn client(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.client.to_string()]).arg(program);
        command
    }
}

/// Servers that are held on one processor until this is dropped.
pub(super) struct Held<'a>(&'a [Pid]);

impl<'a> Held<'a> {
    pub(super) fn at(servers: &'a [Pid], placement: &Placement) -> Outcome<Self> {
        let held = Self(servers);
        pin(servers, &placement.server())?;
        Ok(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let released = allowed().and_then(|all| {
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            pin(self.0, &all.join(","))
        });
        if let Err(error) = released {
            eprintln!("bench: the brokers stay on one processor: {error}");
        }
    }
}

/// All threads that these processes have, and will have.
fn pin(servers: &[Pid], processors: &str) -> Outcome<()> {
    for pid in servers {
        let pid = pid.as_raw_nonzero().to_string();
        let output = Command::new("taskset").args(["-a", "-c", "-p", processors, &pid]).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    Ok(())
}

/// The processors that this process may run on, as the kernel lists them (`0-1,3`).
fn allowed() -> Outcome<Vec<usize>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    listed(list.ok_or("no Cpus_allowed_list")?.trim())
}

fn listed(list: &str) -> Outcome<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        all.extend(from.parse()?..=to.parse::<usize>()?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_processors_is_read() {
        assert_eq!(listed("0-2,5").unwrap(), [0, 1, 2, 5]);
        assert_eq!(listed("7").unwrap(), [7]);
        assert!(listed("").is_err());
    }
}
