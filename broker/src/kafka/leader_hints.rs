//! Who leads instead, told with the error that sends a client elsewhere, and where that broker is (KIP-951): the client needs no
//! round of Metadata.

use std::collections::BTreeSet;

use barnabas_types::{BrokerId, Condition, LeaderEpoch, TopicName};
use barnabas_wire::NodeEndpoint;

use crate::node::Node;
use crate::view::View;

/// Whether a client to which this is said needs to know the leader.
pub(super) fn helps(condition: &Condition) -> bool {
    matches!(condition, Condition::NotLeaderOrFollower | Condition::FencedLeaderEpoch { .. })
}

/// The leader of a partition and its epoch, as far as this broker knows.
pub(super) fn leader(
    node: &Node,
    topic: &TopicName,
    partition: i32,
) -> Option<(BrokerId, LeaderEpoch)> {
    leader_in(&node.view, node.me, topic, partition)
}

/// [`leader`], for who has no node at hand. Never this broker itself: a client that it has just refused would ask it again and
/// again, without a pause. Nor one that is not registered.
pub(super) fn leader_in(
    view: &View,
    me: BrokerId,
    topic: &TopicName,
    partition: i32,
) -> Option<(BrokerId, LeaderEpoch)> {
    let image = view.image();
    let state = &image.topics.get(topic)?.partitions.get(&partition)?.state;
    let leader = state.leader.filter(|id| *id != me && image.brokers.contains_key(id))?;
    Some((leader, state.leader_epoch))
}

/// Where these brokers are, each once.
pub(super) fn endpoints(view: &View, brokers: impl Iterator<Item = BrokerId>) -> Vec<NodeEndpoint> {
    let brokers: BTreeSet<BrokerId> = brokers.collect();
    if brokers.is_empty() {
        return Vec::new();
    }
    let image = view.image();
    let one = |id: BrokerId| {
        let broker = image.brokers.get(&id)?;
        let (host, port) = (broker.host.clone(), i32::from(broker.port));
        Some(NodeEndpoint { broker: id, host, port, rack: broker.rack.clone() })
    };
    brokers.into_iter().filter_map(one).collect()
}
