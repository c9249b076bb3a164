//! ZooKeeper's data are lost, with a backup, with an older snapshot of its own, and without any: no acknowledged record is.

use std::fs;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Options, SETTLE_MAX};
use barnabas_tests::machines::Machines;
use barnabas_tests::wait::wait_for;

use super::{BACKUP, FILE, START, STOP, consume, produce, produce_as, run};

const ALL: [i32; 3] = [1, 2, 3];
/// On every machine one after the other, as the page says.
const EVERYWHERE: [(&str, &str); 3] = [
    ("broker-1.yaml", "broker-1.json"),
    ("broker-2.yaml", "broker-2.json"),
    ("broker-3.yaml", "broker-3.json"),
];

async fn start() -> Outcome<Machines> {
    let config = "replica.lag.time.max.ms: 2000\noffsets.topic.num.partitions: 2\n".to_owned();
    let mut machines = Machines::configure(Options { config, ..Options::default() }).await?;
    machines.start(&ALL).await?;
    Ok(machines)
}

async fn create(machines: &Machines, name: &str) -> Outcome<()> {
    let configs = [("min.insync.replicas", "2"), ("retention.ms", "864000000")];
    let new = NewTopic { name, partitions: 3, replication_factor: 3, configs: &configs };
    machines.cluster.admin().await?.create_topic(new).await?;
    machines.cluster.until_healed(name, 3).await
}

/// Elections, so that epochs go on.
async fn bounce(machines: &mut Machines, broker: i32) -> Outcome<()> {
    machines.kill(broker).await?;
    machines.shell.run_text("start", &format!("machine start {broker}")).await?;
    machines.until_known(&ALL).await?;
    machines.cluster.until_healed("orders", 3).await
}

/// Commits offsets of group `readers`; and how far behind it is.
async fn lag(machines: &Machines) -> Outcome<i64> {
    let said = machines.shell.run_text("lag", "barnabas group describe readers --json").await?.out;
    let told: serde_json::Value = serde_json::from_str(&said)?;
    let partitions = told["offsets"].as_array().ok_or("no offsets")?;
    Ok(partitions.iter().map(|partition| partition["lag"].as_i64().unwrap_or(-1000)).sum())
}

async fn by_the_book(machines: &Machines, restore: (&str, &[(&str, &str)])) -> Outcome<String> {
    for (file, inventory) in EVERYWHERE {
        let table = [(FILE, file), ("broker-1.json", inventory)];
        run(machines, "zookeeper-inventory", &table).await?;
    }
    let said = run(machines, restore.0, restore.1).await?.out;
    run(machines, "zookeeper-start", &[(START, "machine start 1 2 3")]).await?;
    Ok(said)
}

