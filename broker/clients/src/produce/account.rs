//! What became of every record that a producer took: each is counted once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What the library said of one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// A broker acknowledged it, at this partition and offset.
    Acknowledged(i32, i64),
    /// It went to a socket; with acks=0 nobody acknowledges.
    Sent,
    /// It was not written: it was refused, or never sent. The reason by its name.
    Failed(String),
    /// It was sent and may have been written. The reason by its name.
    Unknown(String),
    /// It was still in the buffer when the producer left.
    Lost,
}

/// The sums of one run. Every record taken is in exactly one of the others, or still on its way.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Account {
    /// Records that came from the source.
    pub taken: u64,
    /// Bytes of their keys and values.
    pub taken_bytes: u64,
    /// Acknowledged by a broker.
    pub acknowledged: u64,
    /// Gone to a socket with acks=0.
    pub sent: u64,
    /// Not taken up, since the buffer was full.
    pub dropped: u64,
    /// Not written, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Perhaps written, by reason.
    pub unknown: BTreeMap<String, u64>,
    /// Still buffered at the end.
    pub lost: u64,
    /// How often the source had to wait for room in the buffer.
    pub waits: u64,
    /// Last acknowledged offset of each partition.
    pub last_offsets: BTreeMap<i32, i64>,
}

impl Account {
    /// Counts a record's end.
    pub fn ended(&mut self, fate: Fate) {
        match fate {
            Fate::Acknowledged(partition, offset) => {
                self.acknowledged += 1;
                let last = self.last_offsets.entry(partition).or_insert(offset);
                *last = (*last).max(offset);
            }
            Fate::Sent => self.sent += 1,
            Fate::Failed(reason) => *self.failed.entry(reason).or_default() += 1,
            Fate::Unknown(reason) => *self.unknown.entry(reason).or_default() += 1,
            Fate::Lost => self.lost += 1,
        }
    }

    /// Records of which nothing has been heard yet.
    #[must_use]
    pub fn on_its_way(&self) -> u64 {
        let sums = |reasons: &BTreeMap<String, u64>| reasons.values().sum::<u64>();
        let ended = self.acknowledged + self.sent + self.dropped + self.lost;
        self.taken - ended - sums(&self.failed) - sums(&self.unknown)
    }

    /// Whether every record that was taken is where it should be; with acks=0 that it was sent has to do.
    #[must_use]
    pub fn all_well(&self) -> bool {
        self.acknowledged + self.sent == self.taken
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let last: BTreeMap<String, i64> = self
            .last_offsets
            .iter()
            .map(|(partition, offset)| (partition.to_string(), *offset))
            .collect();
        json!({
            "taken": self.taken, "taken_bytes": self.taken_bytes, "acknowledged": self.acknowledged,
            "sent": self.sent, "dropped": self.dropped, "failed": self.failed, "unknown": self.unknown,
            "lost": self.lost, "waits": self.waits, "last_offsets": last,
        })
    }

    /// For people: what is not zero, and what it means.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![format!("taken         {:>9}  from the source", self.taken)];
        let mut line = |name: &str, count: u64, meaning: &str| {
            if count > 0 {
                lines.push(format!("{name:<13} {count:>9}  {meaning}"));
            }
        };
        line("acknowledged", self.acknowledged, "by a broker, as --acks asks");
        line("sent", self.sent, "to a broker that was not asked to acknowledge (--acks 0)");
        line("dropped", self.dropped, "the buffer was full (--on-full drop)");
        for (reason, count) in &self.failed {
            line("failed", *count, &format!("not written: {reason}"));
        }
        for (reason, count) in &self.unknown {
            line("unknown", *count, &format!("may have been written or not: {reason}"));
        }
        line("lost", self.lost, "still in the buffer at the end, sent to nobody");
        line("waits", self.waits, "times the source waited for room in the buffer");
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_counted_once() {
        let mut account = Account { taken: 7, dropped: 1, ..Account::default() };
        for fate in [
            Fate::Acknowledged(0, 5),
            Fate::Acknowledged(0, 4),
            Fate::Sent,
            Fate::Failed("MessageSizeTooLarge".to_owned()),
            Fate::Unknown("MessageTimedOut".to_owned()),
        ] {
            account.ended(fate);
        }
        assert_eq!(account.on_its_way(), 1);
        account.ended(Fate::Lost);
        assert_eq!(account.on_its_way(), 0);
        assert_eq!(account.last_offsets, BTreeMap::from([(0, 5)]), "the greatest, in any order");
        assert!(!account.all_well());
        let text = account.text();
        for word in [
            "taken",
            "acknowledged",
            "sent",
            "dropped",
            "MessageSizeTooLarge",
            "MessageTimedOut",
            "lost",
        ] {
            assert!(text.contains(word), "{word} is in {text}");
        }
        assert!(!text.contains("waits"), "what is zero is not shown");
        assert_eq!(account.json()["unknown"]["MessageTimedOut"], 1);
    }

    #[test]
    fn all_is_well_only_when_everything_is_acknowledged_or_sent() {
        let mut account = Account { taken: 2, ..Account::default() };
        account.ended(Fate::Acknowledged(0, 0));
        assert!(!account.all_well());
        account.ended(Fate::Sent);
        assert!(account.all_well());
        assert!(Account::default().all_well(), "nothing was asked for");
    }
}
