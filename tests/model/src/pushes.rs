//! The broker's end of a push: whom it concerns, the directory that it opens or deletes, and what may be forgotten of it (R4, R22, R27, R28).

use barnabas_replica::{Event, Replica, Role, StatePush};
use barnabas_simulator::disk::Directory;
use barnabas_types::{BrokerEpoch, ControllerEpoch, FlushMode};

use crate::broker::Broker;
use crate::mutation::Mutation;
use crate::node::{Push, incarnation};
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::replicas::OPTIONS;
use crate::world::{Ix, World, id_of};

/// Older than nothing: a tombstone for everything of a life.
const OVER: u8 = u8::MAX;

impl Protocol {
    /// A push arrives.
    pub(crate) fn push(&self, w: &mut World, push: Push) -> Option<()> {
        let b = usize::from(push.to);
        let broker = &w.brokers[b];
        let mine = push.target == broker.epoch || self.breaks(Mutation::NoPushTarget);
        let old = push.controller_epoch < broker.heard && !self.breaks(Mutation::OldPushesObeyed);
        if !broker.up() || !mine || old || !self.admits_push(w, push) {
            return None;
        }
        if push.node.assigned.has(b) {
            self.host(w, push)?;
        } else {
            self.unhost(w, push)?;
        }
        let counts = w.counts_acknowledgements();
        let broker = w.brokers[b].edit();
        broker.heard = broker.heard.max(push.controller_epoch);
        if counts {
            broker.applied = broker.applied.max((push.controller_epoch, push.version));
        }
        self.consider_mark(w, b);
        if self.breaks(Mutation::MarkClearedByPush) {
            w.brokers[b].edit().tail_lost = false;
        }
        Some(())
    }

    /// The push names this broker: opens its replica, if it is not open, and steps it.
    fn host(&self, w: &mut World, push: Push) -> Option<()> {
        let b = usize::from(push.to);
        let broker = &w.brokers[b];
        if broker.tombstone.is_some_and(|stone| push.node.age() <= stone) {
            return None;
        }
        let known = broker.replica.as_ref().map(|_| broker.life());
        let older = known.is_some_and(|life| push.node.life < life);
        if older && !self.breaks(Mutation::PushOfAnyLife) {
            return None;
        }
        if known != Some(push.node.life) {
            w.brokers[b].edit().close();
            self.make_directory(w, b, push.node.life);
            self.open(w, b);
        }
        self.before_push(w, push);
        let sync = self.mode_told(w, push);
        let known = accepted(&w.brokers[b]);
        self.step_replica(w, b, Event::State(self.state_push(w, push, sync)));
        let broker = &w.brokers[b];
        let taken = accepted(broker).is_some_and(|(.., epoch)| epoch == push.node.partition_epoch);
        (taken || accepted(broker) != known).then_some(())
    }

    /// A directory of another life is stray: put away before the replica is opened (R28).
    fn make_directory(&self, w: &mut World, b: Ix, life: u8) {
        let before = &w.brokers[b].directory;
        let there = w.brokers[b].life();
        if there == life {
            return;
        }
        if there != 0 && !before.records.is_empty() {
            self.reach(Reached::Stray);
        }
        let mut directory = Directory::new(incarnation(life));
        if there != 0 && self.breaks(Mutation::StrayDirectoryOpened) {
            directory = Directory { incarnation: incarnation(life), ..before.clone() };
        }
        w.brokers[b].edit().directory = directory;
    }

    /// A process opens the log of its directory.
    pub(crate) fn open(&self, w: &mut World, b: Ix) {
        let all_flushed = self.breaks(Mutation::LogEndTakenForFlushed);
        let broker = w.brokers[b].edit();
        let mut log = broker.directory.open();
        broker.directory.truncations = 0;
        if all_flushed {
            log.flushed = log.log_end;
        }
        broker.replica = Some(Replica::new(id_of(b), log, OPTIONS));
        self.registered(w, b);
    }

    /// The push does not name this broker: what is here of the partition goes (R22).
    fn unhost(&self, w: &mut World, push: Push) -> Option<()> {
        let b = usize::from(push.to);
        let broker = &w.brokers[b];
        if let Some(replica) = &broker.replica {
            let (told, known) = (push.node.life, broker.life());
            let goes = if push.node.is_gone() { told >= known } else { told > known };
            if told < known {
                return None;
            }
            if !goes && !replica.is_fenced() && !self.breaks(Mutation::DeleteOfAnyVersion) {
                self.step_replica(w, b, Event::State(self.state_push(w, push, push.sync)));
                let role = w.brokers[b].replica.as_ref().map(Replica::role);
                if role != Some(Role::Deleted) {
                    return None;
                }
            }
        }
        let broker = w.brokers[b].edit();
        if broker.life() != 0 {
            self.reach(Reached::ReplicaDeleted);
        }
        broker.close();
        broker.directory = Directory::new(incarnation(0));
        broker.planted.bad = None;
        let (life, ..) = push.node.age();
        let stone = if push.node.is_gone() { (life, OVER, OVER) } else { push.node.age() };
        if !self.breaks(Mutation::TombstoneForgotten) {
            broker.tombstone = broker.tombstone.max(Some(stone));
        }
        Some(())
    }

