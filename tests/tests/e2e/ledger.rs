//! The ledger: what a deposed leader had acknowledged alone, seen through every broker and kept when its own directory is gone.

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::proxy::Link;
use barnabas_tests::wait::wait_for;
use serde_json::Value;

use super::topic;

/// Batches that the leader alone has.
const ALONE: i64 = 20;

/// What `barnabas ledger VERB` says, and its exit code.
async fn ledger(cluster: &mut Cluster, id: i32, verb: &[&str]) -> Outcome<(i32, Vec<Value>)> {
    let admin = cluster.broker(id).config().admin_listener.to_string();
    let output = run_program(&[&["ledger"], verb, &["--json", "--admin", &admin]].concat()).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().ok_or("killed by a signal")?;
    let listed = serde_json::from_slice(&output.stdout).map_err(|_| format!("{code}: {said}"))?;
    Ok((code, listed))
}

/// Ranges with their classes.
fn ranges(entries: &[Value]) -> Vec<(i64, i64, String)> {
    let of = |entry: &Value| {
        let class = entry["class"].as_str().unwrap_or_default().to_owned();
        (entry["from"].as_i64().unwrap_or(-1), entry["to"].as_i64().unwrap_or(-1), class)
    };
    entries.iter().map(of).collect()
}

async fn append(client: &mut Client, acks: i16, n: i64) -> Outcome<i64> {
    let terms = Terms { acks, ..Terms::default() };
    match client.produce_on("t", 0, terms, &[format!("{acks}-{n}").into_bytes()]).await? {
        Answer::Appended(offset) => Ok(offset),
        answer @ Answer::Refused(..) => Err(format!("{answer:?}").into()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deposed_leader_acknowledged_alone_is_in_the_ledger_of_every_broker() -> Outcome<()>
{
    let config = "replica.lag.time.max.ms: 30000\n".to_owned();
    let options =
        Options { proxied: true, session_timeout_ms: 6_000, config, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let znodes = cluster.znodes().await?;
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 3, configs: &[] })
        .await?;
    let before = znodes.partitions("t").await?[&0].clone();
    let leader = i32::try_from(before.leader)?;
    let others: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    let address = cluster.broker(leader).config().listener.to_string();
    let mut client = Client::connect(&address).await?;
    for n in 0..50 {
        append(&mut client, if n % 2 == 0 { -1 } else { 1 }, n).await?;
    }
    let committed = append(&mut client, -1, 50).await? + 1;
    for id in 1..=3 {
        assert_eq!(
            ledger(&mut cluster, id, &["list"]).await?,
            (0, Vec::new()),
            "no fault, no loss"
        );
        assert_eq!(ledger(&mut cluster, id, &["verify"]).await?, (0, Vec::new()));
    }

    // Its followers cannot reach the leader, which is alone with what it acknowledges; then it stands still until it is deposed.
    cluster.links(leader).kafka.set(Link::Cut);
    // The proxy looks at the cut after each read, so an answer that has any of these passes no more, whatever was on its way.
    let mut acknowledged = committed;
    for n in 0..ALONE {
        acknowledged = append(&mut client, 1, n).await? + 1;
    }
    let all = Terms { acks: -1, ..Terms::default() };
    client.post("t", 0, all, &[b"never acknowledged".to_vec()]).await?;
    let end = acknowledged + 1;
    let log_dir = cluster.broker(leader).log_dir().to_owned();
    wait_for("it is written", SETTLE_MAX, || async {
        let bytes = barnabas_tests::replicas::log_bytes(&log_dir, "t", 0).ok()?;
        bytes.windows(18).any(|window| window == b"never acknowledged").then_some(())
    })
    .await?;
    cluster.broker(leader).pause()?;
    cluster.links(leader).kafka.set(Link::Whole);
    let after = wait_for("another broker leads", SETTLE_MAX, || async {
        let now = znodes.partitions("t").await.ok()?.get(&0)?.clone();
        (now.leader >= 0 && now.leader != before.leader).then_some(now)
    })
    .await?;
    let successor = i32::try_from(after.leader)?;
    let address = cluster.broker(successor).config().listener.to_string();
    let old_epoch = i32::try_from(before.leader_epoch)?;
    let kept = wait_for("it says where the epoch before ended", SETTLE_MAX, || async {
        let mut client = Client::connect(&address).await.ok()?;
        let (epoch, end) = client.epoch_end("t", 0, (-1, old_epoch)).await.ok()?.ok()?;
        (epoch == old_epoch).then_some(end)
    })
    .await?;
    assert!(committed <= kept && kept < acknowledged, "{committed} {kept} {acknowledged}");
    cluster.broker(leader).resume()?;
    cluster.until_healed("t", 3).await?;

    let expected =
        [(kept, acknowledged, "acks=1".to_owned()), (acknowledged, end, "never acked".to_owned())];
    for id in 1..=3 {
        let admin = cluster.broker(id).config().admin_listener.to_string();
        let listed = wait_for("the ledger has it", SETTLE_MAX, || async {
            let words =
                ["ledger", "list", "--topic", "t", "--since", "1h", "--json", "--admin", &admin];
            let output = run_program(&words).await.ok()?;
            let listed: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
            (listed.len() >= 2).then_some(listed)
        })
        .await?;
        assert_eq!(ranges(&listed), expected, "{listed:?}");
        for entry in &listed {
            assert_eq!((&entry["broker"], &entry["cause"]), (&leader.into(), &"truncated".into()));
            assert_eq!((&entry["epoch"], &entry["partition"]), (&old_epoch.into(), &0.into()));
        }
        let health = cluster.broker(id).health().await?;
        let entries = &health["ledger"]["entries"];
        assert_eq!(
            (&entries["acks=1"], &entries["never acked"]),
            (&1.into(), &1.into()),
            "{health}"
        );
        let admin = cluster.broker(id).config().admin_listener.to_string();
        let typo = run_program(&["ledger", "list", "--topic", "u", "--admin", &admin]).await?;
        let said = String::from_utf8_lossy(&typo.stderr).into_owned();
        assert_eq!((typo.status.code(), said.contains("no topic 'u'")), (Some(1), true), "{said}");
    }
    let (code, verified) = ledger(&mut cluster, successor, &["verify"]).await?;
    assert_eq!((code, verified.len()), (1, 2), "what was acknowledged at acks=1 is gone");
    assert!(verified.iter().all(|entry| entry["verdict"] == "gone"), "{verified:?}");
    let had_by = |entry: &Value| entry["had_by"] == serde_json::json!([]);
    assert!(verified.iter().all(had_by), "every replica was asked, and none has it: {verified:?}");

    // Its own directory is gone, and the ledger is not; it gets it back from the others.
    cluster.broker(leader).kill().await?;
    cluster.broker(leader).wipe()?;
    for id in &others {
        let (code, listed) = ledger(&mut cluster, *id, &["list"]).await?;
        assert_eq!((code, ranges(&listed)), (0, expected.to_vec()));
    }
    cluster.broker(leader).start()?;
    cluster.until_healed("t", 3).await?;
    let admin = cluster.broker(leader).config().admin_listener.to_string();
    wait_for("the wiped broker serves what its own disk has forgotten", SETTLE_MAX, || async {
        let output = run_program(&["ledger", "list", "--json", "--admin", &admin]).await.ok()?;
        let listed: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
        let gone = listed.iter().filter(|entry| entry["cause"] == "directory_lost");
        let gone: Vec<_> =
            gone.map(|e| (&e["broker"], &e["topic"], &e["from"], &e["to"])).collect();
        let wiped = (&leader.into(), &"t".into(), &0.into(), &Value::Null);
        let all = expected.iter().all(|range| ranges(&listed).contains(range));
        (all && gone == [wiped]).then_some(())
    })
    .await?;
    Ok(())
}

/// A leader is killed with records that it alone has, and comes back to lose them: its next process knows what it had acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_leader_had_acknowledged_alone_is_known_when_it_is_back() -> Outcome<()> {
    let config = "replica.lag.time.max.ms: 30000\n".to_owned();
    let options =
        Options { proxied: true, session_timeout_ms: 6_000, config, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let znodes = cluster.znodes().await?;
    for name in ["one", "none"] {
        let assignment = NewTopic { name, partitions: 1, replication_factor: 3, configs: &[] };
        topic(&cluster, assignment).await?;
        let before = znodes.partitions(name).await?[&0].clone();
        let leader = i32::try_from(before.leader)?;
        let address = cluster.broker(leader).config().listener.to_string();
        let mut client = Client::connect(&address).await?;
        let all = Terms { acks: -1, ..Terms::default() };
        let committed = client.produce_on(name, 0, all, &[b"committed".to_vec()]).await?;
        assert_eq!(committed, Answer::Appended(0));
        // Whatever a follower had asked for before the cut, it does not get.
        cluster.links(leader).kafka.set(Link::Cut);
        let acks = if name == "one" { 1 } else { 0 };
        let log_dir = cluster.broker(leader).log_dir().to_owned();
        for n in 0..ALONE {
            let terms = Terms { acks, ..Terms::default() };
            let record = [format!("alone-{n}").into_bytes()];
            if acks == 1 {
                client.produce_on(name, 0, terms, &record).await?;
            } else {
                client.post(name, 0, terms, &record).await?;
            }
        }
        let last = format!("alone-{}", ALONE - 1);
        wait_for("all of it is written", SETTLE_MAX, || async {
            let bytes = barnabas_tests::replicas::log_bytes(&log_dir, name, 0).ok()?;
            bytes.windows(last.len()).any(|window| window == last.as_bytes()).then_some(())
        })
        .await?;
        cluster.broker(leader).kill().await?;
        cluster.links(leader).kafka.set(Link::Whole);
        wait_for("another broker leads", SETTLE_MAX, || async {
            let now = znodes.partitions(name).await.ok()?.get(&0)?.leader;
            (now >= 0 && now != before.leader).then_some(())
        })
        .await?;
        cluster.broker(leader).start()?;
        cluster.until_healed(name, 3).await?;
        let admin = cluster.broker(leader).config().admin_listener.to_string();
        let listed = wait_for("the ledger has it", SETTLE_MAX, || async {
            let words = ["ledger", "list", "--topic", name, "--json", "--admin", &admin];
            let output = run_program(&words).await.ok()?;
            let listed: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
            (!listed.is_empty()).then_some(listed)
        })
        .await?;
        let class = if acks == 1 { "acks=1" } else { "never acked" };
        let [(from, to, told)] = &ranges(&listed)[..] else { panic!("{listed:?}") };
        assert_eq!((*to, told.as_str()), (1 + ALONE, class), "{listed:?}");
        assert!((1..*to).contains(from), "{listed:?}");
    }
    Ok(())
}
