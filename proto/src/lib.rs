//! Every format that leaves a process except Kafka's own: the gRPC services and their total conversions, ZooKeeper paths and JSON.

pub mod convert;
pub mod znode;

/// Messages and services, generated from `proto/barnabas/v1/*.proto`; documented there.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("barnabas.v1");
}

/// Largest message that a control or admin service reads, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Largest push that a broker reads, in bytes. A full state is one message (about 60 bytes a partition and replica set), so
/// this bounds a cluster at several hundred thousand partitions; both ends set it on the `BrokerControl` service and client.
pub const PUSH_BYTES_MAX: usize = 64 * 1024 * 1024;
