//! What this crate's tests share: a broker that is not connected to anything, replicas on it, a client's socket.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use barnabas_controller::{ControllerClient, ControllerHandle, Membership};
use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{Faults, LogConfig, Op, Verdict};
use barnabas_replica::{LogState, Replica, ReplicaOptions, StatePush};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, BrokerImage, ClusterId, ControllerEpoch, FlushMode, Incarnation,
    LeaderEpoch, Partition, PartitionEpoch, PartitionState, TopicId, TopicName, TopicPartition,
};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::connection::{Out, Slot};
use crate::flush::Flusher;
use crate::node::{Node, Options, Parts};
use crate::partition::{
    Aftermath, AppendResult, Flush, Hosted, Outward, PendingProduce, ProduceResult,
};
use crate::storage::{Locked, Owner, Storage, Wanted};
use crate::view::View;

pub(crate) const ME: BrokerId = BrokerId(1);
pub(crate) const MY_EPOCH: BrokerEpoch = BrokerEpoch(101);
pub(crate) const LIFE: Incarnation = Incarnation { topic_id: TopicId([7; 16]), czxid: 70 };
pub(crate) const CLUSTER: &str = "a-cluster";

pub(crate) fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: TopicName::new(topic).unwrap(), partition }
}

/// Broker 1, registered under epoch 101, on the present runtime.
pub(crate) fn node() -> Arc<Node> {
    node_of(ME)
}

/// A broker, registered, on the present runtime.
pub(crate) fn node_of(me: BrokerId) -> Arc<Node> {
    node_for(me, 1_000)
}

/// The same for so many connections of clients.
pub(crate) fn node_for(me: BrokerId, connections_max: usize) -> Arc<Node> {
    let cluster_id = ClusterId(CLUSTER.into());
    let view = Arc::new(View::new(me, cluster_id.clone(), Vec::new().into()));
    let membership = Membership { broker_epoch: Some(epoch_of(me)), ..Membership::default() };
    let membership = watch::channel(membership).1;
    let controller =
        ControllerClient::new(ControllerHandle::absent(), membership.clone(), view.clone());
    Node::new(Parts {
        me,
        cluster_id,
        options: Options {
            replica_lag_time_max_ms: 10_000,
            replica_fetch_wait_max_ms: 500,
            replica_fetch_max_bytes: 1 << 20,
            replica_fetch_response_max_bytes: 10 << 20,
            auto_create_topics: true,
            fetch_sessions_max: 4,
            socket_request_max_bytes: 10 << 20,
            connections: crate::connection::ConnectionLimits {
                max: connections_max,
                per_ip_max: 1_000,
                per_ip_overrides: Default::default(),
                idle_max: std::time::Duration::from_secs(600),
                queued_max_bytes: 32 << 20,
            },
            min_insync_replicas: 1,
            groups: crate::config::GroupConfig::default(),
            session_timeout_ms: 6_000,
            shown: Vec::new().into(),
            config_file: "/etc/barnabas/broker-1.yaml".into(),
            zookeeper_servers: "zk1:2181".to_owned(),
        },
        view,
        directories: Vec::new(),
        membership,
        controller,
        control: Handle::current(),
        data: Handle::current(),
    })
}

/// What the controller tells of a registered broker.
pub(crate) fn registered(epoch: BrokerEpoch) -> BrokerImage {
    BrokerImage {
        epoch,
        host: "127.0.0.1".into(),
        port: 9092,
        control_address: "127.0.0.1:9192".into(),
        rack: None,
        tail_lost: false,
        draining: false,
    }
}

