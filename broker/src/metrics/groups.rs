//! The groups that this broker coordinates, as their coordinators tell them.

use std::sync::Arc;
use std::time::Duration;

use barnabas_group::{GroupState, Groups};
use tokio::time::Instant;

use crate::node::Node;

/// How long a scrape waits for all coordinators together; whoever is not heard by then is not told of.
const PATIENCE: Duration = Duration::from_secs(1);

/// One group.
pub(super) struct GroupFigures {
    pub(super) group: Arc<str>,
    pub(super) state: GroupState,
    pub(super) members: usize,
    /// Topic, partition, committed offset.
    pub(super) offsets: Vec<(Arc<str>, i32, i64)>,
}

fn figures(groups: &Groups) -> Vec<GroupFigures> {
    let one = |(group, state, members): (&Arc<str>, GroupState, usize)| {
        let offsets = groups.offsets(group);
        let offsets = offsets.map(|(topic, partition, at)| (topic.clone(), partition, at.offset));
        GroupFigures { group: group.clone(), state, members, offsets: offsets.collect() }
    };
    groups.sizes().map(one).collect()
}

/// All of them; those of coordinators that are loading, ended or too busy are missing.
pub(super) async fn gather(node: &Node) -> Vec<GroupFigures> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    for coordinator in node.groups.all() {
        if let Ok(Ok(found)) = tokio::time::timeout_at(deadline, coordinator.look(figures)).await {
            all.extend(found);
        }
    }
    all
}
