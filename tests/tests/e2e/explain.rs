//! `barnabas explain` while things are broken on purpose: the right cause is first, and its advice heals it.

use std::fs;
use std::io::Write as _;
use std::sync::Mutex;

use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::cluster::{Cluster, Options, Preload, SETTLE_MAX, run_program};
use barnabas_tests::proxy::Link;
use barnabas_tests::shim::EIO;
use barnabas_tests::wait::wait_for;
use barnabas_tests::{Outcome, kcat};
use serde_json::{Value, json};

/// A command of the CLI at a broker; what it printed.
async fn command(admin: &str, arguments: &[&str]) -> Outcome<String> {
    let output = run_program(&[arguments, &["--admin", admin]].concat()).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{arguments:?}: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// `barnabas explain WHAT --json`. Its exit code must say the same.
async fn explain(admin: &str, what: &str) -> Outcome<Value> {
    let words: Vec<&str> = what.split(' ').collect();
    let arguments = [&["explain"], &words[..], &["--json", "--admin", admin]].concat();
    let output = run_program(&arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told: Value = serde_json::from_slice(&output.stdout).map_err(|_| said)?;
    let code = if told["well"] == true { 0 } else { 2 };
    assert_eq!(output.status.code(), Some(code), "{told}");
    Ok(told)
}

/// Asks again and again until the answer is as wanted; the answer.
async fn until(
    admin: &str,
    what: &str,
    wanted: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Outcome<Value> {
    let last = Mutex::new(String::new());
    let wish = format!("{what}: {wanted}");
    let found = wait_for(&wish, SETTLE_MAX, || async {
        match explain(admin, what).await {
            Ok(told) if is_wanted(&told) => Some(told),
            Ok(told) => {
                *last.lock().unwrap() = format!("{told:#}");
                None
            }
            Err(error) => {
                *last.lock().unwrap() = error.to_string();
                None
            }
        }
    });
    let found = found.await;
    found.map_err(|error| format!("{error}; told was: {}", last.lock().unwrap()).into())
}

/// Waits until these causes are the first; the answer.
async fn until_first(admin: &str, what: &str, causes: &[&str]) -> Outcome<Value> {
    until(admin, what, &format!("{causes:?} first"), |told| names(told).starts_with(causes)).await
}

/// Waits until nothing is wrong, and nothing is worth telling.
async fn until_well(admin: &str, what: &str) -> Outcome<()> {
    until(admin, what, "well", |told| names(told).is_empty()).await.map(drop)
}

fn names(told: &Value) -> Vec<&str> {
    let causes = told["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().filter_map(|cause| cause["name"].as_str()).collect()
}

/// Runs the first advice of the first cause that is a command of ours with this word in it.
async fn follow_advice(admin: &str, told: &Value, word: &str) -> Outcome<()> {
    let steps = told["causes"][0]["next"].as_array().ok_or("no advice")?;
    let mut commands = steps.iter().filter_map(|step| step["command"].as_str());
    let advice =
        commands.find(|command| command.starts_with("barnabas ") && command.contains(word));
    let advice = advice.ok_or_else(|| format!("no advice with {word}: {steps:?}"))?;
    let arguments: Vec<&str> = advice.split(' ').skip(1).collect();
    command(admin, &arguments).await.map(drop)
}

async fn produce(cluster: &Cluster, topic: &str, partition: i32, count: usize) -> Outcome<Answer> {
    let mut leader = Client::of_leader(&cluster.bootstrap(), 0, topic, partition).await?;
    let values: Vec<Vec<u8>> = (0..count).map(|n| format!("value-{n}").into_bytes()).collect();
    let terms = Terms { acks: 1, timeout_ms: 3_000, ..Terms::default() };
    leader.produce_on(topic, partition, terms, &values).await
}

async fn until_isr(cluster: &Cluster, topic: &str, isr: &[i64]) -> Outcome<()> {
    let znodes = cluster.znodes().await?;
    wait_for(&format!("the ISR of {topic} is {isr:?}"), SETTLE_MAX, || async {
        (znodes.partitions(topic).await.ok()?.get(&0)?.isr == isr).then_some(())
    })
    .await
}

/// Brokers that die, disks that fail, moves and deletions that wait.
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
    let summary = told["causes"][0]["summary"].as_str().unwrap_or_default();
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
    assert_eq!(told["causes"][0]["severity"], "writes_refused");
    cluster.broker(2).start()?;
    until_well(&third, "partition m:0").await?;

    // The last ISR member dies after the other one, which alone comes back.
    until_isr(&cluster, "t", &[1, 2]).await?;
    cluster.broker(2).kill().await?;
    until_isr(&cluster, "t", &[1]).await?;
    assert_eq!(produce(&cluster, "t", 0, 3).await?, Answer::Appended(5));
    cluster.broker(1).kill().await?;
    let told = until_first(&third, "partition t:0", &["all_isr_members_dead"]).await?;
    assert_eq!(told["causes"][0]["severity"], "offline", "{told:#}");
    cluster.broker(2).start()?;
    let told = until_first(&third, "partition t:0", &["only_out_of_sync_replicas_alive"]).await?;
    let cause = &told["causes"][0];
    let candidate = &cause["candidates"][0];
    assert_eq!((&candidate["broker_id"], &candidate["lost_from"]), (&2.into(), &5.into()));
    assert!(cause["next"][0]["command"].as_str().is_some_and(|c| c.contains("host of broker 1")));
    let cost = cause["next"][1]["cost"].as_str().unwrap_or_default();
    assert!(cost.contains("from offset 5 on"), "{told:#}");

    // It comes back without its data: the longest log of all leads, once all are there.
    cluster.broker(2).kill().await?;
    cluster.broker(1).wipe()?;
    cluster.broker(1).start()?;
    let told = until_first(&third, "partition t:0", &["tail_lost"]).await?;
    assert!(names(&told).iter().any(|name| name.starts_with("broker_")), "{told:#}");
    cluster.broker(2).start()?;
    until_well(&third, "partition t:0").await?;
    until_well(&third, "cluster").await?;

    drained(&third).await?;
    failed_directory(&mut cluster, &third).await?;
    full_disk(&mut cluster, &third).await?;
    waiting_for_a_dead_broker(&mut cluster, &first, &third).await
}

/// A broker that is being emptied.
async fn drained(admin: &str) -> Outcome<()> {
    command(admin, &["broker", "drain", "2"]).await?;
    // It stays in the ISR of m, which needs both.
    let told = until_first(admin, "broker 2", &["broker_draining"]).await?;
    let cause = &told["causes"][0];
    let summary = cause["summary"].as_str().unwrap_or_default();
    assert!(summary.contains("do not stop it yet"), "{told:#}");
    assert!(cause["next"][0]["command"].as_str().is_some_and(|c| c.contains("can-stop 2")));
    let told = until_first(admin, "partition t:0", &["broker_draining"]).await?;
    follow_advice(admin, &told, "undrain").await?;
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
    assert_eq!(told["causes"][0]["severity"], "offline", "{told:#}");
    let told = until_first(admin, "broker 2", &["directory_failed"]).await?;
    assert!(told["causes"][0]["summary"].as_str().is_some_and(|s| s.contains("broker-2-1")));
    cluster.shim(2).rules(&[])?;
    cluster.broker(2).terminate().await?;
    cluster.broker(2).start()?;
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
    assert_eq!(told["causes"][0]["severity"], "writes_refused", "{told:#}");
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
    follow_advice(first, &told, "--cancel").await?;
    until_well(first, "partition t:0").await?;

    command(first, &["topic", "delete", "gone"]).await?;
    let told = until_first(first, "partition gone:0", &["deletion_waiting"]).await?;
    assert_eq!(told["well"], true, "it is worth knowing, and no trouble: {told:#}");
    cluster.broker(3).start()?;
    until_well(first, "partition gone:0").await?;
    until_well(first, "cluster").await
}

/// Processes that stand still, links that are cut, ZooKeeper away, groups.
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
    let silent = told["unanswered"][0].as_str().unwrap_or_default();
    assert!(silent.contains("did not answer within"), "{told:#}");
    cluster.broker(2).resume()?;
    until_well(&third, "cluster").await?;

    // Its registration ends with its session; its process goes on.
    cluster.links(2).zookeeper.set(Link::Silent);
    until_first(&third, "partition t:0", &["broker_fenced"]).await?;
    cluster.links(2).zookeeper.set(Link::Whole);
    until_well(&third, "cluster").await?;

    let controller = cluster.admin().await?.cluster().await?.controller_id;
    let asked = cluster.admin_address(if controller == 3 { 2 } else { 3 });
    cluster.broker(controller).pause()?;
    until_first(&asked, "cluster", &["no_controller"]).await?;
    cluster.broker(controller).resume()?;
    until_well(&asked, "cluster").await?;

    cluster.stop_zookeeper();
    until_first(&third, "partition t:0", &["zookeeper_unreachable"]).await?;
    let all = json!([1, 2, 3]);
    until(&third, "cluster", "nobody reaches ZooKeeper", |told| {
        let first = &told["causes"][0];
        first["name"] == "zookeeper_unreachable" && first["brokers"] == all
    })
    .await?;
    cluster.start_zookeeper().await?;
    until_well(&third, "cluster").await?;
    groups(&cluster, &third).await
}

/// How long a member of a group may say nothing.
const SESSION_MS: i32 = 300_000;

/// A group that has no coordinator, one that rebalances, and one whose offset is gone.
async fn groups(cluster: &Cluster, admin: &str) -> Outcome<()> {
    until_first(admin, "group g", &["coordinator_unavailable"]).await?;
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
    until_well(admin, "group g").await?;
    // The group stands at 10; what it would read next goes.
    assert_eq!(produce(cluster, "t", 0, 10).await?, Answer::Appended(10));
    command(admin, &["topic", "delete-records", "t", "--partition", "0", "--before", "15"]).await?;
    let told = until_first(admin, "group g", &["committed_offset_out_of_range"]).await?;
    assert_eq!(told["causes"][0]["partitions"][0], "t:0", "{told:#}");
    follow_advice(admin, &told, "--to-earliest").await?;
    until_well(admin, "group g").await?;
    let unknown = explain(admin, "group nobody").await;
    assert!(unknown.is_err_and(|error| error.to_string().contains("there is no group")));
    Ok(())
}
