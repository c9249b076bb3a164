//! Explains what is wrong with a partition, a broker, a group or the cluster, and what to do: `gather` finds facts, `judge` makes
//! ordered causes of them.
//!
//! Any broker can be asked, and answers from what it finds out within its deadlines: without ZooKeeper, without a controller, and
//! also if no other broker answers.

mod acquaintances;
mod ages;
pub mod cause;
mod contact;
pub mod facts;
mod gather;
pub mod json;
pub mod judge;
mod message;
mod own;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_controller::Explains;
use barnabas_proto::v1;
use barnabas_proto::v1::explain_request::Subject as Asked;
use barnabas_types::{
    BrokerId, ClusterImage, Condition, Standing, TopicName, TopicPartition, nearest,
};
use tokio::sync::Semaphore;
use tonic::Status;

pub use ages::{Ages, Deleted, Departed, Since, Unwell};
pub use contact::Contact;

use crate::clock::unix_ms;
use crate::group::{OFFSETS_TOPIC, partition_of};
use crate::health::Health;
use crate::journal::{Entry, Kind};
use crate::node::Node;
use crate::storage::Storage;
use acquaintances::Acquaintances;
use cause::{Cause, Severity, listed, shown};
use facts::Facts;
use gather::{Wanted, gather};
use judge::{Coordinated, Counted, Lost, Subject};
use message::Said;

/// Most unwell partitions that are looked at when a broker or the cluster is asked about; offline ones first.
const PARTITIONS_MAX: usize = 100;

/// Partitions of deleted topics that are looked at when the cluster is asked about.
const DELETED_MAX: usize = 100;
/// Brokers that are gone and are asked whether they still run.
const DEPARTED_MAX: usize = 32;
/// How far back losses are told when the cluster is asked about, and how many.
const LOSSES_MS: i64 = 24 * 60 * 60 * 1_000;
const LOSSES_MAX: usize = 1_000;

/// Questions that are answered at once: each asks every broker that it concerns.
const QUESTIONS_MAX: usize = 4;

/// Answers what is wrong.
pub struct Explainer {
    node: Arc<Node>,
    storage: Arc<Storage>,
    health: Arc<Health>,
    acquaintances: Acquaintances,
    places: Semaphore,
}

#[tonic::async_trait]
impl Explains for Explainer {
    async fn explain(&self, request: v1::ExplainRequest) -> Result<v1::ExplainResponse, Status> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(Status::resource_exhausted(format!(
                "{QUESTIONS_MAX} such questions are being answered here: ask again, or ask another broker"
            )));
        };
        let answer = match request.subject {
            Some(Asked::Partition(at)) => self.partition(&at).await,
            Some(Asked::BrokerId(id)) => self.broker(BrokerId(id)).await,
            Some(Asked::Group(group)) => self.group(group).await,
            Some(Asked::Cluster(_)) => self.cluster().await,
            None => Err(Condition::InvalidRequest(
                "name a partition, a broker, a group or the cluster".to_owned(),
            )),
        };
        let mut response = answer.unwrap_or_else(|condition| v1::ExplainResponse {
            failure: Some((&condition).into()),
            ..Default::default()
        });
        response.answered_by = self.node.me.0;
        Ok(response)
    }
}

impl Explainer {
    /// Of this broker.
    #[must_use]
    pub fn new(node: Arc<Node>, storage: Arc<Storage>, health: Arc<Health>) -> Arc<Self> {
        let places = Semaphore::new(QUESTIONS_MAX);
        Arc::new(Self { node, storage, health, acquaintances: Acquaintances::default(), places })
    }

    /// The broker whose it is.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// What this broker tells of itself, as it is asked by others.
    pub async fn own_health(&self, request: v1::DescribeHealthRequest) -> v1::BrokerHealth {
        own::describe(self, request).await
    }

