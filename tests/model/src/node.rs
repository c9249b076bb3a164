//! What the store holds of the partition, and what is said of it on the way: small copies of what the cores know.

use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, ControllerEpoch, Incarnation, LeaderEpoch, Moving,
    Partition, PartitionEpoch, PartitionState, TopicId,
};

use crate::world::{BROKERS, Ix, id_of, ix_of};

/// A set of brokers, one bit each.
pub type Mask = u8;

/// The brokers of a set, in the order of their ids.
pub fn brokers_in(mask: Mask) -> impl Iterator<Item = Ix> {
    (0..BROKERS).filter(move |b| mask & (1 << b) != 0)
}

/// The set of these brokers.
#[must_use]
pub fn mask_of(ids: &[BrokerId]) -> Mask {
    ids.iter().fold(0, |mask, id| mask | 1 << ix_of(*id))
}

/// A life of the topic, 1 or greater: its czxid, and an id of its own.
#[must_use]
pub fn incarnation(life: u8) -> Incarnation {
    Incarnation { topic_id: TopicId([life; 16]), czxid: i64::from(life) }
}

/// Who holds the partition, in the order of preference, and the move that is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Assigned {
    /// Index of each broker plus 1; 0: nobody more.
    replicas: [u8; BROKERS],
    /// Those that are being added.
    pub adding: Mask,
    /// Those that are being removed.
    pub removing: Mask,
}

impl Assigned {
    /// The brokers of a set, without a move.
    #[must_use]
    pub fn settled(mask: Mask) -> Self {
        Self::of(&Assignment::settled(brokers_in(mask).map(id_of).collect()))
    }

    /// From what a core says.
    #[must_use]
    pub fn of(assignment: &Assignment) -> Self {
        let mut replicas = [0; BROKERS];
        for (place, id) in replicas.iter_mut().zip(&assignment.replicas) {
            *place = ix_of(*id) as u8 + 1;
        }
        let Moving { adding, removing, .. } = &assignment.moving;
        Self { replicas, adding: mask_of(adding), removing: mask_of(removing) }
    }

    /// As the cores know it.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        let all = self.replicas.iter().filter(|place| **place != 0);
        let replicas: Vec<BrokerId> = all.map(|place| id_of(usize::from(place - 1))).collect();
        let of = |mask: Mask| -> Vec<BrokerId> {
            replicas.iter().copied().filter(|id| mask & (1 << ix_of(*id)) != 0).collect()
        };
        let moving =
            Moving { adding: of(self.adding), removing: of(self.removing), throttle: None };
        Assignment { replicas, moving }
    }

    /// All who hold the partition.
    #[must_use]
    pub fn mask(&self) -> Mask {
        self.replicas.iter().filter(|place| **place != 0).fold(0, |mask, p| mask | 1 << (p - 1))
    }

    /// Whether the broker holds the partition.
    #[must_use]
    pub fn has(&self, b: Ix) -> bool {
        self.mask() & (1 << b) != 0
    }

    /// Whether a move is under way.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.adding != 0 || self.removing != 0
    }

    /// Who holds it after the move.
    #[must_use]
    pub fn target(&self) -> Mask {
        self.mask() & !self.removing
    }
}

/// The partition's nodes at one version, small.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node {
    /// Life of the topic; 0: there is no such topic.
    pub life: u8,
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
    /// Who holds it. Nobody: what was known of the life is over.
    pub assigned: Assigned,
}

impl Node {
    /// No topic, after a life of it.
    #[must_use]
    pub fn gone(life: u8) -> Self {
        Self {
            life,
            leader: None,
            leader_epoch: 0,
            partition_epoch: 0,
            controller_epoch: 0,
            isr: [0; BROKERS],
            assigned: Assigned::default(),
        }
    }

    /// ISR members.
    #[must_use]
    pub fn members(&self) -> Mask {
        (0..BROKERS).filter(|b| self.isr[*b] != 0).fold(0, |mask, b| mask | 1 << b)
    }

    /// Whether it says that the whole topic is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.assigned == Assigned::default()
    }

    /// (life, leader epoch, partition epoch): what a tombstone compares (R22b, R27).
    #[must_use]
    pub fn age(&self) -> (u8, u8, u8) {
        (self.life, self.leader_epoch, self.partition_epoch)
    }

    /// As the cores know it.
    #[must_use]
    pub fn state(&self) -> PartitionState {
        let mut isr = entries_of(&self.isr);
        let replicas = self.assigned.assignment().replicas;
        isr.sort_by_key(|(id, _)| replicas.iter().position(|r| r == id));
        PartitionState {
            leader: self.leader.map(|l| id_of(usize::from(l))),
            leader_epoch: LeaderEpoch(i32::from(self.leader_epoch)),
            partition_epoch: PartitionEpoch(i32::from(self.partition_epoch)),
            controller_epoch: ControllerEpoch(i32::from(self.controller_epoch)),
            isr,
        }
    }

    /// As the cores know it, with the assignment.
    #[must_use]
    pub fn partition(&self) -> Partition {
        let Assignment { replicas: assigned_replicas, moving } = self.assigned.assignment();
        Partition { assigned_replicas, moving, state: self.state() }
    }

    /// From what a core says.
    #[must_use]
    pub fn of(state: &PartitionState, life: u8, assigned: Assigned) -> Self {
        Self {
            life,
            leader: state.leader.map(|l| ix_of(l) as u8),
            leader_epoch: state.leader_epoch.0 as u8,
            partition_epoch: state.partition_epoch.0 as u8,
            controller_epoch: state.controller_epoch.0 as u8,
            isr: small(&state.isr),
            assigned,
        }
    }
}

/// ISR entries in the order of the ids.
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
    /// The broker wants to stop (R25).
    pub draining: bool,
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
    /// It carries `flush.mode=sync`, be it from the beginning or since a change (R37).
    pub sync: bool,
    /// Version of the term's image, where somebody waits for acknowledgements; else 0.
    pub version: u8,
}

/// An ISR proposal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Proposal {
    /// Life of the topic.
    pub life: u8,
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
