//! Moving replicas (KIP-455) under load, through elections and restarts (B9): nothing is lost, nothing is left behind.

use std::path::Path;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::load::{self, Load, Target};
use barnabas_tests::replicas::identical;
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::Znodes;
use serde_json::{Value, json};

use super::topic;

const PARTITIONS: i32 = 3;

fn options() -> Options {
    Options { brokers: 4, session_timeout_ms: 1_500, ..Options::default() }
}

/// A command of the CLI at a broker: exit code, and what it said on both outputs.
async fn command(
    cluster: &mut Cluster,
    broker: i32,
    arguments: &[&str],
) -> Outcome<(Option<i32>, String)> {
    let admin = cluster.broker(broker).config().admin_listener.to_string();
    let output = run_program(&[arguments, &["--admin", &admin]].concat()).await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(text)?))
}

async fn topic_node(znodes: &Znodes) -> Outcome<Value> {
    Ok(znodes.read("/brokers/topics/t").await?.ok_or("no topic")?.data)
}

/// Replicas of every partition, as `P:a,b,c;...`: these brokers, each first in turn.
fn rotated(brokers: &[i32]) -> String {
    let of = |partition: i32| {
        let mut ids: Vec<String> = brokers.iter().map(i32::to_string).collect();
        let turn = usize::try_from(partition).unwrap_or(0) % ids.len();
        ids.rotate_left(turn);
        format!("{partition}:{}", ids.join(","))
    };
    (0..PARTITIONS).map(of).collect::<Vec<_>>().join(";")
}

/// Those that are set aside are none.
fn replica_directories(log_dir: &Path) -> usize {
    let entries = std::fs::read_dir(log_dir).into_iter().flatten().filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("t-") && !name.ends_with("-stray")).count()
}

async fn until_moved(znodes: &Znodes, brokers: &[i32]) -> Outcome<()> {
    wait_for(&format!("all replicas are on {brokers:?}"), SETTLE_MAX, || async {
        let node = topic_node(znodes).await.ok()?;
        let over = node["adding_replicas"] == json!({}) && node["removing_replicas"] == json!({});
        let states = znodes.partitions("t").await.ok()?;
        let moved = states.values().all(|state| {
            let mut isr = state.isr.clone();
            isr.sort_unstable();
            isr.iter().copied().eq(brokers.iter().map(|id| i64::from(*id)))
        });
        (over && moved).then_some(())
    })
    .await
}

