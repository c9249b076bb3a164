//! A cluster with many partitions: what creating them costs, how soon they are led again after a death, and what each takes of memory.
//!
//! Everything is measured in one run against one ZooKeeper; the goals are per partition or ratios, not absolute times.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;
use crate::admin::{Admin, NewTopic};
use crate::cluster::{Cluster, Options, usage};
use crate::wait::wait_for;

/// Partitions of one topic; what one creation may have.
const PARTITIONS_A_TOPIC: i32 = 1_000;
/// How their names begin.
const PREFIX: &str = "scale-";
/// Longest wait for anything at this size.
const SETTLE_MAX: Duration = Duration::from_secs(600);
const SESSION: Duration = Duration::from_secs(6);

/// Runs it with so many topics of 1,000 partitions each, three replicas; `say` gets one JSON object a figure.
///
/// # Errors
/// A cluster that does not form, or a wait that does not end.
pub async fn run(topics: i32, say: &mut impl FnMut(&Value)) -> Outcome<()> {
    let options = Options {
        session_timeout_ms: u32::try_from(SESSION.as_millis())?,
        // What is timed begins with the end of a session, so nobody may be replaced before it.
        config: "replica.lag.time.max.ms: 30000\nfailover.suspicion.enable: false\n".to_owned(),
        ..Options::default()
    };
    let mut cluster = Cluster::start(options).await?;
    let partitions = topics * PARTITIONS_A_TOPIC;
    let empty = memory(&mut cluster)?;
    create(&mut cluster, topics, partitions, say).await?;
    let full = memory(&mut cluster)?;
    let controller = controller(&cluster).await?;
    for ((id, before), (_, after)) in empty.iter().zip(&full) {
        let each = (after.saturating_sub(*before)) / u64::try_from(partitions)?;
        let role = if *id == controller { "broker and controller" } else { "broker" };
        say(
            &json!({"figure": "memory", "broker": id, "role": role, "bytes_a_partition": each, "rss_bytes": after}),
        );
    }
    let plain = if controller == 1 { 2 } else { 1 };
    death(&mut cluster, plain, partitions, "broker", say).await?;
    cluster.broker(plain).start()?;
    until(&cluster, "the dead broker is back in every ISR", |c| {
        c.under_replicated_partitions == 0 && c.brokers.len() == 3
    })
    .await?;
    death(&mut cluster, controller, partitions, "broker and controller", say).await
}

async fn create(
    cluster: &mut Cluster,
    topics: i32,
    partitions: i32,
    say: &mut impl FnMut(&Value),
) -> Outcome<()> {
    let admin = cluster.admin().await?;
    let begun = Instant::now();
    for number in 0..topics {
        let name = format!("{PREFIX}{number}");
        admin
            .create_topic(NewTopic {
                name: &name,
                partitions: PARTITIONS_A_TOPIC,
                replication_factor: 3,
                configs: &[],
            })
            .await?;
    }
    let answered = begun.elapsed();
    until(cluster, "every broker knows every partition", |c| c.partitions == partitions).await?;
    for id in 1..=3 {
        let broker = Admin::connect(&cluster.admin_address(id)).await?;
        until_of(&broker, "every broker knows every partition", |c| c.partitions == partitions)
            .await?;
    }
    for broker in cluster.brokers() {
        let folder = broker.log_dir().to_owned();
        wait_for("every replica has its directory", SETTLE_MAX, || async {
            (replicas_in(&folder) >= usize::try_from(partitions).ok()?).then_some(())
        })
        .await?;
    }
    let hosted = begun.elapsed();
    say(&json!({
        "figure": "creation",
        "partitions": partitions,
        "answered_ms": answered.as_millis(),
        "ms_a_partition": answered.as_secs_f64() * 1e3 / f64::from(partitions),
        "goal_ms_a_partition": 0.3,
        "hosted_everywhere_ms": hosted.as_millis(),
    }));
    Ok(())
}

fn replicas_in(log_dir: &Path) -> usize {
    let entries = std::fs::read_dir(log_dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).count()
}

/// Kills a broker; times from the end of its session until every partition is led by another.
async fn death(
    cluster: &mut Cluster,
    id: i32,
    partitions: i32,
    role: &str,
    say: &mut impl FnMut(&Value),
) -> Outcome<()> {
    let witness = cluster.admin_address(if id == 3 { 2 } else { 3 });
    let witness = Admin::connect(&witness).await?;
    let znodes = cluster.znodes().await?;
    let server = cluster.zookeeper().ok_or("a ZooKeeper of this run")?.address();
    let received = packets(server).await?;
    let killed = Instant::now();
    cluster.broker(id).kill().await?;
    let mut looks = 0;
    wait_for("the session ends", SETTLE_MAX, || {
        looks += 1;
        async {
            let ids = znodes.brokers().await.ok()?;
            (!ids.contains(&i64::from(id))).then_some(())
        }
    })
    .await?;
    let detected = Instant::now();
    let first = until_of(&witness, "the first partition is led again", |c| {
        c.controller_id != id && c.under_replicated_partitions > 0
    })
    .await?;
    until_of(&witness, "every partition is led again", |c| {
        c.under_replicated_partitions == partitions && c.offline_partitions == 0
    })
    .await?;
    let led = detected.elapsed();
    // Pings are counted too, a few in each second of the wait; this run's own looks are not.
    let trips = packets(server).await?.saturating_sub(received + looks);
    say(&json!({
        "figure": "death",
        "role": role,
        "partitions": partitions,
        "detection_ms": detected.duration_since(killed).as_millis(),
        "first_led_again_ms": first.duration_since(detected).as_millis(),
        "all_led_again_ms": led.as_millis(),
        "goal_all_ms": 1_500,
        "zookeeper_requests": trips,
        "goal_requests": partitions / 50 + 20,
    }));
    Ok(())
}

async fn until(
    cluster: &Cluster,
    what: &str,
    met: impl Fn(&barnabas_proto::v1::DescribeClusterResponse) -> bool,
) -> Outcome<Instant> {
    until_of(&cluster.admin().await?, what, met).await
}

async fn until_of(
    admin: &Admin,
    what: &str,
    met: impl Fn(&barnabas_proto::v1::DescribeClusterResponse) -> bool,
) -> Outcome<Instant> {
    wait_for(what, SETTLE_MAX, || async {
        admin.cluster().await.ok().filter(|c| met(c)).map(|_| Instant::now())
    })
    .await
}

async fn controller(cluster: &Cluster) -> Outcome<i32> {
    Ok(cluster.admin().await?.cluster().await?.controller_id)
}

fn memory(cluster: &mut Cluster) -> Outcome<Vec<(i32, u64)>> {
    cluster.brokers().map(|b| Ok((b.id(), usage(b.pid()?)?.0))).collect()
}

/// Packets that ZooKeeper has received since its start, pings included.
async fn packets(server: std::net::SocketAddr) -> Outcome<u64> {
    let text = barnabas_broker::zookeeper::srvr(server).await?;
    let line = text.lines().find_map(|l| l.strip_prefix("Received: "));
    Ok(line.ok_or("srvr says nothing of what it received")?.trim().parse()?)
}
