//! Directories written by this log are read without complaint by Kafka's own dump tool, and it finds in them what was written.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{
    BatchHeader, Batches, Ended, Log, LogConfig, LogDir, Records, Unhurried, compact, record_bytes,
};
use barnabas_types::{CleanupPolicy, LeaderEpoch, Offset, TopicId, TopicName, TopicPartition};

/// Exit code of `tests/kafka-dump` when there is no Java, no Maven, or no network.
const CANNOT_BE_HAD: i32 = 77;
const LOG_APPEND_TIME: i16 = 0x08;

/// A partition as it lies on disk, and what must be found there.
struct Written {
    name: &'static str,
    dir: PathBuf,
    batches: Vec<BatchHeader>,
    /// Producer id, epoch, last sequence, last offset.
    producers: Vec<(i64, i16, i32, i64)>,
    /// Of all records.
    offsets: Vec<i64>,
}

struct Writer {
    dir: LogDir,
    log: Log,
    sequences: BTreeMap<i64, i32>,
}

impl Writer {
    fn open(root: &Path, name: &'static str) -> Self {
        let dir = LogDir::lock(&root.join(name)).unwrap();
        dir.begin_under("a boot").unwrap();
        let partition = TopicPartition { topic: TopicName::new(name).unwrap(), partition: 0 };
        let log = dir.open(&partition, TopicId([7; 16]), config()).unwrap();
        Self { dir, log, sequences: BTreeMap::new() }
    }

    fn append(&mut self, batch: BatchBuilder, epoch: i32) {
        let mut bytes = batch.build();
        self.log.append(&mut bytes, self.log.log_end(), LeaderEpoch(epoch)).unwrap();
    }

    /// Plain batches, batches of three producers (one whose sequences wrap), times that also go back.
    fn fill(&mut self, rounds: i64, epoch: i32) {
        for round in 0..rounds {
            let now = 1_700_000_000_000 + self.log.log_end().0 * 100;
            let value = vec![b'a' + u8::try_from(round % 26).unwrap(); 100];
            let batch = |records: i64| {
                (0..records).fold(BatchBuilder::new(), |batch, n| {
                    batch.timestamp(now + n * 7 - (round % 3) * 1000).record(&value)
                })
            };
            self.append(batch(1 + round % 4), epoch);
            let id = 100 + round % 3;
            let first = if id == 102 { i32::MAX - 3 } else { 0 };
            let sequence = *self.sequences.entry(id).or_insert(first);
            self.append(batch(3).producer(id, 0, sequence), epoch);
            let next = (i64::from(sequence) + 3) % (i64::from(i32::MAX) + 1);
            self.sequences.insert(id, i32::try_from(next).unwrap());
            if round % 5 == 0 {
                self.append(batch(2).attributes(LOG_APPEND_TIME), epoch);
            }
        }
    }

    fn close(mut self, name: &'static str) -> Written {
        let dir = self.log.directory().to_owned();
        let (mut batches, mut offsets) = (Vec::new(), Vec::new());
        let mut next = self.log.log_start();
        while let Some(range) = self.log.read(next, self.log.log_end(), 1 << 20).unwrap() {
            let mut bytes = Vec::new();
            range.read_into(&mut bytes).unwrap();
            for batch in Batches::new(&bytes).map(Result::unwrap) {
                let records = record_bytes(batch.bytes, &batch.header).unwrap();
                let records = Records::new(&records, &batch.header).map(Result::unwrap);
                offsets.extend(records.map(|record| record.offset(&batch.header)));
                batches.push(batch.header);
            }
            next = range.end;
        }
        self.log.close().unwrap();
        assert!(self.dir.close(true).unwrap());
        let known = self.log.producer_batches();
        let producers = known
            .map(|p| (p.producer_id, p.producer_epoch, p.last_sequence, p.last_offset))
            .collect();
        Written { name, dir, batches, producers, offsets }
    }
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 4000, index_interval_bytes: 300, ..LogConfig::default() }
}

fn plain(root: &Path) -> Written {
    let mut writer = Writer::open(root, "plain");
    writer.fill(20, 1);
    writer.fill(20, 5);
    assert!(writer.log.segment_count() > 5);
    writer.close("plain")
}

fn truncated(root: &Path) -> Written {
    let mut writer = Writer::open(root, "truncated");
    writer.fill(25, 1);
    writer.log.truncate_to(Offset(71)).unwrap();
    writer.sequences.clear();
    writer.fill(4, 3);
    writer.close("truncated")
}

fn recovered(root: &Path) -> Written {
    let mut writer = Writer::open(root, "recovered");
    writer.fill(25, 1);
    drop(writer);
    let mut writer = Writer::open(root, "recovered");
    writer.append(BatchBuilder::new().timestamp(1_800_000_000_000).record(b"after a kill"), 2);
    writer.close("recovered")
}