/// Which changes of files are refused, and with what error.
type Rule = Box<dyn Fn(&Op<'_>) -> Option<Errno> + Send>;

/// File changes that a test refuses.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<Option<Rule>>);

impl Refusals {
    /// A disk under this rule, which refuses nothing yet.
    pub(crate) fn disk() -> (Arc<Self>, barnabas_log::Disk) {
        let refusals = Arc::new(Self::default());
        (refusals.clone(), barnabas_log::Disk::with_faults(refusals))
    }

    pub(crate) fn set(&self, rule: impl Fn(&Op<'_>) -> Option<Errno> + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(rule));
    }

    pub(crate) fn lift(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl std::fmt::Debug for Refusals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refusals")
    }
}

impl Faults for Refusals {
    fn before(&self, op: &Op<'_>) -> std::io::Result<Verdict> {
        match self.0.lock().unwrap().as_ref().and_then(|rule| rule(op)) {
            Some(errno) => Err(errno.into()),
            None => Ok(Verdict::Perform),
        }
    }

    fn after(&self, _: &Op<'_>) {}
}

/// A log directory with replicas of one broker.
pub(crate) struct Disk {
    pub(crate) storage: Arc<Storage>,
    pub(crate) temp: TempDir,
    flusher: OnceLock<Arc<Flusher>>,
}

/// To whom the tests' directories belong.
pub(crate) fn owner() -> Owner {
    Owner {
        broker_id: ME,
        cluster_id: ClusterId(CLUSTER.into()),
        has_topics: false,
        restored: None,
        recovery_threads: 2,
    }
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self::on(barnabas_log::Disk::real())
    }

    /// All its changes are made through `files`.
    pub(crate) fn on(files: barnabas_log::Disk) -> Self {
        Self::with_directories(files, &["."])
    }

    /// A directory that was used before.
    pub(crate) fn again(temp: TempDir) -> Self {
        Self::of(barnabas_log::Disk::real(), temp, &["."], "boot-1")
    }

    /// The same after another boot of the host.
    pub(crate) fn after_a_boot(temp: TempDir) -> Self {
        Self::of(barnabas_log::Disk::real(), temp, &["."], "boot-2")
    }

    /// Several directories, in one temporary one.
    pub(crate) fn with_directories(files: barnabas_log::Disk, names: &[&str]) -> Self {
        Self::of(files, TempDir::new("broker"), names, "boot-1")
    }

    fn of(files: barnabas_log::Disk, temp: TempDir, names: &[&str], boot: &str) -> Self {
        let paths: Vec<_> = names
            .iter()
            .map(|name| if *name == "." { temp.path().to_owned() } else { temp.path().join(name) })
            .collect();
        let locked = Locked::lock_on(files, &paths).unwrap();
        let storage = locked.start_under(&owner(), Some(boot)).unwrap().storage;
        Self { storage: Arc::new(storage), temp, flusher: OnceLock::new() }
    }

    /// The flush threads of the directory, which belongs to one broker.
    pub(crate) fn flusher<O: Outward + 'static>(&self, outward: &Arc<O>) -> Arc<Flusher> {
        let start = || {
            let outward: Weak<dyn Outward> = Arc::downgrade(outward) as _;
            self.storage.start_flushers(&outward).remove(0).unwrap()
        };
        self.flusher.get_or_init(start).clone()
    }

    /// An empty replica, registered; hosted by `node`.
    pub(crate) fn host(&self, node: &Arc<Node>, tp: TopicPartition) -> Arc<Hosted> {
        let hosted = self.open(node, node.me, tp);
        node.partitions.insert(hosted.clone());
        hosted
    }

    /// An empty replica of broker `me`, registered.
    pub(crate) fn open<O: Outward + 'static>(
        &self,
        outward: &Arc<O>,
        me: BrokerId,
        tp: TopicPartition,
    ) -> Arc<Hosted> {
        let wanted = Wanted {
            partition: tp.clone(),
            topic_id: LIFE.topic_id,
            config: LogConfig::default(),
            is_new: true,
        };
        let (log, directory) = self.storage.open_all(&[wanted]).remove(0).unwrap();
        let state = LogState {
            log_start: log.log_start(),
            log_end: log.log_end(),
            flushed: log.flushed(),
            high_watermark: log.log_start(),
            epochs: log.epochs().clone(),
        };
        let replica = Replica::new(me, state, ReplicaOptions { lag_time_max_ms: 10_000 });
        let place = (directory, self.flusher(outward));
        let hosted = Arc::new(Hosted::new(tp, LIFE, replica, log, place));
        let mut after = Aftermath::default();
        hosted.registered(outward.now(), epoch_of(me), &mut after);
        hosted
    }
}

