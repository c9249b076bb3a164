//! A1 to A3: brokers whose session ends, whose id is used twice, that are back before anybody looked.

use std::fs;
use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Options, SETTLE_MAX, run_program};
use barnabas_tests::prng::Prng;
use barnabas_tests::proxy::Link;
use barnabas_tests::scene::{Scene, rounds};
use barnabas_tests::wait::wait_for;

use super::{proxied, topic};
use crate::e2e::interval;

/// The session that a broker says it has.
fn own_session(log: &str) -> Option<i64> {
    let line = log.lines().rfind(|line| line.contains("connected to ZooKeeper"))?;
    let text = line.split("session").nth(1)?.trim_start_matches(['=', '"', '0']);
    let text = text.trim_start_matches('x');
    let digits: String = text.chars().take_while(char::is_ascii_hexdigit).collect();
    i64::from_str_radix(&digits, 16).ok()
}

/// The answers of ZooKeeper to a broker are held past its session, from any moment of a handshake on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a1_a_session_that_ended_without_a_word_is_followed_by_a_registration() -> Outcome<()> {
    let mut scene = Scene::start(proxied(1_500), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    let mut prng = Prng::new(1);
    for round in 0..rounds(4) {
        let id = 1 + i32::try_from(prng.below(3))?;
        let path = format!("/brokers/ids/{id}");
        let before = scene.znodes.read(&path).await?.ok_or("not registered")?;
        let link = &scene.cluster.links(id).zookeeper;
        if !prng.one_in(3) {
            // It connects again, and is held somewhere in the middle.
            link.set(Link::Cut);
            link.set(Link::Whole);
            interval(Duration::from_millis(prng.below(150))).await?;
        }
        link.set(Link::HoldReplies);
        wait_for("its registration is gone", SETTLE_MAX, || async {
            let now = scene.znodes.read(&path).await.ok()?;
            now.is_none_or(|now| now.czxid != before.czxid).then_some(())
        })
        .await?;
        // It may ask for another session meanwhile, and never hear of it.
        interval(Duration::from_millis(prng.below(2_000))).await?;
        let link = &scene.cluster.links(id).zookeeper;
        link.set(Link::Cut);
        link.set(Link::Whole);
        let path = &path;
        let owner = wait_for("it is registered again, by its present session", SETTLE_MAX, || {
            let session = own_session(&scene.cluster.broker(id).log());
            let znodes = scene.znodes.clone();
            async move {
                let now = znodes.read(path).await.ok()??;
                (Some(now.ephemeral_owner) == session).then_some(now.ephemeral_owner)
            }
        })
        .await
        .map_err(|error| format!("round {round}, broker {id}: {error}"))?;
        assert_ne!(owner, before.ephemeral_owner);
        scene.progress(1).await?;
    }
    let (verdict, _) = scene.finish().await?;
    assert!(verdict.acked > 0);
    Ok(())
}

/// Somebody deletes registrations by hand, the controller's among them: each broker makes its own again, under a new broker epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a1_a_registration_that_was_deleted_by_hand_is_made_again() -> Outcome<()> {
    let mut scene = Scene::start(Options::default(), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    for round in 0..rounds(2) {
        let controller = scene.controller().await?;
        for id in [controller % 3 + 1, controller] {
            let path = format!("/brokers/ids/{id}");
            let before = scene.znodes.read(&path).await?.ok_or("not registered")?.czxid;
            scene.znodes.delete(&path).await?;
            wait_for("it is registered again", SETTLE_MAX, || async {
                let now = scene.znodes.read(&path).await.ok()??;
                (now.czxid > before).then_some(())
            })
            .await
            .map_err(|error| format!("round {round}, broker {id}: {error}"))?;
            scene.cluster.until_known(&scene.znodes, &[1, 2, 3]).await?;
            scene.progress(1).await?;
        }
    }
    scene.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a2_a_second_broker_of_the_same_id_is_refused_and_changes_nothing() -> Outcome<()> {
    let mut scene = Scene::start(Options::default(), &[topic(3)]).await?;
    scene.load("t", 3).await?;
    let before = scene.znodes.read("/brokers/ids/1").await?.ok_or("not registered")?;
    let states = scene.znodes.partitions("t").await?;
    let (errors_before, _) = scene.errors();
    let own = fs::read_to_string(scene.cluster.broker(1).config_file())?;
    let twin = scene.cluster.directory().join("twin.yaml");
    let mut text = String::new();
    for line in own.lines() {
        let (key, value) = line.split_once(": ").ok_or("not a setting")?;
        let port = barnabas_tests::ports::free()?;
        match key {
            "listeners" => text += &format!("{key}: PLAINTEXT://127.0.0.1:{port}\n"),
            "admin.listener" | "http.listener" => text += &format!("{key}: 127.0.0.1:{port}\n"),
            "log.dirs" => text += &format!("{key}: {value}-twin\n"),
            _ => text += &format!("{line}\n"),
        }
    }
    fs::write(&twin, text)?;
    let twin = twin.display().to_string();
    for _ in 0..2 {
        let output = run_program(&["broker", "--config", &twin]).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let address = scene.cluster.broker(1).config().listener.to_string();
        assert!(said.contains("broker id 1 is already registered"), "{said}");
        assert!(said.contains(&address), "who has it: {said}");
    }
    let after = scene.znodes.read("/brokers/ids/1").await?.ok_or("not registered")?;
    assert_eq!((after.czxid, after.version), (before.czxid, before.version));
    assert_eq!(scene.znodes.partitions("t").await?, states, "no leader and no ISR changed");
    scene.progress(10).await?;
    let (errors, told) = scene.errors();
    assert_eq!(errors, errors_before, "clients noticed: {told}");
    scene.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a3_a_broker_that_bounces_before_the_controller_looks_is_down_then_up() -> Outcome<()> {
    let options = Options { session_timeout_ms: 10_000, ..Options::default() };
    let mut scene = Scene::start(options, &[topic(6)]).await?;
    scene.load("t", 6).await?;
    for _ in 0..rounds(2) {
        let controller = scene.controller().await?;
        let epoch = scene.znodes.controller_epoch().await?;
        let bounced = controller % 3 + 1;
        let before = scene.sessions().await?;
        let before: Vec<_> = before.into_iter().filter(|(id, _)| *id == bounced).collect();
        scene.cluster.broker(controller).pause()?;
        scene.kill_and_expire(bounced).await?;
        scene.cluster.broker(bounced).start()?;
        let registered = scene.until_registered_anew(&before).await;
        scene.cluster.broker(controller).resume()?;
        registered?;
        // Its own registration, not that of its former life, is what the ISR speaks of.
        let path = format!("/brokers/ids/{bounced}");
        let now = scene.znodes.read(&path).await?.ok_or("not registered")?.czxid;
        wait_for("it is in every ISR under its new epoch", SETTLE_MAX, || async {
            for partition in 0..6 {
                let path = format!("/brokers/topics/t/partitions/{partition}/state");
                let state = scene.znodes.read(&path).await.ok()??.data;
                let epoch = state["isr_broker_epochs"][bounced.to_string()].as_i64();
                if epoch != Some(now) {
                    return None;
                }
            }
            Some(())
        })
        .await?;
        assert_eq!(scene.znodes.controller_epoch().await?, epoch, "the controller kept its term");
        scene.progress(5).await?;
    }
    scene.finish().await?;
    Ok(())
}
