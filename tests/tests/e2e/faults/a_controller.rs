//! A8: pushes to a broker that are lost or not answered. A4 is `zombie.rs`, A3's other half `a_registration.rs`.

use barnabas_tests::Outcome;
use barnabas_tests::proxy::Link;
use barnabas_tests::scene::{Scene, rounds, until_serves};

use super::{proxied, topic};

const PARTITIONS: i32 = 30;

/// The path from the controller to a broker is cut in the middle of moving leaders to it: by turns the pushes arrive and their
/// answers do not, or the pushes are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a8_a_push_that_was_lost_or_not_answered_is_repeated() -> Outcome<()> {
    let mut scene = Scene::start(proxied(3_000), &[topic(PARTITIONS)]).await?;
    scene.load("t", 6).await?;
    for round in 0..rounds(2) * 2 {
        let controller = scene.controller().await?;
        let (cut, killed) = (controller % 3 + 1, (controller + 1) % 3 + 1);
        let held = if round % 2 == 0 { Link::HoldReplies } else { Link::HoldRequests };
        scene.cluster.links(cut).admin.set(held);
        scene.kill_and_expire(killed).await?;
        let mut led = Vec::new();
        for partition in 0..PARTITIONS {
            let away = format!("partition {partition} is led by another");
            let state = scene
                .until(&away, ("t", partition), |state| {
                    state.leader >= 0 && state.leader != i64::from(killed)
                })
                .await?;
            if state.leader == i64::from(cut) {
                led.push(partition);
            }
        }
        assert!(!led.is_empty(), "nothing moved to broker {cut}");
        // What is in the pipe is lost with the connection.
        scene.cluster.links(cut).admin.set(Link::Cut);
        scene.cluster.links(cut).admin.set(Link::Whole);
        let address = scene.cluster.broker(cut).config().listener.to_string();
        for partition in &led {
            until_serves(&address, "t", *partition).await?;
        }
        println!("round {round}: {held:?}, broker {cut} leads {}", led.len());
        scene.start_and_heal(killed, "t").await?;
        scene.progress(2).await?;
    }
    scene.finish().await?;
    Ok(())
}
