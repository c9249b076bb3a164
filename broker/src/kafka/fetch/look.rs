//! One look at one partition for a consumer, and what a fetch has gathered of all its partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_log::{ColdRead, ReadRange, Wait};
use barnabas_types::{
    BrokerId, Condition, LeaderEpoch, Offset, TopicId, TopicName, TopicPartition,
};
use barnabas_wire::messages::fetch_request::FetchPartition;
use barnabas_wire::messages::{StrBytes, Uuid};
use barnabas_wire::{FetchReplyPartition, Records};

use super::super::error_codes::TOPIC_AUTHORIZATION_FAILED;
use super::super::{error_code, find, leader_hints};
use crate::node::Node;
use crate::partition::{COLD_LOOKS_MAX, ConsumerRead, Hosted, Ready, Warming};

/// First version that names topics by their ids (KIP-516).
pub(super) const TOPIC_ID_VERSION: i16 = 13;

/// Cold partitions that are read for one fetch at once; the others have their turn in later ones.
const COLD_READS_MAX: usize = 8;

/// What a fetch knows of its earlier looks: the reads that were made for it because it found records that were not in the page
/// cache, and the roll calls because it asks for what is not in the log.
#[derive(Clone, Default)]
pub(super) struct Earlier {
    /// How often such reads were made.
    pub(super) rounds: u32,
    /// The last ones.
    pub(super) warming: Option<Arc<Warming>>,
    /// By partition; at most as many as the fetch names, or its session has.
    pub(super) roll_calls: BTreeMap<TopicPartition, u64>,
}

impl Earlier {
    fn wait(&self) -> Wait {
        if self.rounds < COLD_LOOKS_MAX { Wait::Never } else { Wait::ForDisk }
    }

    fn has_failed(&self, hosted: &Hosted) -> bool {
        self.warming.as_ref().is_some_and(|warming| warming.has_failed(&hosted.topic_partition))
    }
}

/// How a client names a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Topic {
    Named(Arc<str>),
    WithId(TopicId),
}

impl Topic {
    /// As a request of this version has it.
    pub(super) fn of(version: i16, name: &StrBytes, id: Uuid) -> Self {
        if version >= TOPIC_ID_VERSION {
            Self::WithId(TopicId(id.to_bytes()))
        } else {
            Self::Named(Arc::from(name.as_str()))
        }
    }

    /// For an answer in names; empty for a topic that is asked for by id.
    pub(super) fn name(&self) -> &str {
        if let Self::Named(name) = self { name } else { "" }
    }

    /// For an answer in ids; zero for a topic that is asked for by name.
    pub(super) fn id(&self) -> TopicId {
        if let Self::WithId(id) = self { *id } else { TopicId::default() }
    }

    /// Its name, if it is one that this broker knows.
    pub(super) fn known_as(&self, node: &Node) -> Option<TopicName> {
        match self {
            Self::Named(name) => TopicName::new(name).ok(),
            Self::WithId(id) => node.view.topic_by_id(*id),
        }
    }

    /// The replica here, or why there is none.
    pub(super) fn find(&self, node: &Node, partition: i32) -> Result<Arc<Hosted>, Condition> {
        match self {
            Self::Named(name) => find(node, name, partition),
            Self::WithId(id) => {
                let name = node.view.topic_by_id(*id).ok_or(Condition::UnknownTopicId)?;
                let hosted = find(node, name.as_str(), partition)?;
                // Another life of the topic, which this broker has not let go of yet, or does not know of yet.
                let same = hosted.incarnation.topic_id == *id;
                same.then_some(hosted).ok_or(Condition::InconsistentTopicId)
            }
        }
    }
}

/// What a client wants of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) partition: i32,
    pub(super) read: ConsumerRead,
}

impl From<&FetchPartition> for Position {
    fn from(asked: &FetchPartition) -> Self {
        let epoch = |number: i32| (number >= 0).then_some(LeaderEpoch(number));
        let read = ConsumerRead {
            from: Offset(asked.fetch_offset),
            current_leader_epoch: epoch(asked.current_leader_epoch),
            last_fetched_epoch: epoch(asked.last_fetched_epoch),
            max_bytes: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
            roll_call: None,
        };
        Self { partition: asked.partition, read }
    }
}

/// What a partition looked like.
pub(super) struct Look {
    pub(super) reply: FetchReplyPartition,
    pub(super) range: Option<ReadRange>,
    /// Whose range it is.
    pub(super) owner: Option<Arc<Hosted>>,
    /// The answer shall not wait: an error, or a consumer that has to go back.
    pub(super) urgent: bool,
    /// There is more than the answer says: to be looked at again, news or not.
    pub(super) more: bool,
    /// Who will tell of news.
    pub(super) watched: Option<Arc<Hosted>>,
    /// There are records, but they are not in the page cache.
    pub(super) cold: Option<(Arc<Hosted>, ColdRead)>,
    /// To be told only if there is no time left for a roll call.
    pub(super) doubted: Option<Arc<Hosted>>,
}

impl Look {
    fn error(reply: FetchReplyPartition) -> Self {
        Self {
            reply,
            range: None,
            owner: None,
            urgent: true,
            more: true,
            watched: None,
            cold: None,
            doubted: None,
        }
    }
}

