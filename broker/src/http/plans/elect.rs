//! Leaderships go back to the preferred replicas: of the partitions that are named, or of all that others lead.

use barnabas_types::{BrokerId, ClusterImage, Partition, TopicPartition};

use super::super::api::Refusal;
use super::made_for::{MadeFor, Part};
use super::plan::{Act, Plan, Risk, counted};
use super::wanted::{At, PARTITIONS_MAX};
use crate::explain::cause::shown;

/// Partitions that are named in the command; it says nothing of them if there are more and all are meant.
const NAMED_MAX: usize = 20;

pub(super) fn plan(image: &ClusterImage, named: Option<&[At]>) -> Result<Plan, Refusal> {
    let mut wanted: Vec<(TopicPartition, &Partition)> = Vec::new();
    let mut left_out = 0;
    match named {
        Some(named) => {
            for at in named {
                let at = at.read()?;
                let topic = image.topics.get(&at.topic);
                let partition = topic.and_then(|topic| topic.partitions.get(&at.partition));
                let unknown = || Refusal::not_found(format!("there is no partition {at}"));
                let partition = partition.ok_or_else(unknown)?;
                if wanted.iter().all(|(known, _)| *known != at) {
                    wanted.push((at, partition));
                }
            }
        }
        None => {
            for (name, topic) in &image.topics {
                for (index, partition) in &topic.partitions {
                    if partition.state.leader.as_ref() == partition.assigned_replicas.first() {
                        continue;
                    }
                    if wanted.len() == PARTITIONS_MAX {
                        left_out += 1;
                        continue;
                    }
                    let at = TopicPartition { topic: name.clone(), partition: *index };
                    wanted.push((at, partition));
                }
            }
        }
    }
    let (mut elected, mut steps, mut risks) = (Vec::new(), Vec::new(), Vec::new());
    for (at, partition) in wanted {
        match possible(image, &at, partition) {
            Ok(None) => {}
            Ok(Some(preferred)) => {
                let leader = partition.state.leader;
                let instead =
                    leader.map_or_else(String::new, |id| format!(" instead of broker {id}"));
                steps.push(format!("broker {preferred} leads {at}{instead}"));
                elected.push((at, partition.state.partition_epoch));
            }
            Err(why) => risks.push(Risk::warn(format!("{at} stays as it is: {why}"))),
        }
    }
    if elected.is_empty() {
        return Err(Refusal::bad(match risks.first() {
            None => "the preferred replicas lead already".to_owned(),
            Some(first) => format!("no preferred replica can be elected now; {}", first.text),
        }));
    }
    if left_out > 0 {
        risks.push(Risk::warn(format!(
            "{} more are left for another plan; the command takes all",
            counted(left_out, "partition")
        )));
    }
    let names: Vec<String> = elected.iter().map(|(at, _)| shown(at)).collect();
    let command = match names.len() {
        n if n > NAMED_MAX && named.is_none() => "barnabas leader elect".to_owned(),
        _ => format!("barnabas leader elect {}", names.join(" ")),
    };
    let mut brokers: Vec<BrokerId> = Vec::new();
    let partitions: Vec<TopicPartition> = elected.iter().map(|(at, _)| at.clone()).collect();
    for at in &partitions {
        let partition = &image.topics[&at.topic].partitions[&at.partition];
        brokers.extend(partition.assigned_replicas.first());
    }
    brokers.sort_unstable();
    brokers.dedup();
    Ok(Plan {
        moves_leaders: elected.len(),
        act: Act::ElectPreferred(elected),
        steps,
        copies_bytes: Some(0),
        eta_ms: None,
        risks,
        command,
        made_for: MadeFor::of(image, Part::Partitions(partitions, brokers)),
    })
}

/// Who would lead; `None`: nothing has to be done. The controller decides by the same rules, and by who is suspected.
fn possible(
    image: &ClusterImage,
    at: &TopicPartition,
    partition: &Partition,
) -> Result<Option<BrokerId>, String> {
    let Some(&first) = partition.assigned_replicas.first() else {
        return Err("it has no replicas".to_owned());
    };
    if partition.state.leader == Some(first) {
        return Ok(None);
    }
    let why = match image.brokers.get(&first) {
        None => "is not registered",
        Some(broker) if broker.draining => "is being drained",
        Some(_) if !partition.state.in_isr(first) => "is not in the ISR",
        Some(_) if !image.is_online(first, &at.topic, at.partition) => "cannot serve its replica",
        Some(_) => return Ok(Some(first)),
    };
    Err(format!("broker {first}, its preferred replica, {why}"))
}
