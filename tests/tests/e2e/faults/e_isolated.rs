//! E5: a leader that is cut off from ZooKeeper and from other replicas, but not from its clients, acknowledges nothing at acks=all.

use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::proxy::Link;
use barnabas_tests::scene::{Scene, until_leads};

use super::{proxied, topic, values};

/// How long a produce at acks=all may wait for its acknowledgement.
const TIMEOUT_MS: i32 = 1_500;

/// Sends to the cut-off leader while others lead: how many at acks=1 it took. At acks=all it must take none.
async fn tempt(address: &str, partition: i32, name: &str) -> Outcome<u64> {
    let mut taken = 0;
    for n in 0..3 {
        for acks in [1, -1] {
            let mut client = Client::connect(address).await?;
            let terms = Terms { acks, timeout_ms: TIMEOUT_MS, producer: None };
            let value = values(name, n..n + 1);
            let sent = client.produce_on("t", partition, terms, &value);
            let answer = tokio::time::timeout(Duration::from_secs(10), sent).await;
            match (acks, answer) {
                (-1, Ok(Ok(Answer::Appended(offset)))) => {
                    return Err(format!("acks=all was acknowledged at offset {offset}").into());
                }
                (1, Ok(Ok(Answer::Appended(_)))) => taken += 1,
                _ => {}
            }
        }
    }
    Ok(taken)
}

/// With `accomplice`, a follower is on the leader's side.
async fn isolated(accomplice: bool) -> Outcome<()> {
    let mut scene = Scene::start(proxied(2_000), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    // The controller itself: a leader elsewhere could still reach it by a path that no proxy is on.
    let leader = scene.controller().await?;
    let (friend, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let states = scene.znodes.partitions("t").await?;
    let led = states.iter().find(|(_, state)| state.leader == i64::from(leader));
    let partition = *led.ok_or("the controller leads nothing")?.0;
    let address = scene.cluster.broker(leader).config().listener.to_string();
    let cut: Vec<i32> = if accomplice { vec![leader, friend] } else { vec![leader] };
    for id in &cut {
        let links = scene.cluster.links(*id);
        links.admin.set(Link::Silent);
        links.zookeeper.set(Link::Silent);
        if !accomplice {
            links.kafka.set(Link::Silent);
        }
    }
    let survivors = if accomplice { vec![other] } else { vec![friend, other] };
    let state = scene
        .until("another leads", ("t", partition), |state| {
            survivors.iter().any(|id| state.leader == i64::from(*id))
        })
        .await?;
    // Until it has heard of that itself it follows the old leader, and what that one acknowledges is in its log.
    let new_leader = i32::try_from(state.leader)?;
    let elected = scene.cluster.broker(new_leader).config().listener.to_string();
    until_leads(&elected, "t", partition).await?;
    for value in values("cut-off", 0..3) {
        scene.oracles.sent(&value);
    }
    let taken = tempt(&address, partition, "cut-off").await?;
    println!("the cut-off leader took {taken} of 3 at acks=1, which are lost");
    if !accomplice {
        // min.insync.replicas are left, and go on.
        scene.progress(3).await?;
    }
    for id in cut {
        let links = scene.cluster.links(id);
        links.set(Link::Cut);
        links.set(Link::Whole);
    }
    scene.progress(3).await?;
    scene.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_leader_alone_acknowledges_nothing() -> Outcome<()> {
    isolated(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_leader_with_one_follower_on_its_side_acknowledges_nothing() -> Outcome<()> {
    isolated(true).await
}
