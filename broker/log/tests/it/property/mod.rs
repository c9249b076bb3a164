//! Random steps, crashes and losses of power, also in the middle of a step, against a plain list of batches: after any of them
//! the log is a prefix of what was appended that holds everything flushed (I11), but for what retention and compaction may
//! remove.

mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

use barnabas_log::LogConfig;
use barnabas_types::{CleanupPolicy, Ratio};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use self::run::Run;

/// Segments of some batches, an index entry for about every third.
const CONFIG: LogConfig = LogConfig {
    segment_bytes: 1500,
    index_interval_bytes: 200,
    segment_index_bytes: 1024,
    cleanup: CleanupPolicy { delete: true, compact: true },
    retention_ms: -1,
    retention_bytes: 4000,
    min_cleanable_dirty_ratio: Ratio::from_millionths(0),
    ..LogConfig::DEFAULT
};

/// A place in the log: 0 is its start, 255 its end.
type Place = u8;

/// How far a deletion of records comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Advanced,
    Durable,
    Detached,
    Removed,
}

#[derive(Clone, Debug)]
enum Step {
    /// Batches by their records' sizes.
    Append {
        batches: Vec<Vec<u8>>,
        follows: bool,
        new_epoch: bool,
    },
    /// An append for which the disk has only so many bytes.
    AppendToFullDisk {
        batches: Vec<Vec<u8>>,
        follows: bool,
        room: u16,
    },
    /// An append of which only so many bytes can be written.
    AppendToBrokenDisk {
        batches: Vec<Vec<u8>>,
        after_bytes: u16,
    },
    AssignEpoch,
    Read {
        from: Place,
        to: Place,
        max_bytes: u16,
    },
    Flush,
    /// A flush of which one sync fails.
    FailedFlush {
        skip: u8,
    },
    WriteRecoveryPoints,
    WriteHighWatermark,
    Truncate(Place),
    Reset {
        to: Place,
        beyond: bool,
    },
    Delete {
        to: Place,
        stage: Stage,
    },
    Retain,
    Compact,
    /// The process stops and starts again.
    Close,
    Crash,
    PowerCut {
        seed: u64,
    },
    /// The power fails in the middle of a step, after so many changes of files.
    PowerCutDuring {
        step: Box<Step>,
        after_changes: u8,
        seed: u64,
    },
}

fn some_batches() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let records = prop::collection::vec(0..60_u8, 1..5);
    prop_oneof![
        20 => prop::collection::vec(records, 1..4),
        // Larger than a sector, and than a segment.
        1 => prop::collection::vec(prop::collection::vec(60..=255_u8, 5..9), 1..3),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let during = (simple_step(), 0..25_u8, any::<u64>()).prop_map(|(step, after_changes, seed)| {
        Step::PowerCutDuring { step: Box::new(step), after_changes, seed }
    });
    prop_oneof![9 => simple_step(), 1 => during]
}

fn simple_step() -> impl Strategy<Value = Step> {
    let stage = prop_oneof![
        Just(Stage::Advanced),
        Just(Stage::Durable),
        Just(Stage::Detached),
        Just(Stage::Removed)
    ];
    prop_oneof![
        30 => (some_batches(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(batches, follows, new_epoch)| Step::Append { batches, follows, new_epoch }),
        3 => (some_batches(), any::<bool>(), 0..800_u16)
            .prop_map(|(batches, follows, room)| Step::AppendToFullDisk { batches, follows, room }),
        2 => (some_batches(), 0..400_u16)
            .prop_map(|(batches, after_bytes)| Step::AppendToBrokenDisk { batches, after_bytes }),
        2 => Just(Step::AssignEpoch),
        15 => (any::<u8>(), any::<u8>(), 0..1500_u16)
            .prop_map(|(from, to, max_bytes)| Step::Read { from, to, max_bytes }),
        10 => Just(Step::Flush),
        2 => (0..6_u8).prop_map(|skip| Step::FailedFlush { skip }),
        6 => Just(Step::WriteRecoveryPoints),
        3 => Just(Step::WriteHighWatermark),
        6 => any::<u8>().prop_map(Step::Truncate),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(to, beyond)| Step::Reset { to, beyond }),
        6 => (any::<u8>(), stage).prop_map(|(to, stage)| Step::Delete { to, stage }),
        2 => Just(Step::Retain),
        6 => Just(Step::Compact),
        2 => Just(Step::Close),
        3 => Just(Step::Crash),
        6 => any::<u64>().prop_map(|seed| Step::PowerCut { seed }),
    ]
}

/// The steps alone: what they come to is judged by [`Run`], which knows how a crash went.
struct Steps;

impl ReferenceStateMachine for Steps {
    type State = ();
    type Transition = Step;

    fn init_state() -> BoxedStrategy<()> {
        Just(()).boxed()
    }

    fn transitions((): &()) -> BoxedStrategy<Step> {
        step().boxed()
    }

    fn apply((): (), _: &Step) {}
}

struct AgainstAList;

impl StateMachineTest for AgainstAList {
    type SystemUnderTest = Run;
    type Reference = Steps;

    fn init_test((): &()) -> Run {
        Run::new(false)
    }

    fn apply(mut run: Run, (): &(), step: Step) -> Run {
        run.apply(step);
        run
    }
}

proptest_state_machine::prop_state_machine! {
    #![proptest_config(ProptestConfig {
        // PROPTEST_CASES asks for more.
        cases: ProptestConfig::default().cases.max(2000),
        max_shrink_iters: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn i11_any_steps_crashes_and_losses_of_power(sequential 1..40 => AgainstAList);
}

#[test]
fn negative_control_a_disk_that_does_not_sync_is_found_out() {
    let mut runner = TestRunner::deterministic();
    let found = (0..200).any(|_| {
        let steps = prop::collection::vec(step(), 40..41).new_tree(&mut runner).unwrap().current();
        let run = |lies| {
            let mut run = Run::new(lies);
            steps.iter().for_each(|step| run.apply(step.clone()));
        };
        run(false);
        catch_unwind(AssertUnwindSafe(|| run(true))).is_err()
    });
    assert!(found, "with syncs that do nothing some run must lose what was flushed");
}
