//! Conditional writes of partition states (R1), about a hundred to a multi.

use barnabas_controller_core::{PartitionWrite, WriteId, WriteOutcome};
use barnabas_proto::znode::{self, paths};
use barnabas_types::PartitionState;

use super::load::{all, nodes};
use super::{Answer, Fate, GivenUp, Procedure, Step, epoch_check, fate};
use crate::zookeeper::{Error, Node, Op, Reply, Request};

/// Most sets in one multi: more is hardly faster and stalls other clients.
pub const PARTITION_WRITES_MAX: usize = 100;

/// One multi: the epoch check, then a conditional set for each write.
#[must_use]
pub fn partition_write_ops(epoch_version: i32, writes: &[PartitionWrite]) -> Vec<Op> {
    let sets = writes.iter().map(|write| Op::Set {
        path: paths::partition_state(&write.partition),
        data: znode::write_partition_state(&write.state),
        version: Some(write.expected.0),
    });
    std::iter::once(epoch_check(epoch_version)).chain(sets).collect()
}

#[derive(Clone, Debug)]
enum Stage {
    /// The multi of all open writes is under way.
    Write,
    /// Open write `.0` failed; its node is being read.
    ReadOne(usize),
    /// The multi's outcome is unknown; the epoch node and all nodes are being read.
    ReadAll,
}

/// Writes up to [`PARTITION_WRITES_MAX`] partition states and finds out what became of each.
///
/// A write whose node has another version comes back as `Conflict` with what is there, and the rest is submitted again.
/// After an unknown outcome everything is read back: a state that is what was meant, at the expected version + 1, was
/// applied. Writes that may yet land are harmless: they are conditional on a version that the next write uses up.
#[derive(Clone, Debug)]
pub struct WritePartitions {
    epoch_version: i32,
    open: Vec<PartitionWrite>,
    ended: Vec<(WriteId, WriteOutcome)>,
    stage: Stage,
}

type Output = Result<Vec<(WriteId, WriteOutcome)>, GivenUp>;

impl WritePartitions {
    /// One procedure for each [`PARTITION_WRITES_MAX`] writes. They are independent of one another.
    #[must_use]
    pub fn batches(epoch_version: i32, writes: Vec<PartitionWrite>) -> Vec<Self> {
        let mut batches = Vec::new();
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            batches.push(Self {
                epoch_version,
                open: writes.by_ref().take(PARTITION_WRITES_MAX).collect(),
                ended: Vec::new(),
                stage: Stage::Write,
            });
        }
        batches
    }

    #[cfg(test)]
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    fn submit(&mut self) -> Step<Output> {
        if self.open.is_empty() {
            return Step::Done(Ok(std::mem::take(&mut self.ended)));
        }
        self.stage = Stage::Write;
        Step::InOrder(vec![Request::Multi(partition_write_ops(self.epoch_version, &self.open))])
    }

    fn end_all(&mut self, outcome: &WriteOutcome) -> Step<Output> {
        self.ended.extend(self.open.drain(..).map(|write| (write.write, outcome.clone())));
        self.submit()
    }

    fn read_all(&mut self) -> Step<Output> {
        self.stage = Stage::ReadAll;
        let states = self.open.iter().map(|write| paths::partition_state(&write.partition));
        let all = std::iter::once(paths::CONTROLLER_EPOCH.to_owned()).chain(states);
        Step::Later(vec![Request::Sync, Request::MultiRead(all.collect())])
    }

    fn after_write(&mut self, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied => self.end_all(&WriteOutcome::Applied),
            Fate::Fenced => self.end_all(&WriteOutcome::Fenced),
            Fate::Refused(reason) => self.end_all(&WriteOutcome::Refused { reason }),
            Fate::Unknown => self.read_all(),
            Fate::GivenUp(error) => Step::Done(Err(GivenUp(error))),
            Fate::Failed(index, _) => match self.open.get(index.wrapping_sub(1)) {
                Some(write) => {
                    let path = paths::partition_state(&write.partition);
                    self.stage = Stage::ReadOne(index - 1);
                    Step::InOrder(vec![Request::Sync, Request::Get { path, watch: false }])
                }
                None => self.read_all(),
            },
        }
    }

    fn after_read_one(&mut self, index: usize, replies: &[Reply]) -> Step<Output> {
        let Some(Reply::Node(node)) = replies.last() else { return self.read_all() };
        let write = self.open.remove(index);
        let now = node.as_ref().and_then(|node| state_in(&write, node));
        self.ended.push((write.write, WriteOutcome::Conflict { now }));
        self.submit()
    }

    fn after_read_all(&mut self, read: &[Option<Node>]) -> Step<Output> {
        let fenced = epoch_moved(read.first(), self.epoch_version);
        for (index, write) in self.open.drain(..).enumerate() {
            let now = read
                .get(index + 1)
                .and_then(Option::as_ref)
                .and_then(|node| state_in(&write, node));
            let outcome = if now.as_ref() == Some(&write.state) {
                WriteOutcome::Applied
            } else if fenced {
                WriteOutcome::Fenced
            } else {
                WriteOutcome::Conflict { now }
            };
            self.ended.push((write.write, outcome));
        }
        self.submit()
    }
}

impl Procedure for WritePartitions {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        self.submit()
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Output> {
        if matches!(self.stage, Stage::Write) {
            return self.after_write(answers.pop());
        }
        match (all(answers), &self.stage) {
            (Ok(replies), &Stage::ReadOne(index)) => self.after_read_one(index, &replies),
            (Ok(replies), _) => self.after_read_all(&nodes(replies)),
            (Err(Error::OutcomeUnknown(_)), _) => self.read_all(),
            (Err(error), _) => Step::Done(Err(GivenUp(error))),
        }
    }
}

fn state_in(write: &PartitionWrite, node: &Node) -> Option<PartitionState> {
    znode::parse_partition_state(&write.partition, &node.data, node.stat.version).ok()
}

/// Whether `/controller_epoch`, as read, is no longer at the version of the own election.
pub(super) fn epoch_moved(epoch: Option<&Option<Node>>, epoch_version: i32) -> bool {
    epoch.and_then(Option::as_ref).is_none_or(|node| node.stat.version != epoch_version)
}
