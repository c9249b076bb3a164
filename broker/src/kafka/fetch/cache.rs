//! How many fetch sessions there may be, and which one gives way to a new one (KIP-227). Knows nothing of what is in them.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::Now;

/// A session that was not used for so long may be replaced by any, one that is so old by one that is not smaller.
const EVICTION_MS: u64 = 120_000;
/// Most partitions of all sessions together, about 200 bytes each.
pub(super) const PARTITIONS_MAX: usize = 400_000;
/// Most partitions of one session; a client with more is answered without one.
pub(super) const SESSION_PARTITIONS_MAX: usize = 100_000;

/// The open sessions, by id.
#[derive(Debug)]
pub(super) struct Cache<S> {
    slots_max: usize,
    sessions: BTreeMap<i32, Slot<S>>,
    partitions: usize,
}

#[derive(Debug)]
struct Slot<S> {
    session: S,
    partitions: usize,
    created: Now,
    used: Now,
}

impl<S: Clone> Cache<S> {
    /// Room for `slots_max` sessions; 0: none is ever opened.
    pub(super) fn new(slots_max: usize) -> Self {
        Self { slots_max, sessions: BTreeMap::new(), partitions: 0 }
    }

    /// Sessions, and partitions in all of them.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.sessions.len(), self.partitions)
    }

    /// Whether there is a session of this id.
    pub(super) fn has(&self, id: i32) -> bool {
        self.sessions.contains_key(&id)
    }

    /// The session of this id, which is used now.
    pub(super) fn touch(&mut self, id: i32, now: Now) -> Option<S> {
        let slot = self.sessions.get_mut(&id)?;
        slot.used = now;
        Some(slot.session.clone())
    }

    /// Takes a session in, if there is room or others give way; `false`: there is none, or the id is taken, and then no other
    /// gives way either. The sessions that gave way are the caller's to end.
    pub(super) fn insert(
        &mut self,
        id: i32,
        session: S,
        partitions: usize,
        now: Now,
        gave_way: &mut Vec<S>,
    ) -> bool {
        if self.slots_max == 0 || partitions > SESSION_PARTITIONS_MAX || self.has(id) {
            return false;
        }
        let mut victims = BTreeSet::new();
        let mut left = self.partitions;
        while self.sessions.len() - victims.len() >= self.slots_max
            || left + partitions > PARTITIONS_MAX
        {
            let Some((id, slot)) = self.victim(partitions, now, &victims) else { return false };
            left -= slot.partitions;
            victims.insert(id);
        }
        for victim in victims {
            gave_way.extend(self.remove(victim));
        }
        self.partitions += partitions;
        self.sessions.insert(id, Slot { session, partitions, created: now, used: now });
        true
    }

    /// The one that was not used for longest, if that is long; else the smallest of the old ones, if it is no larger than the
    /// new one. None of those that were `chosen` already.
    fn victim(
        &self,
        partitions: usize,
        now: Now,
        chosen: &BTreeSet<i32>,
    ) -> Option<(i32, &Slot<S>)> {
        let is_old = |since: Now| now.since_ms(since) > EVICTION_MS;
        let sessions = || self.sessions.iter().filter(|(id, _)| !chosen.contains(id));
        let unused = sessions().min_by_key(|(id, slot)| (slot.used, **id));
        let unused = unused.filter(|(_, slot)| is_old(slot.used));
        let small = || {
            let old = sessions().filter(|(_, slot)| is_old(slot.created));
            old.min_by_key(|(id, slot)| (slot.partitions, slot.created, **id))
                .filter(|(_, slot)| slot.partitions <= partitions)
        };
        unused.or_else(small).map(|(id, slot)| (*id, slot))
    }

    /// The session has so many partitions now; `false`: that is too many, and it must end.
    pub(super) fn resize(&mut self, id: i32, partitions: usize) -> bool {
        let Some(slot) = self.sessions.get_mut(&id) else { return true };
        self.partitions = self.partitions - slot.partitions + partitions;
        let grown = partitions > slot.partitions;
        slot.partitions = partitions;
        !grown || (partitions <= SESSION_PARTITIONS_MAX && self.partitions <= PARTITIONS_MAX)
    }

    /// Takes a session out.
    pub(super) fn remove(&mut self, id: i32) -> Option<S> {
        let slot = self.sessions.remove(&id)?;
        self.partitions -= slot.partitions;
        Some(slot.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now(ms)
    }

    /// Whether a session of this size is taken in at this time, and who gave way.
    fn insert(cache: &mut Cache<i32>, id: i32, partitions: usize, ms: u64) -> (bool, Vec<i32>) {
        let mut gave_way = Vec::new();
        let taken = cache.insert(id, id, partitions, at(ms), &mut gave_way);
        (taken, gave_way)
    }

    #[test]
    fn a_full_cache_takes_no_more_until_a_session_was_unused_for_two_minutes() {
        let mut cache = Cache::new(2);
        assert_eq!(insert(&mut cache, 1, 5, 0), (true, vec![]));
        assert_eq!(insert(&mut cache, 2, 5, 1), (true, vec![]));
        assert_eq!(insert(&mut cache, 3, 50, 100_000), (false, vec![]));
        assert_eq!(cache.touch(1, at(100_000)), Some(1));
        assert_eq!(insert(&mut cache, 3, 1, 120_002), (true, vec![2]), "unused, whatever its size");
        assert_eq!(cache.touch(2, at(120_002)), None);
        assert_eq!(cache.size(), (2, 6));
    }

    #[test]
    fn an_old_session_in_use_gives_way_to_one_that_is_not_smaller() {
        let mut cache = Cache::new(2);
        insert(&mut cache, 1, 5, 0);
        insert(&mut cache, 2, 4, 0);
        let now = 200_000;
        (1..=2).for_each(|id| assert_eq!(cache.touch(id, at(now)), Some(id)));
        assert_eq!(insert(&mut cache, 3, 3, now), (false, vec![]));
        assert_eq!(insert(&mut cache, 3, 4, now), (true, vec![2]), "the smallest");
        assert_eq!(insert(&mut cache, 4, 9, now), (true, vec![1]), "3 is too young");
        assert_eq!(insert(&mut cache, 5, 9, now), (false, vec![]));
    }

    #[test]
    fn partitions_are_bounded_for_each_and_for_all() {
        let mut cache = Cache::new(1000);
        let all: Vec<_> =
            (1..=4).map(|id| insert(&mut cache, id, SESSION_PARTITIONS_MAX, 0).0).collect();
        assert_eq!(all, [true; 4]);
        assert_eq!(insert(&mut cache, 5, 1, 0), (false, vec![]));
        assert!(cache.resize(1, SESSION_PARTITIONS_MAX - 1), "smaller is always right");
        assert_eq!(insert(&mut cache, 5, 1, 0), (true, vec![]));
        assert!(!cache.resize(5, 2));
        cache.remove(5);
        assert_eq!(insert(&mut cache, 6, SESSION_PARTITIONS_MAX + 1, 0), (false, vec![]));
        assert_eq!(cache.size(), (4, PARTITIONS_MAX - 1));
    }

    #[test]
    fn whoever_is_refused_drives_nobody_out() {
        let mut cache = Cache::new(1000);
        insert(&mut cache, 1, 10, 0);
        (2..=5).for_each(|id| assert!(insert(&mut cache, id, 99_990, 150_000).0));
        // The first one is unused, but its room would not do.
        assert_eq!(insert(&mut cache, 6, 99_990, 150_000), (false, vec![]));
        assert_eq!(cache.size(), (5, 4 * 99_990 + 10));
        assert_eq!(insert(&mut cache, 6, 40, 150_000), (true, vec![1]));
    }

    #[test]
    fn without_slots_there_are_no_sessions() {
        assert_eq!(insert(&mut Cache::new(0), 1, 1, 0), (false, vec![]));
    }
}
