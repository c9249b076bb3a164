//! What the tests share: a directory, tiny segments, numbered batches.

use std::fs;
use std::path::{Path, PathBuf};

use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{BatchHeader, Batches, Log, LogConfig, LogDir};
use barnabas_types::{LeaderEpoch, Offset, TopicId, TopicName, TopicPartition};

pub(crate) const ID: TopicId = TopicId([7; 16]);

/// Segments of three or so small batches, an index entry for about every second.
pub(crate) const TINY: LogConfig = LogConfig {
    segment_bytes: 400,
    index_interval_bytes: 100,
    segment_index_bytes: 1024,
    ..LogConfig::DEFAULT
};

pub(crate) fn tp(topic: &str) -> TopicPartition {
    TopicPartition { topic: TopicName::new(topic).unwrap(), partition: 0 }
}

/// A directory whose locks come and go as if processes did.
pub(crate) struct World {
    pub(crate) temp: TempDir,
    pub(crate) config: LogConfig,
}

impl World {
    pub(crate) fn new(name: &str, config: LogConfig) -> Self {
        Self { temp: TempDir::new(name), config }
    }

    pub(crate) fn path(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) fn partition(&self) -> PathBuf {
        self.path().join("t-0")
    }

    /// A process starts: takes the directory and opens the one partition.
    pub(crate) fn start(&self) -> (LogDir, Log) {
        let dir = LogDir::lock(self.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let log = dir.open(&tp("t"), ID, self.config).unwrap();
        (dir, log)
    }

    /// A `.log` file by its place, oldest first.
    pub(crate) fn segment(&self, number: usize) -> PathBuf {
        segment_files(&self.partition())[number].clone()
    }
}

pub(crate) fn segment_files(partition: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(partition)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    files.sort();
    files
}

/// Appends a batch of `records` records with `bytes` bytes each at the end.
pub(crate) fn append(log: &mut Log, records: usize, bytes: usize, epoch: i32) {
    let fill = u8::try_from(log.log_end().0 % 251).unwrap();
    let mut builder = BatchBuilder::new().timestamp(log.log_end().0 * 10);
    for _ in 0..records {
        builder = builder.record(&vec![fill; bytes]);
    }
    let mut batch = builder.build();
    log.append(&mut batch, log.log_end(), LeaderEpoch(epoch)).unwrap();
}

/// Everything from `from` on, read in steps of at most `max_bytes`.
pub(crate) fn read_all(log: &Log, from: Offset, max_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut next = from;
    while let Some(range) = log.read(next, log.log_end(), max_bytes).unwrap() {
        assert!(range.end > next, "reading makes progress");
        range.read_into(&mut out).unwrap();
        next = range.end;
    }
    assert_eq!(next, log.log_end());
    out
}

/// Base offset, end and size of each batch in some bytes, with the CRCs checked.
pub(crate) fn batches(bytes: &[u8]) -> Vec<BatchHeader> {
    Batches::new(bytes)
        .map(|batch| {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            batch.header
        })
        .collect()
}

/// Checks that the whole log is readable, with offsets that go on from each other from start to end.
pub(crate) fn assert_whole(log: &Log) {
    let all = batches(&read_all(log, log.log_start(), 1 << 20));
    // The start may lie inside the first batch.
    let mut next = all.first().map_or(i64::MAX, |h| h.base_offset).min(log.log_start().0);
    for header in all {
        assert_eq!(header.base_offset, next);
        next = header.next_offset();
    }
    assert_eq!(next, log.log_end().0);
}

/// Copies a data directory as a crash of the process leaves it.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
