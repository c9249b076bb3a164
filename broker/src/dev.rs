//! `barnabas dev`: ZooKeeper and brokers on this machine, each a process of its own, until Ctrl-C.
//!
//! A broker that dies is reported and not started again: whoever killed it wants to see what the others do.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use barnabas_broker::zookeeper::{ZooKeeperError, ZooKeeperOptions, ZooKeeperServer};
use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::v1::{DescribeClusterRequest, DescribeClusterResponse};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// How long a start may take until all brokers are registered and one is the controller.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a broker may take to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(30);
/// How often processes are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// `tickTime` of the development ZooKeeper.
const TICK_TIME_MS: u32 = 500;
/// Session timeout of the development brokers: the failover time that people see.
const SESSION_TIMEOUT_MS: u32 = 6_000;

#[derive(Args, Debug)]
pub(crate) struct DevArgs {
    /// Number of brokers.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    brokers: u16,
    /// Directory for configurations, process ids, logs and data.
    #[arg(long, value_name = "DIR", default_value = "barnabas-dev")]
    data: PathBuf,
    /// Kafka port of broker 1; broker N gets this + N - 1.
    #[arg(long, value_name = "PORT", default_value_t = 9092)]
    kafka_port: u16,
    /// gRPC port of broker 1; broker N gets this + N - 1.
    #[arg(long, value_name = "PORT", default_value_t = 9192)]
    admin_port: u16,
    /// HTTP port of broker 1; broker N gets this + N - 1.
    #[arg(long, value_name = "PORT", default_value_t = 9292)]
    http_port: u16,
    /// ZooKeeper's port.
    #[arg(long, value_name = "PORT", default_value_t = 2181)]
    zookeeper_port: u16,
    /// A line for every broker's configuration, instead of what stands there otherwise; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    config: Vec<(String, String)>,
}

/// Keys that are each broker's own here, and what chooses them instead.
const OWN: [(&str, &str); 6] = [
    ("broker.id", "--brokers"),
    ("listeners", "--kafka-port"),
    ("admin.listener", "--admin-port"),
    ("http.listener", "--http-port"),
    ("zookeeper.connect", "--zookeeper-port"),
    ("log.dirs", "--data"),
];

/// `KEY=VALUE`, for all brokers alike.
fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = crate::cli::key_value(text)?;
    // Also as another name of the same.
    let is_own = OWN.iter().any(|(own, _)| *own == key) || key == "log.dir" || key == "node.id";
    if is_own {
        let own: Vec<String> = OWN.iter().map(|(key, by)| format!("{key} ({by})")).collect();
        return Err(format!(
            "{key} is another one for each broker: `barnabas dev` sets {} itself",
            own.join(", ")
        ));
    }
    Ok((key, value))
}

/// Why the development cluster does not run; each text is one sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DevError {
    #[error(transparent)]
    ZooKeeper(#[from] ZooKeeperError),
    #[error(
        "port {port} ({of}) is taken ({source}); stop what listens there, or choose others with {option}"
    )]
    PortTaken { port: u16, of: String, option: &'static str, source: io::Error },
    #[error("port {port} would be both {of} and {other}; choose others with {option}")]
    Overlap { port: u16, of: String, other: String, option: &'static str },
    #[error(
        "{option} {port} leaves no room for {brokers} brokers below 65536; choose a lower port"
    )]
    NoRoom { option: &'static str, port: u16, brokers: u16 },
    #[error(
        "process {pid} named in {file} runs; stop that cluster first (kill {pid}), or choose another --data"
    )]
    Running { pid: i32, file: PathBuf },
    #[error("broker {id} ended at its start ({status}): {last}; its log is {log}")]
    BrokerEnded { id: u16, status: ExitStatus, last: String, log: PathBuf },
    #[error("the brokers did not form a cluster within {} s; their logs are in {data}", START_MAX.as_secs())]
    NotReady { data: PathBuf },
    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },
}

/// Runs the cluster until SIGINT or SIGTERM.
pub(crate) fn run(args: &DevArgs) -> Result<(), DevError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| io_error("start a runtime", e))?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| io_error("listen for signals", e))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| io_error("listen for signals", e))?;
        let mut cluster = Cluster::prepare(args)?;
        tokio::select! {
            outcome = cluster.start_and_watch() => {
                cluster.stop().await;
                outcome
            }
            _ = async { tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} } } => {
                println!("stopping");
                cluster.stop().await;
                println!("stopped; the data is in {}", cluster.data.display());
                Ok(())
            }
        }
    })
}

