//! ZooKeeper and broker processes on free loopback ports, with everything that faults need.

mod broker;
mod known;
mod proxied;
mod standstill;
mod zookeeper;

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use barnabas_broker::zookeeper::ZooKeeperServer;

use crate::admin::Admin;
use crate::network::Network;
use crate::ports;
use crate::proxy::Proxy;
use crate::shim::Shim;
use crate::wait::wait_for;
use crate::znodes::{PartitionNode, Znodes};
use crate::{Fault, Outcome};

pub use broker::{Broker, program, run_line, run_program, run_program_within, usage};
pub use proxied::Proxies;

/// Longest wait for a cluster to form, to heal or to elect; generous, for machines that also compile.
pub const SETTLE_MAX: Duration = Duration::from_secs(60);

/// What kind of cluster to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Brokers get the ids 1 to this.
    pub brokers: i32,
    /// `zookeeper.session.timeout.ms`.
    pub session_timeout_ms: u32,
    /// `controlled.shutdown.max.wait.ms`: how long a broker that is asked to end waits until others lead.
    pub shutdown_wait_ms: u32,
    /// More lines for every broker's configuration.
    pub config: String,
    /// Whether a proxy stands before each broker's two listeners and before its ZooKeeper.
    pub proxied: bool,
    /// Whether each broker is on a network of its own, where packets can vanish; not together with `proxied`.
    pub networked: bool,
    /// Number of `log.dirs` of each broker: `broker-N`, then `broker-N-1` and so on.
    pub log_dirs: usize,
    /// Whether the fault shim is preloaded into the brokers.
    pub preload: Preload,
    /// Whether the brokers are started too, or only configured.
    pub start: bool,
}

/// What is preloaded into the brokers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preload {
    /// They run as users run them.
    Nothing,
    /// The fault shim.
    Faults,
    /// The fault shim, with a journal of what a power cut would keep.
    Journal,
}

impl Default for Options {
    /// Three brokers, a session of 3 s and a lag limit of 2 s.
    fn default() -> Self {
        Self {
            brokers: 3,
            session_timeout_ms: 3_000,
            shutdown_wait_ms: 2_000,
            config: "replica.lag.time.max.ms: 2000\n".to_owned(),
            proxied: false,
            networked: false,
            log_dirs: 1,
            preload: Preload::Nothing,
            start: true,
        }
    }
}

/// A cluster in a directory of its own. Its end kills every process that it started and deletes the directory, unless the
/// test panics or `BARNABAS_KEEP` is set.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    /// ZooKeeper, if this harness started it.
    zookeeper: Option<ZooKeeperServer>,
    zookeeper_connect: String,
    brokers: BTreeMap<i32, Broker>,
    proxies: BTreeMap<i32, Proxies>,
    network: Option<(Network, Proxy)>,
    temporary: bool,
}

impl Cluster {
    /// Starts ZooKeeper and the brokers, and waits until all are registered and one is the controller.
    ///
    /// # Errors
    /// What does not start, with the last line of its log.
    pub async fn start(options: Options) -> Outcome<Self> {
        let directory = fresh_directory()?;
        let server =
            ZooKeeperServer::start(&zookeeper::options(&directory, ports::free()?)).await?;
        let mut network = None;
        if options.networked {
            let own = Network::create(options.brokers)?;
            let door = Proxy::start_at(own.zookeeper(), server.address()).await?;
            network = Some((own, door));
        }
        let mut cluster = Self {
            directory,
            zookeeper_connect: server.address().to_string(),
            zookeeper: Some(server),
            brokers: BTreeMap::new(),
            proxies: BTreeMap::new(),
            network,
            temporary: true,
        };
        for id in 1..=options.brokers {
            cluster.configure(id, &options).await?;
        }
        if options.start {
            cluster.start_all()?;
            cluster.until_formed().await?;
        }
        Ok(cluster)
    }

