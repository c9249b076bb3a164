//! Processes that stand still, links that are cut, ZooKeeper away, groups.

use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::proxy::Link;
use barnabas_tests::wait::wait_for;
use barnabas_tests::{Outcome, kcat};
use serde_json::json;

use super::{command, explain, follow, produce, text, until, until_first, until_well};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cut_off_or_stands_still_is_told_first_and_heals() -> Outcome<()> {
    let config = format!("{}offsets.topic.num.partitions: 1\n", Options::default().config);
    let mut cluster =
        Cluster::start(Options { proxied: true, config, ..Options::default() }).await?;
    let third = cluster.admin_address(3);
    cluster.admin().await?.create_assigned("t", &[(0, &[1, 2])]).await?;
    cluster.until_healed("t", 2).await?;
    until_well(&third, "cluster").await?;
    // Of a controller that stands still something else is told first.
    if cluster.admin().await?.cluster().await?.controller_id == 2 {
        cluster.broker(2).terminate().await?;
        cluster.broker(2).start()?;
        until_well(&third, "cluster").await?;
    }

    // The leader lives, and so does the follower, but not the way between them.
    cluster.links(1).kafka.set(Link::CutFollowers);
    let told = until_first(&third, "partition t:0", &["link_cut"]).await?;
    assert_eq!(told["causes"][0]["brokers"], json!([2, 1]), "{told:#}");
    cluster.links(1).kafka.set(Link::Whole);
    until_well(&third, "partition t:0").await?;

    // Nobody reaches the leader where it says that it is.
    cluster.links(1).kafka.set(Link::Cut);
    until_first(&third, "partition t:0", &["advertised_listener_unreachable"]).await?;
    cluster.links(1).kafka.set(Link::Whole);
    until_well(&third, "partition t:0").await?;

    cluster.broker(2).pause()?;
    let told = until_first(&third, "partition t:0", &["broker_silent"]).await?;
    assert!(text(&told, "/unanswered/0").contains("did not answer within"), "{told:#}");
    assert!(text(&told, "/next_command/command").starts_with("kill -CONT "), "{told:#}");
    follow(&mut cluster, &told).await?;
    until_well(&third, "cluster").await?;

    // Its registration ends with its session; its process goes on.
    cluster.links(2).zookeeper.set(Link::Silent);
    until_first(&third, "partition t:0", &["broker_fenced"]).await?;
    cluster.links(2).zookeeper.set(Link::Whole);
    until_well(&third, "cluster").await?;

    let controller = cluster.admin().await?.cluster().await?.controller_id;
    let asked = cluster.admin_address(if controller == 3 { 2 } else { 3 });
    cluster.broker(controller).pause()?;
    let told = until_first(&asked, "cluster", &["no_controller"]).await?;
    follow(&mut cluster, &told).await?;
    until_well(&asked, "cluster").await?;

    cluster.stop_zookeeper();
    until_first(&third, "partition t:0", &["zookeeper_unreachable"]).await?;
    let all = json!([1, 2, 3]);
    until(&third, "cluster", "nobody reaches ZooKeeper", |told| {
        let first = &told["causes"][0];
        first["cause"] == "zookeeper_unreachable" && first["brokers"] == all
    })
    .await?;
    // The same whatever is asked.
    for what in ["cluster", "broker 1", "partition t:0"] {
        let told = explain(&third, what).await?;
        let of_zookeeper = (&told["cause"], &told["impact"]);
        assert_eq!(of_zookeeper, (&json!("zookeeper_unreachable"), &json!("writes_refused")));
    }
    cluster.start_zookeeper().await?;
    until_well(&third, "cluster").await?;
    groups(&mut cluster, &third).await
}

/// How long a member of a group may say nothing.
const SESSION_MS: i32 = 300_000;

/// A group that has no coordinator, one that rebalances, and one whose offset is gone.
async fn groups(cluster: &mut Cluster, admin: &str) -> Outcome<()> {
    // Nobody has ever had a group.
    let unknown = explain(admin, "group g").await;
    assert!(unknown.is_err_and(|error| error.to_string().contains("there is no group 'g'")));
    assert_eq!(produce(cluster, "t", 0, 10).await?, Answer::Appended(0));
    // A member that leads the generation and assigns nothing, until it leaves.
    let bootstrap = cluster.bootstrap();
    let join = || async { Client::join_group(&bootstrap, "g", SESSION_MS).await.ok() };
    let (mut coordinator, member) = wait_for("a member of g", SETTLE_MAX, join).await?;
    until_first(admin, "group g", &["group_rebalancing"]).await?;
    coordinator.leave_group("g", &member).await?;
    let consumer = tokio::task::spawn_blocking(move || {
        let arguments = ["-G", "g", "-X", "auto.offset.reset=earliest", "-e", "-q", "t"];
        kcat::run(&bootstrap, &arguments, b"")
    });
    let output = consumer.await??;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // It has read everything, and nobody reads any more.
    let told = until_first(admin, "group g", &["no_members"]).await?;
    assert_eq!((&told["well"], &told["state"]), (&json!(true), &json!("Empty")), "{told:#}");
    // The group stands at 10; what it would read next goes.
    assert_eq!(produce(cluster, "t", 0, 10).await?, Answer::Appended(10));
    command(admin, &["topic", "delete-records", "t", "--partition", "0", "--before", "15"]).await?;
    let told = until_first(admin, "group g", &["committed_offset_out_of_range"]).await?;
    assert_eq!(told["causes"][0]["partitions"][0], "t:0", "{told:#}");
    assert!(text(&told, "/next_command/command").contains("--to-earliest"), "{told:#}");
    follow(cluster, &told).await?;
    let told = until_first(admin, "group g", &["no_members"]).await?;
    assert_eq!(told["impact"], "degraded", "there is something to read: {told:#}");
    let lag = "t:0: committed 15, log end 20, lag 5";
    assert!(told["evidence"].as_array().is_some_and(|all| all.iter().any(|e| e["text"] == lag)));
    let unknown = explain(admin, "group nobody").await;
    assert!(unknown.is_err_and(|error| error.to_string().contains("there is no group")));
    Ok(())
}
