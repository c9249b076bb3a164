//! Settings of topics and of the cluster changed live: by Kafka's AdminClient, on the command line, and in ZooKeeper by Kafka's own
//! way.

use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::kcat;
use barnabas_tests::wait::wait_for;
use serde_json::Value;

use super::clients::python;
use super::topic;

/// `topic describe t --json` of one broker.
async fn described(admin: &str) -> Outcome<Value> {
    let output = run_program(&["topic", "describe", "t", "--json", "--admin", admin]).await?;
    let topics: Value = serde_json::from_slice(&output.stdout)?;
    Ok(topics[0].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r37_settings_are_changed_live_and_outlive_their_controller() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    topic(&cluster, NewTopic { name: "t", partitions: 3, replication_factor: 3, configs: &[] })
        .await?;
    let bootstrap = cluster.bootstrap();
    python("configs.py", &[&bootstrap, "alter"])?;
    let znodes = cluster.znodes().await?;
    let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
    let elsewhere = (1..=3).find(|id| i64::from(*id) != controller).ok_or("no other broker")?;
    let admin = cluster.broker(elsewhere).config().admin_listener.to_string();

    let alter = ["topic", "alter", "t", "--config", "min.insync.replicas=3"];
    let more = ["--delete-config", "retention.ms", "--config", "segment.ms=604800000"];
    let output = run_program(&[&alter[..], &more, &["--admin", &admin]].concat()).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        said.contains("altered topic 't': flush.mode=sync  min.insync.replicas=3"),
        "{said}: every leader has confirmed it"
    );
    assert!(!said.contains("not yet confirmed"), "{said}");
    let topic = described(&admin).await?;
    assert_eq!(topic["configs"]["min.insync.replicas"], 3);
    assert_eq!(topic["config_sources"]["segment.ms"], "topic");
    assert_eq!(topic["config_sources"]["retention.ms"], "default");
    let output = run_program(&["topic", "describe", "t", "--admin", &admin]).await?;
    let table = String::from_utf8(output.stdout)?;
    assert!(table.contains("flush.mode=sync") && !table.contains("retention.ms"), "{table}");
    let bad = ["topic", "alter", "t", "--config", "flush.mode=often", "--admin", &admin];
    let output = run_program(&bad).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr)?.contains("must be async or sync, not 'often'"));

    // What is in force is what acks=all asks for: with one broker away, three replicas are too many.
    let expected = ["flush.mode=sync", "min.insync.replicas=3", "segment.ms=604800000"];
    cluster.broker(i32::try_from(controller)?).kill().await?;
    wait_for("a new controller", SETTLE_MAX, || async {
        znodes.controller().await.ok().flatten().filter(|(_, next)| *next > epoch)
    })
    .await?;
    python("configs.py", &[&[&*bootstrap, "check"], &expected[..]].concat())?;
    let produce = ["-P", "-t", "t", "-p", "0", "-X", "acks=all", "-X", "message.timeout.ms=3000"];
    wait_for("the dead broker is out of the ISR", SETTLE_MAX, || async {
        let partitions = znodes.partitions("t").await.ok()?;
        partitions.values().all(|p| p.isr.len() == 2).then_some(())
    })
    .await?;
    let output = kcat::run(&bootstrap, &produce, b"refused\n")?;
    assert!(!output.status.success(), "two of three in the ISR");
    let alter = ["topic", "alter", "t", "--config", "min.insync.replicas=2", "--admin", &admin];
    let output = run_program(&alter).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = kcat::run(&bootstrap, &produce, b"taken\n")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_kafkas_tools_write_into_zookeeper_are_taken_up() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 3, configs: &[] })
        .await?;
    let admin = cluster.broker(2).config().admin_listener.to_string();
    let znodes = cluster.znodes().await?;
    znodes.set("/config/topics/t", br#"{"version":1,"config":{"retention.ms":"777"}}"#).await?;
    let notice = br#"{"version":2,"entity_path":"topics/t"}"#;
    znodes.create("/config/changes/config_change_0000000000", notice).await?;
    wait_for("the settings are in force", Duration::from_secs(20), || async {
        let topic = described(&admin).await.ok()?;
        (topic["configs"]["retention.ms"] == 777).then_some(())
    })
    .await?;
    assert!(znodes.children("/config/changes").await?.is_empty(), "the notice is used up");
    Ok(())
}

