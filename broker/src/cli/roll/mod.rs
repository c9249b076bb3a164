//! `barnabas roll`: restarts the brokers one by one, each only when nobody misses it, the controller last.

mod cluster;
mod state;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use barnabas_proto::v1::Broker;
use clap::Args;
use serde_json::json;

use self::cluster::{Cluster, Verdict};
use self::state::State;
use super::ask::{pause, printable};
use super::topic::counted;
use super::{Asking, CliError};

/// Between two looks at something that takes its time.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(super) struct RollArgs {
    /// What restarts one broker, run by `sh -c` here; {id} and {host} stand for the broker's id and its advertised host. It is
    /// run once the broker leads nothing and is in no ISR. Example: "ssh {host} sudo systemctl restart barnabas".
    #[arg(long, value_name = "COMMAND")]
    command: String,
    /// Where it is noted how far the roll is; removed at its end.
    #[arg(long, value_name = "FILE", default_value = "barnabas-roll.json")]
    state: PathBuf,
    /// Go on with the roll that the file tells of.
    #[arg(long)]
    resume: bool,
    /// Show the order, what each broker waits for, and the commands; do nothing.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    /// Longest wait for each step of one broker: until it may be stopped, is drained, is back in every ISR.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    max_wait: u64,
    #[command(flatten)]
    asking: Asking,
}

impl RollArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let cluster = Cluster::of(&self.asking)?;
        Roll { cluster, max_wait: Duration::from_secs(self.max_wait), args: self }.run()
    }
}

struct Roll {
    args: RollArgs,
    cluster: Cluster,
    max_wait: Duration,
}

impl Roll {
    fn run(mut self) -> Result<(), CliError> {
        if let Some(why) = unfit(&self.args.command) {
            return Err(CliError::Usage(why));
        }
        let known = self.cluster.describe(None)?;
        // Nothing is begun that cannot be finished.
        for broker in &known.brokers {
            if let Verdict::Never(why) = self.cluster.can_stop(broker.id)? {
                return Err(CliError::Never(format!(
                    "broker {} can never be stopped as things are: {why}",
                    broker.id
                )));
            }
            filled(&self.args.command, broker)?;
        }
        if self.args.dry_run {
            return self.dry_run(known.brokers, known.controller_id);
        }
        let ids = known.brokers.iter().map(|broker| broker.id).collect();
        let file = &self.args.state;
        let mut state = match self.args.resume {
            true => State::read(file, &known.cluster_id)?,
            false => State::begin(file, &known.cluster_id, ids)?,
        };
        let began = Instant::now();
        let number = state.pending.len();
        if let Some((id, epoch)) = state.under_way {
            // The command may have been run already: then its broker is another one now.
            match self.registered(id)?.filter(|broker| broker.epoch == epoch) {
                Some(broker) => self.restart(&broker, &mut state)?,
                None => self.until_back(id, epoch, &mut state)?,
            }
        }
        while let Some(id) = next(&state.pending, self.cluster.describe(None)?.controller_id) {
            match self.registered(id)? {
                Some(broker) => self.restart(&broker, &mut state)?,
                None => {
                    return Err(CliError::Refused(format!(
                        "broker {id} is not registered: start it, then go on with --resume"
                    )));
                }
            }
        }
        state.end()?;
        let said = format!(
            "{} restarted in {} s",
            counted(i64::try_from(number).unwrap_or(i64::MAX), "broker"),
            began.elapsed().as_secs()
        );
        self.say(None, "done", &said);
        Ok(())
    }

    fn dry_run(&mut self, brokers: Vec<Broker>, controller: i32) -> Result<(), CliError> {
        let mut pending: Vec<i32> = brokers.iter().map(|broker| broker.id).collect();
        while let Some(id) = next(&pending, controller) {
            pending.retain(|other| *other != id);
            let Some(broker) = brokers.iter().find(|broker| broker.id == id) else { continue };
            let verdict = match self.cluster.can_stop(id)? {
                Verdict::Yes => "may be stopped".to_owned(),
                Verdict::NotNow(why) | Verdict::Never(why) => format!("would wait: {why}"),
            };
            let controller = if id == controller { " (the controller)" } else { "" };
            let command = filled(&self.args.command, broker)?;
            self.say(Some(id), "would restart", &format!("{verdict}{controller}; then: {command}"));
        }
        Ok(())
    }

