//! What the cluster looks like: brokers, topics, partitions. The controller pushes it, brokers act on it and serve it to clients.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Assignment, BrokerEpoch, BrokerId, BrokerSettings, ControllerEpoch, Incarnation, LeaderEpoch,
    Moving, PartitionEpoch, TopicName, TopicPartition,
};

/// When a produce request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Acks {
    /// acks=0: never answered.
    None,
    /// acks=1: answered when the leader has written it (in sync mode: flushed).
    Leader,
    /// acks=all (-1): answered when it is below the high watermark.
    All,
}

/// Which positions count for the high watermark (R10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum FlushMode {
    /// Written to the page cache counts.
    #[default]
    Async,
    /// Only flushed records count, on the leader and on every ISR member.
    Sync,
}

/// What becomes of old records (`cleanup.policy`); both may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CleanupPolicy {
    /// `delete`: segments go by age and size.
    pub delete: bool,
    /// `compact`: only the last record of each key stays.
    pub compact: bool,
}

/// Whose clock a record's timestamp is of (`message.timestamp.type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The leader's, at the append.
    LogAppendTime,
}

/// How the leader stores a producer's batches (`compression.type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum CompressionType {
    /// As they come.
    #[default]
    Producer,
    /// Not compressed.
    Uncompressed,
    /// In gzip.
    Gzip,
    /// In snappy.
    Snappy,
    /// In lz4.
    Lz4,
    /// In zstd.
    Zstd,
}

impl CompressionType {
    /// All of them with Kafka's names; the order is that of their numbers in messages, from 0.
    pub const NAMED: [(&str, Self); 6] = [
        ("producer", Self::Producer),
        ("uncompressed", Self::Uncompressed),
        ("gzip", Self::Gzip),
        ("snappy", Self::Snappy),
        ("lz4", Self::Lz4),
        ("zstd", Self::Zstd),
    ];
}

/// A share from 0 to 1, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Ratio(u32);

impl Ratio {
    /// All of it.
    pub const ONE: Self = Self(1_000_000);

    /// From millionths; more than all is all.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Self {
        if millionths > Self::ONE.0 { Self::ONE } else { Self(millionths) }
    }

    /// In millionths, 0 to 1,000,000.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Whether `part` is at least this share of `whole`. Of nothing, nothing is.
    #[must_use]
    pub fn is_reached_by(self, part: u64, whole: u64) -> bool {
        whole > 0
            && u128::from(part) * u128::from(Self::ONE.0) >= u128::from(whole) * u128::from(self.0)
    }
}