/// Until the removed replicas' brokers have confirmed that they are gone (R22): a directory goes before its confirmation comes.
async fn until_none_listed(cluster: &mut Cluster, broker: i32) -> Outcome<()> {
    let admin = cluster.broker(broker).config().admin_listener.to_string();
    wait_for("nothing is under way", SETTLE_MAX, || async {
        let output = run_program(&["topic", "reassignments", "--admin", &admin]).await.ok()?;
        String::from_utf8_lossy(&output.stdout).contains("no reassignment is").then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_a_move_under_load_outlives_its_controller_and_a_dead_target() -> Outcome<()> {
    let mut cluster = Cluster::start(options()).await?;
    let znodes = cluster.znodes().await?;
    let new = NewTopic { name: "t", partitions: PARTITIONS, replication_factor: 3, configs: &[] };
    topic(&cluster, new).await?;
    let target =
        Target { bootstrap: cluster.bootstrap(), topic: "t".into(), partitions: PARTITIONS };
    let load = Load::start(&target, 4, 0, 7);
    let busy = |least: u64| {
        let load = &load;
        async move {
            wait_for("records are taken", SETTLE_MAX, || async {
                load.batches().iter().all(|batches| *batches >= least).then_some(())
            })
            .await
            .map_err(|error| format!("{error}; a producer was told: {}", load.trouble()))
        }
    };
    busy(100).await?;

    // Away from the controller, which leads too, so that its end is part of the move.
    let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
    let leaving = i32::try_from(controller)?;
    let staying: Vec<i32> = (1..=4).filter(|id| *id != leaving).collect();
    let assignment = rotated(&staying);
    let wrong = format!("{assignment};99:{}", staying[0]);
    let set = ["topic", "set-replicas", "t", "--assignment", &wrong, "--throttle", "2000"];
    let (code, said) = command(&mut cluster, staying[0], &set).await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("partition 99") && said.contains("1 of 4 partitions"), "{said}");
    let none = ["topic", "set-replicas", "nope", "--assignment", "0:1"];
    let (code, said) = command(&mut cluster, staying[0], &none).await?;
    assert!(code == Some(1) && said.contains("UNKNOWN_TOPIC_OR_PARTITION"), "{said}");
    let node = topic_node(&znodes).await?;
    assert_ne!(node["adding_replicas"], json!({}), "the others are under way: {node}");
    let limits = node["reassignment_throttles"].as_object().ok_or("no throttle")?;
    assert!(limits.values().all(|limit| *limit == json!(2000)), "{node}");

    let admin = cluster.broker(staying[0]).config().admin_listener.to_string();
    // A copy has a progress once its leader has heard of it and it has fetched.
    let moving = wait_for("the progress of a copy is told", SETTLE_MAX, || async {
        let list = ["topic", "reassignments", "--json", "--admin", &admin];
        let output = run_program(&list).await.ok().filter(|output| output.status.success())?;
        let listed: Value = serde_json::from_slice(&output.stdout).ok()?;
        let moving = listed.as_array()?.clone();
        let mut copies = moving.iter().filter_map(|one| one["progress"].as_array()).flatten();
        copies.any(|copy| copy["bytes_left"].as_u64().is_some()).then_some(moving)
    })
    .await?;
    assert!(moving.iter().all(|one| one["throttle"] == json!(2000)), "{moving:?}");

    // The controller and a broker that is being added go together; only the latter comes back at once.
    let added = node["adding_replicas"].as_object().ok_or("no move")?;
    let added = added.values().find_map(|ids| ids[0].as_i64()).ok_or("nobody is added")?;
    let added = i32::try_from(added)?;
    let asked = *staying.iter().find(|id| **id != added).ok_or("nobody stays up")?;
    cluster.broker(leaving).kill().await?;
    cluster.broker(added).kill().await?;
    wait_for("a new controller", SETTLE_MAX, || async {
        znodes.controller().await.ok().flatten().filter(|(_, next)| *next > epoch)
    })
    .await?;
    let node = topic_node(&znodes).await?;
    assert_ne!(node["adding_replicas"], json!({}), "it waits for broker {added}: {node}");
    cluster.broker(added).start()?;
    cluster.until_known(&znodes, &staying).await?;
    let unthrottle = ["topic", "set-replicas", "t", "--throttle", "0"];
    let (code, said) = command(&mut cluster, asked, &unthrottle).await?;
    assert_eq!(code, Some(0), "{said}");
    until_moved(&znodes, &staying).await?;
    let so_far = load.batches().into_iter().max().unwrap_or(0);
    busy(so_far + 20).await?;

    // The removed broker comes back: what it held is set aside.
    assert!(replica_directories(cluster.broker(leaving).log_dir()) > 0);
    cluster.broker(leaving).start()?;
    cluster.until_known(&znodes, &[1, 2, 3, 4]).await?;
    let log_dir = cluster.broker(leaving).log_dir().to_owned();
    wait_for("the removed replicas' directories are gone", SETTLE_MAX, || async {
        (replica_directories(&log_dir) == 0).then_some(())
    })
    .await?;
    until_none_listed(&mut cluster, leaving).await?;
    let node = topic_node(&znodes).await?;
    assert_eq!(node.get("reassignment_throttles"), None, "{node}");

    let accounts = load.stop().await?;
    until_moved(&znodes, &staying).await?;
    let verdict = load::judge(&target, &accounts)?;
    assert!(verdict.acked > 0);
    assert_eq!((verdict.lost, verdict.wrong()), (0, 0), "{verdict:?}");
    let log_dirs: Vec<_> =
        staying.iter().map(|id| cluster.broker(*id).log_dir().to_owned()).collect();
    let log_dirs: Vec<&Path> = log_dirs.iter().map(std::path::PathBuf::as_path).collect();
    for partition in 0..3 {
        wait_for("the replicas are equal", SETTLE_MAX, || async {
            identical(&log_dirs, "t", partition).ok().filter(|bytes| *bytes > 0)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_grows_shrinks_and_a_move_is_cancelled() -> Outcome<()> {
    // The one that is paused stays registered: only such a broker can become a target.
    let mut cluster = Cluster::start(Options { session_timeout_ms: 30_000, ..options() }).await?;
    let znodes = cluster.znodes().await?;
    let new = NewTopic { name: "t", partitions: PARTITIONS, replication_factor: 2, configs: &[] };
    topic(&cluster, new).await?;
    let before = topic_node(&znodes).await?["partitions"].clone();
    let set = |factor: &'static str| {
        ["topic", "set-replicas", "t", "--replication-factor", factor, "--wait"]
    };
    let (code, said) = command(&mut cluster, 1, &set("4")).await?;
    assert_eq!(code, Some(0), "{said}");
    until_moved(&znodes, &[1, 2, 3, 4]).await?;
    let (code, said) = command(&mut cluster, 2, &set("5")).await?;
    assert!(code == Some(1) && said.contains("above the number of live brokers"), "{said}");
    let (code, said) = command(&mut cluster, 3, &set("2")).await?;
    assert_eq!(code, Some(0), "{said}");
    // Whoever waited finds the removed replicas gone.
    let mut held = 0;
    for broker in cluster.brokers() {
        held += replica_directories(broker.log_dir());
    }
    assert_eq!(held, 6);
    let shrunk = topic_node(&znodes).await?["partitions"].clone();
    for (index, replicas) in before.as_object().ok_or("no partitions")? {
        assert_eq!(shrunk[index][0], replicas[0], "the preferred leaders stay");
        assert_eq!(shrunk[index].as_array().map(Vec::len), Some(2));
    }

    // A target that is away keeps the move from ending; the cancellation ends it.
    let holders = shrunk["0"].as_array().ok_or("no replicas")?.clone();
    let holds = |id: &i64| holders.iter().any(|held| held.as_i64() == Some(*id));
    let (controller, _) = znodes.controller().await?.ok_or("no controller")?;
    let free = (1..=4).find(|id| !holds(id) && *id != controller).ok_or("no free broker")?;
    let (first, free_broker) = (holders[0].as_i64().unwrap_or(0), i32::try_from(free)?);
    let asked = i32::try_from(first)?;
    cluster.broker(free_broker).pause()?;
    let assignment = format!("0:{first},{free}");
    let away = ["topic", "set-replicas", "t", "--assignment", &assignment];
    let (code, said) = command(&mut cluster, asked, &away).await?;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(topic_node(&znodes).await?["adding_replicas"], json!({"0": [free]}));
    let cancel = ["topic", "set-replicas", "t", "--cancel"];
    let (code, said) = command(&mut cluster, asked, &cancel).await?;
    assert_eq!(code, Some(0), "{said}");
    wait_for("the cancelled move is over", SETTLE_MAX, || async {
        let node = topic_node(&znodes).await.ok()?;
        (node["adding_replicas"] == json!({}) && node["partitions"]["0"] == shrunk["0"])
            .then_some(())
    })
    .await?;
    cluster.broker(free_broker).resume()?;
    cluster.until_known(&znodes, &[1, 2, 3, 4]).await?;
    // What the newcomer may have made of it before it heard of the end goes, and only then nothing is listed any more.
    let log_dir = cluster.broker(free_broker).log_dir().to_owned();
    wait_for("the cancelled replica is gone", SETTLE_MAX, || async {
        (!log_dir.join("t-0").exists()).then_some(())
    })
    .await?;
    until_none_listed(&mut cluster, asked).await?;
    let (code, said) = command(&mut cluster, asked, &cancel).await?;
    assert!(code == Some(1) && said.contains("no reassignment of topic 't'"), "{said}");
    Ok(())
}

/// Nobody could ever acknowledge a record at acks=all there; what the refusal advises helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r23_a_move_to_fewer_replicas_than_min_insync_is_refused_and_changes_nothing() -> Outcome<()>
{
    let mut cluster = Cluster::start(Options { brokers: 3, ..options() }).await?;
    let znodes = cluster.znodes().await?;
    let configs = &[("min.insync.replicas", "2")];
    let new = NewTopic { name: "t", partitions: PARTITIONS, replication_factor: 3, configs };
    topic(&cluster, new).await?;
    let before = topic_node(&znodes).await?;
    let set = |factor: &'static str| {
        ["topic", "set-replicas", "t", "--replication-factor", factor, "--wait"]
    };
    let (code, said) = command(&mut cluster, 1, &set("1")).await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 replicas are fewer than min.insync.replicas, 2"), "{said}");
    assert_eq!(topic_node(&znodes).await?, before);
    let (code, said) = command(&mut cluster, 2, &set("2")).await?;
    assert_eq!(code, Some(0), "{said}");
    let alter = ["topic", "alter", "t", "--config", "min.insync.replicas=1"];
    let (code, said) = command(&mut cluster, 3, &alter).await?;
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = command(&mut cluster, 1, &set("1")).await?;
    assert_eq!(code, Some(0), "{said}");
    Ok(())
}
