//! What every part of a running broker shares.

use std::path::PathBuf;
use std::sync::Arc;

use barnabas_controller::{ControllerClient, Membership};
use barnabas_replica::{IsrProposal, Role};
use barnabas_types::{BrokerEpoch, BrokerId, ClusterId, Now};
use tokio::sync::{Semaphore, watch};

use super::producer_ids::ProducerIds;
use super::pulse::Pulse;
use crate::clock::{Clock, since_boot};
use crate::config::{GroupConfig, Shown};
use crate::connection::{Budget, ConnectionLimits, Places, Turns};
use crate::control::{FailedReports, Proposals, ServedReports};
use crate::explain::Contact;
use crate::follower::{Followers, Pace};
use crate::group::Coordinators;
use crate::journal::Journal;
use crate::kafka::FetchSessions;
use crate::metrics::NodeFigures;
use crate::partition::{Hosted, LogFailure, Outward, PartitionTable};
use crate::storage::{Directory, Lost};
use crate::view::View;

/// Topics that are created on demand at once by one broker; clients that come later are told to ask again.
const AUTO_CREATIONS_MAX: usize = 8;

/// Settings of the data plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// `replica.lag.time.max.ms`.
    pub replica_lag_time_max_ms: u64,
    /// `replica.fetch.wait.max.ms`.
    pub replica_fetch_wait_max_ms: u32,
    /// `replica.fetch.max.bytes`: per partition in one answer.
    pub replica_fetch_max_bytes: u32,
    /// `replica.fetch.response.max.bytes`: one whole answer.
    pub replica_fetch_response_max_bytes: u32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_sessions_max: usize,
    /// What new topics that do not say get for `min.insync.replicas`, as far as this broker's file knows.
    pub min_insync_replicas: u32,
    /// What concerns consumer groups.
    pub groups: GroupConfig,
    /// `socket.request.max.bytes`: the largest produce frame.
    pub socket_request_max_bytes: usize,
    /// Connections and their memory.
    pub connections: ConnectionLimits,
    /// `zookeeper.session.timeout.ms`.
    pub session_timeout_ms: u64,
    /// Every setting of this broker, as administrators are shown it.
    pub shown: Arc<[Shown]>,
    /// The file that they are read from; empty: none.
    pub config_file: PathBuf,
    /// The servers of `zookeeper.connect`.
    pub zookeeper_servers: String,
}

/// The shared state of a broker.
pub struct Node {
    /// This broker's id.
    pub me: BrokerId,
    /// The cluster's id.
    pub cluster_id: ClusterId,
    /// Settings.
    pub options: Options,
    /// What is known of the cluster.
    pub view: Arc<View>,
    /// Who is connected.
    pub places: Arc<Places>,
    /// Which connection speaks for a follower.
    pub(crate) turns: Turns,
    /// Memory of the connections.
    pub budget: Arc<Budget>,
    /// Replicas here.
    pub partitions: PartitionTable,
    /// ISR proposals on their way to the controller.
    pub proposals: Proposals,
    /// Replicas that cannot be served.
    pub failed: FailedReports,
    /// What leaders here tell the timeline.
    pub served: ServedReports,
    /// What somebody may ask about later: lost records, failovers.
    pub journal: Arc<Journal>,
    /// The fetchers of this broker's followers.
    pub followers: Followers,
    /// The groups that this broker coordinates.
    pub groups: Coordinators,
    /// How fast replicas that are being added are copied.
    pub pace: Pace,
    /// The log directories.
    pub directories: Vec<Arc<Directory>>,
    /// Session, registration, controller.
    pub membership: watch::Receiver<Membership>,
    /// The controller, in this process or elsewhere.
    pub controller: ControllerClient,
    /// Places for topics that are created on demand of clients.
    pub auto_creations: Semaphore,
    /// Fetch sessions of clients.
    pub(crate) fetch_sessions: FetchSessions,
    /// Ids for idempotent producers.
    pub producer_ids: ProducerIds,
    /// The runtime of control work (gRPC, ZooKeeper): never blocked by data.
    pub control: tokio::runtime::Handle,
    /// The runtime of connections and fetchers.
    pub data: tokio::runtime::Handle,
    /// Whether this process runs without long stops.
    pub pulse: Pulse,
    /// Since when ZooKeeper or a controller has been away.
    pub contact: Contact,
    /// What is counted for no partition.
    pub figures: NodeFigures,
    clock: Clock,
}

