//! A broker's start, life and stop.
//!
//! Start: sockets, data directory, ZooKeeper, cluster id, clean marker, registration. Everything that can refuse comes before
//! anything is changed. Stop: leaders moved away, connections, logs flushed and closed, clean marker, session (so that "tail whole" is true
//! before anybody hears of the end), journal (the controller's last records come when its term ends).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use barnabas_controller::zookeeper::Servers;
use barnabas_controller::{
    AdminService, BrokerNode, ClusterView as _, Config, ControllerClient, ControllerControlService,
    Defaults, Membership, Running, Served,
};
use barnabas_log::LogError;
use barnabas_proto::PUSH_BYTES_MAX;
use barnabas_proto::v1::broker_control_server::BrokerControlServer;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::shutdown::{self, Stop};
use super::state::{Node, Options, Parts};
use super::{expiry, notify};
use crate::clock::since_boot;
use crate::config::{BrokerConfig, HostPort, few_files, traps};
use crate::connection;
use crate::control::{
    Agent, AgentHandle, FailedReports, Proposals, PushService, SaysStarting, ServedReports,
    TailMark,
};
use crate::explain::{Contact, Explainer};
use crate::health::Health;
use crate::http::{self, Hosts, Operator, PageService, Site};
use crate::journal::{self, Origin};
use crate::ledger::Ledger;
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::partition::{Aftermath, Flush, Outward};
use crate::storage::{Cleanup, Locked, Owner};
use crate::timeline::{self, Timeline};
use crate::view::View;

/// Longest time between two looks at the lag of followers and at proposals to repeat.
const TICK_MS_MAX: u64 = 500;
/// How often the process's own pulse beats.
const BEAT_INTERVAL: Duration = Duration::from_millis(250);
/// Longest wait, at a stop, for the records of a term that has ended to reach the journal.
const KEEP_MAX: Duration = Duration::from_secs(1);
/// Threads of the control runtime: ZooKeeper, gRPC and timers.
const CONTROL_WORKERS: usize = 1;

