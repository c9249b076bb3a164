//! Replicas move to other brokers (KIP-455).

use std::collections::BTreeMap;

use barnabas_types::{BrokerId, ClusterImage, Partition, TopicPartition};

use super::super::api::Refusal;
use super::made_for::{MadeFor, Part};
use super::plan::{Act, Plan, Risk, counted};
use super::wanted::Target;
use crate::explain::cause::{listed, named};

/// Bytes of a replica, by partition; of those that are absent nobody knows.
pub(super) type Sizes = BTreeMap<TopicPartition, u64>;

/// `throttle`: bytes a second for each broker; 0: none.
pub(super) fn plan(
    image: &ClusterImage,
    targets: &[Target],
    throttle: Option<u64>,
    sizes: &Sizes,
) -> Result<Plan, Refusal> {
    let mut moves: BTreeMap<TopicPartition, Vec<BrokerId>> = BTreeMap::new();
    let (mut steps, mut risks, mut moves_leaders) = (Vec::new(), Vec::new(), 0);
    let mut copied: BTreeMap<BrokerId, Option<u64>> = BTreeMap::new();
    for target in targets {
        let at = target.at().read()?;
        let topic = image.topics.get(&at.topic);
        let found = topic.and_then(|topic| Some((topic, topic.partitions.get(&at.partition)?)));
        let unknown = || Refusal::not_found(format!("there is no partition {at}"));
        let (topic, partition) = found.ok_or_else(unknown)?;
        let replicas = target.replicas();
        legal(image, &at, &replicas)?;
        if replicas == partition.assigned_replicas && !partition.moving.is_under_way() {
            continue;
        }
        if moves.insert(at.clone(), replicas.clone()).is_some() {
            return Err(Refusal::bad(format!("{at} is named twice")));
        }
        let original = partition.assignment().original();
        let added: Vec<BrokerId> =
            replicas.iter().copied().filter(|id| !original.contains(id)).collect();
        for id in &added {
            let sum = copied.entry(*id).or_insert(Some(0));
            *sum = sum.zip(sizes.get(&at)).map(|(sum, size)| sum.saturating_add(*size));
        }
        steps.push(step(&at, partition, &replicas, &added, &original));
        if partition.state.leader.is_some_and(|leader| !replicas.contains(&leader)) {
            moves_leaders += 1;
        }
        let least = usize::try_from(topic.config.min_insync_replicas).unwrap_or(usize::MAX);
        if replicas.len() < least {
            risks.push(Risk::bad(format!(
                "{at} gets fewer replicas than its min.insync.replicas, {least}: producers at acks=all are refused"
            )));
        } else if replicas.len() < original.len() {
            risks.push(Risk::warn(format!(
                "{at} has {} instead of {}",
                counted(replicas.len(), "replica"),
                original.len()
            )));
        }
        if partition.state.leader.is_none() {
            risks.push(Risk::warn(format!(
                "{at} has no leader: nothing is copied until it has one"
            )));
        }
        if partition.moving.is_under_way() {
            risks.push(Risk::warn(format!(
                "{at} is being moved already: that move ends where this one leads"
            )));
        }
    }
    if moves.is_empty() {
        return Err(Refusal::bad("the replicas are there already"));
    }
    let copies_bytes = copied.values().copied().sum::<Option<u64>>();
    let most = copied.values().copied().max_by_key(|bytes| bytes.unwrap_or(u64::MAX)).flatten();
    let limit = throttle.filter(|limit| *limit > 0);
    let eta_ms = match (copied.is_empty(), most, limit) {
        (false, Some(bytes), Some(limit)) => Some(bytes.saturating_mul(1_000).div_ceil(limit)),
        _ => None,
    };
    if !copied.is_empty() && limit.is_none() && copies_bytes != Some(0) {
        risks.push(Risk::warn(
            "no limit is set for the copies: they may slow down producers and consumers of the same brokers",
        ));
    }
    let mut brokers: Vec<BrokerId> = moves.values().flatten().copied().collect();
    brokers.sort_unstable();
    brokers.dedup();
    let command = command(&moves, throttle);
    let partitions = moves.keys().cloned().collect();
    Ok(Plan {
        act: Act::Reassign { moves: moves.into_iter().collect(), throttle },
        steps,
        moves_leaders,
        copies_bytes,
        eta_ms,
        risks,
        command,
        made_for: MadeFor::of(image, Part::Partitions(partitions, brokers)),
    })
}

fn legal(image: &ClusterImage, at: &TopicPartition, replicas: &[BrokerId]) -> Result<(), Refusal> {
    if replicas.is_empty() {
        return Err(Refusal::bad(format!("{at} needs a replica at least")));
    }
    for (i, id) in replicas.iter().enumerate() {
        if replicas[..i].contains(id) {
            return Err(Refusal::bad(format!("broker {id} is named twice for {at}")));
        }
        match image.brokers.get(id) {
            None => return Err(Refusal::bad(format!("broker {id} is not registered"))),
            Some(broker) if broker.draining => {
                return Err(Refusal::bad(format!("broker {id} is being drained")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn step(
    at: &TopicPartition,
    partition: &Partition,
    replicas: &[BrokerId],
    added: &[BrokerId],
    original: &[BrokerId],
) -> String {
    let gone: Vec<BrokerId> =
        original.iter().copied().filter(|id| !replicas.contains(id)).collect();
    let mut said = Vec::new();
    if !added.is_empty() {
        let verb = if added.len() == 1 { "copies" } else { "copy" };
        said.push(format!("{} {verb} it", named(added)));
    }
    if !gone.is_empty() {
        let verb = if gone.len() == 1 { "deletes" } else { "delete" };
        said.push(format!("{} {verb} it once that is in sync", named(&gone)));
    }
    if said.is_empty() {
        said.push(format!("its preferred order becomes {}", listed(replicas)));
    }
    if let Some(leader) = partition.state.leader.filter(|leader| !replicas.contains(leader)) {
        said.push(format!("another one leads instead of broker {leader}"));
    }
    format!("{at}: {}", said.join(", "))
}

fn command(moves: &BTreeMap<TopicPartition, Vec<BrokerId>>, throttle: Option<u64>) -> String {
    let mut by_topic: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (at, replicas) in moves {
        let ids: Vec<String> = replicas.iter().map(ToString::to_string).collect();
        let one = format!("{}:{}", at.partition, ids.join(","));
        by_topic.entry(at.topic.as_str()).or_default().push(one);
    }
    let limit = throttle.map_or_else(String::new, |limit| format!(" --throttle {limit}"));
    let one = |(topic, all): (&str, Vec<String>)| {
        format!("barnabas topic set-replicas {topic} --assignment '{}'{limit}", all.join(";"))
    };
    by_topic.into_iter().map(one).collect::<Vec<_>>().join(" && ")
}