/// The parts of a [`Node`] that come from elsewhere.
pub struct Parts {
    /// See [`Node::me`].
    pub me: BrokerId,
    /// See [`Node::cluster_id`].
    pub cluster_id: ClusterId,
    /// See [`Node::options`].
    pub options: Options,
    /// See [`Node::view`].
    pub view: Arc<View>,
    /// See [`Node::directories`].
    pub directories: Vec<Arc<Directory>>,
    /// See [`Node::membership`].
    pub membership: watch::Receiver<Membership>,
    /// See [`Node::controller`].
    pub controller: ControllerClient,
    /// See [`Node::control`].
    pub control: tokio::runtime::Handle,
    /// The runtime on which fetchers run.
    pub data: tokio::runtime::Handle,
}

/// Files that this process may open now.
fn descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

impl Node {
    /// Puts a node together.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let clock = Clock::start();
        Arc::new_cyclic(|weak| Self {
            me: parts.me,
            cluster_id: parts.cluster_id,
            fetch_sessions: FetchSessions::new(parts.options.fetch_sessions_max),
            places: Places::new(parts.options.connections.clone(), descriptors),
            turns: Turns::default(),
            budget: Arc::new(Budget::new(parts.options.connections.queued_max_bytes)),
            groups: Coordinators::new(weak.clone(), parts.data.clone(), &parts.options.groups),
            contact: Contact::default(),
            figures: NodeFigures::default(),
            pulse: Pulse::new(parts.options.session_timeout_ms, since_boot()),
            options: parts.options,
            view: parts.view,
            partitions: PartitionTable::default(),
            proposals: Proposals::default(),
            failed: FailedReports::default(),
            served: ServedReports::default(),
            journal: Arc::default(),
            followers: Followers::new(weak.clone(), parts.data.clone()),
            pace: Pace::default(),
            directories: parts.directories,
            membership: parts.membership,
            controller: parts.controller,
            auto_creations: Semaphore::new(AUTO_CREATIONS_MAX),
            producer_ids: ProducerIds::default(),
            control: parts.control,
            data: parts.data,
            clock,
        })
    }

    /// The present time for cores.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// This broker's epoch, if it is registered.
    pub fn broker_epoch(&self) -> Option<BrokerEpoch> {
        self.membership.borrow().broker_epoch
    }
}

impl Outward for Node {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn propose(&self, partition: &Arc<Hosted>, proposal: IsrProposal) {
        self.proposals.add(partition, proposal);
    }

    fn role_changed(&self, partition: &Arc<Hosted>, role: Role) {
        match role {
            Role::Follower { leader, .. } => self.followers.follow(partition, leader),
            Role::Idle | Role::Leader { .. } | Role::Leaderless { .. } | Role::Deleted => {
                self.followers.stop(&partition.topic_partition);
            }
        }
        self.groups.role_changed(partition);
    }

    fn position_moved(&self, partition: &Arc<Hosted>, leader: BrokerId) {
        self.followers.name_again(&partition.topic_partition, leader);
    }

    fn log_failed(&self, partition: &Arc<Hosted>, failure: LogFailure) {
        self.failed.add(partition, failure);
    }

    fn records_lost(&self, lost: &Lost) {
        lost.tell(&self.journal);
    }

    fn led_uncleanly(&self) {
        self.figures.elected_uncleanly();
    }
}