/// Why a broker does not start. Each is one sentence with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket cannot be bound.
    #[error(
        "cannot listen on {address} ({key}): {source}; stop whoever uses that port, or change {key}"
    )]
    Listen {
        /// The address.
        address: String,
        /// The setting that names it.
        key: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The data directory refuses.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The credentials for ZooKeeper cannot be read.
    #[error("{0}")]
    Credentials(String),
    /// ZooKeeper or the cluster refuses.
    #[error("{0}")]
    Cluster(#[from] barnabas_controller::Error),
    /// The operator's token cannot be used.
    #[error("http.operator.token.file {file}: {reason}")]
    Token {
        /// The file.
        file: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The operating system gives no threads.
    #[error("cannot start the runtimes: {0}; raise the limit of threads (ulimit -u)")]
    Runtime(std::io::Error),
}

/// Runs a broker until `shutdown` says otherwise.
///
/// # Errors
/// It cannot start; nothing was changed then.
pub fn run(
    config: &BrokerConfig,
    logs: Arc<Logs>,
    shutdown: watch::Receiver<Stop>,
) -> Result<(), StartError> {
    raise_descriptor_limit();
    let data = Builder::new_multi_thread()
        .thread_name("data")
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let control = Builder::new_multi_thread()
        .thread_name("control")
        .worker_threads(CONTROL_WORKERS)
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let result = control.block_on(life(config, logs, shutdown, &data, &control));
    data.shutdown_background();
    control.shutdown_background();
    result
}

/// Each log in use holds a descriptor, each connection one; the usual soft limit of 1024 is soon reached.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Without it the broker runs, with fewer partitions and clients.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// What the operator may regret is in the log of each start.
fn warn_of_traps(config: &BrokerConfig) {
    for trap in traps(config).into_iter().chain(few_files()) {
        tracing::warn!(key = trap.key, "{}", trap.text);
    }
}

async fn life(
    config: &BrokerConfig,
    logs: Arc<Logs>,
    mut shutdown_signal: watch::Receiver<Stop>,
    data: &Runtime,
    control: &Runtime,
) -> Result<(), StartError> {
    let kafka = bind(&config.listener, "listeners").await?;
    let grpc = bind(&config.admin_listener, "admin.listener").await?;
    let http = bind(&config.http_listener, "http.listener").await?;
    let says = format!("broker {} is starting, and is not registered yet", config.broker_id);
    let (starting, grpc) = SaysStarting::at(grpc, &says).map_err(StartError::Runtime)?;
    let locked = Locked::lock(&config.log_dirs)?;
    let health = Health::new(config.broker_id, config.storage.reserve_bytes);
    let metrics = Metrics::new(config.broker_id, config.metrics_labels, health.clone());
    let operator = operator(config)?;
    let read_only = operator.is_none();
    let site = Site::new(Hosts::of(config), health.clone(), metrics.clone(), operator);
    tokio::spawn(http::serve(site.clone(), http));
    warn_of_traps(config);
    let access = config.zookeeper_access.open().map_err(StartError::Credentials)?;
    let servers = Servers::new(
        &config.zookeeper_connect.to_string(),
        Duration::from_millis(config.zookeeper_session_timeout_ms),
    );
    let servers = servers.with_access(access).observed(metrics.zookeeper.clone());
    let mut opened = match barnabas_controller::open_with(zookeeper(config, &locked), servers).await
    {
        Ok(opened) => opened,
        Err(error) => {
            locked.abandon();
            return Err(error.into());
        }
    };
    let cluster_id = opened.cluster_id().clone();
    // After a restoration that is news here the epochs are told anew by all (R8).
    let restored = opened.restored().map(str::to_owned);
    if locked.knows_of(restored.as_deref())
        && let Err(error) = opened.refuse_older(&locked.log_epochs()).await
    {
        locked.abandon();
        return Err(error.into());
    }
    let start = locked.start(&Owner {
        broker_id: config.broker_id,
        cluster_id: cluster_id.clone(),
        has_topics: opened.has_topics(),
        restored,
        recovery_threads: config.storage.recovery_threads,
    })?;
    let registration = BrokerNode {
        host: config.advertised_listener.host.clone(),
        port: config.advertised_listener.port,
        control_address: config.advertised_admin_listener.to_string(),
        rack: config.rack.clone(),
        directory_id: start.directory_id,
        tail_lost: start.kind.tail_lost,
        draining: false,
        timestamp_ms: now_ms(),
    };
    // Once it is registered it is called by others, who wait for the real services.
    drop(starting);
    let mut running = match opened.start(registration.clone()).await {
        Ok(running) => running,
        Err(error) => {
            start.storage.abandon();
            return Err(error.into());
        }
    };
    start.storage.remember_directories();
    for directory in start.storage.directories() {
        if let Some(reason) = directory.offline_reason() {
            tracing::error!(directory = %directory.path().display(), %reason, "the log directory is offline, and so are the partitions in it");
        }
    }
    tracing::info!(
        target: "controller", broker = %config.broker_id, broker_epoch = %running.broker_epoch,
        cluster = %cluster_id, clean = start.kind.clean, tail_lost = start.kind.tail_lost, "registered"
    );
    notify::ready();
    let view = Arc::new(View::new(config.broker_id, cluster_id.clone(), config.shown.clone()));
    let controller =
        ControllerClient::new(running.controller.clone(), running.membership.clone(), view.clone());
    let node = Node::new(Parts {
        me: config.broker_id,
        cluster_id,
        options: options(config),
        view: view.clone(),
        directories: start.storage.directories().to_vec(),
        membership: running.membership.clone(),
        controller: controller.clone(),
        control: control.handle().clone(),
        data: data.handle().clone(),
    });
    let (tail_lost, mark) = watch::channel(TailMark { lost: start.kind.tail_lost, failures: 0 });
    let outward: Weak<dyn Outward> = Arc::downgrade(&node) as _;
    let storage = Arc::new(start.storage);
    let flushers = storage.start_flushers(&outward);
    // It ends with the stop below; what it may not have written then is in the log.
    let origin = Origin { broker: config.broker_id, directory: start.journal_id };
    node.journal.start(storage.clone(), origin).map_err(StartError::Runtime)?;
    storage.tells_losses_to(&node.journal);
    metrics.registered(&node, &storage, &flushers);
    let agent = Agent::start(node.clone(), storage.clone(), flushers, tail_lost);
    health.registered(&node, &storage);
    let cleanup = Cleanup::start(&node, &storage, &config.storage).map_err(StartError::Runtime)?;
    for directory in storage.directories() {
        tokio::spawn(directory.clone().watch_space(config.storage.reserve_bytes));
    }
    let history = Arc::new(Timeline::default());
    tokio::spawn(history.clone().run(node.journal.clone()));
    let kept = running.take_failovers().map(|records| {
        let counted = metrics.clone();
        let told = move |record: &_| counted.failovers.told(record);
        tokio::spawn(timeline::keep(node.journal.clone(), records, told))
    });
    let explainer = Explainer::new(node.clone(), storage.clone(), health.clone());
    let ledger = Arc::new(Ledger::new(node.me, node.journal.clone()));
    let source = http::Source::new(http::Parts {
        node: node.clone(),
        storage: storage.clone(),
        health: health.clone(),
        explains: explainer.clone(),
        failovers: history.clone(),
        ledger: ledger.clone(),
        zookeeper_connect: config.zookeeper_connect.to_string(),
        http_port: config.http_listener.port,
        metrics: metrics.clone(),
        read_only,
    });
    let page = PageService::server(&source);
    site.registered(source);
    let admin = AdminService::server(
        running.controller.clone(),
        controller,
        view,
        Served { ledger, failovers: history, explains: explainer.clone(), logs },
    );
    let pushes = BrokerControlServer::new(PushService::new(
        agent.clone(),
        explainer.clone(),
        running.pushes.clone(),
    ))
    .max_decoding_message_size(PUSH_BYTES_MAX);
    let services = Server::builder()
        .add_service(pushes)
        .add_service(ControllerControlService::server(running.controller.clone()))
        .add_service(admin)
        .add_service(page)
        .serve_with_incoming(TcpIncoming::from(grpc).with_nodelay(Some(true)));
    let services = tokio::spawn(async move {
        if let Err(error) = services.await {
            tracing::error!(target: "controller", %error, "the control listener ended: this broker takes no pushes until it restarts");
        }
    });
    tokio::spawn(follow_membership(agent.clone(), running.membership.clone()));
    tokio::spawn(Proposals::run(node.clone()));
    tokio::spawn(FailedReports::run(node.clone()));
    tokio::spawn(ServedReports::run(node.clone()));
    tokio::spawn(journal::pull(node.clone()));
    tokio::spawn(tick(node.clone()));
    tokio::spawn(beat(node.clone()));
    tokio::spawn(Contact::follow(node.clone()));
    tokio::spawn(explainer.clone().get_acquainted());
    tokio::spawn(checkpoint(agent.clone(), config.high_watermark_checkpoint_interval_ms));
    tokio::spawn(expiry::run(node.clone(), config.storage.producer_id_expiration_ms));
    let (close, closed) = watch::channel(false);
    data.spawn(serve_when_informed(node.clone(), kafka, closed));

    let stopped = async {
        let _ = shutdown_signal.wait_for(|stop| *stop != Stop::No).await;
        tracing::info!(target: "controller", broker = %node.me, "stopping");
        notify::stopping(config.controlled_shutdown.unwrap_or_default());
        // While it recovers nobody depends on it, and the recovery is to be broken off.
        if let Some(max_wait) = config.controlled_shutdown.filter(|_| agent.serves()) {
            shutdown::drain(&node, max_wait, &mut shutdown_signal).await;
        }
    };
    tokio::select! {
        () = stopped => {}
        never = follow_marks(mark, &running, registration) => match never {},
    }
    health.stopping();
    let _ = close.send(true);
    node.groups.end_all();
    // Before the logs are closed.
    let _ = tokio::task::spawn_blocking(move || cleanup.stop()).await;
    agent.stop().await;
    // A controller that ends tells of the failovers that it still watched; then the journal has all that there is.
    running.stop().await;
    if let Some(kept) = kept
        && tokio::time::timeout(KEEP_MAX, kept).await.is_err()
    {
        tracing::warn!(target: "controller", "the last records of failovers are not kept");
    }
    let journal = node.journal.clone();
    let _ = tokio::task::spawn_blocking(move || journal.stop()).await;
    services.abort();
    tracing::info!(target: "controller", broker = %node.me, "stopped");
    Ok(())
}

/// A cleared lost-tail mark is put into what the next registration says (R7), and the broker registers anew after a failed sync
/// (R38), also while it is being emptied before it stops. Never ends.
async fn follow_marks(
    mut mark: watch::Receiver<TailMark>,
    running: &Running,
    registration: BrokerNode,
) -> Infallible {
    let mut failures = 0;
    loop {
        if mark.changed().await.is_err() {
            // The agent has ended; what is left is the stop.
            return std::future::pending().await;
        }
        let mark = *mark.borrow_and_update();
        let next = BrokerNode { tail_lost: mark.lost, ..registration.clone() };
        if mark.failures > failures {
            failures = mark.failures;
            tracing::warn!(target: "controller", "a sync failed: this broker registers anew, with a tail that may be lost");
            running.register_anew(next);
        } else {
            running.set_registration(next);
        }
    }
}

async fn bind(address: &HostPort, key: &'static str) -> Result<TcpListener, StartError> {
    let refused = |source| StartError::Listen { address: address.to_string(), key, source };
    let found: Vec<SocketAddr> = tokio::net::lookup_host((address.host.as_str(), address.port))
        .await
        .map_err(refused)?
        .collect();
    TcpListener::bind(found.as_slice()).await.map_err(refused)
}

fn zookeeper(config: &BrokerConfig, locked: &Locked) -> Config {
    Config {
        broker_id: config.broker_id,
        cluster_id: locked.cluster_id(),
        zookeeper_connect: config.zookeeper_connect.to_string(),
        session_timeout_ms: config.zookeeper_session_timeout_ms,
        connection_timeout_ms: config.zookeeper_connection_timeout_ms,
        defaults: Defaults {
            num_partitions: config.num_partitions,
            default_replication_factor: config.default_replication_factor,
            topic: config.topic,
        },
        rebalance: config.rebalance,
        suspicion: config.suspicion,
    }
}

/// Who may change the cluster through the page; `None`: nobody.
fn operator(config: &BrokerConfig) -> Result<Option<Operator>, StartError> {
    let Some(file) = &config.http_operator_token_file else { return Ok(None) };
    let refused = |reason| StartError::Token { file: file.display().to_string(), reason };
    Operator::of(file).map(Some).map_err(refused)
}

fn options(config: &BrokerConfig) -> Options {
    Options {
        replica_lag_time_max_ms: config.replica_lag_time_max_ms,
        replica_fetch_wait_max_ms: u32::try_from(config.replica_fetch_wait_max_ms)
            .unwrap_or(u32::MAX),
        replica_fetch_max_bytes: config.replica_fetch_max_bytes,
        replica_fetch_response_max_bytes: config.replica_fetch_response_max_bytes,
        auto_create_topics: config.auto_create_topics,
        fetch_sessions_max: config.fetch_sessions_max,
        socket_request_max_bytes: config.socket_request_max_bytes as usize,
        connections: config.connections.clone(),
        min_insync_replicas: config.topic.min_insync_replicas,
        groups: config.groups.clone(),
        session_timeout_ms: config.zookeeper_session_timeout_ms,
        shown: config.shown.clone(),
        config_file: config.file.clone(),
        zookeeper_servers: {
            let servers = config.zookeeper_connect.servers.iter();
            servers.map(ToString::to_string).collect::<Vec<_>>().join(",")
        },
    }
}

/// Accepts clients once the controller's first push is here; until then they wait in the socket's backlog. Before it this
/// broker knows no topic, and its Metadata would deny those that exist: clients then fail records for good, and an
/// idempotent one that begins anew writes some of them twice.
async fn serve_when_informed(
    node: Arc<Node>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) {
    let mut pushes = node.view.changes();
    tokio::select! {
        first = pushes.wait_for(|count| *count > 0) => if first.is_err() { return },
        _ = stop.wait_for(|stop| *stop) => return,
    }
    connection::listen(node, listener, stop).await;
}

/// Tells the agent of each registration.
async fn follow_membership(agent: AgentHandle, mut membership: watch::Receiver<Membership>) {
    let mut told = None;
    loop {
        let present = *membership.borrow_and_update();
        if let Some(broker_epoch) = present.broker_epoch.filter(|epoch| told != Some(*epoch)) {
            told = Some(broker_epoch);
            agent.registered(broker_epoch, present.controller_epoch_min).await;
        }
        if membership.changed().await.is_err() {
            return;
        }
    }
}

/// Lets every replica judge its followers' lag, and tell what it has done as a new leader. On a thread that may block: partitions' locks are held during writes, and a
/// slow disk must not hold the control runtime, which keeps the session with ZooKeeper.
async fn tick(node: Arc<Node>) {
    let every_ms = (node.options.replica_lag_time_max_ms / 4).clamp(1, TICK_MS_MAX);
    let mut interval = tokio::time::interval(Duration::from_millis(every_ms));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let node = node.clone();
        let ticked = tokio::task::spawn_blocking(move || {
            let mut flush = Flush::default();
            for hosted in node.partitions.all() {
                let mut after = Aftermath::default();
                hosted.tick(node.now(), &mut after);
                after.settle(&hosted, &*node, &mut flush);
                if let Some(served) = hosted.leadership_news(node.now()) {
                    served.log(&hosted.topic_partition);
                    node.served.add(&hosted.topic_partition, served);
                }
            }
        });
        if let Err(error) = ticked.await {
            tracing::error!(target: "state_change", %error, "the lag of followers was not judged");
        }
    }
}

async fn beat(node: Arc<Node>) {
    let mut interval = tokio::time::interval(BEAT_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        // Before the beat: what stood still is judged by the session that it had.
        let granted_ms = node.membership.borrow().session_timeout_ms;
        if granted_ms > 0 {
            node.pulse.grant(granted_ms);
        }
        node.pulse.beat(since_boot());
    }
}

async fn checkpoint(agent: AgentHandle, every_ms: u64) {
    let mut interval = tokio::time::interval(Duration::from_millis(every_ms.max(1)));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        agent.checkpoint();
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