/// Settings of a topic, as they are in force; the leader takes them from the push, never from elsewhere (R37).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TopicConfig {
    /// `min.insync.replicas`, 1 or greater.
    pub min_insync_replicas: u32,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
    /// `flush.mode`.
    pub flush_mode: FlushMode,
    /// `flush.messages`: most records that stay unflushed, 1 or more.
    pub flush_messages: i64,
    /// `flush.ms`: longest time that a record stays unflushed.
    pub flush_ms: i64,
    /// `flush.timeout.ms`: how long a produce request waits for its flush before it is answered with an error.
    pub flush_timeout_ms: i64,
    /// `segment.bytes`: a segment is rolled before it would grow beyond this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is rolled when its first record is older than this.
    pub segment_ms: i64,
    /// `segment.index.bytes`: a segment is rolled before its offset index would grow beyond this.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: about one index entry for so many bytes.
    pub index_interval_bytes: u32,
    /// `max.message.bytes`: the largest record batch taken from a producer.
    pub max_message_bytes: u32,
    /// `compression.type`.
    pub compression_type: CompressionType,
    /// `message.timestamp.type`.
    pub message_timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a producer's timestamp may lie behind the leader's clock (KIP-937).
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far it may lie ahead (KIP-937).
    pub message_timestamp_after_max_ms: i64,
    /// `cleanup.policy`.
    pub cleanup: CleanupPolicy,
    /// `retention.ms`: segments older than this are deleted; -1: never.
    pub retention_ms: i64,
    /// `retention.bytes`: the oldest segments are deleted while more than this would stay; -1: never.
    pub retention_bytes: i64,
    /// `delete.retention.ms`: how long a tombstone stays readable in a compacted log.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: records younger than this are not compacted.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: records older than this are compacted whatever the dirty ratio.
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`: share of the log that must be uncompacted before it is compacted.
    pub min_cleanable_dirty_ratio: Ratio,
}

impl Default for TopicConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        const HOUR_MS: i64 = 3_600_000;
        const DAY_MS: i64 = 24 * HOUR_MS;
        Self {
            min_insync_replicas: 1,
            unclean_leader_election: false,
            flush_mode: FlushMode::Async,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            flush_timeout_ms: 30_000,
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * DAY_MS,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            max_message_bytes: 1024 * 1024 + 12,
            compression_type: CompressionType::Producer,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: HOUR_MS,
            cleanup: CleanupPolicy { delete: true, compact: false },
            retention_ms: 7 * DAY_MS,
            retention_bytes: -1,
            delete_retention_ms: DAY_MS,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: Ratio::from_millionths(500_000),
        }
    }
}

/// What the partition's state node says, with its version.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PartitionState {
    /// The leader, `None` = -1 outside.
    pub leader: Option<BrokerId>,
    /// Epoch of the present leader choice (also of the choice of "no leader").
    pub leader_epoch: LeaderEpoch,
    /// Version of the state node.
    pub partition_epoch: PartitionEpoch,
    /// Epoch of the controller that wrote it.
    pub controller_epoch: ControllerEpoch,
    /// Committed ISR in the order of the assignment, each member with the broker epoch under which it was admitted or
    /// last confirmed (R2, `isr_broker_epochs`). Invariant I8: a subset of the assigned replicas; the leader is in it.
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

impl PartitionState {
    /// The broker epoch under which `broker` is an ISR member, `None` if it is not one.
    #[must_use]
    pub fn isr_epoch_of(&self, broker: BrokerId) -> Option<BrokerEpoch> {
        self.isr.iter().find(|(id, _)| *id == broker).map(|(_, epoch)| *epoch)
    }

    /// Whether `broker` is a committed ISR member, under whatever broker epoch.
    #[must_use]
    pub fn in_isr(&self, broker: BrokerId) -> bool {
        self.isr_epoch_of(broker).is_some()
    }

    /// Ids of the ISR members.
    #[must_use]
    pub fn isr_ids(&self) -> Vec<BrokerId> {
        self.isr.iter().map(|(id, _)| *id).collect()
    }
}

/// One partition: who holds it and its state.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Partition {
    /// Assigned replicas (AR); the first is the preferred leader. During a move (KIP-455) those of both its ends.
    pub assigned_replicas: Vec<BrokerId>,
    /// The move that is under way.
    pub moving: Moving,
    /// Leader, epochs and ISR.
    pub state: PartitionState,
}

impl Partition {
    /// Its replicas and the move that is under way.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        Assignment { replicas: self.assigned_replicas.clone(), moving: self.moving.clone() }
    }
}

/// One live broker, as registered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BrokerImage {
    /// czxid of its registration.
    pub epoch: BrokerEpoch,
    /// Advertised host of the Kafka listener.
    pub host: String,
    /// Advertised port of the Kafka listener.
    pub port: u16,
    /// `host:port` at which the broker's gRPC services are reached.
    pub control_address: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// The broker may have lost the tail of its logs (R6, R7).
    pub tail_lost: bool,
    /// It is being emptied: it leaves every ISR as soon as enough others are in it, and enters none (R25, R26). Ends with the
    /// registration.
    pub draining: bool,
}

/// One topic with all its partitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TopicImage {
    /// Which life of the name this is.
    pub incarnation: Incarnation,
    /// Settings in force.
    pub config: TopicConfig,
    /// Settings that the topic itself has, as its users wrote them; also those that mean nothing here. For describe.
    pub overrides: BTreeMap<String, String>,
    /// By partition index; indexes are dense from 0.
    pub partitions: BTreeMap<i32, Partition>,
}

/// The whole cluster as one controller sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClusterImage {
    /// Who wrote this image.
    pub controller: Option<(BrokerId, ControllerEpoch)>,
    /// Live brokers.
    pub brokers: BTreeMap<BrokerId, BrokerImage>,
    /// Topics.
    pub topics: BTreeMap<TopicName, TopicImage>,
    /// Replicas that live brokers cannot serve (R38), by broker; a broker without any has no entry. Not stored anywhere: the
    /// controller knows them from the brokers' reports.
    pub failed: FailedByBroker,
    /// Registered brokers whose process seems to be gone (R17), as the controller knows. Nobody decides anything by it but the
    /// controller; it is here so that everybody tells the same of a partition.
    pub suspected: BTreeSet<BrokerId>,
    /// Settings of brokers that are stored in ZooKeeper, above those of their files.
    pub broker_settings: BrokerSettings,
    /// Topics that exist and whose nodes cannot be read: nothing is known of them, least of all that they were deleted. What a
    /// broker knew of one before stays in `topics` as it was.
    pub unreadable: BTreeSet<TopicName>,
}

/// Partitions whose replica a broker cannot serve, by broker.
pub type FailedByBroker = BTreeMap<BrokerId, BTreeSet<TopicPartition>>;

/// What a broker reports of its replicas (R38): all that it cannot serve, because the log cannot be opened or has failed, or
/// because its directory is offline. A replica that is not named can be served.
///
/// Sent whole after each change, after each registration and to each new controller, until it is taken: a lost or repeated
/// report does no harm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedReplicas {
    /// Who reports.
    pub broker: BrokerId,
    /// Under which registration; the report is void with the next one.
    pub broker_epoch: BrokerEpoch,
    /// Grows with each report of one process, so that a late report does not undo a newer one.
    pub sequence: u64,
    /// The replicas, each with the life of the topic of which it is.
    pub replicas: BTreeMap<TopicPartition, Incarnation>,
}

/// What one push carries: the full image, or what changed since an earlier version of the same controller's image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterDelta {
    /// `true`: everything is here, and what is absent does not exist (but see `unreadable`). `false`: only what changed.
    pub full: bool,
    /// All live brokers, if any broker changed (the list is short).
    pub brokers: Option<BTreeMap<BrokerId, BrokerImage>>,
    /// Changed topics with their changed partitions only (all partitions if `full`).
    pub topics: BTreeMap<TopicName, TopicImage>,
    /// Topics that were deleted, with the incarnation that was.
    pub deleted: Vec<(TopicName, Incarnation)>,
    /// All replicas that cannot be served, if that changed (the list is nearly always empty).
    pub failed: Option<FailedByBroker>,
    /// All suspected brokers, if that changed.
    pub suspected: Option<BTreeSet<BrokerId>>,
    /// All settings of brokers, if any changed (they are few).
    pub broker_settings: Option<BrokerSettings>,
    /// With `full`: topics that are absent from `topics` because their nodes cannot be read, not because they do not exist.
    pub unreadable: BTreeSet<TopicName>,
}

impl ClusterImage {
    /// Whether `broker` can serve its replica of the partition, as far as the controller knows: it is registered and has not
    /// reported otherwise.
    #[must_use]
    pub fn is_online(&self, broker: BrokerId, topic: &TopicName, partition: i32) -> bool {
        let failed = |failed: &BTreeSet<TopicPartition>| {
            failed.contains(&TopicPartition { topic: topic.clone(), partition })
        };
        self.brokers.contains_key(&broker) && !self.failed.get(&broker).is_some_and(failed)
    }

    /// Takes over a push. A full one replaces everything; the topics that it no longer names are returned, as are those
    /// that a delta names as deleted. The caller has checked the controller's epoch; pushes of one controller come in order.
    pub fn apply(
        &mut self,
        controller: (BrokerId, ControllerEpoch),
        delta: &ClusterDelta,
    ) -> Vec<TopicName> {
        let gone: Vec<TopicName> = if delta.full {
            self.unreadable.clone_from(&delta.unreadable);
            let named = |name: &TopicName| {
                delta.topics.contains_key(name) || delta.unreadable.contains(name)
            };
            self.topics.keys().filter(|name| !named(name)).cloned().collect()
        } else {
            let known = |name: &TopicName| self.topics.get(name).map(|topic| topic.incarnation);
            let deleted = delta.deleted.iter();
            deleted
                .filter(|(name, incarnation)| known(name).is_some_and(|i| i <= *incarnation))
                .map(|(name, _)| name.clone())
                .collect()
        };
        self.controller = Some(controller);
        if let Some(brokers) = &delta.brokers {
            self.brokers.clone_from(brokers);
        } else if delta.full {
            self.brokers.clear();
        }
        if let Some(failed) = &delta.failed {
            self.failed.clone_from(failed);
        } else if delta.full {
            self.failed.clear();
        }
        if let Some(suspected) = &delta.suspected {
            self.suspected.clone_from(suspected);
        } else if delta.full {
            self.suspected.clear();
        }
        if let Some(settings) = &delta.broker_settings {
            self.broker_settings.clone_from(settings);
        } else if delta.full {
            self.broker_settings.clear();
        }
        for name in &gone {
            self.topics.remove(name);
        }
        for (name, topic) in &delta.topics {
            self.merge(name, topic, delta.full);
        }
        gone
    }

    /// Takes over a changed topic; a partition's older state never replaces a newer one of the same incarnation (R27).
    fn merge(&mut self, name: &TopicName, topic: &TopicImage, full: bool) {
        match self.topics.get_mut(name) {
            Some(known) if known.incarnation == topic.incarnation => {
                known.config = topic.config;
                known.overrides.clone_from(&topic.overrides);
                for (index, partition) in &topic.partitions {
                    let newer = known.partitions.get(index).is_none_or(|p| {
                        (p.state.leader_epoch, p.state.partition_epoch)
                            <= (partition.state.leader_epoch, partition.state.partition_epoch)
                    });
                    if newer {
                        known.partitions.insert(*index, partition.clone());
                    }
                }
                if full {
                    known.partitions.retain(|index, _| topic.partitions.contains_key(index));
                }
            }
            Some(known) if known.incarnation > topic.incarnation => {}
            _ => {
                self.topics.insert(name.clone(), topic.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicId;

    fn topic(czxid: i64, leader_epoch: i32, partition_epoch: i32) -> TopicImage {
        let state = PartitionState {
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            ..PartitionState::default()
        };
        let partition =
            Partition { assigned_replicas: vec![BrokerId(1)], state, ..Partition::default() };
        TopicImage {
            incarnation: Incarnation { topic_id: TopicId([1; 16]), czxid },
            partitions: BTreeMap::from([(0, partition)]),
            ..TopicImage::default()
        }
    }

    fn push(full: bool, topics: Vec<(&str, TopicImage)>) -> ClusterDelta {
        ClusterDelta {
            full,
            brokers: full.then(BTreeMap::new),
            topics: topics.into_iter().map(|(n, t)| (TopicName::new(n).unwrap(), t)).collect(),
            ..ClusterDelta::default()
        }
    }

    #[test]
    fn r27_an_older_state_never_replaces_a_newer_one() {
        let mut image = ClusterImage::default();
        let me = (BrokerId(1), ControllerEpoch(1));
        image.apply(me, &push(true, vec![("t", topic(5, 3, 7))]));
        image.apply(me, &push(false, vec![("t", topic(5, 3, 6))]));
        image.apply(me, &push(false, vec![("t", topic(4, 9, 9))]));
        let known = &image.topics[&TopicName::new("t").unwrap()];
        assert_eq!(known.incarnation.czxid, 5);
        assert_eq!(known.partitions[&0].state.partition_epoch, PartitionEpoch(7));
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
        let mut image = ClusterImage::default();
        let me = (BrokerId(1), ControllerEpoch(1));
        image.apply(me, &push(true, vec![("a", topic(5, 0, 0)), ("b", topic(6, 0, 0))]));
        let b = TopicName::new("b").unwrap();
        let mut unreadable = push(true, vec![("a", topic(5, 0, 0))]);
        unreadable.unreadable.insert(b.clone());
        assert_eq!(image.apply(me, &unreadable), vec![]);
        assert_eq!(image.topics[&b].incarnation.czxid, 6, "as it was");
        assert!(image.unreadable.contains(&b));
        assert_eq!(image.apply(me, &push(true, vec![("a", topic(5, 0, 0))])), vec![b]);
        assert!(image.unreadable.is_empty());
    }

    #[test]
    fn suspicions_are_replaced_where_they_are_named_and_a_full_push_ends_them() {
        let mut image = ClusterImage::default();
        let me = (BrokerId(1), ControllerEpoch(1));
        let suspected = BTreeSet::from([BrokerId(2)]);
        let delta = ClusterDelta { suspected: Some(suspected.clone()), ..push(false, vec![]) };
        image.apply(me, &delta);
        image.apply(me, &push(false, vec![]));
        assert_eq!(image.suspected, suspected, "nothing was said of them");
        image.apply(me, &push(true, vec![]));
        assert!(image.suspected.is_empty());
    }

    #[test]
    fn a_full_push_names_what_is_gone() {
        let mut image = ClusterImage::default();
        let me = (BrokerId(1), ControllerEpoch(1));
        image.apply(me, &push(true, vec![("a", topic(5, 0, 0)), ("b", topic(6, 0, 0))]));
        let gone = image.apply(me, &push(true, vec![("b", topic(6, 0, 0))]));
        assert_eq!(gone, vec![TopicName::new("a").unwrap()]);
    }
}
