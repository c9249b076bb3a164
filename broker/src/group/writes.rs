//! What a coordinator writes to its partition, and until when each write may take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barnabas_group::{Append, AppendError, WriteId};
use barnabas_log::record_batch;
use barnabas_types::{Condition, LeaderEpoch};
use tokio::time::Instant;

use super::signals::{Signal, Signals};
use crate::clock::unix_ms;
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted, PendingProduce};

/// The writes of one coordinator that are not settled. Each is settled exactly once, by a signal.
pub(super) struct Writes {
    node: Arc<Node>,
    hosted: Arc<Hosted>,
    leader_epoch: LeaderEpoch,
    attempt: u64,
    signals: Arc<Signals>,
    /// When each is late. Later writes are late later.
    in_flight: BTreeMap<WriteId, (Instant, Arc<PendingProduce>)>,
}

impl Writes {
    pub(super) fn new(
        node: Arc<Node>,
        hosted: Arc<Hosted>,
        (leader_epoch, attempt): (LeaderEpoch, u64),
        signals: Arc<Signals>,
    ) -> Self {
        Self { node, hosted, leader_epoch, attempt, signals, in_flight: BTreeMap::new() }
    }

    /// Appends in the order of the calls.
    pub(super) fn append(&mut self, append: &Append, flush: &mut Flush) {
        let write = append.write;
        let records = append.records.iter().map(|r| (&r.key[..], r.value.as_deref()));
        let batch = record_batch(unix_ms(), records);
        let most = self.hosted.produce_rules().max_batch_bytes;
        let mut batch = match batch {
            Ok(batch) if batch.len() <= most => batch,
            _ => return self.settle(write, Err(AppendError::TooLarge)),
        };
        let (signals, attempt) = (self.signals.clone(), self.attempt);
        let told = move |result: Result<_, Condition>| {
            let result = result.map(|_| ()).map_err(|condition| of_condition(&condition));
            signals.send(Signal::Appended { attempt, write, result });
        };
        let pending = Arc::new(PendingProduce::of_broker(Box::new(told)));
        let late =
            Instant::now() + Duration::from_millis(self.node.options.groups.commit_timeout_ms);
        self.in_flight.insert(write, (late, pending.clone()));
        let offsets = i64::try_from(append.records.len()).unwrap_or(i64::MAX);
        let (now, mut after) = (self.node.now(), Aftermath::default());
        self.hosted.append_in_epoch(
            now,
            self.leader_epoch,
            offsets,
            &mut batch,
            &pending,
            &mut after,
        );
        after.settle(&self.hosted, &*self.node, flush);
    }

    fn settle(&self, write: WriteId, result: Result<(), AppendError>) {
        let attempt = self.attempt;
        self.signals.send(Signal::Appended { attempt, write, result });
    }

    /// The result of a write has been taken.
    pub(super) fn settled(&mut self, write: WriteId) {
        self.in_flight.remove(&write);
    }

    /// When the oldest write is late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|(_, (late, _))| *late)
    }

    /// Ends the waits of those that are late (`offsets.commit.timeout.ms`); what they wrote may be committed later.
    pub(super) fn time_out(&mut self, flush: &mut Flush) {
        let now = Instant::now();
        while let Some(first) = self.in_flight.first_entry() {
            if first.get().0 > now {
                return;
            }
            let (_, pending) = first.remove();
            let mut after = Aftermath::default();
            self.hosted.time_out(self.node.now(), &pending, &mut after);
            after.settle(&self.hosted, &*self.node, flush);
        }
    }
}

fn of_condition(condition: &Condition) -> AppendError {
    match condition {
        Condition::NotEnoughReplicas { .. } | Condition::NotEnoughReplicasAfterAppend => {
            AppendError::NotEnoughReplicas
        }
        Condition::RequestTimedOut => AppendError::TimedOut,
        Condition::NotLeaderOrFollower
        | Condition::FencedLeaderEpoch { .. }
        | Condition::UnknownTopicOrPartition => AppendError::NotLeader,
        Condition::KafkaStorageError | Condition::LogDirFull | Condition::NoDescriptorLeft => {
            AppendError::Storage
        }
        _ => AppendError::Other,
    }
}
