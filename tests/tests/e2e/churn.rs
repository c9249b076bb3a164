//! Topics that come and go while their logs are flushed, rolled and shortened all the time (D8).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use barnabas_tests::load::{Load, Target};
use barnabas_tests::wait::wait_for;

use super::topic;

const LENGTH: Duration = Duration::from_secs(30);
const TOPICS: usize = 6;
const PARTITIONS: i32 = 4;

/// Bytes and directories below a data directory.
fn use_of(folder: &Path) -> (u64, usize) {
    let (mut bytes, mut directories) = (0, 0);
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        directories += 1;
        // What vanishes while it is looked at is none.
        for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            match entry.metadata() {
                Ok(found) if found.is_dir() => open.push(entry.path()),
                Ok(found) => bytes += found.len(),
                Err(_) => {}
            }
        }
    }
    (bytes, directories)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_deletion_flush_roll_and_retention_do_not_meet_badly() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        config: "replica.lag.time.max.ms: 2000\nlog.retention.check.interval.ms: 100\n".to_owned(),
        preload: Preload::Faults,
        ..Options::default()
    })
    .await?;
    let data: Vec<_> = cluster.brokers().map(|broker| broker.log_dir().to_owned()).collect();
    let base: Vec<_> = data.iter().map(|folder| use_of(folder)).collect();
    let configs = [("flush.ms", "10"), ("retention.ms", "100"), ("segment.ms", "50")];
    let started = Instant::now();
    let (mut created, mut records) = (0, 0);
    while started.elapsed() < LENGTH {
        let names: Vec<String> = (0..TOPICS).map(|n| format!("churn-{n}")).collect();
        let mut loads = Vec::new();
        for name in &names {
            topic(
                &cluster,
                NewTopic { name, partitions: PARTITIONS, replication_factor: 3, configs: &configs },
            )
            .await?;
            let target = Target {
                bootstrap: cluster.bootstrap(),
                topic: name.clone(),
                partitions: PARTITIONS,
            };
            loads.push(Load::start(&target, 2, 0, created as u64));
            created += 1;
        }
        for (name, load) in names.iter().zip(loads) {
            wait_for("records are taken", SETTLE_MAX, || async {
                load.batches().iter().all(|batches| *batches >= 20).then_some(())
            })
            .await
            .map_err(|error| format!("{error}; a producer was told: {}", load.trouble()))?;
            records += load.stop().await?.iter().map(|account| account.acked.len()).sum::<usize>();
            cluster.admin().await?.delete_topic(name).await?;
        }
    }
    println!("{created} topics, {records} batches");
    for (folder, base) in data.iter().zip(&base) {
        // The checkpoints may have grown and shrunk by a few bytes; the leaders' notes have a page, which they keep.
        wait_for("disk use is back to what it was", SETTLE_MAX, || async {
            let now = use_of(folder);
            (now.1 == base.1 && now.0 <= base.0 + 2 * 4096).then_some(())
        })
        .await
        .map_err(|error| format!("{error}: {:?} now, {base:?} before", use_of(folder)))?;
    }
    for broker in cluster.brokers() {
        assert!(broker.runs(), "{}", broker.last_log_line());
        let log = broker.log();
        for bad in ["panicked", "offline", "fenced"] {
            let line = log.lines().find(|line| line.contains(bad) && line.contains("churn"));
            assert!(line.is_none(), "{}", line.unwrap_or_default());
        }
    }
    Ok(())
}
