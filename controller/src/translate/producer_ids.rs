//! Taking a block of producer ids: conditional on the version of the node, so that no block is given twice.

use std::ops::Range;

use barnabas_proto::znode::{ProducerIdBlock, paths};
use barnabas_types::BrokerId;

use super::{Answer, GivenUp, Procedure, Step};
use crate::zookeeper::{CreateMode, Error, Op, Reply, Request};

/// Takes the next block of producer ids. After an unknown outcome a further block is taken: a gap does no harm.
#[derive(Clone, Debug)]
pub struct TakeProducerIds {
    me: BrokerId,
    /// The block whose write is under way.
    taking: Option<ProducerIdBlock>,
}

impl TakeProducerIds {
    /// For broker `me`.
    #[must_use]
    pub fn new(me: BrokerId) -> Self {
        Self { me, taking: None }
    }

    fn read(&mut self) -> Vec<Request> {
        self.taking = None;
        vec![Request::Get { path: paths::PRODUCER_ID_BLOCK.into(), watch: false }]
    }

    fn take(&mut self, reply: Reply) -> Step<<Self as Procedure>::Output> {
        let refused = |reason: String| Step::Done(Err(GivenUp(Error::Refused(reason))));
        let Reply::Node(node) = reply else { return Step::Later(self.read()) };
        let (last, version) = match node {
            None => (None, None),
            Some(node) => match ProducerIdBlock::parse(&node.data) {
                Ok(block) => (Some(block), Some(node.stat.version)),
                Err(error) => return refused(error.to_string()),
            },
        };
        let Some(block) = ProducerIdBlock::after(last.as_ref(), self.me) else {
            return refused("all producer ids are used up".to_owned());
        };
        self.taking = Some(block);
        let (path, data) = (paths::PRODUCER_ID_BLOCK.to_owned(), block.write());
        Step::InOrder(vec![match version {
            None => Request::Create { path, data, mode: CreateMode::Persistent },
            Some(_) => Request::Multi(vec![Op::Set { path, data, version }]),
        }])
    }
}

impl Procedure for TakeProducerIds {
    type Output = Result<Range<i64>, GivenUp>;

    fn begin(&mut self) -> Step<Self::Output> {
        Step::InOrder(self.read())
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Self::Output> {
        match (answers.pop(), self.taking) {
            (Some(Ok(reply)), None) => self.take(reply),
            (Some(Ok(_)), Some(block)) => Step::Done(Ok(block.first..block.last + 1)),
            // Somebody else took it.
            (Some(Err(Error::NodeExists)), _) => Step::InOrder(self.read()),
            (Some(Err(Error::Multi { error, .. })), _)
                if matches!(*error, Error::BadVersion | Error::NoNode) =>
            {
                Step::InOrder(self.read())
            }
            (Some(Err(Error::OutcomeUnknown(_))) | None, _) => Step::Later(self.read()),
            (Some(Err(error)), _) => Step::Done(Err(GivenUp(error))),
        }
    }
}
