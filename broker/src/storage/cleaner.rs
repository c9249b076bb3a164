//! A cleaner thread: compacts one log after the other, the dirtiest first, at a bounded rate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use barnabas_log::{Compacted, Ended, LogError, Round, StopSignal, Throttle, compact};
use barnabas_types::broker_settings::own_value;
use barnabas_types::{Now, TopicPartition};

use super::cleanup::guarded;
use crate::clock::unix_ms;
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};

/// How long a log whose compaction failed (a full disk, damage) is left alone.
const UNCLEANABLE_MS: u64 = 60_000;

/// Until when logs are left alone.
pub(super) type Uncleanable = Mutex<BTreeMap<TopicPartition, Now>>;

/// A setting of this broker's own work as it is now: stored in ZooKeeper, or that of its file.
fn in_force(node: &Node, key: &str, of_file: u64) -> u64 {
    let stored = own_value(&node.view.image().broker_settings, node.me, key);
    stored.and_then(|value| u64::try_from(value).ok()).unwrap_or(of_file)
}

/// One cleaner thread.
pub(super) struct Cleaner {
    pub(super) node: Weak<Node>,
    pub(super) stop: Arc<StopSignal>,
    /// `log.cleaner.backoff.ms` of the broker's file.
    pub(super) backoff_ms: u64,
    pub(super) map_bytes_max: usize,
    /// `log.cleaner.io.max.bytes.per.second` of the broker's file: of all cleaners together.
    pub(super) bytes_per_second: u64,
    /// How many cleaners there are.
    pub(super) cleaners: u64,
    /// Until when a log is left alone; of all cleaners together.
    pub(super) uncleanable: Arc<Uncleanable>,
}

impl Cleaner {
    pub(super) fn run(&self) {
        loop {
            let Some(node) = self.node.upgrade() else { return };
            let worked = match self.dirtiest(&node) {
                Some((hosted, round)) => guarded(&hosted, || self.compact(&node, &hosted, round)),
                None => false,
            };
            let backoff_ms = in_force(&node, "log.cleaner.backoff.ms", self.backoff_ms);
            drop(node);
            let backoff = Duration::from_millis(backoff_ms);
            if self.stop.wait(if worked { Duration::ZERO } else { backoff }) {
                return;
            }
        }
    }

    /// The log that is to be compacted first.
    fn dirtiest(&self, node: &Node) -> Option<(Arc<Hosted>, Round)> {
        let now = node.now();
        let left_alone = {
            let mut all = self.uncleanable.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, until| *until > now);
            all.clone()
        };
        let mut best: Option<(Arc<Hosted>, Round)> = None;
        for hosted in node.partitions.all() {
            let usable = hosted.directory.usable().is_some();
            if !usable || left_alone.contains_key(&hosted.topic_partition) {
                continue;
            }
            let Some(plan) = hosted.compaction_plan() else { continue };
            match plan.due(unix_ms()) {
                Ok(Some(round)) => {
                    if best.as_ref().is_none_or(|(_, b)| round.dirty_share() > b.dirty_share()) {
                        best = Some((hosted, round));
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    if error.is_disk_fault() {
                        hosted.unreadable(&error);
                    }
                    self.leave_alone(node, &hosted, &error);
                }
            }
        }
        best
    }

    fn compact(&self, node: &Arc<Node>, hosted: &Arc<Hosted>, round: Round) {
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let key = "log.cleaner.io.max.bytes.per.second";
        let share = (in_force(node, key, self.bytes_per_second) / self.cleaners).max(1);
        let mut throttle = Throttle::new(share as f64, self.stop.clone());
        let mut with_log =
            |work: &mut dyn FnMut(&mut barnabas_log::Log)| hosted.with_log_to_compact(work);
        match compact(round, &mut with_log, self.map_bytes_max, &mut throttle) {
            Ok(Compacted {
                ended: Ended::UpTo(to),
                read_bytes,
                written_bytes,
                records,
                removed_records,
                ..
            }) => {
                let leader_epoch = hosted.leader_epoch();
                tracing::info!(
                    %topic, partition, %leader_epoch, %to, read_bytes, written_bytes, records, removed_records,
                    "the log was compacted"
                );
                let points =
                    hosted.directory.usable().map(barnabas_log::LogDir::write_cleaner_points);
                if let Some(Err(error)) = points {
                    tracing::warn!(%topic, partition, %leader_epoch, %error, "how far the logs are compacted cannot be noted; after a restart a part is compacted again");
                }
            }
            Ok(_) => {}
            Err(error) => {
                let mut after = Aftermath::default();
                hosted.compaction_failed(node.now(), &error, &mut after);
                after.settle(hosted, &**node, &mut Flush::default());
                self.leave_alone(node, hosted, &error);
            }
        }
    }

    fn leave_alone(&self, node: &Node, hosted: &Hosted, error: &LogError) {
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let leader_epoch = hosted.leader_epoch();
        tracing::warn!(%topic, partition, %leader_epoch, %error, "the log cannot be compacted now; it is tried again in a minute");
        let until = Now(node.now().0 + UNCLEANABLE_MS);
        let mut all = self.uncleanable.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(hosted.topic_partition.clone(), until);
    }
}
