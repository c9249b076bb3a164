//! What is to be written: pure, of what ZooKeeper held and what the logs hold.
//!
//! Who holds a partition according to its log stays a replica of it, whatever the backup says: nothing that is there is given up.
//! Every state is leaderless in an epoch that no log knows, and the last node written names the restoration: every broker that
//! reads it takes its tail for lost, so nobody leads before all replicas of a partition were heard (R6, R8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use barnabas_proto::znode::{self, ProducerIdBlock, TopicNode, paths};
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, ClusterId, ConfigEntity, ControllerEpoch, LeaderEpoch,
    PartitionEpoch, PartitionState, TopicId, TopicName, TopicPartition,
};

use super::files::{Inventory, Nodes};

/// Controller epochs go on so far above the last known one: what was elected after the backup must not come again.
const CONTROLLER_EPOCHS_SKIPPED: i32 = 1000;
/// Producer ids go on at so many for each millisecond since 1970: none that was given before is given again.
const PRODUCER_IDS_A_MS: i64 = 1_000_000;
/// Its settings are known without a backup.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// When it is restored.
pub(super) struct Clock {
    pub(super) now_ms: i64,
}

impl Clock {
    pub(super) fn now() -> Result<Self, String> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = since.ok().and_then(|since| i64::try_from(since.as_millis()).ok());
        ms.map(|now_ms| Self { now_ms }).ok_or_else(|| "this machine's clock is wrong".to_owned())
    }
}

/// What is to be written, in this order, and what a person should know of it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) nodes: Vec<(String, Vec<u8>)>,
    pub(super) notes: Vec<String>,
}

/// What is known of one partition.
#[derive(Default)]
struct Known {
    /// Of the backup.
    assignment: Option<Assignment>,
    /// The newest leader epoch of all sources.
    leader_epoch: Option<LeaderEpoch>,
    /// Whose logs hold it.
    holders: BTreeSet<BrokerId>,
}

/// What is known of one topic.
struct Topic {
    id: TopicId,
    partitions: BTreeMap<i32, Known>,
    /// The backup has it: its settings are known.
    saved: bool,
}

/// Plans a restoration of `base` (what ZooKeeper held) and inventories; the error is a sentence.
pub(super) fn plan(base: &Nodes, inventories: &[Inventory], clock: &Clock) -> Result<Plan, String> {
    let cluster_id = cluster_id(base, inventories)?;
    let mut notes = vec![format!("cluster {cluster_id}")];
    let mut seen = BTreeSet::new();
    if let Some(twice) = inventories.iter().find(|found| !seen.insert(found.broker)) {
        return Err(format!("two of the inventories are of broker {}", twice.broker));
    }
    let mut controller_epoch = match base.get(paths::CONTROLLER_EPOCH) {
        Some(node) => znode::parse_controller_epoch(node.as_bytes()).map_err(|e| e.to_string())?,
        None => ControllerEpoch(0),
    };
    let mut topics = saved_topics(base, &mut controller_epoch)?;
    add_held(&mut topics, inventories, &mut notes)?;
    controller_epoch.0 = controller_epoch.0.saturating_add(CONTROLLER_EPOCHS_SKIPPED);

    let nodes = paths::BASE_TREE.iter().map(|path| ((*path).to_owned(), Vec::new())).collect();
    let mut plan = Plan { nodes, notes };
    let mut named = BTreeSet::new();
    for (name, topic) in topics {
        topic_nodes(&name, topic, controller_epoch, &mut plan, &mut named)?;
    }
    // A later life of a topic does not take over what an earlier one said.
    let made: BTreeSet<String> = plan.nodes.iter().map(|(path, _)| path.clone()).collect();
    let is_config = |path: &&String| path.starts_with("/config/") && !made.contains(*path);
    for path in base.keys().filter(is_config) {
        plan.nodes.push((path.clone(), base[path].clone().into_bytes()));
    }
    for broker in named.difference(&seen) {
        plan.notes.push(format!(
            "no inventory of broker {broker} was given: what it alone holds is not known, and its partitions wait for it"
        ));
    }
    plan.nodes.push((paths::PRODUCER_ID_BLOCK.to_owned(), producer_ids(base, clock)?.write()));
    plan.nodes.push((
        paths::CONTROLLER_EPOCH.to_owned(),
        znode::write_controller_epoch(controller_epoch),
    ));
    // The last one: brokers refuse to start before it is there, or take note of it.
    let restored = format!("{}-{}", clock.now_ms, std::process::id());
    plan.nodes.push((
        paths::CLUSTER_ID.to_owned(),
        znode::write_restored_cluster_id(&cluster_id, &restored),
    ));
    Ok(plan)
}

