//! A look at every replica here, without waiting for any.

use std::sync::Arc;
use std::time::Duration;

use barnabas_types::TopicPartition;
use tokio::runtime::Handle;

use crate::node::Node;
use crate::partition::{Figures, Hosted};

/// How often a replica is tried whose lock something holds: appends and reads have it for microseconds.
const TRIES: usize = 20;
/// Between two rounds.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Every replica, in the order of topics and partitions; without figures where something held its lock all the time.
pub(super) struct Replicas(Vec<(Arc<Hosted>, Option<Figures>)>);

impl Replicas {
    /// Looks, on a thread for blocking work of a runtime. Takes [`TRIES`] times [`TRY_AGAIN`] at most.
    pub(super) fn look(node: &Node) -> Self {
        let mut all: Vec<_> =
            node.partitions.all().into_iter().map(|hosted| (hosted, None)).collect();
        all.sort_unstable_by(|(one, _), (other, _)| {
            one.topic_partition.cmp(&other.topic_partition)
        });
        let now = node.now();
        for round in 0..TRIES {
            if round > 0 {
                Handle::current().block_on(tokio::time::sleep(TRY_AGAIN));
            }
            let mut whole = true;
            for (hosted, figures) in all.iter_mut().filter(|(_, figures)| figures.is_none()) {
                *figures = hosted.figures(now);
                whole &= figures.is_some();
            }
            if whole {
                break;
            }
        }
        Self(all)
    }

    /// Those that could be looked at.
    pub(super) fn told(&self) -> impl Iterator<Item = (&TopicPartition, &Figures)> {
        self.0
            .iter()
            .filter_map(|(hosted, figures)| Some((&hosted.topic_partition, figures.as_ref()?)))
    }

    /// How many there are, and how many of them could not be looked at.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.0.len(), self.0.iter().filter(|(_, figures)| figures.is_none()).count())
    }

    /// The replica of a partition.
    pub(super) fn get(&self, topic: &str, partition: i32) -> Option<&Figures> {
        let wanted = (topic, partition);
        let at = self.0.binary_search_by(|(hosted, _)| {
            let tp = &hosted.topic_partition;
            (tp.topic.as_str(), tp.partition).cmp(&wanted)
        });
        self.0[at.ok()?].1.as_ref()
    }
}
