//! A broker is lost for good: replaced by an empty machine of its id, or its replicas are held by others from then on.

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::Options;
use barnabas_tests::machines::Machines;

use super::{START, consume, produce, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_broker_is_replaced_by_the_book() -> Outcome<()> {
    let options = Options { brokers: 4, ..Options::default() };
    let mut machines = Machines::configure(options).await?;
    machines.start(&[1, 2, 3, 4]).await?;
    let admin = machines.cluster.admin().await?;
    admin.create_assigned("orders", &[(0, &[3, 1, 2])]).await?;
    let configs = [("min.insync.replicas", "2")];
    let new = NewTopic { name: "others", partitions: 4, replication_factor: 3, configs: &configs };
    admin.create_topic(new).await?;
    for name in ["orders", "others"] {
        machines.cluster.until_healed(name, 3).await?;
        produce(&machines, name, 0..500)?;
    }

    // The machine is gone, and its disk with it.
    machines.kill(3).await?;
    std::fs::remove_dir_all(machines.log_dir(3))?;
    let said = run(&machines, "lost-broker-look", &[]).await?.out;
    assert!(said.contains("broker 3"), "{said}");
    produce(&machines, "orders", 500..600)?;
    run(&machines, "lost-broker-replace", &[(START, "machine start 3")]).await?;
    machines.cluster.until_healed("others", 3).await?;
    for (name, end) in [("orders", 600), ("others", 500)] {
        assert_eq!(consume(&machines, name)?, (0..end).collect::<Vec<_>>(), "{name}");
    }

    // Nobody replaces it this time.
    machines.kill(3).await?;
    std::fs::remove_dir_all(machines.log_dir(3))?;
    run(&machines, "lost-broker-move", &[]).await?;
    machines.cluster.until_healed("orders", 3).await?;
    let assigned = machines.cluster.znodes().await?.assignment("orders").await?;
    assert_eq!(assigned[&0], [1, 2, 4]);
    produce(&machines, "orders", 600..700)?;
    assert_eq!(consume(&machines, "orders")?, (0..700).collect::<Vec<_>>());
    Ok(())
}
