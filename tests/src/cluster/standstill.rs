//! SIGSTOP, and the wait until it has taken effect: one thread gets the signal and stops the others when it next has the processor,
//! and until then they go on.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Outcome;

/// Longest wait for all threads to stand still; one that waits for a disk does so only when it has been answered.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Stops a process; all its threads stand still when this returns. Blocks for some milliseconds on a busy machine.
///
/// # Errors
/// It does not run, or a thread goes on.
pub(super) fn stand_still(pid: Pid) -> Outcome<()> {
    kill_process(pid, Signal::STOP)?;
    let began = Instant::now();
    while !stands_still(pid)? {
        if began.elapsed() > STOP_MAX {
            return Err(format!("process {} does not stop", pid.as_raw_nonzero()).into());
        }
        // It is the processor that they wait for.
        thread::yield_now();
    }
    Ok(())
}

fn stands_still(pid: Pid) -> io::Result<bool> {
    let threads = PathBuf::from(format!("/proc/{}/task", pid.as_raw_nonzero()));
    for thread in fs::read_dir(threads)? {
        // One that has ended meanwhile does nothing any more.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        // The name in brackets may hold anything; the state comes after it.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn all_threads_stand_still_when_it_returns() {
        // Many threads that want the processor all the time: the one that gets the signal has to wait for it.
        let spin = "import threading\nfor _ in range(8): threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(int, 1)], daemon=True).start()\nprint('begun', flush=True)\nthreading.Event().wait()";
        let mut child =
            Command::new("python3").args(["-c", spin]).stdout(Stdio::piped()).spawn().unwrap();
        let mut begun = [0; 5];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
        let pid = Pid::from_child(&child);
        for _ in 0..20 {
            stand_still(pid).unwrap();
            assert!(stands_still(pid).unwrap());
            kill_process(pid, Signal::CONT).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
