//! The threads of one log directory that wait for its disk in the place of whoever reads what is not in the page cache.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Threads of one directory, started when they are first needed: so many reads a disk has to put in order at once.
const THREADS_MAX: usize = 4;
/// Reads that wait for a thread; further ones are refused.
const QUEUE_MAX: usize = 4096;

/// A read, and what is to be done after it.
type Read = Box<dyn FnOnce() + Send>;

/// Reads from one directory's disk. Its threads end when it is dropped.
#[derive(Default)]
pub(crate) struct Readers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Read>,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        write!(f, "{} reads wait for {} threads", state.queue.len(), state.threads)
    }
}

impl Readers {
    /// Runs a read soon. `false`: too many wait already, or there is no thread, and it was dropped.
    #[must_use]
    pub(crate) fn add(&self, read: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.0.lock();
        if state.queue.len() >= QUEUE_MAX {
            return false;
        }
        if state.queue.len() >= state.idle && state.threads < THREADS_MAX {
            let shared = self.0.clone();
            let started =
                thread::Builder::new().name("reader".to_owned()).spawn(move || shared.work());
            state.threads += usize::from(started.is_ok());
            if state.threads == 0 {
                return false;
            }
        }
        state.queue.push_back(Box::new(read));
        drop(state);
        self.0.wake.notify_one();
        true
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.stopped = true;
        let left = std::mem::take(&mut state.queue);
        drop(state);
        self.0.wake.notify_all();
        drop(left);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(read) = self.next() {
            // The panic itself said what is wrong; the others' reads go on.
            let _ = catch_unwind(AssertUnwindSafe(read));
        }
    }

    /// The next read; `None`: there will be no more.
    fn next(&self) -> Option<Read> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(read) = state.queue.pop_front() {
                return Some(read);
            }
            state.idle += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A read that tells that it runs, and then waits until it may end.
    fn gated(began: &mpsc::Sender<()>) -> (impl FnOnce() + Send + use<>, mpsc::Sender<()>) {
        let (may_end, gate) = mpsc::channel();
        let began = began.clone();
        let read = move || {
            let _ = began.send(());
            let _ = gate.recv();
        };
        (read, may_end)
    }

    #[test]
    fn a_few_reads_run_at_once_and_too_many_are_refused() {
        let readers = Readers::default();
        let (began, begins) = mpsc::channel();
        let mut gates = Vec::new();
        for _ in 0..THREADS_MAX + QUEUE_MAX {
            let (read, gate) = gated(&began);
            // Those that run are out of the queue.
            while readers.0.lock().queue.len() >= QUEUE_MAX {
                thread::yield_now();
            }
            assert!(readers.add(read));
            gates.push(gate);
        }
        (0..THREADS_MAX).for_each(|_| begins.recv().unwrap());
        assert!(begins.try_recv().is_err(), "the threads are all held up");
        assert!(!readers.add(|| ()));
        drop(gates);
        (0..QUEUE_MAX).for_each(|_| begins.recv().unwrap());
    }

    #[test]
    fn a_read_that_panics_ends_alone_and_what_waits_at_the_end_is_dropped() {
        let readers = Readers::default();
        let (began, begins) = mpsc::channel();
        assert!(readers.add(|| panic!("a read with a broken invariant")));
        let gates: Vec<_> = (0..=THREADS_MAX)
            .map(|_| {
                let (read, gate) = gated(&began);
                assert!(readers.add(read));
                gate
            })
            .collect();
        (0..THREADS_MAX).for_each(|_| begins.recv().unwrap());
        drop((readers, began, gates));
        assert!(begins.recv().is_err(), "nobody will run the last one");
    }
}
