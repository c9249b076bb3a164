//! Events and effects of the controller: topics, leaders, ISRs, pushes.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, BrokerSettings, Condition, ConfigEntity,
    FailedReplicas, Incarnation, LeaderEpoch, Offset, PartitionEpoch, PartitionState, TopicId,
    TopicName, TopicPartition, topic_config::SettingChange,
};

/// Names one request that waits for an answer; chosen by the shell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// Names one write under way; chosen by the core, unique within a term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub u64);

/// A broker as registered now.
pub type BrokerRegistration = BrokerImage;

/// A partition as loaded. `state` is `None` if its node is missing or unreadable (that partition is marked, nothing else).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedPartition {
    /// From the topic node.
    pub assignment: Assignment,
    /// The state node.
    pub state: Option<PartitionState>,
}

/// A topic as loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedTopic {
    /// Topic id and czxid of the topic node.
    pub incarnation: Incarnation,
    /// Version of the topic node.
    pub version: i32,
    /// What the topic itself sets, as typed.
    pub overrides: BTreeMap<String, String>,
    /// Partitions.
    pub partitions: BTreeMap<i32, LoadedPartition>,
    /// `/admin/delete_topics/T` exists: go on deleting.
    pub deleting: bool,
}

/// Everything in ZooKeeper, as read after a `sync` at election.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Registered brokers.
    pub brokers: BTreeMap<BrokerId, BrokerRegistration>,
    /// Topics.
    pub topics: BTreeMap<TopicName, LoadedTopic>,
    /// Stored settings of brokers.
    pub broker_settings: BrokerSettings,
    /// Topics whose nodes cannot be read: left alone, and never taken for deleted.
    pub unreadable: BTreeSet<TopicName>,
}

impl Snapshot {
    /// Whether the topic exists, readable or not.
    #[must_use]
    pub fn names(&self, topic: &TopicName) -> bool {
        self.topics.contains_key(topic) || self.unreadable.contains(topic)
    }
}

/// A leader's ISR proposal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AlterPartition {
    /// Who proposes (must lead).
    pub leader: BrokerId,
    /// Its broker epoch.
    pub broker_epoch: BrokerEpoch,
    /// Which partition.
    pub partition: TopicPartition,
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// Partition epoch on which the proposal builds.
    pub partition_epoch: PartitionEpoch,
    /// Proposed ISR with the broker epochs under which the members fetched (R12).
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

/// The answer to a proposal: the state after it, or why not.
pub type AlterPartitionAnswer = Result<PartitionState, Condition>;

/// A topic to create, validated for form by the edge, for meaning by the core.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CreateTopic {
    /// Name.
    pub name: TopicName,
    /// A fresh random id, drawn by the shell.
    pub topic_id: TopicId,
    /// Number of partitions, or `None` for the default (`num.partitions`); ignored with `assignment`.
    pub partitions: Option<i32>,
    /// Replication factor, or `None` for the default (`default.replication.factor`).
    pub replication_factor: Option<i32>,
    /// Manual assignment by partition index; empty for automatic.
    pub assignment: BTreeMap<i32, Vec<BrokerId>>,
    /// Settings as typed by the user.
    pub overrides: BTreeMap<String, String>,
    /// Only check, write nothing.
    pub validate_only: bool,
}

/// The answer to a creation: id, partitions, replication factor; or why not.
pub type CreateTopicAnswer = Result<(TopicId, i32, i32), Condition>;

/// More partitions for a topic, validated by the core.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CreatePartitions {
    /// Which topic.
    pub name: TopicName,
    /// How many partitions it shall have afterwards, the present ones included.
    pub total: i32,
    /// Replicas of each new partition, in the order of their indexes; empty for automatic.
    pub assignment: Vec<Vec<BrokerId>>,
    /// Only check, write nothing.
    pub validate_only: bool,
}

