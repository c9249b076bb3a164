//! Everything that can happen to a replica.

use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, Condition, ControllerEpoch, FlushMode, Incarnation, LeaderEpoch,
    LeaderEpochs, Offset, Partition, PartitionState,
};

/// Names one waiting request (produce, deletion); chosen by the shell, unique for the life of the replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(pub u64);

/// What the log says when it is opened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LogState {
    /// First offset, inclusive.
    pub log_start: Offset,
    /// LEO, exclusive.
    pub log_end: Offset,
    /// Flushed offset, exclusive: after an unclean stop the recovery point, never the LEO by assumption (R16).
    pub flushed: Offset,
    /// The checkpointed high watermark, exclusive; at most the LEO.
    pub high_watermark: Offset,
    /// Leader epochs of the log.
    pub epochs: LeaderEpochs,
}

impl LogState {
    /// Exclusive end of what counts in this mode (R10).
    pub(crate) fn counted(&self, mode: FlushMode) -> Offset {
        match mode {
            FlushMode::Async => self.log_end,
            FlushMode::Sync => self.flushed,
        }
    }
}

/// The controller's desired state for this partition, as one push carried it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StatePush {
    /// Epoch of the pushing controller.
    pub controller_epoch: ControllerEpoch,
    /// The broker epoch for which the push was meant.
    pub broker_epoch: BrokerEpoch,
    /// Which life of the topic it speaks of.
    pub incarnation: Incarnation,
    /// Assignment, leader, epochs, ISR.
    pub partition: Partition,
    /// `min.insync.replicas` in force.
    pub min_insync_replicas: u32,
    /// `flush.mode` in force (R37: it travels inside the push).
    pub flush_mode: FlushMode,
}

impl StatePush {
    /// What a producer at acks=all is told while the committed ISR is below `min.insync.replicas`.
    pub(crate) fn too_few_in_sync(&self) -> Option<Condition> {
        let isr = u32::try_from(self.partition.state.isr.len()).unwrap_or(u32::MAX);
        let min = self.min_insync_replicas;
        (isr < min).then_some(Condition::NotEnoughReplicas { isr, min })
    }
}

/// A producer's request for this partition. Batches were checked before (CRC, size).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Produce {
    /// Who waits. Answered exactly once through [`crate::Effects::answers`], except for acks=0 (never).
    pub waiter: WaiterId,
    /// When to answer.
    pub acks: Acks,
    /// How many offsets the batches take, 1 or more.
    pub offsets: i64,
}

/// An idempotent producer's batches that do not go on from what the log has of it (KIP-98).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceGap {
    /// Who waits. Answered exactly once, never with success.
    pub waiter: WaiterId,
    /// What the producer wanted. acks=0 has no answer and is not stepped.
    pub acks: Acks,
    /// First sequence of the batches.
    pub found: i32,
    /// The sequence that would go on.
    pub expected: i32,
}

/// Where a replica stands: what a fetch asks from and what it reports (R15). An answer is applied only if the replica
/// still stands exactly here (R31).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FetchPosition {
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// The follower's own broker epoch.
    pub broker_epoch: BrokerEpoch,
    /// Leader epoch that the follower follows in.
    pub leader_epoch: LeaderEpoch,
    /// Epoch of the last record in its log, `None` for an empty log (R36).
    pub last_epoch: Option<LeaderEpoch>,
    /// LEO, exclusive: the next offset wanted.
    pub log_end: Offset,
    /// Flushed offset, exclusive.
    pub flushed: Offset,
    /// First offset, inclusive.
    pub log_start: Offset,
}

/// A follower's fetch as it reaches the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerFetch {
    /// Who fetches.
    pub follower: BrokerId,
    /// Where it stands.
    pub position: FetchPosition,
    /// The greatest [`crate::Replica::roll_call`] of this replica that was in an answer which the follower had before it
    /// sent this; 0 if there was none.
    pub heard: u64,
}

