//! What the data path costs: brokers and the ideal pipeline in turns, on the same files' device, CPU by the processes' clocks.
//!
//! Figures are ratios of one run; the spread of its rounds is printed beside each. What is compared runs under the same
//! conditions: round trips in the same places (`placement`), throughput with nothing left to be written back or deleted.

mod placement;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::Outcome;
use crate::admin::NewTopic;
use crate::cluster::{Cluster, Options, SETTLE_MAX, program, usage};
use crate::wait::wait_for;
use placement::{Held, Placement};

/// How long idle brokers are watched.
const IDLE: Duration = Duration::from_secs(20);
const IDLE_PARTITIONS: i32 = 1_000;
const IDLE_CONNECTIONS: u64 = 2_000;
/// Bytes of a measurement with a thousand partitions, or with a client that takes its time.
const SMALL_SHARE: u64 = 4;
/// About the bytes of a batch, and a little more.
const BATCH_BYTES: u64 = 68_000;
/// Partitions of a topic with few.
const FEW_PARTITIONS: i32 = 4;
/// Batches of one measurement of latency, and the bytes of their records.
const LATENCY_COUNT: u64 = 5_000;
/// So many times broker and plain round trip have their turn in one place, with their share of the batches.
const LATENCY_TURNS: u64 = 5;
/// So many times topics with few and with many partitions have their turn in a round.
const PARTITIONS_TURNS: usize = 3;
const LATENCY_BATCH_BYTES: u64 = 1_024;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds of each kind.
    pub rounds: usize,
    /// Bytes of one measurement.
    pub bytes: u64,
    /// The ideal program.
    pub ideal: PathBuf,
    /// The program that drives librdkafka.
    pub librdkafka: PathBuf,
}

/// Goals, of which each figure must not be above (or, for throughput, below).
const RF1_MAX: f64 = 1.5;
const RF3_MAX: f64 = 1.6;
const LATENCY_MAX: f64 = 3.0;
const READ_NS_PER_BYTE_MAX: f64 = 0.3;
const READ_MAX: f64 = 1.5;
const IDLE_CORE_SHARE_MAX: f64 = 0.02;
const PARTITIONS_MIN: f64 = 0.8;
const LIBRDKAFKA_RF1_MIN: f64 = 0.8;
const LIBRDKAFKA_RF3_MIN: f64 = 0.5;
const CONNECTION_BYTES_MAX: f64 = 20.0 * 1024.0;

