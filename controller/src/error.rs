//! Why a broker cannot take its place in the cluster: each a sentence that names the thing and the remedy.

use barnabas_types::{BrokerId, ClusterId, LeaderEpoch, TopicPartition};

/// Why the service did not start, or ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `zookeeper.connect` makes no sense.
    #[error("zookeeper.connect '{connect}' is not host:port[,host:port...][/chroot]: {reason}")]
    BadAddress {
        /// As configured.
        connect: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No server answered at first start.
    #[error(
        "ZooKeeper at {connect} cannot be reached within {waited_ms} ms ({reason}); start it, or correct \
         zookeeper.connect (zookeeper.connection.timeout.ms sets the wait)"
    )]
    Unreachable {
        /// As configured.
        connect: String,
        /// `zookeeper.connection.timeout.ms`.
        waited_ms: u64,
        /// The last failure.
        reason: String,
    },
    /// The servers know another password, or not the user.
    #[error(
        "ZooKeeper at {connect} does not take the credentials of zookeeper.credentials.file; correct the user and password there, \
         or zookeeper.auth.scheme"
    )]
    CredentialsRefused {
        /// As configured.
        connect: String,
    },
    /// The chroot is not there.
    #[error(
        "the chroot {chroot} of zookeeper.connect '{connect}' does not exist; create it once, for instance with \
         'zkCli.sh -server {servers} create {chroot}', or correct zookeeper.connect"
    )]
    ChrootMissing {
        /// As configured.
        connect: String,
        /// Its first part.
        servers: String,
        /// Its second part.
        chroot: String,
    },
    /// The data directory belongs to another cluster.
    #[error(
        "the data directory belongs to cluster {expected}, but ZooKeeper at {connect} is that of cluster {found}; correct \
         zookeeper.connect, or give this broker another data directory"
    )]
    WrongCluster {
        /// As configured.
        connect: String,
        /// What the data directory says.
        expected: ClusterId,
        /// What ZooKeeper says.
        found: ClusterId,
    },
    /// The data directory belongs to a cluster, and ZooKeeper holds none.
    #[error(
        "the data directory belongs to cluster {expected}, but ZooKeeper at {connect} holds no cluster (/cluster/id is \
         missing); correct zookeeper.connect, or restore ZooKeeper's data (a snapshot of its own, or 'barnabas zookeeper restore')"
    )]
    NoCluster {
        /// As configured.
        connect: String,
        /// What the data directory says.
        expected: ClusterId,
    },
    /// What ZooKeeper holds is older than the logs: it was restored from a backup, and nobody was told.
    #[error(
        "the log of {partition} knows leader epoch {log}, and ZooKeeper at {connect} has only come to {stored} (so in {partitions} \
         partitions of this broker): its data were taken back to an earlier time, and would make replicas lead that lack records; stop \
         all brokers, run 'barnabas zookeeper restore --config FILE' on one of their machines, and start them again"
    )]
    OlderThanLogs {
        /// As configured.
        connect: String,
        /// The first of them.
        partition: TopicPartition,
        /// The newest epoch in its log.
        log: LeaderEpoch,
        /// The epoch in its state.
        stored: LeaderEpoch,
        /// How many.
        partitions: usize,
    },
    /// Somebody else is registered under this id.
    #[error(
        "broker id {broker} is already registered by another live broker ({address}, session {session:#x}); give this one \
         another broker.id or stop that one"
    )]
    IdTaken {
        /// The id.
        broker: BrokerId,
        /// `host:port` of the other one's Kafka listener.
        address: String,
        /// Its session.
        session: i64,
    },
    /// ZooKeeper refuses or says what makes no sense.
    #[error("ZooKeeper at {connect}: {reason}")]
    ZooKeeper {
        /// As configured.
        connect: String,
        /// What.
        reason: String,
    },
    /// The service was stopped.
    #[error("the service was stopped")]
    Stopped,
}
