//! C1, C2, C3, C7: logs that differ are cut where their epochs part, never at a high watermark, never to nothing.

use std::collections::BTreeSet;
use std::fs::OpenOptions;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use barnabas_tests::load::{Load, Target};
use barnabas_tests::oracles::Promise;
use barnabas_tests::oracles::healed::until_healed;
use barnabas_tests::power;
use barnabas_tests::proxy::Link;
use barnabas_tests::replicas::log_size;
use barnabas_tests::scene::{Scene, rounds, until_serves};
use barnabas_tests::wait::wait_for;
use barnabas_tests::{losses, sessions};

use super::b_leaders::{burst, cast, patient};
use super::{topic, values};

/// acks=1, and nobody else has it.
const LEADER_ONLY: Terms = Terms { acks: 1, timeout_ms: 10_000, producer: None };

/// Appends records at a leader, as soon as it has heard that it is one.
async fn append(scene: &mut Scene, broker: i32, name: &str, count: usize) -> Outcome<()> {
    let address = scene.cluster.broker(broker).config().listener.to_string();
    for n in 0..count {
        scene.oracles.sent(&values(name, n..n + 1)[0]);
        wait_for(&format!("broker {broker} takes {name}"), SETTLE_MAX, || async {
            let mut client = Client::connect(&address).await.ok()?;
            let answer = client.produce_on("t", 0, LEADER_ONLY, &values(name, n..n + 1)).await;
            matches!(answer, Ok(Answer::Appended(_))).then_some(())
        })
        .await?;
    }
    Ok(())
}

async fn leader(scene: &Scene) -> Outcome<i32> {
    let state = scene.until("somebody leads", ("t", 0), |state| state.leader >= 0).await?;
    Ok(i32::try_from(state.leader)?)
}

/// A follower restarts, whose high watermark is one fetch behind; as soon as it is registered its leader is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_r15_a_restarted_follower_keeps_what_it_has_acknowledged() -> Outcome<()> {
    let two = NewTopic { replication_factor: 2, configs: &[], ..topic(1) };
    let options = Options { brokers: 2, ..patient(Preload::Nothing) };
    let mut scene = Scene::start(options, &[two]).await?;
    for round in 0..rounds(3) {
        let leads = leader(&scene).await?;
        let follower = 3 - leads;
        let name = format!("round-{round}");
        let address = scene.cluster.broker(leads).config().listener.to_string();
        until_serves(&address, "t", 0).await?;
        let mut client = scene.client(leads).await?;
        for n in 0..2 {
            let value = values(&name, n..n + 1);
            match client.produce("t", 0, None, &value).await? {
                Answer::Appended(offset) => scene.oracles.expect("t", 0, offset, &value[0]),
                answer => return Err(format!("{answer:?}").into()),
            }
        }
        let before = scene.sessions().await?;
        let before: Vec<_> = before.into_iter().filter(|(id, _)| *id == follower).collect();
        scene.kill_and_expire(follower).await?;
        scene.cluster.broker(follower).start()?;
        scene.until_registered_anew(&before).await?;
        scene.kill_and_expire(leads).await?;
        scene.start_and_heal(leads, "t").await?;
    }
    scene.finish().await?;
    Ok(())
}

/// Both of two replicas lose power; the follower is back first and takes records; then the leader is back In async mode acknowledged records may be gone, but no two replicas may differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_two_replicas_that_lost_power_agree_in_the_end() -> Outcome<()> {
    let cluster = Cluster::start(Options { brokers: 2, ..patient(Preload::Journal) }).await?;
    let two = NewTopic { replication_factor: 2, configs: &[], ..topic(1) };
    let mut scene = Scene::on(cluster, &[two], Promise::LossAllowed).await?;
    for round in 0..rounds(2) {
        burst(&mut scene, 2).await?;
        let leader = i32::try_from(scene.state("t", 0).await?.leader)?;
        let follower = 3 - leader;
        scene.cluster.kill_all().await?;
        for id in [leader, follower] {
            let znodes = scene.znodes.clone();
            sessions::expire_broker(scene.cluster.zookeeper_connect(), &znodes, id).await?;
            let broker = scene.cluster.broker(id);
            let roots = broker.config().log_dirs.clone();
            power::cut(
                &roots,
                broker.shim().journal()?,
                u64::from(round) << 8 | u64::try_from(id)?,
            )?;
        }
        let target =
            Target { bootstrap: scene.cluster.bootstrap(), topic: "t".to_owned(), partitions: 1 };
        scene.cluster.broker(follower).start()?;
        // They are taken as soon as somebody leads, whoever that is.
        let load = Load::start(&target, 1, 1000 + usize::try_from(round)?, 3);
        scene.cluster.broker(leader).start()?;
        scene.cluster.until_healed("t", 2).await?;
        wait_for("records are taken again", SETTLE_MAX, || async {
            load.batches().iter().all(|batches| *batches > 3).then_some(())
        })
        .await?;
        load.stop().await?;
    }
    scene.finish().await?;
    Ok(())
}

