//! Epochs in ZooKeeper, watched: none goes down, and no leader epoch has two leaders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Faults;
use crate::Outcome;
use crate::wait::next_look;
use crate::znodes::{PartitionNode, Znodes};

/// How long one look may take before ZooKeeper counts as gone and is connected to anew.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Epochs {
    controller_epoch: Option<i64>,
    controllers: BTreeMap<i64, i64>,
    partitions: BTreeMap<(String, i32), PartitionNode>,
    leaders: BTreeMap<(String, i32, i64), i64>,
}

impl Epochs {
    /// Notes who is controller in which epoch; what is wrong with it.
    pub fn controller(&mut self, id: i64, epoch: i64) -> Option<String> {
        let before = self.controllers.insert(epoch, id);
        if let Some(before) = before.filter(|before| *before != id) {
            return Some(format!("controller epoch {epoch} was of broker {before} and is of {id}"));
        }
        let last = self.controller_epoch.replace(epoch);
        let last = last.filter(|last| *last > epoch)?;
        Some(format!("the controller epoch went from {last} to {epoch}"))
    }

    /// Notes the state of a partition; what is wrong with it.
    pub fn partition(&mut self, topic: &str, index: i32, state: &PartitionNode) -> Option<String> {
        let PartitionNode { leader, leader_epoch, .. } = *state;
        let before = self.partitions.insert((topic.to_owned(), index), state.clone());
        if let Some(before) = before
            && (before.leader_epoch > leader_epoch || before.version > state.version)
        {
            return Some(format!("{topic}-{index} went from {before:?} to {state:?}"));
        }
        let known = self.leaders.entry((topic.to_owned(), index, leader_epoch)).or_insert(leader);
        (*known != leader).then(|| {
            format!(
                "{topic}-{index}: leader epoch {leader_epoch} was of {known} and is of {leader}"
            )
        })
    }

    /// Leader epochs beyond the first of each partition.
    #[must_use]
    pub fn elections(&self) -> u64 {
        (self.leaders.len() - self.partitions.len()) as u64
    }
}

/// Looks again and again until told to stop.
pub async fn run(
    connect: String,
    topics: Vec<String>,
    epochs: Arc<Mutex<Epochs>>,
    faults: Faults,
    mut stop: watch::Receiver<bool>,
) {
    let mut znodes = None;
    while !*stop.borrow_and_update() {
        let look = async {
            let now = match &znodes {
                Some(znodes) => Znodes::clone(znodes),
                None => Znodes::connect(&connect).await?,
            };
            look(&now, &topics, &epochs, &faults).await?;
            Ok::<_, crate::Fault>(now)
        };
        // While ZooKeeper is away nothing can be seen, and nothing can change.
        znodes = tokio::time::timeout(LOOK_MAX, look).await.ok().and_then(Result::ok);
        next_look().await;
    }
}

async fn look(
    znodes: &Znodes,
    topics: &[String],
    epochs: &Mutex<Epochs>,
    faults: &Faults,
) -> Outcome<()> {
    let controller = znodes.controller().await?;
    if let Some((id, epoch)) = controller {
        faults.extend(epochs.lock().unwrap_or_else(PoisonError::into_inner).controller(id, epoch));
    }
    for topic in topics {
        let states = znodes.partitions(topic).await?;
        let mut epochs = epochs.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, state) in states {
            faults.extend(epochs.partition(topic, index, &state));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(leader: i64, leader_epoch: i64, version: i32) -> PartitionNode {
        PartitionNode { leader, leader_epoch, controller_epoch: 1, isr: vec![1, 2], version }
    }

    #[test]
    fn epochs_that_rise_are_fine_and_counted() {
        let mut epochs = Epochs::default();
        for (leader, leader_epoch, version) in [(1, 0, 0), (1, 0, 1), (-1, 1, 2), (2, 2, 3)] {
            assert_eq!(epochs.partition("t", 0, &state(leader, leader_epoch, version)), None);
        }
        assert_eq!(epochs.elections(), 2);
        assert_eq!(epochs.controller(1, 1), None);
        assert_eq!(epochs.controller(1, 1), None);
        assert_eq!(epochs.controller(2, 3), None);
    }

    #[test]
    fn one_that_goes_down_or_has_two_leaders_is_told() {
        let mut epochs = Epochs::default();
        assert_eq!(epochs.partition("t", 0, &state(1, 5, 7)), None);
        assert!(epochs.partition("t", 0, &state(1, 4, 8)).is_some());
        assert_eq!(epochs.partition("t", 0, &state(1, 6, 9)), None);
        assert!(epochs.partition("t", 0, &state(2, 6, 10)).is_some());
        assert!(epochs.partition("t", 0, &state(2, 7, 9)).is_some());
        assert_eq!(epochs.controller(1, 2), None);
        assert!(epochs.controller(3, 2).is_some());
        assert!(epochs.controller(1, 1).is_some());
    }
}