fn retained(root: &Path) -> Written {
    let mut writer = Writer::open(root, "retained");
    writer.fill(25, 1);
    assert!(writer.log.advance_log_start(Offset(50)));
    writer.dir.write_log_starts().unwrap();
    assert!(writer.log.detach_below_start().remove().unwrap() > 0);
    let mut written = writer.close("retained");
    // The log start lies inside what is left of the oldest segment.
    let first = logs(&written).iter().map(|path| base(path)).min().unwrap();
    assert!(first < 50 && written.batches[0].last_offset() >= 50);
    written.batches.retain(|batch| batch.base_offset >= 50);
    let from = written.batches[0].base_offset;
    written.offsets.retain(|offset| *offset >= from);
    written
}

/// Every codec, keys, a tombstone.
fn compressed(root: &Path) -> Written {
    let mut writer = Writer::open(root, "compressed");
    for round in 0..40 {
        let mut batch = BatchBuilder::new().codec(round % 5);
        for n in 0..20 {
            let key = format!("key-{n}");
            let value = format!("value {round} {n}").repeat(usize::from(n % 3 > 0));
            let now = 1_700_000_000_000 + i64::from(round) * 100 + i64::from(n);
            batch = batch.timestamp(now).keyed(key.as_bytes(), Some(value.as_bytes()));
        }
        writer.append(batch.keyed(b"gone", None), 1);
    }
    writer.close("compressed")
}

/// Keys that are written again and again and deleted, by producers of whom one is gone; compacted twice, so that there are
/// batches changed in every codec, batches with a delete horizon, and batches without a record.
fn compacted(root: &Path) -> Written {
    let mut writer = Writer::open(root, "compacted");
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let config = LogConfig { cleanup, ..config() };
    writer.log.configure(config);
    let now = 1_700_000_000_000;
    for round in 0..120 {
        let mut batch = BatchBuilder::new().codec(round % 5);
        for n in 0..4_i64 {
            let key = format!("key-{}", (i64::from(round) * 7 + n * 3) % 40);
            let value = format!("value {round} {n} ").repeat(usize::try_from(n).unwrap() * 5);
            let value = (n + i64::from(round) % 3 > 0).then_some(value.as_bytes());
            batch = batch.timestamp(now + i64::from(round) * 10 - n).keyed(key.as_bytes(), value);
        }
        // The first of them writes no more after a while.
        let id = if round < 20 { 100 } else { 101 + i64::from(round % 2) };
        let sequence = writer.sequences.entry(id).or_insert(0);
        batch = batch.producer(id, 0, *sequence);
        *sequence += 4;
        writer.append(batch, 1 + i32::from(round) / 50);
    }
    writer.log.flush().unwrap();
    for high_watermark in [300, 480] {
        let plan = writer.log.compaction_plan(Offset(high_watermark)).unwrap();
        let round = plan.due(now + 2000).unwrap().unwrap();
        let done = compact(round, &mut |work| work(&mut writer.log), 1 << 20, &mut Unhurried);
        assert!(matches!(done.unwrap().ended, Ended::UpTo(_)));
    }
    let written = writer.close("compacted");
    assert!(written.batches.iter().any(|batch| batch.record_count == 0));
    assert!(written.batches.iter().any(|batch| batch.delete_horizon().is_some()));
    written
}

fn files(written: &Written, kinds: &[&str]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(&written.dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| kinds.iter().any(|kind| e == *kind)))
        .collect();
    files.sort();
    files
}

fn logs(written: &Written) -> Vec<PathBuf> {
    files(written, &["log"])
}

fn base(path: &Path) -> i64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

/// What the tool says of files, and what it complains of; `None` if it cannot be had.
fn kafka(options: &[&str], files: &[PathBuf]) -> Option<(String, Vec<String>)> {
    let names: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kafka-dump");
    let Output { status, stdout, stderr } = Command::new(script)
        .args(options)
        .args(["--files", &names.join(",")])
        .output()
        .expect("tests/kafka-dump runs");
    let stderr = String::from_utf8(stderr).unwrap();
    if status.code() == Some(CANNOT_BE_HAD) {
        // Not by a macro: the harness would keep that to itself.
        let mut out = std::io::stderr();
        writeln!(out, "SKIPPED: nothing was checked with Kafka's dump tool. {}", stderr.trim())
            .unwrap();
        return None;
    }
    assert!(status.success(), "{options:?}: {stderr}");
    let complaints = stderr.lines().filter(|line| !line.starts_with("SLF4J"));
    Some((String::from_utf8(stdout).unwrap(), complaints.map(str::to_owned).collect()))
}

/// What it says of files of which it must not complain.
fn kafka_is_content(options: &[&str], files: &[PathBuf]) -> Option<String> {
    let (text, mut complaints) = kafka(options, files)?;
    // Compaction leaves holes, and the tool tells of them.
    let mut of_holes = false;
    complaints.retain(|line| {
        let goes_on = line.contains("is followed by") && of_holes;
        of_holes = goes_on || line.starts_with("Non-consecutive") && line.contains("/compacted-0/");
        !of_holes
    });
    assert!(complaints.is_empty(), "{options:?}: {complaints:#?}");
    assert!(!text.contains("invalid bytes"), "{text}");
    Some(text)
}

