//! Reading what ZooKeeper says: everything at election, the registrations after each change.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{BrokerRegistration, LoadedPartition, LoadedTopic, Snapshot};
use barnabas_proto::znode::{self, BrokerNode, TopicNode, paths};
use barnabas_types::{BrokerEpoch, BrokerId, ConfigEntity, Incarnation, TopicName, TopicPartition};

use super::{Answer, GivenUp, Procedure, Step};
use crate::zookeeper::{Error, Node, Reply, Request};

/// Nodes in one multi-read (50 to 100 is the knee: fewer round trips gain nothing more).
const NODES_A_READ: usize = 100;

/// The registrations as they are now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Registrations {
    /// Registered brokers.
    pub brokers: BTreeMap<BrokerId, BrokerRegistration>,
    /// Nodes that make no sense; they count as absent.
    pub problems: Vec<String>,
}

/// Reads `/brokers/ids` whole and arms a watch on it.
#[derive(Clone, Debug, Default)]
pub struct ReadBrokers {
    ids: Option<Vec<BrokerId>>,
    found: Registrations,
}

impl ReadBrokers {
    fn list() -> Vec<Request> {
        vec![Request::Sync, Request::Children { path: paths::BROKER_IDS.into(), watch: true }]
    }
}

impl Procedure for ReadBrokers {
    type Output = Result<Registrations, GivenUp>;

    fn begin(&mut self) -> Step<Self::Output> {
        *self = Self::default();
        Step::InOrder(Self::list())
    }

    fn advance(&mut self, answers: Vec<Answer>) -> Step<Self::Output> {
        let replies = match all(answers) {
            Ok(replies) => replies,
            Err(Error::OutcomeUnknown(_)) => {
                *self = Self::default();
                return Step::Later(Self::list());
            }
            Err(error) => return Step::Done(Err(GivenUp(error))),
        };
        match &self.ids {
            None => {
                let ids = broker_ids(&children(&replies, 1), &mut self.found.problems);
                let requests = broker_reads(&ids);
                self.ids = Some(ids);
                if requests.is_empty() {
                    return Step::Done(Ok(std::mem::take(&mut self.found)));
                }
                Step::AnyOrder(requests)
            }
            Some(ids) => {
                read_brokers(ids, &nodes(replies), &mut self.found);
                Step::Done(Ok(std::mem::take(&mut self.found)))
            }
        }
    }
}

/// What was read at election.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// For the core.
    pub snapshot: Snapshot,
    /// Nodes that make no sense; they count as absent.
    pub problems: Vec<String>,
    /// Deletion marks of topics that do not exist: to be removed, or they would kill a later topic of the name.
    pub stale_marks: Vec<TopicName>,
}

#[derive(Clone, Debug, Default)]
enum LoadStage {
    #[default]
    Lists,
    /// Registrations, brokers' settings and topic nodes; the names in the order of the reads.
    Nodes {
        ids: Vec<BrokerId>,
        configs: Vec<Option<BrokerId>>,
        topics: Vec<TopicName>,
    },
    States {
        of: Vec<TopicPartition>,
    },
}

/// Reads everything: brokers (with a watch on their list) and their settings, topics with settings, partition states.
#[derive(Clone, Debug, Default)]
pub struct Load {
    stage: LoadStage,
    loaded: Loaded,
    marked: BTreeSet<TopicName>,
}

impl Load {
    fn lists() -> Vec<Request> {
        let list = |path: &str, watch| Request::Children { path: path.into(), watch };
        vec![
            Request::Sync,
            list(paths::BROKER_IDS, true),
            list(paths::TOPICS, false),
            list(paths::DELETE_TOPICS, false),
            list(paths::BROKER_CONFIGS, false),
        ]
    }

