//! What scripts do to the world and ask of it: one fault at a time, at the moment that the script chooses.

use barnabas_controller_core::Reassign;
use barnabas_replica::Role;
use barnabas_types::{
    Acks, BrokerId, Condition, Offset, PartitionState, TopicId, TopicName, TopicPartition,
};

use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::process::Pending;

/// What a producer was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// By whom.
    pub broker: Ix,
    /// What it had asked for.
    pub acks: Acks,
    /// The first of its records.
    pub value: u64,
    /// The answer.
    pub result: Result<Offset, Condition>,
    /// When, in virtual milliseconds.
    pub at_ms: u64,
}

impl World {
    /// Keeps the answers to producers from now on.
    pub fn keep_answers(&mut self) {
        self.answers.get_or_insert_default();
    }

    /// The answers that were kept, oldest first.
    #[must_use]
    pub fn answers(&self) -> &[Told] {
        self.answers.as_deref().unwrap_or_default()
    }

    pub(super) fn remember_answer(
        &mut self,
        broker: Ix,
        pending: &Pending,
        result: &Result<Offset, Condition>,
    ) {
        let at_ms = self.queue.now_ms();
        if let Some(answers) = &mut self.answers {
            let value = pending.values.first().copied().unwrap_or(0);
            let result = result.clone();
            answers.push(Told { broker, acks: pending.acks, value, result, at_ms });
        }
    }

    /// Asks the controller for a topic.
    pub fn create(&mut self, name: &TopicName) {
        let id = TopicId(self.ids.bytes16());
        if let Some(to) = self.some_controller() {
            let input = Input::CreateTopic { name: name.clone(), id };
            self.queue.after(1, Happening::Input { to, life: None, from: None, input });
        }
    }

    /// Whether there is one controller, and it knows every broker.
    #[must_use]
    pub fn is_assembled(&self) -> bool {
        let term = self.controller().and_then(|c| self.processes[c].term.as_ref());
        term.is_some_and(|term| term.controller.image().brokers.len() == self.swarm.brokers)
    }

    /// Asks the controller to move a partition to these brokers.
    pub fn move_to(&mut self, partition: &TopicPartition, brokers: &[Ix]) {
        let replicas = brokers.iter().map(|b| id_of(*b)).collect();
        self.ask_for_move(partition.clone(), Reassign::To { replicas, throttle: None });
    }

    /// Whether these brokers, in this order, hold the partition, and no move is under way.
    #[must_use]
    pub fn is_moved_to(&self, partition: &TopicPartition, brokers: &[Ix]) -> bool {
        let Some(assignment) = self.assignment_of(partition) else { return false };
        let ids: Vec<BrokerId> = brokers.iter().map(|b| id_of(*b)).collect();
        assignment.replicas == ids && !assignment.moving.is_under_way()
    }

    /// The brokers that hold a partition, in the order of its assignment.
    #[must_use]
    pub fn assigned_to(&self, partition: &TopicPartition) -> Vec<Ix> {
        let replicas = self.assignment_of(partition).map(|a| a.replicas).unwrap_or_default();
        replicas.into_iter().map(ix_of).collect()
    }

    /// Sends one to three records to a broker; the first of them.
    pub fn produce_at(&mut self, to: Ix, partition: &TopicPartition, acks: Acks) -> u64 {
        let first = self.values + 1;
        self.send_produce(to, partition.clone(), acks);
        first
    }

    /// A host's clock jumps ahead.
    pub fn jump_clock(&mut self, b: Ix, by_ms: u64) {
        self.reach(Reached::ClockJumped);
        self.clock_ahead_ms[b] += by_ms;
        self.note(Some(b), "clock jumps", || format!("by {by_ms} ms"));
    }

    /// SIGCONT, now.
    pub fn wake(&mut self, b: Ix) {
        let life = self.processes[b].life;
        self.go_on(b, life);
    }

    /// Messages from one broker to another are lost until [`World::mend`].
    pub fn cut(&mut self, from: Ix, to: Ix) {
        self.link[from][to] = false;
        self.note(Some(from), "cut link", || format!("to b{}", to + 1));
    }

    /// They pass again.
    pub fn mend(&mut self, from: Ix, to: Ix) {
        self.link[from][to] = true;
        self.note(Some(from), "heal link", || format!("to b{}", to + 1));
    }

    /// Nothing passes between a broker and the others, either way (`true`), or everything does again.
    pub fn isolate_broker(&mut self, b: Ix, isolated: bool) {
        for other in (0..self.swarm.brokers).filter(|o| *o != b) {
            if isolated {
                self.cut(b, other);
                self.cut(other, b);
            } else {
                self.mend(b, other);
                self.mend(other, b);
            }
        }
    }

    /// The ensemble does not hear of a broker any more (`true`), or again.
    pub fn part_from_store(&mut self, b: Ix, parted: bool) {
        if parted {
            self.cut_store(b);
        } else {
            self.heal_store(b);
        }
    }

    /// A partition's state as stored.
    #[must_use]
    pub fn stored_state(&self, partition: &TopicPartition) -> Option<&PartitionState> {
        self.store.state(partition).map(|(_, state)| state)
    }

    /// The leader as stored.
    #[must_use]
    pub fn leader_of(&self, partition: &TopicPartition) -> Option<Ix> {
        self.stored_state(partition)?.leader.map(ix_of)
    }

    /// Brokers in the ISR as stored.
    #[must_use]
    pub fn isr_of(&self, partition: &TopicPartition) -> Vec<Ix> {
        let isr = self.stored_state(partition).map(PartitionState::isr_ids).unwrap_or_default();
        isr.into_iter().map(ix_of).collect()
    }

    /// Whether every broker that holds the partition is in its ISR, under the epoch under which it is registered.
    #[must_use]
    pub fn is_in_sync(&self, partition: &TopicPartition) -> bool {
        let Some(state) = self.stored_state(partition) else { return false };
        let member = |b: Ix| {
            let registered = self.store.registrations.get(&id_of(b));
            registered.is_some_and(|r| state.isr_epoch_of(id_of(b)) == Some(r.node.epoch))
        };
        self.assigned_to(partition).into_iter().all(member)
    }

    /// Whether a broker has taken up the leadership that is stored.
    #[must_use]
    pub fn is_led_by(&self, partition: &TopicPartition, b: Ix) -> bool {
        let Some(state) = self.stored_state(partition) else { return false };
        let role = self.processes[b].slots.get(partition).map(|slot| slot.replica.role());
        let leads = Some(Role::Leader { leader_epoch: state.leader_epoch });
        state.leader == Some(id_of(b)) && role == leads
    }

    /// Whether a broker's registration is of its present session.
    #[must_use]
    pub fn is_registered(&self, b: Ix) -> bool {
        let registered = self.store.registrations.get(&BrokerId(id_of(b).0));
        let session = self.processes[b].client.session;
        registered.is_some_and(|r| Some(r.node.owner) == session)
    }

    /// How many records a broker's log of the partition has, on its disk or in its page cache.
    #[must_use]
    pub fn log_len(&self, partition: &TopicPartition, b: Ix) -> usize {
        self.disks[b].directories.get(partition).map_or(0, |d| d.records.len())
    }
}
