//! Consumer groups, with unmodified clients: offsets stay, members share, coordinators die.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::Client;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::scene::rounds;
use barnabas_tests::wait::{next_look, wait_for};
use barnabas_tests::{Outcome, kcat};
use serde_json::{Value, json};

use super::clients::{python, python_command};
use super::{topic, until_registered};

/// Longest wait for a script to be done after it was told to end.
const SCRIPT_END_MAX: Duration = Duration::from_secs(180);

fn options(more: &str) -> Options {
    let config =
        format!("{}group.initial.rebalance.delay.ms: 0\n{more}", Options::default().config);
    Options { config, ..Options::default() }
}

fn lines(from: u32, to: u32) -> Vec<u8> {
    (from..to).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcat_goes_on_where_its_group_was() -> Outcome<()> {
    let mut cluster = Cluster::start(options("")).await?;
    let orders = NewTopic { name: "orders", partitions: 3, replication_factor: 3, configs: &[] };
    topic(&cluster, orders).await?;
    let mut produced = 0;
    for round in 0..3 {
        let until = produced + 500;
        let sent =
            kcat::run(&cluster.bootstrap(), &["-P", "-t", "orders"], &lines(produced, until))?;
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        let consume = ["-G", "g", "-X", "auto.offset.reset=earliest", "-e", "-q", "orders"];
        let output = kcat::run(&cluster.bootstrap(), &consume, b"")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "round {round}: {said}");
        let text = String::from_utf8(output.stdout)?;
        let mut got: Vec<u32> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
        got.sort_unstable();
        assert_eq!(got, (produced..until).collect::<Vec<_>>(), "round {round}: each record once");
        produced = until;
        // The next round meets a coordinator that has read the offsets from the log.
        let id = 1 + round;
        cluster.broker(id).kill().await?;
        cluster.broker(id).start()?;
        cluster.until_healed("__consumer_offsets", 3).await?;
        cluster.until_healed("orders", 3).await?;
    }
    Ok(())
}

/// Asks one broker for a group's coordinator, and that one for its offsets at once: the code of its first answer.
async fn offsets_at_once(asked: String, group: String) -> Outcome<i16> {
    let mut client = Client::connect(&asked).await?;
    let named = loop {
        if let Ok(named) = client.coordinator_address(&group).await? {
            break named;
        }
        next_look().await;
    };
    Client::connect(&named).await?.offset_fetch(&group).await
}