/// The answer to it: how many partitions the topic has now (or would have); or why not.
pub type CreatePartitionsAnswer = Result<i32, Condition>;

/// A change of settings, validated by the core.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AlterConfig {
    /// Whose.
    pub entity: ConfigEntity,
    /// What the changes do not set is no longer overridden; otherwise it stays.
    pub replace: bool,
    /// By key.
    pub changes: Vec<(String, SettingChange)>,
    /// Only check, write nothing.
    pub validate_only: bool,
}

/// What the settings have become.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AlteredConfig {
    /// What is stored now, or would be with `validate_only`.
    pub overrides: BTreeMap<String, String>,
    /// Leaders (for settings of brokers: brokers) that have not confirmed them (R37): stored all the same, and every later
    /// leader gets them with its leadership.
    pub unconfirmed: Vec<BrokerId>,
}

/// The answer to a change of settings.
pub type AlterConfigAnswer = Result<AlteredConfig, Condition>;

/// What an operator wants of a partition's replicas (KIP-455).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reassign {
    /// Move to these replicas, also in the middle of another move (R19, R21).
    To {
        /// All that hold the partition afterwards, the preferred leader first.
        replicas: Vec<BrokerId>,
        /// Most bytes a second that a broker fetches for replicas that are being added; 0: no limit; `None`: as it is, and no
        /// limit for a new move.
        throttle: Option<u64>,
    },
    /// Back to where the present move began (R21).
    Cancel,
    /// Another limit for the present move, as above.
    Throttle(u64),
}

/// A replica's answer about its log, given after it accepted the leaderless state at `leader_epoch` (R8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaReport {
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// The leaderless epoch that was accepted.
    pub leader_epoch: LeaderEpoch,
    /// Epoch of the last record, `None` for an empty log; compared before the LEO.
    pub last_epoch: Option<LeaderEpoch>,
    /// LEO, exclusive.
    pub log_end: Offset,
}

/// A partition that a broker cannot leave, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstruction {
    /// Which partition.
    pub partition: TopicPartition,
    /// Why, for people.
    pub reason: String,
    /// No waiting resolves it: its replicas are too few.
    pub never: bool,
}

/// How far a draining broker has come (R26).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainProgress {
    /// It is in no ISR and leads nothing, and those who must know it have acknowledged that.
    pub may_stop: bool,
    /// Partitions that it leads, or in whose ISR it is.
    pub partitions: usize,
    /// The first of them; see [`crate::OBSTRUCTIONS_SHOWN_MAX`].
    pub obstructions: Vec<Obstruction>,
}

/// Whether a broker may be stopped: yes, if nothing stands in the way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StopVerdict {
    /// Some of what stands in the way no waiting resolves.
    pub never: bool,
    /// Partitions that would be left without a leader, or with fewer ISR members than `min.insync.replicas`.
    pub partitions: usize,
    /// The first of them; see [`crate::OBSTRUCTIONS_SHOWN_MAX`].
    pub obstructions: Vec<Obstruction>,
}

/// Which leader is wanted (KIP-460).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Election {
    /// The first of the assigned replicas.
    Preferred,
    /// Any, since no ISR member can lead: records may be lost (R39).
    Unclean {
        /// This one; `None`: the one with the longest log.
        to: Option<BrokerId>,
    },
}

/// One partition of a request for elections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElectPartition {
    /// Which.
    pub partition: TopicPartition,
    /// Only if it is at this epoch, which the operator was shown (R39).
    pub expected: Option<PartitionEpoch>,
}

/// A request for elections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElectLeaders {
    /// Of which kind.
    pub election: Election,
    /// Of which partitions.
    pub partitions: Vec<ElectPartition>,
}

/// What became of each partition: its state after the election, or why there was none. In the order of the partitions.
pub type ElectLeadersAnswer = Vec<(TopicPartition, Result<PartitionState, Condition>)>;

