//! The state: one partition on three brokers, an atomic versioned store, controllers, and what is on its way between them.

use std::fmt;

use barnabas_controller_core::{Controller, WriteId};
use barnabas_types::{BrokerId, Offset, TopicName, TopicPartition};

use crate::broker::Broker;
use crate::net::Message;
use crate::node::{Mask, Node, Proposal, Push, Registration};
use crate::shared::{Shared, fingerprint_of};

/// Brokers.
pub const BROKERS: usize = 3;
/// Room for records; the bound is that of the row.
pub const RECORDS_MAX: usize = 3;

/// Index of a broker, 0 to 2; its id is one more.
pub type Ix = usize;

/// Id of a broker.
#[must_use]
pub fn id_of(b: Ix) -> BrokerId {
    BrokerId(b as i32 + 1)
}

/// Index of a broker.
#[must_use]
pub fn ix_of(id: BrokerId) -> Ix {
    (id.0 - 1) as Ix
}

/// The partition's name.
///
/// # Panics
/// Never: the name is legal.
#[must_use]
pub fn partition() -> TopicPartition {
    TopicPartition { topic: TopicName::new("t").expect("legal"), partition: 0 }
}

/// A term: the core, and what the shell has told it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Term {
    /// The core.
    pub controller: Controller,
    /// The registrations that it last read.
    pub seen: [Option<Registration>; BROKERS],
    /// It has resigned.
    pub over: bool,
    /// The newest life that it knows to be over.
    pub gone: u8,
    /// It knows `flush.mode=sync`.
    pub sync: bool,
    /// For planted bugs.
    pub planted: PlantedTerm,
}

/// What planted bugs remember of a term.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PlantedTerm {
    /// Brokers that it takes for draining.
    pub drained: Mask,
    /// It still has to write who holds the partition after the move that it has ended.
    pub split: bool,
    /// What it was told by replicas in the present leaderless epoch: the epoch; last epoch plus 1, LEO.
    pub reports: [Option<(u8, u8, u8)>; BROKERS],
}

/// A write under way: decided, not landed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flight {
    /// By which term.
    pub term: u8,
    /// As the core names it.
    pub write: WriteId,
    /// The version it builds on.
    pub expected: u8,
    /// The version of the topic's node it builds on, if it changes the assignment (R18).
    pub topic_version: Option<u8>,
    /// What it writes.
    pub node: Node,
}

/// What happened so far, as far as an invariant asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    /// Records produced; the Nth has id N + 1.
    pub produced: u8,
    /// (leader epoch, offset) of each.
    pub records: [(u8, u8); RECORDS_MAX],
    /// Life of the topic of each.
    pub lives: [u8; RECORDS_MAX],
    /// Bit mask of the acknowledged ones.
    pub acked: u8,
    /// Greatest HW that a consumer saw, and in which leader epoch.
    pub seen: (u8, u8),
    /// Which record was seen at each offset.
    pub visible: [u8; RECORDS_MAX],
    /// An unclean election took place.
    pub lossy: bool,
    /// An operator's unclean election; what is acknowledged from this leader epoch on is promised again (R39).
    pub promised_from: u8,
    /// Nothing below this offset is promised any more: somebody may delete it, lawfully.
    pub deletable: u8,
    /// The deletion of everything below this offset was acknowledged (DR).
    pub deleted: u8,
    /// The change to `flush.mode=sync` was acknowledged; only what is acknowledged since then is promised.
    pub sync_promised: bool,
    /// A move ended although its target was not the ISR (F).
    pub ended_early: bool,
}

impl History {
    /// Nothing is promised any more of what was acknowledged before this leader epoch.
    pub(crate) fn give_up_before(&mut self, epoch: u8) {
        self.lossy = true;
        self.promised_from = epoch;
        let stays = |n: &usize| self.records[*n].0 >= epoch;
        let kept = (0..usize::from(self.produced)).filter(stays);
        self.acked &= kept.fold(0, |mask, n| mask | 1 << n);
    }

    /// The change to sync mode is acknowledged: what is acknowledged from now on is promised to survive every host crash.
    pub(crate) fn promise_sync(&mut self) {
        if !self.sync_promised {
            self.sync_promised = true;
            self.acked = 0;
        }
    }
}

/// How much of each bound is used up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Spent {
    /// Process crashes.
    pub process_crashes: u8,
    /// Host crashes.
    pub host_crashes: u8,
    /// Crashes of all hosts.
    pub crashes_of_all: u8,
    /// Suspicions.
    pub suspicions: u8,
    /// Expired sessions of live brokers.
    pub expiries: u8,
    /// ISR proposals.
    pub proposals: u8,
    /// Wishes of an operator to move replicas.
    pub moves: u8,
    /// Brokers that wanted to stop.
    pub stops: u8,
    /// Topics deleted.
    pub lives: u8,
    /// Requests to delete records.
    pub deletions: u8,
    /// Runs of retention.
    pub retentions: u8,
    /// Failed syncs.
    pub failed_syncs: u8,
    /// Changes of the flush mode.
    pub switches: u8,
    /// Unclean elections by an operator.
    pub unclean: u8,
}

