//! Planted bugs, one per rule that is taken away or changed; the explorations must find each, in the rows of
//! [`Mutation::ALL`].
//!
//! None needs a hook in the cores: they live in the shells, which tell a core what is not so, alter what it decided on its
//! way to the store, or count what it did not.

use crate::mutations;

/// A bug, its name, and the words of a row in which it is found.
pub type Planted = (Mutation, &'static str, &'static str);

/// A rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A new follower cuts its log to its own high watermark (against R15).
    TruncateToHighWatermark,
    /// A follower never cuts its log (against R15).
    NoTruncation,
    /// A leader notes the position of a follower whose log diverges (against R15).
    DivergingPositionCounts,
    /// The high watermark counts the committed ISR only, not what was proposed (against R9).
    HighWatermarkOverCommittedIsr,
    /// A refused proposal is no longer counted (against R9).
    RefusalForgetsProposal,
    /// A leader stops counting a member when it proposes to drop it (against R13).
    ShrinkAtOnce,
    /// A follower joins at the high watermark, before the start of the epoch (against R12).
    JoinAtHighWatermarkOnly,
    /// A follower joins at the start of the epoch, below the high watermark (against R12).
    JoinAtEpochStartOnly,
    /// The controller takes the registered epoch for the one a follower fetched with (against R12).
    NoMemberEpochCheck,
    /// The store checks neither `/controller_epoch` nor the version of the state node (against R1).
    NoWriteChecks,
    /// Brokers obey pushes older than what they know (against R4).
    OldPushesObeyed,
    /// Brokers obey pushes that were meant for an earlier incarnation (against R4).
    NoPushTarget,
    /// An ISR member that restarted keeps its place, a leader its epoch (against R5).
    RestartedMemberStays,
    /// Producers wait on through a change of epoch (against R11).
    WaitersOutliveEpoch,
    /// The high watermark moves with fewer than `min.insync.replicas` members; acknowledgements do not (against R10).
    NoGateOnHighWatermark,
    /// `min.insync.replicas` is asked for before an append only (against R10, R11).
    MinInsyncOnlyBeforeAppend,
    /// A new leader shows its high watermark before it has reached the start of its epoch (against R14).
    ServedBeforeEpochStart,
    /// A leader counts what it has not flushed (against R10, flush.mode sync).
    LeaderCountsUnflushed,
    /// A follower reports its LEO as flushed (against R10, flush.mode sync).
    FollowersReportLogEnd,
    /// After a crash everything in the log counts as flushed (against R16).
    LogEndTakenForFlushed,
    /// Instead of a suspected leader any live replica is elected (against R17).
    SuspicionElectsOutsideIsr,
    /// A suspicion keeps the leader epoch (against R17).
    SuspicionKeepsEpoch,
    /// The controller elects uncleanly although the topic forbids it (against R5).
    UncleanThoughForbidden,
    /// A new controller takes the registrations as they are for those under which ISR members were admitted (against R2, R3).
    NoIsrBrokerEpochs,
    /// The same, but brokers refuse controllers older than the one at their registration.
    NoIsrBrokerEpochsButControllerEpochRead,
    /// The same, but brokers never lead an epoch that they led before.
    NoIsrBrokerEpochsButLedEpochsKept,
    /// A broker never says that it may have lost its tail (against R6).
    TailLossUnreported,
    /// A member with a lost tail leaves the ISR only if another can lead now (against R6).
    LostTailStaysIfNoOtherLives,
    /// The last member leads also with a lost tail (against R6).
    LastMemberWithLostTailLeads,
    /// With a lost tail at the last member, the longest log among the live replicas wins (against R8).
    LongestLiveLogLeads,
    /// The lost-tail mark goes when the broker registers (against R7).
    MarkClearedByRegistering,
    /// The lost-tail mark goes with the first push (against R7).
    MarkClearedByPush,
    /// A move ends when some of its target is in the ISR (against R20).
    FinishEarly,
    /// The leader epoch stays when replicas leave and the leader does not (against R20).
    FinishKeepsEpoch,
    /// Replicas that a move removes leave when it begins (against R19).
    LeaversLeaveAtOnce,
    /// A partition may be moved to fewer replicas than `min.insync.replicas` (against R23).
    MoveBelowMinInsync,
    /// A replica that is being added and no longer wanted leaves at once (against R21).
    NewcomerDroppedAtOnce,
    /// The same, if it is not in the ISR.
    NewcomerOutsideIsrDropped,
    /// A move ends in two writes: the state, then the assignment (against R18).
    MoveEndsInTwoWrites,
    /// A change of the assignment alone keeps the partition epoch, and no proposal is held against the assignment (against R18).
    AssignmentKeepsVersion,
    /// A broker forgets what it has deleted (against R22b).
    TombstoneForgotten,
    /// A broker obeys a delete whatever its partition epoch (against R22a).
    DeleteOfAnyVersion,
    /// A broker does not read `/controller_epoch` when it registers (against R22a).
    ControllerEpochNotRead,
    /// After the loss of the last member's tail the target of a move is asked only (against R24).
    RecoveryOverTarget,
    /// A replica reports its log without having accepted the leaderless state (against R8).
    ReportUnfenced,
    /// An operator's unclean election is not bound to the version that the operator was shown (against R39).
    UncleanOfAnyVersion,
    /// A report counts in every leaderless spell of the same incarnation of a broker (against R8).
    ReportOfAnyEpoch,
    /// A drain does not wait until enough others are in the ISR (against R26).
    DrainWithoutWait,
    /// A draining broker is admitted to an ISR (against R26).
    DrainingAdmitted,
    /// A new controller does not know who drains (against R25).
    DrainInMemoryOnly,
    /// A broker that was drained once is draining for ever (against R25).
    DrainKeptById,
    /// A request to stop is obeyed under whatever broker epoch it was made (against R25).
    DrainOfAnyEpoch,
    /// A broker is told that it may stop before the stored state is without it (against R26).
    StopGrantedEarly,
    /// A re-created topic finds the bytes of its earlier life (against R28).
    StrayDirectoryOpened,
    /// A leader serves fetches of another life of the topic (against R29).
    FetchOfAnyLife,
    /// A broker obeys pushes of whatever life, also of an earlier one (against R27).
    PushOfAnyLife,
    /// A proposal counts for whatever life the topic is in (against R29).
    ProposalOfAnyLife,
    /// A follower compares neither the last epoch of its log nor its LEO with what it asked for (against R31).
    AnswerOfAnyPosition,
    /// A follower does not compare the last epoch of its log with what it asked for (against R31).
    AnswerOfAnyLastEpoch,
    /// A leader notes the fetch of a dead incarnation as the present one's (against R30).
    DeadFetchCounts,
    /// A client may delete what is not committed (against R32).
    DeletionAboveHighWatermark,
    /// Retention drops what is not committed (against R32).
    RetentionAboveHighWatermark,
    /// A leader answers a deletion as soon as it has ordered it (against R33).
    DeletionAnsweredAtOnce,
    /// A follower joins whose log begins before the leader's (against R34).
    JoinWithoutLogStart,
    /// A follower that must begin anew begins at its leader's LEO (against R35).
    ResetToLogEnd,
    /// A follower that must begin anew begins at its leader's high watermark (against R35).
    ResetToHighWatermark,
    /// An empty log above offset 0 is judged by epochs, of which it has none (against R36).
    EmptyLogDiverges,
    /// The log start does not survive the process (against R32).
    LogStartForgotten,
    /// A follower above its leader's end begins anew instead of cutting (against R35).
    AboveTheEndResets,
    /// After a failed sync the next one, which proves nothing, counts (against R38).
    SecondSyncCounts,
    /// After a restart the bytes above the recovery point are synced without having been written again (against R16).
    NotWrittenAgain,
    /// A replica whose sync failed keeps what was not written, and says nothing (against R38).
    FailedSuffixKept,
    /// The flush mode is told apart from leaderships (against R37).
    ModeApartFromLeadership,
    /// A change of the flush mode is confirmed when it is stored (against R37).
    ModeConfirmedEarly,
}

impl Mutation {
    /// All of them: the bug, a name, and a row in which it is found. Some are there twice: in another row another invariant
    /// is broken.
    pub const ALL: &'static [Planted] = mutations::PLANTED;

    /// The mutation of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|planted| planted.1 == name).map(|planted| planted.0)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|planted| planted.0 == self).map_or("unnamed", |planted| planted.1)
    }
}
