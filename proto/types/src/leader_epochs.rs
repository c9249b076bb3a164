//! Which leader epoch begins at which offset of a log (KIP-101, KIP-279): the base of every truncation decision.

use crate::{LeaderEpoch, Offset};

/// The first offset that was (or will be) written in a leader epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset, inclusive; equal to the LEO while the epoch has no record.
    pub start_offset: Offset,
}

/// The epochs of one log, both columns strictly increasing except that an epoch without records gives way to the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LeaderEpochs {
    entries: Vec<EpochStart>,
}

impl LeaderEpochs {
    /// No epoch: the state of an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The newest epoch that has an entry, also one that has no record yet; `None` if there is no entry.
    #[must_use]
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|e| e.epoch)
    }

    /// Notes that `epoch` begins at `start_offset`, the present LEO. Returns whether anything changed.
    ///
    /// Entries of the same or a later start have no record and are superseded, **also by an older epoch**: a leader that
    /// wrote nothing becomes a follower and fetches records older than its own epoch (KIP-101; without it those records
    /// would be taken for the newer epoch's, and the replica would be reset for ever). Below that, an epoch that is not
    /// newer than the latest is ignored.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if self.entries.last() == Some(&EpochStart { epoch, start_offset }) {
            return false;
        }
        let before = self.entries.len();
        while self.entries.last().is_some_and(|e| e.start_offset >= start_offset) {
            self.entries.pop();
        }
        if self.latest().is_some_and(|latest| epoch <= latest) {
            return self.entries.len() != before;
        }
        self.entries.push(EpochStart { epoch, start_offset });
        true
    }

    /// Forgets everything at or above `end` (a truncation to the exclusive end `end`).
    pub fn truncate_from_end(&mut self, end: Offset) {
        while self.entries.last().is_some_and(|e| e.start_offset >= end) {
            self.entries.pop();
        }
    }

    /// Moves the beginning of the log to `start` (inclusive): the epoch that covers it then begins there.
    pub fn truncate_from_start(&mut self, start: Offset) {
        let covering = self.entries.iter().rposition(|e| e.start_offset <= start);
        if let Some(index) = covering {
            self.entries.drain(..index);
            self.entries[0].start_offset = start;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// First offset of `epoch`, if it has an entry.
    #[must_use]
    pub fn start_of(&self, epoch: LeaderEpoch) -> Option<Offset> {
        self.entries.iter().find(|e| e.epoch == epoch).map(|e| e.start_offset)
    }

    /// The epoch that covers `offset` (which must be below the LEO to mean a record); `None` before the first entry.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.entries.iter().rev().find(|e| e.start_offset <= offset).map(|e| e.epoch)
    }

    /// The answer to OffsetForLeaderEpoch: the largest known epoch not above `epoch`, and its exclusive end.
    ///
    /// The end of the newest epoch is `log_end_offset`. `None` if `epoch` is older than every entry, or newer than the
    /// newest (an epoch that this log never knew has no end: never answer the LEO for it).
    #[must_use]
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if self.latest().is_none_or(|latest| epoch > latest) {
            return None;
        }
        let index = self.entries.iter().rposition(|e| e.epoch <= epoch)?;
        let end = self.entries.get(index + 1).map_or(log_end_offset, |next| next.start_offset);
        Some((self.entries[index].epoch, end))
    }
}

impl FromIterator<EpochStart> for LeaderEpochs {
    /// Builds the table with [`LeaderEpochs::assign`], so that damaged input cannot break the order.
    fn from_iter<I: IntoIterator<Item = EpochStart>>(iter: I) -> Self {
        let mut epochs = Self::new();
        for entry in iter {
            epochs.assign(entry.epoch, entry.start_offset);
        }
        epochs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(i32, i64)]) -> LeaderEpochs {
        entries
            .iter()
            .map(|&(e, o)| EpochStart { epoch: LeaderEpoch(e), start_offset: Offset(o) })
            .collect()
    }

    #[test]
    fn end_offsets_follow_kip_279() {
        let t = table(&[(1, 0), (3, 10), (5, 20)]);
        let end = |e| t.end_offset_for(LeaderEpoch(e), Offset(25)).map(|(e, o)| (e.0, o.0));
        assert_eq!(end(0), None);
        assert_eq!(end(1), Some((1, 10)));
        assert_eq!(end(2), Some((1, 10)));
        assert_eq!(end(3), Some((3, 20)));
        assert_eq!(end(5), Some((5, 25)));
        assert_eq!(end(6), None, "an epoch this log never knew has no end");
    }

    #[test]
    fn an_epoch_without_records_gives_way() {
        let mut t = table(&[(1, 0), (2, 10)]);
        assert!(t.assign(LeaderEpoch(3), Offset(10)));
        assert_eq!(t, table(&[(1, 0), (3, 10)]));
        assert!(!t.assign(LeaderEpoch(3), Offset(12)));
    }

    #[test]
    fn an_epoch_without_records_gives_way_to_older_records_too() {
        let mut t = table(&[(0, 0), (2, 5)]);
        assert!(t.assign(LeaderEpoch(1), Offset(5)), "fetched records of epoch 1 follow at 5");
        assert_eq!(t, table(&[(0, 0), (1, 5)]));
        let mut t = table(&[(0, 0), (2, 5)]);
        assert!(t.assign(LeaderEpoch(0), Offset(5)), "more records of epoch 0 follow at 5");
        assert_eq!(t, table(&[(0, 0)]));
        assert!(!t.assign(LeaderEpoch(0), Offset(7)));
    }

    #[test]
    fn truncation_at_both_ends() {
        let mut t = table(&[(1, 0), (3, 10), (5, 20)]);
        t.truncate_from_end(Offset(20));
        assert_eq!(t, table(&[(1, 0), (3, 10)]));
        t.truncate_from_start(Offset(12));
        assert_eq!(t, table(&[(3, 12)]));
    }
}
