//! Compaction and what goes wrong or comes between: cuts, deletions, failing disks, crashes, losses of power.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use barnabas_log::testing::{Failing, Forgetting, Kind, Random, TempDir};
use barnabas_log::{
    Disk, Ended, Faults, Log, LogConfig, LogDir, LogError, Op, Pace, Unhurried, Verdict, compact,
};
use barnabas_types::Offset;

use crate::keyed::{COMPACTED, Keyed, all_records, filled, leftovers};
use crate::world::{copy_dir, read_all, segment_files, tp};

/// Calls back at a piece of work.
struct At<F>(usize, F);

impl<F: FnMut()> Pace for At<F> {
    fn spent(&mut self, _bytes: u64) -> bool {
        if self.0 == 0 {
            (self.1)();
        }
        self.0 = self.0.wrapping_sub(1);
        true
    }
}

/// Ends after so many pieces of work.
struct StopAfter(usize);

impl Pace for StopAfter {
    fn spent(&mut self, _bytes: u64) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

#[test]
fn d8_whatever_comes_between_overtakes_a_compaction() {
    type Between = fn(&mut Log, &LogDir);
    let cases: [(&str, Between); 6] = [
        ("cut", |log, _| {
            log.truncate_to(Offset(20)).unwrap();
        }),
        ("reset", |log, _| {
            log.reset_to(Offset(5)).unwrap();
        }),
        ("fenced", |log, _| log.fence()),
        ("closed", |log, _| log.close().unwrap()),
        ("deleted", |log, dir| {
            log.fence();
            dir.delete(&tp("t")).unwrap();
        }),
        ("retained", |log, dir| {
            assert!(log.advance_log_start(Offset(60)));
            dir.write_log_starts().unwrap();
            log.detach_below_start().remove().unwrap();
        }),
    ];
    for (name, between) in cases {
        for at in [0, 30, 100, 130] {
            let mut keyed = filled("between", COMPACTED, 100, 6);
            let round = keyed.log().compaction_plan(Offset(keyed.end)).unwrap();
            let round = round.due(keyed.now_ms).unwrap().unwrap();
            keyed.untouched_from = keyed.end;
            assert!(keyed.log().compaction_plan(Offset(keyed.end)).is_none(), "one at a time");
            let (dir, log) = keyed.open.as_mut().unwrap();
            let log = std::cell::RefCell::new(log);
            let mut pace = At(at, || between(&mut log.borrow_mut(), dir));
            let done = compact(round, &mut |work| work(&mut log.borrow_mut()), 1 << 20, &mut pace);
            let ended = done.unwrap().ended;
            // What lies below a log start may have been done with before it went.
            let done = name == "retained" && matches!(ended, Ended::UpTo(_));
            assert!(done || ended == Ended::Overtaken, "{name} at {at}: {ended:?}");
            let exists = keyed.log().directory().exists();
            assert!(!exists || leftovers(keyed.log().directory()).is_empty(), "{name} at {at}");
            match name {
                // A cut below the high watermark, as only an unclean election orders it: if segments were swapped before,
                // records are gone for the sake of later ones that were cut.
                "cut" if at < 100 => {
                    let end = keyed.log().log_end().0;
                    keyed.cut_model(end);
                    keyed.check();
                }
                "retained" => {
                    keyed.records = keyed.records.split_off(&60);
                    keyed.check();
                }
                _ => {}
            }
        }
    }
}

#[test]
fn d8_appends_rolls_and_flushes_go_on_during_a_compaction() {
    let mut keyed = filled("between", COMPACTED, 100, 6);
    let round = keyed.log().compaction_plan(Offset(keyed.end)).unwrap();
    let round = round.due(keyed.now_ms).unwrap().unwrap();
    keyed.untouched_from = keyed.end;
    let range = keyed.log().read(Offset(0), Offset(keyed.end), 1 << 20).unwrap().unwrap();
    let mut before = Vec::new();
    range.read_into(&mut before).unwrap();
    let mut random = Random(11);
    let keyed = std::cell::RefCell::new(keyed);
    struct Each<F>(F);
    impl<F: FnMut()> Pace for Each<F> {
        fn spent(&mut self, _bytes: u64) -> bool {
            (self.0)();
            true
        }
    }
    let mut pace = Each(|| {
        let mut keyed = keyed.borrow_mut();
        keyed.append_some(&mut random, 6);
        if random.below(4) == 0 {
            keyed.log_mut().flush().unwrap();
        }
        let now_ms = keyed.now_ms + i64::try_from(random.below(5000)).unwrap();
        keyed.log_mut().roll_if_due(now_ms).unwrap();
    });
    let with_log = &mut |work: &mut dyn FnMut(&mut Log)| work(keyed.borrow_mut().log_mut());
    let done = compact(round, with_log, 1 << 20, &mut pace).unwrap();
    assert!(matches!(done.ended, Ended::UpTo(_)));
    let mut keyed = keyed.into_inner();
    keyed.check();
    let mut after = Vec::new();
    range.read_into(&mut after).unwrap();
    assert!(before == after, "an open range stays what it was");
    keyed.open = None;
    keyed.start(Disk::real());
    keyed.check();
}

#[test]
fn a_full_or_failing_disk_leaves_the_log_as_it_was() {
    for (kind, path, fences) in [
        (Kind::Create, "log.cleaned", false),
        (Kind::Write, "log.cleaned", false),
        (Kind::Write, "index.cleaned", false),
        (Kind::SyncData, "log.cleaned", false),
        (Kind::Rename, "log.swap", false),
        (Kind::Rename, "log.deleted", true),
        (Kind::Rename, "0.index", true),
        (Kind::Rename, "00000000000000000000.log", true),
        (Kind::Remove, "log.deleted", false),
    ] {
        let mut keyed = filled("failing", LogConfig { segment_bytes: 500, ..COMPACTED }, 60, 6);
        keyed.config.segment_bytes = 2000;
        keyed.open = None;
        let failing = Failing::new();
        keyed.start(failing.disk());
        keyed.flush_all();
        // The first segment's own name comes after its `.swap`.
        failing.fail(kind, path, usize::from(path.ends_with("00.log")));
        let error = keyed.compact_with(1 << 20, &mut Unhurried).unwrap();
        assert!(matches!(error, Err(LogError::Io { .. })), "{kind:?} {path}: {error:?}");
        assert_eq!(keyed.log().is_fenced(), fences, "{kind:?} {path}");
        if !fences {
            keyed.check();
            assert!(matches!(keyed.compact().unwrap().ended, Ended::UpTo(_)));
        }
        keyed.open = None;
        keyed.start(Disk::real());
        keyed.check();
        keyed.check_reads();
        assert!(leftovers(keyed.log().directory()).is_empty());
    }
    let mut keyed = filled("full", COMPACTED, 60, 6);
    keyed.open = None;
    let failing = Failing::new();
    keyed.start(failing.disk());
    keyed.flush_all();
    failing.room(Some(1000));
    let full = keyed.compact_with(1 << 20, &mut Unhurried).unwrap();
    assert!(matches!(full, Err(LogError::Full { .. })), "{full:?}");
    failing.room(None);
    assert!(!keyed.log().is_fenced() && leftovers(keyed.log().directory()).is_empty());
    assert!(matches!(keyed.compact().unwrap().ended, Ended::UpTo(_)));
    keyed.check();
}

#[test]
fn damage_stops_a_compaction_and_nothing_else() {
    let mut keyed = filled("damage", COMPACTED, 60, 6);
    let file = &segment_files(keyed.log().directory())[1];
    let mut bytes = fs::read(file).unwrap();
    bytes[100] ^= 1;
    fs::write(file, &bytes).unwrap();
    let error = keyed.compact_with(1 << 20, &mut Unhurried).unwrap();
    assert!(matches!(error, Err(LogError::Damaged { .. })), "{error:?}");
    assert!(!keyed.log().is_fenced() && leftovers(keyed.log().directory()).is_empty());
    bytes[100] ^= 1;
    fs::write(file, &bytes).unwrap();
    keyed.check();
}

/// Copies a directory before and after each change, as a crash of the process would leave it.
#[derive(Debug)]
struct Copies {
    from: std::path::PathBuf,
    to: std::path::PathBuf,
    count: std::sync::atomic::AtomicUsize,
}

impl Copies {
    fn copy(&self) {
        let number = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        copy_dir(&self.from, &self.to.join(number.to_string()));
    }
}

impl Faults for Copies {
    fn before(&self, op: &Op<'_>) -> std::io::Result<Verdict> {
        let changes_nothing =
            matches!(op, Op::Open(_) | Op::SyncData(_) | Op::SyncDir(_) | Op::SyncFilesystem(_));
        if !changes_nothing {
            self.copy();
        }
        Ok(Verdict::Perform)
    }