/// Everything that a fetch found.
pub(super) struct Found {
    /// Runs of partitions of one topic, in the order of the looks.
    pub(super) topics: Vec<(Topic, Vec<FetchReplyPartition>)>,
    pub(super) ranges: Vec<ReadRange>,
    /// Whose they are.
    pub(super) owners: Vec<Arc<Hosted>>,
    pub(super) bytes: usize,
    pub(super) urgent: bool,
    /// What must be read first of those partitions that have records which are not in the page cache: of the first few.
    pub(super) cold: Vec<(Arc<Hosted>, ColdRead)>,
    /// Those partitions whose roll call is not answered.
    pub(super) doubted: Vec<Arc<Hosted>>,
    /// Bytes that the answer may still take.
    budget: usize,
    earlier: Earlier,
}

impl Found {
    /// Nothing yet, of an answer of at most `budget` bytes of records (a single batch may be larger).
    pub(super) fn new(budget: usize, earlier: &Earlier) -> Self {
        Self {
            topics: Vec::new(),
            ranges: Vec::new(),
            owners: Vec::new(),
            bytes: 0,
            urgent: false,
            cold: Vec::new(),
            doubted: Vec::new(),
            budget,
            earlier: earlier.clone(),
        }
    }

    /// Whether nothing more can be taken.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > 0 && self.budget == 0
    }

    /// Looks at a partition, within what is left of the budget.
    pub(super) fn look(
        &self,
        node: &Node,
        topic: &Topic,
        position: &Position,
        watcher: Option<(&Arc<Ready>, u32)>,
    ) -> Look {
        let (index, first) = (position.partition, self.bytes == 0);
        let mut read = position.read;
        read.max_bytes = read.max_bytes.min(self.budget);
        if first {
            // KIP-74: whatever the limits, the first partition with records gives a batch, or the client never moves on.
            read.max_bytes = read.max_bytes.max(1);
        }
        let wait = self.earlier.wait();
        let done = topic.find(node, index).and_then(|hosted| {
            read.roll_call = self.earlier.roll_calls.get(&hosted.topic_partition).copied();
            let mut slice = hosted.read_for_consumer(&read, watcher, wait)?;
            if wait == Wait::Never
                && let Some(cold) = slice.range.as_ref().and_then(ReadRange::cold)
            {
                (slice.range, slice.cold) = (None, Some(cold));
            }
            if slice.cold.is_some() && self.earlier.has_failed(&hosted) {
                return Err(Condition::KafkaStorageError);
            }
            Ok((hosted, slice))
        });
        let (hosted, slice) = match done {
            Ok(done) => done,
            Err(condition) => return Look::error(refused(node, topic, index, &condition)),
        };
        if slice.doubted {
            // On this every client asks the others who leads, and comes back to the same place. OFFSET_NOT_AVAILABLE would say
            // the same to most, but not to all: some know it as no error of a fetch, and give up.
            let reply = refused(node, topic, index, &Condition::NotLeaderOrFollower);
            return Look { doubted: Some(hosted), ..Look::error(reply) };
        }
        let mut reply = FetchReplyPartition::error(index, 0);
        reply.high_watermark = slice.view.high_watermark.0;
        reply.last_stable_offset = slice.view.high_watermark.0;
        reply.log_start_offset = slice.view.log_start.0;
        reply.diverging_epoch = slice.diverging;
        let urgent = slice.diverging.is_some();
        let more = urgent || read.from < slice.view.high_watermark;
        let range = slice.range.filter(|range| range.len <= self.budget || first);
        let cold = slice.cold.map(|cold| (hosted.clone(), cold));
        let owner = range.is_some().then(|| hosted.clone());
        let watched = slice.watched.then_some(hosted);
        Look { reply, range, owner, urgent, more, watched, cold, doubted: None }
    }

    /// Takes the look into the answer.
    pub(super) fn add(&mut self, topic: &Topic, mut look: Look) {
        self.urgent |= look.urgent;
        self.doubted.extend(look.doubted);
        self.warm(look.cold);
        if let Some(range) = look.range {
            self.bytes += range.len;
            self.budget = self.budget.saturating_sub(range.len);
            look.reply.records = Records::Segment { slot: self.ranges.len(), len: range.len };
            self.ranges.push(range);
            self.owners.extend(look.owner);
        }
        match self.topics.last_mut() {
            Some((last, replies)) if last == topic => replies.push(look.reply),
            _ => self.topics.push((topic.clone(), vec![look.reply])),
        }
    }

    /// Takes note of what must be read first.
    pub(super) fn warm(&mut self, cold: Option<(Arc<Hosted>, ColdRead)>) {
        if self.cold.len() < COLD_READS_MAX {
            self.cold.extend(cold);
        }
    }

    /// A client that poses as a follower: those use the request between brokers.
    pub(super) fn refuse(&mut self, topic: &Topic, partition: i32) {
        let reply = FetchReplyPartition::error(partition, TOPIC_AUTHORIZATION_FAILED);
        self.add(topic, Look::error(reply));
    }

    /// The brokers that its hints name, each once.
    pub(super) fn hinted(&self) -> impl Iterator<Item = BrokerId> + '_ {
        let replies = self.topics.iter().flat_map(|(_, replies)| replies);
        replies.filter_map(|reply| reply.current_leader.map(|(leader, _)| leader))
    }
}

/// The answer to who may not read, with the leader if that helps.
fn refused(node: &Node, topic: &Topic, index: i32, condition: &Condition) -> FetchReplyPartition {
    let mut reply = FetchReplyPartition::error(index, error_code(condition));
    if leader_hints::helps(condition)
        && let Some(name) = topic.known_as(node)
    {
        reply.current_leader = leader_hints::leader(node, &name, index);
    }
    reply
}
