//! All replicas dead, and back in any order.

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::kcat;
use barnabas_tests::oracles::healed::until_healed;
use barnabas_tests::sessions;
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::{PartitionNode, Znodes};

use super::{topic, until_registered};

fn options() -> Options {
    Options { session_timeout_ms: 1_500, ..Options::default() }
}

/// Produces numbered lines to all partitions and waits for their acknowledgement by all ISR members.
fn produce(cluster: &Cluster, topic: &str, from: usize, to: usize) -> Outcome<()> {
    let lines: String = (from..to).map(|n| format!("{n}\n")).collect();
    // Not sticky: a fast broker would otherwise leave partitions empty.
    let spread = "sticky.partitioning.linger.ms=0";
    let arguments = ["-P", "-t", topic, "-X", "acks=all", "-X", spread];
    let output = kcat::run(&cluster.bootstrap(), &arguments, lines.as_bytes())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Reads everything, sorted.
fn consume(cluster: &Cluster, topic: &str) -> Outcome<Vec<usize>> {
    let arguments = ["-C", "-t", topic, "-o", "beginning", "-e", "-q"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.lines().map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    numbers.sort_unstable();
    Ok(numbers)
}

async fn until_isr(znodes: &Znodes, topic: &str, isr: &[i64]) -> Outcome<()> {
    wait_for(&format!("the ISR is {isr:?}"), SETTLE_MAX, || async {
        let states = znodes.partitions(topic).await.ok()?;
        let is = |state: &PartitionNode| {
            let mut members = state.isr.clone();
            members.sort_unstable();
            members == isr
        };
        (!states.is_empty() && states.values().all(is)).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_without_a_living_isr_member_there_is_no_leader_and_the_isr_is_kept() -> Outcome<()> {
    let mut cluster = Cluster::start(options()).await?;
    let znodes = cluster.znodes().await?;
    topic(&cluster, NewTopic { name: "t", partitions: 4, replication_factor: 3, configs: &[] })
        .await?;
    produce(&cluster, "t", 0, 1000)?;
    // One after the other, so that 3 is the last that has everything.
    cluster.broker(1).kill().await?;
    until_isr(&znodes, "t", &[2, 3]).await?;
    produce(&cluster, "t", 1000, 2000)?;
    cluster.broker(2).kill().await?;
    until_isr(&znodes, "t", &[3]).await?;
    produce(&cluster, "t", 2000, 3000)?;
    cluster.broker(3).kill().await?;
    until_registered(&znodes, &[]).await?;
    until_isr(&znodes, "t", &[3]).await?;

    cluster.broker(1).start()?;
    cluster.broker(2).start()?;
    cluster.until_known(&znodes, &[1, 2]).await?;
    let bootstrap = cluster.bootstrap();
    wait_for("clients are told that there is no leader", SETTLE_MAX, || async {
        let metadata = kcat::metadata(&bootstrap, Some("t")).ok()?;
        let partitions = metadata["topics"][0]["partitions"].as_array()?.clone();
        let leaderless = partitions.iter().all(|partition| {
            partition["leader"].as_i64() == Some(-1)
                && partition["isrs"][0]["id"].as_i64() == Some(3)
        });
        (partitions.len() == 4 && leaderless).then_some(())
    })
    .await?;
    for state in znodes.partitions("t").await?.values() {
        assert_eq!((state.leader, state.isr.as_slice()), (-1, &[3][..]), "kept as it was");
    }

    cluster.broker(3).start()?;
    cluster.until_healed("t", 3).await?;
    assert_eq!(
        consume(&cluster, "t")?,
        (0..3000).collect::<Vec<_>>(),
        "nothing lost, nothing twice"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i12_all_killed_at_once_heal_in_any_order() -> Outcome<()> {
    let mut cluster = Cluster::start(options()).await?;
    let znodes = cluster.znodes().await?;
    topic(&cluster, NewTopic { name: "t", partitions: 4, replication_factor: 3, configs: &[] })
        .await?;
    for (round, order) in [[1, 2, 3], [3, 1, 2], [2, 3, 1]].into_iter().enumerate() {
        produce(&cluster, "t", round * 500, (round + 1) * 500)?;
        let before = znodes.partitions("t").await?;
        for id in 1..=3 {
            cluster.broker(id).kill().await?;
        }
        until_registered(&znodes, &[]).await?;
        let mut up = Vec::new();
        for id in order {
            cluster.broker(id).start()?;
            up.push(id);
            up.sort_unstable();
            cluster.until_known(&znodes, &up).await?;
        }
        cluster.until_healed_since("t", 3, &before).await?;
        let all: Vec<usize> = (0..(round + 1) * 500).collect();
        assert_eq!(consume(&cluster, "t")?, all, "order {order:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_a_wiped_replica_comes_back_from_the_others() -> Outcome<()> {
    let mut cluster = Cluster::start(options()).await?;
    topic(&cluster, NewTopic { name: "t", partitions: 4, replication_factor: 3, configs: &[] })
        .await?;
    produce(&cluster, "t", 0, 2000)?;
    let znodes = cluster.znodes().await?;
    let before = znodes.partitions("t").await?;
    cluster.broker(2).kill().await?;
    cluster.broker(2).wipe()?;
    cluster.broker(2).start()?;
    cluster.until_healed_since("t", 3, &before).await?;
    assert_eq!(consume(&cluster, "t")?, (0..2000).collect::<Vec<_>>());
    let log_dirs: Vec<_> = cluster.brokers().map(|broker| broker.log_dir().to_owned()).collect();
    let log_dirs: Vec<_> = log_dirs.iter().map(std::path::PathBuf::as_path).collect();
    for partition in 0..4 {
        assert!(barnabas_tests::replicas::identical(&log_dirs, "t", partition)? > 0);
    }
    Ok(())
}

/// The last ISR member comes back without its data, and first. Leading, it would have the other cut away everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_a_wiped_last_isr_member_does_not_lead_before_the_longer_log_is_back() -> Outcome<()> {
    let mut cluster = Cluster::start(options()).await?;
    let znodes = cluster.znodes().await?;
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 2, configs: &[] })
        .await?;
    produce(&cluster, "t", 0, 2000)?;
    let isr: Vec<i64> =
        znodes.partitions("t").await?.values().flat_map(|state| state.isr.clone()).collect();
    let [first, last] = isr[..] else { return Err(format!("two replicas, not {isr:?}").into()) };
    cluster.broker(i32::try_from(first)?).kill().await?;
    until_isr(&znodes, "t", &[last]).await?;
    let last_broker = i32::try_from(last)?;
    cluster.broker(last_broker).kill().await?;
    cluster.broker(last_broker).wipe()?;
    cluster.broker(last_broker).start()?;
    wait_for("nobody leads", SETTLE_MAX, || async {
        let states = znodes.partitions("t").await.ok()?;
        states.values().all(|state| state.leader == -1).then_some(())
    })
    .await?;
    let alive: Vec<i32> = (1..=3).filter(|id| i64::from(*id) != first).collect();
    cluster.until_known(&znodes, &alive).await?;
    let leaderless = znodes.partitions("t").await?;
    cluster.broker(i32::try_from(first)?).start()?;
    cluster.until_healed_since("t", 2, &leaderless).await?;
    assert_eq!(consume(&cluster, "t")?, (0..2000).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_whose_node_cannot_be_read_keeps_its_data_through_elections_and_restarts()
-> Outcome<()> {
    let mut cluster = Cluster::start(options()).await?;
    let znodes = cluster.znodes().await?;
    topic(&cluster, NewTopic { name: "t", partitions: 2, replication_factor: 3, configs: &[] })
        .await?;
    produce(&cluster, "t", 0, 500)?;
    let node = znodes.read("/brokers/topics/t").await?.ok_or("no topic node")?;
    znodes.set("/brokers/topics/t", b"{\"version\":3,").await?;

    // A new controller, and a broker that knows nothing: neither takes the topic for deleted.
    let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
    let controller = i32::try_from(controller)?;
    sessions::expire_broker(cluster.zookeeper_connect(), &znodes, controller).await?;
    let other = controller % 3 + 1;
    cluster.broker(other).kill().await?;
    cluster.broker(other).start()?;
    wait_for("the next controller has told everybody", SETTLE_MAX, || async {
        let known = cluster.admin().await.ok()?.cluster().await.ok()?;
        (i64::from(known.controller_epoch) > epoch && known.brokers.len() == 3).then_some(())
    })
    .await?;
    cluster.until_formed().await?;
    for broker in cluster.brokers() {
        assert!(broker.log_dir().join("t-0").is_dir(), "broker {}", broker.id());
    }

    znodes.set("/brokers/topics/t", node.data.to_string().as_bytes()).await?;
    let (controller, _) = znodes.controller().await?.ok_or("no controller")?;
    let controller = i32::try_from(controller)?;
    sessions::expire_broker(cluster.zookeeper_connect(), &znodes, controller).await?;
    until_healed(&mut cluster, "t").await?;
    assert_eq!(consume(&cluster, "t")?, (0..500).collect::<Vec<_>>());
    Ok(())
}
