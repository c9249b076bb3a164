//! An independent account of what was sent, acknowledged and read back: lost, duplicated, reordered, phantom, altered, misplaced.
//!
//! Every record carries its sequence (position in what was sent to its partition) as key and a line as value. Judged is one
//! partition at a time, since only there is an order promised.

use crate::corpus::Share;

/// What became of the records of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Records that were sent.
    pub sent: u64,
    /// Records for which the client got an acknowledgement.
    pub acknowledged: u64,
    /// Records that were read back, duplicates included.
    pub read: u64,
    /// Acknowledged and never read back.
    pub lost: u64,
    /// Read more than once: a batch that was stored, whose acknowledgement was lost, and that the client sent again.
    pub duplicated: u64,
    /// Read for the first time after a record that was sent later.
    pub reordered: u64,
    /// Read and never sent.
    pub phantom: u64,
    /// Read with other bytes than were sent.
    pub altered: u64,
    /// Acknowledged at an offset at which another record was read.
    pub misplaced: u64,
    /// Offsets that do not follow the one before.
    pub gaps: u64,
}

impl Account {
    /// Whether every promise of acks=all held. Duplicates are none of its promises.
    #[must_use]
    pub fn holds(&self) -> bool {
        let broken =
            self.lost + self.reordered + self.phantom + self.altered + self.misplaced + self.gaps;
        broken == 0
    }

    /// Whether what was read is what was sent, record for record: what an idempotent producer is promised besides.
    #[must_use]
    pub fn holds_exactly(&self) -> bool {
        self.holds() && self.duplicated == 0 && self.read == self.sent
    }

    /// Adds up two partitions.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            acknowledged: self.acknowledged + other.acknowledged,
            read: self.read + other.read,
            lost: self.lost + other.lost,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            phantom: self.phantom + other.phantom,
            altered: self.altered + other.altered,
            misplaced: self.misplaced + other.misplaced,
            gaps: self.gaps + other.gaps,
        }
    }
}

/// The account of one partition while it is being read.
#[derive(Debug)]
pub struct Ledger<'a> {
    sent: Share<'a>,
    seen: Vec<bool>,
    /// Sequence of the record at each offset that was read.
    at_offset: Vec<Option<u32>>,
    next_sequence: usize,
    account: Account,
}

impl<'a> Ledger<'a> {
    /// Nothing read yet of what was sent.
    #[must_use]
    pub fn new(sent: Share<'a>) -> Self {
        let account = Account { sent: sent.len() as u64, ..Account::default() };
        Self {
            seen: vec![false; sent.len()],
            at_offset: Vec::new(),
            next_sequence: 0,
            sent,
            account,
        }
    }

    /// Notes a record in the order in which a consumer got it.
    pub fn read(&mut self, offset: u64, key: &[u8], value: &[u8]) {
        self.account.read += 1;
        let index = usize::try_from(offset).unwrap_or(usize::MAX);
        if index != self.at_offset.len() {
            self.account.gaps += 1;
            // A gap is a broken promise already; keep offsets aligned unless the offset is absurd.
            if index > self.at_offset.len() && index - self.at_offset.len() <= self.seen.len() {
                self.at_offset.resize(index, None);
            }
        }
        let sequence = std::str::from_utf8(key).ok().and_then(|key| key.parse::<u32>().ok());
        self.at_offset.push(sequence);
        let position = sequence.map_or(usize::MAX, |sequence| sequence as usize);
        let Some(line) = self.sent.line(position) else {
            self.account.phantom += 1;
            return;
        };
        if line != value {
            self.account.altered += 1;
        }
        if self.seen[position] {
            self.account.duplicated += 1;
        } else if position < self.next_sequence {
            self.account.reordered += 1;
        }
        self.seen[position] = true;
        self.next_sequence = self.next_sequence.max(position + 1);
    }

    /// The account, given the offsets at which the records were acknowledged, in the order of their sequence.
    #[must_use]
    pub fn close(mut self, acknowledged: &[u64]) -> Account {
        self.account.acknowledged = acknowledged.len() as u64;
        for (sequence, offset) in acknowledged.iter().enumerate() {
            if !self.seen.get(sequence).copied().unwrap_or(false) {
                self.account.lost += 1;
                continue;
            }
            let index = usize::try_from(*offset).unwrap_or(usize::MAX);
            let there = self.at_offset.get(index).copied().flatten();
            if there.map(|there| there as usize) != Some(sequence) {
                self.account.misplaced += 1;
            }
        }
        self.account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Corpus;

    fn judge(read: &[(u64, &str, &str)], acknowledged: &[u64]) -> Account {
        let mut corpus = Corpus::default();
        corpus.add(b"a\nb\nc\n");
        let mut ledger = Ledger::new(Share { corpus: &corpus, index: 0, of: 1 });
        for (offset, key, value) in read {
            ledger.read(*offset, key.as_bytes(), value.as_bytes());
        }
        ledger.close(acknowledged)
    }

    #[test]
    fn a_whole_partition_holds() {
        let account = judge(&[(0, "0", "a"), (1, "1", "b"), (2, "2", "c")], &[0, 1, 2]);
        assert!(account.holds());
        assert_eq!((account.read, account.duplicated), (3, 0));
    }

    #[test]
    fn a_batch_sent_again_is_duplicated_and_nothing_else() {
        let read = [(0, "0", "a"), (1, "1", "b"), (2, "0", "a"), (3, "1", "b"), (4, "2", "c")];
        let account = judge(&read, &[2, 3, 4]);
        assert!(account.holds());
        assert_eq!(account.duplicated, 2);
    }

    #[test]
    fn each_broken_promise_is_counted_as_what_it_is() {
        assert_eq!(judge(&[(0, "0", "a"), (1, "2", "c")], &[0, 1, 1]).lost, 1);
        assert_eq!(judge(&[(0, "1", "b"), (1, "0", "a"), (2, "2", "c")], &[1, 0, 2]).reordered, 1);
        assert_eq!(judge(&[(0, "0", "a"), (1, "9", "x"), (2, "q", "x")], &[0]).phantom, 2);
        assert_eq!(judge(&[(0, "0", "A")], &[0]).altered, 1);
        assert_eq!(judge(&[(0, "0", "a"), (1, "1", "b")], &[0, 0]).misplaced, 1);
        assert_eq!(judge(&[(0, "0", "a"), (2, "1", "b")], &[0, 2]).gaps, 1);
        assert_eq!(judge(&[], &[7]).lost, 1);
    }
}