    /// Brokers that everything depends on: the controller, as this broker knows it.
    fn coordination(&self, image: &ClusterImage) -> BTreeSet<BrokerId> {
        let elected = self.node.membership.borrow().controller.or(image.controller);
        elected.into_iter().map(|(id, _)| id).collect()
    }

    async fn partition(
        &self,
        asked: &v1::FollowedPartition,
    ) -> Result<v1::ExplainResponse, Condition> {
        let topic = TopicName::new(&asked.topic)
            .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
        let at = TopicPartition { topic, partition: asked.partition };
        let image = self.node.view.image();
        let known = image.topics.get(&at.topic).and_then(|t| t.partitions.get(&at.partition));
        let deleted = self.node.view.ages().0.deleted(&at.topic).cloned();
        let replicas = match (known, &deleted) {
            (Some(partition), _) => partition.assigned_replicas.clone(),
            (None, Some(gone)) => gone.replicas.get(&at.partition).cloned().unwrap_or_default(),
            // Without a controller's word nothing can be said not to exist.
            (None, None) if image.controller.is_none() => Vec::new(),
            (None, None) => return Err(no_partition(&image, &at)),
        };
        let mut brokers = self.coordination(&image);
        brokers.extend(replicas);
        let wanted = Wanted { brokers, partitions: vec![at.clone()], ..Wanted::default() };
        let facts = gather(self, image, wanted).await;
        let mut causes = judge::partition(&facts, &at);
        let headline = judge::headline(&facts, &at, &causes);
        if headline.is_none() && deleted.is_none() {
            causes.extend(judge::cluster(&facts, Severity::WritesRefused));
        }
        let headline = headline.unwrap_or_else(|| match deleted {
            Some(_) if causes.is_empty() => {
                format!("{} was deleted; nothing of it is left", shown(&at))
            }
            Some(_) => format!("{} was deleted", shown(&at)),
            None => "no controller has told this broker of the cluster yet".to_owned(),
        });
        let said = Said {
            subject: Subject::Partition,
            name: shown(&at),
            state: judge::state_of_partition(&facts, &at, &causes).to_owned(),
            headline,
            facts: Vec::new(),
            partitions_left_out: 0,
        };
        Ok(message::response(&facts, said, causes))
    }

    async fn broker(&self, id: BrokerId) -> Result<v1::ExplainResponse, Condition> {
        let image = self.node.view.image();
        let concerns = |at: &TopicPartition| assigned(&image, at).contains(&id);
        let seen = image.brokers.contains_key(&id)
            || id == self.node.me
            || self.node.view.ages().0.departed(id).is_some()
            || image
                .topics
                .values()
                .any(|topic| topic.partitions.values().any(|p| p.assigned_replicas.contains(&id)));
        if !seen && image.controller.is_some() {
            let known: Vec<BrokerId> = image.brokers.keys().copied().collect();
            return Err(Condition::InvalidRequest(format!(
                "there is no broker {id}: it is not registered, and no partition is assigned to it; registered: {}",
                listed(&known)
            )));
        }
        let (looked, _, _) = unwell(&image, concerns, |_| None);
        let mut wanted = self.coordination(&image);
        wanted.insert(id);
        // The leaders that it follows know whether its fetches arrive.
        wanted.extend(image.brokers.keys());
        wanted.extend(looked.iter().flat_map(|at| assigned(&image, at)));
        let wanted = Wanted { brokers: wanted, partitions: looked, ..Wanted::default() };
        let facts = gather(self, image.clone(), wanted).await;
        // What is wrong with those who lead is known only now.
        let (unwell, left_out, counted, awaited) = judged(&facts, concerns);
        let mut causes: Vec<_> =
            unwell.iter().flat_map(|at| judge::partition(&facts, at)).collect();
        causes.extend(judge::broker(&facts, id, Severity::Degraded));
        let mut causes = judge::told_once(causes, awaited);
        let worst = judge::undecided(&causes);
        causes.extend(judge::coordination(&facts, worst));
        let said = Said {
            subject: Subject::Broker,
            name: id.to_string(),
            state: judge::state_of_broker(&facts, id).to_owned(),
            headline: judge::of_broker(id, &causes, counted),
            facts: Vec::new(),
            partitions_left_out: left_out,
        };
        Ok(message::response(&facts, said, causes))
    }

