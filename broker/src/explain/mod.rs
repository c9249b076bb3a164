//! Explains what is wrong with a partition, a broker, a group or the cluster, and what to do: `gather` finds facts, `judge` makes
//! ordered causes of them.
//!
//! Any broker can be asked, and answers from what it finds out within its deadlines: without ZooKeeper, without a controller, and
//! also if no other broker answers.

mod ages;
pub mod cause;
mod contact;
pub mod facts;
mod gather;
pub mod judge;
mod message;
mod own;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_controller::Explains;
use barnabas_proto::v1;
use barnabas_proto::v1::explain_request::Subject;
use barnabas_types::{BrokerId, ClusterImage, Condition, TopicName, TopicPartition};
use tokio::sync::Semaphore;
use tonic::Status;

pub use ages::{Ages, Deleted, Departed, Since, Unwell};
pub use contact::Contact;

use crate::group::{OFFSETS_TOPIC, partition_of};
use crate::health::Health;
use crate::node::Node;
use crate::storage::Storage;
use cause::{Severity, shown};
use facts::Facts;
use gather::{Wanted, gather};
use judge::{Coordinated, Counted};

/// Most unwell partitions that are looked at when a broker or the cluster is asked about; offline ones first.
const PARTITIONS_MAX: usize = 100;

/// Questions that are answered at once: each asks every broker that it concerns.
const QUESTIONS_MAX: usize = 4;

/// Answers what is wrong.
pub struct Explainer {
    node: Arc<Node>,
    storage: Arc<Storage>,
    health: Arc<Health>,
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
            Some(Subject::Partition(at)) => self.partition(&at).await,
            Some(Subject::BrokerId(id)) => self.broker(BrokerId(id)).await,
            Some(Subject::Group(group)) => self.group(group).await,
            Some(Subject::Cluster(_)) => self.cluster().await,
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
        Arc::new(Self { node, storage, health, places: Semaphore::new(QUESTIONS_MAX) })
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
            (None, None) => return Err(Condition::UnknownTopicOrPartition),
        };
        let mut brokers = self.coordination(&image);
        brokers.extend(replicas);
        let wanted = Wanted { brokers, partitions: vec![at.clone()], group: None };
        let facts = gather(self, image, wanted).await;
        let mut causes = judge::partition(&facts, &at);
        let headline = judge::headline(&facts, &at, &causes);
        if headline.is_none() && deleted.is_none() {
            causes.extend(judge::cluster(&facts));
        }
        let headline = headline.unwrap_or_else(|| match deleted {
            Some(_) if causes.is_empty() => {
                format!("{} was deleted; nothing of it is left", shown(&at))
            }
            Some(_) => format!("{} was deleted", shown(&at)),
            None => "no controller has told this broker of the cluster yet".to_owned(),
        });
        Ok(message::response(&facts, format!("partition {}", shown(&at)), headline, causes, 0))
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
            return Err(Condition::InvalidRequest(format!(
                "broker {id} is not registered, and no partition is assigned to it; see who is with: barnabas broker list"
            )));
        }
        let (looked, _, _) = unwell(&image, concerns, |_| None);
        let mut wanted = self.coordination(&image);
        wanted.insert(id);
        // The leaders that it follows know whether its fetches arrive.
        wanted.extend(image.brokers.keys());
        wanted.extend(looked.iter().flat_map(|at| assigned(&image, at)));
        let wanted = Wanted { brokers: wanted, partitions: looked, group: None };
        let facts = gather(self, image.clone(), wanted).await;
        // What is wrong with those who lead is known only now.
        let (unwell, left_out, counted) = unwell(&image, concerns, |id| judge::leads(&facts, id));
        let mut causes = judge::broker(&facts, id, cause::Severity::Degraded);
        causes.extend(judge::coordination(&facts, cause::Severity::WritesRefused));
        causes.extend(unwell.iter().flat_map(|at| judge::partition(&facts, at)));
        let headline = judge::of_broker(id, &causes, counted);
        Ok(message::response(&facts, format!("broker {id}"), headline, causes, left_out))
    }

    async fn cluster(&self) -> Result<v1::ExplainResponse, Condition> {
        let image = self.node.view.image();
        let (looked, _, _) = unwell(&image, |_| true, |_| None);
        let mut brokers = self.coordination(&image);
        brokers.extend(image.brokers.keys());
        for topic in image.topics.values() {
            for partition in topic.partitions.values() {
                brokers.extend(&partition.assigned_replicas);
            }
        }
        let wanted = Wanted { brokers, partitions: looked, group: None };
        let facts = gather(self, image.clone(), wanted).await;
        let (unwell, left_out, counted) = unwell(&image, |_| true, |id| judge::leads(&facts, id));
        let mut causes = judge::cluster(&facts);
        causes.extend(unwell.iter().flat_map(|at| judge::partition(&facts, at)));
        let headline = judge::of_cluster(image.brokers.len(), &causes, counted);
        Ok(message::response(&facts, "cluster".to_owned(), headline, causes, left_out))
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
        let first = Wanted { brokers, partitions: offsets.clone(), group: Some(group.clone()) };
        let found = gather(self, image.clone(), first.clone()).await;
        let told = told_of_group(&found);
        if let Some(told) = told.as_ref().filter(|told| told.coordinated && !told.loading)
            && told.state.is_empty()
            && told.offsets.is_empty()
        {
            return Err(Condition::InvalidRequest(format!(
                "there is no group '{group}'; see which there are with: barnabas group list"
            )));
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
        let headline = match &told {
            Some(told) if told.coordinated && !told.loading => {
                let members = told.members.len();
                let noun = if members == 1 { "member" } else { "members" };
                format!("group {group}: {}, {members} {noun}", told.state)
            }
            _ => format!("group {group} has no coordinator that answers"),
        };
        Ok(message::response(&facts, format!("group {group}"), headline, causes, left_out))
    }
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
            let leader = partition.state.leader.filter(|id| image.is_online(*id, name, *index));
            let led = match leader {
                None => Some(Severity::Offline),
                Some(id) => *judged.entry(id).or_insert_with(|| leads(id)),
            };
            let rank = if led == Some(Severity::Offline) {
                0
            } else if led.is_some() || ages::is_below_min(&topic.config, partition) {
                1
            } else if ages::is_short(partition) {
                2
            } else if partition.moving.is_under_way() {
                3
            } else {
                continue;
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
