//! ZooKeeper: where every node stands and what its JSON says. Kafka's layout, so that people's tools can read it.

mod broker;
mod controller;
mod json;
pub mod paths;
mod producer_ids;
mod topic;

pub use broker::BrokerNode;
pub use controller::{
    ControllerNode, parse_cluster_id, parse_controller_epoch, parse_restored, write_cluster_id,
    write_controller_epoch, write_restored_cluster_id,
};
pub use json::ZnodeError;
pub use producer_ids::ProducerIdBlock;
pub use topic::{
    TopicNode, parse_broker_config_name, parse_config, parse_config_change, parse_partition_state,
    write_config, write_partition_state,
};
