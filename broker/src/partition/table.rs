//! Which partitions this broker hosts; looked up on every request, changed only by the control agent.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use barnabas_types::TopicPartition;

use super::hosted::Hosted;

/// Partitions by topic name and index.
#[derive(Default)]
pub struct PartitionTable {
    topics: RwLock<HashMap<String, BTreeMap<i32, Arc<Hosted>>>>,
}

impl PartitionTable {
    /// The replica of a partition here, if there is one.
    pub fn get(&self, topic: &str, partition: i32) -> Option<Arc<Hosted>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(topic)?.get(&partition).cloned()
    }

    /// Adds or replaces a replica; returns the one that was there.
    pub fn insert(&self, hosted: Arc<Hosted>) -> Option<Arc<Hosted>> {
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let tp = &hosted.topic_partition;
        topics.entry(tp.topic.as_str().to_owned()).or_default().insert(tp.partition, hosted.clone())
    }

    /// Takes a replica out.
    pub fn remove(&self, tp: &TopicPartition) -> Option<Arc<Hosted>> {
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let partitions = topics.get_mut(tp.topic.as_str())?;
        let gone = partitions.remove(&tp.partition);
        if partitions.is_empty() {
            topics.remove(tp.topic.as_str());
        }
        gone
    }

    /// All replicas here, in no particular order.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.values().flat_map(|partitions| partitions.values().cloned()).collect()
    }
}