    /// One broker: waits until it may go, empties it, runs the command, waits until it is back.
    fn restart(&mut self, broker: &Broker, state: &mut State) -> Result<(), CliError> {
        let (id, epoch) = (broker.id, broker.epoch);
        self.until_may_stop(id)?;
        state.goes(id, epoch)?;
        let restarted = self.drain(id).and_then(|()| {
            let command = filled(&self.args.command, broker)?;
            self.say(Some(id), "restarting", &command);
            run(&command)
        });
        if let Err(error) = restarted {
            // It serves again as before, if it is still the same.
            let _ = self.cluster.set_draining(id, false);
            return Err(error);
        }
        self.until_back(id, epoch, state).inspect_err(|_| {
            // Nor did a command that restarted nothing.
            if matches!(self.registered(id), Ok(Some(broker)) if broker.epoch == epoch) {
                let _ = self.cluster.set_draining(id, false);
            }
        })
    }

    fn until_may_stop(&mut self, id: i32) -> Result<(), CliError> {
        let mut told = String::new();
        let began = Instant::now();
        loop {
            let why = match self.cluster.can_stop(id)? {
                Verdict::Yes => return Ok(()),
                Verdict::Never(why) => {
                    return Err(CliError::Never(format!(
                        "broker {id} can never be stopped as things are: {why}"
                    )));
                }
                Verdict::NotNow(why) => why,
            };
            if why != told {
                self.say(Some(id), "waiting", &why);
                told = why;
            }
            self.wait(began, || format!("broker {id} may not be stopped: {told}"))?;
        }
    }

    fn drain(&mut self, id: i32) -> Result<(), CliError> {
        let began = Instant::now();
        let mut told = None;
        loop {
            let (left, why) = self.cluster.set_draining(id, true)?;
            if left == 0 {
                self.say(Some(id), "drained", "it leads nothing and is in no ISR");
                return Ok(());
            }
            if told != Some(left) {
                self.say(
                    Some(id),
                    "draining",
                    &format!("{} left", counted(i64::from(left), "partition")),
                );
                told = Some(left);
            }
            self.wait(began, || format!("broker {id} is not drained: {why}"))?;
        }
    }

    /// Until it is registered in another life than `epoch`, and in the ISR of each partition that it is assigned to.
    fn until_back(&mut self, id: i32, epoch: i64, state: &mut State) -> Result<(), CliError> {
        let began = Instant::now();
        while self.registered(id)?.is_none_or(|broker| broker.epoch == epoch) {
            self.wait(began, || {
                format!(
                    "broker {id} has not registered anew: does the command restart it? see its log"
                )
            })?;
        }
        self.say(Some(id), "registered", "it is back, and catches up");
        let mut told = None;
        loop {
            let (of, missing) = self.cluster.isrs(id)?;
            if missing.is_empty() {
                let said = format!("in every ISR of its {}", counted(i64::from(of), "partition"));
                self.say(Some(id), "in sync", &said);
                return state.done(id);
            }
            let missed = u32::try_from(missing.len()).unwrap_or(u32::MAX);
            if told != Some(missed) {
                self.say(Some(id), "catching up", &format!("in {} of {of} ISRs", of - missed));
                told = Some(missed);
            }
            self.wait(began, || format!("broker {id} is not in the ISR of {}", missing[0]))?;
        }
    }

    fn registered(&mut self, id: i32) -> Result<Option<Broker>, CliError> {
        let known = self.cluster.describe(Some(id))?;
        Ok(known.brokers.into_iter().find(|broker| broker.id == id))
    }

