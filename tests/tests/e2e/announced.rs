//! A change of topics is known to every broker when it is answered; brokers that are dead hold nobody up.

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options};

/// How many topics are created and deleted: without the rule, some broker is late for one of the first.
const ROUNDS: i32 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broker_knows_what_was_answered_and_a_dead_one_holds_nobody_up() -> Outcome<()> {
    // The dead broker stays registered for as long as the test goes on.
    let options = Options { session_timeout_ms: 60_000, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let znodes = cluster.znodes().await?;
    cluster.until_known(&znodes, &[1, 2, 3]).await?;
    let mut admins = Vec::new();
    for id in 1..=3 {
        admins.push(cluster.broker(id).admin().await?);
    }
    for round in 0..ROUNDS {
        let name = format!("t{round}");
        let asked = &admins[usize::try_from(round % 3)?];
        asked.create_topic(one(&name)).await?;
        for (id, admin) in (1..).zip(&admins) {
            let told = admin.topic(&name).await?;
            assert_eq!(told.missing, [""; 0], "round {round}: broker {id} does not know it");
            assert!(told.topics[0].partitions[0].state.is_some());
        }
        asked.delete_topic(&name).await?;
        for (id, admin) in (1..).zip(&admins) {
            let told = admin.topic(&name).await?;
            assert_eq!(told.missing, [name.as_str()], "round {round}: broker {id} still knows it");
        }
    }
    let (controller, _) = znodes.controller().await?.ok_or("no controller")?;
    let dead = (1..=3).find(|id| i64::from(*id) != controller).ok_or("no other broker")?;
    cluster.broker(dead).kill().await?;
    let asked = &admins[usize::try_from(controller - 1)?];
    for name in ["first", "second"] {
        asked.create_topic(one(name)).await?;
    }
    assert_eq!(znodes.brokers().await?, [1, 2, 3], "it was answered before the session ended");
    Ok(())
}

fn one(name: &str) -> NewTopic<'_> {
    NewTopic { name, partitions: 1, replication_factor: 3, configs: &[] }
}
