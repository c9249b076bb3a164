//! The image that brokers are shown: committed state only, with the version of each item, so that a delta costs what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use barnabas_types::{
    BrokerId, BrokerImage, ClusterDelta, ClusterImage, Incarnation, Partition, TopicConfig,
    TopicImage, TopicName, TopicPartition,
};

/// Most deleted topics that are remembered for brokers that have not acknowledged the deletion; beyond it the oldest are
/// forgotten, and who is behind them gets a full push.
pub(crate) const TOMBSTONES_MAX: usize = 1000;

/// The image and the version of every item in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Image {
    cluster: ClusterImage,
    /// Version of the newest item; 0 before the first change.
    version: u64,
    /// Whether `version` was raised in the present step: all changes of a step share one version.
    raised: bool,
    brokers_version: u64,
    failed_version: u64,
    suspected_version: u64,
    settings_version: u64,
    /// Version of each partition, and the same ordered by version.
    stamps: BTreeMap<TopicName, BTreeMap<i32, u64>>,
    changes: BTreeSet<(u64, TopicName, i32)>,
    tombstones: BTreeSet<(u64, TopicName, Incarnation)>,
    /// Version of the newest tombstone that was forgotten: a delta from below it is a full push.
    forgotten: u64,
}

impl Hash for Image {
    /// What is shown. The versions only say in which step it came to be, which changes nothing that is decided.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cluster.hash(state);
    }
}

impl Image {
    pub(crate) fn new(cluster: ClusterImage) -> Self {
        Self { cluster, ..Self::default() }
    }

