//! A compacted log and what it must hold: shared by the tests of compaction.

use std::collections::BTreeMap;
use std::path::Path;

use barnabas_log::testing::{BatchBuilder, Random, TempDir};
use barnabas_log::{
    BatchHeader, Batches, Compacted, Disk, Log, LogConfig, LogDir, LogError, Pace, Records,
    Unhurried, compact, record_bytes,
};
use barnabas_types::{CleanupPolicy, LeaderEpoch, Offset, Ratio};

use crate::world::{ID, TINY, read_all, tp};

pub(crate) const COMPACTED: LogConfig = LogConfig {
    segment_bytes: 900,
    cleanup: CleanupPolicy { delete: false, compact: true },
    delete_retention_ms: 1000,
    min_cleanable_dirty_ratio: Ratio::from_millionths(0),
    ..TINY
};

/// Key and value; `None`: a tombstone.
pub(crate) type Pair = (Vec<u8>, Option<Vec<u8>>);

/// A log of keyed records and everything that was ever appended to it and not cut off.
pub(crate) struct Keyed {
    pub(crate) temp: TempDir,
    pub(crate) config: LogConfig,
    pub(crate) open: Option<(LogDir, Log)>,
    /// By offset.
    pub(crate) records: BTreeMap<i64, Pair>,
    pub(crate) end: i64,
    pub(crate) high_watermark: i64,
    /// Nothing from here on was ever compacted.
    pub(crate) untouched_from: i64,
    pub(crate) epoch: i32,
    pub(crate) now_ms: i64,
    /// Producer ids with their last sequence.
    pub(crate) sequences: BTreeMap<i64, i32>,
    /// Offset after each record, with the sequences then: what a cut goes back to.
    history: Vec<(i64, i64, i32)>,
}

impl Keyed {
    pub(crate) fn new(name: &str, config: LogConfig) -> Self {
        let mut keyed = Self {
            temp: TempDir::in_memory(name),
            config,
            open: None,
            records: BTreeMap::new(),
            end: 0,
            high_watermark: 0,
            untouched_from: 0,
            epoch: 1,
            now_ms: 1_000_000,
            sequences: BTreeMap::new(),
            history: Vec::new(),
        };
        keyed.start(Disk::real());
        keyed
    }

    pub(crate) fn start(&mut self, disk: Disk) {
        let dir = LogDir::lock_on(disk, self.temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let log = dir.open(&tp("t"), ID, self.config).unwrap();
        self.open = Some((dir, log));
    }

    pub(crate) fn log(&self) -> &Log {
        &self.open.as_ref().unwrap().1
    }

    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.open.as_mut().unwrap().1
    }

    pub(crate) fn dir(&self) -> &LogDir {
        &self.open.as_ref().unwrap().0
    }

    /// Appends one batch; with a producer id, as its next.
    pub(crate) fn append(&mut self, pairs: &[Pair], codec: i16, producer: Option<i64>) {
        let mut builder = BatchBuilder::new().codec(codec);
        if let Some(id) = producer {
            let next = self.sequences.get(&id).map_or(0, |last| last + 1);
            builder = builder.producer(id, 0, next);
            let last = next + i32::try_from(pairs.len()).unwrap() - 1;
            self.sequences.insert(id, last);
            let end = self.end + i64::try_from(pairs.len()).unwrap();
            self.history.push((end, id, last));
        }
        for (number, (key, value)) in (0..).zip(pairs) {
            self.now_ms += 1;
            builder = builder.timestamp(self.now_ms).keyed(key, value.as_deref());
            self.records.insert(self.end + number, (key.clone(), value.clone()));
        }
        let (end, epoch) = (self.end, self.epoch);
        let appended = self.log_mut().append(&mut builder.build(), Offset(end), LeaderEpoch(epoch));
        self.end = appended.unwrap().log_end.0;
    }

    pub(crate) fn append_some(&mut self, random: &mut Random, keys: usize) {
        let mut pairs = Vec::new();
        for _ in 0..=random.below(4) {
            let key = format!("key-{}", random.below(keys)).into_bytes();
            let value = (random.below(5) > 0).then(|| {
                let length = random.below(60);
                (0..length).map(|_| random.below(8) as u8 + b'a').collect()
            });
            pairs.push((key, value));
        }
        let codec = i16::try_from(random.below(5)).unwrap();
        let producer = (random.below(3) == 0).then(|| 100 + random.below(3) as i64);
        self.append(&pairs, codec, producer);
    }

    /// What is above `end` goes from the model too.
    pub(crate) fn cut_model(&mut self, end: i64) {
        self.records.split_off(&end);
        self.end = end;
        self.high_watermark = self.high_watermark.min(end);
        self.untouched_from = self.untouched_from.min(end);
        self.history.retain(|(batch_end, ..)| *batch_end <= end);
        self.sequences = self.history.iter().map(|(_, id, last)| (*id, *last)).collect();
    }