/// What a leader's answer to a fetch says for one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchOutcome {
    /// Records from `position.log_end` on (possibly none: `end == position.log_end`).
    Records {
        /// Exclusive end of the records in the answer.
        end: Offset,
        /// Leader epochs of the records: first offset of each run, in order (empty if there are no records).
        epochs: Vec<(LeaderEpoch, Offset)>,
        /// The leader's HW.
        high_watermark: Offset,
        /// The leader's log start.
        log_start: Offset,
    },
    /// The logs diverge: the largest epoch known to the leader that is not above the follower's last, and its end (KIP-595).
    Diverging {
        /// That epoch.
        epoch: LeaderEpoch,
        /// Its exclusive end at the leader.
        end: Offset,
    },
    /// The follower has no epoch in common at or above the leader's log start: drop everything, begin there (R35).
    Reset {
        /// The leader's log start.
        log_start: Offset,
    },
    /// Refused; ask again later.
    Refused(Condition),
}

/// A leader's answer as it reaches the follower.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchAnswer {
    /// Who answered.
    pub leader: BrokerId,
    /// The position that the request named.
    pub asked: FetchPosition,
    /// What the leader said.
    pub outcome: FetchOutcome,
}

/// What became of an ISR proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposalOutcome {
    /// Written: the new state, which is adopted at once, as if it were pushed (R9, R13). The assignment and the settings
    /// stay those in force: an answer may be older than a push that changed them (R37).
    Accepted {
        /// Under which the broker had proposed.
        broker_epoch: BrokerEpoch,
        /// The state as it was written.
        state: PartitionState,
    },
    /// Refused by a controller. An earlier attempt may still be applied, so the maximal ISR stays as it is (R9). With
    /// [`Condition::IneligibleReplica`] that follower is withdrawn at once, by another proposal.
    Refused(Condition),
    /// No answer: timeout, connection lost. Treated like a refusal (R9).
    Unknown,
}

/// What a leader in async mode must have flushed before it answers producers: the records that a crash of its host can
/// take from those who were told that they are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlushBound {
    /// `flush.messages`: an answer waits as long as so many records up to its own end, or more, are unflushed. 1 or greater.
    pub unflushed_max: i64,
    /// A flush is later than `flush.ms`: answers for records that end above this offset wait. `None`: it is not.
    pub answered_to: Option<Offset>,
}

impl Default for FlushBound {
    /// No bound, as in Kafka.
    fn default() -> Self {
        Self { unflushed_max: i64::MAX, answered_to: None }
    }
}

impl FlushBound {
    /// Exclusive end of the records whose producers may be answered.
    pub(crate) fn answered_below(self, mode: FlushMode, flushed: Offset) -> Offset {
        match mode {
            // Only flushed records count at all.
            FlushMode::Sync => Offset(i64::MAX),
            FlushMode::Async => {
                let counted = Offset(flushed.0.saturating_add(self.unflushed_max - 1));
                self.answered_to.map_or(counted, |to| counted.min(to.max(flushed)))
            }
        }
    }
}

