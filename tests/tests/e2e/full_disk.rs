//! A small file system filled at full speed: nobody dies, nothing acknowledged is lost, and writing goes on when there is room.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options};
use barnabas_tests::wait::{next_look, wait_for};
use barnabas_tests::{Outcome, kcat};

use super::topic;

const DISK_BYTES: u64 = 64 * 1024 * 1024;
const FILLER_BYTES: usize = 8 * 1024 * 1024;
const CLIENTS: usize = 4;
/// Records of a batch, and bytes of each.
const BATCH: usize = 64;
const VALUE_BYTES: usize = 1024;
/// Number of the client whose batch shows that there is room.
const PROBE: usize = 1000;
/// How long after there is room again a record is taken.
const RESUME_MAX: Duration = Duration::from_secs(5);

/// A file system in memory; let go when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None`, and it is said loudly, where this process may not mount.
    fn mount(at: &Path) -> Outcome<Option<Self>> {
        fs::create_dir_all(at)?;
        let size = format!("size={DISK_BYTES}");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "barnabas"])
            .arg(at)
            .output()?;
        if output.status.success() {
            return Ok(Some(Self(at.to_owned())));
        }
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("*** SKIPPED: no small file system could be mounted, run this as root: {why}");
        Ok(None)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The broker may still have files open: lazily.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn value(client: usize, n: usize) -> Vec<u8> {
    let mut value = format!("{client}:{n}:").into_bytes();
    value.resize(VALUE_BYTES, b'x');
    value
}

/// Sends batches to one partition until told to stop, each until it is taken; how many records are acknowledged. Every refusal must
/// be one that clients repeat, and one for room says so.
async fn fill(
    address: String,
    client: usize,
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicBool>,
) -> Outcome<usize> {
    let mut connection = Client::connect(&address).await?;
    let mut sent = 0;
    while !stop.load(Ordering::SeqCst) {
        let values: Vec<Vec<u8>> = (sent..sent + BATCH).map(|n| value(client, n)).collect();
        match connection.produce("fill", i32::try_from(client)?, None, &values).await? {
            Answer::Appended(_) => sent += BATCH,
            answer => {
                assert!(answer.is_retriable(), "{answer:?}");
                let Answer::Refused(code, said) = answer else { unreachable!() };
                if code == 56 {
                    assert!(said.contains("full") && said.contains("by themselves"), "{said}");
                    refused.store(true, Ordering::SeqCst);
                }
                next_look().await;
            }
        }
    }
    Ok(sent)
}

/// Records of each client that can be read.
fn readable(cluster: &Cluster) -> Outcome<BTreeMap<usize, Vec<usize>>> {
    let arguments = ["-C", "-t", "fill", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let text = std::str::from_utf8(line)?;
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
        let (client, n) = number().zip(number()).ok_or("not a value that was sent")?;
        assert_eq!(line, value(client, n), "whole");
        found.entry(client).or_default().push(n);
    }
    Ok(found)
}

