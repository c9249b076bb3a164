//! Adding partitions to a topic: one multi with the topic's node at the version that was read (R1, R29).

use std::collections::BTreeMap;

use barnabas_controller_core::{WriteId, WriteOutcome};
use barnabas_proto::znode::{TopicNode, paths};
use barnabas_types::{Assignment, BrokerId, Incarnation, PartitionState, TopicName};

use super::load::{all, nodes};
use super::partitions::epoch_moved;
use super::topics::partition_ops;
use super::{Answer, Fate, GivenUp, Procedure, Step, epoch_check, fate};
use crate::zookeeper::{Error, Node, Op, REQUEST_BYTES_MAX, Request};

/// What is added: `TopicWrite::Grow`.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) write: WriteId,
    pub(super) name: TopicName,
    pub(super) incarnation: Incarnation,
    pub(super) first: i32,
    pub(super) partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
}

/// Reads the topic's node, then writes it with the new partitions beside those that it names, on the condition that it has not
/// changed since: so a reassignment under way keeps what it wrote there.
#[derive(Clone, Debug)]
pub struct GrowTopic {
    epoch_version: i32,
    growth: Growth,
    writing: bool,
    /// An attempt has an unknown outcome: what was meant may be there.
    tried: bool,
}

type Output = Result<(WriteId, WriteOutcome), GivenUp>;

impl GrowTopic {
    pub(super) fn new(epoch_version: i32, growth: Growth) -> Self {
        Self { epoch_version, growth, writing: false, tried: false }
    }

    fn done(&self, outcome: WriteOutcome) -> Step<Output> {
        Step::Done(Ok((self.growth.write, outcome)))
    }

    fn refused(&self, reason: &'static str) -> Step<Output> {
        self.done(WriteOutcome::Refused { reason })
    }

    fn reads(&self) -> Vec<Request> {
        let read = vec![paths::CONTROLLER_EPOCH.to_owned(), paths::topic(&self.growth.name)];
        vec![Request::Sync, Request::MultiRead(read)]
    }

    fn read_again(&mut self) -> Step<Output> {
        self.writing = false;
        Step::Later(self.reads())
    }

    fn after_read(&mut self, read: &[Option<Node>]) -> Step<Output> {
        let [epoch, topic] = read else { return self.read_again() };
        if epoch_moved(Some(epoch), self.epoch_version) {
            return self.done(WriteOutcome::Fenced);
        }
        let Growth { name, incarnation, first, partitions, .. } = &self.growth;
        let Some(stored) = topic.as_ref().filter(|node| node.stat.czxid == incarnation.czxid)
        else {
            return self.done(WriteOutcome::TopicConflict);
        };
        let Ok(mut node) = TopicNode::parse(name, &stored.data) else {
            return self.refused("the topic's node in ZooKeeper cannot be read; restore it");
        };
        let is_mine = |(index, (assigned, _)): (&i32, &(Vec<BrokerId>, _))| {
            node.partitions.get(index).is_some_and(|a| a.replicas == *assigned)
        };
        if self.tried && partitions.iter().all(is_mine) {
            return self.done(WriteOutcome::Applied);
        }
        if i32::try_from(node.partitions.len()) != Ok(*first) {
            return self.refused(
                "somebody else has changed its number of partitions in ZooKeeper; it is known after the next election",
            );
        }
        let added = partitions
            .iter()
            .map(|(index, (assigned, _))| (*index, Assignment::settled(assigned.clone())));
        node.partitions.extend(added);
        let mut ops = vec![
            epoch_check(self.epoch_version),
            Op::Set {
                path: paths::topic(name),
                data: node.write(),
                version: Some(stored.stat.version),
            },
        ];
        ops.extend(partition_ops(name, partitions));
        let multi = Request::Multi(ops);
        if multi.size_bytes() > REQUEST_BYTES_MAX {
            return self.refused(
                "it would be more than one ZooKeeper transaction of 512 KiB can carry; add fewer at once",
            );
        }
        self.writing = true;
        Step::InOrder(vec![multi])
    }

    fn after_write(&mut self, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied => self.done(WriteOutcome::Applied),
            Fate::Fenced => self.done(WriteOutcome::Fenced),
            Fate::Refused(reason) => self.refused(reason),
            Fate::GivenUp(error) => Step::Done(Err(GivenUp(error))),
            Fate::Unknown => {
                self.tried = true;
                self.read_again()
            }
            Fate::Failed(_, Error::NodeExists) => self.refused(
                "nodes of the new partitions are there already, left by somebody else; remove them from ZooKeeper",
            ),
            // The topic's node changed since the read; an earlier attempt may have been what changed it.
            Fate::Failed(..) => self.read_again(),
        }
    }
}

impl Procedure for GrowTopic {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        Step::InOrder(self.reads())
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Output> {
        if self.writing {
            return self.after_write(answers.pop());
        }
        match all(answers) {
            Ok(replies) => self.after_read(&nodes(replies)),
            Err(Error::OutcomeUnknown(_)) => self.read_again(),
            Err(error) => Step::Done(Err(GivenUp(error))),
        }
    }
}
