//! A cluster gets credentials for ZooKeeper under load, without a client noticing; and then strangers change nothing there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::load::{Load, Target, judge};
use barnabas_tests::wait::wait_for;
use serde_json::Value;

use super::topic;

const TOPIC: &str = "secured";
/// What a raw client may be told by a broker that no longer leads, or does not know the new leader yet.
const MOVED: [i16; 2] = [5, 6];

/// Restarts the brokers one after the other, each with these lines more in its file as it was written at first.
async fn roll(cluster: &mut Cluster, plain: &[String], more: &str, load: &Load) -> Outcome<()> {
    for id in 1..=3 {
        cluster.until_healed(TOPIC, 3).await?;
        let before = load.batches();
        wait_for("records are taken", SETTLE_MAX, || async {
            load.batches().iter().zip(&before).all(|(now, then)| now > then).then_some(())
        })
        .await?;
        let file = cluster.broker(id).config_file();
        fs::write(file, format!("{}{more}", plain[usize::try_from(id - 1)?]))?;
        cluster.broker(id).terminate().await?;
        cluster.broker(id).start()?;
        cluster.until_formed().await?;
    }
    cluster.until_healed(TOPIC, 3).await
}

/// `barnabas zookeeper VERB` with a broker's file: exit code, JSON, and the sentence.
async fn zookeeper(cluster: &mut Cluster, verb: &str) -> Outcome<(Option<i32>, Value, String)> {
    let file = cluster.broker(1).config_file().display().to_string();
    let output = run_program(&["zookeeper", verb, "--json", "--config", &file]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_ensemble_is_secured_under_load_and_strangers_change_nothing() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        shutdown_wait_ms: 25_000,
        config: "replica.lag.time.max.ms: 10000\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let configs = [("min.insync.replicas", "2")];
    let new = NewTopic { name: TOPIC, partitions: 3, replication_factor: 3, configs: &configs };
    topic(&cluster, new).await?;
    let mut plain = Vec::new();
    for broker in cluster.brokers() {
        plain.push(fs::read_to_string(broker.config_file())?);
    }
    let credentials = cluster.directory().join("zookeeper-credentials");
    fs::write(&credentials, "broker:opensesame\n")?;
    fs::set_permissions(&credentials, fs::Permissions::from_mode(0o600))?;
    let target = Target { bootstrap: cluster.bootstrap(), topic: TOPIC.to_owned(), partitions: 3 };
    let load = Load::start(&target, 3, 0, 44);

    let file = format!("zookeeper.credentials.file: {}\n", credentials.display());
    let both_read_all = format!("{file}zookeeper.set.acl: false\n");
    roll(&mut cluster, &plain, &both_read_all, &load).await?;
    let (code, looked, said) = zookeeper(&mut cluster, "check").await?;
    assert_eq!((code, looked["changed"].as_u64()), (Some(6), Some(0)), "{said}");
    assert_eq!(
        looked["found"].as_array().map(Vec::len),
        looked["nodes"].as_u64().map(|n| n as usize)
    );
    assert!(said.contains("barnabas zookeeper secure --config"), "{said}");
    roll(&mut cluster, &plain, &file, &load).await?;
    let (code, secured, said) = zookeeper(&mut cluster, "secure").await?;
    assert!(code == Some(0) && secured["changed"].as_u64() > Some(0), "{secured} {said}");

    // A controller and a leader die: their successors write to what was secured.
    let (controller, _) = cluster.znodes().await?.controller().await?.ok_or("no controller")?;
    let controller = i32::try_from(controller)?;
    cluster.broker(controller).kill().await?;
    let survivor = controller % 3 + 1;
    cluster.until_healed(TOPIC, 2).await?;
    cluster.broker(controller).start()?;
    cluster.until_healed(TOPIC, 3).await?;
    let (code, looked, said) = zookeeper(&mut cluster, "check").await?;
    assert_eq!(
        (code, looked["found"].as_array().map(Vec::len)),
        (Some(0), Some(0)),
        "{looked} {said}"
    );

    let accounts = load.stop().await?;
    let refused: BTreeSet<i16> = accounts.iter().flat_map(|a| a.refused.keys().copied()).collect();
    assert!(refused.iter().all(|code| MOVED.contains(code)), "told {refused:?}");
    let verdict = judge(&target, &accounts)?;
    assert!(verdict.acked > 0 && verdict.lost == 0 && verdict.wrong() == 0, "{verdict:?}");

    // A broker that lost its credentials does not start, and says why; nor does its log, or any other, hold the password.
    cluster.broker(survivor).terminate().await?;
    let index = usize::try_from(survivor - 1)?;
    let path = cluster.broker(survivor).config_file();
    fs::write(&path, &plain[index])?;
    let output = run_program(&["broker", "--config", &path.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("zookeeper.credentials.file"),
        "{said}"
    );
    fs::write(&path, format!("{}{file}", plain[index]))?;
    cluster.broker(survivor).start()?;
    cluster.until_healed(TOPIC, 3).await?;
    for broker in cluster.brokers() {
        assert!(!broker.log().contains("opensesame"), "broker {}", broker.id());
    }
    Ok(())
}
