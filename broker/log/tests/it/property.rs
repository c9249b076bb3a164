//! Random steps, crashes and losses of power against a plain list of batches: after any of them the log is a prefix of what
//! was appended that holds everything flushed (I11).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use barnabas_log::testing::{BatchBuilder, Failing, Forgetting, Kind, TempDir};
use barnabas_log::{Log, LogConfig, LogDir, LogError, LossCause, stamp};
use barnabas_types::{LeaderEpoch, Offset};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use crate::world::{ID, batches, tp};

/// Segments of some batches, an index entry for about every third.
const CONFIG: LogConfig = LogConfig {
    segment_bytes: 1500,
    index_interval_bytes: 200,
    segment_index_bytes: 1024,
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
    /// The process stops and starts again.
    Close,
    Crash,
    PowerCut {
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
        2 => Just(Step::Close),
        3 => Just(Step::Crash),
        6 => any::<u64>().prop_map(|seed| Step::PowerCut { seed }),
    ]
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Batch {
    base: i64,
    end: i64,
    epoch: i32,
    bytes: Vec<u8>,
}

/// What the log must hold.
#[derive(Default)]
struct Model {
    start: i64,
    /// The log start that a crash leaves at least.
    durable_start: i64,
    /// All since the last beginning, also those below the start.
    batches: Vec<Batch>,
    end: i64,
    /// What was ever claimed to be flushed, truncations aside.
    flushed: i64,
    epoch: i32,
}

impl Model {
    fn from(&self, start: i64) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |b| b.end > start)
    }

    fn keep_below(&mut self, end: i64) {
        self.batches.retain(|b| b.end <= end);
        self.end = self.batches.last().map_or(self.start, |b| b.end).max(self.start);
        self.flushed = self.flushed.min(self.end);
    }
}

struct Run {
    temp: TempDir,
    forgetting: Arc<Forgetting>,
    failing: Arc<Failing>,
    open: Option<(LogDir, Log)>,
    model: Model,
}

impl Run {
    fn new(lies: bool) -> Self {
        let temp = TempDir::in_memory("property");
        let forgetting = Forgetting::new(temp.path());
        if lies {
            forgetting.lie();
        }
        let failing = Failing::before(forgetting.clone());
        let model = Model { epoch: 1, ..Model::default() };
        let mut run = Self { temp, forgetting, failing, open: None, model };
        run.start();
        run
    }

