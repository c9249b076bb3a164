//! SIGINT and SIGTERM, counted: the first asks for an orderly end, the second for one at once.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// How often the process was asked to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupts(Arc<(Mutex<u32>, Condvar)>);

impl Interrupts {
    /// Listens from now on, on a thread of its own: a client that is busy still hears them.
    pub(crate) fn listen() -> io::Result<Self> {
        let interrupts = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut terminate, mut interrupt) = {
            let _entered = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let heard = interrupts.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                    heard.count_one();
                }
            });
        })?;
        Ok(interrupts)
    }

    fn count_one(&self) {
        let (count, changed) = &*self.0;
        *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        changed.notify_all();
    }

    /// How often so far.
    pub(crate) fn count(&self) -> u32 {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long, or until asked to end; whether it was asked.
    pub(crate) fn within(&self, wait: Duration) -> bool {
        let (count, changed) = &*self.0;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(count, wait, |count| *count == 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 > 0
    }
}
