//! A disk that takes its time over what is not in the page cache: whoever reads that waits for it, and nobody else.

use std::future::Future;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client, Fetch, Terms};
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use barnabas_tests::wait::wait_for;

use super::topic;

/// More batches than a log remembers the places of.
const BATCHES: i64 = 100;
/// More than a broker has threads for clients, or for a disk.
const READERS: usize = 12;
/// Errno of what would have to wait.
const EAGAIN: i32 = 11;

/// Everything of the topic `cold` is out of the page cache, and a read of it does not end.
fn hold_cold_reads(cluster: &Cluster, broker: i32) -> Outcome<()> {
    let path = "path=*/cold-0/*";
    cluster
        .shim(broker)
        .rules(&[&format!("fail:{EAGAIN} cached {path}"), &format!("hold read {path}")])
}

async fn until_a_read_is_held(cluster: &Cluster, broker: i32) -> Outcome<()> {
    wait_for("a read is held", SETTLE_MAX, || async {
        (cluster.shim(broker).fired(1).ok()? > 0).then_some(())
    })
    .await
}

/// What must come although a disk is slow.
async fn in_time<T>(what: &str, wanted: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::time::timeout(SETTLE_MAX, wanted).await.map_err(|_| format!("{what} was held up"))?
}

async fn append(address: &str, topic: &str, acks: i16, value: &str) -> Outcome<i64> {
    let terms = Terms { acks, ..Terms::default() };
    let mut client = Client::connect(address).await?;
    match client.produce_on(topic, 0, terms, &[value.as_bytes().to_vec()]).await? {
        Answer::Appended(offset) => Ok(offset),
        other => Err(format!("{other:?}").into()),
    }
}

async fn read(address: &str, topic: &str) -> Outcome<usize> {
    let mut client = Client::connect(address).await?;
    Ok(client.fetch(topic, 0, Fetch::default()).await?.records.len())
}

/// The time that means the record with the greatest one.
const GREATEST: i64 = -3;

async fn by_time(address: &str, topic: &str, timestamp: i64) -> Outcome<i64> {
    let mut client = Client::connect(address).await?;
    let found = client.offset_at(topic, 0, (timestamp, -1)).await?;
    found.map_err(|code| format!("Kafka's error {code}").into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_holds_up_consumers_of_what_it_reads_and_nobody_else() -> Outcome<()> {
    let cluster =
        Cluster::start(Options { brokers: 1, preload: Preload::Faults, ..Options::default() })
            .await?;
    for name in ["cold", "warm"] {
        let configs = &[];
        topic(&cluster, NewTopic { name, partitions: 1, replication_factor: 1, configs }).await?;
        cluster.until_served(name, 1).await?;
    }
    let address = cluster.bootstrap();
    for n in 0..BATCHES {
        append(&address, "cold", 1, &format!("{n}")).await?;
    }
    append(&address, "warm", 1, "0").await?;
    hold_cold_reads(&cluster, 1)?;
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move { read(&address, "cold").await })
        })
        .collect();
    // So does who looks for a time.
    let lookers: Vec<_> = (0..READERS)
        .map(|n| {
            let (address, time) = (address.clone(), if n % 2 == 0 { 1 } else { GREATEST });
            tokio::spawn(async move { by_time(&address, "cold", time).await })
        })
        .collect();
    until_a_read_is_held(&cluster, 1).await?;
    for n in 1..=BATCHES {
        let offset = in_time("a producer", append(&address, "warm", 1, "more")).await?;
        assert_eq!(offset, n);
        assert!(in_time("a consumer", read(&address, "warm")).await? > 0);
        in_time("a look for a time", by_time(&address, "warm", 1)).await?;
        in_time("a producer of the same partition", append(&address, "cold", 1, "more")).await?;
    }
    assert!(readers.iter().all(|reader| !reader.is_finished()), "the disk has not answered");
    assert!(lookers.iter().all(|looker| !looker.is_finished()), "the disk has not answered");
    cluster.shim(1).rules(&[])?;
    for reader in readers {
        assert!(in_time("a reader", async { reader.await? }).await? > 0);
    }
    for looker in lookers {
        assert!(in_time("a look for a time", async { looker.await? }).await? >= 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_holds_up_one_partition_of_a_follower_and_not_the_others() -> Outcome<()> {
    let mut options = Options { brokers: 2, preload: Preload::Faults, ..Options::default() };
    // Broker 1 leads all the time.
    options.config += "auto.leader.rebalance.enable: false\n";
    let mut cluster = Cluster::start(options).await?;
    for name in ["cold", "warm"] {
        let configs = &[("min.insync.replicas", "1")];
        topic(&cluster, NewTopic { name, partitions: 1, replication_factor: 2, configs }).await?;
    }
    cluster.broker(2).kill().await?;
    let znodes = cluster.znodes().await?;
    wait_for("broker 1 leads alone", SETTLE_MAX, || async {
        let mut alone = true;
        for name in ["cold", "warm"] {
            let state = znodes.partitions(name).await.ok()?.get(&0)?.clone();
            alone &= state.leader == 1 && state.isr == [1];
        }
        alone.then_some(())
    })
    .await?;
    cluster.until_served("cold", 1).await?;
    cluster.until_served("warm", 1).await?;
    let address = cluster.broker(1).config().advertised_listener.to_string();
    for n in 0..BATCHES {
        append(&address, "cold", 1, &format!("{n}")).await?;
    }
    hold_cold_reads(&cluster, 1)?;
    cluster.broker(2).start()?;
    until_a_read_is_held(&cluster, 1).await?;
    in_time("the other partition", cluster.until_healed("warm", 2)).await?;
    in_time("acks=all", append(&address, "warm", -1, "all")).await?;
    assert_eq!(znodes.partitions("cold").await?[&0].isr, [1], "the disk has not answered");
    cluster.shim(1).rules(&[])?;
    cluster.until_healed("cold", 2).await
}
