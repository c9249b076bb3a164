//! Flushes logs in the background: a rolled segment is made durable soon, so that its descriptor is let go and the next
//! recovery need not scan it. No acknowledgement waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use barnabas_types::TopicPartition;
use tokio::sync::Notify;

use super::{Aftermath, Flush, Hosted, Outward};

/// Logs that wait for a flush; each stands here once, so the map is bounded by what this broker hosts.
#[derive(Default)]
pub struct Flusher {
    waiting: Mutex<BTreeMap<TopicPartition, Arc<Hosted>>>,
    wake: Notify,
}

impl Flusher {
    /// Asks for a flush.
    pub fn add(&self, hosted: &Arc<Hosted>) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(hosted.topic_partition.clone(), hosted.clone());
        self.wake.notify_one();
    }

    /// The next log, waiting for one.
    pub async fn next(&self) -> Arc<Hosted> {
        loop {
            let first = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            if let Some((_, hosted)) = first {
                return hosted;
            }
            self.wake.notified().await;
        }
    }
}

/// Flushes one log; blocks on the disk. A failure fences the replica, which says so itself.
pub fn flush_now(hosted: &Arc<Hosted>, now: barnabas_types::Now, outward: &dyn Outward) {
    let mut after = Aftermath::default();
    hosted.flush(now, &mut after);
    after.settle(hosted, outward, &mut Flush::default());
}
