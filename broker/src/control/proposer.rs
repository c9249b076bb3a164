//! Sends ISR proposals to the controller: all that wait in one request, one request at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_controller::AlterPartitionAnswer;
use barnabas_proto::convert::IsrProposals;
use barnabas_replica::{IsrProposal, ProposalOutcome, StatePush};
use barnabas_types::{Partition, PartitionState, TopicPartition};
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
            let answers = send(&node, &batch).await;
            for ((hosted, _), answer) in batch.iter().zip(answers) {
                answered(&node, hosted, answer);
            }
        }
    }
}

/// One request; every proposal gets an answer, if only "unknown".
async fn send(
    node: &Node,
    batch: &[(Arc<Hosted>, IsrProposal)],
) -> Vec<Option<AlterPartitionAnswer>> {
    let unknown = || batch.iter().map(|_| None).collect();
    let Some(broker_epoch) = node.broker_epoch() else { return unknown() };
    let proposals = batch.iter().map(|(hosted, proposal)| item(hosted, proposal)).collect();
    let request = IsrProposals { leader: node.me, broker_epoch, proposals };
    match tokio::time::timeout(ANSWER_DEADLINE, node.controller.alter_partitions(request)).await {
        Ok(Ok(answers)) => answers.into_iter().map(Some).collect(),
        Ok(Err(condition)) => {
            tracing::debug!(target: "state_change", %condition, "the ISR proposals were not answered; they are sent again");
            unknown()
        }
        Err(_) => unknown(),
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

/// Tells the replica; an accepted proposal's state is applied at once, the push repeats it.
fn answered(node: &Arc<Node>, hosted: &Arc<Hosted>, answer: Option<AlterPartitionAnswer>) {
    let outcome = match answer {
        Some(Ok(state)) => {
            adopt(node, hosted, state);
            ProposalOutcome::Accepted
        }
        Some(Err(condition)) => ProposalOutcome::Refused(condition),
        None => ProposalOutcome::Unknown,
    };
    let mut after = Aftermath::default();
    hosted.proposal_answered(node.now(), outcome, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
}

fn adopt(node: &Arc<Node>, hosted: &Arc<Hosted>, state: PartitionState) {
    let image = node.view.image();
    let Some(topic) = image.topics.get(&hosted.topic_partition.topic) else { return };
    let Some(partition) = topic.partitions.get(&hosted.topic_partition.partition) else { return };
    let Some(broker_epoch) = node.broker_epoch() else { return };
    let push = StatePush {
        controller_epoch: state.controller_epoch,
        broker_epoch,
        incarnation: topic.incarnation,
        partition: Partition { assigned_replicas: partition.assigned_replicas.clone(), state },
        min_insync_replicas: topic.config.min_insync_replicas,
        flush_mode: topic.config.flush_mode,
    };
    let mut after = Aftermath::default();
    hosted.state(node.now(), push, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
}
