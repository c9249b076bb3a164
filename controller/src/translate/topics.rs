//! Creating a topic in one multi (R29) and deleting one in resumable steps; adding partitions is in `grow`.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{TopicWrite, WriteId, WriteOutcome};
use barnabas_proto::znode::{self, TopicNode, paths};
use barnabas_types::{Assignment, BrokerId, PartitionState, TopicId, TopicName};

use super::grow::{GrowTopic, Growth};
use super::load::{all, nodes};
use super::partitions::epoch_moved;
use super::{Answer, Fate, GivenUp, Procedure, Step, epoch_check, fate};
use crate::zookeeper::{CreateMode, Error, Node, Op, REQUEST_BYTES_MAX, Reply, Request};

/// Partitions that one multi of a deletion removes.
const PARTITIONS_A_DELETE: usize = 50;

/// One multi: the epoch check, the topic's node, a node and a state for each partition, the settings.
#[must_use]
pub fn topic_create_ops(
    epoch_version: i32,
    name: &TopicName,
    topic_id: TopicId,
    overrides: &BTreeMap<String, String>,
    partitions: &BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
) -> Vec<Op> {
    let assignments = partitions
        .iter()
        .map(|(&index, (replicas, _))| (index, Assignment::settled(replicas.clone())));
    let node = TopicNode { topic_id, partitions: assignments.collect() };
    let mut ops = vec![
        epoch_check(epoch_version),
        create(paths::topic(name), node.write()),
        create(paths::partitions(name), Vec::new()),
    ];
    ops.extend(partition_ops(name, partitions));
    ops.push(create(paths::topic_config(name), znode::write_config(overrides)));
    ops
}

/// A node and a state node for each partition.
pub(super) fn partition_ops(
    name: &TopicName,
    partitions: &BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
) -> Vec<Op> {
    let mut ops = Vec::with_capacity(2 * partitions.len());
    for (&index, (_, state)) in partitions {
        let path = paths::partition(name, index);
        ops.push(create(path.clone(), Vec::new()));
        ops.push(create(format!("{path}/state"), znode::write_partition_state(state)));
    }
    ops
}

fn create(path: String, data: Vec<u8>) -> Op {
    Op::Create { path, data, mode: CreateMode::Persistent }
}

#[derive(Clone, Debug)]
enum Stage {
    /// The create multi is under way.
    Create,
    /// Reading epoch and topic node after the create; `applied` if the multi itself said so.
    ReadCreated { applied: bool },
    /// Reading whether there is a topic to delete, and its partitions.
    List,
    /// The mark is being set.
    Mark,
    /// A multi of deletions is under way.
    Delete(Vec<Op>),
    /// Reading which nodes of a failed multi are still there.
    ReadLeft(Vec<Op>),
}

/// Performs one [`TopicWrite`] and finds out what became of it.
#[derive(Clone, Debug)]
pub enum WriteTopic {
    /// The whole topic appears or goes.
    Whole(CreateOrDelete),
    /// It gets more partitions.
    Grow(GrowTopic),
}

impl WriteTopic {
    /// A write that checks `/controller_epoch` at `epoch_version`.
    #[must_use]
    pub fn new(epoch_version: i32, write: TopicWrite) -> Self {
        match write {
            TopicWrite::Grow { write, name, incarnation, first, partitions } => {
                let grow = Growth { write, name, incarnation, first, partitions };
                Self::Grow(GrowTopic::new(epoch_version, grow))
            }
            whole => Self::Whole(CreateOrDelete::new(epoch_version, whole)),
        }
    }
}

impl Procedure for WriteTopic {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        match self {
            Self::Whole(whole) => whole.begin(),
            Self::Grow(grow) => grow.begin(),
        }
    }

    fn advance(&mut self, answers: Vec<Answer>) -> Step<Output> {
        match self {
            Self::Whole(whole) => whole.advance(answers),
            Self::Grow(grow) => grow.advance(answers),
        }
    }
}

/// A creation or a deletion.
#[derive(Clone, Debug)]
pub struct CreateOrDelete {
    epoch_version: i32,
    write: TopicWrite,
    stage: Stage,
    /// The settings node was there before: set it instead of creating it.
    config_exists: bool,
    /// This deletion has begun to remove nodes.
    began: bool,
    /// Partitions still to delete.
    left: BTreeSet<i32>,
}

type Output = Result<(WriteId, WriteOutcome), GivenUp>;

impl CreateOrDelete {
    fn new(epoch_version: i32, write: TopicWrite) -> Self {
        let stage = match write {
            TopicWrite::Create { .. } => Stage::Create,
            TopicWrite::Delete { .. } | TopicWrite::Grow { .. } => Stage::List,
        };
        Self {
            epoch_version,
            write,
            stage,
            config_exists: false,
            began: false,
            left: BTreeSet::new(),
        }
    }

