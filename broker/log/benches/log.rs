//! What the log costs, relative to the plain file operations of the same run: `cargo bench -p barnabas-log`.
//!
//! Prints one JSON line for each figure, with its goal. What is compared runs in turns, and the median counts. Figures
//! depend on the file system of the temporary directory; set TMPDIR to choose it. Names after `--` (appends, clean_open,
//! recovery) run only those.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{Log, LogConfig, LogDir, ProduceRules, check_fetched, stamp, validate_produce};
use barnabas_types::{LeaderEpoch, TopicConfig, TopicId, TopicName, TopicPartition};

const ID: TopicId = TopicId([7; 16]);
const ROUNDS: usize = 7;

fn figure(name: &str, value: f64, goal: &str, detail: &str) {
    println!(r#"{{"figure":"{name}","value":{value:.3},"goal":"{goal}",{detail}}}"#);
}

fn tp(number: usize) -> TopicPartition {
    let topic = TopicName::new(&format!("bench-{number}")).expect("a topic name");
    TopicPartition { topic, partition: 0 }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// Time that this thread has run on a processor, or, where the system does not tell, any time: neighbours count less.
fn cpu_timed(work: impl FnOnce()) -> Duration {
    let ran = || {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    let (before, wall) = (ran(), timed(work));
    before.zip(ran()).map_or(wall, |(before, after)| after - before)
}

fn begin(path: &Path) -> (LogDir, bool) {
    let dir = LogDir::lock(path).expect("a free directory");
    let clean = dir.begin_under("bench").expect("a run").clean;
    (dir, clean)
}

/// A batch of about 64 KiB with so many records.
fn batch(records: usize) -> Vec<u8> {
    let value = vec![b'x'; (64 * 1024 - 100) / records - 8];
    (0..records).fold(BatchBuilder::new().timestamp(1), |b, _| b.record(&value)).build()
}

/// Times `BATCHES` appends in three ways, in turns: plain writes, the leader's way, the follower's.
fn appends() {
    const BATCHES: usize = 2000;
    let small = batch(64);
    let (mut raw, mut leader, mut follower) = (Vec::new(), Vec::new(), Vec::new());
    let (mut one, mut thousand, mut checks) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let temp = TempDir::new("bench-append");
        raw.push(cpu_timed(|| {
            let file = File::create(temp.path().join("raw")).expect("a file");
            for number in 0..BATCHES {
                file.write_all_at(&small, (number * small.len()) as u64).expect("a write");
            }
        }));
        fs::remove_file(temp.path().join("raw")).expect("it is there");
        let (dir, _) = begin(&temp.path().join("data"));
        let config = LogConfig::default();
        let rules = ProduceRules::from(&TopicConfig::default());
        let lead = |records: &[u8], number: usize| {
            let mut log = dir.open(&tp(number), ID, config).expect("a log");
            let time = cpu_timed(|| {
                let mut records = records.to_vec();
                for _ in 0..BATCHES {
                    validate_produce(&records, &rules, 1000).expect("a good batch");
                    let end = log.log_end();
                    log.append(&mut records, end, LeaderEpoch(1)).expect("an append");
                }
            });
            drop(log);
            dir.delete(&tp(number)).expect("a deletion");
            time
        };
        leader.push(lead(&small, 0));
        let mut log = dir.open(&tp(1), ID, config).expect("a log");
        follower.push(cpu_timed(|| {
            let mut records = small.clone();
            for _ in 0..BATCHES {
                stamp(&mut records, log.log_end(), LeaderEpoch(1)).expect("a stamp");
                let fetched = check_fetched(&records).expect("a good batch");
                log.append_fetched(fetched).expect("an append");
            }
        }));
        drop(log);
        dir.delete(&tp(1)).expect("a deletion");
        checks.push(cpu_timed(|| {
            for _ in 0..BATCHES {
                validate_produce(&small, &rules, 1000).expect("a good batch");
            }
        }));
        one.push(lead(&batch(1), 2 + round));
        thousand.push(lead(&batch(1000), 100 + round));
    }
    let bytes = (BATCHES * small.len()) as f64;
    let (raw, leader, follower) = (median(raw), median(leader), median(follower));
    let detail = |time: f64| {
        format!(
            r#""raw_gib_per_cpu_s":{:.2},"gib_per_cpu_s":{:.2}"#,
            bytes / raw / f64::from(1 << 30),
            bytes / time / f64::from(1 << 30)
        )
    };
    figure("append_64k_with_crc_vs_raw_pwrite", leader / raw, "<= 1.3", &detail(leader));
    figure(
        "follower_append_64k_with_crc_vs_raw_pwrite",
        follower / raw,
        "<= 1.3",
        &detail(follower),
    );
    let checks = median(checks);
    figure("checks_of_a_produced_64k_batch_vs_raw_pwrite", checks / raw, "<= 0.2", &detail(checks));
    let (one, thousand) = (median(one), median(thousand));
    let detail = format!(r#""one_us":{:.1}"#, one / BATCHES as f64 * 1e6);
    figure("append_of_1000_records_vs_1_of_the_same_bytes", thousand / one, "<= 1.2", &detail);
}

fn append_some(log: &mut Log, batches: usize, bytes: usize) {
    for _ in 0..batches {
        let mut records = BatchBuilder::new().timestamp(1).record(&vec![1; bytes]).build();
        let end = log.log_end();
        log.append(&mut records, end, LeaderEpoch(1)).expect("an append");
    }
}

/// Opens partitions 0..count on two threads.
fn open_all(dir: &LogDir, count: usize, config: LogConfig) -> Vec<Log> {
    let half = |range: std::ops::Range<usize>| {
        range.map(|n| dir.open(&tp(n), ID, config).expect("a log")).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0..count / 2));
        let mut logs = half(count / 2..count);
        logs.extend(first.join().expect("a thread"));
        logs
    })
}

