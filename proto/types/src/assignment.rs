//! Who holds a partition, and the move of its replicas that is under way (KIP-455).

use crate::BrokerId;

/// A move of replicas that is under way. All empty: none is.
///
/// What is stored are differences to the assigned replicas (AR), so that both ends of the move can be told from them at any
/// time: where it leads (AR without `removing`) and where it began (AR without `adding`). A replica that was being added when
/// the move got another target is in both lists.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Moving {
    /// Assigned replicas that were not assigned before the move.
    pub adding: Vec<BrokerId>,
    /// Assigned replicas that are not assigned after it.
    pub removing: Vec<BrokerId>,
    /// Most bytes a second that a broker fetches for replicas that are being added and are not in the ISR; `None`: no limit.
    /// 1 or greater.
    pub throttle: Option<u64>,
}

impl Moving {
    /// Whether replicas are added or removed.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas that are on their way in: those that are being added and are part of the target.
    #[must_use]
    pub fn joining(&self) -> Vec<BrokerId> {
        without(&self.adding, &self.removing)
    }
}

/// The assigned replicas of one partition, and the move that is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Assignment {
    /// Assigned replicas (AR): during a move those of both its ends, the target first.
    pub replicas: Vec<BrokerId>,
    /// The move.
    pub moving: Moving,
}

impl Assignment {
    /// An assignment that is not being changed.
    #[must_use]
    pub fn settled(replicas: Vec<BrokerId>) -> Self {
        Self { replicas, moving: Moving::default() }
    }

    /// Where the move leads: the assigned replicas themselves, if none is under way.
    #[must_use]
    pub fn target(&self) -> Vec<BrokerId> {
        without(&self.replicas, &self.moving.removing)
    }

    /// Where the move began: the assigned replicas themselves, if none is under way.
    #[must_use]
    pub fn original(&self) -> Vec<BrokerId> {
        without(&self.replicas, &self.moving.adding)
    }

    /// This assignment on the way to `target` (R19, R21): nobody leaves. The target's order is that of the preferred leaders.
    #[must_use]
    pub fn towards(&self, target: &[BrokerId], throttle: Option<u64>) -> Self {
        let original = self.original();
        let mut replicas = target.to_vec();
        replicas.extend(without(&self.replicas, target));
        let moving = Moving {
            adding: without(&replicas, &original),
            removing: without(&replicas, target),
            throttle,
        };
        if moving.is_under_way() { Self { replicas, moving } } else { Self::settled(replicas) }
    }

    /// This assignment after its move (R20).
    #[must_use]
    pub fn arrived(&self) -> Self {
        Self::settled(self.target())
    }

    /// The same without members of the move that are not assigned, and without a move that would leave nobody: whatever
    /// somebody else has written, both ends of the move have replicas.
    #[must_use]
    pub fn tolerant(mut self) -> Self {
        self.moving.adding.retain(|b| self.replicas.contains(b));
        self.moving.removing.retain(|b| self.replicas.contains(b));
        if self.target().is_empty() {
            self.moving.removing.clear();
        }
        if !self.moving.is_under_way() {
            self.moving = Moving::default();
        }
        self
    }
}

fn without(replicas: &[BrokerId], others: &[BrokerId]) -> Vec<BrokerId> {
    replicas.iter().copied().filter(|b| !others.contains(b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(of: &[i32]) -> Vec<BrokerId> {
        of.iter().map(|id| BrokerId(*id)).collect()
    }

    #[test]
    fn r19_nobody_leaves_at_the_start() {
        let moved = Assignment::settled(ids(&[1, 2, 3])).towards(&ids(&[4, 3, 2]), Some(9));
        assert_eq!(moved.replicas, ids(&[4, 3, 2, 1]));
        assert_eq!(moved.moving.adding, ids(&[4]));
        assert_eq!(moved.moving.removing, ids(&[1]));
        assert_eq!((moved.target(), moved.original()), (ids(&[4, 3, 2]), ids(&[3, 2, 1])));
        assert_eq!(moved.arrived(), Assignment::settled(ids(&[4, 3, 2])));
    }

    #[test]
    fn r21_the_original_is_known_after_any_number_of_targets() {
        let original = Assignment::settled(ids(&[1, 2]));
        let twice = original.towards(&ids(&[1, 3]), None).towards(&ids(&[1, 4]), None);
        assert_eq!(twice.replicas, ids(&[1, 4, 3, 2]));
        assert_eq!((twice.target(), twice.original()), (ids(&[1, 4]), ids(&[1, 2])));
        let cancelled = twice.towards(&twice.original(), None);
        assert_eq!(cancelled.target(), ids(&[1, 2]));
        assert_eq!(cancelled.moving.removing, ids(&[4, 3]), "they leave by R20, not at once");
        assert_eq!(cancelled.arrived(), original);
    }

    #[test]
    fn another_order_alone_is_no_move() {
        let turned = Assignment::settled(ids(&[1, 2])).towards(&ids(&[2, 1]), Some(5));
        assert_eq!(turned, Assignment::settled(ids(&[2, 1])));
    }

    #[test]
    fn nonsense_about_a_move_leaves_replicas_at_both_ends() {
        let moving = Moving { adding: ids(&[9]), removing: ids(&[1, 2]), throttle: Some(1) };
        let read = Assignment { replicas: ids(&[1, 2]), moving }.tolerant();
        assert_eq!(read, Assignment::settled(ids(&[1, 2])));
    }
}
