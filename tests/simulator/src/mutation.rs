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
    /// A re-created topic finds the bytes of its earlier life (against R28).
    StrayDirectoryOpened,
}

impl Mutation {
    /// All of them, with the names for the command line.
    pub const ALL: [(&'static str, Mutation); 14] = [
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
        ("stray-directory-opened", Mutation::StrayDirectoryOpened),
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
