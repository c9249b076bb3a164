//! Producers that write to whom they believe to lead, and the operator who asks controllers for topics.

use barnabas_types::{Acks, TopicId, TopicName, TopicPartition};

use super::{World, ix_of};
use crate::happening::{Happening, Input, Ix};
use crate::store::TopicNode;

/// Most partitions that a topic grows to: more make a run slower, not wider.
const PARTITIONS_MAX: usize = 4;

impl World {
    /// A producer sends a request, mostly to a leader, sometimes to a broker that has lost the role or never had it.
    pub(crate) fn produce(&mut self) {
        if self.healed {
            return;
        }
        let mean = self.swarm.produce_interval_ms;
        let next = self.choice.range(1, 2 * mean);
        self.queue.after(next, Happening::Produce);
        let Some(at) = self.some_partition() else { return };
        let asked = self.choice.index(self.swarm.brokers);
        let believed = self.processes[asked]
            .image
            .topics
            .get(&at.topic)
            .and_then(|topic| topic.partitions.get(&at.partition))
            .and_then(|partition| partition.state.leader)
            .map(ix_of);
        let to = match believed {
            Some(leader) if self.choice.chance(850) => leader,
            _ => self.choice.index(self.swarm.brokers),
        };
        let acks = match self.choice.below(10) {
            0 => Acks::None,
            1..=3 => Acks::Leader,
            _ => Acks::All,
        };
        self.send_produce(to, at, acks);
    }

    pub(crate) fn send_produce(&mut self, to: Ix, partition: TopicPartition, acks: Acks) {
        let count = self.choice.range(1, 3);
        let values = (0..count).map(|i| self.values + 1 + i).collect();
        self.values += count;
        let delay = self.net.range(1, self.swarm.net_delay_ms_max);
        let input = Input::Produce { partition, acks, values };
        self.queue.after(delay, Happening::Input { to, life: None, from: None, input });
    }

    /// Sends one request at acks=all to the leader of every partition; how many.
    pub(crate) fn produce_last_words(&mut self) -> u64 {
        let leaders: Vec<(TopicPartition, Ix)> = self
            .all_partitions()
            .into_iter()
            .filter_map(|at| {
                let leader = self.store.state(&at).and_then(|(_, state)| state.leader)?;
                Some((at, ix_of(leader)))
            })
            .collect();
        let count = leaders.len() as u64;
        for (at, leader) in leaders {
            self.send_produce(leader, at, Acks::All);
        }
        count
    }

    pub(crate) fn all_partitions(&self) -> Vec<TopicPartition> {
        let topics = self.store.topics.iter();
        topics
            .flat_map(|(topic, node)| {
                let of = |p: &i32| TopicPartition { topic: topic.clone(), partition: *p };
                node.partitions.keys().map(of).collect::<Vec<_>>()
            })
            .collect()
    }

    pub(crate) fn some_partition(&mut self) -> Option<TopicPartition> {
        let all = self.all_partitions();
        self.some_of(&all)
    }

    /// One of these, if there is any.
    pub(crate) fn some_of(&mut self, all: &[TopicPartition]) -> Option<TopicPartition> {
        if all.is_empty() {
            return None;
        }
        Some(all[self.choice.index(all.len())].clone())
    }

    /// An operator asks whoever believes to be controller; after a deposal that may be the wrong one.
    pub(crate) fn some_controller(&mut self) -> Option<Ix> {
        let acting: Vec<Ix> =
            (0..self.swarm.brokers).filter(|b| self.processes[*b].acts_as_controller()).collect();
        if acting.is_empty() {
            return None;
        }
        let index = self.choice.index(acting.len());
        Some(acting[index])
    }

    /// Names that this world uses.
    pub(crate) fn topic_names(&self) -> Vec<TopicName> {
        (0..self.swarm.topics).filter_map(|i| TopicName::new(&format!("t{i}")).ok()).collect()
    }

    pub(crate) fn ask_for_topic(&mut self) {
        let missing: Vec<TopicName> = self
            .topic_names()
            .into_iter()
            .filter(|name| !self.store.topics.contains_key(name))
            .collect();
        if missing.is_empty() {
            return;
        }
        let name = missing[self.choice.index(missing.len())].clone();
        let id = TopicId(self.ids.bytes16());
        if let Some(to) = self.some_controller() {
            self.note(Some(to), "create topic", || name.to_string());
            let input = Input::CreateTopic { name, id };
            self.queue.after(1, Happening::Input { to, life: None, from: None, input });
        }
    }

    pub(crate) fn ask_for_partition(&mut self) {
        let small = |topic: &TopicNode| topic.partitions.len() < PARTITIONS_MAX;
        let names: Vec<TopicName> =
            self.store.topics.iter().filter(|(_, t)| small(t)).map(|(n, _)| n.clone()).collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.choice.index(names.len())].clone();
        if let Some(to) = self.some_controller() {
            self.note(Some(to), "add partition", || name.to_string());
            let input = Input::AddPartition { name };
            self.queue.after(1, Happening::Input { to, life: None, from: None, input });
        }
    }

    pub(crate) fn ask_for_deletion(&mut self) {
        let names: Vec<TopicName> = self.store.topics.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.choice.index(names.len())].clone();
        if let Some(to) = self.some_controller() {
            self.note(Some(to), "delete topic", || name.to_string());
            let input = Input::DeleteTopic { name };
            self.queue.after(1, Happening::Input { to, life: None, from: None, input });
        }
    }
}
