//! What runs came by: a run in which nothing happens proves nothing.

use std::collections::BTreeMap;

/// How often things happened.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    const WANTED: [&'static str; 19] = [
        "joined",
        "assigned",
        "committed",
        "commit failed",
        "fenced",
        "full",
        "fifth generation",
        "static member back",
        "restart with open appends",
        "append failed",
        "out of order",
        "gone",
        "group deleted",
        "offset deleted",
        "dead",
        "removed",
        "stall",
        "landed untold",
        "deleted in doubt",
    ];

    pub(super) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        Self::WANTED.iter().map(|what| (*what, self.0.get(what).copied().unwrap_or(0))).collect()
    }
}
