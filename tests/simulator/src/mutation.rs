//! Planted bugs, one per rule that is taken away; the simulator must find each.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A new follower cuts its log to its own high watermark (against R15).
    TruncateToHighWatermark,
    /// The store checks neither `/controller_epoch` nor the version of the state node (against R1).
    NoWriteChecks,
    /// The high watermark counts the committed ISR only, not what was proposed (against R9).
    HighWatermarkOverCommittedIsr,
    /// Brokers obey pushes that were meant for an earlier incarnation (against R4).
    NoPushTarget,
    /// The controller takes the registered epoch for the one a follower fetched with (against R12).
    NoMemberEpochCheck,
    /// A new controller takes the registrations as they are for those under which ISR members were admitted (against R2, R3).
    NoIsrBrokerEpochs,
    /// A broker never says that it may have lost its tail (against R6).
    TailLossUnreported,
    /// The lost-tail mark goes when the broker registers (against R7).
    MarkClearedByRegistering,
    /// The lost-tail mark goes with the first push (against R7).
    MarkClearedByPush,
    /// A follower reports its LEO as flushed (against R10, flush.mode sync).
    FollowersReportLogEnd,
    /// After a crash everything in the log counts as flushed (against R16).
    LogEndTakenForFlushed,
    /// The controller elects uncleanly although the topic forbids it (against R5).
    UncleanThoughForbidden,
    /// A broker lets an older full state delete what a newer one created (against R22).
    StaleFullStateDeletes,
    /// The controller sends a delete once, and does not wait for its acknowledgement (against R22).
    DeletesSentOnce,
    /// A re-created topic finds the bytes of its earlier life (against R28).
    StrayDirectoryOpened,
    /// Leaders are told that one in-sync replica is enough (against R10, R11).
    MinInsyncIgnored,
    /// A new leader shows its high watermark before it has reached the start of its epoch (against R14).
    ServedBeforeEpochStart,
    /// A leader takes every follower's log for a prefix of its own (against R15).
    DivergenceUnchecked,
    /// A follower applies late fetch answers as if they had just been asked for (against R31).
    LateAnswersApplied,
    /// A leader notes the fetch of a dead incarnation as the present one's (against R30).
    DeadFetchCounts,
    /// A refused proposal is no longer counted (against R9).
    RefusalForgetsProposal,
    /// A leader answers a deletion as soon as it has ordered it (against R33).
    DeletionAnsweredEarly,
    /// A replica reports a log start before it is durable (against R34).
    StartReportedBeforeDurable,
    /// A follower that must begin anew begins at its leader's high watermark (against R35).
    ResetToHighWatermark,
    /// Retention asks no replica how far it may go (against R32).
    RetentionAboveHighWatermark,
    /// After a failed sync the next one, which proves nothing, counts (against R38).
    SecondSyncCounts,
    /// Brokers keep the `flush.mode` with which the topic was created (against R37).
    ModeIgnored,
    /// A leader stops counting a member when it proposes to drop it (against R13).
    ShrinkAtOnce,
    /// A drain does not wait until enough others are in the ISR (against R26).
    DrainWithoutWait,
    /// A draining broker is admitted to an ISR (against R26).
    DrainingAdmitted,
    /// A new controller does not know who drains (against R25).
    DrainInMemoryOnly,
    /// A broker that was drained once is draining for ever (against R25).
    DrainKeptById,
    /// A broker is told that it may stop before the stored states are without it (against R26).
    StopGrantedEarly,
    /// A move ends when some of its target is in the ISR (against R20).
    FinishEarly,
    /// Replicas that a move removes leave when it begins (against R19).
    LeaversLeaveAtOnce,
    /// A replica that is being added and no longer wanted leaves at once (against R21).
    NewcomerDroppedAtOnce,
    /// The leader epoch stays when replicas leave and the leader does not (against R20).
    FinishKeepsEpoch,
    /// An operator's unclean election is not bound to the version that the operator was shown (against R39).
    UncleanOfAnyVersion,
    /// A move ends in two writes: the state, then the assignment (against R18).
    MoveEndsInTwoWrites,
    /// A change of an assignment leaves the state node alone where leader and ISR stay (against R18).
    AssignmentKeepsVersion,
    /// A leader tells a producer of a gap without asking its followers whether it still leads (against R11).
    GapToldAtOnce,
    /// It takes any fetch for a witness, also one that was sent before (against R11).
    StaleFetchIsWitness,
    /// Instead of a suspected leader a live replica outside the ISR leads (against R17).
    SuspicionElectsOutsideIsr,
    /// A suspicion keeps the leader epoch (against R17).
    SuspicionKeepsEpoch,
    /// A suspected broker counts as gone, even the only live member (against R17).
    SoleMemberDeposed,
    /// `/controller` is deleted whoever was elected meanwhile (against R17).
    ControllerDeletedUnchecked,
}

