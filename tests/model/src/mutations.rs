//! Which planted bug is found in which row: those of replication and election first, then of what came after.

use crate::mutation::{Mutation, Planted};

/// The bugs with their names and rows.
pub(crate) const PLANTED: &[Planted] = &[
    (Mutation::TruncateToHighWatermark, "truncate-to-hw", "rec=1 pc=1 su=1 al=1 isr=3 epochs=3"),
    (Mutation::NoTruncation, "no-truncation", "rec=2 su=1"),
    (Mutation::DivergingPositionCounts, "diverging-position-counts", "rec=2 pc=1 su=1 epochs=3"),
    (Mutation::HighWatermarkOverCommittedIsr, "hw-over-committed-isr", "rec=1 pc=1 al=1 isr=1"),
    (Mutation::RefusalForgetsProposal, "refusal-forgets-proposal", "rec=1 rr=1 pc=1 al=1 isr=1"),
    (Mutation::ShrinkAtOnce, "shrink-at-once", "rec=1 su=1 al=1 isr=3"),
    (
        Mutation::JoinAtHighWatermarkOnly,
        "join-at-hw-only",
        "rec=1 pc=2 al=1 min=2 ar=3 isr=3 lost=1 epochs=3",
    ),
    (
        Mutation::JoinAtEpochStartOnly,
        "join-at-epoch-start-only",
        "rec=1 pc=1 su=1 al=1 ar=3 isr=3 lost=1",
    ),
    (Mutation::NoMemberEpochCheck, "no-member-epoch-check", "rec=1 hc=1 al=1 ar=3 isr=1 only=CS"),
    (Mutation::NoWriteChecks, "no-write-checks", "rec=1 su=1 te=2 al=1 isr=3"),
    (Mutation::OldPushesObeyed, "old-pushes-obeyed", "rec=1 su=1 isr=3"),
    (Mutation::NoPushTarget, "no-push-target", "rec=1 hc=1 isr=3"),
    (Mutation::RestartedMemberStays, "restarted-member-stays", "rec=1 hc=1 isr=3"),
    (Mutation::WaitersOutliveEpoch, "waiters-outlive-epoch", "rec=2 su=1 isr=3"),
    (Mutation::NoGateOnHighWatermark, "no-gate-on-hw", "rec=1 hc=1 al=1 min=2 ar=3 isr=3"),
    (
        Mutation::MinInsyncOnlyBeforeAppend,
        "min-insync-only-before-append",
        "rec=1 hc=1 al=1 min=2 ar=3 isr=3",
    ),
    (Mutation::ServedBeforeEpochStart, "served-before-epoch-start", "rec=1 su=1"),
    (
        Mutation::LeaderCountsUnflushed,
        "leader-counts-unflushed",
        "rec=1 hc=1 pc=1 ar=3 isr=3 sync=1 told=0",
    ),
    (
        Mutation::FollowersReportLogEnd,
        "followers-report-leo",
        "rec=1 hc=1 pc=1 ar=3 isr=3 sync=1 told=0",
    ),
    (
        Mutation::LogEndTakenForFlushed,
        "leo-taken-for-flushed",
        "rec=1 hc=1 pc=1 ar=3 isr=1 sync=1 told=0",
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
        "rec=1 hc=1 pc=1 te=2 ar=3 isr=3 min=2",
    ),
    (Mutation::TailLossUnreported, "tail-loss-unreported", "rec=1 hc=1 pc=1 min=2 ar=3 isr=3"),
    (
        Mutation::LostTailStaysIfNoOtherLives,
        "lost-tail-stays-if-no-other-lives",
        "rec=1 hc=1 pc=1 min=2 ar=3 isr=3",
    ),
    (
        Mutation::LastMemberWithLostTailLeads,
        "last-member-with-lost-tail-leads",
        "rec=1 hc=1 al=1 min=2 isr=3",
    ),
    (
        Mutation::LongestLiveLogLeads,
        "longest-live-log-leads",
        "rec=1 hc=1 pc=1 al=1 min=2 ar=3 isr=3",
    ),
    (
        Mutation::MarkClearedByRegistering,
        "mark-cleared-by-registering",
        "rec=1 hc=1 pc=1 al=1 min=2 ar=3 isr=3",
    ),
    (Mutation::MarkClearedByPush, "mark-cleared-by-push", "rec=1 hc=1 pc=1 al=1 min=2 ar=3 isr=3"),
    // Moves of replicas.
    (Mutation::FinishEarly, "finish-early", "rec=1 ar=3 isr=3 tgt=6 mv=1"),
    (
        Mutation::FinishEarly,
        "finish-early-loses",
        "rec=1 ar=3 isr=3 tgt=6 mv=1 hc=1 al=1 min=2 only=I6",
    ),
    (
        Mutation::LeaversLeaveAtOnce,
        "leavers-leave-at-once",
        "rec=1 ar=3 isr=3 tgt=6 mv=1 hc=1 min=2 only=I6",
    ),
    (
        Mutation::MoveBelowMinInsync,
        "move-below-min-insync",
        "rec=1 ar=3 isr=3 tgt=1 mv=1 min=2 heal=1",
    ),
    (
        Mutation::FinishKeepsEpoch,
        "finish-keeps-epoch",
        "rec=1 ar=3 isr=3 tgt=1 mv=2 pc=1 al=1 only=I6",
    ),
    (
        Mutation::NewcomerDroppedAtOnce,
        "newcomer-dropped-at-once",
        "rec=1 ar=3 isr=1 tgt=7 mv=2 begun=1 hc=1 al=1 min=2 only=I6",
    ),
    (
        Mutation::NewcomerOutsideIsrDropped,
        "newcomer-outside-isr-dropped",
        "rec=1 ar=3 isr=1 tgt=7 mv=2 begun=3 hc=1 min=2 only=I6",
    ),
    (Mutation::MoveEndsInTwoWrites, "move-ends-in-two-writes", "rec=1 ar=3 isr=3 tgt=6 mv=1 al=2"),
    (
        Mutation::AssignmentKeepsVersion,
        "assignment-keeps-version",
        "rec=1 ar=3 isr=1 tgt=1 mv=1 pc=1 al=1",
    ),
    (Mutation::TombstoneForgotten, "tombstone-forgotten", "rec=1 ar=1 isr=1 tgt=2 mv=2 pc=1 al=2"),
    (
        Mutation::DeleteOfAnyVersion,
        "delete-of-any-version",
        "rec=1 ar=1 isr=1 tgt=2 mv=2 pc=1 al=2 only=I6",
    ),
    (
        Mutation::ControllerEpochNotRead,
        "controller-epoch-not-read",
        "rec=1 ar=1 isr=1 tgt=2 mv=1 pc=1 al=1 te=2 only=I6",
    ),
    (
        Mutation::RecoveryOverTarget,
        "recovery-over-target",
        "rec=1 ar=3 isr=3 tgt=5 mv=1 hc=1 al=1 min=2",
    ),
    (
        Mutation::ReportUnfenced,
        "report-unfenced",
        "rec=1 ar=1 isr=1 tgt=2 mv=2 begun=1 hc=1 al=1 epochs=5 only=E",
    ),
    // Controlled shutdown.
    (Mutation::DrainWithoutWait, "drain-without-wait", "rec=1 sd=2 av=1 min=2"),
    (Mutation::DrainingAdmitted, "draining-admitted", "rec=0 sd=1 av=1 al=1 ar=3 isr=3"),
    (Mutation::DrainInMemoryOnly, "drain-in-memory-only", "rec=0 sd=1 av=1 te=2 al=1 ar=3 isr=3"),
    (Mutation::DrainKeptById, "drain-kept-by-id", "rec=0 sd=1 av=1 al=1 ar=3 isr=3 heal=1"),
    (Mutation::DrainOfAnyEpoch, "drain-of-any-epoch", "rec=0 sd=1 sdto=1 al=1 ar=3 isr=3 heal=1"),
    (Mutation::StopGrantedEarly, "stop-granted-early", "rec=1 sd=1 av=1 ar=3 isr=3"),
    // Lives of a topic.
    (Mutation::StrayDirectoryOpened, "stray-directory-opened", "rec=1 del=1 ar=3 isr=3"),
    (
        Mutation::StrayDirectoryOpened,
        "stray-directory-opened-loses",
        "rec=2 del=1 pc=1 ar=3 isr=3 only=I6",
    ),
    (Mutation::FetchOfAnyLife, "fetch-of-any-life", "rec=1 del=1 ar=3 isr=3"),
    (Mutation::FetchOfAnyLife, "fetch-of-any-life-loses", "rec=2 del=1 pc=1 ar=3 isr=3 only=I6"),
    (Mutation::PushOfAnyLife, "push-of-any-life", "rec=2 del=1 pc=1 al=1 ar=3 isr=3"),
    (Mutation::PushOfAnyLife, "push-of-any-life-loses", "rec=2 del=1 pc=1 al=1 ar=3 isr=3 only=I6"),
    (
        Mutation::ControllerEpochNotRead,
        "controller-epoch-not-read-lives",
        "rec=1 del=1 pc=1 te=2 ar=1 isr=1",
    ),
    (Mutation::ProposalOfAnyLife, "proposal-of-any-life", "rec=1 del=1 al=3 ar=3 isr=3 only=I7"),
    // Late messages.
    (
        Mutation::AnswerOfAnyLastEpoch,
        "answer-of-any-last-epoch",
        "rec=2 fork=1 net=2 ar=3 isr=3 al=1",
    ),
    (Mutation::AnswerOfAnyPosition, "answer-of-any-position", "rec=2 net=2 ar=3 isr=3"),
    (
        Mutation::DeadFetchCounts,
        "dead-fetch-counts",
        "rec=1 net=2 ar=3 isr=3 hc=1 al=1 min=2 only=CS",
    ),
    // Log starts.
    (Mutation::DeletionAboveHighWatermark, "deletion-above-hw", "rec=2 ar=3 isr=3 dr=1 su=1"),
    (Mutation::RetentionAboveHighWatermark, "retention-above-hw", "rec=2 ar=3 isr=3 ret=1 su=1"),
    (Mutation::DeletionAnsweredAtOnce, "deletion-answered-at-once", "rec=1 ar=3 isr=3 dr=1 su=1"),
    (
        Mutation::JoinWithoutLogStart,
        "join-without-log-start",
        "rec=1 ar=3 isr=1 dr=1 al=1 su=1 lost=1",
    ),
    (Mutation::ResetToLogEnd, "reset-to-leo", "rec=2 ar=3 isr=1 dr=1 pc=1 al=1"),
    (Mutation::ResetToHighWatermark, "reset-to-hw", "rec=2 ar=3 isr=1 dr=1 pc=1 al=1"),
    (Mutation::EmptyLogDiverges, "empty-log-diverges", "rec=1 ar=3 isr=1 dr=1 al=1 heal=1"),
    (Mutation::LogStartForgotten, "log-start-forgotten", "rec=1 ar=3 isr=1 dr=1 pc=1"),
    (Mutation::AboveTheEndResets, "above-the-end-resets", "rec=2 pc=1 su=1"),
    // Syncs, and the flush mode.
    (Mutation::SecondSyncCounts, "second-sync-counts", "rec=1 sync=1 ff=1 hc=1 ar=3 isr=1"),
    (Mutation::NotWrittenAgain, "not-written-again", "rec=1 sync=1 ff=1 hc=1 ar=3 isr=1"),
    (
        Mutation::NotWrittenAgain,
        "not-written-again-loses",
        "rec=2 sync=1 ff=1 hc=1 ar=3 isr=1 only=I6",
    ),
    (Mutation::FailedSuffixKept, "failed-suffix-kept", "rec=1 sync=1 ff=1 hc=1 al=1 ar=3 isr=3"),
    (
        Mutation::ModeApartFromLeadership,
        "mode-apart-from-leadership",
        "rec=1 set=1 begun=1 pc=1 hc=1 ar=1 isr=1",
    ),
    (Mutation::ModeConfirmedEarly, "mode-confirmed-early", "rec=1 set=1 hc=1 ar=3 isr=1"),
    // Unclean elections, and reports.
    (
        Mutation::UncleanOfAnyVersion,
        "unclean-of-any-version",
        "rec=1 uncl=1 pc=2 ar=3 isr=1 shown=1 epochs=5",
    ),
    (
        Mutation::ReportOfAnyEpoch,
        "report-of-any-epoch",
        "rec=1 ar=3 isr=1 hc=1 pc=1 al=2 min=2 epochs=8",
    ),
];
