//! The race for the controller, with real processes.

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Cluster, Options};
use barnabas_tests::wait::wait_for;

use super::until_registered;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_simultaneous_starts_elect_one_controller_each() -> Outcome<()> {
    let mut cluster = Cluster::start(Options { start: false, ..Options::default() }).await?;
    let znodes = cluster.znodes().await?;
    for round in 0..10 {
        let before = znodes.controller_epoch().await?.unwrap_or(0);
        cluster.start_all()?;
        cluster.until_formed().await?;
        let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
        assert_eq!(epoch, before + 1, "round {round}: one election, one epoch");
        let owner = znodes.read("/controller").await?.ok_or("no controller")?.ephemeral_owner;
        let registration = znodes.read(&format!("/brokers/ids/{controller}")).await?;
        assert_eq!(Some(owner), registration.map(|node| node.ephemeral_owner), "round {round}");
        for id in 1..=3 {
            let known = cluster.broker(id).admin().await?.cluster().await?;
            assert_eq!(i64::from(known.controller_id), controller, "round {round}, broker {id}");
            assert_eq!(i64::from(known.controller_epoch), epoch, "round {round}, broker {id}");
        }
        for id in 1..=3 {
            cluster.broker(id).terminate().await?;
        }
        until_registered(&znodes, &[]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losers_watch_and_one_of_them_takes_over() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let znodes = cluster.znodes().await?;
    let (first, epoch) = znodes.controller().await?.ok_or("no controller")?;
    cluster.broker(i32::try_from(first)?).kill().await?;
    let (second, next) =
        wait_for("a new controller", barnabas_tests::cluster::SETTLE_MAX, || async {
            znodes.controller().await.ok().flatten().filter(|(_, next)| *next > epoch)
        })
        .await?;
    assert_ne!(first, second);
    assert_eq!(next, epoch + 1);
    Ok(())
}
