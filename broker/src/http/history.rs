//! How ISRs and leaders have changed, as this broker has seen it: the last changes of all partitions, in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use barnabas_types::{BrokerId, ClusterImage, LeaderEpoch, Partition, Standing, TopicPartition};

/// Changes that are remembered, of all partitions together; beyond it the oldest go.
const CHANGES_MAX: usize = 10_000;
/// Changes of one partition that are told.
pub(super) const TOLD_MAX: usize = 50;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) at_ms: i64,
    /// As it is since then.
    pub(super) isr: Vec<BrokerId>,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) why: String,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct IsrHistory(Mutex<VecDeque<(TopicPartition, Change)>>);

impl IsrHistory {
    /// `before` became `after`. Returns the partitions of which state, leader or ISR are others now, also those that are new or gone.
    pub(super) fn note(
        &self,
        at_ms: i64,
        before: &ClusterImage,
        after: &ClusterImage,
    ) -> Vec<TopicPartition> {
        let mut changed = Vec::new();
        let mut found = Vec::new();
        for (name, topic) in &after.topics {
            let old = before.topics.get(name).filter(|old| old.incarnation == topic.incarnation);
            for (index, partition) in &topic.partitions {
                let known = old.and_then(|old| old.partitions.get(index));
                let stands = |image, topic| {
                    known.map(|known| Standing::of(image, name, topic, *index, known))
                };
                if known.is_some_and(|known| known.state == partition.state)
                    && old.is_some_and(|old| {
                        old.config == topic.config && stands(before, old) == stands(after, topic)
                    })
                {
                    continue;
                }
                let at = TopicPartition { topic: name.clone(), partition: *index };
                if let Some(known) = known.filter(|known| known.state != partition.state) {
                    let change = Change {
                        at_ms,
                        isr: partition.state.isr_ids(),
                        leader_epoch: partition.state.leader_epoch,
                        why: why(after, &at, known, partition),
                    };
                    found.push((at.clone(), change));
                }
                changed.push(at);
            }
        }
        let gone = before.topics.iter().filter(|(name, _)| !after.topics.contains_key(*name));
        let gone = gone.flat_map(|(name, topic)| {
            let of = |partition| TopicPartition { topic: name.clone(), partition };
            topic.partitions.keys().copied().map(of)
        });
        changed.extend(gone);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(found);
        let over = kept.len().saturating_sub(CHANGES_MAX);
        kept.drain(..over);
        changed
    }

    /// The last changes of a partition, the newest first.
    pub(super) fn of(&self, at: &TopicPartition) -> Vec<Change> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = kept.iter().rev().filter(|(known, _)| known == at);
        of.take(TOLD_MAX).map(|(_, change)| change.clone()).collect()
    }
}

/// What is other than before, in a few words.
fn why(image: &ClusterImage, at: &TopicPartition, before: &Partition, after: &Partition) -> String {
    let (old, new) = (&before.state, &after.state);
    let mut said = Vec::new();
    for (id, entry) in old.isr.iter().copied().filter(|(id, _)| !new.in_isr(*id)) {
        let how = match image.brokers.get(&id) {
            None => "is down",
            Some(_) if image.suspected.contains(&id) => {
                "is suspected: its process seems to be gone"
            }
            Some(broker) if broker.epoch != entry => "was started anew",
            Some(broker) if broker.draining => "is being emptied",
            Some(_) if !image.is_online(id, &at.topic, at.partition) => "cannot serve its replica",
            Some(_) => "fell behind",
        };
        said.push(format!("broker {id} left, it {how}"));
    }
    for id in new.isr_ids().into_iter().filter(|id| !old.in_isr(*id)) {
        said.push(format!("broker {id} joined, it has caught up"));
    }
    match (old.leader, new.leader) {
        (old, new) if old == new => {}
        (_, Some(id)) => said.push(format!("broker {id} leads")),
        (_, None) => said.push("nobody leads".to_owned()),
    }
    if said.is_empty() {
        said.push("confirmed".to_owned());
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use barnabas_types::{BrokerEpoch, TopicImage, TopicName};

    use super::*;
    use crate::testing::{registered, tp};

    fn image(brokers: &[i32], leader: Option<i32>, isr: &[i32]) -> ClusterImage {
        let mut partition =
            Partition { assigned_replicas: vec![BrokerId(1), BrokerId(2)], ..Partition::default() };
        partition.state.leader = leader.map(BrokerId);
        partition.state.isr = isr.iter().map(|id| (BrokerId(*id), BrokerEpoch(1))).collect();
        let mut image = ClusterImage::default();
        for id in brokers {
            image.brokers.insert(BrokerId(*id), registered(BrokerEpoch(1)));
        }
        let topic = TopicImage { partitions: [(0, partition)].into(), ..TopicImage::default() };
        image.topics.insert(TopicName::new("t").unwrap(), topic);
        image
    }

    #[test]
    fn each_change_is_told_with_its_reason_the_newest_first() {
        let history = IsrHistory::default();
        let (well, at) = (image(&[1, 2], Some(1), &[1, 2]), tp("t", 0));
        assert_eq!(
            history.note(1, &ClusterImage::default(), &well),
            std::slice::from_ref(&at),
            "it is new"
        );
        assert!(history.note(2, &well, &well).is_empty());
        let died = image(&[2], Some(2), &[2]);
        assert_eq!(history.note(3, &well, &died), std::slice::from_ref(&at));
        history.note(4, &died, &well);
        let behind = image(&[1, 2], Some(1), &[1]);
        history.note(5, &well, &behind);
        let none = image(&[2], None, &[1]);
        history.note(6, &behind, &none);
        let mut gone = image(&[1, 2], Some(2), &[2]);
        gone.suspected.insert(BrokerId(1));
        assert_eq!(history.note(7, &well, &gone), std::slice::from_ref(&at));
        let mut anew = image(&[1, 2], Some(1), &[1]);
        anew.brokers.insert(BrokerId(2), registered(BrokerEpoch(9)));
        history.note(7, &well, &anew);
        let mut suspect = well.clone();
        suspect.suspected.insert(BrokerId(1));
        assert_eq!(
            history.note(7, &well, &suspect),
            std::slice::from_ref(&at),
            "it is offline, though nothing of it has changed"
        );
        let told = history.of(&at);
        let whys: Vec<&str> = told.iter().map(|change| change.why.as_str()).collect();
        assert_eq!(
            whys,
            [
                "broker 2 left, it was started anew",
                "broker 1 left, it is suspected: its process seems to be gone; broker 2 leads",
                "nobody leads",
                "broker 2 left, it fell behind",
                "broker 1 joined, it has caught up; broker 1 leads",
                "broker 1 left, it is down; broker 2 leads",
            ]
        );
        assert_eq!((told[2].at_ms, &told[2].isr[..]), (6, &[BrokerId(1)][..]));
        assert_eq!(history.note(8, &none, &ClusterImage::default()), [at], "it is gone");
        assert!(history.of(&tp("t", 1)).is_empty());
    }

    #[test]
    fn only_the_last_changes_are_kept() {
        let history = IsrHistory::default();
        let (one, other) = (image(&[1, 2], Some(1), &[1, 2]), image(&[1, 2], Some(2), &[1, 2]));
        for n in 0..=CHANGES_MAX {
            let (before, after) = if n % 2 == 0 { (&one, &other) } else { (&other, &one) };
            history.note(i64::try_from(n).unwrap(), before, after);
        }
        assert_eq!(history.0.lock().unwrap().len(), CHANGES_MAX);
        assert_eq!(history.of(&tp("t", 0)).len(), TOLD_MAX);
    }
}