/// What the controller hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerEvent {
    /// The term begins: everything in ZooKeeper. Always the first event.
    Loaded(Snapshot),
    /// `/brokers/ids` as it is now (read whole after each watch event).
    Brokers(BTreeMap<BrokerId, BrokerRegistration>),
    /// A leader proposes an ISR. Answered in `Effects::alter_answers`.
    AlterPartition {
        /// Whom to answer.
        request: RequestId,
        /// What is proposed.
        proposal: AlterPartition,
    },
    /// Answered in `Effects::create_answers`; if it is created, once the live brokers have heard of it or the shell's patience
    /// has ended.
    CreateTopic {
        /// Whom to answer.
        request: RequestId,
        /// What to create.
        topic: CreateTopic,
    },
    /// Answered in `Effects::partitions_answers`, likewise.
    CreatePartitions {
        /// Whom to answer.
        request: RequestId,
        /// What to add.
        create: CreatePartitions,
    },
    /// Answered in `Effects::delete_answers`, likewise.
    DeleteTopic {
        /// Whom to answer.
        request: RequestId,
        /// What to delete.
        topic: TopicName,
    },
    /// Answered in `Effects::config_answers`, once every leader has confirmed or the shell's patience has ended.
    AlterConfig {
        /// Whom to answer.
        request: RequestId,
        /// What to change.
        alter: AlterConfig,
    },
    /// The shell waits no longer for the confirmations of `Effects::confirmations_awaited`, or for brokers to hear of what
    /// `Effects::announcements_awaited` names.
    ConfirmationDue {
        /// The request to answer now.
        request: RequestId,
    },
    /// A broker cannot be told anything at present: it is no more waited for until it acknowledges a push.
    PushBroken {
        /// Which.
        broker: BrokerId,
        /// Under which registration.
        broker_epoch: BrokerEpoch,
    },
    /// An operator wants replicas moved. Answered in `Effects::reassign_answers` when that is stored: the move has begun.
    Reassign {
        /// Whom to answer.
        request: RequestId,
        /// Which partition.
        partition: TopicPartition,
        /// What is wanted.
        wish: Reassign,
    },
    /// Somebody else has changed settings in ZooKeeper, and says so: read them again.
    ConfigChanged {
        /// Whose.
        entity: ConfigEntity,
    },
    /// A broker acknowledged image `version`; with it come reports for leaderless partitions.
    PushAcked {
        /// Who acknowledges.
        broker: BrokerId,
        /// Under which registration.
        broker_epoch: BrokerEpoch,
        /// Version of the image that it has applied, of this term.
        version: u64,
        /// One for each leaderless partition of the push (also one that it knew already) that the broker accepted.
        reports: Vec<(TopicPartition, ReplicaReport)>,
    },
    /// The process of a broker seems to be gone: its stream broke, and whoever dials it is refused. A timeout is no refusal.
    /// May be repeated. The suspicion ends with the next `PushAcked` of the same incarnation, or with its registration; so a
    /// suspect must be owed a full push, on a new stream.
    BrokerSuspected {
        /// Who.
        broker: BrokerId,
        /// Under which registration; nothing happens if it is another one now.
        broker_epoch: BrokerEpoch,
    },
    /// A broker tells which of its replicas it cannot serve (R38). Answered in `Effects::failed_answers`.
    ReplicasFailed {
        /// Whom to answer.
        request: RequestId,
        /// All of them.
        report: FailedReplicas,
    },
    /// A broker says that it drains, and asks whether it may stop (R26), or that it no longer does. Its registration must be
    /// known as it is now ([`crate::Controller::knows_draining`]). Answered in `Effects::drain_answers`.
    Drain {
        /// Whom to answer.
        request: RequestId,
        /// Who asks.
        broker: BrokerId,
        /// Under which registration; another one than the present is refused (R25).
        broker_epoch: BrokerEpoch,
        /// What it says.
        draining: bool,
    },
    /// An operator wants other leaders. Before an unclean election the registrations must have been read again (R39).
    /// Answered in `Effects::elect_answers`.
    ElectLeaders {
        /// Whom to answer.
        request: RequestId,
        /// Which.
        elect: ElectLeaders,
    },
    /// `leader.imbalance.check.interval.seconds` have passed.
    RebalanceDue {
        /// `leader.imbalance.per.broker.percentage`.
        imbalance_percentage: u32,
    },
    /// A write ended.
    Written {
        /// Which write.
        write: WriteId,
        /// How it ended.
        outcome: WriteOutcome,
    },
}

