//! Lets every replica forget the idempotent producers that have written nothing for so long (`producer.id.expiration.ms`).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::state::Node;

/// Longest time between two looks (Kafka's `producer.id.expiration.check.interval.ms`).
const INTERVAL_MS_MAX: u64 = 600_000;

/// Looks now and then, on a thread that may block: partitions' locks are held during writes.
pub(super) async fn run(node: Arc<Node>, expiration_ms: u64) {
    let every_ms = expiration_ms.clamp(1, INTERVAL_MS_MAX);
    let expiration_ms = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
    let mut interval = tokio::time::interval(Duration::from_millis(every_ms));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let node = node.clone();
        let looked = tokio::task::spawn_blocking(move || look(&node, expiration_ms));
        if let Err(error) = looked.await {
            tracing::error!(target: "state_change", %error, "expired producers were not looked for");
        }
    }
}

fn look(node: &Node, expiration_ms: i64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let all = node.partitions.all();
    let expired: usize = all.iter().map(|p| p.expire_producers(now_ms, expiration_ms)).sum();
    if expired > 0 {
        tracing::debug!(target: "state_change", expired, "producers have expired");
    }
}