fn resident_bytes() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

fn clean_open() {
    const PARTITIONS: usize = 1000;
    let temp = TempDir::new("bench-open");
    let config = LogConfig { segment_bytes: 64 * 1024, ..LogConfig::default() };
    let close = |dir: &LogDir, logs: Vec<Log>| {
        logs.into_iter().for_each(|mut log| log.close().expect("a close"));
        assert!(dir.close(true).expect("a stop"));
    };
    let (dir, _) = begin(temp.path());
    let mut logs = open_all(&dir, PARTITIONS, config);
    logs.iter_mut().for_each(|log| append_some(log, 20, 8000));
    close(&dir, logs);
    drop(dir);
    let (mut times, mut raw) = (Vec::new(), Vec::new());
    let mut resident = 0.0;
    for round in 0..ROUNDS {
        raw.push(timed(|| {
            for number in 0..PARTITIONS {
                let path = temp.path().join(tp(number).to_string());
                for entry in fs::read_dir(path).expect("a directory") {
                    let _ = entry.and_then(|entry| entry.metadata()).expect("a file");
                }
            }
        }));
        let (dir, clean) = begin(temp.path());
        assert!(clean);
        let before = resident_bytes();
        let mut logs = Vec::new();
        times.push(timed(|| logs = open_all(&dir, PARTITIONS, config)));
        if round == 0 {
            resident = (resident_bytes() - before) / PARTITIONS as f64;
        }
        assert!(logs.iter().all(|log| log.recovery().scanned_bytes == 0));
        close(&dir, logs);
    }
    let (time, raw) = (median(times), median(raw));
    let detail = format!(r#""segments_each":3,"vs_listing_the_files":{:.2}"#, time / raw);
    figure("clean_open_of_1000_partitions_s", time, "< 1", &detail);
    let size = size_of::<Log>();
    let detail = format!(r#""size_of_log":{size}"#);
    figure("resident_bytes_per_open_partition", resident, "<= 4096", &detail);
}

fn recovery() {
    const PARTITIONS: usize = 500;
    const SEGMENTS: usize = 20;
    let temp = TempDir::new("bench-recovery");
    let config = LogConfig { segment_bytes: 16 * 1024, ..LogConfig::default() };
    let flush = |dir: &LogDir, logs: &mut Vec<Log>| {
        for log in logs {
            log.flush().expect("a flush");
        }
        dir.write_recovery_points().expect("a checkpoint");
    };
    let (dir, _) = begin(temp.path());
    let mut logs = open_all(&dir, PARTITIONS, config);
    logs.iter_mut().for_each(|log| append_some(log, SEGMENTS * 4 - 2, 3900));
    assert!(logs.iter().all(|log| log.segment_count() == SEGMENTS));
    flush(&dir, &mut logs);
    logs.iter_mut().for_each(|log| log.close().expect("a close"));
    assert!(dir.close(true).expect("a stop"));
    drop((logs, dir));
    let (mut clean_times, mut times, mut reads, mut unflushed) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..3 {
        let (dir, clean) = begin(temp.path());
        assert!(clean);
        let mut logs = Vec::new();
        clean_times.push(timed(|| logs = open_all(&dir, PARTITIONS, config)));
        // Two segments of each are not flushed when the process is killed.
        logs.iter_mut().for_each(|log| append_some(log, 8, 3900));
        unflushed = logs.iter().map(|log| (log.log_end().0 - log.flushed().0) as u64).sum();
        unflushed *= 4000;
        drop((logs, dir));
        reads.push(timed(|| {
            let mut left = unflushed;
            let mut buffer = vec![0; 256 * 1024];
            'files: for number in 0..PARTITIONS {
                for entry in fs::read_dir(temp.path().join(tp(number).to_string())).expect("files")
                {
                    let file = File::open(entry.expect("an entry").path()).expect("a file");
                    let read = file.read_at(&mut buffer, 0).expect("bytes") as u64;
                    left = left.saturating_sub(read);
                    if left == 0 {
                        break 'files;
                    }
                }
            }
        }));
        let (dir, clean) = begin(temp.path());
        assert!(!clean);
        let mut logs = Vec::new();
        times.push(timed(|| logs = open_all(&dir, PARTITIONS, config)));
        assert!(logs.iter().all(|log| log.recovery().losses.is_empty()));
        logs.iter_mut().for_each(|log| log.close().expect("a close"));
        assert!(dir.close(true).expect("a stop"));
    }
    let (clean, read, time) = (median(clean_times), median(reads), median(times));
    let detail = format!(
        r#""clean_open_s":{clean:.3},"unflushed_mib":{},"read_s":{read:.3},"recovery_s":{time:.3}"#,
        unflushed >> 20
    );
    figure(
        "recovery_of_500x20_segments_vs_clean_open_plus_unflushed",
        time / (clean + read),
        "<= 3",
        &detail,
    );
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let all: [(&str, fn()); 3] =
        [("appends", appends), ("clean_open", clean_open), ("recovery", recovery)];
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|wanted| name == wanted) {
            run();
        }
    }
}