    fn state_push(&self, w: &World, push: Push, sync: bool) -> StatePush {
        let broker = &w.brokers[usize::from(push.to)];
        let any_target = self.breaks(Mutation::NoPushTarget);
        let target = if any_target { broker.epoch } else { push.target };
        StatePush {
            controller_epoch: ControllerEpoch(i32::from(push.controller_epoch)),
            broker_epoch: BrokerEpoch(i64::from(target)),
            incarnation: incarnation(push.node.life),
            partition: push.node.partition(),
            min_insync_replicas: self.min_insync_told(),
            flush_mode: if sync { FlushMode::Sync } else { FlushMode::Async },
        }
    }

    /// The broker is registered under its present epoch. What a failed sync has fenced is opened anew with the next push (R38).
    pub(crate) fn registered(&self, w: &mut World, b: Ix) {
        let broker = w.brokers[b].edit();
        if broker.is_fenced() {
            broker.close();
        }
        let broker_epoch = BrokerEpoch(i64::from(broker.epoch));
        self.step_replica(w, b, Event::Registered { broker_epoch });
    }

    /// R7: the mark goes when the accepted state names this incarnation as ISR member, or does not name the broker at all.
    pub(crate) fn consider_mark(&self, w: &mut World, b: Ix) {
        let broker = &w.brokers[b];
        let mine = BrokerEpoch(i64::from(broker.epoch));
        let member =
            broker.replica.as_ref().map_or(broker.life() == 0, |r| r.is_isr_member_under(mine));
        if broker.tail_lost && member {
            w.brokers[b].edit().tail_lost = false;
            self.reach(Reached::MarkCleared);
        }
    }

    /// Forgets the pushes that can have no effect any more.
    pub(crate) fn forget_pushes(&self, w: &mut World) {
        if self.breaks(Mutation::NoPushTarget) {
            return; // what is old here is new to the next incarnation
        }
        let brokers = &w.brokers;
        let all = w.pushes.clone();
        w.pushes.retain(|push| {
            let broker = &brokers[usize::from(push.to)];
            if !broker.up() || push.target != broker.epoch {
                return false;
            }
            if push.node.assigned.has(usize::from(push.to)) {
                self.may_host(broker, push)
            } else {
                self.may_delete(broker, push, &all)
            }
        });
    }

    fn may_host(&self, broker: &Broker, push: &Push) -> bool {
        if self.breaks(Mutation::OldPushesObeyed) {
            return true;
        }
        if push.controller_epoch < broker.heard
            || broker.tombstone.is_some_and(|stone| push.node.age() <= stone)
        {
            return false;
        }
        let Some((life, leader_epoch, partition_epoch)) = accepted(broker) else { return true };
        if push.node.life != life {
            return push.node.life > life || self.breaks(Mutation::PushOfAnyLife);
        }
        let node = &push.node;
        let newer = node.partition_epoch > partition_epoch && node.leader_epoch >= leader_epoch;
        let same = node.partition_epoch == partition_epoch && node.leader_epoch == leader_epoch;
        let settings = self.row.switches > 0 && push.sync != broker.is_sync();
        let version = (push.controller_epoch, push.version);
        newer || (same && (settings || (push.version > 0 && version > broker.applied)))
    }

    fn may_delete(&self, broker: &Broker, push: &Push, all: &[Push]) -> bool {
        if push.controller_epoch < broker.heard {
            return false;
        }
        let acknowledged = (push.controller_epoch, push.version) <= broker.applied;
        let waited_for = push.version > 0 && !acknowledged;
        if let Some((life, leader_epoch, partition_epoch)) = accepted(broker) {
            let node = &push.node;
            let newer = node.partition_epoch > partition_epoch && node.leader_epoch >= leader_epoch;
            return node.life > life
                || (node.life == life && (node.is_gone() || newer))
                || (node.life == life && self.breaks(Mutation::DeleteOfAnyVersion));
        }
        // What came before it must not be obeyed after it.
        let overtakes = |other: &Push| {
            (other.to, other.target) == (push.to, push.target)
                && other.node.assigned.has(usize::from(push.to))
                && other.controller_epoch <= push.controller_epoch
                && (push.node.is_gone() || other.node.age() <= push.node.age())
        };
        waited_for || broker.life() != 0 || all.iter().any(overtakes)
    }
}

/// (life, leader epoch, partition epoch) that the replica obeys.
fn accepted(broker: &Broker) -> Option<(u8, u8, u8)> {
    let replica = broker.replica.as_ref()?;
    let life = broker.life();
    Some((life, replica.leader_epoch()?.0 as u8, replica.partition_epoch()?.0 as u8))
}

impl Broker {
    /// Closes the replica: nobody waits on it any more, its HW is checkpointed.
    pub(crate) fn close(&mut self) {
        if self.replica.is_some() {
            self.directory.high_watermark = crate::world::offset(self.high_watermark());
        }
        self.replica = None;
        self.waiting = None;
    }

    fn is_sync(&self) -> bool {
        self.replica.as_ref().is_some_and(|r| r.flush_mode() == FlushMode::Sync)
    }
}
