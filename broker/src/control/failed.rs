//! Replicas that cannot be served: logs that failed on their way to the agent, and the report of all of them on its way to the
//! controller (R38).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, FailedReplicas, Incarnation, Sanitised, TopicPartition,
};
use tokio::sync::{Notify, watch};

use crate::node::Node;
use crate::partition::{Hosted, LogFailure};

/// How long an answer may take before the report is sent again.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// First and longest wait before a report that was not taken is sent again.
const RETRY_MS: (u64, u64) = (50, 1000);

type Replicas = BTreeMap<TopicPartition, Incarnation>;

/// See the module's head. Each log fails once, so the list is bounded by what this broker hosts.
#[derive(Default)]
pub struct FailedReports {
    arrived: Mutex<Vec<(Arc<Hosted>, LogFailure)>>,
    wake: Notify,
    /// All replicas that cannot be served, as the agent knows them.
    all: watch::Sender<Replicas>,
    /// Why each of them cannot.
    reasons: Mutex<BTreeMap<TopicPartition, String>>,
}

/// To whom and under which registration a report was made.
type Addressee = (BrokerEpoch, (BrokerId, ControllerEpoch));

impl FailedReports {
    /// A log failed: the agent will see to it.
    pub fn add(&self, hosted: &Arc<Hosted>, failure: LogFailure) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push((hosted.clone(), failure));
        self.wake.notify_one();
    }

    /// The logs that failed since the last call, at least one.
    pub async fn taken(&self) -> Vec<(Arc<Hosted>, LogFailure)> {
        loop {
            let arrived =
                std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner));
            if !arrived.is_empty() {
                return arrived;
            }
            self.wake.notified().await;
        }
    }

    /// What cannot be served now, all of it, and why.
    pub fn tell(&self, all: Replicas, reasons: BTreeMap<TopicPartition, String>) {
        *self.reasons.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
        self.all.send_if_modified(|present| {
            let news = *present != all;
            *present = all;
            news
        });
    }

    /// Why a replica cannot be served; `None`: it can.
    #[must_use]
    pub fn reason(&self, at: &TopicPartition) -> Option<String> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
    }

    /// What cannot be served now.
    #[must_use]
    pub fn present(&self) -> Replicas {
        self.all.borrow().clone()
    }

    /// Reports until the broker stops: after each change, each registration, and to each new controller, until it is taken.
    pub async fn run(node: Arc<Node>) {
        let mut all = node.failed.all.subscribe();
        let mut membership = node.membership.clone();
        let (mut told, mut sequence, mut wait_ms): (Option<(Addressee, Replicas)>, _, _) =
            (None, 0, RETRY_MS.0);
        // Who may have taken a report whose answer was lost.
        let mut attempted: Option<Addressee> = None;
        loop {
            let replicas = all.borrow_and_update().clone();
            let present = *membership.borrow_and_update();
            let addressee = present.broker_epoch.zip(present.controller);
            let uncertain = attempted.is_some() && attempted == addressee;
            let news = |to: &Addressee| is_news(told.as_ref(), to, &replicas) || uncertain;
            let taken = match addressee.filter(news) {
                Some(to) => {
                    attempted = Some(to);
                    sequence += 1;
                    let (broker, broker_epoch) = (node.me, to.0);
                    let report = FailedReplicas {
                        broker,
                        broker_epoch,
                        sequence,
                        replicas: replicas.clone(),
                    };
                    let answer = node.controller.report_failed(report);
                    match tokio::time::timeout(ANSWER_DEADLINE, answer).await {
                        Ok(Ok(())) => {
                            told = Some((to, replicas));
                            attempted = None;
                            true
                        }
                        Ok(Err(condition)) => {
                            tracing::info!(target: "state_change", %broker_epoch, condition = %Sanitised::sentence(&condition), "the controller has not taken the report of failed replicas; it is sent again");
                            false
                        }
                        Err(_) => false,
                    }
                }
                None => true,
            };
            let changed = async {
                tokio::select! {
                    changed = all.changed() => changed.is_ok(),
                    changed = membership.changed() => changed.is_ok(),
                }
            };
            if taken {
                wait_ms = RETRY_MS.0;
                if !changed.await {
                    return;
                }
            } else {
                // Waiting for either: the answer may be another one before the wait is over.
                let _ = tokio::time::timeout(Duration::from_millis(wait_ms), changed).await;
                wait_ms = (wait_ms * 2).min(RETRY_MS.1);
            }
        }
    }
}

/// Whether the addressee does not know this yet. To one that was told nothing, "all can be served" is no news.
fn is_news(told: Option<&(Addressee, Replicas)>, to: &Addressee, replicas: &Replicas) -> bool {
    match told.filter(|(known, _)| known == to) {
        Some((_, known)) => known != replicas,
        None => !replicas.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use barnabas_types::TopicId;

    use super::*;
    use crate::testing::tp;

    #[test]
    fn r38_a_report_is_news_once_for_each_registration_and_controller() {
        let to = (BrokerEpoch(7), (BrokerId(2), ControllerEpoch(3)));
        let life = Incarnation { topic_id: TopicId([1; 16]), czxid: 5 };
        let (none, one) = (Replicas::new(), Replicas::from([(tp("t", 0), life)]));
        assert!(!is_news(None, &to, &none), "a new controller believes that all can be served");
        assert!(is_news(None, &to, &one));
        let told = (to, one.clone());
        assert!(!is_news(Some(&told), &to, &one));
        assert!(is_news(Some(&told), &to, &none), "it can be served again");
        for other in [(BrokerEpoch(8), to.1), (to.0, (BrokerId(1), ControllerEpoch(4)))] {
            assert!(is_news(Some(&told), &other, &one));
            assert!(!is_news(Some(&told), &other, &none), "what was reported is void there");
        }
    }
}
