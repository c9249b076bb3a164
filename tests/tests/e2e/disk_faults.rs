//! A disk that fails under a broker: who hears of it, who leads, what is kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use barnabas_tests::load::{self, Load, Target};
use barnabas_tests::losses;
use barnabas_tests::replicas::{identical, log_bytes};
use barnabas_tests::wait::wait_for;
use barnabas_tests::{kcat, shim::EIO};

use super::topic;

const GROUP: usize = 64;

/// Everything in a topic, one value a line.
fn values(cluster: &Cluster, topic: &str) -> Outcome<Vec<String>> {
    let arguments = ["-C", "-t", topic, "-o", "beginning", "-e", "-q"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

fn count(log_dir: &Path, part: &[u8]) -> usize {
    let bytes = log_bytes(log_dir, "t", 0).unwrap_or_default();
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

/// Sends one record to partition 0 through the present leader.
async fn append(cluster: &Cluster, topic: &str, value: &str) -> Outcome<Answer> {
    let leaders = Client::bootstrap(&cluster.bootstrap()).await?.leaders(topic).await?;
    let mut client = Client::connect(leaders.get(&0).ok_or("no leader")?).await?;
    client.produce(topic, 0, None, &[value.as_bytes().to_vec()]).await
}

/// Sends one record again and again until it is acknowledged; its offset.
async fn until_appended(cluster: &Cluster, topic: &str, value: &str) -> Outcome<i64> {
    wait_for("a record is acknowledged", SETTLE_MAX, || async {
        match append(cluster, topic, value).await {
            Ok(Answer::Appended(offset)) => Some(offset),
            _ => None,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r38_d5_a_failed_sync_is_acknowledged_to_none_of_its_group() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 1_500,
        preload: Preload::Faults,
        ..Options::default()
    })
    .await?;
    let znodes = cluster.znodes().await?;
    let configs = [("min.insync.replicas", "2"), ("flush.mode", "sync")];
    topic(
        &cluster,
        NewTopic { name: "t", partitions: 1, replication_factor: 3, configs: &configs },
    )
    .await?;
    let mut acked = Vec::new();
    for n in 0..100 {
        let value = format!("before-{n}");
        until_appended(&cluster, "t", &value).await?;
        acked.push(value);
    }

    let before = znodes.partitions("t").await?[&0].clone();
    let leader = i32::try_from(before.leader)?;
    let address = cluster.broker(leader).config().advertised_listener.to_string();
    let log_dir = cluster.broker(leader).log_dir().to_owned();
    let path = format!("path={}/t-0/*.log", log_dir.display());
    let end = Client::connect(&address).await?.end_offset("t", 0).await?;
    cluster.shim(leader).rules(&[&format!("hold sync {path}")])?;
    let group: Vec<_> = (0..GROUP)
        .map(|n| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut client = Client::connect(&address).await?;
                client.produce("t", 0, None, &[format!("held-{n}").into_bytes()]).await
            })
        })
        .collect();
    wait_for("all are written and a sync is held", SETTLE_MAX, || async {
        let held = cluster.shim(leader).fired(0).ok()? > 0;
        (held && count(&log_dir, b"held-") == GROUP).then_some(())
    })
    .await?;
    cluster.shim(leader).rules(&[&format!("fail:{EIO} sync {path} nth=1")])?;
    for answer in group {
        // No answer at all is no acknowledgement either.
        if let Ok(answer) = answer.await? {
            assert!(answer.is_retriable(), "{answer:?}");
        }
    }
    assert_eq!(cluster.shim(leader).fired(0)?, 1, "never a second sync of what failed");

    wait_for("another replica leads", SETTLE_MAX, || async {
        let now = znodes.partitions("t").await.ok()?.get(&0)?.clone();
        (now.leader >= 0 && now.leader_epoch > before.leader_epoch).then_some(())
    })
    .await?;
    assert!(cluster.broker(leader).runs(), "{}", cluster.broker(leader).last_log_line());
    let log_dirs = cluster.broker(leader).config().log_dirs.clone();
    let lost = wait_for("the range is reported", SETTLE_MAX, || async {
        let lost = losses::of(&log_dirs).ok()?;
        lost.into_iter().find(|loss| loss.topic == "t" && loss.cause == "failed_sync")
    })
    .await?;
    assert_eq!((lost.from, lost.to), (end, Some(end + i64::try_from(GROUP)?)), "{lost:?}");
    let after = until_appended(&cluster, "t", "after").await?;
    acked.push("after".to_owned());
    cluster.until_healed_since("t", 3, &[(0, before)].into()).await?;
    let found = values(&cluster, "t")?;
    for value in &acked {
        assert!(found.contains(value), "{value} of {}", acked.len());
    }
    assert!(after >= 100 && found.len() > 100);

    let directories: Vec<_> = cluster.brokers().map(|b| b.log_dir().to_owned()).collect();
    let directories: Vec<&Path> = directories.iter().map(|path| path.as_path()).collect();
    wait_for("the replica that failed has the same records", SETTLE_MAX, || async {
        identical(&directories, "t", 0).ok()
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r38_a_broker_whose_sync_fails_while_it_is_emptied_registers_with_a_lost_tail()
-> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        brokers: 1,
        shutdown_wait_ms: 600_000,
        preload: Preload::Faults,
        ..Options::default()
    })
    .await?;
    let znodes = cluster.znodes().await?;
    let configs = [("flush.mode", "sync")];
    topic(
        &cluster,
        NewTopic { name: "t", partitions: 1, replication_factor: 1, configs: &configs },
    )
    .await?;
    until_appended(&cluster, "t", "before").await?;
    // The only replica keeps it from stopping.
    cluster.broker(1).ask_to_stop()?;
    let registration = async |field: &str| {
        let node = znodes.read("/brokers/ids/1").await.ok().flatten()?;
        (node.data["barnabas"][field] == true).then_some(node.czxid)
    };
    let emptied = wait_for("it is being emptied", SETTLE_MAX, || registration("draining")).await?;
    let path = format!("path={}/t-0/*.log", cluster.broker(1).log_dir().display());
    cluster.shim(1).rules(&[&format!("fail:{EIO} sync {path} nth=1")])?;
    let answer = append(&cluster, "t", "lost").await;
    assert!(!matches!(answer, Ok(Answer::Appended(_))), "{answer:?}");
    let anew =
        wait_for("its registration says so", SETTLE_MAX, || registration("tail_lost")).await?;
    assert!(anew > emptied);
    wait_for("it goes on being emptied", SETTLE_MAX, || registration("draining")).await?;
    cluster.broker(1).terminate().await?;
    cluster.broker(1).start()?;
    cluster.until_known(&znodes, &[1]).await?;
    cluster.until_healed("t", 1).await?;
    assert_eq!(values(&cluster, "t")?, ["before"]);
    Ok(())
}

/// Partitions of a topic that have a directory here.
fn partitions_in(log_dir: &Path, topic: &str) -> Outcome<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(log_dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(Ok(partition)) =
            name.strip_prefix(topic).and_then(|rest| rest.strip_prefix('-')).map(str::parse)
        {
            found.insert(partition);
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_fails_takes_its_partitions_along_and_no_other() -> Outcome<()> {
    const PARTITIONS: i32 = 8;
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 1_500,
        preload: Preload::Faults,
        log_dirs: 2,
        ..Options::default()
    })
    .await?;
    let znodes = cluster.znodes().await?;
    // Short flushes, so that an idle follower meets its disk too.
    let configs = [("min.insync.replicas", "2"), ("flush.ms", "100")];
    topic(
        &cluster,
        NewTopic { name: "t", partitions: PARTITIONS, replication_factor: 3, configs: &configs },
    )
    .await?;
    let target =
        Target { bootstrap: cluster.bootstrap(), topic: "t".to_owned(), partitions: PARTITIONS };
    let all: BTreeSet<i32> = (0..PARTITIONS).collect();
    let (good, bad) = {
        let directories = &cluster.broker(1).config().log_dirs;
        (directories[0].clone(), directories[1].clone())
    };
    let hit = wait_for("every partition has its directory", SETTLE_MAX, || async {
        let hit = partitions_in(&bad, "t").ok()?;
        let others = partitions_in(&good, "t").ok()?;
        (hit.union(&others).count() == all.len()).then_some(hit)
    })
    .await?;
    assert!(!hit.is_empty() && hit.len() < all.len(), "both directories are used: {hit:?}");

    let load = Load::start(&target, usize::try_from(PARTITIONS)?, 0, 1);
    let progress = |load: &Load, more: u64| {
        let before = load.batches();
        move |now: Vec<u64>| now.iter().zip(&before).all(|(now, before)| *now >= before + more)
    };
    let enough = progress(&load, 20);
    wait_for("all partitions take records", SETTLE_MAX, || async {
        enough(load.batches()).then_some(())
    })
    .await?;
    cluster.shim(1).rules(&[&format!("fail:{EIO} any path={}*", bad.display())])?;
    wait_for("its partitions are led elsewhere, and out of its ISR", SETTLE_MAX, || async {
        let states = znodes.partitions("t").await.ok()?;
        let left = hit.iter().all(|p| states[p].leader > 1 && !states[p].isr.contains(&1));
        left.then_some(())
    })
    .await?;
    let enough = progress(&load, 20);
    wait_for("all partitions take records again", SETTLE_MAX, || async {
        enough(load.batches()).then_some(())
    })
    .await
    .map_err(|error| format!("{error}; a producer was told: {}", load.trouble()))?;
    let whole = wait_for("the others are whole", SETTLE_MAX, || async {
        let states = znodes.partitions("t").await.ok()?;
        all.difference(&hit).all(|p| states[p].isr.len() == 3).then_some(())
    })
    .await;
    if whole.is_err() {
        let states = znodes.partitions("t").await?;
        return Err(format!("{whole:?}; {hit:?} were hit: {states:#?}").into());
    }
    assert!(cluster.broker(1).runs(), "{}", cluster.broker(1).last_log_line());
    let health = cluster.broker(1).health().await?;
    let states = [&health["log_dirs"][0]["state"], &health["log_dirs"][1]["state"]];
    assert!(states == ["online", "offline"] && health["status"] == "ready", "{health}");
    let led = znodes.partitions("t").await?.values().filter(|state| state.leader == 1).count();
    println!("broker 1 leads {led} partitions of its good directory; {} were hit", hit.len());
    let accounts = load.stop().await?;
    let verdict = load::judge(&target, &accounts)?;
    assert!(verdict.acked > 0 && verdict.lost + verdict.wrong() == 0, "{verdict:?}");

    // A new disk, or a better day.
    cluster.shim(1).rules(&[])?;
    cluster.broker(1).terminate().await?;
    cluster.broker(1).start()?;
    cluster.until_healed("t", 3).await?;
    let verdict = load::judge(&target, &accounts)?;
    assert!(verdict.lost + verdict.wrong() == 0, "{verdict:?}");
    Ok(())
}