/// Fills the disk, frees some by `free`, and waits for the first record that is taken then.
async fn fill_and_free(
    cluster: &mut Cluster,
    reserve_bytes: u64,
    sent: &mut BTreeMap<usize, usize>,
    free: impl AsyncFnOnce(&mut Cluster) -> Outcome<()>,
) -> Outcome<()> {
    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let address = cluster.bootstrap();
    let first = sent.keys().next_back().map_or(0, |last| last + 1);
    let fillers: Vec<_> = (first..first + CLIENTS)
        .map(|client| tokio::spawn(fill(address.clone(), client, stop.clone(), refused.clone())))
        .collect();
    wait_for("the disk is full", Duration::from_secs(60), || async {
        (refused.load(Ordering::SeqCst) || fillers.iter().any(tokio::task::JoinHandle::is_finished))
            .then_some(())
    })
    .await?;
    stop.store(true, Ordering::SeqCst);
    for (client, filler) in (first..).zip(fillers) {
        sent.insert(client, filler.await??);
    }
    assert!(refused.load(Ordering::SeqCst), "it was full");
    assert!(cluster.broker(1).runs(), "{}", cluster.broker(1).last_log_line());
    all_there(cluster, sent)?;

    // Health tells what producers are refused by: what the last look at the disk has found, less what was appended since. A
    // look that comes in between may find a little room.
    let broker = cluster.broker(1);
    let health = wait_for("the broker tells that the disk is full", RESUME_MAX, || async {
        let health = broker.health().await.ok()?;
        (reserve_bytes == 0 || health["log_dirs"][0]["room"] == "exhausted").then_some(health)
    })
    .await?;
    assert_eq!(health["log_dirs"][0]["state"], "online", "{health}");
    free(cluster).await?;
    let freed_at = Instant::now();
    let mut connection = Client::connect(&address).await?;
    // As large as those that were refused: a small record may have found room all the time.
    let probe: Vec<Vec<u8>> = (0..2 * BATCH).map(|n| value(PROBE, n)).collect();
    loop {
        let answer = connection.produce("fill", 0, None, &probe).await?;
        if matches!(answer, Answer::Appended(_)) {
            break;
        }
        assert!(answer.is_retriable(), "{answer:?}");
        assert!(freed_at.elapsed() < RESUME_MAX, "{answer:?}");
        next_look().await;
    }
    println!("took records again {:.2} s after there was room", freed_at.elapsed().as_secs_f64());
    all_there(cluster, sent)
}

/// Everything acknowledged is readable.
fn all_there(cluster: &Cluster, sent: &BTreeMap<usize, usize>) -> Outcome<()> {
    let mut found = readable(cluster)?;
    for (client, count) in sent {
        let mut numbers = found.remove(client).unwrap_or_default();
        numbers.dedup();
        let acked: Vec<usize> = (0..*count).collect();
        assert!(numbers.starts_with(&acked), "client {client}: {count} acknowledged");
    }
    Ok(())
}

async fn full_disk(reserve_bytes: u64) -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        brokers: 1,
        session_timeout_ms: 3_000,
        config: format!("log.dir.reserve.bytes: {reserve_bytes}\n"),
        start: false,
        ..Options::default()
    })
    .await?;
    let data = cluster.broker(1).log_dir().to_owned();
    let Some(_disk) = Disk::mount(&data)? else { return Ok(()) };
    let filler = data.join("filler");
    fs::write(&filler, vec![0; FILLER_BYTES])?;
    cluster.start_all()?;
    cluster.until_formed().await?;
    let pid = cluster.broker(1).pid()?;
    let configs = [("segment.bytes", "4194304")];
    for name in ["fill", "old"] {
        topic(
            &cluster,
            NewTopic { name, partitions: 20, replication_factor: 1, configs: &configs },
        )
        .await?;
    }
    let mut lines = Vec::new();
    lines.resize(8 * 1024 * 1024, b'y');
    lines.iter_mut().skip(1023).step_by(1024).for_each(|byte| *byte = b'\n');
    let output = kcat::run(&cluster.bootstrap(), &["-P", "-t", "old"], &lines)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut sent = BTreeMap::new();
    fill_and_free(&mut cluster, reserve_bytes, &mut sent, async |_| Ok(fs::remove_file(&filler)?))
        .await?;
    fill_and_free(&mut cluster, reserve_bytes, &mut sent, async |cluster| {
        cluster.admin().await?.delete_topic("old").await
    })
    .await?;
    assert_eq!(cluster.broker(1).pid()?, pid, "without a restart");
    cluster.broker(1).terminate().await?;
    assert!(data.join(".kafka_cleanshutdown").exists(), "a stop on a nearly full disk is clean");
    cluster.start_all()?;
    cluster.until_formed().await?;
    cluster.until_healed("fill", 1).await?;
    all_there(&cluster, &sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_to_the_last_byte_is_survived() -> Outcome<()> {
    full_disk(0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_to_its_reserve_is_survived() -> Outcome<()> {
    full_disk(6 * 1024 * 1024).await
}
