//! After every event: the checkers look at the replicas that it may have changed.

use std::collections::BTreeSet;

use barnabas_replica::Role;
use barnabas_types::{BrokerId, FlushMode, Offset, TopicPartition};

use super::{World, ix_of};
use crate::checkers::ReplicaView;
use crate::disk::Directory;
use crate::happening::Ix;
use crate::mutation::Mutation;

impl World {
    /// Checks what the last event touched.
    pub(crate) fn inspect(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let touched: BTreeSet<(Ix, TopicPartition)> = self.touched.drain(..).collect();
        for (b, at) in touched {
            self.inspect_replica(b, &at);
        }
    }

    fn inspect_replica(&mut self, b: Ix, at: &TopicPartition) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        if slot.replica.is_fenced() {
            return; // It says nothing any more, and its log is being cut.
        }
        let life = (at.clone(), slot.incarnation.czxid);
        let replica = &slot.replica;
        let hw = replica.high_watermark();
        let view = self.replica_view(b, replica.log_start(), hw, directory);
        self.checkers.offsets(&life, view, replica.log_end(), replica.flushed());
        let state = (hw.0, directory.truncations);
        let changed = self.compared.get(&(b, at.clone())) != Some(&state);
        if let Role::Leader { leader_epoch } = replica.role() {
            let early = self.is_mutated(Mutation::ServedBeforeEpochStart).then_some(hw);
            let shown = replica.consumer_view(None).ok().map(|view| view.high_watermark);
            if let Some(visible) = shown.or(early) {
                self.checkers.shown(&life, b, leader_epoch, visible, directory);
            }
            self.check_isr(b, at);
        }
        if changed {
            self.compared.insert((b, at.clone()), state);
            self.compare(b, at);
        }
    }

    fn replica_view<'a>(
        &self,
        broker: Ix,
        log_start: Offset,
        high_watermark: Offset,
        directory: &'a Directory,
    ) -> ReplicaView<'a> {
        let start_must_be_durable = !self.is_mutated(Mutation::StartReportedBeforeDurable);
        ReplicaView { broker, log_start, start_must_be_durable, high_watermark, directory }
    }

    /// I5 with every other replica of the same life.
    fn compare(&mut self, b: Ix, at: &TopicPartition) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        let life = (at.clone(), slot.incarnation.czxid);
        let (start, hw) = (slot.replica.log_start(), slot.replica.high_watermark());
        let mine = self.replica_view(b, start, hw, directory);
        for (other, process) in self.processes.iter().enumerate() {
            let Some(theirs) = self.disks[other].directories.get(at) else { continue };
            if other == b || theirs.incarnation != slot.incarnation {
                continue;
            }
            let high_watermark = process
                .slots
                .get(at)
                .filter(|s| s.incarnation == slot.incarnation && !s.replica.is_fenced())
                .map_or(theirs.high_watermark, |s| s.replica.high_watermark());
            let view = self.replica_view(other, theirs.log_start, high_watermark, theirs);
            self.checkers.agree(&life, mine, view);
        }
    }

    /// I7 for a leader whose epoch is the one in the store.
    pub(crate) fn check_isr(&mut self, b: Ix, at: &TopicPartition) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let Some((topic, state)) = self.store.state(at) else { return };
        let epoch = slot.replica.leader_epoch();
        if topic.incarnation != slot.incarnation || epoch != Some(state.leader_epoch) {
            return;
        }
        // After a switch the HW may be above what was flushed before (R37).
        let sync = topic.config.flush_mode == FlushMode::Sync && topic.config_changes == 0;
        let positions: Vec<(BrokerId, Offset)> = state
            .isr
            .iter()
            .filter_map(|(id, _)| {
                let disk = &self.disks[ix_of(*id)];
                let directory = disk.directories.get(at)?;
                let whole = !disk.tail_lost && disk.boot == disk.last_boot;
                let position = if sync { directory.durable } else { directory.log_end() };
                (whole && directory.incarnation == slot.incarnation).then_some((*id, position))
            })
            .collect();
        let life = (at.clone(), slot.incarnation.czxid);
        let hw = slot.replica.high_watermark();
        self.checkers.within_isr(&life, b, (state.leader_epoch, hw), &positions);
    }
}
