//! Sends ISR proposals to the controller: all that wait in one request, one request at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_controller::AlterPartitionAnswer;
use barnabas_proto::convert::IsrProposals;
use barnabas_replica::{IsrProposal, ProposalOutcome, StatePush};
use barnabas_types::{BrokerEpoch, ClusterImage, Partition, PartitionState, TopicPartition};
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
            tracing::debug!(target: "state_change", %condition, "the ISR proposals were not answered; they are sent again");
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

/// Tells the replica; an accepted proposal's state is applied at once, the push repeats it.
fn answered(
    node: &Arc<Node>,
    hosted: &Arc<Hosted>,
    broker_epoch: Option<BrokerEpoch>,
    answer: Option<AlterPartitionAnswer>,
) {
    let (outcome, state) = match answer {
        Some(Ok(state)) => (ProposalOutcome::Accepted, Some(state)),
        Some(Err(condition)) => (ProposalOutcome::Refused(condition), None),
        None => (ProposalOutcome::Unknown, None),
    };
    let mut after = Aftermath::default();
    // Before the state: that one settles this proposal, and the next may be open right after it.
    hosted.proposal_answered(node.now(), outcome, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
    let image = node.view.image();
    if let (Some(state), Some(broker_epoch)) = (state, broker_epoch)
        && let Some(push) = adopted(&image, hosted, broker_epoch, state)
    {
        let mut after = Aftermath::default();
        hosted.state(node.now(), push, &mut after);
        after.settle(hosted, &**node, &mut Flush::default());
    }
}

/// The state that an accepted proposal has become, as if it were pushed to the broker epoch that proposed it. An answer has
/// no assignment: it is that of the image, which holds unless the image is of another life of the topic or newer.
fn adopted(
    image: &ClusterImage,
    hosted: &Hosted,
    broker_epoch: BrokerEpoch,
    state: PartitionState,
) -> Option<StatePush> {
    let tp = &hosted.topic_partition;
    let topic = image.topics.get(&tp.topic).filter(|t| t.incarnation == hosted.incarnation)?;
    let known = topic.partitions.get(&tp.partition)?;
    if known.state.leader_epoch != state.leader_epoch
        || known.state.partition_epoch >= state.partition_epoch
    {
        return None;
    }
    Some(StatePush {
        controller_epoch: state.controller_epoch,
        broker_epoch,
        incarnation: topic.incarnation,
        partition: Partition { assigned_replicas: known.assigned_replicas.clone(), state },
        min_insync_replicas: topic.config.min_insync_replicas,
        flush_mode: topic.config.flush_mode,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use barnabas_types::{BrokerId, Incarnation, PartitionEpoch, TopicConfig, TopicImage};

    use super::*;
    use crate::testing::{Disk, LIFE, MY_EPOCH, node, push, tp};

    fn image(incarnation: Incarnation, partition_epoch: i32) -> ClusterImage {
        let mut partition = push(1, 1, &[1]).partition;
        partition.state.partition_epoch = PartitionEpoch(partition_epoch);
        let config = TopicConfig::default();
        let partitions = BTreeMap::from([(0, partition)]);
        let topic = TopicImage { incarnation, config, partitions };
        ClusterImage { topics: BTreeMap::from([(tp("t", 0).topic, topic)]), ..Default::default() }
    }

    #[tokio::test]
    async fn r13_an_accepted_proposal_is_adopted_unless_the_image_is_newer_or_of_another_life() {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        let mut accepted = push(1, 1, &[1, 2]).partition.state;
        accepted.partition_epoch = PartitionEpoch(5);
        let adopted = |image: ClusterImage| adopted(&image, &hosted, MY_EPOCH, accepted.clone());
        let push = adopted(image(LIFE, 4)).unwrap();
        assert_eq!(push.partition.assigned_replicas, [BrokerId(1), BrokerId(2)]);
        assert_eq!(push.partition.state, accepted);
        assert_eq!(adopted(image(LIFE, 5)), None);
        assert_eq!(adopted(image(Incarnation { czxid: LIFE.czxid + 1, ..LIFE }, 1)), None);
        assert_eq!(adopted(ClusterImage::default()), None);
    }
}