    fn start(&mut self) {
        let dir = LogDir::lock_on(self.failing.disk(), self.temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let marks = [dir.high_watermark_of(&tp("t")), dir.recovery_point_of(&tp("t"))];
        let reached = marks.into_iter().flatten().max().unwrap_or_default();
        let log = dir.open(&tp("t"), ID, CONFIG).unwrap();
        let lost = log.log_end() < reached;
        assert_eq!(log.recovery().tail_lost, lost, "{reached} {:?}", log.recovery());
        assert!(!lost || dir.is_tail_lost());
        self.open = Some((dir, log));
    }

    fn log(&self) -> &Log {
        &self.open.as_ref().unwrap().1
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.open.as_mut().unwrap().1
    }

    fn dir(&self) -> &LogDir {
        &self.open.as_ref().unwrap().0
    }

    /// The offset at a place.
    fn at(&self, place: Place) -> i64 {
        let (start, end) = (self.model.start, self.model.end);
        start + (end - start) * i64::from(place) / 255
    }

    fn build(sizes: &[Vec<u8>]) -> Vec<u8> {
        let batch = |sizes: &Vec<u8>| {
            let builder = BatchBuilder::new().timestamp(1000);
            sizes.iter().fold(builder, |b, size| b.record(&vec![*size; usize::from(*size)])).build()
        };
        sizes.iter().flat_map(batch).collect()
    }

    fn try_append(&mut self, sizes: &[Vec<u8>], follows: bool) -> Result<(), LogError> {
        let mut records = Self::build(sizes);
        let (end, epoch) = (Offset(self.model.end), LeaderEpoch(self.model.epoch));
        let appended = if follows {
            stamp(&mut records, end, epoch).unwrap();
            self.log_mut().append_as_follower(&records)
        } else {
            self.log_mut().append(&mut records, end, epoch)
        }?;
        let mut at = 0;
        for header in batches(&records) {
            let bytes = records[at..at + header.size()].to_vec();
            at += header.size();
            self.model.batches.push(Batch {
                base: header.base_offset,
                end: header.next_offset(),
                epoch: header.partition_leader_epoch,
                bytes,
            });
            self.model.end = header.next_offset();
        }
        assert_eq!(appended.log_end, Offset(self.model.end));
        Ok(())
    }

    fn append_to_full_disk(&mut self, sizes: &[Vec<u8>], follows: bool, room: u16) {
        self.failing.room(Some(usize::from(room)));
        let result = self.try_append(sizes, follows);
        self.failing.room(None);
        if let Err(error) = result {
            assert!(matches!(error, LogError::Full(_)), "{error}");
            assert!(!self.log().is_fenced(), "a full disk fences nothing");
        }
    }

    fn append_to_broken_disk(&mut self, sizes: &[Vec<u8>], after_bytes: u16) {
        self.failing.tear(Kind::Write, ".log", 0, usize::from(after_bytes));
        let error = self.try_append(sizes, false).unwrap_err();
        self.failing.relent();
        assert!(matches!(error, LogError::Io { .. }), "{error}");
        assert!(self.log().is_fenced());
        self.reopen();
        self.model.epoch += 1;
    }

    /// The log is dropped and opened again by the same process.
    fn reopen(&mut self) {
        let (dir, log) = self.open.take().unwrap();
        drop(log);
        let log = dir.open(&tp("t"), ID, CONFIG).unwrap();
        self.open = Some((dir, log));
    }

    fn failed_flush(&mut self, skip: u8) {
        self.failing.fail(Kind::SyncData, "", usize::from(skip));
        let result = self.log_mut().flush();
        self.failing.relent();
        // What lies below the log start is deleted, flushed or not.
        let flushed = self.log().flushed().max(self.log().log_start());
        let end = self.log().log_end();
        match result {
            Ok(to) => self.model.flushed = to.0,
            Err(_) => {
                let loss = self.log().unflushed(LossCause::FailedSync);
                let range = loss.map(|l| (l.from, l.to));
                assert_eq!(range, (flushed < end).then_some((flushed, Some(end))));
                self.reopen();
                assert_eq!(self.log().log_end(), flushed);
                self.model.keep_below(flushed.0);
                self.model.epoch += 1;
            }
        }
    }

    fn delete(&mut self, to: Place, stage: Stage) {
        let to = self.at(to);
        let moves = to > self.model.start;
        assert_eq!(self.log_mut().advance_log_start(Offset(to)), moves);
        self.model.start = to;
        if stage >= Stage::Durable {
            self.dir().write_log_starts().unwrap();
            self.model.durable_start = to;
        }
        if stage >= Stage::Detached {
            let detached = self.log_mut().detach_below_start();
            if stage >= Stage::Removed {
                let bytes = detached.bytes();
                assert_eq!(detached.remove().unwrap(), bytes);
            }
        }
    }

    fn read(&self, from: Place, to: Place, max_bytes: u16) {
        let (from, to) = (self.at(from), self.at(to));
        let (from, to) = (from.min(to), from.max(to));
        let range = self.log().read(Offset(from), Offset(to), usize::from(max_bytes)).unwrap();
        let mut wanted = self.model.from(from).peekable();
        let Some(first) = wanted.peek().filter(|b| b.end <= to) else {
            assert!(range.is_none());
            return;
        };
        let least = first.bytes.len();
        let range = range.unwrap();
        let mut bytes = Vec::new();
        range.read_into(&mut bytes).unwrap();
        let rest: Vec<u8> = wanted.flat_map(|b| &b.bytes).copied().take(bytes.len()).collect();
        assert!(bytes.len() >= least && bytes == rest);
        assert!(bytes.len() == least || bytes.len() <= usize::from(max_bytes));
    }

    fn stop(&mut self, clean: bool) {
        let Some((dir, mut log)) = self.open.take() else { return };
        if clean {
            log.close().unwrap();
            assert!(dir.close(true).unwrap());
            self.model.flushed = self.model.end;
            self.model.durable_start = self.model.start;
        }
    }

    fn restart(&mut self, clean: bool) {
        self.stop(clean);
        self.start();
        assert_eq!(self.log().recovery().losses, [], "a crash of the process loses nothing");
        assert!(!clean || self.log().recovery().scanned_bytes == 0);
        self.settle_start();
        self.model.epoch += 1;
    }

    /// After a start the log start is what was durable, or what was meant last.
    fn settle_start(&mut self) {
        let start = self.log().log_start().0;
        let (least, most) = (self.model.durable_start, self.model.start);
        assert!((least..=most).contains(&start), "log start {start} is not in {least}..={most}");
        (self.model.start, self.model.durable_start) = (start, start);
    }

    fn power_cut(&mut self, seed: u64) {
        self.stop(false);
        self.forgetting.power_cut(seed);
        self.start();
        self.settle_start();
        let start = self.model.start;
        let found = self.content();
        let all: Vec<&Batch> = self.model.from(start).collect();
        let prefix = found.len() <= all.len() && found.iter().zip(&all).all(|(a, b)| a == *b);
        assert!(prefix, "the log is no prefix of what was appended: {found:?}");
        let must = self.model.from(start).filter(|b| b.end <= self.model.flushed);
        for (number, batch) in must.enumerate() {
            assert_eq!(found.get(number), Some(batch), "what was flushed is there");
        }
        self.model.batches = found;
        self.model.end = self.log().log_end().0;
        self.model.epoch += 1;
    }

    /// All batches from the log start on.
    fn content(&self) -> Vec<Batch> {
        let mut found = Vec::new();
        let (mut next, end) = (self.log().log_start(), self.log().log_end());
        while let Some(range) = self.log().read(next, end, 700).unwrap() {
            let mut bytes = Vec::new();
            range.read_into(&mut bytes).unwrap();
            let mut rest = &bytes[..];
            for header in batches(&bytes) {
                let (batch, after) = rest.split_at(header.size());
                rest = after;
                found.push(Batch {
                    base: header.base_offset,
                    end: header.next_offset(),
                    epoch: header.partition_leader_epoch,
                    bytes: batch.to_vec(),
                });
            }
            next = range.end;
        }
        assert_eq!(next, end);
        found
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Append { batches, follows, new_epoch } => {
                self.model.epoch += i32::from(new_epoch);
                self.try_append(&batches, follows).unwrap();
            }
            Step::AppendToFullDisk { batches, follows, room } => {
                self.append_to_full_disk(&batches, follows, room);
            }
            Step::AppendToBrokenDisk { batches, after_bytes } => {
                self.append_to_broken_disk(&batches, after_bytes);
            }
            Step::AssignEpoch => {
                self.model.epoch += 1;
                let (epoch, end) = (LeaderEpoch(self.model.epoch), Offset(self.model.end));
                self.log_mut().assign_epoch(epoch, end).unwrap();
            }
            Step::Read { from, to, max_bytes } => self.read(from, to, max_bytes),
            Step::Flush => {
                let flushed = self.log_mut().flush().unwrap();
                assert_eq!(flushed, Offset(self.model.end));
                self.model.flushed = flushed.0;
            }
            Step::FailedFlush { skip } => self.failed_flush(skip),
            Step::WriteRecoveryPoints => self.dir().write_recovery_points().unwrap(),
            Step::WriteHighWatermark => {
                let marks = BTreeMap::from([(tp("t"), self.log().log_end())]);
                self.dir().write_high_watermarks(&marks).unwrap();
            }
            Step::Truncate(place) => {
                let to = self.at(place);
                let before = self.model.end;
                self.model.keep_below(to);
                let loss = self.log_mut().truncate_to(Offset(to)).unwrap();
                let range = loss.map(|l| (l.from.0, l.to.map(|to| to.0)));
                let end = self.model.end;
                assert_eq!(range, (end < before).then_some((end, Some(before))));
                self.model.epoch += 1;
            }
            Step::Reset { to, beyond } => {
                let to = if beyond { self.model.end + i64::from(to) } else { self.at(to) };
                self.log_mut().reset_to(Offset(to)).unwrap();
                let epoch = self.model.epoch + 1;
                (self.model.start, self.model.durable_start) = (to, to);
                (self.model.end, self.model.flushed) = (to, to);
                self.model.batches.clear();
                self.model.epoch = epoch;
            }
            Step::Delete { to, stage } => self.delete(to, stage),
            Step::Close => self.restart(true),
            Step::Crash => self.restart(false),
            Step::PowerCut { seed } => self.power_cut(seed),
        }
        self.check();
    }

    fn check(&self) {
        let log = self.log();
        assert_eq!(log.log_start(), Offset(self.model.start));
        assert_eq!(log.log_end(), Offset(self.model.end));
        assert!(log.flushed() <= log.log_end());
        let found = self.content();
        let wanted: Vec<Batch> = self.model.from(self.model.start).cloned().collect();
        assert!(found == wanted, "the log holds {found:?} and not {wanted:?}");
        for batch in found {
            let at = Offset(batch.base).max(log.log_start());
            assert_eq!(log.epochs().epoch_at(at), Some(LeaderEpoch(batch.epoch)));
        }
    }
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
        cases: 2000,
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
