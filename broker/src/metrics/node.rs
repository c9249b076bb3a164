//! What a broker counts that belongs to no partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barnabas_metrics::Traffic;

use super::requests::Requests;

/// Counters of one broker.
#[derive(Debug, Default)]
pub struct NodeFigures {
    /// Requests by key.
    pub requests: Arc<Requests>,
    /// Of requests that named a partition which is not here.
    pub strays: Traffic,
    failed_fetches: AtomicU64,
    unclean_elections: AtomicU64,
}

impl NodeFigures {
    /// An answer to a consumer's fetch has errors for so many partitions.
    pub fn fetches_failed(&self, partitions: usize) {
        if partitions > 0 {
            self.failed_fetches.fetch_add(partitions as u64, Ordering::Relaxed);
        }
    }

    /// How many there were.
    #[must_use]
    pub fn failed_fetches(&self) -> u64 {
        self.failed_fetches.load(Ordering::Relaxed)
    }

    /// This broker was elected from outside an ISR.
    pub fn elected_uncleanly(&self) {
        self.unclean_elections.fetch_add(1, Ordering::Relaxed);
    }

    /// How often.
    #[must_use]
    pub fn unclean_elections(&self) -> u64 {
        self.unclean_elections.load(Ordering::Relaxed)
    }
}
