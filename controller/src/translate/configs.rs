//! Settings: conditional writes and reads, and the notices by which others tell of changes they made in ZooKeeper.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{ConfigWrite, WriteId, WriteOutcome};
use barnabas_proto::znode::{self, paths};
use barnabas_types::ConfigEntity;

use super::load::{all, nodes};
use super::partitions::epoch_moved;
use super::{Answer, Fate, GivenUp, Procedure, Step, epoch_check, fate};
use crate::zookeeper::{CreateMode, Error, Node, Op, Reply, Request};

/// Performs one [`ConfigWrite`] and finds out what became of it.
///
/// Reads the settings first. If they are those on which the decision was made they are replaced, on the condition that the
/// controller, the topic's node and the settings' node have not changed since; so what somebody else writes is never lost.
#[derive(Clone, Debug)]
pub struct WriteConfig {
    epoch_version: i32,
    write: ConfigWrite,
    writing: bool,
    /// An attempt has an unknown outcome: what was meant may be there.
    tried: bool,
}

type Output = Result<(WriteId, WriteOutcome), GivenUp>;

impl WriteConfig {
    /// A write that checks `/controller_epoch` at `epoch_version`.
    #[must_use]
    pub fn new(epoch_version: i32, write: ConfigWrite) -> Self {
        Self { epoch_version, write, writing: false, tried: false }
    }

    fn done(&self, outcome: WriteOutcome) -> Step<Output> {
        Step::Done(Ok((self.write.write, outcome)))
    }

    fn reads(&self) -> Vec<Request> {
        let mut read = vec![paths::CONTROLLER_EPOCH.to_owned(), paths::config(&self.write.entity)];
        if let ConfigEntity::Topic(name) = &self.write.entity {
            read.push(paths::topic(name));
        }
        vec![Request::Sync, Request::MultiRead(read)]
    }

    fn read_again(&mut self) -> Step<Output> {
        self.writing = false;
        Step::Later(self.reads())
    }

    fn after_read(&mut self, read: &[Option<Node>]) -> Step<Output> {
        let [epoch, config, topic @ ..] = read else { return self.read_again() };
        if epoch_moved(Some(epoch), self.epoch_version) {
            return self.done(WriteOutcome::Fenced);
        }
        let topic = topic.iter().flatten().next();
        if topic.map(|node| node.stat.czxid) != self.write.life.map(|life| life.czxid) {
            return self.done(WriteOutcome::TopicConflict);
        }
        // Settings that cannot be read count as none, as at loading; the next change mends them.
        let parsed = config.as_ref().map(|c| znode::parse_config(&self.write.entity, &c.data));
        let now = parsed.and_then(Result::ok).unwrap_or_default();
        match &self.write.overrides {
            Some(meant) if self.tried && now == *meant => self.done(WriteOutcome::Applied),
            Some(meant) if now == self.write.expected => {
                let ops = self.ops(topic, config.as_ref(), meant);
                self.writing = true;
                Step::InOrder(vec![Request::Multi(ops)])
            }
            _ => self.done(WriteOutcome::Config { now }),
        }
    }

    fn ops(
        &self,
        topic: Option<&Node>,
        config: Option<&Node>,
        meant: &BTreeMap<String, String>,
    ) -> Vec<Op> {
        let entity = &self.write.entity;
        let (path, data) = (paths::config(entity), znode::write_config(meant));
        let write = match config {
            Some(node) => Op::Set { path, data, version: Some(node.stat.version) },
            None => Op::Create { path, data, mode: CreateMode::Persistent },
        };
        let mut ops = vec![epoch_check(self.epoch_version)];
        if let (ConfigEntity::Topic(name), Some(topic)) = (entity, topic) {
            ops.push(Op::Check { path: paths::topic(name), version: topic.stat.version });
        }
        ops.push(write);
        ops
    }

    fn after_write(&mut self, answer: Option<Answer>) -> Step<Output> {
        match fate(answer) {
            Fate::Applied => self.done(WriteOutcome::Applied),
            Fate::Fenced => self.done(WriteOutcome::Fenced),
            Fate::Refused(reason) => self.done(WriteOutcome::Refused { reason }),
            Fate::GivenUp(error) => Step::Done(Err(GivenUp(error))),
            Fate::Unknown => {
                self.tried = true;
                self.read_again()
            }
            // Something changed since the read; an earlier attempt may have been what changed it.
            Fate::Failed(..) => self.read_again(),
        }
    }
}

