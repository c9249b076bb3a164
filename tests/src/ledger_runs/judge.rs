//! Whether what the ledger says of lost records fits what their clients were told.

use super::Totals;
use super::evidence::{Entry, Place};

/// Lost records of a run, by what the ledger says of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Verdicts {
    /// A class is told, and each that is told can be.
    pub(super) right: u64,
    /// A class is told that cannot be.
    pub(super) wrong: u64,
    /// Named, and no class is told.
    pub(super) unknown: u64,
    /// Named by an entry with an end.
    pub(super) bounded: u64,
}

/// Judges each lost record of producers at `acks` by the entries that name it.
pub(super) fn judge(acks: i16, lost: &[Place], entries: &[Entry]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for at in lost {
        let naming: Vec<&Entry> = entries.iter().filter(|e| e.names(*at)).collect();
        verdicts.bounded += u64::from(naming.iter().any(|e| e.is_bounded()));
        let classes: Vec<&str> = naming.iter().map(|e| e.class.as_str()).collect();
        if classes.iter().any(|class| contradicts(acks, class)) {
            verdicts.wrong += 1;
        } else if classes.iter().any(|class| *class != "unknown") {
            verdicts.right += 1;
        } else if !classes.is_empty() {
            verdicts.unknown += 1;
        }
    }
    verdicts
}

/// Whether an entry's class cannot be, given what the producers of its records asked for and were told.
fn contradicts(acks: i16, class: &str) -> bool {
    match acks {
        // All answers came before the end of the ISR was told, so records may also be committed.
        1 => class == "never acked",
        // Nobody asked for acks=1.
        -1 => class == "never acked" || class == "acks=1",
        _ => class == "acks=1",
    }
}

impl Totals {
    /// Whether every lost record is named, of 100 at least 99 with a class that is right (one that is not told is none), and of 100 whose
    /// class is told at least 99 with a right one.
    #[must_use]
    pub fn holds(&self) -> bool {
        let told = self.right * 100 >= self.lost * 99;
        self.unnamed == 0 && told && self.wrong * 99 <= self.right && self.faults.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `[0, 10)` of partition 0.
    fn entry(class: &str) -> Entry {
        let entry = json!({
            "class": class, "cause": "truncated", "broker": 1, "partition": 0, "from": 0, "to": 10,
        });
        Entry::of(&entry).unwrap()
    }

    #[test]
    fn a_planted_class_is_found_to_be_wrong_and_one_that_is_not_told_is_not_right() {
        let lost: Vec<Place> = (0..10).map(|offset| (0, offset)).collect();
        for (acks, right, planted) in [
            (1, &["acks=1", "acks=all"][..], &["never acked"][..]),
            (-1, &["acks=all"], &["never acked", "acks=1"]),
            (0, &["never acked", "acks=all"], &["acks=1"]),
        ] {
            for class in right {
                let verdicts = judge(acks, &lost, &[entry(class), entry("unknown")]);
                assert_eq!((verdicts.right, verdicts.wrong), (10, 0), "acks={acks}, {class}");
            }
            for class in planted {
                // Whatever else is told of the same records.
                let verdicts = judge(acks, &lost, &[entry(right[0]), entry(class)]);
                assert_eq!((verdicts.right, verdicts.wrong), (0, 10), "acks={acks}, {class}");
            }
            let unknown = judge(acks, &lost, &[entry("unknown")]);
            assert_eq!((unknown.right, unknown.wrong, unknown.unknown), (0, 0, 10));
        }
        assert_eq!(judge(1, &[(1, 0)], &[entry("acks=1")]), Verdicts::default(), "elsewhere");
    }

    #[test]
    fn one_of_a_hundred_may_be_unknown_and_no_more() {
        let of = |right, unknown, wrong| Totals {
            lost: right + unknown + wrong,
            right,
            unknown,
            wrong,
            ..Totals::default()
        };
        assert!(of(99, 1, 0).holds() && of(100, 0, 0).holds() && of(0, 0, 0).holds());
        assert!(!of(98, 2, 0).holds() && !of(98, 0, 2).holds());
        assert!(!Totals { unnamed: 1, lost: 201, ..of(200, 0, 0) }.holds());
        assert!(!Totals { faults: vec!["a wrong class".to_owned()], ..of(100, 0, 0) }.holds());
    }
}
