//! What was found out about the cluster when somebody asked what is wrong: plain values, no judgement.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_proto::v1;
use barnabas_types::{BrokerEpoch, BrokerId, ClusterImage, Now, TopicPartition};

use super::ages::Ages;

/// How much longer than its longest wait an answer of a leader may take.
const LINK_GRACE_MS: u64 = 2_500;

/// What became of a question to a broker's admin port.
#[derive(Clone, PartialEq, Debug)]
pub enum Reached {
    /// It told how it is.
    Answered(Box<v1::BrokerHealth>),
    /// The host says that nobody listens.
    Refused,
    /// No answer in time; whether at least a connection was taken.
    Silent {
        /// The kernel of the host, or something before it, took the connection.
        connected: bool,
    },
    /// It has its port, and does not serve anybody yet; so does one of a version that tells nothing of itself.
    Starting,
    /// Something else answered, or the connection broke.
    Failed(String),
    /// Where it is is not known.
    NoAddress,
}

/// What became of a connection to a broker's advertised Kafka listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listener {
    /// A request was answered.
    Answers,
    /// The host says that nobody listens.
    Refused,
    /// No such host, no connection, no answer: in words.
    Unreachable(String),
    /// Nobody tried.
    NotTried,
}

/// What was found out about one broker.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokerFacts {
    /// Advertised Kafka listener, `host:port`; empty if it is not known.
    pub kafka: String,
    /// Admin address; empty if it is not known.
    pub admin: String,
    /// At the admin port.
    pub reached: Reached,
    /// At the Kafka port.
    pub listener: Listener,
}

/// How a broker's process is found, and started again, as it told itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// The registration under which it said so.
    pub epoch: BrokerEpoch,
    /// Its process id; 0: not known.
    pub pid: u32,
    /// The whole path of its configuration; empty: not known.
    pub config_file: String,
}

/// All that was found out.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The broker that was asked.
    pub me: BrokerId,
    /// The cluster, as that broker was told last; suspected are those that were found to be gone, or were not found to live.
    pub image: Arc<ClusterImage>,
    /// Since when things have been so.
    pub ages: Ages,
    /// The time of `ages`.
    pub now: Now,
    /// How long each question might take.
    pub answer_max_ms: u64,
    /// `replica.lag.time.max.ms` of the broker that was asked.
    pub lag_time_max_ms: u64,
    /// `replica.fetch.wait.max.ms` of the broker that was asked: a link brings an answer at least as often.
    pub fetch_wait_max_ms: u64,
    /// `zookeeper.session.timeout.ms` of the broker that was asked.
    pub session_timeout_ms: u64,
    /// `offsets.topic.replication.factor` of the broker that was asked.
    pub offsets_replication_factor: i32,
    /// Who was asked.
    pub brokers: BTreeMap<BrokerId, BrokerFacts>,
    /// What each broker told of its process, now or earlier.
    pub processes: BTreeMap<BrokerId, Process>,
    /// What others told is at most so old (ms).
    pub gathered_ms: u64,
    /// Unix time of the answer (ms).
    pub now_ms: i64,
}