fn cluster_id(base: &Nodes, inventories: &[Inventory]) -> Result<ClusterId, String> {
    let saved = base.get(paths::CLUSTER_ID);
    let saved = saved.map(|node| znode::parse_cluster_id(node.as_bytes())).transpose();
    let saved = saved.map_err(|error| error.to_string())?;
    let first = saved.or_else(|| inventories.first().map(|found| found.cluster_id.clone()));
    let id = first.ok_or(
        "there is nothing to restore from: give an export, or the inventory of every broker",
    )?;
    match inventories.iter().find(|found| found.cluster_id != id) {
        Some(other) => Err(format!(
            "the inventory of broker {} is of cluster {}, and the rest of {id}",
            other.broker, other.cluster_id
        )),
        None => Ok(id),
    }
}

fn saved_topics(
    base: &Nodes,
    controller_epoch: &mut ControllerEpoch,
) -> Result<BTreeMap<TopicName, Topic>, String> {
    let mut topics = BTreeMap::new();
    for (path, node) in base {
        let name = path.strip_prefix(paths::TOPICS).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
        let name = TopicName::new(name).map_err(|error| error.to_string())?;
        let read = TopicNode::parse(&name, node.as_bytes()).map_err(|error| error.to_string())?;
        let mut partitions = BTreeMap::new();
        for (index, assignment) in read.partitions {
            let tp = TopicPartition { topic: name.clone(), partition: index };
            let state = base.get(&paths::partition_state(&tp));
            let state = state
                .map(|node| znode::parse_partition_state(&tp, node.as_bytes(), 0))
                .transpose()
                .map_err(|error| error.to_string())?;
            if let Some(state) = &state {
                *controller_epoch = (*controller_epoch).max(state.controller_epoch);
            }
            let leader_epoch = state.map(|state| state.leader_epoch);
            let assignment = Some(assignment);
            partitions.insert(index, Known { assignment, leader_epoch, ..Known::default() });
        }
        topics.insert(name, Topic { id: read.topic_id, partitions, saved: true });
    }
    Ok(topics)
}

/// Adds what the logs hold. An id that logs hold counts more than that of the backup: the topic was made anew since.
fn add_held(
    topics: &mut BTreeMap<TopicName, Topic>,
    inventories: &[Inventory],
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let mut ids: BTreeMap<&TopicName, BTreeMap<TopicId, BTreeSet<BrokerId>>> = BTreeMap::new();
    for found in inventories {
        for held in &found.held {
            let of = ids.entry(&held.partition.topic).or_default();
            of.entry(held.topic_id).or_default().insert(found.broker);
        }
    }
    for (name, ids) in ids {
        let saved = topics.get(name).map(|topic| topic.id);
        let id = match (ids.len(), saved) {
            (_, Some(saved)) if ids.contains_key(&saved) => saved,
            (1, _) => ids.keys().next().copied().unwrap_or_default(),
            _ => {
                let shown: Vec<String> = ids
                    .iter()
                    .map(|(id, brokers)| {
                        let brokers: Vec<_> = brokers.iter().map(ToString::to_string).collect();
                        format!("{id} on broker {}", brokers.join(", "))
                    })
                    .collect();
                return Err(format!(
                    "the logs hold several topics of the name {name}: {}; move the directories of all but one out of the log directories, \
                     and take those inventories again",
                    shown.join("; ")
                ));
            }
        };
        if saved.is_none() {
            notes.push(format!("topic {name}: not in the backup, made from the logs"));
        } else if saved != Some(id) {
            notes.push(format!(
                "topic {name}: the logs hold a later life of it, which is made from them"
            ));
            topics.remove(name);
        }
        let topic = topics.entry(name.clone()).or_insert_with(|| Topic {
            id,
            partitions: BTreeMap::new(),
            saved: false,
        });
        for found in inventories {
            let of_it =
                found.held.iter().filter(|h| h.partition.topic == *name && h.topic_id == id);
            for held in of_it {
                let known = topic.partitions.entry(held.partition.partition).or_default();
                known.holders.insert(found.broker);
                known.leader_epoch = known.leader_epoch.max(held.last_epoch);
            }
        }
    }
    Ok(())
}

