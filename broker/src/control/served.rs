//! What this broker has done as a new leader, on its way to the controller, which keeps the timeline of failovers.
//!
//! Nothing depends on it: what cannot be told in time is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barnabas_proto::convert::{LeaderServed, LeadersServed};
use barnabas_types::{Now, TopicPartition};
use tokio::sync::Notify;

use crate::node::Node;
use crate::partition::FirstServed;

/// Partitions of which something waits to be told; of more nothing is told.
const WAITING_MAX: usize = 10_000;
/// Partitions in one report.
const PARTITIONS_PER_REPORT_MAX: usize = 1_000;
/// How long an answer may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Wait before a report that was not taken is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// What is older is of no use to the controller any more, in milliseconds.
const AGE_MAX_MS: u64 = 60_000;

/// See the module's head.
#[derive(Default)]
pub struct ServedReports {
    waiting: Mutex<BTreeMap<TopicPartition, FirstServed>>,
    wake: Notify,
}

impl ServedReports {
    /// A leader here has appended or acknowledged for the first time in its epoch.
    pub fn add(&self, partition: &TopicPartition, served: FirstServed) {
        let mut waiting = self.waiting();
        if waiting.len() < WAITING_MAX || waiting.contains_key(partition) {
            waiting.insert(partition.clone(), served);
            drop(waiting);
            self.wake.notify_one();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, FirstServed>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next report; what is too old for any is dropped on the way. Empty: nothing waits.
    fn take(&self, now: Now) -> Vec<(TopicPartition, FirstServed)> {
        let mut waiting = self.waiting();
        let mut batch = Vec::new();
        while batch.len() < PARTITIONS_PER_REPORT_MAX {
            let Some((partition, served)) = waiting.pop_first() else { break };
            let last = served.acked.max(served.appended).unwrap_or(served.since);
            if now.since_ms(last) <= AGE_MAX_MS {
                batch.push((partition, served));
            }
        }
        batch
    }

    /// Puts back what was not taken, unless there is news of the partition.
    fn put_back(&self, batch: Vec<(TopicPartition, FirstServed)>) {
        let mut waiting = self.waiting();
        for (partition, served) in batch {
            if waiting.len() < WAITING_MAX {
                waiting.entry(partition).or_insert(served);
            }
        }
    }

    /// Tells the controller until the broker stops.
    pub async fn run(node: Arc<Node>) {
        loop {
            let batch = node.served.take(node.now());
            if batch.is_empty() {
                node.served.wake.notified().await;
                continue;
            }
            let partitions = batch.iter().map(|(partition, served)| {
                let since_push = |at: Now| at.since_ms(served.since);
                LeaderServed {
                    partition: partition.clone(),
                    leader_epoch: served.leader_epoch,
                    led_ms: node.now().since_ms(served.since),
                    first_append_ms: served.appended.map(since_push),
                    first_ack_ms: served.acked.map(since_push),
                }
            });
            let served = LeadersServed { leader: node.me, partitions: partitions.collect() };
            let told = node.controller.report_served(served);
            if !matches!(tokio::time::timeout(ANSWER_DEADLINE, told).await, Ok(Ok(()))) {
                node.served.put_back(batch);
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use barnabas_types::LeaderEpoch;

    use super::*;
    use crate::testing::tp;

    fn served(epoch: i32) -> FirstServed {
        let leader_epoch = LeaderEpoch(epoch);
        FirstServed { leader_epoch, since: Now(1), appended: Some(Now(2)), acked: None }
    }

    #[test]
    fn reports_are_bounded_and_news_is_not_overtaken_by_what_was_not_taken() {
        let reports = ServedReports::default();
        for index in 0..=i32::try_from(WAITING_MAX).unwrap() {
            reports.add(&tp("t", index), served(1));
        }
        assert_eq!(reports.waiting().len(), WAITING_MAX);
        let batch = reports.take(Now(3));
        assert_eq!(batch.len(), PARTITIONS_PER_REPORT_MAX);
        reports.add(&tp("t", 0), served(2));
        reports.put_back(batch);
        assert_eq!(reports.waiting()[&tp("t", 0)], served(2));
        assert_eq!(reports.waiting()[&tp("t", 1)], served(1));
        assert_eq!(reports.waiting().len(), WAITING_MAX);
    }

    #[test]
    fn what_is_too_old_does_not_hide_what_waits_behind_it() {
        let reports = ServedReports::default();
        for index in 0..i32::try_from(PARTITIONS_PER_REPORT_MAX).unwrap() {
            reports.add(&tp("old", index), served(1));
        }
        let now = Now(AGE_MAX_MS + 10);
        reports.add(&tp("young", 0), FirstServed { appended: Some(now), ..served(1) });
        let batch = reports.take(now);
        assert_eq!(batch.iter().map(|(at, _)| at.clone()).collect::<Vec<_>>(), [tp("young", 0)]);
        assert!(reports.waiting().is_empty());
    }
}
