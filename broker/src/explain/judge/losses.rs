//! What the ledger has of the last day: acknowledged records that are lost, or may be.

use barnabas_types::TopicPartition;

use crate::explain::cause::{Cause, Kind, Severity, Step, shown};
use crate::explain::facts::Facts;

/// Ranges that are named.
const SHOWN_MAX: usize = 10;

/// One entry of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Whose log dropped it.
    pub broker: i32,
    /// Of which partition.
    pub at: TopicPartition,
    /// First offset, inclusive.
    pub from: i64,
    /// Exclusive; `None`: nobody knows where it ends.
    pub to: Option<i64>,
    /// `acks=all`, `acks=1` or `unknown`; what was never acknowledged is not told.
    pub class: String,
    /// Why.
    pub cause: String,
    /// How long ago (ms).
    pub age_ms: u64,
}

/// All of it, the newest first; `more` are not in `lost`. `None`: nothing was lost.
#[must_use]
pub fn losses(facts: &Facts, lost: &[Lost], more: bool) -> Option<Cause> {
    let newest = lost.first()?;
    let count = lost.len();
    let ranges = if count == 1 { "1 range".to_owned() } else { format!("{count} ranges") };
    let least = if more { "at least " } else { "" };
    let text = format!(
        "{least}{ranges} of records that were acknowledged, or may have been, were dropped by logs within the last 24 h"
    );
    let mut cause = Cause::new(Kind::RecordsLost, Severity::Notice, &[], text)
        .aged(Some((newest.age_ms, false)))
        .stays_until("a day has gone by; what is lost everywhere does not come back");
    for class in ["acks=all", "acks=1", "unknown"] {
        let of_class = lost.iter().filter(|lost| lost.class == class).count();
        if of_class > 0 {
            cause = cause.fact(format!("broker {}: {of_class} of class {class}", facts.me));
        }
    }
    for lost in lost.iter().take(SHOWN_MAX) {
        let to = lost.to.map_or("an unknown end".to_owned(), |to| to.to_string());
        cause = cause.fact(format!(
            "{} on broker {}: offsets {} to {to}, {}, {}",
            shown(&lost.at),
            lost.broker,
            lost.from,
            lost.class,
            lost.cause
        ));
    }
    let mut partitions: Vec<TopicPartition> = lost.iter().map(|lost| lost.at.clone()).collect();
    partitions.sort();
    partitions.dedup();
    cause.partitions = partitions;
    Some(
        cause
            .step(
                Step::new("barnabas ledger verify --since 24h", "nothing")
                    .when("it tells which of them the leaders still have"),
            )
            .next("barnabas ledger list --since 24h", "nothing"),
    )
}
