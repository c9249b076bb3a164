//! Thousands of random steps of idempotent producers against a plain list: whatever happens to the log, each producer's last
//! batches are known, and no others.

use std::sync::Arc;

use barnabas_log::testing::{BatchBuilder, Forgetting, Random, TempDir};
use barnabas_log::{Admission, BatchHeader, Log, LogConfig, LogDir, ProducerBatch, stamp};
use barnabas_types::{LeaderEpoch, Offset};

use crate::world::{ID, TINY, append as append_plain, tp};

const PRODUCERS: i64 = 4;
/// Segments of about seven batches, an index entry for about every second.
const CONFIG: LogConfig = LogConfig { segment_bytes: 900, index_interval_bytes: 150, ..TINY };

struct Run {
    random: Random,
    temp: TempDir,
    forgetting: Arc<Forgetting>,
    open: Option<(LogDir, Log)>,
    /// Every producer's batch that was written and not cut off, gone by retention or not.
    written: Vec<BatchHeader>,
    leader_epoch: i32,
    /// Nothing was cut yet: all five batches of each producer are known.
    uncut: bool,
    power_cuts: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let temp = TempDir::in_memory("producer-steps");
        let forgetting = Forgetting::new(temp.path());
        let mut run = Self {
            random: Random(seed),
            temp,
            forgetting,
            open: None,
            written: Vec::new(),
            leader_epoch: 1,
            uncut: true,
            power_cuts: 0,
        };
        run.start();
        run
    }

    fn start(&mut self) {
        let dir = LogDir::lock_on(self.forgetting.disk(), self.temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let log = dir.open(&tp("t"), ID, CONFIG).unwrap();
        self.open = Some((dir, log));
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    fn offset(&mut self, from: i64, to: i64) -> Offset {
        let steps = self.random.below(usize::try_from(to - from).unwrap() + 1);
        Offset(from + i64::try_from(steps).unwrap())
    }

    fn log(&self) -> &Log {
        &self.open.as_ref().unwrap().1
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.open.as_mut().unwrap().1
    }

    /// The batches of a producer in its newest epoch, oldest first.
    fn expected(&self, id: i64) -> Vec<BatchHeader> {
        let all = || self.written.iter().filter(|b| b.producer_id == id);
        let Some(newest) = all().next_back().map(|b| b.producer_epoch) else { return Vec::new() };
        all().filter(|b| b.producer_epoch == newest).copied().collect()
    }

    fn produce(&mut self) {
        let id = self.offset(0, PRODUCERS - 1).0;
        let (epoch, sequence) = match self.expected(id).last() {
            None => (0, if self.one_in(3) { i32::MAX - 4 } else { 0 }),
            Some(last) if self.one_in(12) => (last.producer_epoch + 1, 0),
            Some(last) => (last.producer_epoch, next(last)),
        };
        let mut builder = BatchBuilder::new();
        for _ in 0..=self.random.below(4) {
            builder = builder.record(&[7; 30]);
        }
        let mut records = builder.producer(id, epoch, sequence).build();
        let end = self.log().log_end();
        let leader_epoch = LeaderEpoch(self.leader_epoch);
        assert_eq!(admit(self.log(), &BatchHeader::parse(&records).unwrap()), Admission::New);
        if self.one_in(2) {
            self.log_mut().append(&mut records, end, leader_epoch).unwrap();
        } else {
            stamp(&mut records, end, leader_epoch).unwrap();
            self.log_mut().append_as_follower(&records).unwrap();
        }
        self.written.push(BatchHeader::parse(&records).unwrap());
    }

    fn plain(&mut self) {
        let epoch = self.leader_epoch;
        append_plain(self.log_mut(), 1, 50, epoch);
    }

    fn truncate(&mut self) {
        let (start, end) = (self.log().log_start(), self.log().log_end());
        let from = if self.one_in(3) { start.0 } else { start.0.max(end.0 - 15) };
        let cut = self.offset(from, end.0);
        self.log_mut().truncate_to(cut).unwrap();
        self.leader_epoch += 1;
        self.cut();
    }

    /// The log ends elsewhere than before.
    fn cut(&mut self) {
        let (start, end) = (self.log().log_start(), self.log().log_end());
        self.uncut = false;
        self.written.retain(|b| b.next_offset() <= end.0);
        if start == end {
            // The log may have begun anew: then no producer is known.
            let known: Vec<i64> =
                self.log().producer_batches().map(|row| row.producer_id).collect();
            self.written.retain(|b| known.contains(&b.producer_id));
        }
    }

    fn reset(&mut self) {
        let end = self.log().log_end().0;
        let start = self.offset(0, end + 50);
        self.log_mut().reset_to(start).unwrap();
        self.written.clear();
    }

    fn flush(&mut self) {
        self.log_mut().flush().unwrap();
        if self.one_in(2) {
            self.open.as_ref().unwrap().0.write_recovery_points().unwrap();
        }
    }

    /// As retention: what is to go is flushed, the log start durable before files go.
    fn retain(&mut self) {
        let (start, end) = (self.log().log_start(), self.log().log_end());
        let to = self.offset(start.0, end.0);
        self.log_mut().flush().unwrap();
        self.log_mut().advance_log_start(to);
        self.open.as_ref().unwrap().0.write_log_starts().unwrap();
        self.log_mut().detach_below_start().remove().unwrap();
    }

    fn reopen(&mut self, clean: bool) {
        let (dir, mut log) = self.open.take().unwrap();
        if clean {
            log.close().unwrap();
            assert!(dir.close(true).unwrap());
        }
        drop((log, dir));
        self.start();
    }

    fn power_cut(&mut self) {
        self.power_cuts += 1;
        let flushed = self.log().flushed();
        self.open = None;
        let seed = self.random.bits();
        self.forgetting.power_cut(seed);
        self.start();
        assert!(self.log().log_end() >= flushed);
        self.leader_epoch += 1;
        self.cut();
    }

    fn check(&mut self) {
        let rows: Vec<ProducerBatch> = self.log().producer_batches().collect();
        for id in 0..PRODUCERS {
            let expected = self.expected(id);
            let known: Vec<&ProducerBatch> =
                rows.iter().filter(|row| row.producer_id == id).collect();
            assert_eq!(known.is_empty(), expected.is_empty(), "producer {id}");
            assert!(known.len() <= expected.len().min(5), "producer {id}");
            if self.uncut {
                assert_eq!(known.len(), expected.len().min(5), "producer {id}");
            }
            let last = &expected[expected.len() - known.len()..];
            for (row, batch) in known.iter().zip(last) {
                assert_eq!(row.producer_epoch, batch.producer_epoch);
                assert_eq!(
                    (row.first_sequence(), row.last_offset),
                    (batch.base_sequence, batch.last_offset())
                );
                let repeated = Admission::Duplicate {
                    base: Offset(batch.base_offset),
                    end: Offset(batch.next_offset()),
                };
                assert_eq!(admit(self.log(), batch), repeated);
            }
            if let Some(last) = last.last() {
                let next = BatchHeader { base_sequence: next(last), ..*last };
                assert_eq!(admit(self.log(), &next), Admission::New);
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..50 => self.produce(),
            50..60 => self.plain(),
            60..68 => self.flush(),
            68..74 => self.retain(),
            74..80 => self.truncate(),
            80..81 => self.reset(),
            81..87 => self.reopen(true),
            87..93 => self.reopen(false),
            _ => self.power_cut(),
        }
        self.check();
    }

    /// Without anything that cuts.
    fn gentle_step(&mut self) {
        match self.random.below(100) {
            0..60 => self.produce(),
            60..70 => self.plain(),
            70..78 => self.flush(),
            78..84 => self.retain(),
            84..92 => self.reopen(true),
            _ => self.reopen(false),
        }
        self.check();
    }
}

/// The sequence after a batch.
fn next(batch: &BatchHeader) -> i32 {
    let next = i64::from(batch.base_sequence) + i64::from(batch.last_offset_delta) + 1;
    i32::try_from(next % (i64::from(i32::MAX) + 1)).unwrap()
}

fn admit(log: &Log, header: &BatchHeader) -> Admission {
    log.admit(header).unwrap_or_else(|condition| panic!("{condition:?} for {header:?}"))
}

fn run(seed: u64, steps: u32, step: fn(&mut Run)) -> Run {
    let mut run = Run::new(seed);
    for number in 0..steps {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&mut run)));
        if let Err(panic) = result {
            eprintln!("seed {seed:#x}, step {number}");
            std::panic::resume_unwind(panic);
        }
    }
    run
}

#[test]
fn e1_the_last_batches_of_each_producer_are_known_whatever_happens() {
    for seed in
        [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03, 0x1B03_7387_12FA_D5C9, 0x2545_F491_4F6C_DD1D]
    {
        assert!(run(seed, 800, Run::step).power_cuts > 20);
    }
}

#[test]
fn e1_all_five_are_known_after_any_stop_and_retention() {
    for seed in [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB] {
        run(seed, 600, Run::gentle_step);
    }
}
