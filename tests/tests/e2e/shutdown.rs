//! Stopping brokers without anybody noticing (R25, R26), and leaders by demand: preferred, automatic, unclean (R39).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use barnabas_metrics::Scraped;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::load::{Load, Target, judge};
use barnabas_tests::wait::wait_for;
use barnabas_tests::{Outcome, kcat, losses};
use serde_json::Value;

use super::topic;

/// What a raw client may be told by a broker that no longer leads, or does not know the new leader yet.
const MOVED: [i16; 2] = [5, 6];
/// Pause between two lines that kcat is fed.
const LINE_INTERVAL: Duration = Duration::from_millis(2);

/// Runs a command against the broker `id`; its exit code and what it printed as JSON.
async fn command(cluster: &mut Cluster, id: i32, words: &[&str]) -> Outcome<(i32, Value)> {
    let admin = cluster.broker(id).config().admin_listener.to_string();
    let output = run_program(&[words, &["--json", "--admin", &admin]].concat()).await?;
    let code = output.status.code().ok_or("killed by a signal")?;
    let said = || Value::String(String::from_utf8_lossy(&output.stderr).into_owned());
    Ok((code, serde_json::from_slice(&output.stdout).unwrap_or_else(|_| said())))
}

/// Waits until every partition is led by the first of its replicas.
async fn until_preferred(cluster: &Cluster, topic: &str) -> Outcome<()> {
    wait_for("every partition is led by its preferred replica", SETTLE_MAX, || async {
        let known = cluster.admin().await.ok()?.topic(topic).await.ok()?;
        let led = |p: &barnabas_proto::v1::Partition| {
            p.state.as_ref().map(|s| s.leader) == p.assigned_replicas.first().copied()
        };
        known.topics.first()?.partitions.iter().all(led).then_some(())
    })
    .await
}

