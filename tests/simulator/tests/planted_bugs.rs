//! The meta test: each planted bug is found within a bounded number of seeds, so that a green run means something.

use barnabas_simulator::{Mutation, Options, runs};

fn found_within(seeds: u64, mutation: Mutation) -> String {
    let options = Options { seed: 0, events: 1500, mutation: Some(mutation) };
    let summary = runs::many(0, seeds, options, 2, 1);
    let Some(failure) = summary.failures.first() else {
        panic!("'{}' is not found within {seeds} seeds", mutation.name());
    };
    failure.violation.invariant.to_owned()
}

macro_rules! planted {
    ($($name:ident: $mutation:ident within $seeds:literal,)*) => {
        $(#[test]
        fn $name() {
            found_within($seeds, Mutation::$mutation);
        })*

        #[test]
        fn every_bug_that_can_be_planted_is_tested() {
            let tested = [$(Mutation::$mutation,)*];
            for (name, mutation) in Mutation::ALL {
                assert!(tested.contains(&mutation), "{name}");
            }
        }
    };
}

planted! {
    r15_truncation_to_the_high_watermark_is_found: TruncateToHighWatermark within 100,
    r1_unchecked_writes_are_found: NoWriteChecks within 300,
    r9_high_watermark_over_the_committed_isr_is_found: HighWatermarkOverCommittedIsr within 100,
    r4_pushes_without_target_are_found: NoPushTarget within 1000,
    r12_unchecked_member_epochs_are_found: NoMemberEpochCheck within 15000,
    r3_forgotten_isr_broker_epochs_are_found: NoIsrBrokerEpochs within 100,
    r6_unreported_tail_loss_is_found: TailLossUnreported within 1000,
    r7_mark_cleared_by_registering_is_found: MarkClearedByRegistering within 1000,
    r7_mark_cleared_by_a_push_is_found: MarkClearedByPush within 3000,
    r10_followers_that_report_their_leo_are_found: FollowersReportLogEnd within 100,
    r16_leo_taken_for_flushed_is_found: LogEndTakenForFlushed within 100,
    r5_unclean_though_forbidden_is_found: UncleanThoughForbidden within 200,
    r22_stale_full_states_that_delete_are_found: StaleFullStateDeletes within 6000,
    r22_deletes_that_are_sent_once_are_found: DeletesSentOnce within 8000,
    r28_opened_stray_directories_are_found: StrayDirectoryOpened within 1000,
    r10_ignored_min_insync_is_found: MinInsyncIgnored within 500,
    r14_early_high_watermarks_are_found: ServedBeforeEpochStart within 100,
    r15_unchecked_divergence_is_found: DivergenceUnchecked within 100,
    r31_applied_late_answers_are_found: LateAnswersApplied within 100,
    r30_fetches_of_dead_incarnations_are_found: DeadFetchCounts within 15000,
    r9_proposals_forgotten_at_a_refusal_are_found: RefusalForgetsProposal within 300,
    r33_deletions_answered_early_are_found: DeletionAnsweredEarly within 3000,
    r34_starts_reported_before_they_are_durable_are_found: StartReportedBeforeDurable within 10000,
    r35_resets_to_the_high_watermark_are_found: ResetToHighWatermark within 300,
    r32_retention_above_the_high_watermark_is_found: RetentionAboveHighWatermark within 300,
    r38_second_syncs_that_count_are_found: SecondSyncCounts within 300,
    r37_leaders_that_ignore_the_mode_are_found: ModeIgnored within 1000,
    r26_drains_that_do_not_wait_are_found: DrainWithoutWait within 1000,
    r26_draining_brokers_that_are_admitted_are_found: DrainingAdmitted within 300,
    r25_drains_in_the_controllers_memory_only_are_found: DrainInMemoryOnly within 4000,
    r25_drains_that_outlive_the_registration_are_found: DrainKeptById within 300,
    r26_stops_that_are_granted_early_are_found: StopGrantedEarly within 300,
    r13_shrinks_that_count_at_once_are_found: ShrinkAtOnce within 300,
    r20_moves_that_end_early_are_found: FinishEarly within 100,
    r19_leavers_that_leave_at_once_are_found: LeaversLeaveAtOnce within 100,
    r21_newcomers_dropped_at_once_are_found: NewcomerDroppedAtOnce within 300,
    r20_epochs_that_stay_when_replicas_leave_are_found: FinishKeepsEpoch within 100,
    r39_unclean_elections_of_any_version_are_found: UncleanOfAnyVersion within 3000,
    r18_moves_that_end_in_two_writes_are_found: MoveEndsInTwoWrites within 300,
    r18_assignments_that_keep_the_version_are_found: AssignmentKeepsVersion within 300,
    r11_gaps_that_are_told_at_once_are_found: GapToldAtOnce within 3000,
    r11_gaps_told_on_stale_fetches_are_found: StaleFetchIsWitness within 3000,
    r17_suspicions_that_elect_outside_the_isr_are_found: SuspicionElectsOutsideIsr within 300,
    r17_suspicions_that_keep_the_epoch_are_found: SuspicionKeepsEpoch within 300,
    r17_sole_members_deposed_on_suspicion_are_found: SoleMemberDeposed within 300,
    r17_controllers_deleted_unchecked_are_found: ControllerDeletedUnchecked within 3000,
}
