//! C4, C5, C8: what readers are told through elections: never less than before, never what is not committed, nothing to who knows
//! another epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client, Fetch};
use barnabas_tests::cluster::Options;
use barnabas_tests::load::Plan;
use barnabas_tests::proxy::Link;
use barnabas_tests::scene::{Scene, rounds, until_serves};
use barnabas_tests::wait::next_look;
use barnabas_tests::{Fault, Outcome};

use super::{proxied, topic, values};

fn quick() -> Options {
    Options { session_timeout_ms: 2_000, ..Options::default() }
}

/// Asks for the end as often as it is answered, of whoever answers as leader; the greatest answer, how many, and what went down.
async fn poll_latest(
    addresses: Vec<String>,
    partition: i32,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut greatest = 0;
    let mut clients: Vec<Option<Client>> = addresses.iter().map(|_| None).collect();
    while !stop.load(Ordering::SeqCst) {
        let mut answered = false;
        for (address, client) in addresses.iter().zip(&mut clients) {
            if client.is_none() {
                *client = Client::connect(address).await.ok();
            }
            let Some(open) = client else { continue };
            match open.latest("t", partition, -1).await {
                Ok(Ok(end)) => {
                    if end < greatest {
                        wrong.push(format!("partition {partition}: {end} after {greatest}"));
                    }
                    greatest = greatest.max(end);
                    asked.fetch_add(1, Ordering::SeqCst);
                    answered = true;
                }
                // NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE and the like.
                Ok(Err(_)) => {}
                Err(_) => *client = None,
            }
        }
        if !answered {
            next_look().await;
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_r14_the_last_offset_never_goes_back_through_elections() -> Outcome<()> {
    let mut scene = Scene::start(quick(), &[topic(3)]).await?;
    scene.load("t", 6).await?;
    let addresses: Vec<String> =
        scene.cluster.brokers().map(|b| b.config().listener.to_string()).collect();
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let polls: Vec<_> = (0..3)
        .map(|partition| {
            tokio::spawn(poll_latest(addresses.clone(), partition, stop.clone(), asked.clone()))
        })
        .collect();
    for round in 0..rounds(3) {
        let state = scene.until("somebody leads", ("t", 0), |state| state.leader >= 0).await?;
        let leader = i32::try_from(state.leader)?;
        scene.kill_and_expire(leader).await?;
        scene.progress(3).await.map_err(|error| Fault::from(format!("round {round}: {error}")))?;
        scene.start_and_heal(leader, "t").await?;
        scene.progress(3).await?;
    }
    stop.store(true, Ordering::SeqCst);
    for poll in polls {
        let wrong = poll.await?;
        assert!(wrong.is_empty(), "{wrong:?}");
    }
    println!("{} answers", asked.load(Ordering::SeqCst));
    scene.finish().await?;
    Ok(())
}

/// A leader does not hear that it was deposed, and is asked for what its successor has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_r14_a_leader_that_was_deposed_unawares_calls_nothing_out_of_range() -> Outcome<()> {
    let mut scene = Scene::start(proxied(2_000), &[topic(3)]).await?;
    let old = scene.controller().await? % 3 + 1;
    let states = scene.znodes.partitions("t").await?;
    let led = states.iter().find(|(_, state)| state.leader == i64::from(old));
    let partition = *led.ok_or("it leads nothing")?.0;
    let old_address = scene.cluster.broker(old).config().listener.to_string();
    until_serves(&old_address, "t", partition).await?;
    let mut client = scene.client(old).await?;
    let sent = values("before", 0..1);
    let answer = client.produce("t", partition, None, &sent).await?;
    let Answer::Appended(offset) = answer else { return Err(format!("{answer:?}").into()) };
    scene.oracles.expect("t", partition, offset, &sent[0]);

    scene.cluster.links(old).admin.set(Link::Silent);
    scene.cluster.links(old).zookeeper.set(Link::Silent);
    let state = scene
        .until("another leads", ("t", partition), |state| {
            state.leader >= 0 && state.leader != i64::from(old)
        })
        .await?;
    let new = i32::try_from(state.leader)?;
    let new_address = scene.cluster.broker(new).config().listener.to_string();
    let old_end = until_serves(&new_address, "t", partition).await?;
    let mut successor = scene.client(new).await?;
    for sent in values("after", 0..3).chunks(1) {
        let answer = successor.produce("t", partition, None, sent).await?;
        let Answer::Appended(offset) = answer else { return Err(format!("{answer:?}").into()) };
        scene.oracles.expect("t", partition, offset, &sent[0]);
    }
    let end = old_end + 3;
    for wait_ms in [0, 1_000] {
        let fetch = Fetch { offset: end, wait_ms, ..Fetch::default() };
        let fetched = client.fetch("t", partition, fetch).await?;
        assert_eq!(fetched.error, 6, "NOT_LEADER_OR_FOLLOWER, after {wait_ms} ms");
        // All the while it has held itself for the leader.
        assert_eq!(client.latest("t", partition, -1).await?, Ok(old_end));
    }
    // Nor that there is no such epoch as its successor's: that is a truncation to who has read the successor's records.
    let epoch = i32::try_from(state.leader_epoch)?;
    let in_doubt = client.epoch_end("t", partition, (-1, epoch)).await?;
    assert_eq!(in_doubt, Err(6), "NOT_LEADER_OR_FOLLOWER");
    assert_eq!(client.latest("t", partition, -1).await?, Ok(old_end));
    // Who leads says so, as soon as its followers have: also to who does not wait.
    let beyond = Fetch { offset: end + 1, ..Fetch::default() };
    assert_eq!(successor.fetch("t", partition, beyond).await?.error, 1, "OFFSET_OUT_OF_RANGE");
    let to_come = successor.epoch_end("t", partition, (-1, epoch + 1)).await?;
    assert_eq!(to_come, Ok((-1, -1)), "never known");
    scene.cluster.links(old).zookeeper.set(Link::Whole);
    scene.cluster.links(old).admin.set(Link::Cut);
    scene.cluster.links(old).admin.set(Link::Whole);
    scene.cluster.until_healed("t", 3).await?;
    scene.finish().await?;
    Ok(())
}

/// Segments that roll many times a second, producers at acks=1, consumers that do not wait, and leaders that are killed: the
/// oracles compare all that is read with the final log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_nothing_is_read_that_is_not_in_the_final_log() -> Outcome<()> {
    let small = &[("segment.bytes", "4096"), ("min.insync.replicas", "2")];
    let mut scene = Scene::start(quick(), &[NewTopic { configs: small, ..topic(2) }]).await?;
    scene.load_with("t", Plan { producers: 8, acks: 1, paced: true, ..Plan::default() }).await?;
    for _ in 0..rounds(2) {
        scene.progress(20).await?;
        let state = scene.until("somebody leads", ("t", 0), |state| state.leader >= 0).await?;
        let leader = i32::try_from(state.leader)?;
        let slow = leader % 3 + 1;
        // A follower that stands still holds the high watermark back.
        scene.cluster.broker(slow).pause()?;
        scene.progress(10).await?;
        scene.cluster.broker(slow).resume()?;
        // The other follower may have fallen behind, too: then nobody leads until this one is back.
        scene.kill_and_expire(leader).await?;
        scene.start_and_heal(leader, "t").await?;
        scene.progress(20).await?;
    }
    scene.still().await?;
    let segments = {
        let log_dir = scene.cluster.broker(1).log_dir().join("t-0");
        std::fs::read_dir(log_dir)?
            .filter_map(Result::ok)
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"))
            .count()
    };
    println!("{segments} segments");
    assert!(segments > 5, "{segments} segments");
    scene.finish().await?;
    Ok(())
}

const FENCED: i16 = 74;
const UNKNOWN: i16 = 75;
const NO_SESSION: i16 = 70;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_r29_who_knows_another_epoch_is_told_so_in_every_request() -> Outcome<()> {
    let mut scene = Scene::start(quick(), &[topic(1)]).await?;
    scene.load("t", 2).await?;
    scene.progress(5).await?;
    // An epoch that is not the first.
    let first = i32::try_from(scene.state("t", 0).await?.leader)?;
    scene.kill_and_expire(first).await?;
    scene.start_and_heal(first, "t").await?;
    scene.progress(5).await?;
    scene.still().await?;
    let state = scene.state("t", 0).await?;
    let leader = i32::try_from(state.leader)?;
    let epoch = i32::try_from(state.leader_epoch)?;
    assert!(epoch > 0);
    let address = scene.cluster.broker(leader).config().listener.to_string();
    let end = until_serves(&address, "t", 0).await?;
    let mut client = Client::connect(&address).await?;
    // Without a session, with a new one, and in one that the broker has not granted.
    for session in [(0, -1), (0, 0)] {
        for (known, error) in [(epoch - 1, FENCED), (epoch, 0), (epoch + 1, UNKNOWN), (-1, 0)] {
            for offset in [0, end] {
                let fetch = Fetch { offset, leader_epoch: known, session, ..Fetch::default() };
                let fetched = client.fetch("t", 0, fetch).await?;
                assert_eq!(fetched.error, error, "epoch {known} of {epoch}, session {session:?}");
                assert_eq!(fetched.records.is_empty(), error != 0 || offset == end);
            }
        }
    }
    for (known, error) in [(epoch - 1, FENCED), (epoch, 0), (epoch + 1, UNKNOWN)] {
        let refused = (error != 0).then_some(error);
        let incremental = Fetch { leader_epoch: known, session: (77, 3), ..Fetch::default() };
        assert_eq!(client.fetch("t", 0, incremental).await?.error, NO_SESSION);
        assert_eq!(client.latest("t", 0, known).await?.err(), refused, "last offset");
        let end_of_epoch = client.epoch_end("t", 0, (known, 0)).await?;
        assert_eq!(end_of_epoch.err(), refused, "end of an epoch");
    }
    // (largest epoch up to the one asked for, its end): not the present one, and nothing for one to come.
    let Ok((found, end_of_first)) = client.epoch_end("t", 0, (epoch, 0)).await? else {
        return Err("no end of the first epoch".into());
    };
    assert!(found == 0 && end_of_first > 0 && end_of_first <= end, "{found} {end_of_first}");
    let to_come = client.epoch_end("t", 0, (epoch, epoch + 5)).await?;
    assert!(matches!(to_come, Ok((_, -1))) || to_come.is_err(), "{to_come:?}");
    // None of it moved anything.
    assert_eq!(scene.state("t", 0).await?, state);
    assert_eq!(client.end_offset("t", 0).await?, end);
    // Followers and replicas are not to be played on this request.
    for other in (1..=3).filter(|id| *id != leader) {
        let mut follower = scene.client(other).await?;
        let fetched =
            follower.fetch("t", 0, Fetch { leader_epoch: epoch, ..Fetch::default() }).await?;
        assert_eq!(fetched.error, 6, "broker {other}");
    }
    scene.load("t", 2).await?;
    scene.finish().await?;
    Ok(())
}
