//! A disk whose syncs wait until they are let through, or fail.

use std::io;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use barnabas_log::{Faults, Op, Verdict};

/// Longest wait for what must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const EIO: i32 = 5;

/// Syncs of record files and of whole file systems stop here while it is shut.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    failing: bool,
    waiting: usize,
    begun: usize,
}

impl Gate {
    pub(super) fn shut(&self) {
        self.state.lock().unwrap().shut = true;
    }

    pub(super) fn open(&self) {
        self.state.lock().unwrap().shut = false;
        self.change.notify_all();
    }

    /// Syncs fail from now on, those that wait too.
    pub(super) fn fail(&self) {
        self.state.lock().unwrap().failing = true;
    }

    pub(super) fn mend(&self) {
        self.state.lock().unwrap().failing = false;
    }

    /// Blocks until so many syncs wait.
    pub(super) fn wait_for(&self, waiting: usize) {
        let state = self.state.lock().unwrap();
        let waited = self.change.wait_timeout_while(state, PATIENCE, |s| s.waiting < waiting);
        assert!(!waited.unwrap().1.timed_out(), "{waiting} syncs have not begun");
    }

    /// How many syncs have begun so far.
    pub(super) fn begun(&self) -> usize {
        self.state.lock().unwrap().begun
    }
}

impl Faults for Gate {
    fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        let held = match op {
            Op::SyncData(path) => path.extension().is_some_and(|e| e == "log"),
            Op::SyncFilesystem(_) => true,
            _ => false,
        };
        if !held {
            return Ok(Verdict::Perform);
        }
        let mut state = self.state.lock().unwrap();
        state.begun += 1;
        state.waiting += 1;
        self.change.notify_all();
        while state.shut {
            state = self.change.wait(state).unwrap();
        }
        state.waiting -= 1;
        if state.failing { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(Verdict::Perform) }
    }

    fn after(&self, _op: &Op<'_>) {}
}
