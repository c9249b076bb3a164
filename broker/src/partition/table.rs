//! Which partitions this broker hosts; looked up on every request, changed only by the control agent.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use barnabas_metrics::Carried;
use barnabas_types::TopicPartition;

use super::hosted::Hosted;

/// Partitions by topic name and index.
#[derive(Default)]
pub struct PartitionTable {
    topics: RwLock<HashMap<String, BTreeMap<i32, Arc<Hosted>>>>,
    /// What replicas carried that are not here any more: counters must not fall when one leaves. Lock order: `topics`, this.
    gone: Mutex<Gone>,
}

/// Topics of which replicas have left that are remembered by name; each scrape forgets those that do not exist any more. Where nobody
/// scrapes, all are put together beyond it: then counters of topics fall once.
const GONE_TOPICS_MAX: usize = 10_000;

/// Of topics by name, and of all others.
#[derive(Default)]
struct Gone {
    by_topic: HashMap<String, Carried>,
    others: Carried,
}

/// What this broker has carried since its start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CarriedByTopic {
    /// By topic that has or had a replica here.
    pub topics: BTreeMap<String, Carried>,
    /// Of topics that do not exist any more.
    pub others: Carried,
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
        let tp = hosted.topic_partition.clone();
        let of_topic = topics.entry(tp.topic.as_str().to_owned()).or_default();
        let before = of_topic.insert(tp.partition, hosted.clone());
        self.leaves(before.as_ref().filter(|before| !Arc::ptr_eq(before, &hosted)));
        before
    }

    /// Takes a replica out.
    pub fn remove(&self, tp: &TopicPartition) -> Option<Arc<Hosted>> {
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let partitions = topics.get_mut(tp.topic.as_str())?;
        let gone = partitions.remove(&tp.partition);
        if partitions.is_empty() {
            topics.remove(tp.topic.as_str());
        }
        self.leaves(gone.as_ref());
        gone
    }

    /// To be called with `topics` locked, so that what it carried is counted once. What it carries later is not counted.
    fn leaves(&self, hosted: Option<&Arc<Hosted>>) {
        let Some(hosted) = hosted else { return };
        let carried = hosted.traffic.carried();
        if carried == Carried::default() {
            return;
        }
        let name = hosted.topic_partition.topic.as_str();
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.by_topic.len() >= GONE_TOPICS_MAX {
            let Gone { by_topic, others } = &mut *gone;
            by_topic.drain().for_each(|(_, carried)| *others += carried);
        }
        *gone.by_topic.entry(name.to_owned()).or_default() += carried;
    }

    /// What was carried, by topic. Those that neither are here nor `exist` are put together.
    pub fn carried(&self, exists: impl Fn(&str) -> bool) -> CarriedByTopic {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let Gone { by_topic, others } = &mut *gone;
        by_topic.retain(|name, carried| {
            let stays = topics.contains_key(name) || exists(name);
            if !stays {
                *others += *carried;
            }
            stays
        });
        let mut all = CarriedByTopic { others: *others, ..CarriedByTopic::default() };
        for (name, carried) in by_topic.iter() {
            *all.topics.entry(name.clone()).or_default() += *carried;
        }
        for (name, partitions) in topics.iter() {
            let of_topic = all.topics.entry(name.clone()).or_default();
            partitions.values().for_each(|hosted| *of_topic += hosted.traffic.carried());
        }
        all
    }

    /// All replicas here, in no particular order.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.values().flat_map(|partitions| partitions.values().cloned()).collect()
    }
}
