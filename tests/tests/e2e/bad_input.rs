//! Bad input: one clear sentence that names the thing and the remedy, the right exit code, and nothing changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use barnabas_broker::zookeeper::free_port;
use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, fresh_directory, run_program};

use super::topic;

/// Writes a configuration beside the cluster's and returns its path.
pub(super) fn configuration(folder: &Path, lines: &[(&str, String)]) -> Outcome<PathBuf> {
    let file = folder.join("bad.yaml");
    let text: String = lines.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    fs::write(&file, text)?;
    Ok(file)
}

/// A configuration that is right except for what a test changes.
pub(super) fn right(folder: &Path, zookeeper: &str) -> Outcome<Vec<(&'static str, String)>> {
    Ok(vec![
        ("broker.id", "9".to_owned()),
        ("listeners", format!("PLAINTEXT://127.0.0.1:{}", free_port()?)),
        ("admin.listener", format!("127.0.0.1:{}", free_port()?)),
        ("http.listener", format!("127.0.0.1:{}", free_port()?)),
        ("zookeeper.connect", zookeeper.to_owned()),
        ("zookeeper.session.timeout.ms", "3000".to_owned()),
        ("zookeeper.connection.timeout.ms", "2000".to_owned()),
        ("log.dirs", folder.join("bad-data").display().to_string()),
    ])
}

