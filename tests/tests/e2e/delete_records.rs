//! Deleted records stay deleted: on every replica, over restarts and changes of leader, and for one that begins anew in the
//! middle of a batch.

use std::fs;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::kcat;
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::Znodes;

use super::clients::python;
use super::topic;

/// Produces numbered lines as one batch, or as few as the client makes of them.
fn produce(cluster: &Cluster, from: usize, to: usize) -> Outcome<()> {
    let lines: String = (from..to).map(|n| format!("{n}\n")).collect();
    let arguments = ["-P", "-t", "t", "-X", "acks=all", "-X", "linger.ms=1000"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, lines.as_bytes())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Offset and value of every record from the beginning on.
fn consume(cluster: &Cluster) -> Outcome<Vec<(usize, usize)>> {
    let arguments = ["-C", "-t", "t", "-o", "beginning", "-e", "-q", "-f", "%o %s\n"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let pair = |line: &str| {
        let (offset, value) = line.split_once(' ')?;
        Some((offset.parse().ok()?, value.parse().ok()?))
    };
    text.lines().map(|line| pair(line).ok_or_else(|| line.to_owned().into())).collect()
}

fn numbered(from: usize, to: usize) -> Vec<(usize, usize)> {
    (from..to).map(|n| (n, n)).collect()
}

/// What the client was told: the low watermark, and what an offset beyond the end is answered.
fn delete(cluster: &Cluster, before: i64) -> Outcome<Vec<String>> {
    let said = python("delete_records.py", &[&cluster.bootstrap(), "t", &before.to_string()])?;
    Ok(said.lines().map(str::to_owned).collect())
}

/// Where the log begins on a broker's disk, as a restart would find it.
fn durable_start(cluster: &mut Cluster, broker: i32) -> Outcome<Option<i64>> {
    let file = cluster.broker(broker).log_dir().join("log-start-offset-checkpoint");
    let text = fs::read_to_string(file)?;
    let start = text.lines().find_map(|line| line.strip_prefix("t 0 "));
    // Blanks follow the offset in which the file keeps its checksum.
    Ok(start.map(|start| start.trim_end().parse()).transpose()?)
}

async fn until_leader_is_not(znodes: &Znodes, broker: i64) -> Outcome<i64> {
    wait_for("another leader", SETTLE_MAX, || async {
        let leader = znodes.partitions("t").await.ok()?.get(&0)?.leader;
        (leader >= 0 && leader != broker).then_some(leader)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dr_deleted_records_stay_deleted() -> Outcome<()> {
    let options = Options { session_timeout_ms: 1_500, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let znodes = cluster.znodes().await?;
    let configs = &[("min.insync.replicas", "2")];
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 3, configs }).await?;
    produce(&cluster, 0, 1000)?;

    let said = delete(&cluster, 300)?;
    assert_eq!(said, ["300", "OFFSET_OUT_OF_RANGE"]);
    for broker in 1..=3 {
        // R33: at the moment of the answer, not a moment later.
        assert_eq!(durable_start(&mut cluster, broker)?, Some(300), "broker {broker}");
    }
    assert_eq!(consume(&cluster)?, numbered(300, 1000));
    let below = ["-C", "-t", "t", "-p", "0", "-o", "299", "-e", "-X", "auto.offset.reset=error"];
    let output = kcat::run(&cluster.bootstrap(), &below, b"")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty() && said.contains("out of range"), "{said}");

    // Another leader.
    let leader = znodes.partitions("t").await?[&0].leader;
    cluster.broker(i32::try_from(leader)?).kill().await?;
    until_leader_is_not(&znodes, leader).await?;
    assert_eq!(consume(&cluster)?, numbered(300, 1000));
    cluster.broker(i32::try_from(leader)?).start()?;
    cluster.until_healed("t", 3).await?;

    // All at once.
    let before = znodes.partitions("t").await?;
    cluster.kill_all().await?;
    cluster.start_all()?;
    cluster.until_healed_since("t", 3, &before).await?;
    assert_eq!(consume(&cluster)?, numbered(300, 1000));

    // One that begins anew, in the middle of the batch; in the end it is the only one that is left.
    let before = znodes.partitions("t").await?;
    let leader = i32::try_from(before[&0].leader)?;
    let wiped = leader % 3 + 1;
    cluster.broker(wiped).kill().await?;
    cluster.broker(wiped).wipe()?;
    cluster.broker(wiped).start()?;
    cluster.until_healed_since("t", 3, &before).await?;
    assert_eq!(durable_start(&mut cluster, wiped)?, Some(300));
    for other in (1..=3).filter(|id| *id != wiped) {
        cluster.broker(other).kill().await?;
    }
    wait_for("the wiped one leads", SETTLE_MAX, || async {
        let leader = znodes.partitions("t").await.ok()?.get(&0)?.leader;
        (leader == i64::from(wiped)).then_some(())
    })
    .await?;
    assert_eq!(consume(&cluster)?, numbered(300, 1000));
    cluster.start_all()?;
    cluster.until_healed("t", 3).await?;

    // By command, asked of a broker that need not lead.
    let admin = cluster.broker(wiped).config().admin_listener.to_string();
    let command =
        ["topic", "delete-records", "t", "--partition", "0", "--admin", &admin, "--before"];
    let output = run_program(&[&command[..], &["400"]].concat()).await?;
    let said = String::from_utf8(output.stdout)?;
    assert!(said.contains("topic 't' partition 0 begins at offset 400"), "{said}");
    assert_eq!(consume(&cluster)?, numbered(400, 1000));
    let describe = ["topic", "describe", "t", "--offsets", "--json", "--admin", &admin];
    let output = run_program(&describe).await?;
    let described: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let partition = &described[0]["partitions"][0];
    assert_eq!((partition["start"].as_i64(), partition["end"].as_i64()), (Some(400), Some(1000)));
    let output = run_program(&[&command[..], &["1001"]].concat()).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr)?.contains("above what is committed"));

    // Everything goes, and offsets go on.
    assert_eq!(delete(&cluster, -1)?[0], "1000");
    assert_eq!(consume(&cluster)?, []);
    produce(&cluster, 1000, 1100)?;
    assert_eq!(consume(&cluster)?, numbered(1000, 1100));
    let before = znodes.partitions("t").await?;
    cluster.kill_all().await?;
    cluster.start_all()?;
    cluster.until_healed_since("t", 3, &before).await?;
    assert_eq!(consume(&cluster)?, numbered(1000, 1100));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r33_a_deletion_is_not_answered_without_enough_replicas() -> Outcome<()> {
    let options = Options { session_timeout_ms: 1_500, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let znodes = cluster.znodes().await?;
    let configs = &[("min.insync.replicas", "3")];
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 3, configs }).await?;
    produce(&cluster, 0, 10)?;
    let leader = i32::try_from(znodes.partitions("t").await?[&0].leader)?;
    let other = leader % 3 + 1;
    cluster.broker(other).kill().await?;
    wait_for("it leaves the ISR", SETTLE_MAX, || async {
        (znodes.partitions("t").await.ok()?.get(&0)?.isr.len() == 2).then_some(())
    })
    .await?;
    let said = python("delete_records.py", &[&cluster.bootstrap(), "t", "5", "2"])?;
    assert_eq!(said.lines().next(), Some("REQUEST_TIMED_OUT"));
    cluster.broker(other).start()?;
    cluster.until_healed("t", 3).await?;
    assert_eq!(delete(&cluster, 5)?[0], "5");
    assert_eq!(durable_start(&mut cluster, other)?, Some(5));
    Ok(())
}