    fn after(&self, _op: &Op<'_>) {}
}

#[test]
fn a_crash_at_any_step_of_a_swap_leaves_the_old_or_the_new() {
    let mut keyed = filled("crash", LogConfig { segment_bytes: 500, ..COMPACTED }, 40, 6);
    keyed.config.segment_bytes = 2000;
    keyed.open = None;
    let copies = TempDir::in_memory("crashes");
    let watching = std::sync::Arc::new(Copies {
        from: keyed.temp.path().to_owned(),
        to: copies.path().to_owned(),
        count: 0.into(),
    });
    keyed.start(Disk::with_faults(watching.clone()));
    keyed.flush_all();
    let from = watching.count.load(std::sync::atomic::Ordering::Relaxed);
    let old = all_records(&read_all(keyed.log(), Offset(0), 1 << 20));
    assert!(matches!(keyed.compact().unwrap().ended, Ended::UpTo(_)));
    watching.copy();
    let until = watching.count.load(std::sync::atomic::Ordering::Relaxed);
    assert!(until - from > 40, "{from} {until}");
    let mut sizes = std::collections::BTreeSet::new();
    for number in from..until {
        let temp = std::mem::replace(&mut keyed.temp, TempDir::in_memory("crashed"));
        keyed.open = None;
        copy_dir(&copies.path().join(number.to_string()), keyed.temp.path());
        keyed.start(Disk::real());
        let result = catch_unwind(AssertUnwindSafe(|| {
            assert_eq!(keyed.log().recovery().losses, [], "nothing is lost");
            keyed.check();
            keyed.check_reads();
            assert!(leftovers(keyed.log().directory()).is_empty());
            all_records(&read_all(keyed.log(), Offset(0), 1 << 20)).len()
        }));
        sizes.insert(
            result.unwrap_or_else(|_| panic!("crash {} of {}", number - from, until - from)),
        );
        keyed.flush_all();
        keyed.compact();
        keyed.check();
        drop(temp);
    }
    assert!(sizes.len() > 2 && sizes.contains(&old.len()), "{sizes:?}");
}

/// A run of random steps.
struct Run {
    keyed: Keyed,
    random: Random,
    forgetting: std::sync::Arc<Forgetting>,
    compactions: u32,
    crashes: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut keyed = Keyed::new("random", COMPACTED);
        keyed.open = None;
        let forgetting = Forgetting::new(keyed.temp.path());
        keyed.start(forgetting.disk());
        Self { keyed, random: Random(seed), forgetting, compactions: 0, crashes: 0 }
    }