    async fn cluster(&self) -> Result<v1::ExplainResponse, Condition> {
        let image = self.node.view.image();
        let (mut looked, _, _) = unwell(&image, |_| true, |_| None);
        let (ages, _) = self.node.view.ages();
        let mut brokers = self.coordination(&image);
        brokers.extend(image.brokers.keys());
        // One that has nothing to hold may still run, without a registration.
        brokers.extend(ages.all_departed().map(|(id, _)| id).take(DEPARTED_MAX));
        let mut deleted = Vec::new();
        for (topic, gone) in ages.all_deleted() {
            for (partition, replicas) in &gone.replicas {
                if deleted.len() < DELETED_MAX {
                    deleted.push(TopicPartition { topic: topic.clone(), partition: *partition });
                    brokers.extend(replicas);
                }
            }
        }
        looked.extend(deleted.iter().cloned());
        for topic in image.topics.values() {
            for partition in topic.partitions.values() {
                brokers.extend(&partition.assigned_replicas);
            }
        }
        let wanted = Wanted { brokers, partitions: looked, waiting_groups: true, group: None };
        let (facts, losses) =
            tokio::join!(gather(self, image.clone(), wanted), lost_lately(&self.node));
        let (unwell, left_out, counted, awaited) = judged(&facts, |_| true);
        let mut causes = Vec::new();
        for cause in &awaited {
            let offsets = cause.partitions.iter().filter(|at| at.topic.as_str() == OFFSETS_TOPIC);
            let one = std::slice::from_ref(cause);
            causes.extend(offsets.filter_map(|at| judge::without_coordinator(at, one)));
        }
        for at in unwell.iter().chain(&deleted) {
            let of_partition = judge::partition(&facts, at);
            if at.topic.as_str() == OFFSETS_TOPIC {
                causes.extend(judge::without_coordinator(at, &of_partition));
            }
            causes.extend(of_partition);
        }
        let worst = match awaited.is_empty() {
            true => judge::undecided(&causes),
            false => Severity::Offline,
        };
        causes.extend(judge::cluster(&facts, worst));
        let mut causes = judge::told_once(causes, awaited);
        causes.extend(judge::groups_waiting(&facts));
        let (lost, more) = losses;
        causes.extend(judge::losses(&facts, &lost, more));
        let said = Said {
            subject: Subject::Cluster,
            name: String::new(),
            state: judge::of_causes(&causes).to_owned(),
            headline: judge::of_cluster(image.brokers.len(), &causes, counted),
            facts: Vec::new(),
            partitions_left_out: left_out,
        };
        Ok(message::response(&facts, said, causes))
    }

