//! The writes of a term: those under way, bounded by kind, and those that wait for a place.

use std::collections::VecDeque;

use barnabas_controller_core::{
    AssignmentWrite, ConfigWrite, PartitionWrite, TopicWrite, WriteId, WriteOutcome,
};

use crate::drive;
use crate::translate::{GivenUp, WriteAssignment, WriteConfig, WritePartitions, WriteTopic};
use crate::zookeeper::ZooKeeper;

/// Multis of partition states under way at once.
const PARTITION_MULTIS_MAX: usize = 8;
/// Topic creations and deletions under way at once.
const TOPIC_WRITES_MAX: usize = 4;
/// Assignments written at once.
const ASSIGNMENT_WRITES_MAX: usize = 4;
/// Settings written or read at once.
const CONFIG_WRITES_MAX: usize = 4;

/// What a write changes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Partitions,
    Topic,
    Assignment,
    Config,
}

/// One write on its way to ZooKeeper.
pub(super) enum Write {
    Partitions(WritePartitions),
    Topic(WriteTopic),
    Assignment(WriteAssignment),
    Config(WriteConfig),
}

impl Write {
    pub(super) async fn run<Z: ZooKeeper>(
        self,
        client: &Z,
    ) -> Result<Vec<(WriteId, WriteOutcome)>, GivenUp> {
        let one = |written: Result<_, _>| written.map(|written| vec![written]);
        match self {
            Write::Partitions(batch) => drive::run(client, batch).await,
            Write::Topic(write) => one(drive::run(client, write).await),
            Write::Assignment(write) => one(drive::run(client, write).await),
            Write::Config(write) => one(drive::run(client, write).await),
        }
    }
}

/// The writes of one kind. The core has at most one of each partition, topic or entity open, which bounds those that wait.
struct Queue<W> {
    waiting: VecDeque<W>,
    under_way: usize,
    under_way_max: usize,
}

impl<W> Queue<W> {
    fn new(under_way_max: usize) -> Self {
        Self { waiting: VecDeque::new(), under_way: 0, under_way_max }
    }

    fn next(&mut self) -> Option<W> {
        let next = (self.under_way < self.under_way_max).then(|| self.waiting.pop_front())??;
        self.under_way += 1;
        Some(next)
    }
}

/// All writes of a term.
pub(super) struct Writes {
    epoch_version: i32,
    partitions: Queue<WritePartitions>,
    topics: Queue<WriteTopic>,
    assignments: Queue<WriteAssignment>,
    configs: Queue<WriteConfig>,
}

impl Writes {
    /// Every write checks that `/controller_epoch` still has this version.
    pub(super) fn new(epoch_version: i32) -> Self {
        Self {
            epoch_version,
            partitions: Queue::new(PARTITION_MULTIS_MAX),
            topics: Queue::new(TOPIC_WRITES_MAX),
            assignments: Queue::new(ASSIGNMENT_WRITES_MAX),
            configs: Queue::new(CONFIG_WRITES_MAX),
        }
    }

    pub(super) fn partitions(&mut self, writes: Vec<PartitionWrite>) {
        self.partitions.waiting.extend(WritePartitions::batches(self.epoch_version, writes));
    }

    pub(super) fn topics(&mut self, writes: Vec<TopicWrite>) {
        let version = self.epoch_version;
        self.topics.waiting.extend(writes.into_iter().map(|write| WriteTopic::new(version, write)));
    }

    pub(super) fn assignments(&mut self, writes: Vec<AssignmentWrite>) {
        let version = self.epoch_version;
        let writes = writes.into_iter().map(|write| WriteAssignment::new(version, write));
        self.assignments.waiting.extend(writes);
    }

    pub(super) fn configs(&mut self, writes: Vec<ConfigWrite>) {
        let version = self.epoch_version;
        self.configs
            .waiting
            .extend(writes.into_iter().map(|write| WriteConfig::new(version, write)));
    }

    /// The next write for which there is room; it is under way from now on, until [`Writes::ended`].
    pub(super) fn next(&mut self) -> Option<(Kind, Write)> {
        if let Some(batch) = self.partitions.next() {
            return Some((Kind::Partitions, Write::Partitions(batch)));
        }
        if let Some(write) = self.topics.next() {
            return Some((Kind::Topic, Write::Topic(write)));
        }
        if let Some(write) = self.assignments.next() {
            return Some((Kind::Assignment, Write::Assignment(write)));
        }
        self.configs.next().map(|write| (Kind::Config, Write::Config(write)))
    }

    /// One of this kind has come to its end, whatever that was.
    pub(super) fn ended(&mut self, kind: Kind) {
        let under_way = match kind {
            Kind::Partitions => &mut self.partitions.under_way,
            Kind::Topic => &mut self.topics.under_way,
            Kind::Assignment => &mut self.assignments.under_way,
            Kind::Config => &mut self.configs.under_way,
        };
        *under_way -= 1;
    }
}
