//! Who waits for an answer of this term, by kind of request.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterConfigAnswer, AlterPartitionAnswer, CreatePartitionsAnswer, CreateTopicAnswer,
    DrainProgress, ElectLeadersAnswer, RequestId,
};
use barnabas_types::{Condition, TopicId};
use tokio::sync::oneshot;

/// Every caller whose request the core has not answered. Each holds a request of its own, which bounds them.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) alter: Waiting<AlterPartitionAnswer>,
    pub(super) create: Waiting<CreateTopicAnswer>,
    pub(super) delete: Waiting<Result<TopicId, Condition>>,
    pub(super) create_partitions: Waiting<CreatePartitionsAnswer>,
    pub(super) alter_config: Waiting<AlterConfigAnswer>,
    pub(super) failed: Waiting<Result<(), Condition>>,
    pub(super) drain: Waiting<Result<DrainProgress, Condition>>,
    pub(super) elect: Waiting<Result<ElectLeadersAnswer, Condition>>,
    pub(super) reassign: Waiting<Result<(), Condition>>,
}

/// Those who wait for one kind of answer.
pub(super) struct Waiting<A>(BTreeMap<RequestId, oneshot::Sender<A>>);

impl<A> Default for Waiting<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A> Waiting<A> {
    pub(super) fn wait(&mut self, request: RequestId, waiter: oneshot::Sender<A>) {
        self.0.insert(request, waiter);
    }

    pub(super) fn take(&mut self, request: RequestId) -> Option<oneshot::Sender<A>> {
        self.0.remove(&request)
    }

    /// Who has gone meanwhile is told nothing.
    pub(super) fn answer(&mut self, answers: impl IntoIterator<Item = (RequestId, A)>) {
        for (request, answer) in answers {
            if let Some(waiter) = self.take(request) {
                let _ = waiter.send(answer);
            }
        }
    }
}
