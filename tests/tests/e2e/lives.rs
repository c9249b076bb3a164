//! The life of topics: one that is created because a client asks for it, and one that is deleted while a replica is dead.

use std::path::PathBuf;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::kcat;
use barnabas_tests::wait::wait_for;

use super::topic;

fn produce(cluster: &Cluster, topic: &str, line: &str) -> Outcome<std::process::Output> {
    let arguments = ["-P", "-t", topic, "-X", "acks=all", "-X", "message.timeout.ms=5000"];
    kcat::run(&cluster.bootstrap(), &arguments, line.as_bytes())
}

fn consume(cluster: &Cluster, topic: &str) -> Outcome<String> {
    let arguments = ["-C", "-t", topic, "-o", "beginning", "-e", "-q"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_created_on_demand_with_the_clusters_defaults() -> Outcome<()> {
    let config =
        "replica.lag.time.max.ms: 2000\nnum.partitions: 2\ndefault.replication.factor: 3\n";
    let options = Options { config: config.to_owned(), ..Options::default() };
    let cluster = Cluster::start(options).await?;
    let output = produce(&cluster, "made", "one\n")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(consume(&cluster, "made")?, "one\n");
    let partitions = cluster.znodes().await?.partitions("made").await?;
    assert_eq!((partitions.len(), partitions[&0].isr.len()), (2, 3));
    // A consumer does not allow it.
    let arguments = ["-C", "-t", "not-made", "-o", "beginning", "-e", "-q"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Unknown topic"), "{said}");
    let topics = cluster.znodes().await?.children("/brokers/topics").await?;
    assert_eq!(topics, ["made"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_it_is_switched_off_no_topic_is_created_on_demand() -> Outcome<()> {
    let config = "auto.create.topics.enable: false\n".to_owned();
    let cluster = Cluster::start(Options { brokers: 1, config, ..Options::default() }).await?;
    let output = produce(&cluster, "not-made", "one\n")?;
    assert!(!output.status.success());
    assert!(cluster.znodes().await?.children("/brokers/topics").await?.is_empty());
    Ok(())
}

/// Every directory of the topic's partitions at a broker.
fn directories(cluster: &mut Cluster, broker: i32, topic: &str) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(cluster.broker(broker).log_dir())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&format!("{topic}-")) && !name.ends_with("-stray") {
            found.push(path);
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r29_a_deletion_does_not_wait_for_a_dead_replica_which_goes_when_it_returns() -> Outcome<()>
{
    let options = Options { session_timeout_ms: 1_500, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let configs = &[("min.insync.replicas", "2")];
    let new = |name| NewTopic { name, partitions: 1, replication_factor: 3, configs };
    for name in ["gone", "again"] {
        topic(&cluster, new(name)).await?;
        let output = produce(&cluster, name, "of the first life\n")?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let znodes = cluster.znodes().await?;
    let leader = i32::try_from(znodes.partitions("again").await?[&0].leader)?;
    let dead = leader % 3 + 1;
    assert_eq!(directories(&mut cluster, dead, "gone")?.len(), 1);
    cluster.broker(dead).kill().await?;
    let admin = cluster.broker(leader).config().admin_listener.to_string();
    for name in ["gone", "again"] {
        let output = run_program(&["topic", "delete", name, "--admin", &admin]).await?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(znodes.children("/brokers/topics").await?.is_empty(), "though a replica is dead");
    assert!(znodes.children("/admin/delete_topics").await?.is_empty());
    // A name that is used again gets another id, and never a byte of the earlier life.
    let alive: Vec<i32> = (1..=3).filter(|id| *id != dead).collect();
    cluster.until_known(&znodes, &alive).await?;
    let assignment = format!("0:{leader},{dead},{}", 6 - leader - dead);
    let create = ["topic", "create", "again", "--assignment", &assignment, "--admin", &admin];
    let output = run_program(&create).await?;
    assert_eq!(output.status.code(), Some(1), "a dead broker gets no new replica");
    cluster.broker(dead).start()?;
    cluster.until_known(&znodes, &[1, 2, 3]).await?;
    let output = run_program(&create).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = produce(&cluster, "again", "of the second life\n")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.until_healed("again", 3).await?;
    // The one that was dead alone serves what there is.
    for other in alive {
        cluster.broker(other).kill().await?;
    }
    wait_for("it leads", SETTLE_MAX, || async {
        let leader = znodes.partitions("again").await.ok()?.get(&0)?.leader;
        (leader == i64::from(dead)).then_some(())
    })
    .await?;
    assert_eq!(consume(&cluster, "again")?, "of the second life\n");
    assert!(directories(&mut cluster, dead, "gone")?.is_empty(), "it went");
    Ok(())
}
