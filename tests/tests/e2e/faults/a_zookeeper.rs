//! A7: ZooKeeper goes away, for long or again and again, or ends every session at once.

use std::time::{Duration, Instant};

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Options, SETTLE_MAX};
use barnabas_tests::oracles::healed::until_healed;
use barnabas_tests::prng::Prng;
use barnabas_tests::scene::{Scene, rounds};
use barnabas_tests::sessions;
use barnabas_tests::wait::wait_for;
use rustix::process::Signal;

use super::topic;
use crate::e2e::interval;

const SESSION: Duration = Duration::from_millis(2_000);
/// Three sessions, and a bit.
const OUTAGE: Duration = Duration::from_millis(6_500);

fn options() -> Options {
    let session_timeout_ms = u32::try_from(SESSION.as_millis()).unwrap_or(u32::MAX);
    Options { session_timeout_ms, ..Options::default() }
}

/// `BARNABAS_ROUNDS=10` makes it a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_while_zookeeper_is_away_producers_and_consumers_notice_nothing() -> Outcome<()> {
    let mut scene = Scene::start(options(), &[topic(3)]).await?;
    scene.load("t", 6).await?;
    let old = scene.sessions().await?;
    let (before, _) = scene.errors();
    scene.cluster.stop_zookeeper();
    let began = Instant::now();
    let mut progress = 0;
    while began.elapsed() < OUTAGE * rounds(1) {
        // Both go on all the time, not only in the beginning.
        let seen = scene.oracles.seen();
        scene.progress(1).await?;
        wait_for("consumers get records", SETTLE_MAX, || async {
            (scene.oracles.seen() > seen).then_some(())
        })
        .await?;
        progress += 1;
    }
    assert!(progress > 0);
    let (after, told) = scene.errors();
    assert_eq!(after, before, "producers were told {told}");

    scene.cluster.start_zookeeper().await?;
    scene.znodes = scene.cluster.znodes().await?;
    scene.until_registered_anew(&old).await?;
    scene.progress(5).await?;
    let (verdict, accounts) = scene.finish().await?;
    let pause = accounts.iter().map(|account| account.longest_pause()).max();
    println!("{} records, {progress} steps meanwhile, longest pause {pause:?}", verdict.acked);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_zookeeper_comes_and_goes_while_topics_are_made() -> Outcome<()> {
    let mut scene = Scene::start(options(), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    let mut prng = Prng::new(7);
    let mut made = Vec::new();
    for round in 0..rounds(6) {
        let name = format!("made-{round}");
        let admin = scene.cluster.admin().await?;
        let creation = {
            let name = name.clone();
            tokio::spawn(async move {
                let new =
                    NewTopic { name: &name, partitions: 2, replication_factor: 3, configs: &[] };
                admin.create_topic(new).await.is_ok()
            })
        };
        interval(Duration::from_millis(prng.below(50))).await?;
        if prng.one_in(3) {
            scene.cluster.stop_zookeeper();
            scene.cluster.start_zookeeper().await?;
        } else {
            scene.cluster.signal_zookeeper(Signal::STOP)?;
            let ms = u64::try_from(SESSION.as_millis())? * 3 / 2;
            interval(Duration::from_millis(prng.below(ms))).await?;
            scene.cluster.signal_zookeeper(Signal::CONT)?;
        }
        if creation.await? {
            made.push(name);
        }
        scene.progress(1).await?;
    }
    scene.znodes = scene.cluster.znodes().await?;
    until_healed(&mut scene.cluster, "t").await?;
    for name in &made {
        // What was answered as done is there.
        until_healed(&mut scene.cluster, name).await?;
    }
    println!("{} of {} creations were answered as done", made.len(), rounds(6));
    scene.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_all_sessions_expire_at_random_moments() -> Outcome<()> {
    let mut scene = Scene::start(options(), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    let mut prng = Prng::new(20);
    for round in 0..rounds(20) {
        interval(Duration::from_millis(prng.below(600))).await?;
        let old = scene.sessions().await?;
        for (_, session) in &old {
            sessions::expire(scene.cluster.zookeeper_connect(), *session).await?;
        }
        if prng.one_in(2) {
            scene.until_registered_anew(&old).await?;
            let healed = until_healed(&mut scene.cluster, "t").await;
            healed.map_err(|error| format!("round {round}: {error}"))?;
        }
    }
    scene.progress(5).await?;
    scene.finish().await?;
    Ok(())
}
