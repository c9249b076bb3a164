//! Starts after a stop that was none: what is read, what is cut, what is said meanwhile.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use barnabas_tests::shim::ENOSPC;
use barnabas_tests::wait::{next_look, wait_for};
use barnabas_tests::{Outcome, kcat};

use super::topic;

const CLEAN: &str = ".kafka_cleanshutdown";

async fn one_broker() -> Outcome<Cluster> {
    Cluster::start(Options {
        brokers: 1,
        session_timeout_ms: 1_500,
        preload: Preload::Faults,
        ..Options::default()
    })
    .await
}

fn produce(cluster: &Cluster, topic: &str, lines: &str) -> Outcome<()> {
    let arguments = ["-P", "-t", topic, "-p", "0", "-X", "acks=all"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, lines.as_bytes())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn consume(cluster: &Cluster, topic: &str) -> Outcome<String> {
    let arguments =
        ["-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Half a batch behind the last whole one.
fn spoil(log: &PathBuf) -> Outcome<()> {
    let whole = fs::read(log)?;
    OpenOptions::new().append(true).open(log)?.write_all(&whole[..100])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_a_crash_while_loading_is_not_taken_for_a_clean_stop() -> Outcome<()> {
    let mut cluster = one_broker().await?;
    let t = NewTopic { name: "t", partitions: 1, replication_factor: 1, configs: &[] };
    topic(&cluster, t).await?;
    let lines: String = (0..1000).map(|n| format!("{n}\n")).collect();
    produce(&cluster, "t", &lines)?;
    let data = cluster.broker(1).log_dir().to_owned();
    let log = data.join("t-0/00000000000000000000.log");
    cluster.broker(1).terminate().await?;
    assert!(data.join(CLEAN).exists(), "a clean stop");
    let size = fs::metadata(&log)?.len();

    // The log itself: what lies beside it is read before anything is changed.
    cluster.shim(1).rules(&["hold open path=*/t-0/*.log"])?;
    cluster.broker(1).start()?;
    wait_for("it is loading", SETTLE_MAX, || async {
        (cluster.shim(1).fired(0).ok()? > 0).then_some(())
    })
    .await?;
    cluster.broker(1).kill().await?;
    assert!(!data.join(CLEAN).exists(), "the marker is consumed before the first log is opened");
    spoil(&log)?;

    // A disk that takes nothing: whether it stays up or not, what it leaves is no clean stop.
    cluster.shim(1).rules(&[&format!("fail:{ENOSPC} write"), &format!("fail:{ENOSPC} create")])?;
    cluster.broker(1).start()?;
    wait_for("the full disk is met", SETTLE_MAX, || async {
        let met = cluster.shim(1).fired(0).ok()? + cluster.shim(1).fired(1).ok()?;
        (met > 0).then_some(())
    })
    .await?;
    if cluster.broker(1).runs() {
        // It may end of itself at the same moment.
        let _ = cluster.broker(1).terminate().await;
    }
    assert!(!data.join(CLEAN).exists(), "nothing was flushed and closed on a full disk");

    cluster.shim(1).rules(&[])?;
    cluster.start_all()?;
    cluster.until_formed().await?;
    cluster.until_healed("t", 1).await?;
    let read = wait_for("it serves", SETTLE_MAX, || async {
        consume(&cluster, "t").ok().filter(|read| !read.is_empty())
    })
    .await?;
    assert!(read == lines, "{} of {} bytes", read.len(), lines.len());
    assert_eq!(fs::metadata(&log)?.len(), size, "the half batch is gone");
    produce(&cluster, "t", "1000\n")?;
    assert_eq!(consume(&cluster, "t")?.lines().count(), 1001);
    Ok(())
}

/// Partitions, segments of each, and clients that fill them at once.
const PARTITIONS: i32 = 500;
const SEGMENTS: i64 = 8;
const CLIENTS: i32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_start_after_a_crash_can_be_stopped_and_done_again() -> Outcome<()> {
    let mut cluster = one_broker().await?;
    // Each batch is larger than a segment.
    let configs = [("segment.bytes", "100")];
    let big =
        NewTopic { name: "big", partitions: PARTITIONS, replication_factor: 1, configs: &configs };
    topic(&cluster, big).await?;
    let address = cluster.bootstrap();
    let fill = (0..CLIENTS).map(|first| tokio::spawn(fill(address.clone(), first)));
    for filled in fill.collect::<Vec<_>>() {
        filled.await??;
    }
    let data = cluster.broker(1).log_dir().to_owned();
    cluster.broker(1).kill().await?;

    cluster.shim(1).rules(&["delay:20 open path=*/big-*.log"])?;
    cluster.broker(1).start()?;
    let broker = cluster.broker(1);
    let opened = wait_for("some logs are open", SETTLE_MAX, || async {
        let health = broker.health().await.ok()?;
        let recovery = &health["recovery"];
        let (opened, of) = (recovery["opened"].as_i64()?, recovery["of"].as_i64()?);
        (health["status"] == "recovering" && opened > 0).then_some((opened, of))
    })
    .await?;
    assert!(opened.0 < opened.1 && opened.1 == i64::from(PARTITIONS), "{opened:?}");
    let before = cluster.shim(1).fired(0)?;
    cluster.broker(1).terminate().await?;
    let after = cluster.shim(1).fired(0)?;
    // Each partition opens one file at least.
    let rest = u64::try_from(opened.1 - opened.0)?;
    assert!(after - before < rest / 2, "it went on for {} of {rest} partitions", after - before);
    assert!(!data.join(CLEAN).exists(), "a recovery that was broken off is no clean stop");

    cluster.shim(1).rules(&[])?;
    cluster.broker(1).start()?;
    cluster.until_formed().await?;
    cluster.until_healed("big", 1).await?;
    let broker = cluster.broker(1);
    wait_for("it says that it is ready", SETTLE_MAX, || async {
        (broker.health().await.ok()?["status"] == "ready").then_some(())
    })
    .await?;
    for partition in [0, PARTITIONS / 2, PARTITIONS - 1] {
        wait_for("a partition serves", SETTLE_MAX, || async {
            let end =
                Client::connect(&address).await.ok()?.end_offset("big", partition).await.ok()?;
            (end == SEGMENTS).then_some(())
        })
        .await?;
    }
    Ok(())
}

/// Fills every `CLIENTS`-th partition.
async fn fill(address: String, first: i32) -> Outcome<()> {
    let mut client = Client::connect(&address).await?;
    let partitions: Vec<i32> = (first..PARTITIONS).step_by(usize::try_from(CLIENTS)?).collect();
    for n in 0..SEGMENTS {
        let mut open = partitions.clone();
        // Until the broker has heard that it leads them all.
        while !open.is_empty() {
            let answers = client.produce_to("big", &open, None, &[vec![b'x'; 100]]).await?;
            for (partition, answer) in &answers {
                let fine = answer.is_retriable() || *answer == Answer::Appended(n);
                assert!(fine, "partition {partition}: {answer:?}");
            }
            open.retain(|partition| answers[partition].is_retriable());
            if !open.is_empty() {
                next_look().await;
            }
        }
    }
    Ok(())
}