    /// Compacts if there is anything to; notes what may have been touched.
    pub(crate) fn compact_with(
        &mut self,
        map_bytes: usize,
        pace: &mut dyn Pace,
    ) -> Option<Result<Compacted, LogError>> {
        let (now_ms, high_watermark) = (self.now_ms, self.high_watermark);
        let plan = self.log().compaction_plan(Offset(high_watermark))?;
        let round = plan.due(now_ms).unwrap()?;
        self.untouched_from = self.untouched_from.max(high_watermark.min(self.log().flushed().0));
        let log = self.log_mut();
        let done = compact(round, &mut |work| work(log), map_bytes, pace);
        Some(done)
    }

    /// Compacts, with room for every key.
    pub(crate) fn compact(&mut self) -> Option<Compacted> {
        self.compact_with(1 << 20, &mut Unhurried).map(Result::unwrap)
    }

    pub(crate) fn flush_all(&mut self) {
        self.log_mut().flush().unwrap();
        self.high_watermark = self.end;
    }

    /// The log holds what it must, and nothing else.
    pub(crate) fn check(&self) {
        let log = self.log();
        let (start, end) = (log.log_start(), log.log_end());
        assert_eq!(end.0, self.end, "no offset is used again");
        let bytes = read_all(log, start, 700);
        // The log may begin inside its first batch.
        let found = all_records(&bytes).split_off(&start.0);
        for (offset, pair) in &found {
            assert_eq!(Some(pair), self.records.get(offset), "record {offset} is what it was");
        }
        let mut last: BTreeMap<&[u8], (i64, bool)> = BTreeMap::new();
        for (offset, (key, value)) in self.records.range(start.0..) {
            last.insert(key, (*offset, value.is_some()));
            if *offset >= self.untouched_from {
                assert!(found.contains_key(offset), "nobody may touch {offset}");
            }
        }
        for (key, (offset, has_value)) in last {
            let name = String::from_utf8_lossy(key);
            let seen = found.iter().rev().find(|(_, (k, _))| k == key).map(|(at, _)| *at);
            if has_value {
                assert_eq!(seen, Some(offset), "the last record of {name} is there");
            } else {
                assert!(seen.is_none_or(|at| at == offset), "{name} is deleted");
            }
        }
        let epochs = log.epochs();
        let mut next = start.0;
        for header in headers(&bytes) {
            assert!(header.base_offset >= next || header.next_offset() > start.0);
            next = header.next_offset();
            let at = Offset(header.base_offset.max(start.0));
            assert_eq!(epochs.epoch_at(at), Some(LeaderEpoch(header.partition_leader_epoch)));
        }
    }

    /// Every offset reads as the first batch that ends above it.
    pub(crate) fn check_reads(&self) {
        let log = self.log();
        let all = headers(&read_all(log, log.log_start(), 1 << 20));
        for from in log.log_start().0..log.log_end().0 {
            let range = log.read(Offset(from), log.log_end(), 1).unwrap().unwrap();
            let mut bytes = Vec::new();
            range.read_into(&mut bytes).unwrap();
            let expected = all.iter().find(|header| header.next_offset() > from).unwrap();
            assert_eq!(&headers(&bytes)[0], expected, "from {from}");
        }
    }
}

/// A log of which each segment but the last is sealed, flushed and committed.
pub(crate) fn filled(name: &str, config: LogConfig, batches: usize, keys: usize) -> Keyed {
    let mut random = Random(7);
    let mut keyed = Keyed::new(name, config);
    for _ in 0..batches {
        keyed.append_some(&mut random, keys);
    }
    keyed.flush_all();
    keyed
}

pub(crate) fn headers(bytes: &[u8]) -> Vec<BatchHeader> {
    Batches::new(bytes).map(|batch| batch.unwrap().header).collect()
}

pub(crate) fn all_records(bytes: &[u8]) -> BTreeMap<i64, Pair> {
    let mut found = BTreeMap::new();
    for batch in Batches::new(bytes) {
        let batch = batch.unwrap();
        batch.check_crc().unwrap();
        let records = record_bytes(batch.bytes, &batch.header).unwrap();
        for record in Records::new(&records, &batch.header) {
            let record = record.unwrap();
            let pair = (record.key.unwrap().to_vec(), record.value.map(<[u8]>::to_vec));
            assert!(found.insert(record.offset(&batch.header), pair).is_none());
        }
    }
    found
}

/// Names in a partition's directory that a finished compaction leaves none of.
pub(crate) fn leftovers(partition: &Path) -> Vec<String> {
    let ends = [".cleaned", ".swap", ".deleted", ".tmp"];
    std::fs::read_dir(partition)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| ends.iter().any(|end| name.ends_with(end)))
        .collect()
}
