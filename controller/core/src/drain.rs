//! Emptying a broker before it stops (R25, R26): when it leaves an ISR, when it may stop, and what stands in the way.

use std::collections::BTreeMap;

use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterImage, Condition, Partition, PartitionState, TopicConfig,
    TopicPartition,
};

use crate::controller::Controller;
use crate::controller_api::{
    BrokerRegistration, DrainProgress, Effects, Obstruction, RequestId, StopVerdict,
};
use crate::decide::{Decision, View, describe, successor};

/// Most partitions that an answer names one by one: with the longest names they fit into one message.
pub const OBSTRUCTIONS_SHOWN_MAX: usize = 5_000;

/// Fewest live ISR members that must remain.
pub(crate) fn needed(min_insync_replicas: u32) -> usize {
    usize::try_from(min_insync_replicas).unwrap_or(usize::MAX).max(1)
}

/// Takes draining brokers out of an ISR whose members are all live and eligible, as far as enough others remain in it. One
/// that leads goes only if another one that is not draining can lead. `None`: nobody can leave now.
///
/// The brokers leave in the order in which they began to drain, the same for all partitions: two of them would otherwise wait
/// for one another, each in a partition that the other has left.
pub(crate) fn leave(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
) -> Option<Decision> {
    let mut isr = state.isr.clone();
    let mut leader = state.leader;
    let mut left: Vec<String> = Vec::new();
    for &broker in view.draining.iter().filter(|b| state.in_isr(**b)) {
        if isr.len() <= needed(view.min_insync_replicas) {
            break;
        }
        if leader == Some(broker) {
            let able = |b: &&BrokerId| isr.iter().any(|m| m.0 == **b) && !view.is_draining(**b);
            let Some(&next) = assigned.iter().find(able) else { continue };
            leader = Some(next);
        }
        isr.retain(|m| m.0 != broker);
        left.push(format!("broker {broker} is draining"));
    }
    if left.is_empty() {
        return None;
    }
    let next = successor(view, state, leader, leader != state.leader, isr);
    Some(Decision { text: describe(state, &next, &left.join(", ")), warn: false, state: next })
}

/// Why a broker cannot leave a partition.
enum Obstacle {
    OnlyReplica,
    NoSpare { replicas: usize, min: usize },
    TooFew { left: usize, min: usize },
    NoOtherLeader,
    Leaderless,
    UnderWay,
}

impl Obstacle {
    fn is_permanent(&self) -> bool {
        matches!(self, Self::OnlyReplica | Self::NoSpare { .. })
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OnlyReplica => write!(f, "it is the only replica; add one"),
            Self::NoSpare { replicas, min } => write!(
                f,
                "of {replicas} replicas min.insync.replicas asks for {min}; add a replica or lower min.insync.replicas"
            ),
            Self::TooFew { left, min } => {
                write!(f, "{left} live ISR members would be left, at least {min} are needed")
            }
            Self::NoOtherLeader => write!(f, "every other ISR member is draining too"),
            Self::Leaderless => write!(f, "it has no leader, and may need this replica"),
            Self::UnderWay => write!(f, "it is being moved away"),
        }
    }
}

/// Why `broker` cannot leave the partition now; `None`: it can, or has no part in it. Who is suspected counts for nothing: it is registered,
/// and its process is most likely gone.
fn obstacle(
    image: &ClusterImage,
    broker: BrokerId,
    (at, config, partition): (&TopicPartition, &TopicConfig, &Partition),
) -> Option<Obstacle> {
    let (assigned, state) = (&partition.assigned_replicas, &partition.state);
    if !assigned.contains(&broker) {
        return None;
    }
    let min = needed(config.min_insync_replicas);
    if assigned.len() == 1 {
        return Some(Obstacle::OnlyReplica);
    }
    if assigned.len() <= min {
        return Some(Obstacle::NoSpare { replicas: assigned.len(), min });
    }
    if state.leader.is_none() {
        return Some(Obstacle::Leaderless);
    }
    if !state.in_isr(broker) {
        return None;
    }
    let is_live = |&(member, entry): &(BrokerId, BrokerEpoch)| {
        !image.suspected.contains(&member)
            && image.brokers.get(&member).is_some_and(|b| b.epoch == entry)
            && image.is_online(member, &at.topic, at.partition)
    };
    let others = state.isr.iter().filter(|m| m.0 != broker && is_live(m));
    let left = others.clone().count();
    if left < min {
        return Some(Obstacle::TooFew { left, min });
    }
    let mut able = others.filter(|m| image.brokers.get(&m.0).is_some_and(|b| !b.draining));
    if state.leader == Some(broker) && able.next().is_none() {
        return Some(Obstacle::NoOtherLeader);
    }
    None
}

