//! The vocabulary of Barnabas: ids, epochs, offsets, cluster state and error conditions as types that cannot be mixed up.
//!
//! Every other crate imports this one; it imports nothing of the project, does no I/O and knows no format.

mod assignment;
pub mod broker_settings;
mod condition;
pub mod durability;
mod ids;
mod image;
pub mod invariants;
mod leader_epochs;
mod names;
mod nearest;
mod sanitised;
mod standing;
pub mod topic_config;

pub use assignment::{Assignment, Moving};
pub use broker_settings::{BrokerSettings, ConfigEntity};
pub use condition::Condition;
pub use ids::{
    BrokerEpoch, BrokerId, ClusterId, ControllerEpoch, DirectoryId, Incarnation, LeaderEpoch, Now,
    Offset, PartitionEpoch, TopicId,
};
pub use image::{
    Acks, BrokerImage, CleanupPolicy, ClusterDelta, ClusterImage, CompressionType, FailedByBroker,
    FailedReplicas, FlushMode, Partition, PartitionState, Ratio, TimestampType, TopicConfig,
    TopicImage,
};
pub use leader_epochs::{EpochStart, LeaderEpochs};
pub use names::{InvalidTopicName, TopicName, TopicPartition};
pub use nearest::nearest;
pub use sanitised::Sanitised;
pub use standing::{Standing, Standings};
pub use topic_config::Setting;
