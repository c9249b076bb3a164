//! A move of replicas that is under way: what it waits for.

use barnabas_types::BrokerId;

use super::followers;
use super::partition::Look;
use crate::explain::cause::{Cause, Kind, Severity, listed, named, shown};

/// A move of replicas that is under way: what it waits for.
pub(super) fn moving(look: &Look<'_>) -> Option<Cause> {
    let moving = &look.partition.moving;
    if !moving.is_under_way() {
        return None;
    }
    let target = look.partition.assignment().target();
    let waits: Vec<BrokerId> =
        target.iter().copied().filter(|id| !look.partition.state.in_isr(*id)).collect();
    // What is copied comes from the leader: without it those wait that are well, too.
    let (leader, isr) = (look.partition.state.leader, look.partition.state.isr_ids());
    let source = leader.and_then(|id| look.trouble(id, Severity::Notice));
    let led = leader.is_some() && source.is_none();
    let others = waits.iter().filter_map(|id| look.trouble(*id, Severity::Notice));
    let troubles: Vec<Cause> = source.into_iter().chain(others).collect();
    let (about, whom) = match leader {
        None => (isr.clone(), "a leader".to_owned()),
        Some(id) if !led => (vec![id], format!("broker {id}, which leads")),
        Some(_) => (waits.clone(), named(&waits)),
    };
    let (name, to) = (shown(look.at), listed(&target));
    let text = format!("the move of {name} to replicas {to} waits for {whom}");
    let well = led && troubles.is_empty();
    let severity = if well { Severity::Notice } else { Severity::Degraded };
    let mut cause = Cause::new(Kind::ReassignmentWaiting, severity, &about, text)
        .aged(look.ages().moving.map(|since| since.age_ms(look.facts.now)));
    if !led {
        let copying = listed(&waits);
        cause = cause.fact(format!("ISR {}; to be copied to: {copying}", listed(&isr)));
    }
    for trouble in &troubles {
        cause = cause.fact(trouble.summary.clone()).facts(trouble.evidence.clone());
    }
    for id in &waits {
        cause = cause.facts(followers::lag(look, *id));
    }
    let elects =
        |id: &BrokerId| Some(*id) != leader && look.trouble(*id, Severity::Notice).is_none();
    cause = if well {
        cause.heals("the copies, when they have caught up")
    } else if led {
        cause.stays_until("that broker is back, or the move leads elsewhere")
    } else if isr.iter().any(elects) {
        cause.heals("the election of another leader; the copies then come from it")
    } else {
        cause.stays_until("a member of the ISR leads again")
    };
    for trouble in troubles {
        cause.next.extend(trouble.next.into_iter().take(1));
    }
    Some(cause.next(
        format!("barnabas topic set-replicas {} --cancel", look.at.topic),
        "what was copied is deleted; the replicas stay where they were",
    ))
}
