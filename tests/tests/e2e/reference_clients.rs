//! `deploy/reference-clients.md`: its commands, as they stand, lose and repeat what it says, and the remedies remedy.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{fresh_directory, program};
use barnabas_tests::ports;
use barnabas_tests::wait::wait_for;

const PAGE: &str = include_str!("../../../deploy/reference-clients.md");
/// How long a cluster may take to form, and one block of the page to run.
const START_MAX: Duration = Duration::from_secs(60);
const BLOCK_MAX_S: &str = "180";

/// `barnabas dev`, and a shell beside its directory `b`.
struct Lab {
    directory: PathBuf,
    dev: Child,
    bootstrap: String,
    admin: String,
    path: String,
}

impl Lab {
    async fn start() -> Outcome<Self> {
        let directory = fresh_directory()?;
        let (kafka, admin, http) = (ports::three()?, ports::three()?, ports::three()?);
        let program = program()?;
        let option = |name: &str, port: u16| [format!("--{name}-port"), port.to_string()];
        let dev = Command::new(&program)
            .args(["dev", "--data", "b"])
            .args(option("kafka", kafka))
            .args(option("admin", admin))
            .args(option("http", http))
            .args(option("zookeeper", ports::free()?))
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(File::create(directory.join("dev.out"))?)
            .stderr(File::create(directory.join("dev.err"))?)
            .spawn()?;
        let bootstrap: Vec<String> = (0..3).map(|n| format!("127.0.0.1:{}", kafka + n)).collect();
        // Broker 1 is killed on the page.
        let admin = format!("127.0.0.1:{}", admin + 1);
        let path = format!(
            "{}:{}",
            program.parent().unwrap_or(Path::new(".")).display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let lab = Self { directory, dev, bootstrap: bootstrap.join(","), admin, path };
        wait_for("barnabas dev is ready", START_MAX, || async {
            let said = fs::read_to_string(lab.directory.join("dev.out")).ok()?;
            said.contains("ready").then_some(())
        })
        .await?;
        Ok(lab)
    }

    /// Runs a block of the page in a shell of its own; what it printed.
    fn run(&self, name: &str) -> Outcome<String> {
        let block = blocks().remove(name).ok_or_else(|| format!("the page has no block {name}"))?;
        let script = format!("set -euo pipefail\n{block}");
        // Files, not pipes: brokers that a block starts would keep a pipe open.
        let said = |kind: &str| self.directory.join(format!("{name}.{kind}"));
        let status = Command::new("timeout")
            .args(["--kill-after=5", BLOCK_MAX_S, "bash", "-c", &script])
            .current_dir(&self.directory)
            .env("PATH", &self.path)
            .env("BARNABAS_BOOTSTRAP", &self.bootstrap)
            .env("BARNABAS_ADMIN", &self.admin)
            .stdin(Stdio::null())
            .stdout(File::create(said("out"))?)
            .stderr(File::create(said("err"))?)
            .status()?;
        let (out, err) = (fs::read_to_string(said("out"))?, fs::read_to_string(said("err"))?);
        println!("== {name}\n{out}");
        if !status.success() {
            return Err(format!("block {name} ended with {status}:\n{out}\n{err}").into());
        }
        Ok(out)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for id in 1..=3 {
            let file = self.directory.join(format!("b/broker-{id}.pid"));
            let Ok(pid) = fs::read_to_string(file) else { continue };
            // Paused or not, ours or started by the page; one that has ended already is no matter.
            let _ = Command::new("kill").args(["-9", pid.trim()]).stderr(Stdio::null()).status();
        }
        let _ = Command::new("kill").arg(self.dev.id().to_string()).status();
        let _ = self.dev.wait();
        if !std::thread::panicking() && std::env::var_os("BARNABAS_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Blocks of the page that have a name.
fn blocks() -> BTreeMap<&'static str, &'static str> {
    let named = PAGE.split("\n```sh ").skip(1);
    named
        .filter_map(|rest| rest.split_once('\n'))
        .filter(|(name, _)| *name != "norun")
        .filter_map(|(name, rest)| Some((name, rest.split_once("\n```")?.0)))
        .collect()
}

/// The numbers in the line that begins so.
fn numbers(printed: &str, start: &str) -> Vec<u64> {
    let line = printed.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no line '{start}' in:\n{printed}"));
    let words = line[start.len()..].split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_producer_loses_and_repeats_and_what_ends_it() -> Outcome<()> {
    let lab = Lab::start().await?;

    let said = lab.run("lost-buffer")?;
    assert_eq!(numbers(&said, "taken 1001, in"), [0], "all that was buffered is lost with a kill");
    let said = lab.run("interrupted")?;
    assert_eq!(numbers(&said, "taken 1001, in"), [1001], "SIGINT flushes");
    assert_eq!(numbers(&said, "acknowledged"), [1001]);
    let said = lab.run("resume")?;
    assert_eq!(
        numbers(&said, "lines 20000,"),
        [20_000],
        "a source that is read again loses nothing"
    );

    let said = lab.run("full")?;
    assert_eq!(numbers(&said, "dropped"), [4000]);
    assert_eq!(numbers(&said, "exit code"), [1], "what was dropped is not passed over in silence");
    let acknowledged = said.lines().filter(|line| line.starts_with("acknowledged"));
    let acknowledged: Vec<u64> =
        acknowledged.map(|line| numbers(line, "acknowledged")[0]).collect();
    assert_eq!(acknowledged, [1000, 5000], "a source that waits loses nothing");
    assert!(numbers(&said, "waits")[0] > 0);

    let said = lab.run("acks")?;
    assert_eq!(numbers(&said, "sent")[0], 20_000);
    assert!(numbers(&said, "acks 0: of 20000 there are")[0] < 20_000, "sent is not acknowledged");
    assert!(numbers(&said, "acks 1: of 20000 there are")[0] < 20_000, "the leader alone had them");
    assert_eq!(numbers(&said, "acks all: of 20000 there are"), [20_000]);

    let said = lab.run("duplicates")?;
    let repeated = numbers(&said, "idempotence false: records");
    assert!(repeated[0] > repeated[1] && repeated[1] == 1001, "written twice: {repeated:?}");
    assert_eq!(numbers(&said, "idempotence true: records"), [1001, 1001]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_consumer_loses_and_repeats_and_what_ends_it() -> Outcome<()> {
    let lab = Lab::start().await?;
    let said = lab.run("auto-commit")?;
    assert!(
        numbers(&said, "auto: records 1000, results")[0] < 1000,
        "committed and never processed"
    );

    let said = lab.run("manual-commit")?;
    let done = numbers(&said, "manual: records 1000, results");
    assert!(done[0] > 1000 && done[1] == 1000, "nothing lost, a batch repeated: {done:?}");

    let said = lab.run("own-offsets")?;
    assert_eq!(numbers(&said, "own offsets: records 1000, results"), [1000, 1000]);
    Ok(())
}

#[test]
fn every_block_with_a_name_is_run() {
    let names: Vec<&str> = blocks().into_keys().collect();
    let source = include_str!("reference_clients.rs");
    for name in &names {
        assert!(source.contains(&format!("run(\"{name}\")")), "no test runs the block {name}");
    }
    assert!(names.len() >= 9, "{names:?}");
}