/// Whether `broker` may be stopped: whether every partition keeps a leader and min.insync.replicas without it, as far as
/// `image` tells.
#[must_use]
pub fn can_stop(image: &ClusterImage, broker: BrokerId) -> StopVerdict {
    let mut verdict = StopVerdict::default();
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let at = TopicPartition { topic: name.clone(), partition: *index };
            let of = (&at, &topic.config, partition);
            if let Some(obstacle) = obstacle(image, broker, of) {
                let never = obstacle.is_permanent();
                verdict.never |= never;
                verdict.partitions += 1;
                // Those that no waiting resolves come first.
                let text = obstacle.to_string();
                let shown = Obstruction { partition: at, reason: text, never };
                if verdict.obstructions.len() < OBSTRUCTIONS_SHOWN_MAX {
                    verdict.obstructions.push(shown);
                } else if never
                    && let Some(other) = verdict.obstructions.iter_mut().find(|o| !o.never)
                {
                    *other = shown;
                }
            }
        }
    }
    verdict.obstructions.sort_by_key(|o| !o.never);
    verdict
}

impl Controller {
    /// Whether `broker` may be stopped.
    ///
    /// # Errors
    /// It is not registered.
    pub fn can_stop(&self, broker: BrokerId) -> Result<StopVerdict, Condition> {
        if !self.image().brokers.contains_key(&broker) {
            return Err(unregistered(broker));
        }
        Ok(can_stop(self.image(), broker))
    }

    /// Whether the registration that is known says so: else it must be read again before `ControllerEvent::Drain` is stepped.
    #[must_use]
    pub fn knows_draining(&self, broker: BrokerId, epoch: BrokerEpoch, draining: bool) -> bool {
        let known = self.image().brokers.get(&broker);
        known.is_some_and(|b| b.epoch == epoch && b.draining == draining)
    }

    /// A draining broker asks how far it has come. That it may stop is said of the stored state, and when the leaders of its
    /// partitions, and it itself, have acknowledged the state without it (R26c).
    pub(crate) fn drain(
        &mut self,
        request: RequestId,
        (broker, epoch): (BrokerId, BrokerEpoch),
        draining: bool,
        effects: &mut Effects,
    ) {
        let answer = self.drain_progress(broker, epoch, draining);
        effects.drain_answers.push((request, answer));
    }

    fn drain_progress(
        &mut self,
        broker: BrokerId,
        epoch: BrokerEpoch,
        draining: bool,
    ) -> Result<DrainProgress, Condition> {
        let present = self.image().brokers.get(&broker).ok_or_else(|| unregistered(broker))?;
        if present.epoch != epoch {
            return Err(Condition::StaleBrokerEpoch { asked: epoch, present: present.epoch });
        }
        if present.draining != draining {
            let is = if present.draining { "is" } else { "is not" };
            return Err(Condition::InvalidRequest(format!("broker {broker} {is} draining")));
        }
        if !draining {
            return Ok(DrainProgress::default());
        }
        let mut progress = DrainProgress::default();
        let mut leaders = vec![broker];
        let takes_part = |s: &PartitionState| s.leader == Some(broker) || s.in_isr(broker);
        for (name, topic) in &self.topics {
            for (index, slot) in &topic.slots {
                if !slot.assignment.replicas.contains(&broker) {
                    continue;
                }
                if !slot.concerns(takes_part) {
                    leaders.extend(slot.shown().state.leader);
                    continue;
                }
                progress.partitions += 1;
                if progress.obstructions.len() < OBSTRUCTIONS_SHOWN_MAX {
                    let at = TopicPartition { topic: name.clone(), partition: *index };
                    let shown = slot.shown();
                    let obstacle = obstacle(self.image(), broker, (&at, &topic.config, &shown));
                    let obstacle = obstacle.unwrap_or(Obstacle::UnderWay);
                    let (reason, never) = (obstacle.to_string(), obstacle.is_permanent());
                    progress.obstructions.push(Obstruction { partition: at, reason, never });
                }
            }
        }
        // What is being created counted it before it drained.
        for creating in self.creating.values() {
            let with = creating.partitions.values().filter(|(_, state)| takes_part(state));
            progress.partitions += with.count();
        }
        for growing in self.topics.values().filter_map(|topic| topic.growing.as_ref()) {
            progress.partitions += growing.states().filter(|state| takes_part(state)).count();
        }
        if progress.partitions > 0 {
            self.drained_at.remove(&broker);
            return Ok(progress);
        }
        let version = self.version();
        let since = *self.drained_at.entry(broker).or_insert(version);
        let acked = |b: &BrokerId| self.acked.get(b).copied().unwrap_or(0) >= since;
        progress.may_stop = leaders.iter().all(acked);
        Ok(progress)
    }

    /// The registrations changed: who began to drain, in this order, after those who do already. What was known of others
    /// is void.
    pub(crate) fn note_draining(&mut self, brokers: &BTreeMap<BrokerId, BrokerRegistration>) {
        let drains = |id: &BrokerId| brokers.get(id).is_some_and(|b| b.draining);
        let same = |id: &BrokerId| {
            self.image().brokers.get(id).map(|b| b.epoch) == brokers.get(id).map(|b| b.epoch)
        };
        let mut order: Vec<BrokerId> =
            self.draining.iter().copied().filter(|id| drains(id) && same(id)).collect();
        let kept = order.clone();
        order.extend(brokers.keys().copied().filter(|id| drains(id) && !kept.contains(id)));
        self.drained_at.retain(|id, _| kept.contains(id));
        self.draining = order;
    }
}

pub(crate) fn unregistered(broker: BrokerId) -> Condition {
    Condition::InvalidRequest(format!(
        "broker {broker} is not registered; see who is with: barnabas broker list"
    ))
}