/// Under which epoch a broker is registered: 101 for broker 1.
pub(crate) fn epoch_of(broker: BrokerId) -> BrokerEpoch {
    BrokerEpoch(100 + i64::from(broker.0))
}

/// Brokers 1 and 2 are assigned, partition epoch = leader epoch.
pub(crate) fn push(leader: i32, leader_epoch: i32, isr: &[i32]) -> StatePush {
    StatePush {
        controller_epoch: ControllerEpoch(1),
        broker_epoch: MY_EPOCH,
        incarnation: LIFE,
        partition: Partition {
            assigned_replicas: vec![BrokerId(1), BrokerId(2)],
            moving: Default::default(),
            state: PartitionState {
                leader: Some(BrokerId(leader)),
                leader_epoch: LeaderEpoch(leader_epoch),
                partition_epoch: PartitionEpoch(leader_epoch),
                controller_epoch: ControllerEpoch(1),
                isr: isr.iter().map(|id| (BrokerId(*id), epoch_of(BrokerId(*id)))).collect(),
            },
        },
        min_insync_replicas: 1,
        flush_mode: FlushMode::Async,
    }
}

pub(crate) fn state(node: &Arc<Node>, hosted: &Arc<Hosted>, push: StatePush) {
    let mut after = Aftermath::default();
    hosted.state(node.now(), push, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
}

/// A batch of one record of producer 7.
pub(crate) fn batch(sequence: i32) -> Vec<u8> {
    BatchBuilder::new().record(b"value").producer(7, 0, sequence).build()
}

/// Produces one record.
pub(crate) fn produce(
    node: &Arc<Node>,
    hosted: &Arc<Hosted>,
    acks: Acks,
    sequence: i32,
    pending: Option<Arc<PendingProduce>>,
) -> AppendResult {
    let mut after = Aftermath::default();
    let pending = pending.map(|pending| (pending, 0));
    let result = hosted.produce(node.now(), acks, 1, &mut batch(sequence), pending, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
    result
}

/// A connection's answers and the other end of its socket.
pub(crate) async fn connection() -> (Arc<Out>, TcpStream) {
    let (server, client) = sockets().await;
    (Arc::new(Out::new(Arc::new(server))), client)
}

/// Two ends of a connection.
pub(crate) async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// A produce request over one partition that hands its result on.
pub(crate) fn pending_with(
    out: &Arc<Out>,
    told: impl Fn(ProduceResult) + Send + Sync + 'static,
) -> Arc<PendingProduce> {
    let encode = move |results: &[Option<ProduceResult>]| {
        told(
            results[0].clone().expect("a request is encoded when all its partitions have answered"),
        );
        Vec::new()
    };
    Arc::new(PendingProduce::new(out.clone(), out.reserve(), 1, Box::new(encode)))
}

/// A produce request over `partitions` partitions that answers one byte each: 0 for success, 1 for an error.
pub(crate) fn pending(out: &Arc<Out>, slot: Slot, partitions: usize) -> Arc<PendingProduce> {
    let encode = |results: &[Option<Result<_, _>>]| {
        let bytes = results.iter().map(|r| u8::from(!matches!(r, Some(Ok(_)))));
        vec![bytes::Bytes::from_iter(bytes)]
    };
    Arc::new(PendingProduce::new(out.clone(), slot, partitions, Box::new(encode)))
}

/// The defaults of everything that concerns the log directories.
pub(crate) fn storage_config() -> crate::config::StorageConfig {
    let least = "broker.id: 1\nlog.dirs: /d\nzookeeper.connect: h:1\n";
    let config = crate::config::BrokerConfig::parse(std::path::Path::new("test.yaml"), least);
    config.unwrap().storage
}
