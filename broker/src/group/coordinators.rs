//! Which partitions of the offsets topic this broker coordinates.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use barnabas_group::{GroupError, Settings, Waiter};
use barnabas_replica::Role;
use barnabas_types::TopicName;
use tokio::runtime::Handle;

use super::coordinator::Coordinator;
use super::offsets_topic::{self, OFFSETS_TOPIC, partition_of};
use crate::config::GroupConfig;
use crate::node::Node;
use crate::partition::Hosted;

/// The coordinators of this broker: one for each partition of the offsets topic that it leads.
pub struct Coordinators {
    node: Weak<Node>,
    data: Handle,
    settings: Settings,
    /// Lock order: this one, then a partition.
    led: Mutex<BTreeMap<i32, Coordinator>>,
    /// The broker is stopping: nothing is coordinated any more, whatever the image says.
    ended: AtomicBool,
    next_waiter: AtomicU64,
    /// Held by whoever creates the offsets topic.
    pub(super) creating: tokio::sync::Mutex<()>,
}

impl Coordinators {
    /// None yet. Their tasks run on `data`.
    #[must_use]
    pub fn new(node: Weak<Node>, data: Handle, config: &GroupConfig) -> Self {
        let ms = |ms: i32| u64::try_from(ms).unwrap_or(0);
        let settings = Settings {
            initial_rebalance_delay_ms: config.initial_rebalance_delay_ms,
            session_timeout_min_ms: ms(config.min_session_timeout_ms),
            session_timeout_max_ms: ms(config.max_session_timeout_ms),
            group_size_max: config.max_size,
            offset_metadata_bytes_max: config.offset_metadata_max_bytes,
            offsets_retention_ms: config.offsets_retention_ms.unsigned_abs(),
            retention_check_interval_ms: config.retention_check_interval_ms,
        };
        Self {
            node,
            data,
            settings,
            led: Mutex::default(),
            ended: AtomicBool::new(false),
            next_waiter: AtomicU64::new(0),
            creating: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Coordinator>> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A name for one more request.
    pub fn next_waiter(&self) -> Waiter {
        Waiter(self.next_waiter.fetch_add(1, Ordering::Relaxed))
    }

    /// The role of a replica may have changed. What counts is what its role is now, so that news that overtake one another
    /// do no harm.
    pub fn role_changed(&self, hosted: &Arc<Hosted>) {
        if hosted.topic_partition.topic.as_str() != OFFSETS_TOPIC {
            return;
        }
        let Some(node) = self.node.upgrade() else { return };
        let partition = hosted.topic_partition.partition;
        let mut led = self.lock();
        let wanted = match hosted.role() {
            Role::Leader { leader_epoch } => Some(leader_epoch),
            Role::Idle | Role::Follower { .. } | Role::Leaderless { .. } | Role::Deleted => None,
        };
        if let Some(present) = led.get(&partition) {
            let (incarnation, leader_epoch) = present.stands_on();
            if incarnation > hosted.incarnation
                || (incarnation == hosted.incarnation && wanted == Some(leader_epoch))
            {
                return;
            }
            present.end();
            led.remove(&partition);
        }
        if let Some(leader_epoch) = wanted {
            let coordinator = Coordinator::start(node, hosted.clone(), leader_epoch, &self.data);
            led.insert(partition, coordinator);
        }
    }

    /// The coordinator of a group, if this broker is it.
    ///
    /// # Errors
    /// [`GroupError::NotCoordinator`]: another broker is. [`GroupError::CoordinatorLoadInProgress`]: this broker is to be it and has
    /// not begun yet. Brokers hear of a new offsets topic one after the other, and whoever hears first names its leaders; so one
    /// that has not heard of the topic at all was named too, or nobody would ask it. On "load in progress" every client asks
    /// the same broker again, on "not the coordinator" librdkafka hands the error of an OffsetFetch to its user.
    pub fn of_group(&self, group_id: &str) -> Result<Coordinator, GroupError> {
        let node = self.node.upgrade().ok_or(GroupError::NotCoordinator)?;
        let image = node.view.image();
        let is_named = match offsets_topic::of(&image) {
            None => true,
            Some(topic) => {
                let partition = partition_of(group_id, topic.partitions.len());
                if let Some(present) = self.lock().get(&partition) {
                    return Ok(present.clone());
                }
                topic.partitions.get(&partition).is_some_and(|p| p.state.leader == Some(node.me))
            }
        };
        if is_named && !self.ended.load(Ordering::Acquire) {
            Err(GroupError::CoordinatorLoadInProgress)
        } else {
            Err(GroupError::NotCoordinator)
        }
    }

    /// All of this broker, by partition.
    pub fn all(&self) -> Vec<Coordinator> {
        self.lock().values().cloned().collect()
    }

    /// These topics are gone, and with them what groups have committed in them.
    pub fn topics_deleted(&self, topics: &[TopicName]) {
        if topics.is_empty() {
            return;
        }
        let names: Vec<Arc<str>> = topics.iter().map(|name| name.as_str().into()).collect();
        for coordinator in self.lock().values() {
            coordinator.topics_deleted(names.clone());
        }
    }

    /// Nothing is coordinated any more: the broker is stopping.
    pub fn end_all(&self) {
        self.ended.store(true, Ordering::Release);
        for coordinator in std::mem::take(&mut *self.lock()).into_values() {
            coordinator.end();
        }
    }
}