/// The brokers hear of the offsets topic one after the other. Whoever hears first names the coordinators, and those must not
/// send anybody away who comes before they have heard: librdkafka would hand that to its user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_consumers_of_a_cluster_are_not_sent_away_by_their_coordinators() -> Outcome<()> {
    const NONE: i16 = 0;
    const LOAD_IN_PROGRESS: i16 = 14;
    let mut cluster = Cluster::start(options("")).await?;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..48 {
        let address = cluster.broker(1 + number % 3).config().listener.to_string();
        asking.spawn(offsets_at_once(address, format!("first-{number}")));
    }
    while let Some(code) = tokio::time::timeout(SETTLE_MAX, asking.join_next()).await? {
        let code = code??;
        assert!([NONE, LOAD_IN_PROGRESS].contains(&code), "{code}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_and_static_ones_come_back() -> Outcome<()> {
    let cluster = Cluster::start(options("")).await?;
    python("groups.py", &[&cluster.bootstrap()]).map(drop)
}

/// What `barnabas group ARGUMENTS --json` says, or its exit code and sentence.
async fn group(cluster: &Cluster, arguments: &[&str]) -> Outcome<Result<Value, (i32, String)>> {
    let admin = cluster.admin_address(1);
    let output =
        run_program(&[&["group"], arguments, &["--json", "--admin", &admin]].concat()).await?;
    if output.status.success() {
        return Ok(Ok(serde_json::from_slice(&output.stdout)?));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Err((output.status.code().unwrap_or(-1), said)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_list_describe_reset_and_delete_a_group() -> Outcome<()> {
    let cluster = Cluster::start(options("")).await?;
    let orders = NewTopic { name: "orders", partitions: 3, replication_factor: 3, configs: &[] };
    topic(&cluster, orders).await?;
    for (partition, count) in [("0", 100), ("1", 200), ("2", 200)] {
        let produce = ["-P", "-t", "orders", "-p", partition];
        kcat::run(&cluster.bootstrap(), &produce, &lines(0, count))?;
    }
    let consume = || {
        let arguments = ["-G", "g", "-X", "auto.offset.reset=earliest", "-e", "-q", "orders"];
        let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
        Ok::<_, barnabas_tests::Fault>(output.stdout.iter().filter(|byte| **byte == b'\n').count())
    };
    assert_eq!(consume()?, 500);
    let listed = group(&cluster, &["list"]).await?.unwrap();
    assert_eq!((&listed[0]["group"], &listed[0]["state"]), (&json!("g"), &json!("Empty")));
    let described = group(&cluster, &["describe", "g"]).await?.unwrap();
    let offsets = described["offsets"].as_array().cloned().unwrap_or_default();
    let sum = |field: &str| offsets.iter().filter_map(|row| row[field].as_i64()).sum::<i64>();
    assert_eq!((sum("committed"), sum("end"), sum("lag")), (500, 500, 0), "{described}");

    let to = ["reset-offsets", "g", "--topic", "orders", "--to-offset", "1"];
    let shown = group(&cluster, &to).await?.unwrap();
    assert_eq!((&shown["executed"], &shown["new"]), (&json!(false), &json!(false)));
    assert_eq!(consume()?, 0, "nothing was changed");
    let done = group(&cluster, &[&to[..], &["--execute"]].concat()).await?.unwrap();
    assert!(done["offsets"].as_array().is_some_and(|rows| rows.iter().all(|r| r["after"] == 1)));
    assert_eq!(consume()?, 497, "from the second record of each partition on");
    let back = ["reset-offsets", "g", "--topic", "orders:0", "--shift-by", "-2", "--execute"];
    group(&cluster, &back).await?.unwrap();
    assert_eq!(consume()?, 2);
    let mistyped = ["reset-offsets", "G", "--topic", "orders", "--to-latest"];
    assert_eq!(group(&cluster, &mistyped).await?.unwrap()["new"], json!(true));

    group(&cluster, &["delete", "g"]).await?.unwrap();
    assert_eq!(group(&cluster, &["list"]).await?, Ok(json!([])));
    let (code, said) = group(&cluster, &["describe", "g"]).await?.unwrap_err();
    assert!(code == 1 && said.contains("there is no group 'g'"), "{code}: {said}");
    Ok(())
}

/// A script that runs until it is told to end, and prints `WORD NUMBER` as it gets on.
struct Script {
    child: Child,
    stdin: Option<ChildStdin>,
    progress: Arc<AtomicU64>,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Script {
    fn start(name: &str, word: &'static str, arguments: &[&str]) -> Outcome<Self> {
        let mut child = python_command(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let progress = Arc::new(AtomicU64::new(0));
        let said = Arc::new(Mutex::new(String::new()));
        let (out, err) =
            (child.stdout.take().ok_or("stdout")?, child.stderr.take().ok_or("stderr")?);
        let (counted, told) = (progress.clone(), said.clone());
        let counting = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let number = line.strip_prefix(word).and_then(|rest| rest.trim().parse().ok());
                match number {
                    Some(number) => counted.store(number, Ordering::Release),
                    None => println!("{line}"),
                }
            }
        });
        let listening = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = BufReader::new(err).read_to_string(&mut text);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = text;
        });
        let (stdin, readers) = (child.stdin.take(), vec![counting, listening]);
        Ok(Self { child, stdin, progress, said, readers })
    }

    /// Waits until it has got on by `more`.
    async fn gets_on(&self, more: u64) -> Outcome<()> {
        let before = self.progress.load(Ordering::Acquire);
        wait_for(&format!("{more} more than {before}"), SETTLE_MAX, || async {
            (self.progress.load(Ordering::Acquire) >= before + more).then_some(())
        })
        .await
    }

    /// Tells it to end, and what it has found.
    async fn end(mut self) -> Outcome<()> {
        self.stdin = None;
        let child = Mutex::new(&mut self.child);
        let ended = || async {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            child.try_wait().ok().flatten()
        };
        let status = wait_for("the script has ended", SCRIPT_END_MAX, ended).await?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(status.success(), "{said}");
        Ok(())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// Leaders and coordinators are killed under a group: no committed offset goes back, nothing below one is lost, no rebalance hangs.
/// `BARNABAS_ROUNDS` times as many kills for a longer run; 10 consumers over 50 partitions in any case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_ten_over_fifty_partitions_outlives_its_leaders_and_coordinators() -> Outcome<()>
{
    let mut cluster = Cluster::start(options("")).await?;
    let fifty = NewTopic {
        name: "fifty",
        partitions: 50,
        replication_factor: 3,
        configs: &[("min.insync.replicas", "2")],
    };
    topic(&cluster, fifty).await?;
    let arguments = [&cluster.bootstrap(), "fifty", "50", "10"];
    let script = Script::start("group_under_faults.py", "committed ", &arguments)?;
    script.gets_on(500).await?;
    for round in 0..rounds(3) {
        let id = i32::try_from(round % 3)? + 1;
        cluster.broker(id).kill().await?;
        script.gets_on(500).await.map_err(|error| format!("round {round}: {error}"))?;
        cluster.broker(id).start()?;
        cluster.until_healed("fifty", 3).await?;
        cluster.until_healed("__consumer_offsets", 3).await?;
        script.gets_on(500).await.map_err(|error| format!("round {round}: {error}"))?;
    }
    script.end().await
}

/// The coordinator of fifty groups moves again and again, while the log that it is loaded from is rolled and compacted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f2_what_was_committed_is_read_however_often_the_coordinator_moves() -> Outcome<()> {
    let more = "offsets.topic.num.partitions: 1\noffsets.topic.segment.bytes: 4096\nlog.cleaner.backoff.ms: 200\n\
                log.cleaner.min.cleanable.ratio: 0.1\n";
    let cluster = Cluster::start(options(more)).await?;
    let t = NewTopic { name: "t", partitions: 1, replication_factor: 3, configs: &[] };
    topic(&cluster, t).await?;
    let script = Script::start("many_groups.py", "rounds ", &[&cluster.bootstrap(), "t", "50"])?;
    script.gets_on(5).await?;
    let admin = cluster.admin_address(1);
    for round in 0..rounds(8) {
        let first = i32::try_from(round % 3)? + 1;
        let order = [first, first % 3 + 1, (first + 1) % 3 + 1].map(|id| id.to_string()).join(",");
        let offsets = "__consumer_offsets";
        let assignment = format!("0:{order}");
        let set = ["topic", "set-replicas", offsets, "--assignment", &assignment, "--wait"];
        let elect = ["leader", "elect", "--preferred", offsets];
        for command in [&set[..], &elect[..]] {
            let arguments = [command, &["--admin", &admin]].concat();
            let output = run_program(&arguments).await?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let moved = output.status.success() || said.contains("leads");
            assert!(moved, "round {round}: {arguments:?}: {said}");
        }
        let leads = || async {
            let znodes = cluster.znodes().await.ok()?;
            let state = znodes.partitions(offsets).await.ok()?.remove(&0)?;
            (state.leader == i64::from(first)).then_some(())
        };
        wait_for(&format!("broker {first} leads"), SETTLE_MAX, leads).await?;
        script.gets_on(3).await.map_err(|error| format!("round {round}: {error}"))?;
    }
    script.end().await
}

/// With fewer live brokers than the topic is to have replicas, nothing is created; later it has them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_the_offsets_topic_is_not_created_with_too_few_copies() -> Outcome<()> {
    let mut cluster = Cluster::start(Options { start: false, ..options("") }).await?;
    cluster.broker(1).start()?;
    let znodes = cluster.znodes().await?;
    until_registered(&znodes, &[1]).await?;
    let address = cluster.broker(1).config().listener.to_string();
    let ask = || async { Client::connect(&address).await.ok()?.coordinator("g").await.ok() };
    for _ in 0..3 {
        let code = wait_for("an answer", SETTLE_MAX, ask).await?;
        assert_eq!(code, Err(15), "the client is told to come again");
    }
    assert!(znodes.children("/brokers/topics").await?.is_empty(), "nothing was created");
    cluster.start_all()?;
    cluster.until_formed().await?;
    let coordinator = || async { ask().await?.ok() };
    wait_for("there is a coordinator", SETTLE_MAX, coordinator).await?;
    cluster.until_healed("__consumer_offsets", 3).await?;
    let orders = NewTopic { name: "orders", partitions: 1, replication_factor: 3, configs: &[] };
    topic(&cluster, orders).await?;
    kcat::run(&cluster.bootstrap(), &["-P", "-t", "orders"], &lines(0, 10))?;
    cluster.broker(1).kill().await?;
    let consume = ["-G", "g", "-X", "auto.offset.reset=earliest", "-e", "-q", "orders"];
    let output = kcat::run(&cluster.bootstrap(), &consume, b"")?;
    assert_eq!(output.stdout, lines(0, 10), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
