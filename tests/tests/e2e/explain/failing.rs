//! Brokers that die, disks that fail or are full, moves and deletions that wait.

use std::fs;
use std::io::Write as _;

use barnabas_tests::Outcome;
use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::cluster::{Cluster, Options, Preload};
use barnabas_tests::shim::EIO;
use serde_json::json;

use super::{
    command, follow, follow_other, names, produce, text, until, until_first, until_isr, until_well,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dies_or_fails_is_told_first_and_the_advice_heals_it() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 2_000,
        preload: Preload::Faults,
        log_dirs: 2,
        ..Options::default()
    })
    .await?;
    let (first, third) = (cluster.admin_address(1), cluster.admin_address(3));
    let admin = cluster.admin().await?;
    for (topic, assignment) in [
        ("t", &[(0, &[1, 2][..])][..]),
        ("m", &[(0, &[1, 2])]),
        ("s", &[(0, &[1, 2])]),
        ("gone", &[(0, &[1, 3])]),
        ("d", &[(0, &[2]), (1, &[2]), (2, &[2]), (3, &[2])]),
    ] {
        admin.create_assigned(topic, assignment).await?;
    }
    command(&third, &["topic", "alter", "m", "--config", "min.insync.replicas=2"]).await?;
    command(&third, &["topic", "alter", "s", "--config", "flush.mode=sync"]).await?;
    for topic in ["t", "m", "s", "gone"] {
        cluster.until_healed(topic, 2).await?;
    }
    until_well(&third, "cluster").await?;
    until_well(&third, "partition t:0").await?;
    until_well(&first, "broker 2").await?;

    // A slow follower: its disk takes no flush.
    let slow: Vec<String> = (cluster.broker(2).config().log_dirs.iter())
        .map(|dir| format!("hold sync path={}/s-0/*.log", dir.display()))
        .collect();
    cluster.shim(2).rules(&slow.iter().map(String::as_str).collect::<Vec<_>>())?;
    produce(&cluster, "s", 0, 5).await?;
    let told = until_first(&third, "partition s:0", &["slow_follower"]).await?;
    let summary = text(&told, "/causes/0/text");
    assert!(summary.contains("broker 2") && summary.contains("its disk"), "{told:#}");
    cluster.shim(2).rules(&[])?;
    until_well(&third, "partition s:0").await?;

    // The leader's disk does not end a write.
    let stalled: Vec<String> = (cluster.broker(1).config().log_dirs.iter())
        .map(|dir| format!("hold write path={}/t-0/*.log", dir.display()))
        .collect();
    cluster.shim(1).rules(&stalled.iter().map(String::as_str).collect::<Vec<_>>())?;
    let mut leader = Client::of_leader(&cluster.bootstrap(), 0, "t", 0).await?;
    leader.post("t", 0, Terms::default(), &[b"held".to_vec()]).await?;
    let told = until_first(&third, "partition t:0", &["disk_stalled"]).await?;
    assert_eq!(told["causes"][0]["brokers"], json!([1]), "{told:#}");
    cluster.shim(1).rules(&[])?;
    assert_eq!(leader.posted().await?, Answer::Appended(0));
    until_well(&third, "partition t:0").await?;

    // Below min.insync.replicas, because a broker is dead.
    assert_eq!(produce(&cluster, "t", 0, 4).await?, Answer::Appended(1));
    until_well(&third, "partition t:0").await?;
    cluster.broker(2).kill().await?;
    let both = ["broker_down", "below_min_isr"];
    let told = until_first(&third, "partition m:0", &both).await?;
    assert_eq!(told["impact"], "writes_refused");
    follow(&mut cluster, &told).await?;
    until_well(&third, "partition m:0").await?;

    // The last ISR member dies after the other one, which alone comes back.
    until_isr(&cluster, "t", &[1, 2]).await?;
    cluster.broker(2).kill().await?;
    until_isr(&cluster, "t", &[1]).await?;
    assert_eq!(produce(&cluster, "t", 0, 3).await?, Answer::Appended(5));
    cluster.broker(1).kill().await?;
    let told = until_first(&third, "partition t:0", &["all_isr_members_dead"]).await?;
    assert_eq!((&told["impact"], &told["state"]), (&json!("offline"), &json!("offline")));

    // Of the two the one that was out of sync comes back first.
    cluster.broker(2).start()?;
    let told = until_first(&third, "partition t:0", &["only_out_of_sync_replicas_alive"]).await?;
    let candidate = &told["causes"][0]["candidates"][0];
    assert_eq!((&candidate["broker_id"], &candidate["lost_from"]), (&2.into(), &5.into()));
    let unclean = &told["alternatives"][0];
    assert!(text(unclean, "/command").contains("leader elect --unclean t:0 --to 2 --admin"));
    assert!(text(unclean, "/cost").contains("from offset 5 on"), "{told:#}");
    assert!(unclean["loses_records"].is_null(), "what the dead one has nobody knows: {told:#}");
    follow(&mut cluster, &told).await?;
    until_well(&third, "partition t:0").await?;
    assert_eq!(produce(&cluster, "t", 0, 1).await?, Answer::Appended(8), "nothing is lost");

    // Both die, one after the other, and the last member is started again.
    until_well(&third, "partition t:0").await?;
    cluster.broker(2).kill().await?;
    until_isr(&cluster, "t", &[1]).await?;
    cluster.broker(1).kill().await?;
    let told = until_first(&third, "partition t:0", &["all_isr_members_dead"]).await?;
    follow(&mut cluster, &told).await?;
    until_first(&third, "partition t:0", &["broker_down"]).await?;
    assert_eq!(produce(&cluster, "t", 0, 1).await?, Answer::Appended(9), "nothing is lost");

    // It comes back without its data: the longest log of all leads, once all are there.
    cluster.broker(1).kill().await?;
    cluster.broker(1).wipe()?;
    cluster.broker(1).start()?;
    let told = until_first(&third, "partition t:0", &["tail_lost"]).await?;
    assert!(names(&told).iter().any(|name| name.starts_with("broker_")), "{told:#}");
    follow(&mut cluster, &told).await?;
    until_well(&third, "partition t:0").await?;
    until_well(&third, "cluster").await?;
    // What it may have cost is worth knowing for a day.
    let told = until_first(&third, "cluster", &["records_lost"]).await?;
    assert_eq!(told["well"], true, "{told:#}");
    assert!(text(&told, "/next_command/command").starts_with("barnabas ledger verify --since 24h"));

    drained(&mut cluster, &third).await?;
    failed_directory(&mut cluster, &third).await?;
    full_disk(&mut cluster, &third).await?;
    waiting_for_a_dead_broker(&mut cluster, &first, &third).await
}