    fn step(&mut self) {
        let keyed = &mut self.keyed;
        match self.random.below(100) {
            0..50 => keyed.append_some(&mut self.random, 8),
            50..60 => {
                keyed.log_mut().flush().unwrap();
                if self.random.below(2) == 0 {
                    keyed.dir().write_recovery_points().unwrap();
                }
            }
            60..70 => {
                let room = usize::try_from(keyed.end - keyed.high_watermark).unwrap();
                keyed.high_watermark += i64::try_from(self.random.below(room + 1)).unwrap();
            }
            70..82 => {
                let map_bytes = 24 * self.random.below(30);
                let pieces = 1 + self.random.below(200);
                let done = keyed.compact_with(map_bytes, &mut StopAfter(pieces));
                if done.is_some_and(|done| matches!(done.unwrap().ended, Ended::UpTo(_))) {
                    self.compactions += 1;
                    keyed.dir().write_cleaner_points().unwrap();
                }
                keyed.now_ms += 100;
            }
            82..86 => {
                // Never below the high watermark.
                let room = usize::try_from(keyed.end - keyed.high_watermark).unwrap();
                let to = keyed.high_watermark + i64::try_from(self.random.below(room + 1)).unwrap();
                keyed.log_mut().truncate_to(Offset(to)).unwrap();
                let end = keyed.log().log_end().0;
                keyed.cut_model(end);
                keyed.epoch += 1;
            }
            86..88 => {
                let now_ms = keyed.now_ms + i64::try_from(self.random.below(1 << 40)).unwrap();
                keyed.log_mut().roll_if_due(now_ms).unwrap();
            }
            88..91 => {
                let (start, end) = (keyed.log().log_start().0, keyed.high_watermark);
                let room = usize::try_from(end - start).unwrap() / 4;
                let to = Offset(start + i64::try_from(self.random.below(room + 1)).unwrap());
                if keyed.log_mut().advance_log_start(to) {
                    keyed.dir().write_log_starts().unwrap();
                    keyed.log_mut().detach_below_start().remove().unwrap();
                    keyed.records = keyed.records.split_off(&to.0);
                }
            }
            91..94 => {
                let Some((dir, mut log)) = keyed.open.take() else { return };
                let clean = self.random.below(2) == 0;
                if clean {
                    log.close().unwrap();
                    assert!(dir.close(true).unwrap());
                }
                drop((log, dir));
                keyed.start(self.forgetting.disk());
            }
            _ => self.lose_power(),
        }
    }

