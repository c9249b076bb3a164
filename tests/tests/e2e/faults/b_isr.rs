//! B1, B4, B7: the ISR follows what is so, releases who waits for it, and does not move without a cause.

use std::path::Path;
use std::time::{Duration, Instant};

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::proxy::Link;
use barnabas_tests::scene::{Scene, rounds, until_serves};
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::PartitionNode;

use super::{proxied, topic, values};
use crate::e2e::interval;

/// `replica.lag.time.max.ms` of [`Options::default`].
const LAG: Duration = Duration::from_millis(2_000);

fn isr_is(state: &PartitionNode, members: &[i32]) -> bool {
    let mut isr: Vec<i32> = state.isr.iter().filter_map(|id| i32::try_from(*id).ok()).collect();
    isr.sort_unstable();
    isr == members
}

/// A partition of `t` that this broker leads.
async fn led_by(scene: &Scene, broker: i32, topic: &str) -> Outcome<i32> {
    let states = scene.znodes.partitions(topic).await?;
    let mut led = states.iter().filter(|(_, state)| state.leader == i64::from(broker));
    Ok(*led.next().ok_or("it leads nothing")?.0)
}

/// By turns the answer to the leader is lost, or ZooKeeper's answer to the controller: either way the ISR has changed, and who
/// asked for it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_an_isr_change_whose_answer_is_lost_is_found_out() -> Outcome<()> {
    let mut scene = Scene::start(proxied(12_000), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    for round in 0..rounds(1) * 2 {
        let controller = scene.controller().await?;
        let (leader, follower) = (controller % 3 + 1, (controller + 1) % 3 + 1);
        let partition = led_by(&scene, leader, "t").await?;
        let link = |scene: &Scene, link: Link| {
            let links = scene.cluster.links(controller);
            if round % 2 == 0 {
                links.admin.set(link)
            } else {
                links.zookeeper.set(link)
            }
            if round % 2 == 0 {
                // Nor does it hear of the change by the push that follows.
                scene.cluster.links(leader).admin.set(match link {
                    Link::HoldReplies => Link::HoldRequests,
                    other => other,
                });
            }
        };
        link(&scene, Link::HoldReplies);
        scene.cluster.broker(follower).pause()?;
        let shrunk = scene
            .until("the ISR without the follower is stored", ("t", partition), |state| {
                !state.isr.contains(&i64::from(follower))
            })
            .await;
        link(&scene, Link::Cut);
        link(&scene, Link::Whole);
        scene.cluster.broker(follower).resume()?;
        let shrunk = shrunk?;
        scene
            .until("the follower is back in the ISR", ("t", partition), |state| {
                state.isr.len() == 3 && state.version > shrunk.version
            })
            .await?;
        scene.progress(5).await?;
    }
    scene.finish().await?;
    Ok(())
}

/// The leader's session ends while it hears nothing of ZooKeeper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_leader_that_was_deposed_unawares_follows() -> Outcome<()> {
    let mut scene = Scene::start(proxied(2_000), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    for _ in 0..rounds(2) {
        let controller = scene.controller().await?;
        let leader = controller % 3 + 1;
        let partition = led_by(&scene, leader, "t").await?;
        scene.cluster.links(leader).zookeeper.set(Link::Silent);
        scene
            .until("another leads", ("t", partition), |state| {
                state.leader >= 0 && state.leader != i64::from(leader)
            })
            .await?;
        scene.cluster.links(leader).zookeeper.set(Link::Whole);
        scene.until("it is back", ("t", partition), |state| isr_is(state, &[1, 2, 3])).await?;
        scene.progress(5).await?;
        // The next round needs leaders on every broker again.
        let admin = scene.cluster.admin_address(controller);
        run_program(&["leader", "elect", "--preferred", "t", "--admin", &admin]).await?;
        for (partition, replicas) in scene.znodes.assignment("t").await? {
            scene
                .until("its preferred replica leads", ("t", partition), |state| {
                    Some(&state.leader) == replicas.first()
                })
                .await?;
        }
    }
    scene.finish().await?;
    Ok(())
}

