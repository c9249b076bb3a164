//! Planted bugs that live in the shell: what it tells a core that is not so.

use barnabas_replica::{Event, FetchPosition, FollowerFetch, Role};
use barnabas_types::{BrokerId, TopicPartition};

use super::{World, id_of, ix_of};
use crate::happening::Ix;
use crate::mutation::Mutation;

impl World {
    /// Tells a leader that members which it must wait for stand at its LEO: as if they were not counted.
    pub(crate) fn lie_for_absent(&mut self, b: Ix, at: &TopicPartition) {
        let Some(mutation) = self.options.mutation else { return };
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let Role::Leader { leader_epoch } = slot.replica.role() else { return };
        let committed: Vec<BrokerId> = slot.replica.isr().iter().map(|(id, _)| *id).collect();
        let proposed = slot.proposing.as_ref().map(|(_, proposal)| &proposal.isr);
        let uncounted: Vec<BrokerId> = match mutation {
            Mutation::HighWatermarkOverCommittedIsr => {
                slot.replica.maximal_isr().into_iter().filter(|m| !committed.contains(m)).collect()
            }
            Mutation::RefusalForgetsProposal
                if slot.proposing.is_none()
                    && slot.refused_at == slot.replica.partition_epoch() =>
            {
                slot.replica.maximal_isr().into_iter().filter(|m| !committed.contains(m)).collect()
            }
            Mutation::ShrinkAtOnce => {
                let Some(proposed) = proposed else { return };
                let dropped = |m: &BrokerId| !proposed.iter().any(|(id, _)| id == m);
                committed.into_iter().filter(dropped).collect()
            }
            _ => return,
        };
        let (log_start, log_end) = (slot.replica.log_start(), slot.replica.log_end());
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        let last_epoch = directory.last_epoch();
        let incarnation = slot.incarnation;
        if slot.told_to == Some((slot.replica.partition_epoch(), log_end)) {
            return;
        }
        let now = self.now_of(b);
        for follower in uncounted.into_iter().filter(|m| *m != id_of(b)) {
            let Some(broker_epoch) = self.processes[ix_of(follower)].broker_epoch else { continue };
            let position = FetchPosition {
                incarnation,
                broker_epoch,
                leader_epoch,
                last_epoch,
                log_end,
                flushed: log_end,
                log_start,
            };
            let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
            slot.told_to = Some((slot.replica.partition_epoch(), log_end));
            let mut effects = barnabas_replica::Effects::default();
            let fetch = FollowerFetch { follower, position, heard: 0 };
            slot.replica.step(now, Event::FollowerFetch(fetch), &mut effects);
            self.pass_on(b, at, &mut effects);
        }
    }

    /// A new follower cuts its log to its high watermark and begins again from there.
    pub(crate) fn cut_to_high_watermark(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        partition: &barnabas_types::Partition,
    ) {
        if !self.is_mutated(Mutation::TruncateToHighWatermark) {
            return;
        }
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let follows = partition.state.leader.is_some_and(|leader| leader != id_of(b));
        if !follows || slot.replica.leader_epoch() >= Some(partition.state.leader_epoch) {
            return;
        }
        let (incarnation, end) = (slot.incarnation, slot.replica.high_watermark());
        let Some(broker_epoch) = self.processes[b].broker_epoch else { return };
        if let Some(directory) = self.disks[b].directories.get_mut(at) {
            directory.truncate(end);
            directory.high_watermark = end;
        }
        self.processes[b].slots.remove(at);
        if self.open(b, at, incarnation, partition) {
            self.step_replica(b, at, Event::Registered { broker_epoch });
        }
    }

    /// A fetch as a leader with a planted bug takes it.
    pub(crate) fn misread_fetch(&self, b: Ix, at: &TopicPartition, fetch: &mut FollowerFetch) {
        let position = &mut fetch.position;
        if self.is_mutated(Mutation::DeadFetchCounts)
            && let Some(present) = self.processes[ix_of(fetch.follower)].broker_epoch
        {
            position.broker_epoch = present;
        }
        if self.is_mutated(Mutation::StaleFetchIsWitness)
            && let Some(slot) = self.processes[b].slots.get(at)
        {
            fetch.heard = slot.replica.roll_call();
        }
        if self.is_mutated(Mutation::DivergenceUnchecked)
            && let Some(directory) = self.disks[b].directories.get(at)
        {
            let before = usize::try_from(position.log_end.0 - 1).ok();
            let found = before.and_then(|at| directory.records.get(at));
            if let Some(record) = found.filter(|r| !r.is_hole()) {
                position.last_epoch = Some(record.epoch);
            }
        }
    }
}