/// How a write ended. The shell resolves unknown outcomes itself: it re-reads until it knows, then reports one of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    /// Applied; for partition states the new version is the old + 1, for topic creations see `TopicCreated`.
    Applied,
    /// A topic creation was applied; the node's czxid, read back.
    TopicCreated {
        /// czxid of the topic node.
        czxid: i64,
    },
    /// Not applied: the partition's state is another one than the write built on. What is there now.
    Conflict {
        /// What is stored; `None`: no node, or an unreadable one.
        now: Option<PartitionState>,
    },
    /// Not applied: the topic's node or the partition's state is another one than the write built on. What is there now.
    AssignmentConflict {
        /// Version of the topic's node and all its assignments; `None`: no node, or an unreadable one.
        topic: Option<(i32, BTreeMap<i32, Assignment>)>,
        /// The state; `None` as above.
        now: Option<PartitionState>,
    },
    /// The stored settings, for a read; for a write: not applied, because they are others than it built on.
    Config {
        /// What is stored.
        now: BTreeMap<String, String>,
    },
    /// Not applied: the topic's node exists (create) or is gone (delete, settings).
    TopicConflict,
    /// Not applied: the store refused it for good (for instance the request is too large).
    Refused {
        /// Why, for people.
        reason: &'static str,
    },
    /// Not applied: a newer controller is elected. The core resigns.
    Fenced,
}

/// A conditional write of one partition's state (R1): applied iff `/controller_epoch` is at the term's version and the
/// node is at `expected`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionWrite {
    /// To be named in `Written`.
    pub write: WriteId,
    /// Which partition.
    pub partition: TopicPartition,
    /// Version on which the decision was made.
    pub expected: PartitionEpoch,
    /// The new state; its `partition_epoch` is `expected + 1`.
    pub state: PartitionState,
}

/// A conditional write of a topic's node together with one partition's state (R18): applied iff `/controller_epoch` is at the
/// term's version and both nodes are at the versions given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssignmentWrite {
    /// To be named in `Written`.
    pub write: WriteId,
    /// The partition that changes.
    pub partition: TopicPartition,
    /// Id of the topic, written again.
    pub topic_id: TopicId,
    /// Version of the topic's node on which the decision was made.
    pub topic_version: i32,
    /// What the topic's node says afterwards, of all partitions.
    pub assignments: BTreeMap<i32, Assignment>,
    /// Version of the state node on which the decision was made.
    pub expected: PartitionEpoch,
    /// The new state; its `partition_epoch` is `expected + 1`, also if nothing else changes.
    pub state: PartitionState,
}

/// A write of a topic's nodes. All forms check `/controller_epoch`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicWrite {
    /// One multi: topic node, partition nodes, state nodes, config node (R29).
    Create {
        /// To be named in `Written`.
        write: WriteId,
        /// Name.
        name: TopicName,
        /// Id.
        topic_id: TopicId,
        /// Settings.
        overrides: BTreeMap<String, String>,
        /// Assignment and first state (partition epoch 0) by index.
        partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
    },
    /// One multi: the topic's node with the new partitions beside those that it names, their nodes and their state nodes
    /// (R29). What else the node says stays; another number of partitions than `first` is `Refused`.
    Grow {
        /// To be named in `Written`.
        write: WriteId,
        /// Name.
        name: TopicName,
        /// Life of the topic; another one is `TopicConflict`.
        incarnation: Incarnation,
        /// Index of the first new partition: how many there are already.
        first: i32,
        /// Assignment and first state (partition epoch 0) by index, from `first` on without a gap.
        partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
    },
    /// Mark in `/admin/delete_topics`, then remove the whole tree and the mark; resumable.
    Delete {
        /// To be named in `Written`.
        write: WriteId,
        /// Name.
        name: TopicName,
        /// Partition indexes to remove.
        partitions: Vec<i32>,
    },
}