/// Everything that can happen to a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The broker registered under a new epoch (also the first time).
    Registered {
        /// The new broker epoch.
        broker_epoch: BrokerEpoch,
    },
    /// The controller's desired state.
    State(StatePush),
    /// A producer's batches arrived. If [`crate::Effects::append`] is set, append them there and report [`Event::Appended`].
    Produce(Produce),
    /// An idempotent producer repeats batches that are in the log already (KIP-98): answered like new ones, not appended.
    ///
    /// They may stem from an earlier leader epoch. That is no exception from R11: the answer says that they are below the
    /// HW of this leader, and the wait ends with this epoch like any other.
    ProduceAgain {
        /// Who waits. acks=0 has no answer and is not stepped.
        waiter: WaiterId,
        /// When to answer.
        acks: Acks,
        /// Where the batches begin in the log.
        base: Offset,
        /// Where they end, exclusive.
        end: Offset,
    },
    /// An idempotent producer's batches lack those before them; nothing is appended. At acks=all answered with
    /// `OutOfOrderSequenceNumber` once it is sure that this replica led after the request had come (see
    /// [`crate::Effects::roll_call`]); until then the wait ends like any other, with an error on which clients try again.
    ProduceGap(ProduceGap),
    /// A consumer asks for what is above the log end. The leader asks its maximal ISR whether it still led when that came;
    /// the call is number [`crate::Replica::roll_call`] then, and [`crate::Replica::doubts_end`] says whether it is answered
    /// ([`crate::Effects::roll_call_answered`]). Nothing happens to who does not lead.
    RollCall,
    /// An append ordered by an effect is written. Completion of [`crate::Effects::append`].
    Appended {
        /// The producer whose batches these are, `None` for a follower's append.
        waiter: Option<WaiterId>,
        /// Epoch in which the append was ordered.
        leader_epoch: LeaderEpoch,
        /// LEO after it.
        log_end: Offset,
    },
    /// The newest ordered append (or a follower's cut or reset) was refused before anything of it happened (no room on the
    /// disk): the log is whole and goes on. A producer is answered with the condition; a follower stays where it is, and
    /// fetches again when the shell sees fit. Stepped before anything else is ordered for this partition.
    AppendRefused {
        /// The producer whose batches these were, `None` for what a follower does to its log.
        waiter: Option<WaiterId>,
        /// What the producer is told.
        condition: Condition,
    },
    /// An append (or, with no waiter, a flush) failed: nothing of it counts. The replica is fenced until it is opened anew
    /// (R38: cut to what was flushed). Nothing is served, acknowledged or reported any more; waiters end with
    /// `KafkaStorageError`, which leaves open whether others have their records.
    AppendFailed {
        /// The producer whose batches these were.
        waiter: Option<WaiterId>,
    },
    /// A truncation or reset ordered by an effect is done.
    Truncated {
        /// First offset after it; counts after a reset only.
        log_start: Offset,
        /// LEO after it.
        log_end: Offset,
        /// Flushed offset after it: truncation lowers it (R16).
        flushed: Offset,
    },
    /// Everything below `to` is durable. A flush that began before a truncation must not be reported after it: its bytes
    /// are no longer those of the log.
    Flushed {
        /// Exclusive end.
        to: Offset,
    },
    /// How much of what producers are told to be written may be unflushed (async mode; in sync mode nothing is).
    FlushBound(FlushBound),
    /// A produce request waited for its flush for longer than `flush.timeout.ms`. Nothing happens unless it still does.
    FlushTimedOut {
        /// Which.
        waiter: WaiterId,
    },
    /// A follower asks the leader for records. Answered in [`crate::Effects::fetch_reply`].
    FollowerFetch(FollowerFetch),
    /// The leader answered this follower's fetch.
    FetchAnswered(FetchAnswer),
    /// Retention would drop everything below `to`: done as far as the own HW (R32), see [`crate::Effects::log_start`].
    RetentionReached {
        /// Exclusive end of what may go; see [`crate::Replica::log_start_max`].
        to: Offset,
    },
    /// A client asks the leader to delete everything below `to` (KIP-107). Answered in [`crate::Effects::answers`] with
    /// the low watermark, once every member of the maximal ISR has reported a log start that is not below (R33).
    DeleteRecords {
        /// Who waits.
        waiter: WaiterId,
        /// Where the log is to begin; `None`: at the HW.
        to: Option<Offset>,
    },
    /// The log start ordered by [`crate::Effects::log_start`] is durable. Stepped in the order in which the starts were
    /// written; several orders may be completed by the last of them.
    LogStartDurable {
        /// The start that was written.
        to: Offset,
    },
    /// An ISR proposal was answered, or not.
    ProposalAnswered(ProposalOutcome),
    /// A request (produce, deletion) waited longer than its timeout, or longer for its flush than `flush.timeout.ms`.
    WaiterTimedOut {
        /// Which.
        waiter: WaiterId,
    },
    /// These brokers are draining, and no others (R26): a leader proposes none of them for the ISR. The controller would refuse.
    Draining {
        /// Which.
        brokers: Vec<BrokerId>,
    },
    /// Time passed; sent at least every quarter of `replica.lag.time.max.ms`.
    Tick,
}
