//! E1, E3, E6: what producers may rely on: repeats are known again, ids outlive their records, and min.insync.replicas means what
//! Kafka's does.

use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client, Producer, Terms};
use barnabas_tests::cluster::{Options, SETTLE_MAX};
use barnabas_tests::proxy::Link;
use barnabas_tests::replicas::log_bytes;
use barnabas_tests::scene::{Scene, rounds, until_serves};
use barnabas_tests::wait::wait_for;

use super::{proxied, topic, values};
use crate::e2e::interval;

/// Batches in flight: what a leader remembers of each producer.
const IN_FLIGHT: usize = 5;
const DUPLICATE_SEQUENCE: i16 = 46;

/// The leader of `t-0` as its clients reach it, once it serves.
async fn leader(scene: &Scene) -> Outcome<(i32, String)> {
    wait_for("somebody leads and serves", SETTLE_MAX, || async {
        let state = scene.state("t", 0).await.ok()?;
        let leader = i32::try_from(state.leader).ok().filter(|leader| *leader >= 0)?;
        let address = Client::leader(&scene.cluster.bootstrap(), 0, "t", 0).await.ok()?;
        let known = Client::connect(&address).await.ok()?.end_offset("t", 0).await;
        known.ok().map(|_| (leader, address))
    })
    .await
}

/// Five batches in flight, whose answers are lost; then the leader may die; then all five are sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_batches_that_are_sent_again_are_there_once() -> Outcome<()> {
    let mut scene = Scene::start(proxied(3_000), &[topic(1)]).await?;
    let (_, address) = leader(&scene).await?;
    let producer = Client::connect(&address).await?.producer().await?;
    let mut next = 0;
    for round in 0..rounds(6) {
        let (leads, address) = leader(&scene).await?;
        let mut client = Client::connect(&address).await?;
        let end = client.end_offset("t", 0).await?;
        scene.cluster.links(leads).kafka.set(Link::HoldReplies);
        let terms = |n: usize| Terms {
            producer: Some(Producer { sequence: i32::try_from(n).unwrap_or(0), ..producer }),
            ..Terms::default()
        };
        for n in next..next + IN_FLIGHT {
            client.post("t", 0, terms(n), &values("e1", n..n + 1)).await?;
        }
        // Followers are served by the same listener: what they do not hear is not acknowledged, but it is in the leader's log.
        let log_dir = scene.cluster.broker(leads).log_dir().to_owned();
        let last = format!("e1:{}", next + IN_FLIGHT - 1).into_bytes();
        wait_for("all are in the leader's log", SETTLE_MAX, || async {
            let bytes = log_bytes(&log_dir, "t", 0).ok()?;
            bytes.windows(last.len()).any(|window| window == last).then_some(())
        })
        .await?;
        let kill = round % 3 == 2;
        if kill {
            scene.kill_and_expire(leads).await?;
        }
        scene.cluster.links(leads).kafka.set(Link::Cut);
        scene.cluster.links(leads).kafka.set(Link::Whole);
        drop(client);
        let (_, address) = leader(&scene).await?;
        let mut client = Client::connect(&address).await?;
        for n in next..next + IN_FLIGHT {
            client.post("t", 0, terms(n), &values("e1", n..n + 1)).await?;
        }
        for n in next..next + IN_FLIGHT {
            match client.posted().await? {
                Answer::Appended(offset) => {
                    let expected = end + i64::try_from(n - next)?;
                    assert_eq!(offset, expected, "round {round}, batch {n}: where it is at first");
                    scene.oracles.expect("t", 0, offset, &values("e1", n..n + 1)[0]);
                }
                Answer::Refused(DUPLICATE_SEQUENCE, _) => {}
                answer => return Err(format!("round {round}, batch {n}: {answer:?}").into()),
            }
        }
        let now = client.end_offset("t", 0).await?;
        assert_eq!(now, end + i64::try_from(IN_FLIGHT)?, "round {round}: each is there once");
        next += IN_FLIGHT;
        if kill {
            scene.start_and_heal(leads, "t").await?;
        }
    }
    scene.finish().await?;
    Ok(())
}

/// Its records are gone by retention or deletion, and all brokers restart, between two batches of an idempotent producer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_producer_is_known_when_its_records_are_gone() -> Outcome<()> {
    let configs = &[
        ("retention.ms", "500"),
        ("segment.bytes", "4096"),
        ("segment.ms", "200"),
        ("min.insync.replicas", "2"),
    ];
    let options = Options {
        session_timeout_ms: 2_000,
        config: "replica.lag.time.max.ms: 2000\nlog.retention.check.interval.ms: 100\n".to_owned(),
        ..Options::default()
    };
    let short = NewTopic { configs, ..topic(1) };
    let cluster = barnabas_tests::cluster::Cluster::start(options).await?;
    let allowed = barnabas_tests::oracles::Promise::LossAllowed;
    let mut scene = Scene::on(cluster, &[short], allowed).await?;
    let (_, address) = leader(&scene).await?;
    let producer = Client::connect(&address).await?.producer().await?;
    let mut end = 0;
    for sequence in 0..i32::try_from(4 * rounds(1))? {
        // Until there is a leader; whatever else it is told is an error.
        let terms = Terms { producer: Some(Producer { sequence, ..producer }), ..Terms::default() };
        let n = usize::try_from(sequence)?;
        let (leads, address) = leader(&scene).await?;
        let mut client = Client::connect(&address).await?;
        let answer = client.produce_on("t", 0, terms, &values("e3", n..n + 1)).await?;
        assert_eq!(answer, Answer::Appended(end), "batch {sequence}");
        end += 1;
        match sequence % 4 {
            0 => {
                let answer = client.delete_records("t", 0, -1).await?;
                assert_eq!(answer, Ok(end), "all are deleted");
            }
            1 => {
                let log_dir = scene.cluster.broker(leads).log_dir().to_owned();
                wait_for("retention takes the record", SETTLE_MAX, || async {
                    log_bytes(&log_dir, "t", 0).ok()?.is_empty().then_some(())
                })
                .await?;
            }
            2 => {
                interval(Duration::from_millis(700)).await?;
                let before = scene.znodes.partitions("t").await?;
                scene.cluster.kill_all().await?;
                scene.cluster.start_all()?;
                scene.cluster.until_healed_since("t", 3, &before).await?;
            }
            _ => {
                scene.kill_and_expire(leads).await?;
                scene.start_and_heal(leads, "t").await?;
            }
        }
    }
    Ok(())
}