impl Mutation {
    /// All of them, with the names for the command line.
    pub const ALL: [(&'static str, Mutation); 46] = [
        ("truncate-to-hw", Mutation::TruncateToHighWatermark),
        ("no-write-checks", Mutation::NoWriteChecks),
        ("hw-over-committed-isr", Mutation::HighWatermarkOverCommittedIsr),
        ("no-push-target", Mutation::NoPushTarget),
        ("no-member-epoch-check", Mutation::NoMemberEpochCheck),
        ("no-isr-broker-epochs", Mutation::NoIsrBrokerEpochs),
        ("tail-loss-unreported", Mutation::TailLossUnreported),
        ("mark-cleared-by-registering", Mutation::MarkClearedByRegistering),
        ("mark-cleared-by-push", Mutation::MarkClearedByPush),
        ("followers-report-leo", Mutation::FollowersReportLogEnd),
        ("leo-taken-for-flushed", Mutation::LogEndTakenForFlushed),
        ("unclean-though-forbidden", Mutation::UncleanThoughForbidden),
        ("stale-full-state-deletes", Mutation::StaleFullStateDeletes),
        ("deletes-sent-once", Mutation::DeletesSentOnce),
        ("stray-directory-opened", Mutation::StrayDirectoryOpened),
        ("min-insync-ignored", Mutation::MinInsyncIgnored),
        ("served-before-epoch-start", Mutation::ServedBeforeEpochStart),
        ("divergence-unchecked", Mutation::DivergenceUnchecked),
        ("late-answers-applied", Mutation::LateAnswersApplied),
        ("dead-fetch-counts", Mutation::DeadFetchCounts),
        ("refusal-forgets-proposal", Mutation::RefusalForgetsProposal),
        ("deletion-answered-early", Mutation::DeletionAnsweredEarly),
        ("start-reported-before-durable", Mutation::StartReportedBeforeDurable),
        ("reset-to-hw", Mutation::ResetToHighWatermark),
        ("retention-above-hw", Mutation::RetentionAboveHighWatermark),
        ("second-sync-counts", Mutation::SecondSyncCounts),
        ("mode-ignored", Mutation::ModeIgnored),
        ("shrink-at-once", Mutation::ShrinkAtOnce),
        ("drain-without-wait", Mutation::DrainWithoutWait),
        ("draining-admitted", Mutation::DrainingAdmitted),
        ("drain-in-memory-only", Mutation::DrainInMemoryOnly),
        ("drain-kept-by-id", Mutation::DrainKeptById),
        ("stop-granted-early", Mutation::StopGrantedEarly),
        ("finish-early", Mutation::FinishEarly),
        ("leavers-leave-at-once", Mutation::LeaversLeaveAtOnce),
        ("newcomer-dropped-at-once", Mutation::NewcomerDroppedAtOnce),
        ("finish-keeps-epoch", Mutation::FinishKeepsEpoch),
        ("unclean-of-any-version", Mutation::UncleanOfAnyVersion),
        ("move-ends-in-two-writes", Mutation::MoveEndsInTwoWrites),
        ("assignment-keeps-version", Mutation::AssignmentKeepsVersion),
        ("gap-told-at-once", Mutation::GapToldAtOnce),
        ("stale-fetch-is-witness", Mutation::StaleFetchIsWitness),
        ("suspicion-elects-outside-isr", Mutation::SuspicionElectsOutsideIsr),
        ("suspicion-keeps-epoch", Mutation::SuspicionKeepsEpoch),
        ("sole-member-deposed", Mutation::SoleMemberDeposed),
        ("controller-deleted-unchecked", Mutation::ControllerDeletedUnchecked),
    ];

    /// The mutation of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, m)| *m)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, m)| *m == self).map_or("unnamed", |(n, _)| *n)
    }
}
