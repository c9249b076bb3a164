//! The page's JSON API under `/api/v1/`: answers from this broker's own copy of the cluster's state. What only others know is asked of
//! them within a deadline and carries its age, or is null.

mod brokers;
mod cluster;
mod configs;
mod explain;
mod failovers;
mod groups;
mod ledger;
mod partition;
mod partitions;
mod problems;
mod refusal;
mod standing;
mod topics;

pub(super) use brokers::brokers;
pub(super) use cluster::cluster;
pub(super) use failovers::{failover, is_ongoing};
pub(super) use ledger::Losses;
pub(super) use refusal::Refusal;

use bytes::Bytes;
use serde_json::Value;

use super::query::{Query, segments};
use super::source::Source;

/// Most entries of one answer.
pub(super) const PAGE_ROWS_MAX: usize = 500;
/// Entries of an answer to which nobody has said how many there shall be.
const ROWS: usize = 100;

/// The answer to `path`, which follows `/api/v1/`.
pub(super) async fn get(source: &Source, path: &str, query: &str) -> Result<Bytes, Refusal> {
    let (path, query) = (segments(path)?, Query::parse(query)?);
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let informed = source.node.view.image().controller.is_some();
    // The ledger, the failovers and explanations are for the times when the rest is in trouble.
    if !informed && !matches!(path[..], ["failovers" | "ledger" | "explain", ..]) {
        return Err(Refusal::not_ready("the broker has no metadata yet"));
    }
    let value = match path[..] {
        ["cluster"] => return source.kept("cluster", cluster(source)).await,
        ["brokers"] => return source.kept("brokers", brokers(source)).await,
        ["topics"] => return source.kept("topics", topics::topics(source)).await,
        ["partitions", "map"] => return source.kept("map", partitions::map(source)).await,
        ["partitions"] => partitions::list(source, &query).await?,
        ["partitions", topic, index] => partition::one(source, topic, index).await?,
        ["groups"] => groups::list(source).await,
        ["groups", name] => groups::one(source, name).await?,
        ["failovers"] => failovers::list(source, &query)?,
        ["failovers", id] => failovers::one(source, id)?,
        ["explain", kind, ref name @ ..] => explain::explain(source, kind, name).await?,
        ["ledger"] => ledger::list(source, &query).await?,
        ["configs"] => configs::list(source, &query)?,
        _ => return Err(Refusal::not_found("the API has no such path")),
    };
    Ok(Bytes::from(format!("{value}\n")))
}

/// Beyond this, numbers of JSON are not exact in a browser.
const EXACT_MAX: i64 = 1 << 53;

/// A 64-bit number: as text where a browser would round it.
fn exact(number: i64) -> Value {
    match number {
        number if (-EXACT_MAX..EXACT_MAX).contains(&number) => number.into(),
        number => number.to_string().into(),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[String]) -> String {
    match names.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_a_browser_would_round_are_texts() {
        assert_eq!(exact(EXACT_MAX - 1), json!(9_007_199_254_740_991_i64));
        assert_eq!(exact(EXACT_MAX), json!("9007199254740992"));
        assert_eq!(exact(-1), json!(-1));
    }
}