/// A conditional write (or a read) of settings. One multi that checks `/controller_epoch`, the topic's node if it is one, and
/// the version of the settings' node as read, if they are `expected`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigWrite {
    /// To be named in `Written`.
    pub write: WriteId,
    /// Whose.
    pub entity: ConfigEntity,
    /// Life of the topic, if it is one; another one is `TopicConflict`.
    pub life: Option<Incarnation>,
    /// The settings on which the decision was made.
    pub expected: BTreeMap<String, String>,
    /// The new settings; `None`: only read.
    pub overrides: Option<BTreeMap<String, String>>,
}

/// What to do after a step, in this order. (Completion changes the state: a write counts when `Written` says so.)
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// 1. Partition states to write; independent of one another. The shell batches about 100 to a multi, 8 in flight.
    pub partition_writes: Vec<PartitionWrite>,
    /// 2. Assignments to write; at most one of each topic is under way.
    pub assignment_writes: Vec<AssignmentWrite>,
    /// 3. Topics to write.
    pub topic_writes: Vec<TopicWrite>,
    /// 4. Settings to write or to read.
    pub config_writes: Vec<ConfigWrite>,
    /// 5. The image changed: every broker is owed a push (`Controller::push_for`).
    pub image_changed: bool,
    /// 6. Answers to proposals.
    pub alter_answers: Vec<(RequestId, AlterPartitionAnswer)>,
    /// 7. Answers to creations: id, partitions, replication factor.
    pub create_answers: Vec<(RequestId, CreateTopicAnswer)>,
    /// 8. Answers to deletions.
    pub delete_answers: Vec<(RequestId, Result<TopicId, Condition>)>,
    /// 9. Answers to changes of settings.
    pub config_answers: Vec<(RequestId, AlterConfigAnswer)>,
    /// 10. These changes of settings are stored and wait for the leaders' confirmation: `ConfirmationDue` after a while.
    pub confirmations_awaited: Vec<RequestId>,
    /// 11. These changes of topics are stored and wait until the live brokers have heard of them: `ConfirmationDue` after a while.
    pub announcements_awaited: Vec<RequestId>,
    /// 12. Answers to reports of failed replicas: taken, or why not.
    pub failed_answers: Vec<(RequestId, Result<(), Condition>)>,
    /// 13. Answers to additions of partitions: how many there are now, or why not.
    pub partitions_answers: Vec<(RequestId, CreatePartitionsAnswer)>,
    /// 14. Answers to draining brokers.
    pub drain_answers: Vec<(RequestId, Result<DrainProgress, Condition>)>,
    /// 15. Answers to requests for elections.
    pub elect_answers: Vec<(RequestId, ElectLeadersAnswer)>,
    /// 16. Answers to wishes to move replicas: the move is stored, or why not.
    pub reassign_answers: Vec<(RequestId, Result<(), Condition>)>,
    /// 17. The term is over (a write was fenced): stop at once.
    pub resign: bool,
    /// 18. Lines for the state-change log.
    pub notes: Vec<Note>,
}

/// One line for the state-change log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The partition it speaks of, if it speaks of one.
    pub partition: Option<TopicPartition>,
    /// For an operator's eyes (offline partition, unclean election).
    pub warn: bool,
    /// What happened and why, with epochs.
    pub text: String,
}
