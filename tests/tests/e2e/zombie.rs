//! A controller that stands still past its session and wakes up again: nothing that it still wants may happen.

use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::{Admin, NewTopic};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::oracles::{Oracles, Promise};
use barnabas_tests::proxy::Link;
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::Znodes;

use super::{interval, topic};

/// Topics that are being created while the controller is stopped.
const IN_FLIGHT: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_r1_a_paused_controller_writes_nothing_after_its_successor() -> Outcome<()> {
    let mut cluster =
        Cluster::start(Options { session_timeout_ms: 2_000, ..Options::default() }).await?;
    let znodes = cluster.znodes().await?;
    topic(
        &cluster,
        NewTopic { name: "before", partitions: 6, replication_factor: 3, configs: &[] },
    )
    .await?;
    let oracles = Oracles::watch(&cluster, &["before"], Promise::Kept).await?;
    let (zombie, old_epoch) = znodes.controller().await?.ok_or("no controller")?;
    let zombie = i32::try_from(zombie)?;

    let admin = cluster.broker(zombie).admin().await?;
    let creations: Vec<_> =
        (0..IN_FLIGHT).map(|n| tokio::spawn(create(admin.clone(), n))).collect();
    // Some are under way when it stops.
    wait_for("the first of the topics is there", SETTLE_MAX, || async {
        (znodes.children("/brokers/topics").await.ok()?.len() > 1).then_some(())
    })
    .await?;
    cluster.broker(zombie).pause()?;
    let (successor, epoch) = wait_for("a successor", SETTLE_MAX, || async {
        znodes.controller().await.ok().flatten().filter(|(_, epoch)| *epoch > old_epoch)
    })
    .await?;
    assert_eq!(epoch, old_epoch + 1);
    let elected_at = znodes.read("/controller").await?.ok_or("no controller")?.czxid;
    wait_for("the zombie leads nothing", SETTLE_MAX, || async {
        let states = znodes.partitions("before").await.ok()?;
        states.values().all(|state| state.leader != i64::from(zombie)).then_some(())
    })
    .await?;

    // Leaders move again, which it knows nothing of.
    let third = (1..=3).find(|id| *id != zombie && i64::from(*id) != successor);
    let third = third.ok_or("no third broker")?;
    cluster.broker(third).kill().await?;
    wait_for("the successor leads all", SETTLE_MAX, || async {
        let states = znodes.partitions("before").await.ok()?;
        states.values().all(|state| state.leader == successor).then_some(())
    })
    .await?;

    cluster.broker(zombie).resume()?;
    cluster.broker(third).start()?;
    let mut answers = Vec::new();
    for creation in creations {
        answers.push(creation.await?);
    }
    cluster.until_known(&znodes, &[1, 2, 3]).await?;
    cluster.until_healed("before", 3).await?;
    assert_eq!(
        znodes.controller().await?.map(|(_, now)| now),
        Some(epoch),
        "the successor still rules"
    );
    no_old_writes(&znodes, elected_at, epoch).await?;
    let there = znodes.children("/brokers/topics").await?;
    for (n, created) in answers.iter().enumerate() {
        if created.is_ok() {
            assert!(there.contains(&name(n)), "topic {n} was answered as created and is not there");
        }
    }
    for name in there {
        cluster.until_healed(&name, 3).await?;
    }
    oracles.judge(&mut cluster, &[]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_cut_off_from_zookeeper_past_its_session_registers_again() -> Outcome<()> {
    let options = Options { proxied: true, session_timeout_ms: 2_000, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let znodes = cluster.znodes().await?;
    topic(&cluster, NewTopic { name: "t", partitions: 3, replication_factor: 3, configs: &[] })
        .await?;
    let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
    let id = i32::try_from(controller)?;
    let before = znodes.read(&format!("/brokers/ids/{id}")).await?.ok_or("not registered")?;

    // Its requests pass, the answers do not: what it writes may happen without its knowing.
    cluster.links(id).zookeeper.set(Link::HoldReplies);
    wait_for("a successor", SETTLE_MAX, || async {
        znodes.controller().await.ok().flatten().filter(|(_, now)| *now > epoch)
    })
    .await?;
    cluster.links(id).zookeeper.set(Link::Cut);
    cluster.links(id).zookeeper.set(Link::Whole);
    cluster.until_known(&znodes, &[1, 2, 3]).await?;
    cluster.until_healed("t", 3).await?;
    let after = znodes.read(&format!("/brokers/ids/{id}")).await?.ok_or("not registered")?;
    assert!(after.czxid > before.czxid, "a new registration, a new broker epoch");
    assert_ne!(after.ephemeral_owner, before.ephemeral_owner, "a new session");
    assert!(cluster.broker(id).runs(), "without a restart");
    // Nobody loses the registration again once it is there.
    interval(Duration::from_secs(3)).await?;
    let later = znodes.read(&format!("/brokers/ids/{id}")).await?.ok_or("not registered")?;
    assert_eq!(later.czxid, after.czxid);
    Ok(())
}

fn name(n: usize) -> String {
    format!("in-flight-{n}")
}

async fn create(admin: Admin, n: usize) -> Result<(), String> {
    let name = name(n);
    let topic = NewTopic { name: &name, partitions: 3, replication_factor: 3, configs: &[] };
    admin.create_topic(topic).await.map_err(|error| error.to_string())
}

/// Every state that was written after the election carries the new epoch.
async fn no_old_writes(znodes: &Znodes, elected_at: i64, epoch: i64) -> Outcome<()> {
    for topic in znodes.children("/brokers/topics").await? {
        let folder = format!("/brokers/topics/{topic}/partitions");
        for partition in znodes.children(&folder).await? {
            let path = format!("{folder}/{partition}/state");
            let state = znodes.read(&path).await?.ok_or("no state")?;
            if state.mzxid > elected_at {
                assert_eq!(state.data["controller_epoch"].as_i64(), Some(epoch), "{path}");
            }
        }
    }
    Ok(())
}
