//! B2, B5, B10: who may lead after several members of an ISR went away, and with what log.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Options, Preload, SETTLE_MAX};
use barnabas_tests::power;
use barnabas_tests::scene::{Scene, rounds};
use barnabas_tests::wait::wait_for;

use super::topic;
use crate::e2e::interval;

/// What a loss of power takes at least.
const LOST_BYTES: u64 = 500;
/// `replica.high.watermark.checkpoint.interval.ms`.
const CHECKPOINT: Duration = Duration::from_millis(200);

/// The options of scenarios that wait for a follower to fall behind while others live.
pub(super) fn patient(preload: Preload) -> Options {
    Options {
        session_timeout_ms: 10_000,
        config:
            "replica.lag.time.max.ms: 2000\nreplica.high.watermark.checkpoint.interval.ms: 200\n"
                .to_owned(),
        preload,
        ..Options::default()
    }
}

/// Acknowledged batches, then silence.
pub(super) async fn burst(scene: &mut Scene, producers: usize) -> Outcome<()> {
    scene.load("t", producers).await?;
    scene.progress(10).await?;
    scene.still().await
}

/// Leader, the member that stays, and the one that is behind, in a topic of one partition.
pub(super) async fn cast(scene: &Scene) -> Outcome<[i32; 3]> {
    let leader = i32::try_from(scene.state("t", 0).await?.leader)?;
    let controller = scene.controller().await?;
    let mut others = (1..=3).filter(|id| *id != leader);
    let (a, b) = (others.next().ok_or("one")?, others.next().ok_or("two")?);
    // Whoever stands still must not be the controller, which has to see it.
    Ok(if b == controller { [leader, b, a] } else { [leader, a, b] })
}

/// A follower that is behind is admitted by a new leader, which is killed the moment that this is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_r12_a_follower_joins_only_with_all_that_the_leader_began_with() -> Outcome<()> {
    let mut scene = Scene::start(patient(Preload::Nothing), &[topic(1)]).await?;
    for round in 0..rounds(2) {
        let [leader, next, behind] = cast(&scene).await?;
        scene.cluster.broker(behind).pause()?;
        burst(&mut scene, 2).await?;
        let behind_id = i64::from(behind);
        scene
            .until("the follower that stands still is out", ("t", 0), |state| {
                !state.isr.contains(&behind_id)
            })
            .await?;
        burst(&mut scene, 2).await?;
        scene.kill_and_expire(leader).await?;
        scene.until("the next leads", ("t", 0), |s| s.leader == i64::from(next)).await?;
        scene.cluster.broker(behind).resume()?;
        scene.until("the follower is in", ("t", 0), |s| s.isr.contains(&behind_id)).await?;
        scene.kill_and_expire(next).await?;
        scene.until("it leads", ("t", 0), |s| s.leader == behind_id).await?;
        scene.cluster.start_all()?;
        let healed = scene.cluster.until_healed("t", 3).await;
        healed.map_err(|error| format!("round {round}: {error}"))?;
        burst(&mut scene, 2).await?;
    }
    scene.finish().await?;
    Ok(())
}

/// The last member of the ISR loses its tail by a loss of power, and is back first or last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b5_r6_the_last_member_that_lost_its_tail_takes_nothing_along() -> Outcome<()> {
    let mut scene = Scene::start(patient(Preload::Journal), &[topic(1)]).await?;
    for round in 0..rounds(2) {
        let [leader, second, third] = cast(&scene).await?;
        burst(&mut scene, 2).await?;
        for (member, left) in [(third, 2), (second, 1)] {
            scene.cluster.broker(member).pause()?;
            if left == 2 {
                burst(&mut scene, 2).await?;
            }
            let member = i64::from(member);
            scene
                .until("it is out of the ISR", ("t", 0), |state| {
                    state.isr.len() == left && !state.isr.contains(&member)
                })
                .await?;
        }
        scene.kill_and_expire(leader).await?;
        let broker = scene.cluster.broker(leader);
        let roots = broker.config().log_dirs.clone();
        // In any case something of the last burst, which nobody has flushed.
        let log =
            File::options().write(true).open(roots[0].join("t-0/00000000000000000000.log"))?;
        log.set_len(log.metadata()?.len() - LOST_BYTES)?;
        let cut = power::cut(&roots, broker.shim().journal()?, u64::from(round))?;
        println!("round {round}: the cut took {cut:?}");
        let first_back = round % 2 == 0;
        if first_back {
            scene.cluster.broker(leader).start()?;
        }
        scene.cluster.broker(second).resume()?;
        scene.cluster.broker(third).resume()?;
        if !first_back {
            scene.cluster.broker(leader).start()?;
        }
        scene.cluster.until_healed("t", 3).await?;
        burst(&mut scene, 2).await?;
    }
    let (verdict, _) = scene.finish().await?;
    assert!(verdict.acked > 0);
    Ok(())
}

fn checkpointed(log_dir: &Path) -> Option<i64> {
    let text = fs::read_to_string(log_dir.join("replication-offset-checkpoint")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("t 0 "))?;
    line.trim_end().parse().ok()
}

/// All are killed, and one that may not lead is up alone for a while, long enough to write its checkpoints anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b10_a_replica_without_a_leader_keeps_its_high_watermark() -> Outcome<()> {
    let mut scene = Scene::start(patient(Preload::Nothing), &[topic(1)]).await?;
    burst(&mut scene, 2).await?;
    let [leader, other, alone] = cast(&scene).await?;
    let log_dir = scene.cluster.broker(alone).log_dir().to_owned();
    let before = wait_for("its high watermark is written", SETTLE_MAX, || async {
        checkpointed(&log_dir).filter(|high_watermark| *high_watermark > 0)
    })
    .await?;
    scene.kill_and_expire(alone).await?;
    let alone_id = i64::from(alone);
    scene.until("it is out", ("t", 0), |state| !state.isr.contains(&alone_id)).await?;
    burst(&mut scene, 2).await?;
    scene.kill_and_expire(leader).await?;
    scene.kill_and_expire(other).await?;

    for _ in 0..2 {
        scene.cluster.broker(alone).start()?;
        scene.until("nobody leads", ("t", 0), |state| state.leader == -1).await?;
        scene.cluster.until_formed().await?;
        interval(CHECKPOINT * 3).await?;
        scene.kill_and_expire(alone).await?;
        assert!(checkpointed(&log_dir) >= Some(before), "{:?} {before}", checkpointed(&log_dir));
    }
    scene.cluster.start_all()?;
    scene.cluster.until_healed("t", 3).await?;
    burst(&mut scene, 2).await?;
    scene.finish().await?;
    Ok(())
}