    /// Takes over a running cluster by its directory of `broker-N.yaml` and `broker-N.pid` files.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn attach(directory: &Path) -> Outcome<Self> {
        let mut brokers = BTreeMap::new();
        let mut connect = None;
        for id in 1.. {
            let file = directory.join(format!("broker-{id}.yaml"));
            if !file.exists() {
                break;
            }
            let broker = Broker::attach(id, directory)?;
            connect = Some(broker.config().zookeeper_connect.to_string());
            brokers.insert(id, broker);
        }
        let none = || Fault::from(format!("{} holds no broker-1.yaml", directory.display()));
        Ok(Self {
            directory: directory.to_owned(),
            zookeeper: None,
            zookeeper_connect: connect.ok_or_else(none)?,
            brokers,
            proxies: BTreeMap::new(),
            network: None,
            temporary: false,
        })
    }

    async fn configure(&mut self, id: i32, options: &Options) -> Outcome<()> {
        let ports = broker::Ports::free()?;
        let (zookeeper, advertised) = if options.proxied {
            let proxies = Proxies::start(&ports, &self.zookeeper_connect).await?;
            let lines = proxies.configuration();
            let zookeeper = proxies.zookeeper.address().to_string();
            self.proxies.insert(id, proxies);
            (zookeeper, lines)
        } else if let Some((_, door)) = &self.network {
            let lines = "security.allow.insecure: [PLAINTEXT, GRPC, HTTP]\n".to_owned();
            (door.address().to_string(), lines)
        } else {
            (self.zookeeper_connect.clone(), String::new())
        };
        let log_dirs: Vec<String> = (0..options.log_dirs)
            .map(|n| match n {
                0 => format!("broker-{id}"),
                _ => format!("broker-{id}-{n}"),
            })
            .map(|name| self.directory.join(name).display().to_string())
            .collect();
        let own = self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, |(own, _)| own.address(id));
        let text = format!(
            "broker.id: {id}\nlisteners: PLAINTEXT://{own}:{}\nadmin.listener: {own}:{}\n\
             http.listener: {own}:{}\nzookeeper.connect: {zookeeper}\nzookeeper.session.timeout.ms: {}\n\
             controlled.shutdown.max.wait.ms: {}\nlog.dirs: {}\n{advertised}{}",
            ports.kafka,
            ports.admin,
            ports.http,
            options.session_timeout_ms,
            options.shutdown_wait_ms,
            log_dirs.join(","),
            options.config,
        );
        let text = match options.config.contains("offsets.topic.replication.factor") {
            true => text,
            false => {
                format!("{text}offsets.topic.replication.factor: {}\n", options.brokers.min(3))
            }
        };
        fs::write(self.directory.join(format!("broker-{id}.yaml")), text)?;
        let mut broker = Broker::configured(id, &self.directory)?;
        if let Some((own, _)) = &self.network {
            broker.settle(own.space(id));
        }
        if options.preload != Preload::Nothing {
            let directory = self.directory.join(format!("shim-{id}"));
            broker.preload(Shim::create(&directory, options.preload == Preload::Journal)?);
        }
        self.brokers.insert(id, broker);
        Ok(())
    }

    /// Starts every broker that does not run, as close together as possible.
    ///
    /// # Errors
    /// The system starts no process.
    pub fn start_all(&mut self) -> Outcome<()> {
        for broker in self.brokers.values_mut() {
            if !broker.runs() {
                broker.start()?;
            }
        }
        Ok(())
    }

    /// SIGKILL to every broker at once, and waits until all are gone.
    ///
    /// # Errors
    /// One does not run, or does not end.
    pub async fn kill_all(&mut self) -> Outcome<()> {
        for broker in self.brokers.values() {
            broker.strike()?;
        }
        for broker in self.brokers.values_mut() {
            broker.until_ended().await?;
        }
        Ok(())
    }

    /// Waits until every running broker is registered and known to a controller.
    ///
    /// # Errors
    /// A broker ended, or the deadline passed.
    pub async fn until_formed(&mut self) -> Outcome<()> {
        let started = std::time::Instant::now();
        loop {
            for broker in self.brokers.values_mut() {
                broker.refuse_ended()?;
            }
            let running = self.brokers.values().filter(|b| b.was_started()).count();
            let mut known = 0;
            for broker in self.brokers.values().filter(|b| b.was_started()) {
                let Ok(admin) = broker.admin().await else { continue };
                let Ok(cluster) = admin.cluster().await else { continue };
                known +=
                    usize::from(cluster.controller_id >= 0 && cluster.brokers.len() == running);
            }
            if known == running {
                return Ok(());
            }
            if started.elapsed() > SETTLE_MAX {
                let logs: Vec<String> = self.brokers.values().map(Broker::last_log_line).collect();
                return Err(format!("the cluster did not form; last log lines: {logs:#?}").into());
            }
            crate::wait::next_look().await;
        }
    }

    /// One broker.
    ///
    /// # Panics
    /// There is none of this id.
    pub fn broker(&mut self, id: i32) -> &mut Broker {
        self.brokers.get_mut(&id).expect("a broker of this cluster")
    }

    /// The fault shim of a broker.
    ///
    /// # Panics
    /// There is none of this id, or the cluster was started without the shim.
    #[must_use]
    pub fn shim(&self, id: i32) -> &Shim {
        self.brokers.get(&id).expect("a broker of this cluster").shim()
    }

    /// All brokers by id.
    pub fn brokers(&mut self) -> impl Iterator<Item = &mut Broker> {
        self.brokers.values_mut()
    }

    /// The links of one broker of a proxied cluster.
    ///
    /// # Panics
    /// The cluster is not proxied.
    #[must_use]
    pub fn links(&self, id: i32) -> &Proxies {
        self.proxies.get(&id).expect("a proxied cluster")
    }

    /// The network of a networked cluster.
    ///
    /// # Panics
    /// The cluster is not networked.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network.as_ref().expect("a networked cluster").0
    }

    /// The ZooKeeper process.
    pub fn zookeeper(&mut self) -> Option<&mut ZooKeeperServer> {
        self.zookeeper.as_mut()
    }

    /// `host:port[/chroot]` of ZooKeeper, never through a proxy.
    #[must_use]
    pub fn zookeeper_connect(&self) -> &str {
        &self.zookeeper_connect
    }

    /// Where configurations, logs and data are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Kafka addresses of all brokers, comma-separated.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> =
            self.brokers.values().map(|b| b.config().advertised_listener.to_string()).collect();
        addresses.join(",")
    }

    /// A witness of ZooKeeper's nodes.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn znodes(&self) -> Outcome<Znodes> {
        Znodes::connect(&self.zookeeper_connect).await
    }

    /// `host:port` of a broker's gRPC administration.
    ///
    /// # Panics
    /// There is none of this id.
    #[must_use]
    pub fn admin_address(&self, id: i32) -> String {
        self.brokers.get(&id).expect("a broker of this cluster").config().admin_listener.to_string()
    }

    /// The administration of the first broker that answers.
    ///
    /// # Errors
    /// None does.
    pub async fn admin(&self) -> Outcome<Admin> {
        for broker in self.brokers.values() {
            if let Ok(admin) = broker.admin().await
                && admin.cluster().await.is_ok()
            {
                return Ok(admin);
            }
        }
        Err("no broker answers".into())
    }

    /// Waits until all partitions of `topic` have a leader and an ISR of `members`.
    ///
    /// # Errors
    /// The deadline passed; the text shows the stored states.
    pub async fn until_healed(&self, topic: &str, members: usize) -> Outcome<()> {
        self.until_healed_since(topic, members, &BTreeMap::new()).await
    }

    /// The same, but each state must have been written anew since `before`: after a fault the old state still looks healed
    /// until the controller has noticed.
    ///
    /// # Errors
    /// The deadline passed; the text shows the stored states.
    pub async fn until_healed_since(
        &self,
        topic: &str,
        members: usize,
        before: &BTreeMap<i32, PartitionNode>,
    ) -> Outcome<()> {
        let znodes = self.znodes().await?;
        let healed = || async {
            let states = znodes.partitions(topic).await.ok()?;
            let is_new = |index: &i32, state: &PartitionNode| {
                before.get(index).is_none_or(|before| state.version > before.version)
            };
            let whole = states
                .iter()
                .all(|(index, p)| p.leader >= 0 && p.isr.len() == members && is_new(index, p));
            (whole && !states.is_empty()).then_some(())
        };
        let what = format!("every partition of {topic} has a leader and its whole ISR");
        match wait_for(&what, SETTLE_MAX, healed).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let states = znodes.partitions(topic).await?;
                Err(format!("{error}; stored: {states:?}").into())
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.temporary {
            // An attached cluster lives on, also what was started again here.
            self.brokers.values_mut().for_each(Broker::release);
            return;
        }
        self.brokers.clear();
        self.zookeeper = None;
        if std::thread::panicking() || std::env::var_os("BARNABAS_KEEP").is_some() {
            eprintln!("the cluster's files are kept in {}", self.directory.display());
        } else {
            // What is left over in the temporary folder harms nobody.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// An empty directory that no other test uses.
///
/// # Errors
/// It cannot be created.
pub fn fresh_directory() -> Outcome<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("barnabas-tests-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory.canonicalize()?)
}
