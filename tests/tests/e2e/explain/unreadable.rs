//! A disk that does not give back what was written, logs that are read again, settings that nobody can meet or reach.

use std::fs;
use std::io::Write as _;

use barnabas_tests::client::{Answer, Client, Fetch};
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use barnabas_tests::shim::EIO;
use barnabas_tests::wait::{next_look, wait_for};
use barnabas_tests::{Outcome, ports};
use serde_json::Value;

use super::{command, follow, names, produce, text, until, until_first, until_well};

/// Kafka's KAFKA_STORAGE_ERROR.
const STORAGE_ERROR: i16 = 56;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_or_reached_is_told_first_and_the_advice_heals_it() -> Outcome<()> {
    let config = format!("{}min.insync.replicas: 2\n", Options::default().config);
    let mut cluster =
        Cluster::start(Options { preload: Preload::Faults, config, ..Options::default() }).await?;
    let third = cluster.admin_address(3);
    let admin = cluster.admin().await?;
    for (topic, replicas) in [("e", &[1, 2, 3][..]), ("f", &[1, 2, 3]), ("one", &[2]), ("r", &[2])]
    {
        admin.create_assigned(topic, &[(0, replicas)]).await?;
        cluster.until_healed(topic, replicas.len()).await?;
    }

    // One replica, and acks=all asks for two.
    let told = until_first(&third, "partition one:0", &["below_min_isr"]).await?;
    assert_eq!(told["state"], "under_min_isr", "{told:#}");
    assert!(text(&told, "/alternatives/0/command").contains("min.insync.replicas=1"), "{told:#}");
    follow(&mut cluster, &told).await?;
    until_well(&third, "partition one:0").await?;

    unreadable(&mut cluster, &third).await?;
    recovering(&mut cluster, &third).await?;
    advertised(&mut cluster, &third).await
}

/// A leader whose disk fails reads, and takes writes: first of one log, then of the whole directory.
async fn unreadable(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    for (topic, what) in [("e", "e-0/*"), ("f", "*")] {
        // It may have led elsewhere since a restart.
        let _ = command(admin, &["leader", "elect", "--preferred", &format!("{topic}:0")]).await;
        let znodes = cluster.znodes().await?;
        wait_for("broker 1 leads", SETTLE_MAX, || async {
            (znodes.partitions(topic).await.ok()?.get(&0)?.leader == 1).then_some(())
        })
        .await?;
        assert_eq!(produce(cluster, topic, 0, 20).await?, Answer::Appended(0));
        let mut leader = Client::of_leader(&cluster.bootstrap(), 0, topic, 0).await?;
        while leader.fetch(topic, 0, Fetch::default()).await?.records.len() < 20 {
            next_look().await;
        }
        let path = format!("path={}/{what}", cluster.broker(1).log_dir().display());
        cluster.shim(1).rules(&[&format!("fail:{EIO} read {path}")])?;
        assert_eq!(leader.fetch(topic, 0, Fetch::default()).await?.error, STORAGE_ERROR);

        // The other replica leads, and has everything.
        let read = wait_for("the other replica leads", SETTLE_MAX, || async {
            let mut leader = Client::of_leader(&cluster.bootstrap(), 0, topic, 0).await.ok()?;
            let read = leader.fetch(topic, 0, Fetch::default()).await.ok()?;
            (read.error == 0).then_some(read.records.len())
        })
        .await?;
        assert_eq!(read, 20);
        let at = format!("partition {topic}:0");
        let is_whole_directory = |told: &Value| {
            text(told, "/causes/0/text").starts_with("log directory ") == (topic == "f")
        };
        let told = until(admin, &at, "its directory failed", |told| {
            names(told).first() == Some(&"directory_failed") && is_whole_directory(told)
        })
        .await?;
        let evidence = told["evidence"].to_string();
        assert!(evidence.contains("Input/output error"), "{told:#}");
        let health = cluster.broker(1).health().await?;
        let state = if topic == "f" { "offline" } else { "online" };
        assert_eq!(health["log_dirs"][0]["state"], state, "{health}");

        // The disk is replaced by one that is well and has everything.
        cluster.shim(1).rules(&[])?;
        follow(cluster, &told).await?;
        until_well(admin, &at).await?;
        until_well(admin, "broker 1").await?;
    }
    Ok(())
}

/// The only replica is read again after a crash.
async fn recovering(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    let at = "partition r:0";
    assert_eq!(produce(cluster, "r", 0, 20).await?, Answer::Appended(0));
    cluster.broker(2).kill().await?;
    // Before it registers.
    cluster.shim(2).rules(&["hold open path=*/r-0/*"])?;
    cluster.broker(2).start()?;
    let told = until_first(admin, at, &["recovering"]).await?;
    assert!(text(&told, "/text").starts_with("Broker 2 is starting"), "{told:#}");
    // While it reads its logs.
    cluster.shim(2).rules(&["hold open path=*/r-0/*.log"])?;
    until(admin, at, "its logs are read", |told| told["evidence"].to_string().contains(" %)"))
        .await?;
    let told = until_first(admin, at, &["recovering"]).await?;
    assert_eq!(told["impact"], "offline", "{told:#}");
    assert!(told["evidence"].to_string().contains(" logs are open ("), "{told:#}");
    assert!(told["evidence"].to_string().contains(" %)"), "{told:#}");
    assert_eq!(told["heals_by_itself"]["answer"], true);
    cluster.shim(2).rules(&[])?;
    until_first(admin, at, &["below_min_isr"]).await?;
    assert_eq!(produce(cluster, "r", 0, 1).await?, Answer::Appended(20));
    Ok(())
}

/// A broker tells clients to connect where nobody listens.
async fn advertised(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    let (at, file) = ("partition r:0", cluster.broker(2).config_file());
    let right = fs::read_to_string(&file)?;
    let mut grown = fs::File::options().append(true).open(&file)?;
    writeln!(grown, "advertised.listeners: PLAINTEXT://127.0.0.1:{}", ports::free()?)?;
    cluster.broker(2).terminate().await?;
    cluster.broker(2).start()?;
    let told = until_first(admin, at, &["advertised_listener_unreachable"]).await?;
    assert_eq!(told["impact"], "offline", "{told:#}");
    // What it is to be restarted after.
    assert!(text(&told, "/next_command/when").contains("advertised.listeners"), "{told:#}");
    fs::write(&file, right)?;
    follow(cluster, &told).await?;
    until_first(admin, at, &["below_min_isr"]).await?;
    assert_eq!(produce(cluster, "r", 0, 1).await?, Answer::Appended(21));
    Ok(())
}
