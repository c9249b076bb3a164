//! `barnabas doctor` and `barnabas config explain` against a cluster: what is well, and what is found when something is not.

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, run_program};
use serde_json::Value;

use super::topic;

/// Its exit code, and what it found: check, level, text with advice.
async fn doctor(
    cluster: &mut Cluster,
    asked: i32,
) -> Outcome<(i32, Vec<(String, String, String)>)> {
    let admin = cluster.admin_address(asked);
    let file = cluster.broker(asked).config_file().display().to_string();
    let output = run_program(&["doctor", "--config", &file, "--admin", &admin, "--json"]).await?;
    let found: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = found.as_array().ok_or("no list")?.iter().map(|row| {
        let said = format!("{}; {}", text(&row["text"]), text(&row["advice"]));
        (text(&row["check"]), text(&row["level"]), said)
    });
    Ok((output.status.code().ok_or("killed")?, rows.collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_finds_what_is_wrong_and_says_what_to_do() -> Outcome<()> {
    // A session that outlives the death of a broker for the length of the test: it stays registered.
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 60_000,
        config: "replica.lag.time.max.ms: 2000\nfailover.suspicion.enable: false\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let configs = [("min.insync.replicas", "2")];
    let new = NewTopic { name: "sound", partitions: 3, replication_factor: 3, configs: &configs };
    topic(&cluster, new).await?;
    let (code, found) = doctor(&mut cluster, 1).await?;
    assert_eq!(code, 0, "{found:?}");
    let levels = |check: &str| -> Vec<&str> {
        let of = found.iter().filter(|(name, ..)| name == check);
        of.map(|(_, level, _)| level.as_str()).collect()
    };
    assert_eq!(levels("advertised"), ["ok"; 6], "{found:?}");
    assert_eq!(levels("clock"), ["ok"; 3], "{found:?}");
    for check in
        ["cluster", "brokers", "cluster id", "zookeeper settings", "topics", "internal topics"]
    {
        assert_eq!(levels(check), ["ok"], "{check}: {found:?}");
    }
    for check in ["free space", "sync"] {
        assert!(matches!(levels(check)[..], ["ok" | "warn"]), "{check}: {found:?}");
    }
    assert_eq!(levels("zookeeper"), ["ok", "warn"], "it stands alone: {found:?}");

    // A topic that bears nothing, a broker that is registered and gone, another cluster's directory.
    let new = NewTopic { name: "rigid", partitions: 1, replication_factor: 1, configs: &[] };
    topic(&cluster, new).await?;
    cluster.broker(2).kill().await?;
    let address = cluster.broker(2).config().listener.to_string();
    let meta = cluster.broker(3).log_dir().join("meta.properties");
    let text = std::fs::read_to_string(&meta)?;
    let id = text.lines().find_map(|line| line.strip_prefix("cluster.id=")).ok_or("no id")?;
    std::fs::write(&meta, text.replace(id, "AAAAAAAAAAAAAAAAAAAAAA"))?;
    let (code, found) = doctor(&mut cluster, 3).await?;
    assert_eq!(code, 6, "{found:?}");
    for (check, level, parts) in [
        ("brokers", "bad", &[&*address, "broker 2 is registered, and nobody is there"][..]),
        ("cluster id", "bad", &["AAAAAAAAAAAAAAAAAAAAAA", "zookeeper.connect"]),
        ("topics", "warn", &["1 topic of 2", "'rigid'", "replication factor"]),
    ] {
        let told = found.iter().any(|(name, how, text)| {
            name == check && how == level && parts.iter().all(|part| text.contains(part))
        });
        assert!(told, "{check} {level} {parts:?}: {found:?}");
    }
    std::fs::write(&meta, text)?;

    // Nobody there: what is on this machine is told all the same.
    let output = run_program(&["doctor", "--admin", &address]).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("open files") && said.contains("--admin HOST:PORT"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_is_explained_with_its_value_in_force() -> Outcome<()> {
    let cluster = Cluster::start(Options {
        brokers: 1,
        config: "log.retention.ms: 5000\nreplica.lag.time.max.ms: 2000\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let admin = cluster.admin_address(1);
    let explained = async |key: &str| -> Outcome<Value> {
        let output = run_program(&["config", "explain", key, "--admin", &admin, "--json"]).await?;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let said = explained("retention.ms").await?;
    assert_eq!((&said["key"], &said["value"]), (&"log.retention.ms".into(), &"5000".into()));
    assert_eq!(said["source"], "given in the file of broker 1");
    let alter = [
        "config",
        "alter",
        "--cluster-default",
        "--config",
        "log.retention.ms=7000",
        "--admin",
        &admin,
    ];
    assert!(run_program(&alter).await?.status.success());
    let said = explained("log.retention.ms").await?;
    assert_eq!((&said["value"], &said["unit"]), (&"7000".into(), &"ms".into()));
    assert_eq!(said["source"], "stored in ZooKeeper for all brokers");
    let said = explained("num.partitions").await?;
    assert_eq!((&said["value"], &said["default"]), (&"1".into(), &"1".into()));
    assert_eq!(said["changed"], "in the file, read at the start");
    Ok(())
}
