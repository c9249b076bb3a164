//! I1, I2, I8 and I9 on every write of a partition's state, I7 on every advance of a leader's high watermark.

use barnabas_types::{
    BrokerId, ControllerEpoch, LeaderEpoch, Offset, Partition, PartitionState, invariants,
};

use super::{Checkers, Life};

/// A state node was written.
#[derive(Clone, Copy)]
pub struct StateWrite<'a> {
    /// Assigned replicas.
    pub assigned: &'a [BrokerId],
    /// Before; `None`: created.
    pub before: Option<&'a PartitionState>,
    /// After.
    pub after: &'a PartitionState,
    /// The writer's term.
    pub writer: ControllerEpoch,
    /// `/controller_epoch` at that moment.
    pub present: ControllerEpoch,
    /// The new leader's registration says that it may have lost its tail, or there is none.
    pub leader_doubtful: bool,
    /// An operator asked for an unclean election, and this is it.
    pub demanded: bool,
}

/// What a state write was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteKind {
    /// Elected without the guarantee of a clean choice.
    pub unclean: bool,
    /// Elected from all replicas' logs, topic clean.
    pub longest_log: bool,
}

impl Checkers {
    /// See the module's head.
    pub fn state_written(&mut self, life: &Life, write: StateWrite<'_>) -> WriteKind {
        let StateWrite { before, after, .. } = write;
        if write.writer != write.present {
            self.broken(
                "I9",
                format!(
                    "{}: written by the controller of epoch {} while {} is in force",
                    life.0, write.writer, write.present
                ),
            );
        }
        let partition = Partition {
            assigned_replicas: write.assigned.to_vec(),
            state: after.clone(),
            ..Partition::default()
        };
        if !invariants::i8_isr_within_assignment(&partition) {
            self.broken("I8", format!("{}: {after:?} of {:?}", life.0, write.assigned));
        }
        let Some(history) = self.histories.get_mut(life) else { return WriteKind::default() };
        let newest = (after.leader_epoch, after.partition_epoch);
        let old = history.newest;
        history.newest = newest;
        let mut kind = WriteKind::default();
        let mut two_leaders = None;
        if let Some(leader) = after.leader {
            let chosen = *history.chosen.entry(after.leader_epoch).or_insert(leader);
            two_leaders = (chosen != leader).then_some((chosen, leader));
            let elected = before.is_some_and(|b| b.leader_epoch < after.leader_epoch);
            let was_member = before.is_some_and(|b| b.in_isr(leader));
            if elected && (!was_member || write.leader_doubtful) {
                kind.unclean = history.config.unclean_leader_election || write.demanded;
                kind.longest_log = !kind.unclean;
                if kind.unclean {
                    history.unclean.push(after.leader_epoch);
                } else {
                    history.recovered.push(after.leader_epoch);
                }
            }
        }
        if newest.0 < old.0 || newest.1 <= old.1 {
            self.broken("I2", format!("{}: epochs {newest:?} after {old:?}", life.0));
        }
        if let Some((chosen, leader)) = two_leaders {
            self.broken(
                "I1",
                format!("{} epoch {}: {chosen} and {leader} chosen", life.0, after.leader_epoch),
            );
        }
        kind
    }

    /// I7: no committed ISR member of this epoch stands below the leader's HW. `positions`: what each member that has
    /// not lost its tail holds for certain. Not asked of the winner of an unclean election: it may bring an HW from a time
    /// when it was catching up, above what it has flushed itself.
    pub fn within_isr(
        &mut self,
        life: &Life,
        broker: usize,
        (epoch, high_watermark): (LeaderEpoch, Offset),
        positions: &[(BrokerId, Offset)],
    ) {
        if self.histories.get(life).is_some_and(|h| h.unclean.contains(&epoch)) {
            return;
        }
        let offsets: Vec<Offset> = positions.iter().map(|(_, at)| *at).collect();
        if !invariants::i7_hw_within_maximal_isr(high_watermark, &offsets) {
            self.broken(
                "I7",
                format!(
                    "{} broker {} epoch {epoch}: HW {high_watermark}, while the committed ISR stands at {positions:?}",
                    life.0,
                    broker + 1
                ),
            );
        }
    }
}
