//! Sends ISR proposals to the controller: all that wait in one request, one request at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_controller::AlterPartitionAnswer;
use barnabas_proto::convert::IsrProposals;
use barnabas_replica::{IsrProposal, ProposalOutcome};
use barnabas_types::{BrokerEpoch, Sanitised, TopicPartition};
use tokio::sync::Notify;

use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};

/// Most proposals in one request.
const PROPOSALS_PER_REQUEST_MAX: usize = 1000;
/// How long an answer may take before the outcome counts as unknown.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Proposals that wait to be sent; at most one a partition, so the map is bounded by what this broker hosts.
#[derive(Default)]
pub struct Proposals {
    waiting: Mutex<BTreeMap<TopicPartition, (Arc<Hosted>, IsrProposal)>>,
    wake: Notify,
}

impl Proposals {
    /// Queues a proposal.
    pub fn add(&self, hosted: &Arc<Hosted>, proposal: IsrProposal) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(hosted.topic_partition.clone(), (hosted.clone(), proposal));
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<(Arc<Hosted>, IsrProposal)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = Vec::new();
        while batch.len() < PROPOSALS_PER_REQUEST_MAX {
            let Some((_, entry)) = waiting.pop_first() else { break };
            batch.push(entry);
        }
        batch
    }

    /// Sends until the broker stops. Runs on the control runtime.
    pub async fn run(node: Arc<Node>) {
        loop {
            let batch = node.proposals.take();
            if batch.is_empty() {
                node.proposals.wake.notified().await;
                continue;
            }
            let broker_epoch = node.broker_epoch();
            let answers = match broker_epoch {
                Some(broker_epoch) => send(&node, broker_epoch, &batch).await,
                None => Vec::new(),
            };
            let node = node.clone();
            // Partitions' locks are held during writes: a slow disk must not hold the control runtime, which keeps the
            // session with ZooKeeper.
            let told = tokio::task::spawn_blocking(move || {
                let answers = answers.into_iter().chain(std::iter::repeat_with(|| None));
                for ((hosted, _), answer) in batch.iter().zip(answers) {
                    answered(&node, hosted, broker_epoch, answer);
                }
            });
            if let Err(error) = told.await {
                tracing::error!(target: "state_change", %error, "answers to ISR proposals were not taken");
            }
        }
    }
}

/// One request. Proposals without an answer here have an unknown outcome.
async fn send(
    node: &Node,
    broker_epoch: BrokerEpoch,
    batch: &[(Arc<Hosted>, IsrProposal)],
) -> Vec<Option<AlterPartitionAnswer>> {
    let proposals = batch.iter().map(|(hosted, proposal)| item(hosted, proposal)).collect();
    let request = IsrProposals { leader: node.me, broker_epoch, proposals };
    match tokio::time::timeout(ANSWER_DEADLINE, node.controller.alter_partitions(request)).await {
        Ok(Ok(answers)) => answers.into_iter().map(Some).collect(),
        Ok(Err(condition)) => {
            tracing::debug!(target: "state_change", condition = %Sanitised::sentence(&condition), "the ISR proposals were not answered; they are sent again");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

fn item(hosted: &Hosted, proposal: &IsrProposal) -> barnabas_proto::convert::IsrProposal {
    barnabas_proto::convert::IsrProposal {
        partition: hosted.topic_partition.clone(),
        incarnation: proposal.incarnation,
        leader_epoch: proposal.leader_epoch,
        partition_epoch: proposal.partition_epoch,
        isr: proposal.isr.clone(),
    }
}

/// Tells the replica, which adopts an accepted proposal's state at once; the push repeats it.
fn answered(
    node: &Arc<Node>,
    hosted: &Arc<Hosted>,
    broker_epoch: Option<BrokerEpoch>,
    answer: Option<AlterPartitionAnswer>,
) {
    let outcome = match (answer, broker_epoch) {
        (Some(Ok(state)), Some(broker_epoch)) => ProposalOutcome::Accepted { broker_epoch, state },
        (Some(Err(condition)), _) => ProposalOutcome::Refused(condition),
        _ => ProposalOutcome::Unknown,
    };
    let mut after = Aftermath::default();
    hosted.proposal_answered(node.now(), outcome, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
}
