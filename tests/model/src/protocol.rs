//! The protocol under a row: the first world, what observers see after each action, and what may be forgotten.

use std::sync::Arc;

use barnabas_replica::{Event, Replica};
use barnabas_simulator::disk::Directory;
use barnabas_types::{BrokerEpoch, FlushMode, LeaderEpoch, PartitionEpoch};

use crate::mutation::Mutation;
use crate::reached::{Coverage, Reached};
use crate::replicas::OPTIONS;
use crate::row::Row;
use crate::shared::Shared;
use crate::world::{
    BROKERS, Broker, History, Ix, LIFE, Node, Planted, RECORDS_MAX, Registration, Spent, World,
    id_of, offset,
};

/// The cores with their shells, under the bounds of a row.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Bounds and settings.
    pub row: Row,
    coverage: Arc<Coverage>,
}

impl Protocol {
    /// The protocol under a row.
    #[must_use]
    pub fn new(row: Row) -> Self {
        Self { row, coverage: Arc::default() }
    }

    /// What has been reached so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    pub(crate) fn reach(&self, reached: Reached) {
        self.coverage.add(reached);
    }

    pub(crate) fn breaks(&self, mutation: Mutation) -> bool {
        self.row.breaks(mutation)
    }

    /// Everybody is up, broker 1 leads in epoch 0, and all know it.
    #[must_use]
    pub fn first(&self) -> World {
        let registered =
            std::array::from_fn(|b| Some(Registration { epoch: b as u8 + 1, tail_lost: false }));
        let isr =
            std::array::from_fn(|b| if self.row.isr & (1 << b) == 0 { 0 } else { b as u8 + 1 });
        let node =
            Node { leader: Some(0), leader_epoch: 0, partition_epoch: 0, controller_epoch: 1, isr };
        let mut world = World {
            node,
            controller_epoch: 0,
            registered,
            next_epoch: BROKERS as u8 + 1,
            brokers: std::array::from_fn(|b| Shared::new(first_broker(b))),
            terms: Vec::new(),
            flights: Vec::new(),
            pushes: Vec::new(),
            proposals: Vec::new(),
            history: History::default(),
            spent: Spent::default(),
            broken: false,
        };
        for b in 0..BROKERS {
            self.open(&mut world, b);
        }
        let begun = self.new_term(&mut world);
        assert!(begun.is_some(), "the first term begins");
        for push in world.pushes.clone() {
            let taken = self.push(&mut world, push);
            assert!(taken.is_some(), "the first pushes arrive");
        }
        self.settle(&mut world);
        world
    }

    /// A process opens its log.
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

    /// The process hears under which epoch it is registered.
    pub(crate) fn registered(&self, w: &mut World, b: Ix) {
        let broker_epoch = BrokerEpoch(i64::from(w.brokers[b].epoch));
        self.step_replica(w, b, Event::Registered { broker_epoch });
    }

    /// After an action: what clients see of it is noted, and what can have no effect any more is forgotten.
    pub(crate) fn settle(&self, w: &mut World) {
        self.lie(w);
        for b in 0..BROKERS {
            let seen = w.brokers[b].replica.as_ref().and_then(|r| self.shown(r));
            if let Some((end, epoch)) = seen {
                self.note_visible(w, b, end, epoch);
            }
        }
        self.forget(w);
        w.seal();
    }

    /// What a replica shows to consumers: (HW, leader epoch).
    pub(crate) fn shown(&self, replica: &Replica) -> Option<(usize, u8)> {
        if self.breaks(Mutation::ServedBeforeEpochStart) {
            let barnabas_replica::Role::Leader { leader_epoch } = replica.role() else {
                return None;
            };
            return Some((replica.high_watermark().0 as usize, leader_epoch.0 as u8));
        }
        let view = replica.consumer_view(None).ok()?;
        Some((view.high_watermark.0 as usize, view.leader_epoch.0 as u8))
    }

    /// A consumer reads at broker `b` up to `end`.
    pub(crate) fn note_visible(&self, w: &mut World, b: Ix, end: usize, epoch: u8) {
        let before = usize::from(w.history.seen.0);
        if end <= before {
            return;
        }
        for at in before..end.min(RECORDS_MAX) {
            w.history.visible[at] = w.brokers[b].record(at) as u8;
        }
        w.history.seen = (end as u8, epoch);
    }

    /// Forgets what can no longer have any effect, so that equal futures are equal worlds.
    fn forget(&self, w: &mut World) {
        let version = w.node.partition_epoch;
        if !self.breaks(Mutation::NoWriteChecks) {
            // Whatever term still took it: its write would meet another version.
            w.proposals.retain(|p| p.partition_epoch >= version);
        }
        for b in 0..BROKERS {
            let broker = &w.brokers[b];
            let Some(waiting) = broker.waiting else { continue };
            let present = broker.replica.as_ref().is_some_and(|r| {
                r.partition_epoch() == Some(PartitionEpoch(i32::from(waiting.partition_epoch)))
                    && r.leader_epoch() == Some(LeaderEpoch(i32::from(waiting.leader_epoch)))
                    && broker.leads().is_some()
            });
            let spent = w.spent.proposals >= self.row.proposals;
            let sent = w.proposals.binary_search(&waiting).is_ok();
            if !present || (spent && !sent) {
                w.brokers[b].edit().waiting = None;
            }
        }
        if self.breaks(Mutation::NoPushTarget) {
            return; // what is old here is new to the next incarnation
        }
        let any_age = self.breaks(Mutation::OldPushesObeyed);
        let brokers = &w.brokers;
        w.pushes.retain(|push| {
            let broker = &brokers[usize::from(push.to)];
            let Some(replica) = &broker.replica else { return false };
            let here = push.target == broker.epoch;
            let heard = push.controller_epoch >= broker.heard;
            let newer = replica.partition_epoch().is_none_or(|known| {
                i32::from(push.node.partition_epoch) > known.0
                    && Some(LeaderEpoch(i32::from(push.node.leader_epoch)))
                        >= replica.leader_epoch()
            });
            here && ((heard && newer) || any_age)
        });
    }

    /// Whether flushes matter.
    pub(crate) fn flushes(&self) -> bool {
        self.row.flush_mode == FlushMode::Sync
    }
}

fn first_broker(b: Ix) -> Broker {
    Broker {
        epoch: b as u8 + 1,
        replica: None,
        directory: Directory::new(LIFE),
        tail_lost: false,
        heard: 0,
        clock: 0,
        waiting: None,
        planted: Planted::default(),
    }
}

/// Exclusive end of what a host crash leaves for certain.
pub(crate) fn durable(broker: &Broker) -> usize {
    broker.directory.durable.min(offset(broker.log_end())).0 as usize
}
