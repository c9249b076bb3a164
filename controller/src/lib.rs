//! The shell around the controller core: the election, one task that feeds the core and performs its effects in order, the admin service.
//!
//! How a broker is built around it:
//!
//! 1. [`open`] connects to ZooKeeper, compares the cluster id with the data directory's and makes the base tree. A new data
//!    directory takes its cluster id from [`Opened::cluster_id`].
//! 2. The broker binds its listeners.
//! 3. [`Opened::start`] registers the broker and returns at the first registration, or with the reason why it cannot be. From
//!    then on the service takes part in elections by itself: session expiry, re-registration and terms as controller need no
//!    help. [`Running::membership`] tells the present broker epoch, the oldest controller epoch that may be obeyed (R22) and
//!    who is controller.
//! 4. The broker serves gRPC with [`ControllerControlService::server`], [`AdminService::server`] and its own `BrokerControl`
//!    (which receives the pushes; set its decoding limit to `barnabas_proto::PUSH_BYTES_MAX`). Serve on an incoming stream
//!    with nodelay set: the server builder's `tcp_nodelay` does not reach streams that it has not opened itself.
//! 5. Its leaders propose ISRs, and its Kafka listener creates topics, through one [`ControllerClient`], which finds the
//!    controller in this process or over gRPC.
//! 6. [`Running::stop`] closes the session, so that the registration goes at once.
//!
//! The simulator uses [`translate`] (procedures that say what to ask of ZooKeeper and what the replies mean) and
//! [`zookeeper::memory::Tree`], neither of which awaits.
//!
//! Logs: `tracing` targets `controller` and `state_change`; each line of the latter on a partition carries topic, partition,
//! controller epoch, leader epoch and partition epoch as fields.

mod dial;
mod drive;
mod error;
mod follow;
mod membership;
mod older;
mod open;
mod predecessor;
mod service;
mod term;
mod timeline;
pub mod translate;
pub mod zookeeper;

pub use barnabas_controller_core::{
    AlterConfig, AlterPartitionAnswer, AlteredConfig, CreatePartitions, Defaults, DrainProgress,
    ElectLeaders, ElectLeadersAnswer, ElectPartition, Election, Obstruction, Reassign, StopVerdict,
};
pub use barnabas_proto::znode::BrokerNode;
pub use error::Error;
pub use follow::{PushStream, PushStreams};
pub use membership::Membership;
pub use service::{
    AdminService, ClusterView, Config, ControllerClient, ControllerControlService,
    ControllerHandle, CreatedTopic, Explains, FAILOVERS_WAITING_MAX, FailoverHistory, Ledger,
    LogLevels, NewTopic, Opened, Rebalance, ReplicaMoved, ReplicaMoves, Running, Served, open,
    open_with,
};
