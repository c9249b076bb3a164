//! A broker is emptied, so that it can be stopped, or takes part again.

use barnabas_controller::StopVerdict;
use barnabas_types::{BrokerId, ClusterImage, TopicPartition};

use super::super::api::Refusal;
use super::made_for::{MadeFor, Part};
use super::plan::{Act, Plan, Risk, counted};

/// `verdict`: what the controller says would stand in the way of stopping the broker.
pub(super) fn drain(
    image: &ClusterImage,
    id: BrokerId,
    verdict: &StopVerdict,
) -> Result<Plan, Refusal> {
    let draining = registered(image, id)?;
    if draining {
        return Err(Refusal::bad(format!("broker {id} is being drained already")));
    }
    let (mut leads, mut follows, mut short) = (Vec::new(), Vec::new(), 0);
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let state = &partition.state;
            let at = TopicPartition { topic: name.clone(), partition: *index };
            let least = usize::try_from(topic.config.min_insync_replicas).unwrap_or(usize::MAX);
            if !state.in_isr(id) || state.isr.len() <= least.max(1) {
                continue;
            }
            let able = |other: &&BrokerId| {
                **other != id
                    && state.in_isr(**other)
                    && image.is_online(**other, name, *index)
                    && image.brokers.get(*other).is_some_and(|broker| !broker.draining)
            };
            if state.leader == Some(id) {
                let Some(next) = partition.assigned_replicas.iter().find(able) else { continue };
                leads.push(format!("broker {next} leads {at} instead of broker {id}"));
            } else {
                follows.push(format!("broker {id} leaves the ISR of {at}"));
            }
            short += usize::from(state.isr.len() - 1 <= least);
        }
    }
    let mut risks = Vec::new();
    for obstruction in &verdict.obstructions {
        let text = format!("{} stays on it: {}", obstruction.partition, obstruction.reason);
        risks.push(if obstruction.never { Risk::bad(text) } else { Risk::warn(text) });
    }
    let more = verdict.partitions.saturating_sub(verdict.obstructions.len());
    if more > 0 {
        risks.push(Risk::warn(format!("{} more stay on it", counted(more, "partition"))));
    }
    if short > 0 {
        risks.push(Risk::warn(format!(
            "{} will have no in-sync replica to spare: if one more broker is away, producers at acks=all are refused there",
            counted(short, "partition")
        )));
    }
    let moves_leaders = leads.len();
    let mut steps =
        vec![format!("broker {id} is marked as draining, until it is undrained or starts again")];
    steps.extend(leads);
    steps.extend(follows);
    Ok(Plan {
        act: Act::SetDraining(id, true),
        steps,
        moves_leaders,
        copies_bytes: Some(0),
        eta_ms: None,
        risks,
        command: format!("barnabas broker drain {id}"),
        made_for: MadeFor::of(image, Part::Broker(id)),
    })
}

/// It leads again with the next election of preferred leaders.
pub(super) fn undrain(image: &ClusterImage, id: BrokerId) -> Result<Plan, Refusal> {
    if !registered(image, id)? {
        return Err(Refusal::bad(format!("broker {id} is not being drained")));
    }
    let all = image.topics.values().flat_map(|topic| topic.partitions.values());
    let out = all.filter(|p| p.assigned_replicas.contains(&id) && !p.state.in_isr(id)).count();
    let mut steps = vec![format!("broker {id} is no longer marked as draining")];
    if out > 0 {
        steps.push(format!(
            "it joins the ISR of {} as soon as it has caught up",
            counted(out, "partition")
        ));
    }
    steps
        .push("leaderships come back to it with the next election of preferred leaders".to_owned());
    Ok(Plan {
        act: Act::SetDraining(id, false),
        steps,
        moves_leaders: 0,
        // While it drained it went on fetching; how far it got only it knows.
        copies_bytes: None,
        eta_ms: None,
        risks: Vec::new(),
        command: format!("barnabas broker undrain {id}"),
        made_for: MadeFor::of(image, Part::Broker(id)),
    })
}

/// Whether it is being drained.
fn registered(image: &ClusterImage, id: BrokerId) -> Result<bool, Refusal> {
    let unknown = || Refusal::not_found(format!("broker {id} is not registered"));
    image.brokers.get(&id).map(|broker| broker.draining).ok_or_else(unknown)
}