    fn wait(&self, began: Instant, what: impl FnOnce() -> String) -> Result<(), CliError> {
        if began.elapsed() > self.max_wait {
            return Err(CliError::NotNow(format!(
                "{}; gave up after {} s (--max-wait); go on with --resume",
                what(),
                self.max_wait.as_secs()
            )));
        }
        pause(LOOK)
    }

    fn say(&self, broker: Option<i32>, event: &str, text: &str) {
        let text = printable(text);
        if self.args.asking.json {
            // One line each: it is read as it comes.
            say!("{}", json!({"broker": broker, "event": event, "text": text}));
        } else {
            match broker {
                Some(id) => say!("broker {id}: {event}: {text}"),
                None => say!("{event}: {text}"),
            }
        }
    }
}

/// Who is next: the controller last, since each change of it is a failover of its own.
fn next(pending: &[i32], controller: i32) -> Option<i32> {
    pending.iter().copied().find(|id| *id != controller).or_else(|| pending.first().copied())
}

/// Why a command cannot be meant as it stands, if so.
fn unfit(command: &str) -> Option<String> {
    if command.trim().is_empty() {
        return Some(
            "--command is empty: give what restarts a broker, with {id} or {host}".to_owned(),
        );
    }
    let mut rest = command;
    while let Some((before, after)) = rest.split_once('{') {
        let name = after.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let placeholder = after[name.len()..].starts_with('}');
        let known = ["id", "host"].contains(&name);
        if placeholder && (before.ends_with('$') == known) {
            return Some(format!(
                "--command has {{{name}}}, which is not put in; it knows {{id}} and {{host}}, without a $ before them"
            ));
        }
        rest = after;
    }
    None
}

/// The command for one broker.
fn filled(command: &str, broker: &Broker) -> Result<String, CliError> {
    // It comes from the network, and goes to a shell.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let host = &broker.host;
    if command.contains("{host}") && (host.starts_with('-') || !host.chars().all(is_plain)) {
        return Err(CliError::Refused(format!(
            "broker {} advertises the host '{}', which is not put into a command",
            broker.id,
            printable(host)
        )));
    }
    Ok(command.replace("{id}", &broker.id.to_string()).replace("{host}", host))
}

fn run(command: &str) -> Result<(), CliError> {
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(std::process::Stdio::null())
        .status()
        .map_err(|error| CliError::Refused(format!("cannot run sh: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(CliError::Refused(format!(
            "'{command}' ended with {status}; mend that, then go on with --resume"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_last() {
        assert_eq!(next(&[1, 2, 3], 1), Some(2));
        assert_eq!(next(&[1, 3], 1), Some(3));
        assert_eq!(next(&[1], 1), Some(1));
        assert_eq!(next(&[1, 2], -1), Some(1));
        assert_eq!(next(&[], 1), None);
    }

    #[test]
    fn a_command_that_cannot_be_meant_is_refused() {
        for command in ["", " ", "echo {broker}", "restart {Host}", "x {}", "echo ${id}"] {
            assert!(unfit(command).is_some(), "{command}");
        }
        for command in ["ssh {host} x {id}", "true", "f() { echo {id}; }; f", "echo ${HOME} {id}"] {
            assert_eq!(unfit(command), None, "{command}");
        }
    }

    #[test]
    fn a_host_goes_into_the_command_only_if_a_shell_sees_nothing_in_it() {
        let broker = |host: &str| Broker { id: 7, host: host.to_owned(), ..Broker::default() };
        let of = |host: &str| filled("ssh {host} restart {id}", &broker(host));
        assert_eq!(of("b-7.example").unwrap(), "ssh b-7.example restart 7");
        for host in ["x;reboot", "$(id)", "-oProxyCommand=x", "a b"] {
            assert!(of(host).is_err(), "{host}");
        }
        assert_eq!(filled("restart {id}", &broker("$(id)")).unwrap(), "restart 7");
    }
}