    pub(crate) fn cluster(&self) -> &ClusterImage {
        &self.cluster
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Begins a step; what changes from here on gets one new version.
    pub(crate) fn begin_step(&mut self) {
        self.raised = false;
    }

    /// Whether anything changed since [`Image::begin_step`].
    pub(crate) fn changed(&self) -> bool {
        self.raised
    }

    fn raise(&mut self) -> u64 {
        if !self.raised {
            self.raised = true;
            self.version += 1;
        }
        self.version
    }

    /// Replaces the live brokers.
    pub(crate) fn set_brokers(&mut self, brokers: BTreeMap<BrokerId, BrokerImage>) {
        if brokers != self.cluster.brokers {
            self.cluster.brokers = brokers;
            self.brokers_version = self.raise();
        }
    }

    /// Notes the topics of which nothing can be read; once, before the first push.
    pub(crate) fn set_unreadable(&mut self, topics: BTreeSet<TopicName>) {
        self.cluster.unreadable = topics;
    }

    /// Replaces what one broker cannot serve.
    pub(crate) fn set_failed(&mut self, broker: BrokerId, failed: BTreeSet<TopicPartition>) {
        let before = self.cluster.failed.get(&broker);
        if before.map_or(failed.is_empty(), |before| *before == failed) {
            return;
        }
        if failed.is_empty() {
            self.cluster.failed.remove(&broker);
        } else {
            self.cluster.failed.insert(broker, failed);
        }
        self.failed_version = self.raise();
    }

    /// Replaces the brokers that are suspected.
    pub(crate) fn set_suspected(&mut self, suspected: BTreeSet<BrokerId>) {
        if suspected != self.cluster.suspected {
            self.cluster.suspected = suspected;
            self.suspected_version = self.raise();
        }
    }

    /// Replaces the stored settings of one broker, or of all (`None`).
    pub(crate) fn set_broker_settings(
        &mut self,
        broker: Option<BrokerId>,
        settings: BTreeMap<String, String>,
    ) {
        let before = self.cluster.broker_settings.get(&broker);
        if before.map_or(settings.is_empty(), |before| *before == settings) {
            return;
        }
        if settings.is_empty() {
            self.cluster.broker_settings.remove(&broker);
        } else {
            self.cluster.broker_settings.insert(broker, settings);
        }
        self.settings_version = self.raise();
    }

    /// Owes every broker a partition again as it is: whoever could not take it over before can now.
    pub(crate) fn push_again(&mut self, name: &TopicName, index: i32) {
        let topic = self.cluster.topics.get(name);
        if topic.is_some_and(|topic| topic.partitions.contains_key(&index)) {
            let version = self.raise();
            self.stamp(name, index, version);
        }
    }

    /// Adds a topic with all its partitions.
    pub(crate) fn add_topic(&mut self, name: &TopicName, topic: TopicImage) {
        let version = self.raise();
        for partition in topic.partitions.keys() {
            self.stamp(name, *partition, version);
        }
        self.cluster.topics.insert(name.clone(), topic);
    }

    /// Changes a topic's settings. Every partition is pushed again: settings travel with leaderships (R37).
    pub(crate) fn set_config(
        &mut self,
        name: &TopicName,
        config: TopicConfig,
        overrides: BTreeMap<String, String>,
    ) {
        let Some(topic) = self.cluster.topics.get_mut(name) else { return };
        if topic.config == config && topic.overrides == overrides {
            return;
        }
        topic.config = config;
        topic.overrides = overrides;
        let indexes: Vec<i32> = topic.partitions.keys().copied().collect();
        let version = self.raise();
        for index in indexes {
            self.stamp(name, index, version);
        }
    }

    /// Shows a partition of a topic that is in the image; a no-op if it is shown so already.
    pub(crate) fn set_partition(&mut self, name: &TopicName, index: i32, partition: Partition) {
        let Some(topic) = self.cluster.topics.get_mut(name) else {
            return;
        };
        if topic.partitions.get(&index) == Some(&partition) {
            return;
        }
        topic.partitions.insert(index, partition);
        let version = self.raise();
        self.stamp(name, index, version);
    }

    /// Version in which a partition's state or settings last changed; 0 if it is not shown.
    pub(crate) fn version_of(&self, name: &TopicName, index: i32) -> u64 {
        self.stamps.get(name).and_then(|of| of.get(&index)).copied().unwrap_or(0)
    }

    fn stamp(&mut self, name: &TopicName, index: i32, version: u64) {
        let stamps = self.stamps.entry(name.clone()).or_default();
        if let Some(old) = stamps.insert(index, version) {
            self.changes.remove(&(old, name.clone(), index));
        }
        self.changes.insert((version, name.clone(), index));
    }

    /// Takes a topic out of the image and remembers that it is gone.
    pub(crate) fn remove_topic(&mut self, name: &TopicName) {
        let Some(topic) = self.cluster.topics.remove(name) else {
            return;
        };
        for (index, version) in self.stamps.remove(name).unwrap_or_default() {
            self.changes.remove(&(version, name.clone(), index));
        }
        let failing: Vec<BrokerId> = self.cluster.failed.keys().copied().collect();
        for broker in failing {
            let mut failed = self.cluster.failed.get(&broker).cloned().unwrap_or_default();
            failed.retain(|at| at.topic != *name);
            self.set_failed(broker, failed);
        }
        let version = self.raise();
        self.tombstones.insert((version, name.clone(), topic.incarnation));
        while self.tombstones.len() > TOMBSTONES_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((version, ..)) = self.tombstones.pop_first() {
            self.forgotten = self.forgotten.max(version);
        }
    }

    /// Every live broker has acknowledged `version`: deletions up to there need not be told again.
    pub(crate) fn acknowledged_by_all(&mut self, version: u64) {
        while self.tombstones.first().is_some_and(|t| t.0 <= version) {
            self.forget_oldest();
        }
    }

    /// Whether deletions wait for acknowledgements.
    pub(crate) fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// What a broker that holds version `since` lacks; everything for `None`, or if it is too far behind.
    pub(crate) fn delta(&self, since: Option<u64>) -> ClusterDelta {
        match since {
            Some(since) if since >= self.forgotten => self.changes_after(since),
            _ => ClusterDelta {
                full: true,
                brokers: Some(self.cluster.brokers.clone()),
                topics: self.cluster.topics.clone(),
                deleted: Vec::new(),
                failed: Some(self.cluster.failed.clone()),
                suspected: Some(self.cluster.suspected.clone()),
                broker_settings: Some(self.cluster.broker_settings.clone()),
                unreadable: self.cluster.unreadable.clone(),
            },
        }
    }

    fn changes_after(&self, since: u64) -> ClusterDelta {
        let mut delta = ClusterDelta::default();
        if self.brokers_version > since {
            delta.brokers = Some(self.cluster.brokers.clone());
        }
        if self.failed_version > since {
            delta.failed = Some(self.cluster.failed.clone());
        }
        if self.suspected_version > since {
            delta.suspected = Some(self.cluster.suspected.clone());
        }
        if self.settings_version > since {
            delta.broker_settings = Some(self.cluster.broker_settings.clone());
        }
        for (version, name, index) in self.changes.iter().rev() {
            if *version <= since {
                break;
            }
            let Some(topic) = self.cluster.topics.get(name) else { continue };
            let Some(partition) = topic.partitions.get(index) else { continue };
            let changed = delta.topics.entry(name.clone()).or_insert_with(|| TopicImage {
                incarnation: topic.incarnation,
                config: topic.config,
                overrides: topic.overrides.clone(),
                partitions: BTreeMap::new(),
            });
            changed.partitions.insert(*index, partition.clone());
        }
        for (version, name, incarnation) in self.tombstones.iter().rev() {
            if *version <= since {
                break;
            }
            delta.deleted.push((name.clone(), *incarnation));
        }
        delta
    }
}
