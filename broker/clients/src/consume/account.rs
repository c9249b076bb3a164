//! What a consumer saw of each partition: what it read, what came twice, what was passed over.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// One partition in the eyes of this run.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Records read.
    pub read: u64,
    /// Of those: at an offset that this run, or the one whose offsets it goes on from, had seen before.
    pub repeated: u64,
    /// Offsets between two records that were never seen: records that compaction, retention or a seek left out.
    pub skipped: u64,
    /// The offset after the last one seen, exclusive; none before the first record.
    pub next: Option<i64>,
    /// The offset up to which the group has committed in this run, exclusive.
    pub committed: Option<i64>,
}

/// The sums of one run.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Account {
    partitions: BTreeMap<i32, Seen>,
    /// Records whose processing was over and whose result was written.
    pub processed: u64,
    /// Commits that failed, by reason.
    pub failed_commits: BTreeMap<String, u64>,
}

impl Account {
    /// From which offset a partition is expected to go on; exclusive end of what is done already.
    pub fn expect(&mut self, partition: i32, next: i64) {
        self.partitions.entry(partition).or_default().next = Some(next);
    }

    /// Counts one record.
    pub fn read(&mut self, partition: i32, offset: i64) {
        let seen = self.partitions.entry(partition).or_default();
        seen.read += 1;
        match seen.next {
            Some(next) if offset < next => seen.repeated += 1,
            Some(next) => {
                seen.skipped += u64::try_from(offset - next).unwrap_or(0);
                seen.next = Some(offset + 1);
            }
            None => seen.next = Some(offset + 1),
        }
    }

    /// The group has this offset, exclusive.
    pub fn committed(&mut self, partition: i32, next: i64) {
        self.partitions.entry(partition).or_default().committed = Some(next);
    }

    /// A commit that was refused.
    pub fn commit_failed(&mut self, reason: String) {
        *self.failed_commits.entry(reason).or_default() += 1;
    }

    /// Each partition that was read or expected.
    #[must_use]
    pub fn partitions(&self) -> &BTreeMap<i32, Seen> {
        &self.partitions
    }

    fn sum(&self, of: impl Fn(&Seen) -> u64) -> u64 {
        self.partitions.values().map(of).sum()
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let partitions: Vec<Value> = self
            .partitions
            .iter()
            .map(|(partition, seen)| {
                json!({
                    "partition": partition, "read": seen.read, "repeated": seen.repeated,
                    "skipped": seen.skipped, "next": seen.next, "committed": seen.committed,
                })
            })
            .collect();
        json!({
            "read": self.sum(|seen| seen.read), "processed": self.processed,
            "repeated": self.sum(|seen| seen.repeated), "skipped": self.sum(|seen| seen.skipped),
            "failed_commits": self.failed_commits, "partitions": partitions,
        })
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "read {}, processed {}, repeated {}, skipped {}",
            self.sum(|seen| seen.read),
            self.processed,
            self.sum(|seen| seen.repeated),
            self.sum(|seen| seen.skipped)
        );
        for (partition, seen) in &self.partitions {
            let offset =
                |offset: Option<i64>| offset.map_or_else(|| "-".to_owned(), |at| at.to_string());
            text += &format!(
                "\npartition {partition}: read {}, repeated {}, skipped {}, next offset {}, committed {}",
                seen.read,
                seen.repeated,
                seen.skipped,
                offset(seen.next),
                offset(seen.committed)
            );
        }
        for (reason, count) in &self.failed_commits {
            text += &format!("\n{count} commits failed: {reason}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_and_gaps_are_told_apart() {
        let mut account = Account::default();
        for offset in [5, 6, 6, 5, 7, 10] {
            account.read(0, offset);
        }
        let seen = &account.partitions()[&0];
        assert_eq!((seen.read, seen.repeated, seen.skipped, seen.next), (6, 2, 2, Some(11)));
    }

    #[test]
    fn what_an_earlier_run_did_counts() {
        let mut account = Account::default();
        account.expect(1, 10);
        account.expect(2, 10);
        account.read(1, 9);
        account.read(2, 12);
        assert_eq!((account.partitions()[&1].repeated, account.partitions()[&1].skipped), (1, 0));
        assert_eq!((account.partitions()[&2].repeated, account.partitions()[&2].skipped), (0, 2));
        account.committed(1, 10);
        account.commit_failed("RebalanceInProgress".to_owned());
        let json = account.json();
        assert_eq!((&json["repeated"], &json["skipped"]), (&json!(1), &json!(2)));
        assert_eq!(json["partitions"][0]["committed"], 10);
        assert!(
            account.text().contains(
                "partition 2: read 1, repeated 0, skipped 2, next offset 13, committed -"
            )
        );
        assert!(account.text().ends_with("1 commits failed: RebalanceInProgress"));
    }
}