/// The processes of a development cluster. Dropping it kills those that it started and has not stopped.
struct Cluster {
    data: PathBuf,
    kafka_port: u16,
    admin_port: u16,
    http_port: u16,
    zookeeper_port: u16,
    config: Vec<(String, String)>,
    brokers: Vec<BrokerProcess>,
    zookeeper: Option<ZooKeeperServer>,
    started: Instant,
}

struct BrokerProcess {
    id: u16,
    child: Option<Child>,
}

impl Cluster {
    /// Checks ports, directory and leftovers before anything is started.
    fn prepare(args: &DevArgs) -> Result<Self, DevError> {
        let data = &args.data;
        fs::create_dir_all(data).map_err(|e| io_error(&format!("create {}", data.display()), e))?;
        let data =
            data.canonicalize().map_err(|e| io_error(&format!("open {}", data.display()), e))?;
        let cluster = Self {
            kafka_port: args.kafka_port,
            admin_port: args.admin_port,
            http_port: args.http_port,
            zookeeper_port: args.zookeeper_port,
            config: args.config.clone(),
            brokers: (1..=args.brokers).map(|id| BrokerProcess { id, child: None }).collect(),
            zookeeper: None,
            started: Instant::now(),
            data,
        };
        cluster.refuse_leftovers()?;
        cluster.refuse_taken_ports()?;
        cluster.write_pid("dev", std::process::id())?;
        Ok(cluster)
    }

    /// A second cluster on the same directory would write into the first one's ZooKeeper data.
    fn refuse_leftovers(&self) -> Result<(), DevError> {
        let ids = self.brokers.iter().map(|broker| format!("broker-{}", broker.id));
        for name in ["dev".to_owned(), "zookeeper".to_owned()].into_iter().chain(ids) {
            if let Some(pid) = self.running(&name) {
                let file = self.file(&name, "pid");
                return Err(DevError::Running { pid: pid.as_raw_nonzero().get(), file });
            }
        }
        Ok(())
    }