    /// The power fails, mostly in the middle of a compaction.
    fn lose_power(&mut self) {
        self.crashes += 1;
        let keyed = &mut self.keyed;
        let flushed = keyed.log().flushed().0;
        let Some((dir, log)) = keyed.open.take() else { return };
        drop((log, dir));
        let failing = Failing::before(self.forgetting.clone());
        keyed.start(failing.disk());
        let kinds =
            [Kind::Create, Kind::Write, Kind::SyncData, Kind::SyncDir, Kind::Rename, Kind::Remove];
        let kind = kinds[self.random.below(kinds.len())];
        let skip = self.random.below(12);
        failing.fail(kind, "t-0", skip);
        let _ = keyed.compact_with(1 << 20, &mut Unhurried);
        keyed.open = None;
        self.forgetting.power_cut(self.random.bits());
        keyed.start(self.forgetting.disk());
        let end = keyed.log().log_end().0;
        assert!(end >= flushed, "what was flushed is there (I11)");
        keyed.cut_model(end);
        keyed.epoch += 1;
    }
}

#[test]
fn i11_random_steps_compactions_and_losses_of_power_against_a_list() {
    let mut compactions = 0;
    for seed in 0..40 {
        let mut run = Run::new(seed);
        for step in 0..250 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                run.step();
                run.keyed.check();
                for (id, last) in &run.keyed.sequences {
                    let known = run.keyed.log().producer_batches().filter(|b| b.producer_id == *id);
                    let known = known.map(|b| b.last_sequence).last();
                    assert_eq!(known, Some(*last), "producer {id}");
                }
            }));
            if let Err(panic) = result {
                eprintln!("seed {seed}, step {step}");
                std::panic::resume_unwind(panic);
            }
        }
        run.keyed.check_reads();
        compactions += run.compactions;
        assert!(run.crashes > 3);
    }
    assert!(compactions > 100, "{compactions}");
}