/// Five changes of leader in a row with none, one or two records that only the old one has, while the third replica is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_r15_many_short_epochs_end_in_one_log() -> Outcome<()> {
    let one = NewTopic { configs: &[], ..topic(1) };
    let options = Options {
        session_timeout_ms: 10_000,
        config: "replica.lag.time.max.ms: 8000\n".to_owned(),
        ..Options::default()
    };
    let mut scene = Scene::start(options, &[one]).await?;
    burst(&mut scene, 2).await?;
    let [.., away] = cast(&scene).await?;
    scene.kill_and_expire(away).await?;
    for change in 0..5 * rounds(1) {
        let leads = leader(&scene).await?;
        let other = (1..=3).find(|id| *id != leads && *id != away).ok_or("no other")?;
        scene.cluster.broker(other).pause()?;
        let count = usize::try_from(change % 3)?;
        let appended = append(&mut scene, leads, &format!("change-{change}"), count).await;
        let killed = scene.kill_and_expire(leads).await;
        scene.cluster.broker(other).resume()?;
        appended?;
        killed?;
        scene.until("the other leads", ("t", 0), |s| s.leader == i64::from(other)).await?;
        scene.cluster.broker(leads).start()?;
        scene.until("both are in sync", ("t", 0), |state| state.isr.len() == 2).await?;
    }
    scene.start_and_heal(away, "t").await?;
    burst(&mut scene, 2).await?;
    scene.finish().await?;
    Ok(())
}

/// A follower hears nothing from the controller while its leader is deposed and elected again, and has a record that nobody else has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_follower_that_missed_an_epoch_of_the_same_leader_is_reconciled() -> Outcome<()> {
    // Broker 4 is there first, so that it is the controller and none of the three is.
    let options = Options {
        brokers: 4,
        proxied: true,
        start: false,
        session_timeout_ms: 10_000,
        config: "replica.lag.time.max.ms: 4000\n".to_owned(),
        ..Options::default()
    };
    let mut cluster = Cluster::start(options).await?;
    cluster.broker(4).start()?;
    cluster.until_formed().await?;
    cluster.start_all()?;
    cluster.until_formed().await?;
    // Replicas 1, 3, 2: after 1 comes 3, and 1 before 2.
    let assignment = &[(0, &[1, 3, 2][..])];
    cluster.admin().await?.create_assigned("t", assignment).await?;
    cluster.until_healed("t", 3).await?;
    let mut scene = Scene::with(cluster, &["t"], Promise::Kept).await?;
    for round in 0..rounds(2) {
        assert_eq!((scene.controller().await?, leader(&scene).await?), (4, 1), "round {round}");
        burst(&mut scene, 1).await?;
        scene.cluster.links(2).admin.set(Link::Silent);
        scene.cluster.broker(3).pause()?;
        append(&mut scene, 1, &format!("only-1-and-2-{round}"), 1).await?;
        let (one, two) = (
            scene.cluster.broker(1).log_dir().to_owned(),
            scene.cluster.broker(2).log_dir().to_owned(),
        );
        wait_for("2 has it, too", SETTLE_MAX, || async {
            (log_size(&one, "t", 0).ok()? == log_size(&two, "t", 0).ok()?).then_some(())
        })
        .await?;
        scene.kill_and_expire(1).await?;
        scene.cluster.broker(3).resume()?;
        scene.until("3 leads", ("t", 0), |state| state.leader == 3).await?;
        append(&mut scene, 3, &format!("only-3-{round}"), 2).await?;
        scene.cluster.broker(1).start()?;
        scene.until("1 is in sync", ("t", 0), |state| state.isr.contains(&1)).await?;
        scene.kill_and_expire(3).await?;
        scene.until("1 leads again", ("t", 0), |state| state.leader == 1).await?;
        append(&mut scene, 1, &format!("again-{round}"), 1).await?;
        scene.cluster.links(2).admin.set(Link::Cut);
        scene.cluster.links(2).admin.set(Link::Whole);
        scene.start_and_heal(3, "t").await?;
    }
    scene.finish().await?;
    Ok(())
}

/// Some of a log is cut away while all are down, and its broker is back first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_a_log_that_came_back_shorter_is_named_and_harms_no_other() -> Outcome<()> {
    let other = NewTopic { name: "other", ..topic(3) };
    let cluster = Cluster::start(patient(Preload::Nothing)).await?;
    let mut scene = Scene::on(cluster, &[topic(1), other], Promise::LossAllowed).await?;
    scene.load("other", 3).await?;
    let mut sent = BTreeSet::new();
    let leads = leader(&scene).await?;
    let address = scene.cluster.broker(leads).config().listener.to_string();
    until_serves(&address, "t", 0).await?;
    let mut client = scene.client(leads).await?;
    for n in 0..40 {
        let answer = client.produce("t", 0, None, &values("t", n..n + 1)).await?;
        assert!(matches!(answer, Answer::Appended(_)), "{answer:?}");
        sent.insert(n);
    }
    scene.still().await?;
    let old = scene.sessions().await?;
    scene.cluster.kill_all().await?;
    for (_, session) in old {
        sessions::expire(scene.cluster.zookeeper_connect(), session).await?;
    }
    let log = scene.cluster.broker(1).log_dir().join("t-0/00000000000000000000.log");
    let file = OpenOptions::new().write(true).open(log)?;
    let kept = file.metadata()?.len() - 1_000;
    file.set_len(kept)?;
    drop(file);
    scene.cluster.broker(1).start()?;
    scene.cluster.until_formed().await?;
    scene.cluster.start_all()?;
    until_healed(&mut scene.cluster, "t").await?;
    until_healed(&mut scene.cluster, "other").await?;
    let address = scene.cluster.broker(leader(&scene).await?).config().listener.to_string();
    let end = until_serves(&address, "t", 0).await?;
    assert!(end > 0, "a common prefix exists");
    let mut named = Vec::new();
    for broker in scene.cluster.brokers() {
        named.extend(losses::of(&broker.config().log_dirs)?);
    }
    println!("{end} of {} records are left; {named:?}", sent.len());
    for n in end..i64::try_from(sent.len())? {
        assert!(
            named.iter().any(|loss| loss.names("t", 0, n)),
            "nobody names offset {n}: {named:?}"
        );
    }
    scene.load("other", 3).await?;
    scene.load("t", 1).await?;
    scene.finish().await?;
    Ok(())
}