impl Procedure for WriteConfig {
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

/// Most notices that are taken at once; if there are more, [`ConfigNotices::more`] says so.
const NOTICES_MAX: usize = 100;

/// What the notices below `/config/changes` said. They are removed once read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigNotices {
    /// Whose settings somebody else changed.
    pub changed: BTreeSet<ConfigEntity>,
    /// There are more notices: read again.
    pub more: bool,
}

#[derive(Clone, Debug)]
enum Stage {
    List,
    Read {
        paths: Vec<String>,
    },
    /// The notices are being removed, one by one: who else removes them does no harm.
    Remove,
}

/// Reads `/config/changes`, arms a watch on it and removes the notices that it found.
///
/// Kafka's tools write one after they have changed settings. Removing them is safe before they are acted upon: a controller
/// that is elected in between reads all settings anyway.
#[derive(Clone, Debug)]
pub struct ReadConfigNotices {
    epoch_version: i32,
    stage: Stage,
    found: ConfigNotices,
}

impl ReadConfigNotices {
    /// Removes notices only while `/controller_epoch` is at `epoch_version`.
    #[must_use]
    pub fn new(epoch_version: i32) -> Self {
        Self { epoch_version, stage: Stage::List, found: ConfigNotices::default() }
    }

    fn list() -> Vec<Request> {
        vec![Request::Children { path: paths::CONFIG_CHANGES.into(), watch: true }]
    }

    fn done(&mut self) -> Step<Result<ConfigNotices, GivenUp>> {
        Step::Done(Ok(std::mem::take(&mut self.found)))
    }

    fn after_list(&mut self, mut names: Vec<String>) -> Step<Result<ConfigNotices, GivenUp>> {
        names.sort();
        self.found.more = names.len() > NOTICES_MAX;
        names.truncate(NOTICES_MAX);
        if names.is_empty() {
            return self.done();
        }
        let paths: Vec<String> =
            names.iter().map(|name| format!("{}/{name}", paths::CONFIG_CHANGES)).collect();
        self.stage = Stage::Read { paths: paths.clone() };
        Step::InOrder(vec![Request::MultiRead(paths)])
    }

    fn after_read(
        &mut self,
        paths: &[String],
        read: &[Option<Node>],
    ) -> Step<Result<ConfigNotices, GivenUp>> {
        let said = read.iter().flatten().filter_map(|node| znode::parse_config_change(&node.data));
        self.found.changed.extend(said);
        self.stage = Stage::Remove;
        let remove = |path: &String| {
            let delete = Op::Delete { path: path.clone(), version: None };
            Request::Multi(vec![epoch_check(self.epoch_version), delete])
        };
        Step::AnyOrder(paths.iter().map(remove).collect())
    }
}

impl Procedure for ReadConfigNotices {
    type Output = Result<ConfigNotices, GivenUp>;

    fn begin(&mut self) -> Step<Self::Output> {
        Step::InOrder(Self::list())
    }

    fn advance(&mut self, mut answers: Vec<Answer>) -> Step<Self::Output> {
        match std::mem::replace(&mut self.stage, Stage::List) {
            Stage::List => match answers.pop() {
                Some(Ok(Reply::Children(names))) => self.after_list(names),
                Some(Err(Error::NoNode)) => self.done(),
                Some(Err(Error::OutcomeUnknown(_)) | Ok(_)) | None => Step::Later(Self::list()),
                Some(Err(error)) => Step::Done(Err(GivenUp(error))),
            },
            Stage::Read { paths } => match all(answers) {
                Ok(replies) => self.after_read(&paths, &nodes(replies)),
                Err(Error::OutcomeUnknown(_)) => Step::Later(Self::list()),
                Err(error) => Step::Done(Err(GivenUp(error))),
            },
            // What could not be removed is found again by the next read.
            Stage::Remove => self.done(),
        }
    }
}