/// Runs it; `say` gets one JSON object a figure.
///
/// # Errors
/// A cluster that does not form, or a program that fails.
pub async fn run(plan: &Plan, say: &mut impl FnMut(&Value)) -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 6_000,
        config: String::new(),
        ..Options::default()
    })
    .await?;
    let pids: Vec<Pid> = cluster.brokers().map(|broker| broker.pid()).collect::<Outcome<_>>()?;
    idle_partitions(&cluster, &pids, say).await?;
    let bench =
        Bench { bootstrap: cluster.bootstrap(), pids, plan, data: cluster.directory().to_owned() };
    let (mut rf1, mut rf3) = (Vec::new(), Vec::new());
    let (mut reads, mut read_ratios) = (Vec::new(), Vec::new());
    let mut many = Vec::new();
    let (mut latency1, mut latency3) = (Vec::new(), Vec::new());
    let (mut librdkafka1, mut librdkafka3) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let of_factor =
            [(1_i16, "1", &mut rf1, &mut librdkafka1), (3, "all", &mut rf3, &mut librdkafka3)];
        for (factor, acks, ratios, librdkafka) in of_factor {
            let topic = format!("bench-{round}-rf{factor}");
            create(&cluster, &topic, 1, factor.into()).await?;
            let ideal = bench.ideal(factor - 1)?;
            let (broker, _) = bench.produce(&topic, acks, plan.bytes)?;
            say(
                &json!({"figure": "produce", "replicas": factor, "round": round, "cpu_ns_per_byte": broker, "ideal_cpu_ns_per_byte": ideal}),
            );
            ratios.push(broker / ideal);
            if factor == 1 {
                let (read, bare) = (bench.consume(&topic)?, bench.sendfile()?);
                say(
                    &json!({"figure": "tail read", "round": round, "cpu_ns_per_byte": read, "sendfile_cpu_ns_per_byte": bare}),
                );
                reads.push(read);
                read_ratios.push(read / bare);
                latency1.push(bench.round_trips(&topic, round, say)?);
            } else {
                let said = bench.latency(&topic, acks)?;
                latency3.push(number(&said, "p50_us")? / bench.ideal_latency(factor - 1)?);
            }
            delete(&cluster, &topic).await?;
            let topic = format!("librdkafka-{round}-rf{factor}");
            create(&cluster, &topic, FEW_PARTITIONS, factor.into()).await?;
            let mock = bench.librdkafka(&topic, acks, factor, None)?;
            let rate = bench.librdkafka(&topic, acks, factor, Some(&bench.bootstrap))?;
            say(
                &json!({"figure": "librdkafka", "replicas": factor, "round": round, "megabytes_per_second": rate, "mock_megabytes_per_second": mock}),
            );
            librdkafka.push(rate / mock);
            delete(&cluster, &topic).await?;
        }
        many.push(bench.partitions(&cluster, round, say).await?);
    }
    say(&figure("RF 1: CPU against the ideal", &mut rf1, RF1_MAX));
    say(&figure("RF 3, acks=all: CPU of three brokers against the ideal", &mut rf3, RF3_MAX));
    say(&figure("RF 1: p50 against a plain round trip", &mut latency1, LATENCY_MAX));
    say(&figure("RF 3, acks=all: p50 against the ideal", &mut latency3, LATENCY_MAX));
    say(&figure("tail read: ns of CPU a byte", &mut reads, READ_NS_PER_BYTE_MAX));
    let name = "tail read: CPU against a bare loop of sendfile";
    say(&figure(name, &mut read_ratios, READ_MAX));
    say(&figure("throughput of 1,000 partitions against 4 (at least)", &mut many, PARTITIONS_MIN));
    let name = "librdkafka, RF 1: rate against its mock cluster (at least)";
    say(&figure(name, &mut librdkafka1, LIBRDKAFKA_RF1_MIN));
    let name = "librdkafka, RF 3, acks=all: rate against its mock cluster (at least)";
    say(&figure(name, &mut librdkafka3, LIBRDKAFKA_RF3_MIN));
    idle_connections(&mut cluster, say).await
}

/// The median, the least and the greatest of a figure, beside its goal.
fn figure(name: &str, values: &mut [f64], goal: f64) -> Value {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values.first(), values.last());
    json!({"figure": name, "median": values.get(values.len() / 2), "least": least, "most": most, "goal": goal})
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Deletes a topic, and waits until its files are gone: that goes on in the background.
async fn delete(cluster: &Cluster, name: &str) -> Outcome<()> {
    cluster.admin().await?.delete_topic(name).await?;
    let prefix = format!("{name}-");
    wait_for(&format!("the files of {name} are gone"), SETTLE_MAX, || async {
        let gone = directories(cluster.directory()).ok()?.all(|found| !found.starts_with(&prefix));
        gone.then_some(())
    })
    .await
}

/// Names of the directories of partitions of all brokers.
fn directories(data: &Path) -> std::io::Result<impl Iterator<Item = String>> {
    let mut names = Vec::new();
    for broker in fs::read_dir(data)?.flatten().filter(|entry| entry.path().is_dir()) {
        let found = fs::read_dir(broker.path())?.flatten();
        names.extend(found.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    }
    Ok(names.into_iter())
}

async fn create(
    cluster: &Cluster,
    name: &str,
    partitions: i32,
    replication_factor: i32,
) -> Outcome<()> {
    let topic = NewTopic { name, partitions, replication_factor, configs: &[] };
    cluster.admin().await?.create_topic(topic).await?;
    cluster.until_healed(name, usize::try_from(replication_factor)?).await?;
    cluster.until_served(name, partitions).await
}

fn cpu(pids: &[Pid]) -> Outcome<Duration> {
    pids.iter().map(|pid| usage(*pid).map(|(_, cpu)| cpu)).sum()
}

/// Brokers and the programs that drive them.
struct Bench<'a> {
    bootstrap: String,
    pids: Vec<Pid>,
    plan: &'a Plan,
    data: PathBuf,
}