/// How a broker is, from all that is known of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State<'a> {
    /// Registered, and it answers.
    Up(&'a v1::BrokerHealth),
    /// Neither registered, nor does it tell how it is.
    Down,
    /// Its process has begun, and is not registered yet, or only as the one before it.
    Starting,
    /// It answers and is not registered.
    Fenced(&'a v1::BrokerHealth),
    /// Registered, and its process seems to be gone: all its ports refuse, or the controller says so.
    Suspected,
    /// Registered, and it does not tell how it is.
    Silent,
    /// Nobody asked it; it is registered.
    NotAsked,
}

impl Facts {
    /// Without an answer for so long, nothing comes over a link between brokers.
    #[must_use]
    pub fn link_silent_ms(&self) -> u64 {
        self.fetch_wait_max_ms.saturating_add(LINK_GRACE_MS)
    }

    /// How a broker is.
    #[must_use]
    pub fn state(&self, broker: BrokerId) -> State<'_> {
        let registered = self.image.brokers.contains_key(&broker);
        let suspected = self.image.suspected.contains(&broker);
        let Some(found) = self.brokers.get(&broker) else {
            return match registered {
                true if suspected => State::Suspected,
                true => State::NotAsked,
                false => State::Down,
            };
        };
        match &found.reached {
            Reached::Answered(health) if registered => State::Up(health),
            Reached::Answered(health) => State::Fenced(health),
            Reached::Starting => State::Starting,
            _ if !registered => State::Down,
            Reached::Refused if found.listener == Listener::Refused => State::Suspected,
            _ if suspected => State::Suspected,
            _ => State::Silent,
        }
    }

    /// What a broker told, whether it is registered or not.
    #[must_use]
    pub fn health(&self, broker: BrokerId) -> Option<&v1::BrokerHealth> {
        match &self.brokers.get(&broker)?.reached {
            Reached::Answered(health) => Some(health),
            _ => None,
        }
    }

    /// The process of a broker, as it was under its present registration, or its last one. Of an older one only the file is told.
    #[must_use]
    pub fn process(&self, broker: BrokerId) -> Process {
        let known = self.processes.get(&broker).cloned().unwrap_or_default();
        let registered = self.image.brokers.get(&broker);
        let last = registered.or_else(|| self.ages.departed(broker).map(|gone| &gone.broker));
        match last.is_none_or(|last| last.epoch == known.epoch) {
            true => known,
            false => Process { pid: 0, ..known },
        }
    }

    /// The host that a broker is reached at; empty: not known.
    #[must_use]
    pub fn host(&self, broker: BrokerId) -> &str {
        let registered = self.image.brokers.get(&broker);
        let last = registered.or_else(|| self.ages.departed(broker).map(|gone| &gone.broker));
        last.map_or("", |last| &last.host)
    }

    /// What a broker told of its replica.
    #[must_use]
    pub fn replica(&self, broker: BrokerId, at: &TopicPartition) -> Option<&v1::ReplicaHealth> {
        let mut replicas = self.health(broker)?.replicas.iter();
        replicas.find(|r| r.topic == at.topic.as_str() && r.partition == at.partition)
    }

    /// [`Facts::replica`], if there is a log that could be looked at.
    #[must_use]
    pub fn log(&self, broker: BrokerId, at: &TopicPartition) -> Option<&v1::ReplicaHealth> {
        self.replica(broker, at).filter(|log| log.hosted && !log.held && !log.busy)
    }

    /// What a broker told of its connection to a leader.
    #[must_use]
    pub fn link(&self, broker: BrokerId, leader: BrokerId) -> Option<&v1::LeaderLink> {
        self.health(broker)?.links.iter().find(|link| link.leader_id == leader.0)
    }

    /// In words how a broker did not answer; `None` if it did, or was not asked.
    #[must_use]
    pub fn unanswered(&self, broker: BrokerId) -> Option<String> {
        let found = self.brokers.get(&broker)?;
        let max_s = self.answer_max_ms as f64 / 1_000.0;
        Some(match &found.reached {
            Reached::Answered(_) => return None,
            Reached::Refused => {
                format!("broker {broker}: its admin port {} refuses connections", found.admin)
            }
            Reached::Silent { connected: true } => format!(
                "broker {broker}: took a connection at {} and did not answer within {max_s} s",
                found.admin
            ),
            Reached::Silent { connected: false } => {
                format!("broker {broker}: no connection to {} within {max_s} s", found.admin)
            }
            Reached::Starting => format!(
                "broker {broker}: its admin port {} does not tell how it is: it is starting, or runs another version",
                found.admin
            ),
            Reached::Failed(why) => {
                format!("broker {broker}: no answer from {}: {why}", found.admin)
            }
            Reached::NoAddress => {
                format!("broker {broker}: not registered, and broker {} has never seen it", self.me)
            }
        })
    }
}