/// A broker that is being emptied.
async fn drained(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    command(admin, &["broker", "drain", "2"]).await?;
    // It stays in the ISR of m, which needs both.
    let told = until_first(admin, "broker 2", &["broker_draining"]).await?;
    assert!(text(&told, "/causes/0/text").contains("do not stop it yet"), "{told:#}");
    assert!(text(&told, "/next_command/command").contains("can-stop 2"), "{told:#}");
    assert_eq!(told["state"], "draining");
    let told = until_first(admin, "partition t:0", &["broker_draining"]).await?;
    follow_other(cluster, &told, "undrain").await?;
    until_well(admin, "partition t:0").await
}

/// One of two directories fails.
async fn failed_directory(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    let bad = cluster.broker(2).config().log_dirs[1].clone();
    let lies_there = |partition: &i32| bad.join(format!("d-{partition}")).is_dir();
    let hit = (0..4).find(lies_there).ok_or("nothing of d lies in the second directory")?;
    cluster.shim(2).rules(&[&format!("fail:{EIO} any path={}*", bad.display())])?;
    // Whoever writes there finds out.
    let _ = produce(cluster, "d", hit, 1).await;
    let told = until_first(admin, &format!("partition d:{hit}"), &["directory_failed"]).await?;
    assert_eq!(told["impact"], "offline", "{told:#}");
    let told = until_first(admin, "broker 2", &["directory_failed"]).await?;
    assert!(text(&told, "/causes/0/text").contains("broker-2-1"), "{told:#}");
    // The disk is repaired.
    cluster.shim(2).rules(&[])?;
    follow(cluster, &told).await?;
    until_well(admin, &format!("partition d:{hit}")).await
}

/// A broker whose disk has less room than its reserve.
async fn full_disk(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    let file = cluster.broker(2).config_file();
    let before = fs::read_to_string(&file)?;
    let mut grown = fs::File::options().append(true).open(&file)?;
    grown.write_all(b"log.dir.reserve.bytes: 1000000000000000\n")?;
    cluster.broker(2).terminate().await?;
    cluster.broker(2).start()?;
    let told = until_first(admin, "partition d:0", &["disk_full"]).await?;
    assert_eq!(told["impact"], "writes_refused", "{told:#}");
    follow(cluster, &told).await?;
    until_well(admin, "partition d:0").await?;
    assert!(matches!(produce(cluster, "d", 0, 1).await?, Answer::Appended(_)));
    fs::write(&file, before)?;
    cluster.broker(2).terminate().await?;
    cluster.broker(2).start()?;
    until_well(admin, "partition d:0").await?;
    until_well(admin, "cluster").await
}

/// A move to a broker that dies, and a topic that is deleted while it is dead.
async fn waiting_for_a_dead_broker(cluster: &mut Cluster, first: &str, third: &str) -> Outcome<()> {
    // The broker that will stand still must not be the controller.
    if cluster.admin().await?.cluster().await?.controller_id == 3 {
        cluster.broker(3).terminate().await?;
        cluster.broker(3).start()?;
        until_well(third, "cluster").await?;
    }
    // Registered, and it will not answer.
    cluster.broker(3).pause()?;
    command(first, &["topic", "set-replicas", "t", "--assignment", "0:1,3"]).await?;
    cluster.broker(3).kill().await?;
    let told = until_first(first, "partition t:0", &["reassignment_waiting"]).await?;
    assert_eq!(told["causes"][0]["brokers"], json!([3]), "{told:#}");
    follow_other(cluster, &told, "--cancel").await?;
    until_well(first, "partition t:0").await?;

    command(first, &["topic", "delete", "gone"]).await?;
    let told = until_first(first, "partition gone:0", &["deletion_waiting"]).await?;
    assert_eq!(told["well"], true, "it is worth knowing, and no trouble: {told:#}");
    until(first, "cluster", "it waits", |told| names(told).contains(&"deletion_waiting")).await?;
    follow(cluster, &told).await?;
    until_well(first, "partition gone:0").await?;
    until_well(first, "cluster").await
}
