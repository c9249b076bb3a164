//! What consumers saw: the bytes at each offset, and how far the log was said to go.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What was seen of the partitions of one topic.
#[derive(Debug, Default)]
pub struct Marks {
    partitions: BTreeMap<i32, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Hash of the value at each offset.
    values: BTreeMap<i64, u64>,
    /// Greatest offset that was answered, by the kind of question.
    latest: BTreeMap<&'static str, i64>,
}

fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Marks {
    /// Notes a record; what is wrong with it.
    pub fn record(&mut self, partition: i32, offset: i64, value: &[u8]) -> Option<String> {
        let seen = self.partitions.entry(partition).or_default();
        let before = seen.values.insert(offset, hash(value))?;
        (before != hash(value)).then(|| {
            let now = String::from_utf8_lossy(value);
            format!("partition {partition}: offset {offset} held something else before '{now}'")
        })
    }

    /// Notes how far the log goes for consumers, as answered to one kind of question; what is wrong with it.
    pub fn latest(&mut self, partition: i32, what: &'static str, offset: i64) -> Option<String> {
        let seen = self.partitions.entry(partition).or_default();
        let before = seen.latest.insert(what, offset).filter(|before| *before > offset)?;
        Some(format!("partition {partition}: the {what} went from {before} to {offset}"))
    }

    /// Records seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.partitions.values().map(|seen| seen.values.len() as u64).sum()
    }

    /// What was seen and is not, or otherwise, among all that a partition holds in the end.
    #[must_use]
    pub fn vanished(
        &self,
        topic: &str,
        partition: i32,
        found: &BTreeMap<i64, Vec<u8>>,
    ) -> Vec<String> {
        let Some(seen) = self.partitions.get(&partition) else { return Vec::new() };
        let gone = seen.values.iter().filter(|(offset, before)| {
            found.get(offset).map(|value| hash(value)) != Some(**before)
        });
        gone.map(|(offset, _)| {
            let now = found.get(offset).map(|value| String::from_utf8_lossy(value));
            format!("{topic}-{partition}: consumers saw something at offset {offset}, where now is {now:?}")
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_again_is_fine_and_something_else_is_not() {
        let mut marks = Marks::default();
        assert_eq!(marks.record(0, 0, b"a"), None);
        assert_eq!(marks.record(0, 0, b"a"), None);
        assert_eq!(marks.record(1, 0, b"b"), None);
        assert_eq!(marks.seen(), 2);
        assert!(marks.record(0, 0, b"b").is_some());
    }

    #[test]
    fn an_end_that_goes_down_is_told() {
        let mut marks = Marks::default();
        for offset in [3, 3, 5] {
            assert_eq!(marks.latest(0, "high watermark", offset), None);
        }
        assert_eq!(marks.latest(0, "last offset", 4), None);
        assert!(marks.latest(0, "high watermark", 4).is_some());
    }

    #[test]
    fn what_vanished_or_changed_is_told() {
        let mut marks = Marks::default();
        for (offset, value) in [(0, b"a"), (1, b"b"), (2, b"c")] {
            assert_eq!(marks.record(0, offset, value), None);
        }
        let whole = BTreeMap::from([(0, b"a".to_vec()), (1, b"b".to_vec()), (2, b"c".to_vec())]);
        assert!(marks.vanished("t", 0, &whole).is_empty());
        let other = BTreeMap::from([(0, b"a".to_vec()), (1, b"x".to_vec())]);
        assert_eq!(marks.vanished("t", 0, &other).len(), 2);
    }
}
