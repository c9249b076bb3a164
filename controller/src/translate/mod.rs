//! What the cores want, as requests to ZooKeeper, and what ZooKeeper said, as events for the cores. Pure.
//!
//! Everything that takes more than one request is a [`Procedure`]: a small machine that says what to ask next. The shell
//! drives it with awaits, the simulator with its own queue; both run the same code.

mod assignments;
mod candidate;
mod configs;
mod draining;
mod grow;
#[cfg(test)]
mod grow_tests;
mod load;
mod partitions;
mod producer_ids;
#[cfg(test)]
mod tests;
mod topics;

pub use assignments::{WriteAssignment, assignment_write_ops};
pub use candidate::{
    CandidateCall, base_tree_requests, delete_controller_ops, race_ops, registration_of,
};
pub use configs::{ConfigNotices, ReadConfigNotices, WriteConfig};
pub use draining::{MarkDraining, Renewed};
pub use load::{Load, Loaded, ReadBrokers, Registrations};
pub use partitions::{PARTITION_WRITES_MAX, WritePartitions, partition_write_ops};
pub use producer_ids::TakeProducerIds;
pub use topics::{WriteTopic, topic_create_ops};

use barnabas_proto::znode::paths;

use crate::zookeeper::{Error, Op, Reply, Request};

/// What a [`Procedure`] wants next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// Submit these one after the other, each after the reply to the one before; give all replies to
    /// [`Procedure::advance`] in this order. After the first reply that is an error the rest need not be submitted: give
    /// the replies up to and including it.
    InOrder(Vec<Request>),
    /// Submit these in any order and number at once; give all replies in the order of the requests.
    AnyOrder(Vec<Request>),
    /// As `InOrder`, but first pause a little: the last attempt had an unknown outcome.
    Later(Vec<Request>),
    /// It is over.
    Done(T),
}

/// A result of one request.
pub type Answer = Result<Reply, Error>;

/// The session is gone, or the store refuses for good: the procedure was given up. Nothing more is known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("given up: {0}")]
pub struct GivenUp(pub Error);

/// Several requests that belong together; see [`Step`].
pub trait Procedure {
    /// What it gives in the end.
    type Output;
    /// The first step. Called once, before `advance`.
    fn begin(&mut self) -> Step<Self::Output>;
    /// The next step, after the replies to the one before.
    fn advance(&mut self, answers: Vec<Answer>) -> Step<Self::Output>;
}

/// Runs a procedure to its end against something that answers at once, such as
/// [`Tree::apply`](crate::zookeeper::memory::Tree::apply).
pub fn run_at_once<P: Procedure>(
    procedure: &mut P,
    mut submit: impl FnMut(&Request) -> Answer,
) -> P::Output {
    let mut step = procedure.begin();
    loop {
        let (requests, in_order) = match step {
            Step::Done(output) => return output,
            Step::InOrder(requests) | Step::Later(requests) => (requests, true),
            Step::AnyOrder(requests) => (requests, false),
        };
        let mut answers = Vec::with_capacity(requests.len());
        for request in &requests {
            let answer = submit(request);
            let failed = answer.is_err();
            answers.push(answer);
            if failed && in_order {
                break;
            }
        }
        step = procedure.advance(answers);
    }
}

/// `/controller_epoch` at the version of the own election: the first operation of every controller write (R1).
#[must_use]
pub fn epoch_check(epoch_version: i32) -> Op {
    Op::Check { path: paths::CONTROLLER_EPOCH.into(), version: epoch_version }
}

/// What became of a multi that begins with [`epoch_check`].
#[derive(Clone, PartialEq, Eq, Debug)]
enum Fate {
    Applied,
    /// A newer controller is elected (or the epoch node is gone).
    Fenced,
    /// Operation `index` (the check is 0) failed; nothing was applied.
    Failed(usize, Error),
    Unknown,
    Refused(&'static str),
    GivenUp(Error),
}

fn fate(answer: Option<Answer>) -> Fate {
    match answer {
        Some(Ok(_)) => Fate::Applied,
        Some(Err(Error::Multi { index: 0, error }))
            if matches!(*error, Error::BadVersion | Error::NoNode) =>
        {
            Fate::Fenced
        }
        Some(Err(Error::Multi { error, .. })) if matches!(*error, Error::Refused(_)) => {
            Fate::Refused("ZooKeeper refuses the write (access rights?)")
        }
        Some(Err(Error::Multi { index, error })) => Fate::Failed(index, *error),
        Some(Err(Error::TooLarge { .. })) => {
            Fate::Refused("the write to ZooKeeper would be above 512 KiB")
        }
        Some(Err(Error::Refused(_))) => {
            Fate::Refused("ZooKeeper refuses the write (access rights?)")
        }
        Some(Err(Error::OutcomeUnknown(_))) | None => Fate::Unknown,
        Some(Err(error)) => Fate::GivenUp(error),
    }
}
