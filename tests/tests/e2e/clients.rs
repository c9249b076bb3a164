//! Unmodified clients of two generations: kcat (librdkafka 2.0.2) and the newest confluent-kafka.

use std::path::{Path, PathBuf};
use std::process::Command;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options};
use barnabas_tests::kcat;

use super::topic;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcat_with_every_codec_and_every_acks() -> Outcome<()> {
    let cluster = Cluster::start(Options::default()).await?;
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 3, configs: &[] })
        .await?;
    let mut expected = Vec::new();
    for (codec, acks) in
        [("none", "all"), ("gzip", "1"), ("snappy", "all"), ("lz4", "1"), ("zstd", "all")]
    {
        let lines: String =
            (0..500).map(|n| format!("{codec} {n} {}\n", "x".repeat(n % 70))).collect();
        expected.extend_from_slice(lines.as_bytes());
        let acks = format!("acks={acks}");
        let arguments = ["-P", "-t", "t", "-z", codec, "-X", &acks];
        let output = kcat::run(&cluster.bootstrap(), &arguments, lines.as_bytes())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{codec}: {said}");
        assert!(!said.contains("does not support"), "{codec}: {said}");
    }
    let arguments = ["-C", "-t", "t", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == expected, "what comes out is what went in, in order");
    // acks=0 promises nothing but is taken; without faults it arrives.
    let output =
        kcat::run(&cluster.bootstrap(), &["-P", "-t", "t", "-X", "acks=0"], b"unacknowledged\n")?;
    assert!(output.status.success());
    let arguments = ["-C", "-t", "t", "-o", "2500", "-c", "1", "-q"];
    let output = kcat::run(&cluster.bootstrap(), &arguments, b"")?;
    assert_eq!(output.stdout, b"unacknowledged\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confluent_kafka_produces_consumes_and_administers() -> Outcome<()> {
    let cluster = Cluster::start(Options::default()).await?;
    python("round_trip.py", &[&cluster.bootstrap()]).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_wakes_the_waiting_fetch() -> Outcome<()> {
    let cluster = Cluster::start(Options::default()).await?;
    topic(
        &cluster,
        NewTopic { name: "latency", partitions: 1, replication_factor: 3, configs: &[] },
    )
    .await?;
    python("latency.py", &[&cluster.bootstrap()]).map(drop)
}

/// A script of `tests/clients`, to be run with a Python that has the clients.
pub(super) fn python_command(script: &str) -> Command {
    let python =
        std::env::var_os("BARNABAS_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script);
    let mut command = Command::new(python);
    command.arg(script);
    command
}

/// Runs a script of `tests/clients` with a Python that has confluent-kafka; what it printed.
pub(super) fn python(script: &str, arguments: &[&str]) -> Outcome<String> {
    let output = python_command(script).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let needs =
        "run ./tests/run, which installs confluent-kafka and kafka-python, or set BARNABAS_PYTHON";
    assert!(!said.contains("ModuleNotFoundError"), "{said}\n{needs}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{printed}");
    assert!(output.status.success(), "{printed}\n{said}");
    Ok(printed)
}
