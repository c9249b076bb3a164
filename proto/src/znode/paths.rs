//! Paths of all nodes, from the chroot down (the ZooKeeper client puts the chroot in front).

use barnabas_types::{BrokerId, ConfigEntity, TopicName, TopicPartition};

/// Ephemeral; who holds it is the controller.
pub const CONTROLLER: &str = "/controller";
/// Number of the last term; every controller write checks its version.
pub const CONTROLLER_EPOCH: &str = "/controller_epoch";
/// Parent of the registrations.
pub const BROKER_IDS: &str = "/brokers/ids";
/// Parent of the topics.
pub const TOPICS: &str = "/brokers/topics";
/// Parent of the topic settings.
pub const TOPIC_CONFIGS: &str = "/config/topics";
/// Parent of the brokers' settings.
pub const BROKER_CONFIGS: &str = "/config/brokers";
/// Name of the node below [`BROKER_CONFIGS`] that holds for all brokers.
pub const CLUSTER_DEFAULT: &str = "<default>";
/// Parent of the notices of settings that were changed.
pub const CONFIG_CHANGES: &str = "/config/changes";
/// Parent of the marks of topics that are being deleted.
pub const DELETE_TOPICS: &str = "/admin/delete_topics";
/// The last block of producer ids that was handed out.
pub const PRODUCER_ID_BLOCK: &str = "/latest_producer_id_block";
/// The cluster's id.
pub const CLUSTER_ID: &str = "/cluster/id";

/// Parent of everything about brokers and topics.
pub const BROKERS: &str = "/brokers";

/// What Barnabas and Kafka make at the top, each of them the root of a tree or a node alone.
pub const TOP: [&str; 16] = [
    BROKERS,
    "/config",
    "/admin",
    "/cluster",
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    "/consumers",
    "/delegation_token",
    "/feature",
    "/isr_change_notification",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/log_dir_event_notification",
];

/// Persistent nodes without content that must exist before anything else, parents first.
/// (`/controller_epoch` and `/cluster/id` have content and are made apart.)
pub const BASE_TREE: [&str; 12] = [
    BROKERS,
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    "/config/users",
    "/config/clients",
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    "/cluster",
];

/// Registration of a broker.
#[must_use]
pub fn broker(id: BrokerId) -> String {
    format!("{BROKER_IDS}/{id}")
}

/// Assignment and id of a topic.
#[must_use]
pub fn topic(name: &TopicName) -> String {
    format!("{TOPICS}/{name}")
}

/// Parent of a topic's partitions.
#[must_use]
pub fn partitions(name: &TopicName) -> String {
    format!("{TOPICS}/{name}/partitions")
}

/// Parent of a partition's state.
#[must_use]
pub fn partition(name: &TopicName, partition: i32) -> String {
    format!("{TOPICS}/{name}/partitions/{partition}")
}

/// Leader, epochs and ISR of a partition.
#[must_use]
pub fn partition_state(partition: &TopicPartition) -> String {
    format!("{TOPICS}/{}/partitions/{}/state", partition.topic, partition.partition)
}

/// Settings of a topic.
#[must_use]
pub fn topic_config(name: &TopicName) -> String {
    format!("{TOPIC_CONFIGS}/{name}")
}

/// Settings of a topic, of a broker, or of all brokers.
#[must_use]
pub fn config(entity: &ConfigEntity) -> String {
    match entity {
        ConfigEntity::Topic(name) => topic_config(name),
        ConfigEntity::Broker(Some(id)) => format!("{BROKER_CONFIGS}/{id}"),
        ConfigEntity::Broker(None) => format!("{BROKER_CONFIGS}/{CLUSTER_DEFAULT}"),
    }
}

/// Mark of a topic that is being deleted.
#[must_use]
pub fn delete_topic(name: &TopicName) -> String {
    format!("{DELETE_TOPICS}/{name}")
}
