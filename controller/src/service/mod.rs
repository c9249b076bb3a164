//! What the broker uses: starting the service, asking the controller (here or elsewhere), serving the gRPC services.

mod admin;
mod client;
mod control;
mod describe;
mod draining;
mod electing;
mod handle;
mod partitions;
mod progress;
mod reassign;
mod settings;
mod timeline;

use std::sync::Arc;
use std::time::{Duration, Instant};

use barnabas_controller_core::Defaults;
use barnabas_proto::v1;
use barnabas_proto::znode::BrokerNode;
use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use admin::{AdminService, Explains, Ledger, LogLevels, Served};
pub use client::{ClusterView, ControllerClient};
pub use control::ControllerControlService;
pub use handle::{ControllerHandle, CreatedTopic, NewTopic, ReplicaMoved, ReplicaMoves};
pub use timeline::FailoverHistory;

use crate::error::Error;
use crate::follow::{self, PushStreams};
use crate::membership::{self, Membership};
use crate::older;
use crate::open::{self, Live};
use crate::zookeeper::{Connect, Servers};

/// Records of failovers that wait to be taken.
pub const FAILOVERS_WAITING_MAX: usize = 256;

/// What the service must know before it asks ZooKeeper anything.
#[derive(Clone, Debug)]
pub struct Config {
    /// `broker.id`.
    pub broker_id: BrokerId,
    /// The cluster id in the data directory, `None` in a new one.
    pub cluster_id: Option<ClusterId>,
    /// `zookeeper.connect`: `host:port[,host:port...][/chroot]`.
    pub zookeeper_connect: String,
    /// `zookeeper.session.timeout.ms`. The server may grant another one.
    pub session_timeout_ms: u64,
    /// `zookeeper.connection.timeout.ms`: how long the first connection may take.
    pub connection_timeout_ms: u64,
    /// `num.partitions` and `default.replication.factor`.
    pub defaults: Defaults,
    /// While this broker is the controller; `None`: never.
    pub rebalance: Option<Rebalance>,
    /// `failover.suspicion.enable`: whether a process that refuses connections counts as gone before its session has ended.
    pub suspicion: bool,
}

/// How leaderships go back to preferred replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rebalance {
    /// `leader.imbalance.check.interval.seconds`, above 0.
    pub every: Duration,
    /// `leader.imbalance.per.broker.percentage`, 0 to 100.
    pub imbalance_percentage: u32,
}

/// Connected, not registered: the cluster id is known, and nobody has been told of this broker yet.
#[derive(Debug)]
pub struct Opened<C: Connect = Servers> {
    config: Config,
    connect: C,
    first: Live<C::Client>,
    cluster: open::Identity,
    has_topics: bool,
}

/// Connects to ZooKeeper, checks that it is the data directory's cluster, and makes the base tree where it is missing.
///
/// # Errors
/// One sentence with the remedy; see [`Error`]. Nothing was changed in that case.
pub async fn open(config: Config) -> Result<Opened, Error> {
    let timeout = Duration::from_millis(config.session_timeout_ms);
    let connect = Servers::new(&config.zookeeper_connect, timeout);
    open_with(config, connect).await
}

/// [`open`] with another ZooKeeper than the one at `config.zookeeper_connect`.
///
/// # Errors
/// As [`open`].
pub async fn open_with<C: Connect>(config: Config, connect: C) -> Result<Opened<C>, Error> {
    let address = &config.zookeeper_connect;
    let patience = Duration::from_millis(config.connection_timeout_ms);
    let begun = Instant::now();
    loop {
        let first = open::connect_first(&connect, address, begun, patience).await?;
        let granted = crate::zookeeper::ZooKeeper::session_timeout(&first.0);
        if let Some(warning) = open::other_session(config.session_timeout_ms, granted) {
            tracing::warn!(target: "controller", "{warning}");
        }
        let read = async {
            let id = open::cluster_id(&first.0, address, config.cluster_id.as_ref()).await?;
            open::may_write(&first.0, address, config.broker_id).await?;
            Ok((id, open::has_topics(&first.0, address).await?))
        };
        let error = match read.await {
            Ok((cluster, has_topics)) => {
                return Ok(Opened { config, connect, first, cluster, has_topics });
            }
            Err(error) => error,
        };
        // ZooKeeper stood still, or went away: no reason to give up before the time is over (A7).
        let again = open::has_expired(&first.0).await;
        crate::zookeeper::ZooKeeper::close(&first.0);
        if !again {
            return Err(error);
        }
    }
}

impl<C: Connect> Opened<C> {
    /// The cluster's id, for a new data directory and for clients.
    #[must_use]
    pub fn cluster_id(&self) -> &ClusterId {
        &self.cluster.id
    }

    /// The last restoration of what ZooKeeper holds, if there was one. A broker that has not served since then must take its
    /// tail for lost, as all others do: which replicas may lead is not known any more, and the longest log is (R8).
    #[must_use]
    pub fn restored(&self) -> Option<&str> {
        self.cluster.restored.as_deref()
    }