impl Bench<'_> {
    fn ideal(&self, followers: i16) -> Outcome<f64> {
        let bytes = self.plan.bytes.to_string();
        number(&self.run_ideal(followers, &["--bytes", &bytes])?, "cpu_ns_per_byte")
    }

    /// The ideal's p50 in us, with one batch in flight.
    fn ideal_latency(&self, followers: i16) -> Outcome<f64> {
        let batch_bytes = LATENCY_BATCH_BYTES.to_string();
        let bytes = (LATENCY_COUNT * LATENCY_BATCH_BYTES).to_string();
        let one = ["--connections", "1", "--in-flight", "1", "--batch-bytes", &batch_bytes];
        number(&self.run_ideal(followers, &[&one[..], &["--bytes", &bytes]].concat())?, "p50_us")
    }

    fn run_ideal(&self, followers: i16, arguments: &[&str]) -> Outcome<Value> {
        let mut command = Command::new(&self.plan.ideal);
        command.arg("--data").arg(&self.data);
        command.args(["--followers", &followers.to_string()]).args(arguments);
        output(command)
    }

    /// ns of CPU a byte of a server that sends the ideal's file, which was just written, in pieces of the same size.
    fn sendfile(&self) -> Outcome<f64> {
        let mut command = Command::new(&self.plan.ideal);
        command.arg("--data").arg(&self.data).arg("--tail");
        number(&output(command)?, "cpu_ns_per_byte")
    }

    /// p50 of one batch in flight at acks=1 against a plain round trip between processes: broker and echo in turns, on one
    /// processor and on two. The greater ratio counts.
    fn round_trips(&self, topic: &str, round: usize, say: &mut impl FnMut(&Value)) -> Outcome<f64> {
        let count = (LATENCY_COUNT / LATENCY_TURNS).to_string();
        let batch_bytes = LATENCY_BATCH_BYTES.to_string();
        let bytes = (LATENCY_COUNT / LATENCY_TURNS * LATENCY_BATCH_BYTES).to_string();
        let mut greatest = 0.0_f64;
        for placement in Placement::all()? {
            let _held = Held::at(&self.pids, &placement)?;
            let (mut broker, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..LATENCY_TURNS {
                let mut command = placement.client(&program()?);
                command.args(["bench", "latency", "--acks", "1", "--count", &count, "--json"]);
                command.args(["--bootstrap", &self.bootstrap, "--topic", topic]);
                command.args(["--batch-bytes", &batch_bytes]);
                broker.push(number(&output(command)?, "p50_us")?);
                let mut command = placement.client(&self.plan.ideal);
                command.args(["--echo", "--connections", "1", "--in-flight", "1"]);
                command.args(["--server-cpu", &placement.server()]);
                command.args(["--batch-bytes", &batch_bytes, "--bytes", &bytes]);
                plain.push(number(&output(command)?, "p50_us")?);
            }
            let (broker, plain) = (median(&mut broker), median(&mut plain));
            say(
                &json!({"figure": "round trip", "round": round, "on": placement.name, "p50_us": broker, "plain_p50_us": plain}),
            );
            greatest = greatest.max(broker / plain);
        }
        Ok(greatest)
    }

    /// Throughput of many partitions against few: in turns, each with nothing left from before it to be written back.
    async fn partitions(
        &self,
        cluster: &Cluster,
        round: usize,
        say: &mut impl FnMut(&Value),
    ) -> Outcome<f64> {
        let topics = [FEW_PARTITIONS, IDLE_PARTITIONS]
            .map(|count| (format!("bench-{round}-p{count}"), count));
        for (topic, count) in &topics {
            create(cluster, topic, *count, 1).await?;
            // The first record of a partition makes files and notes an epoch.
            self.produce(topic, "1", IDLE_PARTITIONS as u64 * BATCH_BYTES)?;
        }
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..PARTITIONS_TURNS {
            for ((topic, _), rates) in topics.iter().zip(&mut rates) {
                rustix::fs::sync();
                rates.push(self.produce(topic, "1", self.plan.bytes / SMALL_SHARE)?.1);
            }
        }
        say(
            &json!({"figure": "partitions", "round": round, "few_megabytes_per_second": rates[0], "many_megabytes_per_second": rates[1]}),
        );
        for (topic, _) in &topics {
            delete(cluster, topic).await?;
        }
        let [mut few, mut many] = rates;
        Ok(median(&mut many) / median(&mut few))
    }

    /// MB a second that librdkafka sends to these brokers, or to its mock cluster.
    fn librdkafka(
        &self,
        topic: &str,
        acks: &str,
        replicas: i16,
        bootstrap: Option<&str>,
    ) -> Outcome<f64> {
        let mut command = Command::new(&self.plan.librdkafka);
        command.args(["--topic", topic, "--acks", acks]);
        command.args(["--replicas", &replicas.to_string()]);
        command.args(["--partitions", &FEW_PARTITIONS.to_string()]);
        command.args(["--bytes", &(self.plan.bytes / SMALL_SHARE).to_string()]);
        command.args(bootstrap.iter().flat_map(|to| ["--bootstrap", to]));
        number(&output(command)?, "megabytes_per_second")
    }

    /// ns of the brokers' CPU a byte, and MB a second.
    fn produce(&self, topic: &str, acks: &str, bytes: u64) -> Outcome<(f64, f64)> {
        let before = cpu(&self.pids)?;
        let bytes = bytes.to_string();
        let said = self.bench(&["produce", "--acks", acks, "--bytes", &bytes], topic)?;
        let spent = cpu(&self.pids)?.saturating_sub(before).as_nanos() as f64;
        Ok((spent / number(&said, "bytes")?, number(&said, "megabytes_per_second")?))
    }

    fn consume(&self, topic: &str) -> Outcome<f64> {
        let before = cpu(&self.pids)?;
        let said = self.bench(&["consume"], topic)?;
        let spent = cpu(&self.pids)?.saturating_sub(before).as_nanos() as f64;
        Ok(spent / number(&said, "bytes")?)
    }

    /// What one batch in flight at a time takes, beside a plain round trip.
    fn latency(&self, topic: &str, acks: &str) -> Outcome<Value> {
        let (bytes, count) = (LATENCY_BATCH_BYTES.to_string(), LATENCY_COUNT.to_string());
        let arguments = ["latency", "--acks", acks, "--batch-bytes", &bytes, "--count", &count];
        self.bench(&arguments, topic)
    }

    fn bench(&self, arguments: &[&str], topic: &str) -> Outcome<Value> {
        let mut command = Command::new(program()?);
        command.arg("bench").args(arguments);
        command.args(["--json", "--bootstrap", &self.bootstrap, "--topic", topic]);
        output(command)
    }
}