    fn refuse_taken_ports(&self) -> Result<(), DevError> {
        let brokers = u16::try_from(self.brokers.len()).unwrap_or(u16::MAX);
        for (option, first) in [
            ("--kafka-port", self.kafka_port),
            ("--admin-port", self.admin_port),
            ("--http-port", self.http_port),
        ] {
            if first == 0 || first.checked_add(brokers - 1).is_none() {
                return Err(DevError::NoRoom { option, port: first, brokers });
            }
        }
        let zookeeper = (self.zookeeper_port, "ZooKeeper".to_owned(), "--zookeeper-port");
        let wanted = self.brokers.iter().flat_map(|broker| {
            let id = broker.id;
            [
                (self.kafka_port + (id - 1), format!("Kafka port of broker {id}"), "--kafka-port"),
                (self.admin_port + (id - 1), format!("gRPC port of broker {id}"), "--admin-port"),
                (self.http_port + (id - 1), format!("HTTP port of broker {id}"), "--http-port"),
            ]
        });
        // All are held until all are checked, so that two of ours cannot be the same one.
        let mut held: Vec<(u16, String, TcpListener)> = Vec::new();
        for (port, of, option) in std::iter::once(zookeeper).chain(wanted) {
            if let Some((_, other, _)) = held.iter().find(|(taken, _, _)| *taken == port) {
                return Err(DevError::Overlap { port, of, other: other.clone(), option });
            }
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                Ok(listener) => held.push((port, of, listener)),
                Err(source) => return Err(DevError::PortTaken { port, of, option, source }),
            }
        }
        Ok(())
    }

    async fn start_and_watch(&mut self) -> Result<(), DevError> {
        let server = ZooKeeperServer::start(&ZooKeeperOptions {
            data_dir: self.data.join("zookeeper"),
            port: Some(self.zookeeper_port),
            tick_time_ms: TICK_TIME_MS,
            force_sync: true,
            ensemble: None,
        })
        .await?;
        println!("ZooKeeper   {}  pid {}  {}", server.address(), server.pid(), self.seconds());
        self.write_pid("zookeeper", server.pid())?;
        self.zookeeper = Some(server);
        for index in 0..self.brokers.len() {
            self.start_broker(index)?;
        }
        self.until_formed().await?;
        println!(
            "ready       clients: {}; commands: barnabas --help with --admin 127.0.0.1:{}; Ctrl-C stops",
            self.bootstrap(),
            self.admin_port
        );
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            self.report_deaths();
        }
    }

    fn start_broker(&mut self, index: usize) -> Result<(), DevError> {
        let id = self.brokers[index].id;
        let name = format!("broker-{id}");
        let config = self.file(&name, "yaml");
        fs::write(&config, self.configuration(id))
            .map_err(|e| io_error(&format!("write {}", config.display()), e))?;
        let log = self.file(&name, "log");
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(&log)
                .map_err(|e| io_error(&format!("write {}", log.display()), e))
        };
        let program = std::env::current_exe().map_err(|e| io_error("find this program", e))?;
        let child = Command::new(program)
            .args(["broker", "--config"])
            .arg(&config)
            // A Ctrl-C in the terminal is for us alone: we stop the brokers in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .spawn()
            .map_err(|e| io_error(&format!("start broker {id}"), e))?;
        self.write_pid(&name, child.id())?;
        println!(
            "broker {id}    127.0.0.1:{}  gRPC 127.0.0.1:{}  HTTP 127.0.0.1:{}  pid {}  {}",
            self.kafka_port + (id - 1),
            self.admin_port + (id - 1),
            self.http_port + (id - 1),
            child.id(),
            self.seconds()
        );
        self.brokers[index].child = Some(child);
        Ok(())
    }

    /// The YAML of one broker: loopback, three copies of everything where there are three brokers.
    fn configuration(&self, id: u16) -> String {
        let count = self.brokers.len();
        let logs = self.data.join(format!("broker-{id}")).display().to_string();
        let address = |port: u16| format!("127.0.0.1:{}", port + id - 1);
        let usual = [
            ("broker.id", id.to_string()),
            ("listeners", format!("PLAINTEXT://{}", address(self.kafka_port))),
            ("admin.listener", address(self.admin_port)),
            ("http.listener", address(self.http_port)),
            ("zookeeper.connect", format!("127.0.0.1:{}", self.zookeeper_port)),
            ("zookeeper.session.timeout.ms", SESSION_TIMEOUT_MS.to_string()),
            ("log.dirs", serde_json::Value::String(logs).to_string()),
            ("default.replication.factor", count.min(3).to_string()),
            ("offsets.topic.replication.factor", count.min(3).to_string()),
            ("group.initial.rebalance.delay.ms", "0".to_owned()),
            ("min.insync.replicas", if count >= 3 { "2" } else { "1" }.to_owned()),
        ];
        let given = |key: &str| self.config.iter().any(|(given, _)| given == key);
        let mut text = "# Written by `barnabas dev` at each start; edits are lost.\n".to_owned();
        let usual = usual.into_iter().filter(|(key, _)| !given(key));
        let lines = usual.map(|(key, value)| (key.to_owned(), value)).chain(self.config.clone());
        lines.for_each(|(key, value)| text += &format!("{key}: {value}\n"));
        text
    }

    /// Waits until every broker is registered and one of them is the controller.
    async fn until_formed(&mut self) -> Result<(), DevError> {
        let deadline = Instant::now() + START_MAX;
        loop {
            for broker in &mut self.brokers {
                if let Some(status) = broker.ended() {
                    let log = self.data.join(format!("broker-{}.log", broker.id));
                    return Err(DevError::BrokerEnded {
                        id: broker.id,
                        status,
                        last: last_line(&log),
                        log,
                    });
                }
            }
            if let Some(cluster) = self.describe().await
                && cluster.controller_id >= 0
                && cluster.brokers.len() >= self.brokers.len()
            {
                let (id, epoch) = (cluster.controller_id, cluster.controller_epoch);
                println!("controller  broker {id}, epoch {epoch}  {}", self.seconds());
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(DevError::NotReady { data: self.data.clone() });
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// What the first broker that answers says; `None` if none does.
    async fn describe(&self) -> Option<DescribeClusterResponse> {
        for broker in &self.brokers {
            let address = format!("http://127.0.0.1:{}", self.admin_port + (broker.id - 1));
            let ask = async {
                let mut client = AdminClient::connect(address).await.ok()?;
                client.describe_cluster(DescribeClusterRequest {}).await.ok()
            };
            if let Ok(Some(answer)) = tokio::time::timeout(Duration::from_secs(1), ask).await {
                return Some(answer.into_inner());
            }
        }
        None
    }

    fn report_deaths(&mut self) {
        for broker in &mut self.brokers {
            let pid = broker.child.as_ref().map(Child::id);
            let Some((status, pid)) = broker.ended().zip(pid) else { continue };
            broker.child = None;
            let (id, data) = (broker.id, self.data.display());
            println!(
                "broker {id}    pid {pid} ended ({status}); it is not restarted. Start it again with: \
                 barnabas broker --config {data}/broker-{id}.yaml & echo $! > {data}/broker-{id}.pid"
            );
        }
        if let Some(server) = &mut self.zookeeper
            && let Ok(Some(status)) = server.try_wait()
        {
            println!("ZooKeeper   ended ({status}); it is not restarted");
            self.zookeeper = None;
        }
    }

    /// Stops the brokers (also those that somebody started again by hand and noted in the pid file), then ZooKeeper.
    async fn stop(&mut self) {
        let mut others = Vec::new();
        for broker in &mut self.brokers {
            match &broker.child {
                Some(child) => terminate(i32::try_from(child.id()).ok().and_then(Pid::from_raw)),
                None => others.push(broker.id),
            }
        }
        let others: Vec<String> = others.iter().map(|id| format!("broker-{id}")).collect();
        for name in &others {
            terminate(self.running(name));
        }
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            let mine = self.brokers.iter_mut().any(BrokerProcess::runs);
            if !mine && !others.iter().any(|name| self.running(name).is_some()) {
                break;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        for broker in &mut self.brokers {
            if broker.runs() {
                println!(
                    "broker {} did not end within {} s; it is killed",
                    broker.id,
                    STOP_MAX.as_secs()
                );
            }
            broker.kill();
            // The next start looks at these files; one that is left over is recognised there.
            let _ = fs::remove_file(self.data.join(format!("broker-{}.pid", broker.id)));
        }
        self.zookeeper = None;
        for name in ["zookeeper", "dev"] {
            let _ = fs::remove_file(self.file(name, "pid"));
        }
    }

    /// The process of a pid file, if it runs and is one of this cluster's.
    fn running(&self, name: &str) -> Option<Pid> {
        let pid = fs::read_to_string(self.file(name, "pid")).ok()?;
        let pid = Pid::from_raw(pid.trim().parse().ok()?)?;
        let raw = pid.as_raw_nonzero().get();
        if raw == i32::try_from(std::process::id()).unwrap_or(0) || test_kill_process(pid).is_err()
        {
            return None;
        }
        // Process ids are used again: only a command line that belongs to this cluster counts.
        let listed = Command::new("ps")
            .args(["-ww", "-o", "args=", "-p", &raw.to_string()])
            .output()
            .ok()?;
        let command_line = String::from_utf8_lossy(&listed.stdout).into_owned();
        let belongs = match name {
            "dev" => command_line.contains("barnabas") && command_line.contains(" dev"),
            "zookeeper" => command_line.contains("zookeeper"),
            broker => command_line.contains(&format!("{broker}.yaml")),
        };
        belongs.then_some(pid)
    }

    fn write_pid(&self, name: &str, pid: u32) -> Result<(), DevError> {
        let file = self.file(name, "pid");
        fs::write(&file, format!("{pid}\n"))
            .map_err(|e| io_error(&format!("write {}", file.display()), e))
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.data.join(format!("{name}.{extension}"))
    }

    fn bootstrap(&self) -> String {
        let address = |broker: &BrokerProcess| {
            SocketAddr::from((Ipv4Addr::LOCALHOST, self.kafka_port + (broker.id - 1))).to_string()
        };
        self.brokers.iter().map(address).collect::<Vec<_>>().join(",")
    }

    fn seconds(&self) -> String {
        format!("+{:.2} s", self.started.elapsed().as_secs_f64())
    }
}

impl BrokerProcess {
    /// How the process ended, if it has.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    fn runs(&mut self) -> bool {
        self.child.is_some() && self.ended().is_none()
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail only if the process has been waited for already.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.child = None;
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends two signals, so that it stops at once: nobody is left to take over its partitions. A process that has just ended needs
/// none.
fn terminate(pid: Option<Pid>) {
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
        let _ = kill_process(pid, Signal::INT);
    }
}

fn io_error(what: &str, source: io::Error) -> DevError {
    DevError::Io { what: what.to_owned(), source }
}

fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().last().unwrap_or("it said nothing").to_owned()
}