    /// Compares what the logs of this broker know with what is stored.
    ///
    /// # Errors
    /// [`Error::OlderThanLogs`] if a log knows a leader epoch that its partition, in the same life of its topic, has not come to
    /// yet: what is stored was taken back to an earlier time. [`Error::ZooKeeper`]. Nothing was changed.
    pub async fn refuse_older(
        &mut self,
        logs: &[(TopicPartition, TopicId, LeaderEpoch)],
    ) -> Result<(), Error> {
        let address = &self.config.zookeeper_connect;
        let patience = Duration::from_millis(self.config.connection_timeout_ms);
        let begun = Instant::now();
        loop {
            let failed = |reason| Error::ZooKeeper { connect: address.to_owned(), reason };
            let same = open::same_cluster(&self.first.0, &self.cluster, ControllerEpoch(0)).await;
            let compared = match same {
                Ok(()) => older::refuse(&self.first.0, address, logs).await,
                Err(reason) => Err(failed(reason)),
            };
            match compared {
                // ZooKeeper stood still, or went away: another session is as good.
                Err(Error::ZooKeeper { .. }) if open::has_expired(&self.first.0).await => {
                    crate::zookeeper::ZooKeeper::close(&self.first.0);
                    self.first =
                        open::connect_first(&self.connect, address, begun, patience).await?;
                }
                answer => return answer,
            }
        }
    }

    /// Whether the cluster has topics. A broker that comes without data into such a cluster may have lost it, and has to
    /// say so (R6); in a cluster without topics there is nothing to lose.
    #[must_use]
    pub fn has_topics(&self) -> bool {
        self.has_topics
    }

    /// Registers the broker and takes part in elections from then on. Call it when the listeners are bound: the
    /// registration tells others where they are. Returns at the first registration.
    ///
    /// # Errors
    /// [`Error::IdTaken`] if another live broker has the id; nothing was changed in that case.
    pub async fn start(self, registration: BrokerNode) -> Result<Running, Error> {
        let (registration, next) = watch::channel(registration);
        let membership = watch::Sender::new(Membership::default());
        let term = watch::Sender::new(None);
        let stop = watch::Sender::new(false);
        let (started, registered) = oneshot::channel();
        let (ask, asked) = mpsc::channel(membership::ASKED_MAX);
        let members = membership.subscribe();
        let pushes = PushStreams::default();
        if self.config.suspicion {
            let shell = ask.downgrade();
            let me = self.config.broker_id;
            tokio::spawn(follow::run(me, members.clone(), pushes.subscribe(), shell));
        }
        let anew = Arc::new(Notify::new());
        let (failovers, records) = mpsc::channel(FAILOVERS_WAITING_MAX);
        let handle = ControllerHandle::new(term.subscribe(), ask);
        let task = tokio::spawn(membership::run(membership::Setting {
            me: self.config.broker_id,
            connect: self.connect,
            first: self.first,
            cluster: self.cluster,
            registration: next,
            defaults: self.config.defaults,
            rebalance: self.config.rebalance,
            suspicion: self.config.suspicion,
            membership,
            term,
            started,
            stop: stop.subscribe(),
            asked,
            anew: Arc::clone(&anew),
            pushes: pushes.clone(),
            failovers,
        }));
        let broker_epoch = registered.await.unwrap_or(Err(Error::Stopped))?;
        Ok(Running {
            broker_epoch,
            controller: handle,
            membership: members,
            pushes,
            failovers: Some(records),
            registration,
            anew,
            stop,
            task,
        })
    }
}

/// The service, registered and running.
#[derive(Debug)]
pub struct Running {
    /// Epoch of the first registration.
    pub broker_epoch: BrokerEpoch,
    /// The controller, while this process is it.
    pub controller: ControllerHandle,
    /// This broker's place in the cluster, and who is controller.
    pub membership: watch::Receiver<Membership>,
    /// To be told of every push stream that is open here: a controller without one is looked for.
    pub pushes: PushStreams,
    failovers: Option<mpsc::Receiver<v1::Failover>>,
    registration: watch::Sender<BrokerNode>,
    anew: Arc<Notify>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// The failovers that this process records while it is the controller, for whoever keeps them: each as soon as every live
    /// broker knows what follows from it (or does not for some seconds), and again, whole, when it has got further. What is not
    /// taken while [`FAILOVERS_WAITING_MAX`] wait is dropped. `None` from the second call on.
    pub fn take_failovers(&mut self) -> Option<mpsc::Receiver<v1::Failover>> {
        self.failovers.take()
    }

    /// What the *next* registration shall say (after an expiry). The present one stays as it is (R7).
    pub fn set_registration(&self, registration: BrokerNode) {
        self.registration.send_replace(registration);
    }

    /// Registers anew with `registration`: the present node is deleted by its version and another one created in the same
    /// session, so that the broker gets another broker epoch (R38: the controller then treats every replica here by R5 to
    /// R8). If this process is the controller, the term goes on.
    ///
    /// Returns at once. [`Membership::broker_epoch`] is `None` from the deletion on and then the new epoch; while ZooKeeper
    /// is away the old one stays, and whatever registers the broker next says what `registration` says.
    pub fn register_anew(&self, registration: BrokerNode) {
        self.registration.send_replace(registration);
        self.anew.notify_one();
    }

    /// Ends the term, if there is one, and closes the session: registration and `/controller` go at once.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}
