//! What a replica wants done, in the order in which the shell must do it.

use barnabas_types::{
    BrokerEpoch, BrokerId, Condition, Incarnation, LeaderEpoch, Offset, PartitionEpoch,
};

use crate::event::WaiterId;

/// What to do after a step. The shell performs the fields in the order in which they stand here; what a field orders is
/// done (and its completion event stepped) before anything that a later step orders for the same partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// 1. Cut the log to this exclusive end, then step `Truncated`. Never an HW (R15).
    pub truncate_to: Option<Offset>,
    /// 1b. Drop everything and begin an empty log at this offset, then step `Truncated` (R35).
    pub reset_to: Option<Offset>,
    /// 2. Persist that this leader epoch begins at this offset (at election, before the first append).
    pub assign_epoch: Option<(LeaderEpoch, Offset)>,
    /// 2b. This replica leads without having been an ISR member: what was acknowledged from this offset on may be lost (R8, R39).
    ///     Its own LEO if its newest epoch is the newest that can have had a leader, otherwise its high watermark: its end may be a
    ///     tail from which the others' logs parted. To be recorded.
    pub led_uncleanly: Option<Offset>,
    /// 3. Append: the producer's batches (stamped with base offset and epoch), or the fetched records as they are;
    ///    then step `Appended` or `AppendFailed`.
    pub append: Option<AppendOrder>,
    /// 4. Answers: to producers `Ok(base offset)`, to deletions `Ok(low watermark)`, or the condition. Each waiter is
    ///    answered exactly once.
    pub answers: Vec<(WaiterId, Result<Offset, Condition>)>,
    /// 5. The answer to the `FollowerFetch` of this step.
    pub fetch_reply: Option<FetchReply>,
    /// 6. The high watermark moved: publish it, wake fetchers.
    pub high_watermark: Option<Offset>,
    /// 6a. Every follower is to be answered at once, and the answer to count as one with [`crate::Replica::roll_call`]: what it
    ///     asks afterwards carries that ([`crate::FollowerFetch::heard`]).
    pub roll_call: bool,
    /// 6b. Roll calls were answered by the whole maximal ISR: fetches that wait for that ([`crate::Replica::doubts_end`])
    ///     are to look again.
    pub roll_call_answered: bool,
    /// 6c. Begin the log at this offset (above the present start; after a reset: the start that the log has now), make that
    ///     durable, then step `LogStartDurable`; only then may the segments below go. Nothing else waits for it.
    pub log_start: Option<Offset>,
    /// 7. The role or epoch changed: fetchers must be started, stopped or moved; parked client fetches ended.
    pub role_changed: Option<Role>,
    /// 8. Send this proposal to the controller, then step `ProposalAnswered`. At most one is open at a time.
    pub propose: Option<IsrProposal>,
    /// 9. The replica is no longer assigned here (accepted, guarded by R22): close the log and delete its directory.
    pub delete: bool,
    /// 10. Lines for the state-change log.
    pub notes: Vec<Note>,
}

impl Effects {
    /// Empties every field and keeps the capacity of the lists, so that one value serves every step of a partition.
    pub fn clear(&mut self) {
        let (mut answers, mut notes) =
            (std::mem::take(&mut self.answers), std::mem::take(&mut self.notes));
        answers.clear();
        notes.clear();
        *self = Self { answers, notes, ..Self::default() };
    }

    /// Adds a line for the state-change log.
    pub(crate) fn note(&mut self, warn: bool, text: String) {
        self.notes.push(Note { warn, text });
    }
}

/// Where to append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendOrder {
    /// The producer whose batches these are; `None`: the records of the fetch answer just stepped.
    pub waiter: Option<WaiterId>,
    /// Offset of the first record; equal to the present LEO.
    pub base_offset: Offset,
    /// Leader epoch to stamp (leader), or in which the append is done (follower; batches keep their own epochs).
    pub leader_epoch: LeaderEpoch,
}

/// What a leader answers to a follower's fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchReply {
    /// Read from the log, if there is anything; otherwise park.
    Grant(FetchGrant),
    /// The follower's log diverges; see [`crate::FetchOutcome::Diverging`].
    Diverging {
        /// Largest epoch known here, not above the follower's last.
        epoch: LeaderEpoch,
        /// Its exclusive end here.
        end: Offset,
    },
    /// See [`crate::FetchOutcome::Reset`].
    Reset {
        /// Log start here.
        log_start: Offset,
    },
    /// Refused.
    Refused(Condition),
}

/// What a granted fetch may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchGrant {
    /// First offset to read.
    pub from: Offset,
    /// Exclusive end: the LEO for followers.
    pub to: Offset,
    /// HW to send along.
    pub high_watermark: Offset,
    /// Log start to send along.
    pub log_start: Offset,
    /// The roll call that the answer makes known.
    pub roll_call: u64,
}

/// A replica's role. Its epochs come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Nothing accepted yet, or stopped by an error.
    Idle,
    /// Leads.
    Leader {
        /// In this epoch.
        leader_epoch: LeaderEpoch,
    },
    /// Follows.
    Follower {
        /// Whom.
        leader: BrokerId,
        /// In this epoch.
        leader_epoch: LeaderEpoch,
    },
    /// The accepted state says leader -1.
    Leaderless {
        /// In this epoch.
        leader_epoch: LeaderEpoch,
    },
    /// No longer a replica here.
    Deleted,
}

impl Role {
    /// Whom a follower follows.
    #[must_use]
    pub fn leader(self) -> Option<BrokerId> {
        match self {
            Self::Follower { leader, .. } => Some(leader),
            Self::Idle | Self::Leader { .. } | Self::Leaderless { .. } | Self::Deleted => None,
        }
    }
}

/// A proposal to the controller (`AlterPartition`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsrProposal {
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// Partition epoch on which it builds; a state of another one refuses it.
    pub partition_epoch: PartitionEpoch,
    /// The proposed ISR in assignment order, each with the broker epoch it fetched with (R12); the leader with its own.
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

/// One line for the log: what happened and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// `true` for what an operator must see (truncation below the HW, an unexpected event).
    pub warn: bool,
    /// The line, without topic, partition and epochs (the shell adds them).
    pub text: String,
}
