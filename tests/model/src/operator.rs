//! What an operator asks a controller for: moves of replicas, topics deleted and made again, unclean elections, another flush mode.

use barnabas_controller_core::{
    AlterConfig, ControllerEvent, CreateTopic, ElectLeaders, ElectPartition, Election, Reassign,
    RequestId,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerEpoch, ConfigEntity, PartitionEpoch};

use crate::mutation::Mutation;
use crate::node::{Mask, brokers_in, incarnation};
use crate::planted::Twist;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::world::{Ix, World, id_of, partition};

/// Nobody looks at who asked.
const REQUEST: RequestId = RequestId(0);

impl Protocol {
    /// An operator wants the partition on these brokers.
    pub(crate) fn reassign(&self, w: &mut World, target: Mask) -> Option<()> {
        let k = w.present_term();
        w.spent.moves += 1;
        let replicas = brokers_in(target).map(id_of).collect();
        let wish = Reassign::To { replicas, throttle: None };
        let event = ControllerEvent::Reassign { request: REQUEST, partition: partition(), wish };
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    /// An operator deletes the topic.
    pub(crate) fn delete_topic(&self, w: &mut World) -> Option<()> {
        let k = w.present_term();
        w.spent.lives += 1;
        let topic = partition().topic;
        let event = ControllerEvent::DeleteTopic { request: REQUEST, topic };
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    /// An operator makes the topic again, under the same name.
    pub(crate) fn create_topic(&self, w: &mut World) -> Option<()> {
        let k = w.present_term();
        let replicas = brokers_in(self.row.assigned).map(id_of).collect();
        let topic = CreateTopic {
            name: partition().topic,
            topic_id: incarnation(w.lives + 1).topic_id,
            partitions: None,
            replication_factor: None,
            assignment: [(0, replicas)].into(),
            overrides: self.overrides(w.sync),
            validate_only: false,
        };
        let event = ControllerEvent::CreateTopic { request: REQUEST, topic };
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    /// An operator is shown the partition as it is.
    pub(crate) fn show(&self, w: &mut World) -> Option<()> {
        let image = w.terms[w.present_term()].controller.image();
        let state = &image.topics.get(&partition().topic)?.partitions.get(&0)?.state;
        w.shown = Some((state.leader_epoch.0 as u8, state.partition_epoch.0 as u8));
        Some(())
    }

    /// An operator wants the partition led, whatever is lost of what there was when it was shown to him (R39).
    pub(crate) fn elect_uncleanly(&self, w: &mut World) -> Option<()> {
        if !self.row.shown_earlier {
            self.show(w)?;
        }
        let k = w.present_term();
        let (shown_epoch, shown_version) = w.shown.take()?;
        let bound = !self.breaks(Mutation::UncleanOfAnyVersion);
        let expected = bound.then_some(PartitionEpoch(i32::from(shown_version)));
        let member = |b: &Ix| w.node.isr[*b] != 0;
        let back = |b: &Ix| w.registered[*b].is_some_and(|r| !r.tail_lost);
        let race = (0..crate::world::BROKERS).any(|b| member(&b) && back(&b));
        let elect = ElectLeaders {
            election: Election::Unclean { to: None },
            partitions: vec![ElectPartition { partition: partition(), expected }],
        };
        let before = w.node;
        let event = ControllerEvent::ElectLeaders { request: REQUEST, elect };
        self.step_controller(w, k, event, Twist::None)?;
        if w.node == before {
            return None;
        }
        if race {
            self.reach(Reached::UncleanRace);
        }
        w.spent.unclean += 1;
        w.history.give_up_before(shown_epoch + 1);
        (w.history.seen, w.history.visible) = Default::default();
        Some(())
    }

    /// An operator wants `flush.mode=sync` from now on (R37).
    pub(crate) fn switch_to_sync(&self, w: &mut World) -> Option<()> {
        let k = w.present_term();
        w.spent.switches += 1;
        let changes = vec![("flush.mode".to_owned(), SettingChange::Set("sync".to_owned()))];
        let entity = ConfigEntity::Topic(partition().topic);
        let alter = AlterConfig { entity, replace: false, changes, validate_only: false };
        let event = ControllerEvent::AlterConfig { request: REQUEST, alter };
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    /// A broker's acknowledgement of the newest push that it obeyed reaches the term that pushed it.
    pub(crate) fn acknowledge(&self, w: &mut World, k: usize, b: Ix) -> Option<()> {
        let broker = &w.brokers[b];
        let (term, version) = broker.applied;
        if !broker.up() || usize::from(term) != k + 1 {
            return None;
        }
        let event = ControllerEvent::PushAcked {
            broker: id_of(b),
            broker_epoch: BrokerEpoch(i64::from(broker.epoch)),
            version: u64::from(version),
            reports: Vec::new(),
        };
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }
}