/// The ensemble comes back with nothing in it.
async fn empty_zookeeper(machines: &mut Machines) -> Outcome<()> {
    machines.cluster.stop_zookeeper();
    fs::remove_dir_all(machines.cluster.directory().join("zookeeper"))?;
    machines.cluster.start_zookeeper().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_that_lost_everything_is_made_again_by_the_book() -> Outcome<()> {
    let mut machines = start().await?;
    create(&machines, "orders").await?;
    produce(&machines, "orders", 0..1000)?;
    run(&machines, "backup", &[(FILE, "broker-1.yaml"), (BACKUP, "backup.json")]).await?;
    // After the backup: another topic, elections, records, offsets of a group.
    create(&machines, "later").await?;
    produce(&machines, "later", 0..300)?;
    bounce(&mut machines, 2).await?;
    produce(&machines, "orders", 1000..2000)?;
    let bootstrap = machines.cluster.bootstrap();
    let read = format!(
        "barnabas consume orders --group readers --until-end --bootstrap-server {bootstrap} > read"
    );
    machines.shell.run_text("read", &read).await?;
    assert_eq!(lag(&machines).await?, 0);

    // Under running brokers: they refuse to take part in it, delete nothing, and go on serving.
    empty_zookeeper(&mut machines).await?;
    for id in ALL {
        let broker = machines.cluster.broker(id);
        wait_for(&format!("broker {id} finds out"), SETTLE_MAX, || async {
            broker.log().contains("holds no cluster any more").then_some(())
        })
        .await?;
        assert!(broker.log_dir().join("later-0").is_dir());
    }
    // A new idempotent producer would want an id, which is taken in ZooKeeper.
    produce_as(&machines, "orders", 2000..2100, "enable.idempotence=false")?;

    run(&machines, "zookeeper-stop", &[(STOP, "machine stop 1 2 3")]).await?;
    let refused = "barnabas broker --config broker-1.yaml 2>&1 || true";
    let said = machines.shell.run_text("a start", refused).await?.out;
    assert!(said.contains("holds no cluster") && said.contains("zookeeper restore"), "{said}");
    let table = [(FILE, "broker-1.yaml"), (BACKUP, "backup.json")];
    let said = by_the_book(&machines, ("zookeeper-restore", &table)).await?;
    assert!(said.contains("topic later: not in the backup"), "{said}");
    for (name, end) in [("orders", 2100), ("later", 300)] {
        assert_eq!(consume(&machines, name)?, (0..end).collect::<Vec<_>>(), "{name}");
    }
    assert_eq!(lag(&machines).await?, 100, "the group goes on where it was");
    let znodes = machines.cluster.znodes().await?;
    let settings = znodes.read("/config/topics/orders").await?.ok_or("no settings")?;
    assert!(settings.data.to_string().contains("864000000"));
    produce(&machines, "orders", 2100..2200)?;

    // And once more without any backup.
    run(&machines, "zookeeper-stop", &[(STOP, "machine stop 1 2 3")]).await?;
    empty_zookeeper(&mut machines).await?;
    let said = by_the_book(&machines, ("zookeeper-older", &[(FILE, "broker-1.yaml")])).await?;
    assert!(said.contains("topic orders: its settings are lost"), "{said}");
    produce(&machines, "later", 300..400)?;
    for (name, end) in [("orders", 2200), ("later", 400)] {
        assert_eq!(consume(&machines, name)?, (0..end).collect::<Vec<_>>(), "{name}");
    }
    // Once only: the mark goes, and a restart is a restart again.
    for id in ALL {
        let mark = machines.log_dir(id).join("barnabas.tail_lost");
        wait_for(&format!("broker {id} is whole"), SETTLE_MAX, || async {
            (!mark.exists()).then_some(())
        })
        .await?;
    }
    bounce(&mut machines, 1).await?;
    assert!(!machines.log_dir(1).join("barnabas.tail_lost").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_is_refused_and_healed_by_the_book() -> Outcome<()> {
    let mut machines = start().await?;
    create(&machines, "orders").await?;
    produce(&machines, "orders", 0..500)?;
    let data = machines.cluster.directory().join("zookeeper");
    let copy = machines.cluster.directory().join("snapshot");
    let copied = format!("cp -a '{}' '{}'", data.display(), copy.display());
    machines.shell.run_text("snapshot", &copied).await?;
    // Since then others lead, the ISR has been smaller, and there is more.
    machines.kill(3).await?;
    machines.cluster.until_healed("orders", 2).await?;
    produce(&machines, "orders", 500..900)?;
    create_on_two(&machines).await?;
    run(&machines, "zookeeper-stop", &[(STOP, "machine stop 1 2")]).await?;
    machines.cluster.stop_zookeeper();
    fs::remove_dir_all(&data)?;
    fs::rename(&copy, &data)?;
    machines.cluster.start_zookeeper().await?;

    // Broker 3 lacks records, and would lead; the others know better.
    let refused = "barnabas broker --config broker-1.yaml 2>&1 || true";
    let said = machines.shell.run_text("a start", refused).await?.out;
    assert!(
        said.contains("taken back to an earlier time") && said.contains("zookeeper restore"),
        "{said}"
    );
    let said = by_the_book(&machines, ("zookeeper-older", &[(FILE, "broker-1.yaml")])).await?;
    assert!(said.contains("topic young: not in the backup"), "{said}");
    assert_eq!(consume(&machines, "orders")?, (0..900).collect::<Vec<_>>());
    assert_eq!(consume(&machines, "young")?, (0..50).collect::<Vec<_>>());
    produce(&machines, "orders", 900..1000)?;
    assert_eq!(consume(&machines, "orders")?, (0..1000).collect::<Vec<_>>());
    Ok(())
}

/// A topic that the snapshot does not know.
async fn create_on_two(machines: &Machines) -> Outcome<()> {
    machines.cluster.admin().await?.create_assigned("young", &[(0, &[1, 2])]).await?;
    machines.cluster.until_healed("young", 2).await?;
    produce(machines, "young", 0..50)
}
