//! The state: one partition on three brokers, an atomic versioned store, controllers, and what is on its way between them.

use std::fmt;

use barnabas_controller_core::{Controller, WriteId};
use barnabas_replica::{Replica, Role};
use barnabas_simulator::disk::Directory;
use barnabas_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, Incarnation, LeaderEpoch, Offset, Partition,
    PartitionEpoch, PartitionState, TopicId, TopicName, TopicPartition,
};

use crate::shared::{Shared, fingerprint_of};

/// Brokers; all of them are assigned.
pub const BROKERS: usize = 3;
/// Room for records; the bound is that of the row.
pub const RECORDS_MAX: usize = 3;

/// Index of a broker, 0 to 2; its id is one more.
pub type Ix = usize;

/// The one life of the topic.
pub const LIFE: Incarnation = Incarnation { topic_id: TopicId([7; 16]), czxid: 1 };

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

/// The state node of the partition at one version, small.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node {
    /// Leader, or none.
    pub leader: Option<u8>,
    /// Its epoch.
    pub leader_epoch: u8,
    /// Version.
    pub partition_epoch: u8,
    /// Who wrote it.
    pub controller_epoch: u8,
    /// Broker epoch of each ISR member; 0: not a member.
    pub isr: [u8; BROKERS],
}

impl Node {
    /// Members, as a bit mask.
    #[must_use]
    pub fn members(&self) -> u8 {
        (0..BROKERS).filter(|b| self.isr[*b] != 0).map(|b| 1 << b).sum()
    }

    /// As the cores know it.
    #[must_use]
    pub fn state(&self) -> PartitionState {
        PartitionState {
            leader: self.leader.map(|l| id_of(usize::from(l))),
            leader_epoch: LeaderEpoch(i32::from(self.leader_epoch)),
            partition_epoch: PartitionEpoch(i32::from(self.partition_epoch)),
            controller_epoch: ControllerEpoch(i32::from(self.controller_epoch)),
            isr: entries_of(&self.isr),
        }
    }

    /// As the cores know it, with the assignment.
    #[must_use]
    pub fn partition(&self) -> Partition {
        Partition {
            assigned_replicas: (0..BROKERS).map(id_of).collect(),
            state: self.state(),
            ..Partition::default()
        }
    }

    /// From what a core says.
    #[must_use]
    pub fn of(state: &PartitionState) -> Self {
        Self {
            leader: state.leader.map(|l| ix_of(l) as u8),
            leader_epoch: state.leader_epoch.0 as u8,
            partition_epoch: state.partition_epoch.0 as u8,
            controller_epoch: state.controller_epoch.0 as u8,
            isr: small(&state.isr),
        }
    }
}

/// ISR entries in the order of the assignment.
#[must_use]
pub fn entries_of(isr: &[u8; BROKERS]) -> Vec<(BrokerId, BrokerEpoch)> {
    let members = isr.iter().enumerate().filter(|(_, epoch)| **epoch != 0);
    members.map(|(b, epoch)| (id_of(b), BrokerEpoch(i64::from(*epoch)))).collect()
}

/// ISR entries, small.
#[must_use]
pub fn small(isr: &[(BrokerId, BrokerEpoch)]) -> [u8; BROKERS] {
    let mut small = [0; BROKERS];
    for (id, epoch) in isr {
        small[ix_of(*id)] = epoch.0 as u8;
    }
    small
}

/// A registration of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration {
    /// Its broker epoch.
    pub epoch: u8,
    /// The mark of R6.
    pub tail_lost: bool,
}

/// A broker: its disk, and its process if it runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Broker {
    /// Present broker epoch.
    pub epoch: u8,
    /// The core; `None` while the process is down.
    pub replica: Option<Replica>,
    /// What survives the process.
    pub directory: Directory,
    /// The durable mark of R7.
    pub tail_lost: bool,
    /// Highest controller epoch obeyed by this process.
    pub heard: u8,
    /// The process's clock, in milliseconds; stands still but for [`crate::action::Action::Lag`].
    pub clock: u64,
    /// The proposal that waits for its answer.
    pub waiting: Option<Proposal>,
    /// For planted bugs.
    pub planted: Planted,
}

/// What planted bugs remember.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Planted {
    /// Records whose producers a change of epoch should have ended.
    pub outlived: u8,
    /// Durable: the greatest leader epoch led.
    pub led: Option<u8>,
    /// Partition epoch at which a proposal was refused.
    pub refused_at: Option<i32>,
}

impl Broker {
    /// Whether the process runs.
    #[must_use]
    pub fn up(&self) -> bool {
        self.replica.is_some()
    }

    /// The epoch in which it leads.
    #[must_use]
    pub fn leads(&self) -> Option<i32> {
        match self.replica.as_ref()?.role() {
            Role::Leader { leader_epoch } => Some(leader_epoch.0),
            _ => None,
        }
    }

    /// LEO of what is on the disk.
    #[must_use]
    pub fn log_end(&self) -> usize {
        self.directory.log_end().0 as usize
    }

    /// HW: of the process, else the checkpoint.
    #[must_use]
    pub fn high_watermark(&self) -> usize {
        let present = self.replica.as_ref().map(Replica::high_watermark);
        present.unwrap_or(self.directory.high_watermark.min(self.directory.log_end())).0 as usize
    }

    /// Id of the record at an offset; 0: none.
    #[must_use]
    pub fn record(&self, offset: usize) -> u64 {
        self.directory.records.get(offset).map_or(0, |r| r.value)
    }
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
}

/// A state that a term may push to an incarnation of a broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Push {
    /// To whom.
    pub to: u8,
    /// For which incarnation.
    pub target: u8,
    /// By whom.
    pub controller_epoch: u8,
    /// What.
    pub node: Node,
}

/// An ISR proposal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Proposal {
    /// Who proposes.
    pub leader: u8,
    /// Its incarnation.
    pub broker_epoch: u8,
    /// In which leader epoch.
    pub leader_epoch: u8,
    /// On which version it builds.
    pub partition_epoch: u8,
    /// What.
    pub isr: [u8; BROKERS],
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
    /// Bit mask of the acknowledged ones.
    pub acked: u8,
    /// Greatest HW that a consumer saw, and in which leader epoch.
    pub seen: (u8, u8),
    /// Which record was seen at each offset.
    pub visible: [u8; RECORDS_MAX],
    /// An unclean election took place.
    pub lossy: bool,
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
}

/// The whole.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// The state node.
    pub node: Node,
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
    /// For the invariants.
    pub history: History,
    /// For the bounds.
    pub spent: Spent,
    /// A core's assertion failed.
    pub broken: bool,
}

impl World {
    /// Keeps a push; equal ones are one.
    pub fn offer(&mut self, push: Push) {
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
        let Node { leader, leader_epoch, partition_epoch, isr, .. } = self.node;
        let leader = leader.map_or(-1, |l| i32::from(l) + 1);
        write!(f, "leader {leader} epoch {leader_epoch} version {partition_epoch} ISR {isr:?}")?;
        for (b, broker) in self.brokers.iter().enumerate() {
            write!(f, " | {} ({}) ", b + 1, broker.epoch)?;
            match &broker.replica {
                None => write!(f, "down")?,
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