    fn name(&self) -> &TopicName {
        match &self.write {
            TopicWrite::Create { name, .. }
            | TopicWrite::Delete { name, .. }
            | TopicWrite::Grow { name, .. } => name,
        }
    }

    fn done(&self, outcome: WriteOutcome) -> Step<Output> {
        let write = match &self.write {
            TopicWrite::Create { write, .. }
            | TopicWrite::Delete { write, .. }
            | TopicWrite::Grow { write, .. } => *write,
        };
        Step::Done(Ok((write, outcome)))
    }

    fn submit(&mut self) -> Step<Output> {
        match &self.write {
            TopicWrite::Create { name, topic_id, overrides, partitions, .. } => {
                let mut ops =
                    topic_create_ops(self.epoch_version, name, *topic_id, overrides, partitions);
                if self.config_exists
                    && let Some(Op::Create { path, data, .. }) = ops.pop()
                {
                    ops.push(Op::Set { path, data, version: None });
                }
                self.stage = Stage::Create;
                Step::InOrder(vec![Request::Multi(ops)])
            }
            TopicWrite::Delete { .. } | TopicWrite::Grow { .. } => {
                self.stage = Stage::List;
                Step::InOrder(self.list())
            }
        }
    }

    fn list(&self) -> Vec<Request> {
        let name = self.name();
        let read = vec![paths::CONTROLLER_EPOCH.to_owned(), paths::topic(name)];
        let children = Request::Children { path: paths::partitions(name), watch: false };
        vec![Request::Sync, Request::MultiRead(read), children]
    }

    fn read_created(&mut self, applied: bool) -> Step<Output> {
        self.stage = Stage::ReadCreated { applied };
        let read = vec![paths::CONTROLLER_EPOCH.to_owned(), paths::topic(self.name())];
        let requests = vec![Request::Sync, Request::MultiRead(read)];
        if applied { Step::InOrder(requests) } else { Step::Later(requests) }
    }