    fn after_lists(&mut self, replies: &[Reply]) -> Step<<Self as Procedure>::Output> {
        let problems = &mut self.loaded.problems;
        let ids = broker_ids(&children(replies, 1), problems);
        let topics = topic_names(&children(replies, 2), problems);
        self.marked = topic_names(&children(replies, 3), problems).into_iter().collect();
        let mut configs = Vec::new();
        for name in children(replies, 4) {
            match znode::parse_broker_config_name(&name) {
                Some(broker) => configs.push(broker),
                None => problems.push(format!("{}/{name}: not a broker id", paths::BROKER_CONFIGS)),
            }
        }
        let mut requests = broker_reads(&ids);
        for brokers in configs.chunks(NODES_A_READ) {
            let path = |broker: &Option<BrokerId>| paths::config(&ConfigEntity::Broker(*broker));
            requests.push(Request::MultiRead(brokers.iter().map(path).collect()));
        }
        for names in topics.chunks(NODES_A_READ / 2) {
            let pairs =
                names.iter().flat_map(|name| [paths::topic(name), paths::topic_config(name)]);
            requests.push(Request::MultiRead(pairs.collect()));
        }
        self.stage = LoadStage::Nodes { ids, configs, topics };
        if requests.is_empty() { self.finish() } else { Step::AnyOrder(requests) }
    }

    fn after_nodes(
        &mut self,
        ids: &[BrokerId],
        configs: &[Option<BrokerId>],
        topics: Vec<TopicName>,
        nodes: Vec<Option<Node>>,
    ) -> Step<<Self as Procedure>::Output> {
        let (of_brokers, rest) = nodes.split_at(ids.len().min(nodes.len()));
        let (of_configs, of_topics) = rest.split_at(configs.len().min(rest.len()));
        for (broker, node) in configs.iter().zip(of_configs) {
            let Some(node) = node else { continue };
            match znode::parse_config(&ConfigEntity::Broker(*broker), &node.data) {
                Ok(settings) => {
                    self.loaded.snapshot.broker_settings.insert(*broker, settings);
                }
                Err(error) => self.loaded.problems.push(error.to_string()),
            }
        }
        let mut found = Registrations::default();
        read_brokers(ids, of_brokers, &mut found);
        self.loaded.snapshot.brokers = found.brokers;
        self.loaded.problems.append(&mut found.problems);
        let mut of = Vec::new();
        for (name, pair) in topics.into_iter().zip(of_topics.chunks(2)) {
            let [Some(node), config] = pair else { continue };
            match TopicNode::parse(&name, &node.data) {
                Ok(read) => {
                    let topic = self.topic(&name, node, &read, config.as_ref());
                    of.extend(
                        read.partitions
                            .keys()
                            .map(|&partition| TopicPartition { topic: name.clone(), partition }),
                    );
                    self.loaded.snapshot.topics.insert(name, topic);
                }
                Err(error) => {
                    let next = "its replicas stay as they are; restore the node, it is read at the next election";
                    self.loaded.problems.push(format!("{error}: {next}"));
                    self.loaded.snapshot.unreadable.insert(name);
                }
            }
        }
        if of.is_empty() {
            return self.finish();
        }
        let reads = of
            .chunks(NODES_A_READ)
            .map(|chunk| Request::MultiRead(chunk.iter().map(paths::partition_state).collect()));
        let requests = reads.collect();
        self.stage = LoadStage::States { of };
        Step::AnyOrder(requests)
    }

    fn topic(
        &mut self,
        name: &TopicName,
        node: &Node,
        read: &TopicNode,
        config: Option<&Node>,
    ) -> LoadedTopic {
        let entity = ConfigEntity::Topic(name.clone());
        let overrides = match config.map(|config| znode::parse_config(&entity, &config.data)) {
            None => BTreeMap::new(),
            Some(Ok(overrides)) => overrides,
            Some(Err(error)) => {
                let next = "until it is restored nothing of the topic expires, and its settings are the safest";
                self.loaded.problems.push(format!("{error}: {next}"));
                guarded(read)
            }
        };
        let partitions = read.partitions.iter().map(|(&index, assignment)| {
            (index, LoadedPartition { assignment: assignment.clone(), state: None })
        });
        LoadedTopic {
            incarnation: Incarnation { topic_id: read.topic_id, czxid: node.stat.czxid },
            version: node.stat.version,
            overrides,
            partitions: partitions.collect(),
            deleting: self.marked.contains(name),
        }
    }

