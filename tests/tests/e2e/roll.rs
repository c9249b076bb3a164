//! `barnabas roll`: every broker is restarted under load, and nobody notices; what can never be stopped is told before anything is touched.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, program};
use barnabas_tests::load::{Load, Target, judge};
use barnabas_tests::wait::{next_look, wait_for};
use tokio::task::JoinHandle;

use super::topic;

/// Longest roll of three brokers on a busy machine.
const ROLL_MAX: Duration = Duration::from_secs(240);
/// What a raw client may be told by a broker that no longer leads, or does not know the new leader yet.
const MOVED: [i16; 2] = [5, 6];

/// Starts `barnabas roll` with these further words. Its command asks the test, through files, to restart a broker.
fn roll(cluster: &Cluster, words: &[&str]) -> JoinHandle<std::io::Result<Output>> {
    let folder = cluster.directory().display();
    let command = format!(
        "touch '{folder}/restart-{{id}}'; until [ -e '{folder}/restarted-{{id}}' ]; do sleep 0.05; done; \
         rm '{folder}/restarted-{{id}}'; [ ! -e '{folder}/fails-{{id}}' ]"
    );
    let state = cluster.directory().join("roll.json").display().to_string();
    let admin = cluster.admin_address(1);
    let mut arguments = vec!["roll", "--command", &command, "--state", &state, "--admin", &admin];
    arguments.extend(words);
    let program = program().expect("a binary");
    let mut ordered = Command::new(program);
    ordered.args(arguments).stdin(Stdio::null()).env_remove("BARNABAS_ADMIN");
    tokio::task::spawn_blocking(move || ordered.output())
}

/// Restarts whom the roll asks for, until it ends.
async fn serve(
    cluster: &mut Cluster,
    rolling: JoinHandle<std::io::Result<Output>>,
) -> Outcome<(Output, Vec<i32>)> {
    let began = std::time::Instant::now();
    let mut restarted = Vec::new();
    while !rolling.is_finished() {
        for id in 1..=3 {
            let wish = cluster.directory().join(format!("restart-{id}"));
            if wish.exists() {
                fs::remove_file(&wish)?;
                if !cluster.directory().join(format!("fails-{id}")).exists() {
                    cluster.broker(id).terminate().await?;
                    cluster.broker(id).start()?;
                    restarted.push(id);
                }
                fs::write(cluster.directory().join(format!("restarted-{id}")), "")?;
            }
        }
        if began.elapsed() > ROLL_MAX {
            return Err("the roll does not end".into());
        }
        next_look().await;
    }
    Ok((rolling.await??, restarted))
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Watches until told to stop that no partition is under min.insync.replicas or without a leader.
async fn watch(
    zookeeper: String,
    name: &'static str,
    least: usize,
    stop: Arc<AtomicBool>,
) -> Outcome<u32> {
    let znodes = barnabas_tests::znodes::Znodes::connect(&zookeeper).await?;
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        for (index, state) in znodes.partitions(name).await? {
            if state.isr.len() < least || state.leader < 0 {
                return Err(format!("{name}-{index} is unwell: {state:?}").into());
            }
        }
        looks += 1;
        next_look().await;
    }
    Ok(looks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roll_restarts_every_broker_and_no_client_notices() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        shutdown_wait_ms: 25_000,
        config: "replica.lag.time.max.ms: 10000\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let configs = [("min.insync.replicas", "2")];
    let new = NewTopic { name: "rolled", partitions: 6, replication_factor: 3, configs: &configs };
    topic(&cluster, new).await?;
    let target =
        Target { bootstrap: cluster.bootstrap(), topic: "rolled".to_owned(), partitions: 6 };
    let controller = cluster.admin().await?.cluster().await?.controller_id;

    let output = roll(&cluster, &["--dry-run"]).await??;
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("would restart").count(), 3, "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.contains(&format!("broker {controller}: ")) && last.contains("controller"),
        "{text}"
    );

    let load = Load::start(&target, 6, 0, 77);
    wait_for("records are taken", ROLL_MAX, || async {
        load.batches().iter().all(|batches| *batches > 10).then_some(())
    })
    .await?;
    let stop = Arc::new(AtomicBool::new(false));
    let watching =
        tokio::spawn(watch(cluster.zookeeper_connect().to_owned(), "rolled", 2, stop.clone()));
    // The second one's command fails once: the roll ends, the broker serves on, and --resume goes on with it.
    let order: Vec<i32> = (1..=3).filter(|id| *id != controller).chain([controller]).collect();
    let fails = cluster.directory().join(format!("fails-{}", order[1]));
    fs::write(&fails, "")?;
    let rolling = roll(&cluster, &[]);
    let (output, first) = serve(&mut cluster, rolling).await?;
    let text = said(&output);
    assert_eq!((output.status.code(), first.as_slice()), (Some(1), &order[..1]), "{text}");
    assert!(text.contains("--resume"), "{text}");
    fs::remove_file(&fails)?;
    let output = roll(&cluster, &[]).await??;
    assert!(said(&output).contains("--resume"), "it is not begun anew: {}", said(&output));
    let rolling = roll(&cluster, &["--resume"]);
    let (output, rest) = serve(&mut cluster, rolling).await?;
    let text = said(&output);
    assert_eq!((output.status.code(), rest.as_slice()), (Some(0), &order[1..]), "{text}");
    assert!(text.contains("drained") && text.contains("done: 2 brokers restarted"), "{text}");
    assert!(!exists(&cluster, "roll.json"), "nothing is left to go on with");

    cluster.until_healed("rolled", 3).await?;
    stop.store(true, Ordering::Relaxed);
    assert!(watching.await?? > 10);
    let accounts = load.stop().await?;
    let refused: Vec<i16> =
        accounts.iter().flat_map(|account| account.refused.keys().copied()).collect();
    assert!(refused.iter().all(|code| MOVED.contains(code)), "told {refused:?}");
    let verdict = judge(&target, &accounts)?;
    assert!(verdict.acked > 0 && verdict.holds(), "{verdict:?}");

    // One replica more than nothing: it can never be stopped, and nothing is begun.
    let new = NewTopic { name: "single", partitions: 1, replication_factor: 1, configs: &[] };
    topic(&cluster, new).await?;
    let rolling = roll(&cluster, &[]);
    let (output, restarted) = serve(&mut cluster, rolling).await?;
    let text = said(&output);
    assert_eq!((output.status.code(), restarted.len()), (Some(5), 0), "{text}");
    assert!(text.contains("never") && text.contains("single:0"), "{text}");
    assert!(!exists(&cluster, "roll.json"));
    Ok(())
}

fn exists(cluster: &Cluster, name: &str) -> bool {
    Path::new(cluster.directory()).join(name).exists()
}