    fn after_create(&mut self, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied => self.read_created(true),
            Fate::Fenced => self.done(WriteOutcome::Fenced),
            Fate::Refused(reason) => self.done(WriteOutcome::Refused { reason }),
            Fate::GivenUp(error) => Step::Done(Err(GivenUp(error))),
            Fate::Unknown => self.read_created(false),
            // Only the settings node may be there without the topic: somebody set them beforehand.
            Fate::Failed(index, Error::NodeExists) if index > 2 && !self.config_exists => {
                self.config_exists = true;
                self.submit()
            }
            Fate::Failed(_, Error::NodeExists) => self.read_created(false),
            Fate::Failed(..) => self.done(WriteOutcome::Refused {
                reason: "the base tree in ZooKeeper is damaged; restart a broker",
            }),
        }
    }

    fn after_read_created(&mut self, applied: bool, read: &[Option<Node>]) -> Step<Output> {
        let TopicWrite::Create { name, topic_id, .. } = &self.write else { return self.submit() };
        match read.get(1).and_then(Option::as_ref) {
            Some(node) => {
                let mine = TopicNode::parse(name, &node.data)
                    .is_ok_and(|found| found.topic_id == *topic_id);
                self.done(if mine {
                    WriteOutcome::TopicCreated { czxid: node.stat.czxid }
                } else {
                    WriteOutcome::TopicConflict
                })
            }
            None if epoch_moved(read.first(), self.epoch_version) => {
                self.done(WriteOutcome::Fenced)
            }
            // Applied and gone again without a newer controller: somebody deleted it by hand.
            None if applied => self.done(WriteOutcome::TopicConflict),
            None => self.submit(),
        }
    }

    fn after_list(&mut self, mut answers: Vec<Answer>) -> Step<Output> {
        let children = match answers.get(2) {
            Some(Ok(Reply::Children(names))) => names.clone(),
            Some(Err(Error::NoNode)) => Vec::new(),
            _ => match all(answers) {
                Err(Error::OutcomeUnknown(_)) | Ok(_) => return Step::Later(self.list()),
                Err(error) => return Step::Done(Err(GivenUp(error))),
            },
        };
        answers.truncate(2);
        let read = match all(answers) {
            Ok(replies) => nodes(replies),
            Err(Error::OutcomeUnknown(_)) => return Step::Later(self.list()),
            Err(error) => return Step::Done(Err(GivenUp(error))),
        };
        if epoch_moved(read.first(), self.epoch_version) {
            return self.done(WriteOutcome::Fenced);
        }
        if read.get(1).is_none_or(Option::is_none) {
            // The last multi removes topic and mark together.
            let outcome =
                if self.began { WriteOutcome::Applied } else { WriteOutcome::TopicConflict };
            return self.done(outcome);
        }
        self.began = true;
        self.left = children.iter().filter_map(|name| name.parse().ok()).collect();
        self.stage = Stage::Mark;
        let mark = Op::Create {
            path: paths::delete_topic(self.name()),
            data: Vec::new(),
            mode: CreateMode::Persistent,
        };
        Step::InOrder(vec![Request::Multi(vec![epoch_check(self.epoch_version), mark])])
    }

    fn next_delete(&mut self) -> Step<Output> {
        let delete = |path: String| Op::Delete { path, version: None };
        let name = self.name().clone();
        let mut ops = Vec::new();
        for index in self.left.iter().take(PARTITIONS_A_DELETE) {
            let path = paths::partition(&name, *index);
            ops.push(delete(format!("{path}/state")));
            ops.push(delete(path));
        }
        if ops.is_empty() {
            ops.extend([
                delete(paths::partitions(&name)),
                delete(paths::topic(&name)),
                delete(paths::topic_config(&name)),
                delete(paths::delete_topic(&name)),
            ]);
        }
        self.delete(ops)
    }

    fn delete(&mut self, ops: Vec<Op>) -> Step<Output> {
        let multi =
            std::iter::once(epoch_check(self.epoch_version)).chain(ops.iter().cloned()).collect();
        self.stage = Stage::Delete(ops);
        Step::InOrder(vec![Request::Multi(multi)])
    }

    fn after_mark(&mut self, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied | Fate::Failed(_, Error::NodeExists) => self.next_delete(),
            Fate::Unknown | Fate::Failed(..) => self.relist(),
            fate => self.ended(fate),
        }
    }

    fn after_delete(&mut self, ops: Vec<Op>, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied if self.left.is_empty() => self.done(WriteOutcome::Applied),
            Fate::Applied => {
                self.forget_deleted();
                self.next_delete()
            }
            // Some of it is gone already (a deletion that was resumed): keep what is there.
            Fate::Failed(_, Error::NoNode) => {
                let paths = ops.iter().map(|op| op.path().to_owned()).collect();
                self.stage = Stage::ReadLeft(ops);
                Step::InOrder(vec![Request::Sync, Request::MultiRead(paths)])
            }
            Fate::Unknown | Fate::Failed(..) => self.relist(),
            fate => self.ended(fate),
        }
    }

    fn forget_deleted(&mut self) {
        for _ in 0..PARTITIONS_A_DELETE {
            self.left.pop_first();
        }
    }

    fn after_read_left(&mut self, ops: Vec<Op>, read: &[Option<Node>]) -> Step<Output> {
        let there: Vec<Op> = ops
            .into_iter()
            .zip(read)
            .filter(|(_, node)| node.is_some())
            .map(|(op, _)| op)
            .collect();
        if !there.is_empty() {
            return self.delete(there);
        }
        if self.left.is_empty() {
            return self.done(WriteOutcome::Applied);
        }
        self.forget_deleted();
        self.next_delete()
    }

    fn relist(&mut self) -> Step<Output> {
        self.stage = Stage::List;
        Step::Later(self.list())
    }

    fn ended(&self, fate: Fate) -> Step<Output> {
        match fate {
            Fate::Fenced => self.done(WriteOutcome::Fenced),
            Fate::Refused(reason) => self.done(WriteOutcome::Refused { reason }),
            Fate::GivenUp(error) => Step::Done(Err(GivenUp(error))),
            Fate::Applied | Fate::Failed(..) | Fate::Unknown => {
                Step::Done(Err(GivenUp(Error::OutcomeUnknown("topic write".into()))))
            }
        }
    }
}

impl Procedure for CreateOrDelete {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        if let Step::InOrder(requests) = self.submit() {
            if requests.iter().all(|request| request.size_bytes() <= REQUEST_BYTES_MAX) {
                return Step::InOrder(requests);
            }
            let reason =
                "the topic has too many partitions for one ZooKeeper transaction of 512 KiB";
            return self.done(WriteOutcome::Refused { reason });
        }
        self.submit()
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Output> {
        match std::mem::replace(&mut self.stage, Stage::List) {
            Stage::Create => self.after_create(answers.pop()),
            Stage::Mark => self.after_mark(answers.pop()),
            Stage::Delete(ops) => self.after_delete(ops, answers.pop()),
            Stage::List => self.after_list(answers),
            Stage::ReadCreated { applied } => match all(answers) {
                Ok(replies) => self.after_read_created(applied, &nodes(replies)),
                Err(Error::OutcomeUnknown(_)) => self.read_created(false),
                Err(error) => Step::Done(Err(GivenUp(error))),
            },
            Stage::ReadLeft(ops) => match all(answers) {
                Ok(replies) => self.after_read_left(ops, &nodes(replies)),
                Err(Error::OutcomeUnknown(_)) => self.relist(),
                Err(error) => Step::Done(Err(GivenUp(error))),
            },
        }
    }
}