    fn after_states(
        &mut self,
        of: &[TopicPartition],
        nodes: &[Option<Node>],
    ) -> Step<<Self as Procedure>::Output> {
        for (partition, node) in of.iter().zip(nodes) {
            let Some(node) = node else {
                self.loaded
                    .problems
                    .push(format!("{}: missing", paths::partition_state(partition)));
                continue;
            };
            let topic = self.loaded.snapshot.topics.get_mut(&partition.topic);
            let slot = topic.and_then(|topic| topic.partitions.get_mut(&partition.partition));
            match (znode::parse_partition_state(partition, &node.data, node.stat.version), slot) {
                (Ok(state), Some(slot)) => slot.state = Some(state),
                (Err(error), _) => self.loaded.problems.push(error.to_string()),
                (Ok(_), None) => {}
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> Step<<Self as Procedure>::Output> {
        let mut loaded = std::mem::take(&mut self.loaded);
        let marked = std::mem::take(&mut self.marked);
        loaded.stale_marks =
            marked.into_iter().filter(|name| !loaded.snapshot.names(name)).collect();
        Step::Done(Ok(loaded))
    }
}

/// Settings for a topic whose own cannot be read: nothing is lost by them, whatever it was that stands there.
fn guarded(node: &TopicNode) -> BTreeMap<String, String> {
    let replicas = node.partitions.values().map(|a| a.replicas.len()).min().unwrap_or(1);
    let in_sync = replicas.saturating_sub(1).max(1).to_string();
    let settings = [
        ("cleanup.policy", "delete"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("flush.mode", "sync"),
        ("min.insync.replicas", in_sync.as_str()),
        ("unclean.leader.election.enable", "false"),
    ];
    settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

impl Procedure for Load {
    type Output = Result<Loaded, GivenUp>;

    fn begin(&mut self) -> Step<Self::Output> {
        *self = Self::default();
        Step::InOrder(Self::lists())
    }

    fn advance(&mut self, answers: Vec<Answer>) -> Step<Self::Output> {
        let replies = match all(answers) {
            Ok(replies) => replies,
            Err(Error::OutcomeUnknown(_)) => {
                *self = Self::default();
                return Step::Later(Self::lists());
            }
            Err(error) => return Step::Done(Err(GivenUp(error))),
        };
        match std::mem::take(&mut self.stage) {
            LoadStage::Lists => self.after_lists(&replies),
            LoadStage::Nodes { ids, configs, topics } => {
                self.after_nodes(&ids, &configs, topics, nodes(replies))
            }
            LoadStage::States { of } => self.after_states(&of, &nodes(replies)),
        }
    }
}

/// All replies, or the first error.
pub(super) fn all(answers: Vec<Answer>) -> Result<Vec<Reply>, Error> {
    answers.into_iter().collect()
}

fn children(replies: &[Reply], index: usize) -> Vec<String> {
    match replies.get(index) {
        Some(Reply::Children(names)) => names.clone(),
        _ => Vec::new(),
    }
}

/// The nodes of several multi-reads, in order.
pub(super) fn nodes(replies: Vec<Reply>) -> Vec<Option<Node>> {
    let mut nodes = Vec::new();
    for reply in replies {
        if let Reply::Nodes(mut more) = reply {
            nodes.append(&mut more);
        }
    }
    nodes
}

fn broker_ids(names: &[String], problems: &mut Vec<String>) -> Vec<BrokerId> {
    let mut ids = BTreeSet::new();
    for name in names {
        match name.parse::<i32>() {
            Ok(id) if id >= 0 && *name == id.to_string() => {
                ids.insert(BrokerId(id));
            }
            _ => problems.push(format!("{}/{name}: not a broker id", paths::BROKER_IDS)),
        }
    }
    ids.into_iter().collect()
}

fn topic_names(names: &[String], problems: &mut Vec<String>) -> Vec<TopicName> {
    let mut topics = Vec::new();
    for name in names {
        match TopicName::new(name) {
            Ok(name) => topics.push(name),
            Err(error) => problems.push(format!("{}: {error}", paths::TOPICS)),
        }
    }
    topics
}

fn broker_reads(ids: &[BrokerId]) -> Vec<Request> {
    ids.chunks(NODES_A_READ)
        .map(|chunk| Request::MultiRead(chunk.iter().map(|id| paths::broker(*id)).collect()))
        .collect()
}

fn read_brokers(ids: &[BrokerId], nodes: &[Option<Node>], found: &mut Registrations) {
    for (id, node) in ids.iter().zip(nodes) {
        let Some(node) = node else { continue };
        match BrokerNode::parse(*id, &node.data) {
            Ok(read) => {
                found.brokers.insert(*id, read.image(BrokerEpoch(node.stat.czxid)));
            }
            Err(error) => found.problems.push(error.to_string()),
        }
    }
}
