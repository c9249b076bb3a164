//! Controlled shutdown (R25, R26): a broker lets itself be emptied before it stops, as far as its time allows.

use std::time::Duration;

use barnabas_controller::DrainProgress;
use barnabas_types::{Condition, Sanitised};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Node;

/// First and longest wait before the controller is asked again.
const ASK_AGAIN_MS: (u64, u64) = (20, 500);

/// Whether and how a broker is to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stop {
    /// It is not.
    No,
    /// Once its partitions are led by others (the first signal).
    Orderly,
    /// Now (a further signal).
    AtOnce,
}

/// Drains this broker, until the controller says that it may stop, `max_wait` is over, or it is told to stop at once. Says
/// what was still in the way.
pub(super) async fn drain(node: &Node, max_wait: Duration, stop: &mut watch::Receiver<Stop>) {
    let begun = Instant::now();
    let mut last = None;
    let why = tokio::select! {
        () = ask(node, &mut last) => None,
        () = tokio::time::sleep(max_wait) => Some("controlled.shutdown.max.wait.ms is over"),
        _ = stop.wait_for(|stop| *stop == Stop::AtOnce) => Some("told to stop at once"),
    };
    let (me, ms) = (node.me, begun.elapsed().as_millis());
    let Some(why) = why else {
        tracing::info!(target: "controller", broker = %me, ms, "drained: this broker leads nothing and is in no ISR");
        return;
    };
    let Some(progress) = last else {
        tracing::warn!(target: "controller", broker = %me, ms, "stopping although no controller has answered: {why}");
        return;
    };
    tracing::warn!(
        target: "controller", broker = %me, ms, partitions = progress.partitions,
        "stopping although partitions still count on this broker: {why}"
    );
    for obstruction in progress.obstructions {
        let at = obstruction.partition;
        let state = node.view.image().topics.get(&at.topic).and_then(|topic| {
            topic.partitions.get(&at.partition).map(|partition| partition.state.clone())
        });
        let (leader_epoch, partition_epoch) =
            state.map_or((-1, -1), |state| (state.leader_epoch.0, state.partition_epoch.0));
        tracing::warn!(
            target: "state_change", topic = %at.topic, partition = at.partition, leader_epoch, partition_epoch,
            "not drained: {}", obstruction.reason
        );
    }
}

/// Until the controller says that this broker may stop.
async fn ask(node: &Node, last: &mut Option<DrainProgress>) {
    let mut wait_ms = ASK_AGAIN_MS.0;
    let mut marked = None;
    loop {
        // Another registration than the marked one is not draining (R25).
        if marked.is_none() || marked != node.broker_epoch() {
            marked = node.controller.mark_draining(true).await.ok();
        }
        if let Some(epoch) = marked {
            match node.controller.drain(epoch, true).await {
                Ok(progress) if progress.may_stop => return,
                Ok(progress) => {
                    if last.as_ref().is_none_or(|last| last.partitions != progress.partitions) {
                        tracing::info!(target: "controller", broker = %node.me, broker_epoch = %epoch, partitions = progress.partitions, "draining");
                    }
                    *last = Some(progress);
                }
                Err(condition) => {
                    tracing::debug!(target: "controller", broker = %node.me, broker_epoch = %epoch, condition = %Sanitised::sentence(&condition), "the controller does not say how far the drain has come");
                    if matches!(condition, Condition::InvalidRequest(_)) {
                        // Somebody has taken the mark away.
                        marked = None;
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(ASK_AGAIN_MS.1);
    }
}
