//! Planted bugs, one per rule that is taken away or changed; the explorations must find each.
//!
//! None needs a hook in the cores: they live in the shells, which tell a core what is not so, alter what it decided on its
//! way to the store, or count what it did not.

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
}

impl Mutation {
    /// All of them: name, and the row in which each is found.
    pub const ALL: [(Mutation, &'static str, &'static str); 32] = [
        (Mutation::TruncateToHighWatermark, "truncate-to-hw", "rec=1 pc=1 su=1 al=1 isr=3"),
        (Mutation::NoTruncation, "no-truncation", "rec=2 su=1"),
        (Mutation::DivergingPositionCounts, "diverging-position-counts", "rec=2 pc=1 su=1"),
        (Mutation::HighWatermarkOverCommittedIsr, "hw-over-committed-isr", "rec=1 pc=1 al=1 isr=1"),
        (
            Mutation::RefusalForgetsProposal,
            "refusal-forgets-proposal",
            "rec=1 rr=1 pc=1 al=1 isr=1",
        ),
        (Mutation::ShrinkAtOnce, "shrink-at-once", "rec=1 su=1 al=1 isr=3"),
        (
            Mutation::JoinAtHighWatermarkOnly,
            "join-at-hw-only",
            "rec=1 pc=2 al=1 min=2 isr=3 lost=1",
        ),
        (
            Mutation::JoinAtEpochStartOnly,
            "join-at-epoch-start-only",
            "rec=1 pc=1 su=1 al=1 isr=3 lost=1",
        ),
        (
            Mutation::NoMemberEpochCheck,
            "no-member-epoch-check",
            "rec=1 su=2 hc=1 al=1 isr=3 epochs=3",
        ),
        (Mutation::NoWriteChecks, "no-write-checks", "rec=1 su=1 te=2 al=1 isr=3"),
        (Mutation::OldPushesObeyed, "old-pushes-obeyed", "rec=1 su=1 isr=3"),
        (Mutation::NoPushTarget, "no-push-target", "rec=1 hc=1 isr=3"),
        (Mutation::RestartedMemberStays, "restarted-member-stays", "rec=1 hc=1 isr=3"),
        (Mutation::WaitersOutliveEpoch, "waiters-outlive-epoch", "rec=2 su=1 isr=3"),
        (Mutation::NoGateOnHighWatermark, "no-gate-on-hw", "rec=1 hc=1 al=1 min=2 isr=3"),
        (
            Mutation::MinInsyncOnlyBeforeAppend,
            "min-insync-only-before-append",
            "rec=1 hc=1 al=1 min=2 isr=3",
        ),
        (Mutation::ServedBeforeEpochStart, "served-before-epoch-start", "rec=1 su=1"),
        (
            Mutation::LeaderCountsUnflushed,
            "leader-counts-unflushed",
            "rec=1 hc=1 pc=1 isr=3 sync=1 told=0",
        ),
        (
            Mutation::FollowersReportLogEnd,
            "followers-report-leo",
            "rec=1 hc=1 pc=1 isr=3 sync=1 told=0",
        ),
        (
            Mutation::LogEndTakenForFlushed,
            "leo-taken-for-flushed",
            "rec=1 hc=1 pc=1 isr=1 sync=1 told=0",
        ),
        (Mutation::SuspicionElectsOutsideIsr, "suspicion-elects-outside-isr", "rec=1 su=1 isr=3"),
        (Mutation::SuspicionKeepsEpoch, "suspicion-keeps-epoch", "rec=1 su=1 pc=1"),
        (Mutation::UncleanThoughForbidden, "unclean-though-forbidden", "rec=1 pc=2 isr=3"),
        (Mutation::NoIsrBrokerEpochs, "no-isr-broker-epochs", "rec=2 hc=1 te=2 isr=3"),
        (
            Mutation::NoIsrBrokerEpochsButControllerEpochRead,
            "no-isr-broker-epochs-but-controller-epoch-read",
            "rec=2 hc=1 te=2 isr=3",
        ),
        (
            Mutation::NoIsrBrokerEpochsButLedEpochsKept,
            "no-isr-broker-epochs-but-led-epochs-kept",
            "rec=1 hc=1 pc=1 te=2",
        ),
        (Mutation::TailLossUnreported, "tail-loss-unreported", "rec=1 hc=1 pc=1 min=2 isr=3"),
        (
            Mutation::LostTailStaysIfNoOtherLives,
            "lost-tail-stays-if-no-other-lives",
            "rec=1 hc=1 pc=1 min=2 isr=3",
        ),
        (
            Mutation::LastMemberWithLostTailLeads,
            "last-member-with-lost-tail-leads",
            "rec=1 hc=1 al=1 min=2 isr=3",
        ),
        (
            Mutation::LongestLiveLogLeads,
            "longest-live-log-leads",
            "rec=1 hc=1 pc=1 al=1 min=2 isr=3",
        ),
        (
            Mutation::MarkClearedByRegistering,
            "mark-cleared-by-registering",
            "rec=1 hc=1 pc=1 al=1 min=2 isr=3",
        ),
        (Mutation::MarkClearedByPush, "mark-cleared-by-push", "rec=1 hc=1 pc=1 al=1 min=2 isr=3"),
    ];

    /// The mutation of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, n, _)| *n == name).map(|(m, ..)| *m)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(m, ..)| *m == self).map_or("unnamed", |(_, n, _)| *n)
    }

    /// The row in which it is found, without the mutation itself.
    #[must_use]
    pub fn row(self) -> &'static str {
        Self::ALL.iter().find(|(m, ..)| *m == self).map_or("", |(.., row)| *row)
    }
}
