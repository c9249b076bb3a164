//! The meta test: each planted bug is found in its row, so that a row that holds means something.

use barnabas_model::{Mutation, Row, explore};

macro_rules! planted {
    ($($test:ident: $mutation:ident,)*) => {
        $(#[test]
        fn $test() {
            is_found(Mutation::$mutation);
        })*

        #[test]
        fn every_bug_that_can_be_planted_is_tested() {
            let tested = [$(Mutation::$mutation,)*];
            for (mutation, name, _) in Mutation::ALL {
                assert!(tested.contains(&mutation), "{name}");
            }
        }
    };
}

planted! {
    r15_truncation_to_the_high_watermark: TruncateToHighWatermark,
    r15_no_truncation: NoTruncation,
    r15_position_of_a_diverging_follower: DivergingPositionCounts,
    r9_high_watermark_over_the_committed_isr: HighWatermarkOverCommittedIsr,
    r9_proposal_forgotten_at_a_refusal: RefusalForgetsProposal,
    r13_shrink_at_once: ShrinkAtOnce,
    r12_join_below_the_start_of_the_epoch: JoinAtHighWatermarkOnly,
    r12_join_below_the_high_watermark: JoinAtEpochStartOnly,
    r12_member_epoch_unchecked: NoMemberEpochCheck,
    r1_unchecked_writes: NoWriteChecks,
    r4_old_pushes: OldPushesObeyed,
    r4_pushes_without_target: NoPushTarget,
    r5_restarted_member_stays: RestartedMemberStays,
    r11_waiters_outlive_their_epoch: WaitersOutliveEpoch,
    r10_no_gate_on_the_high_watermark: NoGateOnHighWatermark,
    r10_min_insync_asked_before_the_append_only: MinInsyncOnlyBeforeAppend,
    r14_served_before_the_start_of_the_epoch: ServedBeforeEpochStart,
    r10_leader_counts_what_is_not_flushed: LeaderCountsUnflushed,
    r10_followers_report_their_leo: FollowersReportLogEnd,
    r16_leo_taken_for_flushed: LogEndTakenForFlushed,
    r17_suspicion_elects_outside_the_isr: SuspicionElectsOutsideIsr,
    r17_suspicion_keeps_the_epoch: SuspicionKeepsEpoch,
    r5_unclean_though_forbidden: UncleanThoughForbidden,
    r3_no_isr_broker_epochs: NoIsrBrokerEpochs,
    r3_controller_epoch_read_instead: NoIsrBrokerEpochsButControllerEpochRead,
    r3_led_epochs_kept_instead: NoIsrBrokerEpochsButLedEpochsKept,
    r6_tail_loss_unreported: TailLossUnreported,
    r6_lost_tail_stays_if_no_other_lives: LostTailStaysIfNoOtherLives,
    r6_last_member_with_lost_tail_leads: LastMemberWithLostTailLeads,
    r8_longest_live_log_leads: LongestLiveLogLeads,
    r7_mark_cleared_by_registering: MarkClearedByRegistering,
    r7_mark_cleared_by_a_push: MarkClearedByPush,
}

fn is_found(mutation: Mutation) {
    let row = Row::read(mutation.row()).expect("a sound row");
    let found = explore(Row { mutation: Some(mutation), ..row }, 1);
    assert!(!found.holds(), "'{}' is not found in {} worlds", mutation.name(), found.worlds);
}