/// Name, value and source of each row that `barnabas config describe --json` prints for these arguments.
async fn shown(admin: &str, whose: &[&str]) -> Outcome<Vec<(String, Value, String)>> {
    let arguments = [&["config", "describe", "--json", "--admin", admin], whose].concat();
    let output = run_program(&arguments).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    Ok(rows.iter().map(|r| (text(r, "name"), r["value"].clone(), text(r, "source"))).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_cluster_reach_topics_live_and_outlive_their_controller() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let configs = &[("segment.ms", "5000000")];
    topic(&cluster, NewTopic { name: "t", partitions: 2, replication_factor: 3, configs }).await?;
    let znodes = cluster.znodes().await?;
    let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
    let elsewhere = (1..=3).find(|id| i64::from(*id) != controller).ok_or("no other broker")?;
    let admin = cluster.broker(elsewhere).config().admin_listener.to_string();
    let alter = |more: &[&str]| {
        let all = [&["config", "alter", "--admin", &admin], more].concat();
        let all: Vec<String> = all.iter().map(|a| (*a).to_owned()).collect();
        async move {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            run_program(&all).await
        }
    };
    let pairs = ["--config", "log.retention.ms=777000", "--config", "log.roll.ms=6000000"];
    let output = alter(&[&["--cluster-default"][..], &pairs].concat()).await?;
    let said = String::from_utf8(output.stdout)?;
    assert!(said.contains("altered the cluster: log.retention.ms=777000"), "{said}");
    assert!(!said.contains("not yet confirmed"), "{said}");
    let told = described(&admin).await?;
    assert_eq!(told["configs"]["retention.ms"], 777_000);
    assert_eq!(told["config_sources"]["retention.ms"], "cluster");
    assert_eq!(told["configs"]["segment.ms"], 5_000_000, "the topic says otherwise");
    let stored = shown(&admin, &["--cluster-default"]).await?;
    assert_eq!(stored.len(), 2, "{stored:?}");
    let own = ["--broker", "2", "--config", "log.cleaner.backoff.ms=2000"];
    let output = alter(&own).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Asked of any broker, told by the one that is meant.
    let of_two = shown(&admin, &["--broker", "2"]).await?;
    let find = |name: &str| of_two.iter().find(|(n, ..)| n == name).cloned().unwrap_or_default();
    assert_eq!(find("broker.id"), ("broker.id".into(), "2".into(), "file".into()));
    let backoff = find("log.cleaner.backoff.ms");
    assert_eq!((backoff.1, backoff.2), ("2000".into(), "broker".to_owned()));
    let retention = find("log.retention.ms");
    assert_eq!((retention.1, retention.2), ("777000".into(), "cluster".to_owned()));
    let output = alter(&["--cluster-default", "--config", "listeners=PLAINTEXT://h:1"]).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr)?.contains("a broker's file"));

    let controller = i32::try_from(controller)?;
    cluster.broker(controller).kill().await?;
    wait_for("a new controller", SETTLE_MAX, || async {
        znodes.controller().await.ok().flatten().filter(|(_, next)| *next > epoch)
    })
    .await?;
    cluster.broker(controller).start()?;
    cluster.until_known(&znodes, &[1, 2, 3]).await?;
    cluster.until_healed("t", 3).await?;
    python("configs.py", &[&cluster.bootstrap(), "cluster"])?;
    let output = alter(&["--cluster-default", "--delete-config", "log.retention.ms"]).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = described(&admin).await?;
    assert_eq!(told["config_sources"]["retention.ms"], "default");
    Ok(())
}
