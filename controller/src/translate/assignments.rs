//! Conditional writes of a topic's node together with one partition's state (R18).

use std::collections::BTreeMap;

use barnabas_controller_core::{AssignmentWrite, WriteId, WriteOutcome};
use barnabas_proto::znode::{self, TopicNode, paths};
use barnabas_types::{Assignment, PartitionState};

use super::load::{all, nodes};
use super::partitions::epoch_moved;
use super::{Answer, Fate, GivenUp, Procedure, Step, epoch_check, fate};
use crate::zookeeper::{Error, Node, Op, REQUEST_BYTES_MAX, Request};

/// One multi: the epoch check, the topic's node at its version, the partition's state at its version.
#[must_use]
pub fn assignment_write_ops(epoch_version: i32, write: &AssignmentWrite) -> Vec<Op> {
    let node = TopicNode { topic_id: write.topic_id, partitions: write.assignments.clone() };
    let set = |path: String, data: Vec<u8>, version| Op::Set { path, data, version: Some(version) };
    vec![
        epoch_check(epoch_version),
        set(paths::topic(&write.partition.topic), node.write(), write.topic_version),
        set(
            paths::partition_state(&write.partition),
            znode::write_partition_state(&write.state),
            write.expected.0,
        ),
    ]
}

#[derive(Clone, Debug)]
enum Stage {
    /// The multi is under way.
    Write,
    /// It failed, or its outcome is unknown; the epoch node and both others are being read.
    Read,
}

/// Performs one [`AssignmentWrite`] and finds out what became of it.
///
/// After an unknown outcome both nodes are read. As long as they are as they were, the write is submitted again: only when
/// something else uses up their versions is it certain that no earlier attempt lands any more.
#[derive(Clone, Debug)]
pub struct WriteAssignment {
    epoch_version: i32,
    write: AssignmentWrite,
    stage: Stage,
}

type Output = Result<(WriteId, WriteOutcome), GivenUp>;

impl WriteAssignment {
    /// A write that checks `/controller_epoch` at `epoch_version`.
    #[must_use]
    pub fn new(epoch_version: i32, write: AssignmentWrite) -> Self {
        Self { epoch_version, write, stage: Stage::Write }
    }

    fn done(&self, outcome: WriteOutcome) -> Step<Output> {
        Step::Done(Ok((self.write.write, outcome)))
    }

    fn submit(&mut self) -> Step<Output> {
        self.stage = Stage::Write;
        let multi = Request::Multi(assignment_write_ops(self.epoch_version, &self.write));
        if multi.size_bytes() > REQUEST_BYTES_MAX {
            let reason = "the write to ZooKeeper would be above 512 KiB";
            return self.done(WriteOutcome::Refused { reason });
        }
        Step::InOrder(vec![multi])
    }

    fn read(&mut self, at_once: bool) -> Step<Output> {
        self.stage = Stage::Read;
        let read = vec![
            paths::CONTROLLER_EPOCH.to_owned(),
            paths::topic(&self.write.partition.topic),
            paths::partition_state(&self.write.partition),
        ];
        let requests = vec![Request::Sync, Request::MultiRead(read)];
        if at_once { Step::InOrder(requests) } else { Step::Later(requests) }
    }

    fn after_write(&mut self, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied => self.done(WriteOutcome::Applied),
            Fate::Fenced => self.done(WriteOutcome::Fenced),
            Fate::Refused(reason) => self.done(WriteOutcome::Refused { reason }),
            Fate::GivenUp(error) => Step::Done(Err(GivenUp(error))),
            Fate::Failed(..) => self.read(true),
            Fate::Unknown => self.read(false),
        }
    }

    fn after_read(&mut self, read: &[Option<Node>]) -> Step<Output> {
        let node = |index: usize| read.get(index).and_then(Option::as_ref);
        let topic = node(1).and_then(|node| self.assignments_in(node));
        let now = node(2).and_then(|node| self.state_in(node));
        let (write, at) = (&self.write, self.write.partition.partition);
        let landed = now.as_ref() == Some(&write.state)
            && topic
                .as_ref()
                .is_some_and(|(_, found)| found.get(&at) == write.assignments.get(&at));
        if landed {
            return self.done(WriteOutcome::Applied);
        }
        if epoch_moved(read.first(), self.epoch_version) {
            return self.done(WriteOutcome::Fenced);
        }
        let as_before = topic.as_ref().is_some_and(|(version, _)| *version == write.topic_version)
            && now.as_ref().is_some_and(|state| state.partition_epoch == write.expected);
        if as_before {
            return self.submit();
        }
        self.done(WriteOutcome::AssignmentConflict { topic, now })
    }

    /// Version and assignments of the topic's node, if it is of the same life of the topic.
    fn assignments_in(&self, node: &Node) -> Option<(i32, BTreeMap<i32, Assignment>)> {
        let read = TopicNode::parse(&self.write.partition.topic, &node.data).ok()?;
        (read.topic_id == self.write.topic_id).then_some((node.stat.version, read.partitions))
    }

    fn state_in(&self, node: &Node) -> Option<PartitionState> {
        znode::parse_partition_state(&self.write.partition, &node.data, node.stat.version).ok()
    }
}

impl Procedure for WriteAssignment {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        self.submit()
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Output> {
        match self.stage {
            Stage::Write => self.after_write(answers.pop()),
            Stage::Read => match all(answers) {
                Ok(replies) => self.after_read(&nodes(replies)),
                Err(Error::OutcomeUnknown(_)) => self.read(false),
                Err(error) => Step::Done(Err(GivenUp(error))),
            },
        }
    }
}
