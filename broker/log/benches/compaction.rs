//! What compaction costs: `cargo bench -p barnabas-log --bench compaction`. Each line is one JSON object, one a codec.
//!
//! `ratio` is the time of a round over the time of plain reads and writes of the same bytes (the log twice, since a first round
//! reads all of it for the keys and all of it again, and what is left once), both with the syncs, the least of some runs. Files
//! lie in memory (`/dev/shm`), or under `$BARNABAS_BENCH_DIR`. `$BARNABAS_BENCH_MIB`: records before compression, 256 MiB.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use barnabas_log::testing::{BatchBuilder, Random};
use barnabas_log::{Compacted, Ended, Log, LogConfig, LogDir, Unhurried, compact};
use barnabas_types::{CleanupPolicy, LeaderEpoch, TopicId, TopicName, TopicPartition};

const RUNS: usize = 3;
const VALUE_BYTES: usize = 1000;
const RECORDS_PER_BATCH: usize = 16;
/// Each key is written about so many times.
const VERSIONS: usize = 4;

fn main() {
    let folder = std::env::var_os("BARNABAS_BENCH_DIR")
        .map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from)
        .join(format!("barnabas-compaction-{}", std::process::id()));
    let mib: usize =
        std::env::var("BARNABAS_BENCH_MIB").ok().and_then(|m| m.parse().ok()).unwrap_or(256);
    let records = mib * 1024 * 1024 / VALUE_BYTES;
    for (codec, name) in [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
        // Compression is slow: fewer records say as much.
        let records = if codec == 0 { records } else { records / 4 };
        let mut best: Option<(f64, f64, u64, Compacted)> = None;
        for _ in 0..RUNS {
            let (mut log, dir) = filled(&folder, records, codec);
            let size = log.size_bytes();
            let began = Instant::now();
            let plan = log.compaction_plan(log.log_end()).expect("something is dirty");
            let round = plan.due(i64::MAX).expect("readable").expect("due");
            let done = compact(round, &mut |work| work(&mut log), 128 << 20, &mut Unhurried);
            let took = began.elapsed().as_secs_f64();
            let done = done.expect("compacted");
            assert!(matches!(done.ended, Ended::UpTo(_)) && log.size_bytes() < size);
            drop((log, dir));
            fs::remove_dir_all(&folder).expect("the folder goes");
            let raw = raw(&folder, done.read_bytes / 2, done.written_bytes);
            let better = best.as_ref().is_none_or(|(least, ..)| took / raw < *least);
            if better {
                best = Some((took / raw, took, size, done));
            }
        }
        let Some((ratio, took, size, done)) = best else { continue };
        println!(
            "{{\"bench\":\"compaction\",\"codec\":\"{name}\",\"log_mb\":{:.1},\"left_mb\":{:.1},\"records\":{},\
             \"removed_records\":{},\"seconds\":{took:.3},\"log_mb_per_s\":{:.0},\"ratio\":{ratio:.2}}}",
            size as f64 / 1e6,
            done.written_bytes as f64 / 1e6,
            done.records,
            done.removed_records,
            size as f64 / 1e6 / took,
        );
    }
}

/// A flushed log of keyed records.
fn filled(folder: &Path, records: usize, codec: i16) -> (Log, LogDir) {
    let dir = LogDir::lock(folder).expect("a folder");
    dir.begin_under("bench").expect("a run");
    let topic = TopicName::new("t").expect("a name");
    let config = LogConfig {
        segment_bytes: 32 << 20,
        cleanup: CleanupPolicy { delete: false, compact: true },
        ..LogConfig::DEFAULT
    };
    let tp = TopicPartition { topic, partition: 0 };
    let mut log = dir.open(&tp, TopicId([1; 16]), config).expect("a log");
    let mut random = Random(1);
    let words: Vec<String> = (0..500).map(|_| format!("{:x}", random.bits() >> 40)).collect();
    for _ in 0..records / RECORDS_PER_BATCH {
        let mut builder = BatchBuilder::new().codec(codec).timestamp(1_700_000_000_000);
        for _ in 0..RECORDS_PER_BATCH {
            let key = format!("key-{}", random.below(records / VERSIONS));
            let mut value = String::with_capacity(VALUE_BYTES + 16);
            while value.len() < VALUE_BYTES {
                value.push_str(&words[random.below(words.len())]);
            }
            builder = builder.keyed(key.as_bytes(), Some(value.as_bytes()));
        }
        let end = log.log_end();
        log.append(&mut builder.build(), end, LeaderEpoch(1)).expect("an append");
    }
    log.roll_if_due(0).expect("no roll");
    log.roll_if_due(i64::MAX).expect("a roll");
    log.flush().expect("a flush");
    (log, dir)
}

/// Seconds of reading so many bytes twice and writing so many, with a sync.
fn raw(folder: &Path, read_bytes: u64, written_bytes: u64) -> f64 {
    fs::create_dir_all(folder).expect("a folder");
    let (from, to) = (folder.join("from"), folder.join("to"));
    let mut buffer = vec![7; 1 << 20];
    let pieces = |bytes: u64| (bytes as usize).div_ceil(buffer.len());
    let (reads, writes) = (pieces(read_bytes), pieces(written_bytes));
    let mut file = File::create(&from).expect("a file");
    (0..reads).for_each(|_| file.write_all(&buffer).expect("a write"));
    let began = Instant::now();
    for _ in 0..2 {
        let mut file = File::open(&from).expect("a file");
        (0..reads).for_each(|_| file.read_exact(&mut buffer).expect("a read"));
    }
    let mut file = File::create(&to).expect("a file");
    (0..writes).for_each(|_| file.write_all(&buffer).expect("a write"));
    file.sync_data().expect("a sync");
    let took = began.elapsed().as_secs_f64();
    fs::remove_dir_all(folder).expect("the folder goes");
    took
}
