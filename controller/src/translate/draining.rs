//! Marking the own registration as draining, and back (R25): conditional on its version, so that nothing else in it is lost.
//!
//! Only the broker itself writes its registration. Versions begin anew with each registration: a write by somebody else could
//! land on the next one, undo a lost-tail mark and drain a broker that has just come back.

use barnabas_controller_core::SessionId;
use barnabas_proto::znode::{BrokerNode, paths};
use barnabas_types::{BrokerEpoch, BrokerId};

use super::{Answer, GivenUp, Procedure, Step};
use crate::zookeeper::{Error, Node, Op, Reply, Request};

/// The registration that was to be marked is no longer the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewed;

/// Sets or clears the mark in the registration `epoch` of broker `me`, which `session` owns.
#[derive(Clone, Debug)]
pub struct MarkDraining {
    me: BrokerId,
    session: SessionId,
    epoch: BrokerEpoch,
    draining: bool,
    writing: bool,
}

type Output = Result<Result<(), Renewed>, GivenUp>;

impl MarkDraining {
    /// Not begun yet.
    #[must_use]
    pub fn new(me: BrokerId, session: SessionId, epoch: BrokerEpoch, draining: bool) -> Self {
        Self { me, session, epoch, draining, writing: false }
    }

    fn read(&mut self) -> Vec<Request> {
        self.writing = false;
        vec![Request::Sync, Request::Get { path: paths::broker(self.me), watch: false }]
    }

    fn write(&mut self, node: Option<&Node>) -> Step<Output> {
        let mine = node.filter(|node| {
            node.stat.owner == Some(self.session) && node.stat.czxid == self.epoch.0
        });
        let Some(node) = mine else { return Step::Done(Ok(Err(Renewed))) };
        let registration = match BrokerNode::parse(self.me, &node.data) {
            Ok(registration) => registration,
            Err(error) => return Step::Done(Err(GivenUp(Error::Refused(error.to_string())))),
        };
        if registration.draining == self.draining {
            return Step::Done(Ok(Ok(())));
        }
        self.writing = true;
        let data = BrokerNode { draining: self.draining, ..registration }.write();
        let (path, version) = (paths::broker(self.me), Some(node.stat.version));
        Step::InOrder(vec![Request::Multi(vec![Op::Set { path, data, version }])])
    }
}

impl Procedure for MarkDraining {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        Step::InOrder(self.read())
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Output> {
        match (answers.pop(), self.writing) {
            (Some(Ok(Reply::Node(node))), false) => self.write(node.as_ref()),
            (Some(Ok(_)), true) => Step::Done(Ok(Ok(()))),
            (Some(Err(Error::Multi { error, .. })), _)
                if matches!(*error, Error::BadVersion | Error::NoNode) =>
            {
                Step::InOrder(self.read())
            }
            (Some(Ok(_) | Err(Error::OutcomeUnknown(_))) | None, _) => Step::Later(self.read()),
            (Some(Err(error)), _) => Step::Done(Err(GivenUp(error))),
        }
    }
}
