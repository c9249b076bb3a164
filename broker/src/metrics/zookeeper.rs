//! How ZooKeeper answers, as the session's adapter tells it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barnabas_controller::zookeeper::Observer;
use barnabas_metrics::{Counts, Histogram};

/// Of all sessions of this process.
#[derive(Debug, Default)]
pub struct ZooKeeperFigures {
    requests: Histogram,
    unknown: AtomicU64,
    connected: AtomicU64,
    disconnected: AtomicU64,
    expired: AtomicU64,
}

impl Observer for ZooKeeperFigures {
    fn answered(&self, took: Duration, unknown: bool) {
        self.requests.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.unknown.fetch_add(u64::from(unknown), Ordering::Relaxed);
    }

    fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }

    fn expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }
}

impl ZooKeeperFigures {
    /// How long requests took, in microseconds.
    #[must_use]
    pub fn requests(&self) -> Counts {
        self.requests.counts()
    }

    /// Requests of which nobody knows what became of them.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Connections that came about, that were lost, and sessions that ended by themselves.
    #[must_use]
    pub fn connections(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.connected), read(&self.disconnected), read(&self.expired))
    }
}