    async fn group(&self, group: String) -> Result<v1::ExplainResponse, Condition> {
        let image = self.node.view.image();
        let at = TopicName::new(OFFSETS_TOPIC).ok().and_then(|topic| {
            let partitions = image.topics.get(&topic)?.partitions.len();
            Some(TopicPartition { topic, partition: partition_of(&group, partitions) })
        });
        let mut brokers = self.coordination(&image);
        let offsets = at.iter().cloned().collect::<Vec<_>>();
        brokers.extend(offsets.iter().flat_map(|at| assigned(&image, at)));
        let first = Wanted {
            brokers,
            partitions: offsets.clone(),
            group: Some(group.clone()),
            waiting_groups: false,
        };
        let found = gather(self, image.clone(), first.clone()).await;
        let told = told_of_group(&found);
        let nowhere = Coordinated { group: &group, at: at.as_ref(), health: None };
        if judge::is_without_groups(&found, nowhere) {
            return Err(no_group(&group));
        }
        if let Some(told) = told.as_ref().filter(|told| told.coordinated && !told.loading)
            && told.state.is_empty()
            && told.offsets.is_empty()
        {
            return Err(no_group(&group));
        }
        // What the group reads is known only now.
        let read = told.iter().flat_map(|told| &told.offsets).filter_map(|offset| {
            let topic = TopicName::new(&offset.topic).ok()?;
            Some(TopicPartition { topic, partition: offset.partition })
        });
        let all: Vec<TopicPartition> = read.collect();
        let looked: Vec<TopicPartition> = all.iter().take(PARTITIONS_MAX).cloned().collect();
        let left_out = all.len() - looked.len();
        let facts = if looked.is_empty() {
            found
        } else {
            let mut second = first;
            second.brokers.extend(looked.iter().flat_map(|at| assigned(&image, at)));
            second.partitions.extend(looked);
            gather(self, image, second).await
        };
        let told = told_of_group(&facts).or(told);
        let of = Coordinated { group: &group, at: at.as_ref(), health: told.as_ref() };
        let causes = judge::group(&facts, of);
        let (state, headline, known) = match &told {
            Some(told) if told.coordinated && !told.loading => {
                let members = told.members.len();
                let noun = if members == 1 { "member" } else { "members" };
                let headline = format!("group {group}: {}, {members} {noun}", told.state);
                (told.state.clone(), headline, judge::lags(&facts, told))
            }
            _ => {
                let headline = format!("group {group} has no coordinator that answers");
                ("no_coordinator".to_owned(), headline, Vec::new())
            }
        };
        let said = Said {
            subject: Subject::Group,
            name: group.clone(),
            state,
            headline,
            facts: known,
            partitions_left_out: left_out,
        };
        Ok(message::response(&facts, said, causes))
    }
}

/// With the nearest that there is.
fn no_partition(image: &ClusterImage, at: &TopicPartition) -> Condition {
    let name = at.topic.as_str();
    let said = match image.topics.get(&at.topic).map(|topic| topic.partitions.len()) {
        Some(1) => format!("topic '{name}' has only partition 0"),
        Some(many) => format!("topic '{name}' has partitions 0 to {}", many.saturating_sub(1)),
        None => match nearest(name, image.topics.keys().map(TopicName::as_str)) {
            Some(meant) => format!("there is no topic '{name}'; did you mean '{meant}'?"),
            None => {
                format!("there is no topic '{name}'; `barnabas topic list` shows those that are")
            }
        },
    };
    Condition::InvalidRequest(said)
}

fn no_group(group: &str) -> Condition {
    Condition::InvalidRequest(format!(
        "there is no group '{group}'; see which there are with: barnabas group list"
    ))
}