pub(super) fn with(
    mut lines: Vec<(&'static str, String)>,
    key: &'static str,
    value: impl ToString,
) -> Vec<(&'static str, String)> {
    lines.retain(|(name, _)| *name != key);
    lines.push((key, value.to_string()));
    lines
}

/// The broker does not start: exit code 1 and one line on stderr with all of `parts`.
pub(super) async fn refused(file: &Path, parts: &[&str]) -> Outcome<()> {
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    one_sentence(&output, 1, parts);
    Ok(())
}

pub(super) fn one_sentence(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let logged = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}\n{logged}");
    assert_eq!(said.trim_end().lines().count(), 1, "one sentence: {said}");
    assert!(said.starts_with("barnabas: "), "{said}");
    for part in parts {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_cannot_start_says_why_and_changes_nothing() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let folder = cluster.directory().to_owned();
    let zookeeper = cluster.zookeeper_connect().to_owned();
    let good = || right(&folder, &zookeeper);
    let znodes = cluster.znodes().await?;
    let before = znodes.tree().await?;

    let file = configuration(&folder, &with(good()?, "broker.id", 1))?;
    refused(&file, &["broker", "1"]).await?;

    let locked = cluster.broker(1).log_dir().display().to_string();
    let file = configuration(&folder, &with(good()?, "log.dirs", &locked))?;
    refused(&file, &[&locked]).await?;

    let silent = format!("127.0.0.1:{}", free_port()?);
    let file = configuration(&folder, &with(good()?, "zookeeper.connect", &silent))?;
    refused(&file, &["ZooKeeper", &silent]).await?;

    let chroot = format!("{zookeeper}/no/such/root");
    let file = configuration(&folder, &with(good()?, "zookeeper.connect", &chroot))?;
    refused(&file, &["/no/such/root"]).await?;

    let taken = cluster.broker(1).config().listener.to_string();
    let file = configuration(&folder, &with(good()?, "listeners", format!("PLAINTEXT://{taken}")))?;
    refused(&file, &[&taken, "listeners"]).await?;
    let taken = cluster.broker(1).config().admin_listener.to_string();
    let file = configuration(&folder, &with(good()?, "admin.listener", &taken))?;
    refused(&file, &[&taken, "admin.listener"]).await?;

    let file = configuration(&folder, &with(good()?, "zookeper.connect", "x"))?;
    refused(&file, &["line 9", "'zookeper.connect'", "did you mean 'zookeeper.connect'?"]).await?;
    let file = configuration(&folder, &with(good()?, "num.partitions", "lots"))?;
    refused(&file, &["'num.partitions'", "'lots'", "expected a whole number"]).await?;

    assert_eq!(znodes.tree().await?, before, "nothing changed in ZooKeeper");
    cluster.until_formed().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_another_cluster_or_broker_is_refused() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    cluster.broker(3).terminate().await?;
    let meta = cluster.broker(3).log_dir().join("meta.properties");
    let original = fs::read_to_string(&meta)?;
    let id = |text: &str, key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned).unwrap_or_default()
    };
    let cluster_id = id(&original, "cluster.id=");
    assert_eq!(cluster_id.len(), 22, "{original}");
    let config = cluster.broker(3).config_file();

    let foreign = "AAAAAAAAAAAAAAAAAAAAAA";
    fs::write(&meta, original.replace(&cluster_id, foreign))?;
    refused(&config, &[foreign, &cluster_id]).await?;
    fs::write(&meta, original.replace("broker.id=3", "broker.id=8"))?;
    refused(&config, &["3", "8"]).await?;

    fs::write(&meta, original)?;
    cluster.broker(3).start()?;
    cluster.until_formed().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_that_cannot_be_are_refused_by_the_cluster() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    topic(&cluster, NewTopic { name: "there", partitions: 1, replication_factor: 3, configs: &[] })
        .await?;
    let admin = cluster.broker(2).config().admin_listener.to_string();
    let znodes = cluster.znodes().await?;
    let before = znodes.tree().await?;
    let cases: [(&[&str], &[&str]); 8] = [
        (&["topic", "create", "new", "--replication-factor", "4"], &["4", "3"]),
        (&["topic", "create", "not/legal"], &["not/legal", "a-z"]),
        (&["topic", "create", "there"], &["'there'"]),
        (&["topic", "create", "new", "--partitions", "0"], &["partitions"]),
        (&["topic", "create", "new", "--config", "min.insync.replica=2"], &["min.insync.replicas"]),
        (&["topic", "create", "new", "--assignment", "0:1,1"], &["partition 0", "twice"]),
        (&["topic", "describe", "absent"], &["'absent'", "topic list"]),
        (&["topic", "delete", "absent"], &["'absent'", "topic list"]),
    ];
    for (arguments, parts) in cases {
        let output = run_program(&[arguments, &["--admin", &admin]].concat()).await?;
        one_sentence(&output, 1, parts);
    }
    let validate = ["topic", "create", "new", "--validate-only", "--admin", &admin];
    let output = run_program(&validate).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout)?.contains("'new': 1 partition, replication factor 1"));
    let output = run_program(&[&validate[..], &["--json"]].concat()).await?;
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert!(checked["topic_id"].is_null(), "what was not created has no id: {checked}");
    assert_eq!(znodes.tree().await?, before, "nothing changed in ZooKeeper");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_tell_usage_and_unreachable_apart() -> Outcome<()> {
    let nobody = format!("127.0.0.1:{}", free_port()?);
    let output = run_program(&["topic", "list", "--admin", &nobody]).await?;
    one_sentence(&output, 3, &[&nobody, "--admin"]);
    let output = run_program(&["topic", "creat"]).await?;
    assert_eq!(output.status.code(), Some(2));
    let folder = fresh_directory()?;
    let absent = folder.join("absent.yaml");
    refused(&absent, &["absent.yaml", "--config"]).await?;
    Ok(fs::remove_dir_all(folder)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_tables_or_json() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let admin = cluster.broker(1).config().admin_listener.to_string();
    let ask = async |arguments: &[&str]| -> Outcome<String> {
        let output = run_program(&[arguments, &["--admin", &admin]].concat()).await?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let json = async |arguments: &[&str]| -> Outcome<serde_json::Value> {
        Ok(serde_json::from_str(&ask(&[arguments, &["--json"]].concat()).await?)?)
    };
    let created =
        json(&["topic", "create", "t", "--partitions", "2", "--replication-factor", "3"]).await?;
    assert_eq!(created["partitions"], 2);
    cluster.until_healed("t", 3).await?;
    let described = json(&["topic", "describe", "t"]).await?;
    assert_eq!(described[0]["partitions"][1]["isr"].as_array().map(Vec::len), Some(3));
    assert_eq!(described[0]["topic_id"], created["topic_id"]);
    assert_eq!(json(&["topic", "list"]).await?[0]["name"], "t");
    let state = json(&["cluster", "describe"]).await?;
    assert!(state["controller"]["id"].as_i64().is_some_and(|id| (1..=3).contains(&id)), "{state}");
    assert_eq!(state["brokers"].as_array().map(Vec::len), Some(3));
    assert_eq!(json(&["broker", "list"]).await?[2]["id"], 3);
    assert!(ask(&["topic", "describe"]).await?.contains("LEADER_EPOCH"));
    assert!(ask(&["cluster", "describe"]).await?.contains("controller  broker"));
    assert!(ask(&["topic", "delete", "t"]).await?.contains("deleted topic 't'"));
    let znodes = cluster.znodes().await?;
    assert!(znodes.children("/brokers/topics").await?.is_empty());
    Ok(())
}