/// The whole.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// The partition's nodes.
    pub node: Node,
    /// Version of the topic's node, counted across its lives.
    pub topic_version: u8,
    /// How many lives the topic has had.
    pub lives: u8,
    /// The stored settings say `flush.mode=sync`.
    pub sync: bool,
    /// `/controller_epoch`.
    pub controller_epoch: u8,
    /// `/brokers/ids`.
    pub registered: [Option<Registration>; BROKERS],
    /// The next czxid of a registration.
    pub next_epoch: u8,
    /// Brokers.
    pub brokers: [Shared<Broker>; BROKERS],
    /// Terms; the index is one less than the controller epoch.
    pub terms: Vec<Shared<Term>>,
    /// Writes under way, at most one a term.
    pub flights: Vec<Flight>,
    /// Pushes that may arrive, ordered.
    pub pushes: Vec<Push>,
    /// Proposals that may arrive, ordered.
    pub proposals: Vec<Proposal>,
    /// Fetches and answers under way, ordered.
    pub messages: Vec<Message>,
    /// The leaderless state that an operator was shown: leader epoch, partition epoch.
    pub shown: Option<(u8, u8)>,
    /// The broker epoch under which each broker last asked to stop; 0: it waits for no answer.
    pub stop_requests: [u8; BROKERS],
    /// For the invariants.
    pub history: History,
    /// For the bounds.
    pub spent: Spent,
    /// A core's assertion failed.
    pub broken: bool,
}

impl World {
    /// Keeps a push; equal ones are one, whatever their versions.
    pub fn offer(&mut self, push: Push) {
        let same = |known: &Push| Push { version: push.version, ..*known } == push;
        self.pushes.retain(|known| !same(known));
        if let Err(at) = self.pushes.binary_search(&push) {
            self.pushes.insert(at, push);
        }
    }

    /// Keeps a proposal.
    pub fn propose(&mut self, proposal: Proposal) {
        if let Err(at) = self.proposals.binary_search(&proposal) {
            self.proposals.insert(at, proposal);
        }
    }

    /// The term that is elected.
    #[must_use]
    pub fn present_term(&self) -> usize {
        self.terms.len() - 1
    }

    /// Whether the topic exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.node.life != 0
    }

    /// Names this world among others.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        fingerprint_of(self)
    }

    /// Ends the changes of the parts that worlds share.
    pub fn seal(&mut self) {
        self.brokers.iter_mut().for_each(Shared::seal);
        self.terms.iter_mut().for_each(Shared::seal);
    }
}

impl fmt::Display for World {
    /// In one line: the state node, then each broker with role and epoch, records (epoch:id), HW and maximal ISR.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Node { life, leader, leader_epoch, partition_epoch, isr, assigned, .. } = self.node;
        let leader = leader.map_or(-1, |l| i32::from(l) + 1);
        write!(f, "leader {leader} epoch {leader_epoch} version {partition_epoch} ISR {isr:?}")?;
        if life != 1 || assigned.moves() || assigned.mask() != 0b111 {
            write!(f, " life {life} {assigned:?}")?;
        }
        for (b, broker) in self.brokers.iter().enumerate() {
            write!(f, " | {} ({}) ", b + 1, broker.epoch)?;
            match &broker.replica {
                None if !broker.running => write!(f, "down")?,
                None => write!(f, "knows nothing")?,
                Some(replica) if replica.is_fenced() => write!(f, "fenced")?,
                Some(replica) => write!(f, "{:?}", replica.role())?,
            }
            let records =
                broker.directory.records.iter().map(|r| format!("{}:{}", r.epoch, r.value));
            write!(
                f,
                " [{}] HW {}",
                records.collect::<Vec<_>>().join(" "),
                broker.high_watermark()
            )?;
            if broker.directory.log_start > Offset(0) {
                write!(f, " from {}", broker.directory.log_start)?;
            }
            if broker.life() != 1 {
                write!(f, " life {}", broker.life())?;
            }
            if let Some(replica) = broker.replica.as_ref().filter(|_| broker.leads().is_some()) {
                write!(f, " maximal ISR {:?}", replica.maximal_isr())?;
            }
            if broker.tail_lost {
                write!(f, " tail lost")?;
            }
        }
        write!(f, " | acknowledged {:b}, seen {:?}", self.history.acked, self.history.seen)
    }
}

/// An offset, small.
#[must_use]
pub fn offset(at: usize) -> Offset {
    Offset(at as i64)
}