/// The lines that it prints of one file.
fn said_of<'a>(text: &'a str, path: &Path) -> impl Iterator<Item = &'a str> {
    let head = format!("Dumping {}", path.display());
    let mut lines = text.lines();
    assert!(lines.by_ref().any(|line| line == head), "{head}");
    lines.take_while(|line| !line.starts_with("Dumping "))
}

/// The value behind a name in a line of the tool's.
fn value<'a>(line: &'a str, name: &str) -> &'a str {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| word.strip_suffix(':') == Some(name));
    words.next().unwrap_or_else(|| panic!("no {name} in: {line}"))
}

fn number(line: &str, name: &str) -> i64 {
    value(line, name).parse().unwrap_or_else(|_| panic!("{name} is no number in: {line}"))
}

/// What the tool says of a batch must be what was written.
fn assert_same(line: &str, header: &BatchHeader) {
    assert_eq!(value(line, "isvalid"), "true", "{line}");
    let time = if header.is_log_append_time() { "LogAppendTime" } else { "CreateTime" };
    for (name, expected) in [
        ("baseOffset", header.base_offset),
        ("lastOffset", header.last_offset()),
        ("count", i64::from(header.record_count)),
        ("baseSequence", i64::from(header.base_sequence)),
        ("producerId", header.producer_id),
        ("producerEpoch", i64::from(header.producer_epoch)),
        ("partitionLeaderEpoch", i64::from(header.partition_leader_epoch)),
        (time, header.max_timestamp),
        ("size", i64::try_from(header.size()).unwrap()),
        ("crc", i64::from(header.crc)),
    ] {
        assert_eq!(number(line, name), expected, "{name} in: {line}");
    }
}

/// The batches and records that the tool finds must be those that were written.
fn assert_found(text: &str, written: &Written) {
    let first = written.batches[0].base_offset;
    let lines: Vec<&str> = logs(written).iter().flat_map(|path| said_of(text, path)).collect();
    let found = |begin: &str, name: &str| -> Vec<&str> {
        let all = lines.iter().copied().filter(|line| line.starts_with(begin));
        all.filter(|line| number(line, name) >= first).collect()
    };
    let batches = found("baseOffset:", "baseOffset");
    assert_eq!(batches.len(), written.batches.len(), "{}", written.name);
    for (line, header) in batches.iter().zip(&written.batches) {
        assert_same(line, header);
    }
    let offsets: Vec<i64> =
        found("| offset:", "offset").into_iter().map(|line| number(line, "offset")).collect();
    assert_eq!(offsets, written.offsets, "{}", written.name);
    let last = files(written, &["snapshot"]).pop().expect("a snapshot at the end");
    let producers: Vec<_> = said_of(text, &last)
        .map(|line| {
            let field = |name| number(line, name);
            let epoch = i16::try_from(field("producerEpoch")).unwrap();
            let sequence = i32::try_from(field("lastSequence")).unwrap();
            (field("producerId"), epoch, sequence, field("lastOffset"))
        })
        .collect();
    assert_eq!(producers, written.producers, "{}", written.name);
}

fn all_of(partitions: &[Written], kinds: &[&str]) -> Vec<PathBuf> {
    partitions.iter().flat_map(|written| files(written, kinds)).collect()
}

/// `None` if the tool cannot be had.
fn check(partitions: &[Written]) -> Option<()> {
    let all = all_of(partitions, &["log", "index", "timeindex", "snapshot"]);
    let text = kafka_is_content(&["--deep-iteration", "--print-data-log"], &all)?;
    partitions.iter().for_each(|written| assert_found(&text, written));

    let indexes = all_of(partitions, &["index", "timeindex"]);
    let text = kafka_is_content(&["--index-sanity-check"], &indexes)?;
    let sound = text.lines().filter(|l| l.ends_with("passed sanity check.")).count();
    let empty = text.lines().filter(|l| l.ends_with("is empty.")).count();
    assert_eq!(sound + empty, indexes.len(), "{text}");
    assert!(sound > indexes.len() / 2, "{text}");
    kafka_is_content(&["--verify-index-only"], &indexes)?;

    // It would complain: of a wrong index entry, a wrong timestamp, a damaged snapshot.
    let mut damaged = Vec::new();
    for (kind, byte) in [("index", 3), ("timeindex", 7), ("snapshot", 20)] {
        let path = files(&partitions[0], &[kind]).swap_remove(1);
        let mut bytes = fs::read(&path).unwrap();
        bytes[byte] ^= 1;
        fs::write(&path, bytes).unwrap();
        damaged.push(path);
    }
    let (_, complaints) = kafka(&[], &damaged)?;
    for expected in ["Mismatches in", "timestamp mismatch", "Snapshot is corrupt"] {
        assert!(complaints.iter().any(|line| line.contains(expected)), "{complaints:#?}");
    }
    Some(())
}

#[test]
fn kafkas_dump_tool_reads_what_was_written_here() {
    let temp = TempDir::new("kafka-dump");
    let root = temp.path();
    let partitions = [
        plain(root),
        truncated(root),
        recovered(root),
        retained(root),
        compressed(root),
        compacted(root),
    ];
    // Without the tool there is nothing to check; it has said so.
    let _ = check(&partitions);
}
