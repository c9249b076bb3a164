//! What many rounds of one fault came to.

use serde_json::{Value, json};

/// How far the timeline's sum and a client's measurement may be apart: a tenth, or so many milliseconds.
const APART_MS: f64 = 50.0;
const APART_SHARE: f64 = 0.1;

/// The rounds of one fault.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// In milliseconds.
    outages: Vec<u64>,
    /// Rounds whose record is as long as the client's wait, or nearly.
    agree: usize,
    failed: u64,
    changes_most: i64,
}

impl Outages {
    /// Counts a round as it is printed.
    pub(super) fn add(&mut self, round: &Value) {
        let outage = round["outage_ms"].as_u64().unwrap_or(u64::MAX);
        let recorded = round["recorded_ms"].as_f64();
        let near = |recorded: f64| {
            (outage as f64 - recorded).abs() <= APART_MS.max(outage as f64 * APART_SHARE)
        };
        self.agree += usize::from(recorded.is_some_and(near));
        self.failed += round["failed"].as_u64().unwrap_or(0);
        self.changes_most = self.changes_most.max(round["leader_changes"].as_i64().unwrap_or(0));
        self.outages.push(outage);
    }

    /// Median, 99th percentile (nearest rank) and the greatest, in milliseconds; and of faults that are `timed`, how many records agree.
    pub(super) fn figure(mut self, fault: &str, timed: bool) -> Value {
        self.outages.sort_unstable();
        let rank = |percent: usize| {
            self.outages.get((self.outages.len() * percent).div_ceil(100).max(1) - 1)
        };
        let mut figure = json!({
            "figure": "outage seen by a client", "fault": fault, "rounds": self.outages.len(), "p50_ms": rank(50),
            "p99_ms": rank(99), "most_ms": self.outages.last(), "failed": self.failed, "leader_changes_most": self.changes_most,
        });
        if timed {
            figure["timeline_agrees"] = json!(self.agree);
        }
        figure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest_and_records_agree_within_a_tenth_or_50_ms() {
        let mut outages = Outages::default();
        for ms in (1..=50).rev() {
            outages.add(&json!({"outage_ms": ms, "recorded_ms": 51.5, "failed": 1}));
        }
        let shown = outages.figure("kill", true);
        assert_eq!((&shown["p50_ms"], &shown["p99_ms"]), (&json!(25), &json!(50)));
        assert_eq!((&shown["timeline_agrees"], &shown["failed"]), (&json!(49), &json!(50)));
        let mut long = Outages::default();
        long.add(&json!({"outage_ms": 1_000, "recorded_ms": 905.0}));
        long.add(&json!({"outage_ms": 1_000, "recorded_ms": 895.0}));
        long.add(&json!({"outage_ms": 1_000, "recorded_ms": null}));
        assert_eq!(long.figure("kill", true)["timeline_agrees"], 1);
        assert_eq!(Outages::default().figure("kill", false)["p50_ms"], Value::Null);
    }
}
