//! The cluster that `barnabas bench failover` breaks: `barnabas dev` on free ports in a directory of its own, driven as a user drives
//! it, by signals to the processes of its pid files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use barnabas_proto::v1::create_topic_response::Result as Created;
use barnabas_proto::v1::{
    CreateTopicRequest, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicsRequest,
    Failover, Partition, TimelineRequest,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::super::refused;
use crate::cli::ask::{ask, ask_stream, failure, pause, runtime};
use crate::cli::{Asking, CliError};

/// Brokers 1 to this.
pub(super) const BROKERS: i32 = 3;
/// Longest wait for the cluster to form, heal, elect or record.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(90);
/// Longest wait for `barnabas dev` to stop what it started.
const STOP_MAX: Duration = Duration::from_secs(45);
/// How often a condition is looked at that costs the cluster nothing, and one that asks it.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// Free ports are looked for from here on, in steps of what one cluster takes.
const FIRST_PORT: u16 = 16_000;
const PORTS: u16 = 3 * BROKERS as u16 + 1;
const PORT_BLOCKS: u16 = 1_500;

/// A running cluster of three. Its end stops every process, and deletes the directory unless it was named by the user.
pub(super) struct OwnCluster {
    data: PathBuf,
    temporary: bool,
    port: u16,
    dev: Child,
    /// Brokers that were started again here.
    restarted: BTreeMap<i32, Child>,
    interrupted: Arc<AtomicBool>,
}

impl OwnCluster {
    /// Starts it, with these lines in every broker's configuration, and waits until it has formed.
    pub(super) fn start(data: Option<&Path>, config: &[(&str, String)]) -> Result<Self, CliError> {
        let temporary = data.is_none();
        let own = || std::env::temp_dir().join(format!("barnabas-bench-{}", std::process::id()));
        let data = data.map_or_else(own, Path::to_owned);
        fs::create_dir_all(&data).map_err(refused)?;
        let port = free_block()?;
        let ports = [("kafka", 0), ("admin", 1), ("http", 2), ("zookeeper", 3)];
        let log = || File::create(data.join("dev.log")).map_err(refused);
        let mut command = Command::new(std::env::current_exe().map_err(refused)?);
        command.arg("dev").arg("--data").arg(&data).stdin(Stdio::null());
        for (of, block) in ports {
            let first = port + block * BROKERS as u16;
            command.arg(format!("--{of}-port")).arg(first.to_string());
        }
        for (key, value) in config {
            command.arg("--config").arg(format!("{key}={value}"));
        }
        let interrupted = interruption()?;
        let dev = command.stdout(log()?).stderr(log()?).spawn().map_err(refused)?;
        let restarted = BTreeMap::new();
        let mut cluster = Self { data, temporary, port, dev, restarted, interrupted };
        cluster.until_formed()?;
        Ok(cluster)
    }

    fn until_formed(&mut self) -> Result<(), CliError> {
        let began = Instant::now();
        loop {
            let known = self.describe(0).ok();
            let whole = |of: &DescribeClusterResponse| {
                of.controller_id >= 0 && of.brokers.len() == BROKERS as usize
            };
            if known.is_some_and(|known| whole(&known)) {
                return Ok(());
            }
            if self.dev.try_wait().map_err(refused)?.is_some() || began.elapsed() > SETTLE_MAX {
                let said = fs::read_to_string(self.data.join("dev.log")).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it said nothing");
                return Err(refused(format!("the cluster does not start: {last}")));
            }
            self.rest(ASK_INTERVAL)?;
        }
    }

    pub(super) fn bootstrap(&self) -> String {
        let address = |id| format!("127.0.0.1:{}", self.port + id - 1);
        (1..=BROKERS as u16).map(address).collect::<Vec<_>>().join(",")
    }

    /// Creates the topic that is led, and moved.
    pub(super) fn create_topic(&self, name: &str, partitions: i32) -> Result<(), CliError> {
        let request = CreateTopicRequest {
            name: name.to_owned(),
            partitions: Some(partitions),
            replication_factor: Some(BROKERS),
            configs: [("min.insync.replicas".to_owned(), "2".to_owned())].into(),
            ..CreateTopicRequest::default()
        };
        let asked = ask(&self.asking(1), |mut c| async move { c.create_topic(request).await })?;
        match asked.result {
            Some(Created::Created(_)) => Ok(()),
            Some(Created::Failure(why)) => Err(failure(&why)),
            None => Err(refused("an empty answer")),
        }
    }

    /// What a broker other than `but` says of the cluster.
    pub(super) fn describe(&self, but: i32) -> Result<DescribeClusterResponse, CliError> {
        self.any(but, |asking| {
            ask(asking, |mut c| async move { c.describe_cluster(DescribeClusterRequest {}).await })
        })
    }

    /// What a broker other than `but` says of a topic's partitions.
    pub(super) fn partitions(&self, topic: &str, but: i32) -> Result<Vec<Partition>, CliError> {
        let known = self.any(but, |asking| {
            let request = DescribeTopicsRequest { names: vec![topic.to_owned()] };
            ask(asking, |mut c| async move { c.describe_topics(request).await })
        })?;
        let topic = known.topics.into_iter().next();
        Ok(topic.ok_or_else(|| refused("the topic is not there"))?.partitions)
    }

    /// The failovers that each broker other than `but` tells.
    pub(super) fn timelines(&self, but: i32) -> Result<Vec<Vec<Failover>>, CliError> {
        let tell = |id| {
            let mut told = Vec::new();
            let request = TimelineRequest { last: u32::MAX, follow: false, id: None };
            let question = |mut c: barnabas_proto::v1::admin_client::AdminClient<_>| async move {
                c.timeline(request).await
            };
            ask_stream(&self.asking(id), question, |one: &Failover| told.push(one.clone()))?;
            Ok(told)
        };
        (1..=BROKERS).filter(|id| *id != but).map(tell).collect()
    }

    fn any<T>(
        &self,
        but: i32,
        question: impl Fn(&Asking) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut last = refused("there is nobody to ask");
        for id in (1..=BROKERS).filter(|id| *id != but) {
            match question(&self.asking(id)) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn asking(&self, id: i32) -> Asking {
        let port = self.port + BROKERS as u16 + id as u16 - 1;
        Asking { admin: format!("127.0.0.1:{port}"), json: false }
    }

    /// Sends a signal to a broker.
    pub(super) fn strike(&self, id: i32, how: Signal) -> Result<(), CliError> {
        kill_process(self.pid(id)?, how).map_err(refused)
    }

    /// Waits until the process of a broker is gone.
    pub(super) fn until_ended(&mut self, id: i32) -> Result<(), CliError> {
        let pid = self.pid(id)?;
        let began = Instant::now();
        loop {
            let ended = match self.restarted.get_mut(&id) {
                Some(child) => child.try_wait().map_err(refused)?.is_some(),
                None => test_kill_process(pid).is_err(),
            };
            if ended {
                self.restarted.remove(&id);
                return Ok(());
            }
            if began.elapsed() > SETTLE_MAX {
                return Err(refused(format!("broker {id} does not end")));
            }
            self.rest(LOOK_INTERVAL)?;
        }
    }

    /// Starts a broker whose process is gone.
    pub(super) fn start_again(&mut self, id: i32) -> Result<(), CliError> {
        let file = |extension| self.data.join(format!("broker-{id}.{extension}"));
        let log = || File::options().append(true).create(true).open(file("log")).map_err(refused);
        let child = Command::new(std::env::current_exe().map_err(refused)?)
            .args(["broker", "--config"])
            .arg(file("yaml"))
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .spawn()
            .map_err(refused)?;
        fs::write(file("pid"), format!("{}\n", child.id())).map_err(refused)?;
        self.restarted.insert(id, child);
        Ok(())
    }

    fn pid(&self, id: i32) -> Result<Pid, CliError> {
        let file = self.data.join(format!("broker-{id}.pid"));
        let text = fs::read_to_string(&file).map_err(refused)?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| refused(format!("{} holds no pid", file.display())))
    }

    /// Lets time pass, unless the command is interrupted.
    pub(super) fn rest(&self, time: Duration) -> Result<(), CliError> {
        let until = Instant::now() + time;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(refused("interrupted"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            pause(left.min(ASK_INTERVAL))?;
        }
    }

    /// Looks until there is something.
    pub(super) fn wait_for<T>(
        &self,
        what: &str,
        interval: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, CliError> {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if began.elapsed() > SETTLE_MAX {
                let seconds = SETTLE_MAX.as_secs();
                return Err(refused(format!("{what}: not within {seconds} s")));
            }
            self.rest(interval)?;
        }
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        // What stands still does not hear that it is to stop; each fails only for what has ended.
        for id in 1..=BROKERS {
            let _ = self.strike(id, Signal::CONT);
        }
        for child in self.restarted.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let began = Instant::now();
        if let Some(pid) = i32::try_from(self.dev.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        while matches!(self.dev.try_wait(), Ok(None)) && began.elapsed() < STOP_MAX {
            let _ = pause(LOOK_INTERVAL);
        }
        if self.temporary {
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}

/// Set by the first SIGINT or SIGTERM, so that the cluster is stopped before the command ends.
fn interruption() -> Result<Arc<AtomicBool>, CliError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let set = interrupted.clone();
    let runtime = runtime()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let hear = |kind| signal(kind).map_err(refused);
        (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        set.store(true, Ordering::Relaxed);
    });
    Ok(interrupted)
}

/// The first of as many free ports in a row as a cluster takes.
fn free_block() -> Result<u16, CliError> {
    // Commands that run at the same time begin far from one another.
    let own = (std::process::id() % u32::from(PORT_BLOCKS)) as u16;
    let is_free = |port: &u16| {
        (*port..*port + PORTS).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
    };
    let blocks = (0..PORT_BLOCKS).map(|n| FIRST_PORT + (own + n) % PORT_BLOCKS * PORTS);
    blocks.into_iter().find(is_free).ok_or_else(|| refused("no ports are free"))
}