/// What this broker's ledger has of the last day and of what was acknowledged, or may have been: the newest first, and whether there is
/// more. Read on a thread that may take its time.
async fn lost_lately(node: &Arc<Node>) -> (Vec<Lost>, bool) {
    let (journal, now) = (node.journal.clone(), unix_ms());
    let read = move || {
        let acked = |entry: &Entry| entry.body["class"].as_str() != Some("never acked");
        // The newest of them, whatever came before.
        let since = now.saturating_sub(LOSSES_MS);
        let mut page = journal.last(Kind::Loss, LOSSES_MAX + 1);
        page.retain(|entry| entry.time_ms >= since);
        let more = page.len() > LOSSES_MAX;
        page.drain(..page.len().saturating_sub(LOSSES_MAX));
        page.retain(acked);
        let lost = page.iter().rev().filter_map(|entry| {
            let text = |name: &str| entry.body[name].as_str().unwrap_or_default().to_owned();
            let topic = TopicName::new(&text("topic")).ok()?;
            let partition = i32::try_from(entry.body["partition"].as_i64()?).ok()?;
            let class = match &*text("class") {
                "acks=all" | "committed" => "acks=all",
                "acks=1" => "acks=1",
                _ => "unknown",
            };
            Some(Lost {
                broker: entry.origin.broker.0,
                at: TopicPartition { topic, partition },
                from: entry.body["from"].as_i64()?,
                to: entry.body["to"].as_i64(),
                class: class.to_owned(),
                cause: text("cause"),
                age_ms: u64::try_from(now.saturating_sub(entry.time_ms)).unwrap_or(0),
            })
        });
        (lost.collect(), more)
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// What the coordinator told, if one of those who were asked is it.
fn told_of_group(facts: &Facts) -> Option<v1::GroupHealth> {
    let mut told = facts.brokers.keys().filter_map(|id| facts.health(*id)?.group.as_ref());
    told.find(|group| group.coordinated).cloned()
}

fn assigned(image: &ClusterImage, at: &TopicPartition) -> Vec<BrokerId> {
    let partition = image.topics.get(&at.topic).and_then(|t| t.partitions.get(&at.partition));
    partition.map(|p| p.assigned_replicas.clone()).unwrap_or_default()
}

/// As [`unwell`], by what was found out; what waits for the same dead brokers is counted, and is their cause instead of being looked at.
fn judged(
    facts: &Facts,
    concerns: impl Fn(&TopicPartition) -> bool,
) -> (Vec<TopicPartition>, usize, Counted, Vec<Cause>) {
    let waiting = judge::waiting(facts, &concerns);
    let together: BTreeSet<&TopicPartition> =
        waiting.iter().flat_map(|waiting| &waiting.partitions).collect();
    let alone = |at: &TopicPartition| concerns(at) && !together.contains(at);
    let leads = |id| judge::leads(facts, id);
    let (looked, left_out, counted) = unwell(&facts.image, alone, leads);
    let counted = Counted {
        unwell: counted.unwell + together.len(),
        offline: counted.offline + together.len(),
    };
    let awaited = waiting.iter().map(|waiting| judge::awaited(facts, waiting)).collect();
    (looked, left_out, counted, awaited)
}

/// The partitions that are not well, the worst first, how many more there are than are looked at, and all of them counted. `leads` says
/// how bad it is that a broker leads.
pub(in crate::explain) fn unwell(
    image: &ClusterImage,
    concerns: impl Fn(&TopicPartition) -> bool,
    leads: impl Fn(BrokerId) -> Option<Severity>,
) -> (Vec<TopicPartition>, usize, Counted) {
    let mut found = Vec::new();
    // A broker's links may be many: each is judged once.
    let mut judged: BTreeMap<BrokerId, Option<Severity>> = BTreeMap::new();
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let at = TopicPartition { topic: name.clone(), partition: *index };
            if !concerns(&at) {
                continue;
            }
            let standing = Standing::of(image, name, topic, *index, partition);
            let led = match image.serving_leader(name, *index, partition) {
                None => Some(Severity::Offline),
                Some(id) => *judged.entry(id).or_insert_with(|| leads(id)),
            };
            let rank = match (led, standing) {
                (Some(Severity::Offline), _) | (_, Standing::Offline) => 0,
                (Some(_), _) | (_, Standing::UnderMinIsr) => 1,
                (_, Standing::UnderReplicated) => 2,
                (_, Standing::Online) if partition.moving.is_under_way() => 3,
                (_, Standing::Online) => continue,
            };
            found.push((rank, at));
        }
    }
    found.sort();
    let offline = found.iter().take_while(|(rank, _)| *rank == 0).count();
    let counted = Counted { unwell: found.len(), offline };
    let looked: Vec<TopicPartition> =
        found.into_iter().take(PARTITIONS_MAX).map(|(_, at)| at).collect();
    let left_out = counted.unwell - looked.len();
    (looked, left_out, counted)
}