/// The nodes of one topic.
fn topic_nodes(
    name: &TopicName,
    topic: Topic,
    controller_epoch: ControllerEpoch,
    plan: &mut Plan,
    named: &mut BTreeSet<BrokerId>,
) -> Result<(), String> {
    let Topic { id, mut partitions, saved } = topic;
    let everybody: BTreeSet<BrokerId> =
        partitions.values().flat_map(|known| known.holders.iter().copied()).collect();
    let end = partitions.keys().next_back().map_or(0, |last| last + 1);
    let mut assigned = BTreeMap::new();
    for index in 0..end {
        let known = partitions.remove(&index).unwrap_or_default();
        let assignment = assignment(known.assignment, &known.holders, index).or_else(|| {
            // A partition between two that are known: its records are on no broker that told of itself.
            plan.notes.push(format!("{name}-{index}: no log holds it; it begins empty"));
            everybody.first().map(|first| Assignment::settled(vec![*first]))
        });
        let assignment = assignment.ok_or_else(|| format!("nobody holds {name}-{index}"))?;
        named.extend(assignment.replicas.iter().copied());
        assigned.insert(index, (assignment, known.leader_epoch));
    }
    let node = TopicNode {
        topic_id: id,
        partitions: assigned.iter().map(|(index, (a, _))| (*index, a.clone())).collect(),
    };
    plan.nodes.push((paths::topic(name), node.write()));
    plan.nodes.push((paths::partitions(name), Vec::new()));
    for (index, (assignment, leader_epoch)) in &assigned {
        let state = PartitionState {
            leader: None,
            leader_epoch: leader_epoch.map_or(LeaderEpoch(0), LeaderEpoch::next),
            partition_epoch: PartitionEpoch(0),
            controller_epoch,
            // -1: no registration has it. Who it is does not matter: its tail counts as lost, like everybody's.
            isr: assignment.replicas.iter().take(1).map(|id| (*id, BrokerEpoch(-1))).collect(),
        };
        let path = paths::partition(name, *index);
        plan.nodes.push((path.clone(), Vec::new()));
        plan.nodes.push((format!("{path}/state"), znode::write_partition_state(&state)));
    }
    if !saved {
        let replicas = assigned.values().map(|(a, _)| a.replicas.len()).min().unwrap_or(1);
        let settings = guarded(name, replicas);
        if name.as_str() != OFFSETS_TOPIC {
            plan.notes.push(format!(
                "topic {name}: its settings are lost; until you set them (barnabas topic alter) nothing of it expires"
            ));
        }
        plan.nodes.push((
            paths::config(&ConfigEntity::Topic(name.clone())),
            znode::write_config(&settings),
        ));
    }
    Ok(())
}

/// Who is to hold a partition: whom the backup names, and whoever holds it.
fn assignment(
    saved: Option<Assignment>,
    holders: &BTreeSet<BrokerId>,
    index: i32,
) -> Option<Assignment> {
    match saved {
        Some(saved) if holders.iter().all(|broker| saved.replicas.contains(broker)) => Some(saved),
        Some(saved) => {
            let mut replicas = saved.replicas;
            let others = holders.iter().filter(|broker| !replicas.contains(broker));
            let others: Vec<BrokerId> = others.copied().collect();
            replicas.extend(others);
            Some(Assignment::settled(replicas))
        }
        None => {
            let mut replicas: Vec<BrokerId> = holders.iter().copied().collect();
            // So that not all partitions prefer the same leader.
            let by = usize::try_from(index).unwrap_or_default() % replicas.len().max(1);
            replicas.rotate_left(by);
            (!replicas.is_empty()).then(|| Assignment::settled(replicas))
        }
    }
}

/// Settings under which nothing is lost, whatever they were.
fn guarded(name: &TopicName, replicas: usize) -> BTreeMap<String, String> {
    let settings: &[(&str, &str)] = if name.as_str() == OFFSETS_TOPIC {
        &[("cleanup.policy", "compact"), ("segment.bytes", "104857600")]
    } else {
        &[("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")]
    };
    let mut settings: BTreeMap<String, String> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let in_sync = replicas.saturating_sub(1).max(1).to_string();
    settings.insert("min.insync.replicas".to_owned(), in_sync);
    settings
}

fn producer_ids(base: &Nodes, clock: &Clock) -> Result<ProducerIdBlock, String> {
    let saved = base.get(paths::PRODUCER_ID_BLOCK);
    let saved = saved.map(|node| ProducerIdBlock::parse(node.as_bytes())).transpose();
    let saved = saved.map_err(|error| error.to_string())?;
    let first = clock.now_ms.saturating_mul(PRODUCER_IDS_A_MS);
    let first = first.max(saved.map_or(0, |block| block.last.saturating_add(1)));
    let broker = saved.map_or(BrokerId(0), |block| block.broker);
    let last =
        first.checked_add(ProducerIdBlock::LENGTH - 1).ok_or("all producer ids are used up")?;
    Ok(ProducerIdBlock { broker, first, last })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