/// kcat, fed line by line until told to stop; how many. That a connection ends is no error (-E), a record that is given up is.
fn feed_kcat(bootstrap: &str, topic: &str, stop: &Receiver<()>) -> Outcome<usize> {
    let mut child = Command::new("kcat")
        .args(["-P", "-E", "-b", bootstrap, "-t", topic, "-X", "acks=all"])
        .args(["-X", "message.timeout.ms=20000", "-X", "topic.metadata.refresh.interval.ms=1000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no stdin")?;
    let mut lines = 0;
    while stop.recv_timeout(LINE_INTERVAL) == Err(RecvTimeoutError::Timeout)
        && writeln!(input, "kcat {lines}").is_ok()
    {
        lines += 1;
    }
    drop(input);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().find(|line| line.contains("failed") && line.contains("elivery"));
    if !output.status.success() || error.is_some() {
        return Err(format!("kcat ended with {}: {said}", output.status).into());
    }
    Ok(lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r26_a_rolling_restart_shows_no_client_an_error() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        shutdown_wait_ms: 25_000,
        config: "replica.lag.time.max.ms: 10000\nauto.leader.rebalance.enable: false\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let configs = [("min.insync.replicas", "2")];
    for name in ["rolling", "lines"] {
        topic(&cluster, NewTopic { name, partitions: 6, replication_factor: 3, configs: &configs })
            .await?;
    }
    let target =
        Target { bootstrap: cluster.bootstrap(), topic: "rolling".to_owned(), partitions: 6 };
    let load = Load::start(&target, 6, 0, 26);
    let (stop, stopped) = mpsc::channel();
    let bootstrap = cluster.bootstrap();
    let lines = tokio::task::spawn_blocking(move || feed_kcat(&bootstrap, "lines", &stopped));
    for id in 1..=3 {
        let other = id % 3 + 1;
        let batches = load.batches();
        wait_for("records are taken", SETTLE_MAX, || async {
            load.batches().iter().zip(&batches).all(|(now, then)| now >= &(then + 10)).then_some(())
        })
        .await?;
        for name in ["rolling", "lines"] {
            cluster.until_healed(name, 3).await?;
        }
        let text = id.to_string();
        let (code, answer) = command(&mut cluster, other, &["broker", "can-stop", &text]).await?;
        assert_eq!((code, answer["can_stop"].as_str()), (0, Some("yes")), "{answer}");
        let status = cluster.broker(id).terminate().await?.ok_or("not our child")?;
        assert!(status.success(), "broker {id} ended with {status}");
        let log = cluster.broker(id).log();
        assert!(log.contains("drained: this broker leads nothing"), "broker {id} waited in vain");
        let text = other.to_string();
        let (code, answer) = command(&mut cluster, other, &["broker", "can-stop", &text]).await?;
        assert_eq!((code, answer["can_stop"].as_str()), (4, Some("not now")), "{answer}");
        cluster.broker(id).start()?;
        cluster.until_formed().await?;
    }
    drop(stop);
    let sent = lines.await??;
    let accounts = load.stop().await?;
    for name in ["rolling", "lines"] {
        cluster.until_healed(name, 3).await?;
    }
    let refused: BTreeSet<i16> = accounts.iter().flat_map(|a| a.refused.keys().copied()).collect();
    assert!(refused.iter().all(|code| MOVED.contains(code)), "told {refused:?}");
    let verdict = judge(&target, &accounts)?;
    assert!(verdict.acked > 0 && verdict.lost == 0 && verdict.wrong() == 0, "{verdict:?}");
    let arguments = ["-C", "-t", "lines", "-o", "beginning", "-e", "-q"];
    let read = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    let read: BTreeSet<String> =
        String::from_utf8(read.stdout)?.lines().map(str::to_owned).collect();
    assert_eq!(read.len(), sent, "what kcat sent is what is there");

    // The last one that came back leads nothing, until it is asked for.
    let (code, rows) = command(&mut cluster, 1, &["leader", "elect", "rolling"]).await?;
    assert_eq!(code, 0, "{rows}");
    let elected = rows.as_array().ok_or("no list")?;
    assert!(!elected.is_empty() && elected.iter().all(|row| row["result"] == "ELECTED"), "{rows}");
    until_preferred(&cluster, "rolling").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_drains_and_leaders_return_by_themselves_afterwards() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        config: "replica.lag.time.max.ms: 10000\nleader.imbalance.check.interval.seconds: 1\n"
            .to_owned(),
        ..Options::default()
    })
    .await?;
    let configs = [("min.insync.replicas", "2")];
    topic(
        &cluster,
        NewTopic { name: "t", partitions: 6, replication_factor: 3, configs: &configs },
    )
    .await?;
    let (code, _) = command(&mut cluster, 1, &["broker", "drain", "2"]).await?;
    assert_eq!(code, 0);
    let znodes = cluster.znodes().await?;
    wait_for("broker 2 leads nothing and is in no ISR", SETTLE_MAX, || async {
        let states = znodes.partitions("t").await.ok()?;
        states.values().all(|s| s.leader != 2 && !s.isr.contains(&2)).then_some(())
    })
    .await?;
    wait_for("every broker is told that broker 2 is draining", SETTLE_MAX, || async {
        let known = cluster.admin().await.ok()?.cluster().await.ok()?;
        let draining: Vec<i32> =
            known.brokers.iter().filter(|b| b.draining).map(|b| b.id).collect();
        (draining == [2]).then_some(())
    })
    .await?;
    let (_, list) = command(&mut cluster, 1, &["broker", "list"]).await?;
    let marked = list.as_array().ok_or("no list")?.iter().filter(|row| row["draining"] == true);
    assert_eq!(marked.filter_map(|row| row["id"].as_i64()).collect::<Vec<_>>(), [2]);
    let (code, answer) = command(&mut cluster, 1, &["broker", "can-stop", "3"]).await?;
    assert_eq!(code, 4, "{answer}");
    let (code, _) = command(&mut cluster, 1, &["broker", "undrain", "2"]).await?;
    assert_eq!(code, 0);
    cluster.until_healed("t", 3).await?;
    until_preferred(&cluster, "t").await?;
    // Two replicas, both needed: no waiting helps.
    topic(
        &cluster,
        NewTopic { name: "two", partitions: 3, replication_factor: 2, configs: &configs },
    )
    .await?;
    let (code, answer) = command(&mut cluster, 1, &["broker", "can-stop", "1"]).await?;
    assert_eq!((code, answer["can_stop"].as_str()), (5, Some("never")), "{answer}");
    let (code, _) = command(&mut cluster, 1, &["broker", "can-stop", "9"]).await?;
    assert_eq!(code, 1, "not registered");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_unclean_election_on_demand_names_what_may_be_lost() -> Outcome<()> {
    let mut cluster =
        Cluster::start(Options { session_timeout_ms: 1_500, ..Options::default() }).await?;
    let create = ["topic", "create", "t", "--assignment", "0:1,2"];
    assert_eq!(command(&mut cluster, 3, &create).await?.0, 0);
    cluster.until_healed("t", 2).await?;
    let produce = |cluster: &Cluster, from: usize, to: usize| -> Outcome<()> {
        let lines: String = (from..to).map(|n| format!("{n}\n")).collect();
        let arguments = ["-P", "-t", "t", "-X", "acks=all"];
        let output = kcat::run(&cluster.bootstrap(), &arguments, lines.as_bytes())?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    let znodes = cluster.znodes().await?;
    let until = |leader: i64, isr: &'static [i64]| {
        let znodes = &znodes;
        wait_for("leader and ISR are as they should", SETTLE_MAX, move || async move {
            let states = znodes.partitions("t").await.ok()?;
            let state = states.get(&0)?;
            (state.leader == leader && state.isr == isr).then_some(())
        })
    };
    produce(&cluster, 0, 100)?;
    cluster.broker(2).kill().await?;
    until(1, &[1]).await?;
    produce(&cluster, 100, 150)?;
    cluster.broker(1).kill().await?;
    until(-1, &[1]).await?;
    // The command names the partition epoch that the asked broker knows.
    let admin = cluster.broker(3).admin().await?;
    wait_for("broker 3 is told that there is no leader", SETTLE_MAX, || async {
        let known = admin.topic("t").await.ok()?;
        let state = known.topics.first()?.partitions.first()?.state.clone()?;
        (state.leader == -1).then_some(())
    })
    .await?;
    let elect = ["leader", "elect", "--unclean", "t:0"];
    let (code, rows) = command(&mut cluster, 3, &elect).await?;
    assert_eq!((code, rows[0]["result"].as_str()), (1, Some("ELIGIBLE_LEADERS_NOT_AVAILABLE")));
    cluster.broker(2).start()?;
    cluster.until_formed().await.ok();
    wait_for("broker 2 has told what it holds and is elected", SETTLE_MAX, || {
        let admin = cluster.broker(3).config().admin_listener.to_string();
        async move {
            let words = ["leader", "elect", "--unclean", "t:0", "--json", "--admin", &admin];
            let output = run_program(&words).await.ok()?;
            output.status.success().then_some(())
        }
    })
    .await?;
    until(2, &[2]).await?;
    let told = wait_for("the loss is recorded", SETTLE_MAX, || {
        let dirs = cluster.broker(2).config().log_dirs.clone();
        async move {
            let told = losses::of(&dirs).ok()?;
            told.into_iter().find(|loss| loss.cause == "unclean_election")
        }
    })
    .await?;
    assert!(told.names("t", 0, 100) && !told.names("t", 0, 99), "{told:?}");
    let elected = &*cluster.broker(2);
    wait_for("the election is counted", SETTLE_MAX, || async {
        let counted = Scraped::read(&elected.metrics().await.ok()?).ok()?;
        let name = "kafka_controller_controllerstats_uncleanleaderelections_total";
        (counted.values(name, &[]).sum::<f64>() == 1.0).then_some(())
    })
    .await?;
    produce(&cluster, 1000, 1010)?;
    cluster.broker(1).start()?;
    cluster.until_healed("t", 2).await?;
    let cut = losses::of(&cluster.broker(1).config().log_dirs)?;
    assert!(cut.iter().any(|loss| loss.cause == "truncated" && loss.names("t", 0, 149)), "{cut:?}");
    let arguments = ["-C", "-t", "t", "-o", "beginning", "-e", "-q"];
    let read = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    let read = String::from_utf8(read.stdout)?;
    let expected: String = (0..100).chain(1000..1010).map(|n| format!("{n}\n")).collect();
    assert_eq!(read, expected);
    Ok(())
}