/// One record, nothing else, and both followers stand still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b4_a_shrinking_isr_releases_the_producers_that_wait() -> Outcome<()> {
    let options = Options { session_timeout_ms: 20_000, ..Options::default() };
    let one = &[("min.insync.replicas", "1")];
    let topics =
        [topic(3), NewTopic { name: "one", partitions: 3, replication_factor: 3, configs: one }];
    let mut scene = Scene::start(options, &topics).await?;
    let leader = scene.controller().await?;
    let followers: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    for (name, min) in [("one", 1), ("t", 2)] {
        let partition = led_by(&scene, leader, name).await?;
        let address = scene.cluster.broker(leader).config().listener.to_string();
        let end = until_serves(&address, name, partition).await?;
        // The pauses of the last turn have shrunk this partition's ISR as well.
        scene
            .until("its ISR is whole", (name, partition), |state| isr_is(state, &[1, 2, 3]))
            .await?;
        for follower in &followers {
            scene.cluster.broker(*follower).pause()?;
        }
        let mut client = scene.client(leader).await?;
        let terms = Terms { timeout_ms: 60_000, ..Terms::default() };
        let began = Instant::now();
        let answer = client.produce_on(name, partition, terms, &values(name, 0..1)).await;
        let waited = began.elapsed();
        for follower in &followers {
            scene.cluster.broker(*follower).resume()?;
        }
        println!("min.insync.replicas {min}: {answer:?} after {waited:?}");
        match (min, answer?) {
            (1, Answer::Appended(offset)) => {
                assert_eq!(offset, end);
                scene.oracles.expect(name, partition, offset, &values(name, 0..1)[0]);
            }
            (2, Answer::Refused(20, _)) => scene.oracles.sent(&values(name, 0..1)[0]),
            (_, answer) => return Err(format!("min.insync.replicas {min}: {answer:?}").into()),
        }
        assert!(waited >= LAG / 2, "it had to wait for the ISR: {waited:?}");
        scene.until("all are back", (name, partition), |state| isr_is(state, &[1, 2, 3])).await?;
        // With error 20 the record stays, and counts now.
        let end_now = until_serves(&address, name, partition).await?;
        assert_eq!(end_now, end + 1, "{name}");
    }
    scene.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b7_neither_idle_partitions_nor_a_leaders_own_pause_move_an_isr() -> Outcome<()> {
    let options = Options { session_timeout_ms: 30_000, ..Options::default() };
    let idle = NewTopic { name: "idle", partitions: 100, replication_factor: 3, configs: &[] };
    let mut scene = Scene::start(options, &[idle, topic(1)]).await?;
    // What was written once is no reason either.
    scene.load("t", 1).await?;
    scene.still().await?;
    let before = scene.znodes.partitions("idle").await?;
    let written = scene.state("t", 0).await?;
    interval(LAG * 4 * rounds(1)).await?;
    assert_eq!(scene.znodes.partitions("idle").await?, before, "idle partitions");
    for id in 1..=3 {
        scene.cluster.broker(id).pause()?;
        interval(LAG * 3 / 2).await?;
        scene.cluster.broker(id).resume()?;
        interval(LAG / 2).await?;
        assert_eq!(scene.znodes.partitions("idle").await?, before, "after a pause of broker {id}");
    }
    interval(LAG * 2).await?;
    assert_eq!(scene.znodes.partitions("idle").await?, before);
    assert_eq!(scene.state("t", 0).await?, written);
    scene.finish().await?;
    Ok(())
}

/// What a follower had sent over a connection that it gave up comes when its next one is long at work, and must not put it back:
/// neither the follower nor a producer that waits has anything more to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b7_what_comes_late_over_a_connection_that_was_given_up_holds_nothing_back() -> Outcome<()>
{
    let lag = "replica.lag.time.max.ms: 120000\n".to_owned();
    let mut cluster = Cluster::start(Options { config: lag, ..proxied(30_000) }).await?;
    cluster.admin().await?.create_topic(topic(1)).await?;
    cluster.until_healed("t", 3).await?;
    let state = cluster.znodes().await?.partitions("t").await?[&0].clone();
    let leader = i32::try_from(state.leader)?;
    let (first, second) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let has = |directory: &Path, value: &[u8]| {
        let log = directory.join("t-0").join(format!("{:020}.log", 0));
        std::fs::read(log).is_ok_and(|log| log.windows(value.len()).any(|found| found == value))
    };
    let address = cluster.broker(leader).config().listener.to_string();
    let mut client = Client::connect(&address).await?;
    let terms = Terms { timeout_ms: 60_000, ..Terms::default() };
    // The followers get the record, and are not heard with what they say of it until they dial anew.
    cluster.links(leader).kafka.set(Link::HoldOpenRequests);
    let values = values("late", 0..2);
    assert_eq!(client.produce_on("t", 0, terms, &values[..1]).await?, Answer::Appended(0));
    cluster.broker(second).pause()?;
    client.post("t", 0, terms, &values[1..]).await?;
    let directory = cluster.broker(first).log_dir().to_owned();
    wait_for("one follower has it", SETTLE_MAX, || async {
        has(&directory, &values[1]).then_some(())
    })
    .await?;
    let kafka = &cluster.links(leader).kafka;
    kafka.set(Link::Whole);
    // Unless the leader has given the old connections up by itself.
    wait_for("nothing is on its way", SETTLE_MAX, || async { (kafka.held() == 0).then_some(()) })
        .await?;
    cluster.broker(second).resume()?;
    let answer = tokio::time::timeout(SETTLE_MAX / 2, client.posted()).await;
    assert_eq!(answer.map_err(|_| "it is not acknowledged")??, Answer::Appended(1));
    Ok(())
}
