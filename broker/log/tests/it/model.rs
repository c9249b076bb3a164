//! Thousands of random steps against a plain list of batches, with crashes of the process and of the host.

use std::fs::{self, OpenOptions};

use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{Log, LogConfig, LogDir, stamp};
use barnabas_types::{LeaderEpoch, Offset};

use crate::world::{TINY, World, batches, copy_dir, read_all, segment_files};

/// xorshift64: the same steps in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn offset(&mut self, from: i64, to: i64) -> Offset {
        Offset(from + i64::try_from(self.below(u64::try_from(to - from + 1).unwrap())).unwrap())
    }
}

/// What the log must hold: bytes of each batch with its offsets.
struct Model {
    start: i64,
    batches: Vec<(i64, i64, Vec<u8>)>,
    epoch: i32,
}

impl Model {
    fn end(&self) -> i64 {
        self.batches.last().map_or(self.start, |b| b.1)
    }

    fn keep_below(&mut self, end: i64) {
        self.batches.retain(|b| b.1 <= end);
    }

    fn bytes(&self) -> Vec<u8> {
        self.batches.iter().flat_map(|b| b.2.clone()).collect()
    }
}

struct Run {
    random: Random,
    model: Model,
    world: World,
    open: Option<(LogDir, Log)>,
    crashes: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let config = LogConfig { segment_bytes: 900, index_interval_bytes: 150, ..TINY };
        let world = World::new("model", config);
        let open = Some(world.start());
        let model = Model { start: 0, batches: Vec::new(), epoch: 1 };
        Self { random: Random(seed), model, world, open, crashes: 0 }
    }

    fn log(&self) -> &Log {
        &self.open.as_ref().unwrap().1
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.open.as_mut().unwrap().1
    }

    fn some_batches(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        for _ in 0..=self.random.below(3) {
            let mut builder = BatchBuilder::new();
            for _ in 0..=self.random.below(4) {
                let length = usize::try_from(self.random.below(60)).unwrap();
                let time = i64::try_from(self.random.below(10_000)).unwrap();
                builder = builder.timestamp(time).record(&vec![7; length]);
            }
            records.extend(builder.build());
        }
        records
    }

    fn append(&mut self) {
        if self.random.below(10) == 0 {
            self.model.epoch += 1;
        }
        let mut records = self.some_batches();
        let (end, epoch) = (Offset(self.model.end()), LeaderEpoch(self.model.epoch));
        let appended = if self.random.below(2) == 0 {
            self.log_mut().append(&mut records, end, epoch)
        } else {
            stamp(&mut records, end, epoch).unwrap();
            self.log_mut().append_as_follower(&records)
        };
        let mut at = 0;
        for header in batches(&records) {
            let bytes = records[at..at + header.size()].to_vec();
            at += header.size();
            self.model.batches.push((header.base_offset, header.next_offset(), bytes));
        }
        assert_eq!(appended.unwrap().log_end, Offset(self.model.end()));
    }

    fn truncate(&mut self) {
        let cut = self.random.offset(self.model.start, self.model.end());
        self.model.keep_below(cut.0);
        self.log_mut().truncate_to(cut).unwrap();
        assert_eq!(self.log().log_end(), Offset(self.model.end()));
        self.model.epoch += 1;
    }

    fn reset(&mut self) {
        let start = self.random.offset(0, self.model.end() + 50);
        self.log_mut().reset_to(start).unwrap();
        self.model.start = start.0;
        self.model.batches.clear();
    }

    fn flush(&mut self) {
        assert_eq!(self.log_mut().flush().unwrap(), Offset(self.model.end()));
        if self.random.below(2) == 0 {
            self.open.as_ref().unwrap().0.write_recovery_points().unwrap();
        }
    }

    fn read(&mut self) {
        let from = self.random.offset(self.model.start, self.model.end());
        let to = self.random.offset(from.0, self.model.end());
        let max_bytes = usize::try_from(self.random.below(1500)).unwrap();
        let range = self.log().read(from, to, max_bytes).unwrap();
        let first = self.model.batches.iter().position(|b| b.1 > from.0);
        let Some(first) = first.filter(|f| self.model.batches[*f].1 <= to.0) else {
            assert!(range.is_none());
            return;
        };
        let mut bytes = Vec::new();
        range.unwrap().read_into(&mut bytes).unwrap();
        let rest: Vec<u8> = self.model.batches[first..]
            .iter()
            .flat_map(|b| b.2.clone())
            .take(bytes.len())
            .collect();
        assert!(bytes.len() >= self.model.batches[first].2.len());
        assert_eq!(bytes, rest);
    }

    fn reopen(&mut self, clean: bool) {
        let Some((dir, mut log)) = self.open.take() else { return };
        let flushed = log.flushed();
        if clean {
            log.close().unwrap();
            assert!(dir.close(true).unwrap());
        } else {
            drop(log);
        }
        drop(dir);
        self.open = Some(self.world.start());
        assert_eq!(self.log().recovery().losses, [], "a crash of the process loses nothing");
        if !clean {
            assert!(self.log().flushed() <= flushed);
        }
    }

    /// The host dies: of the last segment any number of bytes is left above what was flushed, or garbage.
    fn host_crash(&mut self) {
        self.crashes += 1;
        let world = World { temp: TempDir::new("model"), config: self.world.config };
        let flushed = self.log().flushed();
        copy_dir(self.world.path(), world.path());
        let path = segment_files(&world.partition()).pop().unwrap();
        let base: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let mut durable = 0;
        let mut size = 0;
        for (first, end, bytes) in self.model.batches.iter().filter(|b| b.0 >= base) {
            assert!(*first >= base);
            size += bytes.len() as u64;
            if *end <= flushed.0 {
                durable = size;
            }
        }
        let left = durable + self.random.below(size - durable + 1);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(left).unwrap();
        if self.random.below(2) == 0 {
            file.set_len(left + self.random.below(200)).unwrap();
        }
        if self.random.below(3) == 0 {
            let _ = fs::remove_file(path.with_extension("index"));
        }
        let mut kept = 0;
        let mut end = base.max(self.model.start);
        for batch in self.model.batches.iter().filter(|b| b.0 >= base) {
            kept += batch.2.len() as u64;
            if kept <= left {
                end = batch.1;
            }
        }
        self.model.keep_below(end);
        self.open = None;
        self.open = Some(world.start());
        self.world = world;
        assert!(self.log().log_end() >= flushed, "what was flushed is there (I11)");
    }

    fn check(&self) {
        assert_eq!(self.log().log_start(), Offset(self.model.start));
        assert_eq!(self.log().log_end(), Offset(self.model.end()));
        assert!(self.log().flushed() <= self.log().log_end());
        assert!(self.log().flushed() >= self.log().log_start());
        let bytes = read_all(self.log(), Offset(self.model.start), 700);
        assert!(bytes == self.model.bytes(), "the log holds something else than was appended");
        for header in batches(&bytes) {
            let epoch = self.log().epochs().epoch_at(Offset(header.base_offset));
            assert_eq!(epoch, Some(LeaderEpoch(header.partition_leader_epoch)));
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..45 => self.append(),
            45..70 => self.read(),
            70..78 => self.flush(),
            78..86 => self.truncate(),
            86..87 => self.reset(),
            87..91 => self.reopen(true),
            91..95 => self.reopen(false),
            _ => self.host_crash(),
        }
        self.check();
    }
}

#[test]
fn i11_random_steps_and_crashes_against_a_list() {
    for seed in [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03, 0x2545_F491_4F6C_DD1D] {
        let mut run = Run::new(seed);
        for step in 0..1200 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
            if let Err(panic) = result {
                eprintln!("seed {seed:#x}, step {step}");
                std::panic::resume_unwind(panic);
            }
        }
        assert!(run.crashes > 20);
    }
}