/// acks, and what a produce is answered with so many members of the ISR at this min.insync.replicas: `None` is success.
fn due(acks: i16, isr: usize, min: usize) -> Option<i16> {
    match acks {
        1 => None,
        -1 if isr < min => Some(19),
        -1 => None,
        _ => Some(21),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e6_min_insync_replicas_with_every_acks_and_isr() -> Outcome<()> {
    let names = ["min-1", "min-2", "min-3"];
    let settings = [
        [("min.insync.replicas", "1")],
        [("min.insync.replicas", "2")],
        [("min.insync.replicas", "3")],
    ];
    let topics: Vec<NewTopic<'_>> = names
        .iter()
        .zip(&settings)
        .map(|(name, configs)| NewTopic { name, configs, ..topic(1) })
        .collect();
    let options = Options { session_timeout_ms: 2_000, ..Options::default() };
    let mut scene = Scene::start(options, &topics).await?;
    let four = NewTopic { name: "min-4", configs: &[("min.insync.replicas", "4")], ..topic(1) };
    let refused = scene.cluster.admin().await?.create_topic(four).await;
    let refused = refused.err().ok_or("min.insync.replicas above the replication factor")?;
    assert!(refused.to_string().contains("min.insync.replicas"), "{refused}");

    for isr in [3, 2, 1] {
        for (name, min) in names.iter().zip(1..) {
            let state = scene
                .until("the ISR has shrunk", (name, 0), |state| {
                    state.isr.len() == isr && state.leader >= 0
                })
                .await?;
            let leads = i32::try_from(state.leader)?;
            let address = scene.cluster.broker(leads).config().listener.to_string();
            let log_dir = scene.cluster.broker(leads).log_dir().to_owned();
            wait_for("the leader has heard of it", SETTLE_MAX, || async {
                let mut client = Client::connect(&address).await.ok()?;
                let answer = client.produce(name, 0, None, &values("probe", 0..1)).await.ok()?;
                let told = match answer {
                    Answer::Appended(_) => None,
                    Answer::Refused(code, _) => Some(code),
                };
                (told == due(-1, isr, min)).then_some(())
            })
            .await?;
            for acks in [1, -1, 2, -2] {
                let mut client = Client::connect(&address).await?;
                let before = log_bytes(&log_dir, name, 0)?.len();
                let terms = Terms { acks, ..Terms::default() };
                let answer = client.produce_on(name, 0, terms, &values("e6", 0..1)).await?;
                let shown = format!("acks {acks}, ISR {isr}, min {min}: {answer:?}");
                let appended = log_bytes(&log_dir, name, 0)?.len() > before;
                match (due(acks, isr, min), answer) {
                    (None, Answer::Appended(_)) => assert!(appended, "{shown}"),
                    (Some(code), Answer::Refused(told, _)) => {
                        assert!(code == told && !appended, "{shown}");
                    }
                    _ => panic!("{shown}"),
                }
            }
            // acks=0: no answer, so that the next answer is that of the next request.
            let mut client = Client::connect(&address).await?;
            let terms = Terms { acks: 0, ..Terms::default() };
            let before = log_bytes(&log_dir, name, 0)?.len();
            client.post(name, 0, terms, &values("e6", 0..1)).await?;
            client.latest(name, 0, -1).await?.ok();
            assert!(log_bytes(&log_dir, name, 0)?.len() > before, "acks=0, ISR {isr}, min {min}");
            // And a broker that does not lead hangs up.
            let mut running = Vec::new();
            for broker in scene.cluster.brokers() {
                if broker.id() != leads && broker.runs() {
                    running.push(broker.id());
                }
            }
            for id in running {
                let mut other = scene.client(id).await?;
                other.post(name, 0, terms, &values("e6", 0..1)).await?;
                other.until_closed().await?;
            }
        }
        if isr > 1 {
            // Not the controller, and one that leads nothing more than it must.
            let controller = scene.controller().await?;
            let mut alive = Vec::new();
            for broker in scene.cluster.brokers() {
                if broker.id() != controller && broker.runs() {
                    alive.push(broker.id());
                }
            }
            scene.kill_and_expire(*alive.first().ok_or("nobody is left")?).await?;
        }
    }
    scene.cluster.start_all()?;
    for name in names {
        scene.cluster.until_healed(name, 3).await?;
        let state = scene.state(name, 0).await?;
        let leads = i32::try_from(state.leader)?;
        let address = scene.cluster.broker(leads).config().listener.to_string();
        until_serves(&address, name, 0).await?;
    }
    scene.finish().await?;
    Ok(())
}