fn output(mut command: Command) -> Outcome<Value> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(said: &Value, name: &str) -> Outcome<f64> {
    said[name].as_f64().ok_or_else(|| format!("no {name} in {said}").into())
}

/// What a thousand partitions cost that nobody uses.
async fn idle_partitions(
    cluster: &Cluster,
    pids: &[Pid],
    say: &mut impl FnMut(&Value),
) -> Outcome<()> {
    create(cluster, "idle", IDLE_PARTITIONS, 3).await?;
    let (before, began) = (cpu(pids)?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let share = (cpu(pids)? - before).as_secs_f64() / began.elapsed().as_secs_f64();
    let mut shares = [share];
    say(&figure("1,000 idle RF 3 partitions: share of a core", &mut shares, IDLE_CORE_SHARE_MAX));
    Ok(())
}

/// What a connection costs on which nothing happens.
async fn idle_connections(cluster: &mut Cluster, say: &mut impl FnMut(&Value)) -> Outcome<()> {
    let address = cluster.broker(1).config().listener.to_string();
    let pid = cluster.broker(1).pid()?;
    let (before, _) = usage(pid)?;
    let mut idle = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        idle.push(TcpStream::connect(&address).await?);
    }
    let each = usage(pid)?.0.saturating_sub(before) / IDLE_CONNECTIONS;
    say(&figure("idle connection: bytes", &mut [each as f64], CONNECTION_BYTES_MAX));
    drop(idle);
    Ok(())
}
