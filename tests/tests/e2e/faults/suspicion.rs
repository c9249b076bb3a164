//! R17: processes that die under sessions which outlast the test, processes that stand still, and what happens with suspicion off.

use std::time::Instant;

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Options, SETTLE_MAX};
use barnabas_tests::scene::{Scene, rounds};
use barnabas_tests::wait::wait_for;

use super::topic;

/// No session ends by itself while a scenario waits for something ([`SETTLE_MAX`]).
const ENDLESS_MS: u32 = 600_000;
const PARTITIONS: i32 = 6;

fn endless(config: &str) -> Options {
    let config = format!("replica.lag.time.max.ms: 2000\n{config}");
    Options { session_timeout_ms: ENDLESS_MS, config, ..Options::default() }
}

/// Waits until `dead` leads nothing and is in no ISR, and all partitions are led.
async fn until_replaced(scene: &Scene, dead: i32) -> Outcome<()> {
    let dead = i64::from(dead);
    for partition in 0..PARTITIONS {
        let replaced = "others lead, without the one that is dead";
        scene
            .until(replaced, ("t", partition), |s| s.leader >= 0 && !s.isr.contains(&dead))
            .await?;
    }
    Ok(())
}

/// A leader is killed, once one that is no controller and once the controller; the session of neither ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_a_killed_leader_is_replaced_long_before_its_session_ends() -> Outcome<()> {
    let mut scene = Scene::start(endless(""), &[topic(PARTITIONS)]).await?;
    scene.load("t", 3).await?;
    for round in 0..rounds(2) * 2 {
        let controller = scene.controller().await?;
        let killed = if round % 2 == 0 { controller % 3 + 1 } else { controller };
        let session = scene.sessions().await?.into_iter().find(|(id, _)| *id == killed);
        let began = Instant::now();
        scene.cluster.broker(killed).kill().await?;
        until_replaced(&scene, killed).await?;
        println!(
            "round {round}: controller {controller}, {killed} replaced after {:?}",
            began.elapsed()
        );
        assert!(scene.sessions().await?.contains(&session.ok_or("not registered")?));
        assert_ne!(scene.controller().await?, killed);
        scene.progress(3).await?;
        scene.cluster.broker(killed).start()?;
        scene.cluster.until_healed("t", 3).await?;
    }
    scene.finish().await?;
    Ok(())
}

/// Every process is killed and started again under sessions that do not end, the controller's too: nobody waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_a_broker_that_is_back_within_its_old_session_registers_at_once() -> Outcome<()> {
    let off = "failover.suspicion.enable: false\n";
    let mut scene = Scene::start(endless(off), &[topic(PARTITIONS)]).await?;
    scene.load("t", 3).await?;
    for _ in 0..rounds(2) {
        let old = scene.sessions().await?;
        let (_, term) = scene.znodes.controller().await?.ok_or("no controller")?;
        scene.cluster.kill_all().await?;
        scene.cluster.start_all()?;
        scene.until_registered_anew(&old).await?;
        wait_for("there is a new controller", SETTLE_MAX, || async {
            let (_, now) = scene.znodes.controller().await.ok()??;
            (now > term).then_some(())
        })
        .await?;
        scene.cluster.until_healed("t", 3).await?;
        scene.progress(3).await?;
    }
    scene.finish().await?;
    Ok(())
}

/// As long as the broker is registered it keeps its partitions; then it loses them, and comes back.
async fn keeps_its_partitions_until_its_session_ends(
    scene: &mut Scene,
    broker: i32,
) -> Outcome<()> {
    let path = format!("/brokers/ids/{broker}");
    wait_for("its session ends", SETTLE_MAX, || async {
        let states = scene.znodes.partitions("t").await.ok()?;
        let registered = scene.znodes.read(&path).await.ok()?.is_some();
        let whole = states.values().all(|s| s.isr.contains(&i64::from(broker)));
        assert!(whole || !registered, "replaced before its session has ended: {states:?}");
        (!registered).then_some(())
    })
    .await?;
    until_replaced(scene, broker).await
}

/// A scene in which nobody leaves an ISR for its lag, and a broker that is not the controller.
async fn with_sessions(session_timeout_ms: u32, config: &str) -> Outcome<(Scene, i32)> {
    let config = format!("replica.lag.time.max.ms: 30000\n{config}");
    let options = Options { session_timeout_ms, config, ..Options::default() };
    let mut scene = Scene::start(options, &[topic(PARTITIONS)]).await?;
    scene.load("t", 3).await?;
    let other = scene.controller().await? % 3 + 1;
    Ok((scene, other))
}

/// The kernel of a process that stands still accepts connections: nobody takes it for dead before its session ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_a_leader_that_stands_still_is_not_suspected() -> Outcome<()> {
    let (mut scene, still) = with_sessions(6_000, "").await?;
    scene.cluster.broker(still).pause()?;
    keeps_its_partitions_until_its_session_ends(&mut scene, still).await?;
    scene.cluster.broker(still).resume()?;
    scene.cluster.until_healed("t", 3).await?;
    scene.progress(3).await?;
    scene.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_with_suspicion_off_a_dead_leader_is_replaced_when_its_session_ends() -> Outcome<()> {
    let off = "failover.suspicion.enable: false\n";
    let (mut scene, dead) = with_sessions(4_000, off).await?;
    scene.cluster.broker(dead).kill().await?;
    keeps_its_partitions_until_its_session_ends(&mut scene, dead).await?;
    scene.cluster.broker(dead).start()?;
    scene.cluster.until_healed("t", 3).await?;
    scene.finish().await?;
    Ok(())
}
