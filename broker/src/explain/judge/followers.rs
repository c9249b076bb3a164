//! Why followers are not in the ISR although somebody leads: gone, cut off, or slow, and then by what.

use barnabas_types::{BrokerId, FlushMode};

use super::broker::{link, listener};
use super::partition::Look;
use super::steps;
use crate::explain::cause::{Cause, Kind, Severity, Step, lasted, shown};
use crate::explain::facts::State;

/// One cause, or more, for each replica that is missing in the ISR; those that a move adds are the move's.
pub(super) fn missing(look: &Look<'_>, leader: BrokerId) -> Vec<Cause> {
    let mut causes = Vec::new();
    let partition = look.partition;
    // Then it is the leader that is to be told of, and how far followers are follows from that.
    let led = matches!(look.facts.state(leader), State::Up(_))
        && listener(look.facts, leader, look.missing).is_none();
    for id in partition.assignment().original() {
        if id == leader {
            continue;
        }
        if partition.state.in_isr(id) {
            // It is still in it, and will not be for long.
            causes.extend(look.trouble(id, Severity::Degraded));
            causes.extend(link(look.facts, id, leader, Severity::Degraded));
            continue;
        }
        let why = look
            .trouble(id, look.missing)
            .or_else(|| look.drained(id).map(|cause| Cause { severity: look.missing, ..cause }))
            .or_else(|| link(look.facts, id, leader, look.missing).filter(|_| led))
            .or_else(|| unheard(look, id, leader).filter(|_| led))
            .or_else(|| slow(look, id, leader).filter(|_| led));
        causes.extend(why);
    }
    if causes.is_empty() && led && partition.lacks_replicas() {
        let text = format!("replicas of {} have left its ISR and are not back yet", shown(look.at));
        causes.push(
            Cause::new(Kind::SlowFollower, look.missing, &[leader], text)
                .fact(format!("broker {leader}, which leads, did not tell where they stand"))
                .heals("the followers, when they have caught up"),
        );
    }
    causes
}

/// How long a follower has lacked something, as its leader counts it: since the partition lacks any replica, another one may have been
/// away first. At least, if the leader has not led for longer than that.
fn behind_for(look: &Look<'_>, id: BrokerId, leader: BrokerId) -> Option<(u64, bool)> {
    let log = look.facts.log(leader, look.at)?;
    let follower = log.followers.iter().find(|f| f.broker_id == id.0)?;
    Some((follower.caught_up_ms, follower.log_end.is_none()))
}

/// What the leader knows of a follower, in words.
pub(super) fn lag(look: &Look<'_>, id: BrokerId) -> Vec<String> {
    let Some(leader) = look.partition.state.leader else { return Vec::new() };
    let log = look.facts.log(leader, look.at);
    let Some(log) = log else { return Vec::new() };
    let Some(follower) = log.followers.iter().find(|f| f.broker_id == id.0) else {
        return Vec::new();
    };
    // Other partitions may be behind by the same cause.
    let name = shown(look.at);
    let mut told = vec![match follower.log_end {
        Some(end) => format!(
            "{name}: broker {id} has everything to offset {end}, the log of broker {leader} ends at {}: {} records behind",
            log.log_end,
            log.log_end.saturating_sub(end)
        ),
        None => {
            format!("{name}: broker {id} has not fetched from broker {leader} in this leader epoch")
        }
    }];
    if let Some(ms) = follower.last_fetch_ms {
        told.push(format!("{name}: broker {id} fetched {} ago", lasted(ms)));
    }
    told.push(format!("{name}: broker {id} had everything {} ago", lasted(follower.caught_up_ms)));
    told
}

/// Both live, the follower thinks that its connection is well, and the leader hears nothing.
fn unheard(look: &Look<'_>, id: BrokerId, leader: BrokerId) -> Option<Cause> {
    let (State::Up(health), State::Up(_)) = (look.facts.state(id), look.facts.state(leader)) else {
        return None;
    };
    let log = look.facts.log(leader, look.at)?;
    let follower = log.followers.iter().find(|f| f.broker_id == id.0)?;
    // A replica outside the ISR is named at least twice a second.
    let silent_ms = look.facts.link_silent_ms();
    let silent = follower.last_fetch_ms.is_none_or(|ms| ms >= silent_ms)
        && follower.caught_up_ms >= silent_ms;
    // A connection that has just been made has not brought anything yet.
    if look.facts.link(id, leader).is_none_or(|link| link.since_ms < silent_ms) {
        return None;
    }
    let own = look.facts.log(id, look.at)?;
    let follows = own.role == "follower" && own.leader_epoch == log.leader_epoch;
    if !silent || !follows || health.status != "ready" {
        return None;
    }
    let leads_at = look.facts.brokers.get(&leader).map_or(String::new(), |b| b.kafka.clone());
    let text = format!("fetches of broker {id} do not arrive at broker {leader}, though both live");
    Some(
        Cause::new(Kind::LinkCut, look.missing, &[id, leader], text)
            .aged(behind_for(look, id, leader))
            .facts(lag(look, id))
            .fact(format!(
                "{}: broker {id} follows in leader epoch {}, as it should",
                shown(look.at),
                own.leader_epoch
            ))
            .heals("the network between them: the follower dials again at least once a second")
            .step(steps::reach(look.facts, id, &leads_at)),
    )
}

/// It lives and fetches: what holds it up, as far as that can be told.
fn slow(look: &Look<'_>, id: BrokerId, leader: BrokerId) -> Option<Cause> {
    let State::Up(_) = look.facts.state(id) else { return None };
    let own = look.facts.replica(id, look.at).filter(|own| !own.busy);
    let log = look.facts.log(leader, look.at);
    let sync = look.topic.config.flush_mode == FlushMode::Sync;
    let unflushed = own.map_or(0, |own| own.log_end.saturating_sub(own.flushed));
    let behind = log.zip(own).map(|(log, own)| log.log_end.saturating_sub(own.log_end));
    let (by, next) = if own.is_some_and(|own| own.held) {
        ("its disk: a write does not end", true)
    } else if sync && unflushed > 0 && behind.is_none_or(|behind| behind < unflushed) {
        ("its disk: it has the records, but has not flushed them", true)
    } else {
        ("it fetches, and has not caught up yet", false)
    };
    let text = format!("broker {id} is behind broker {leader}: {by}");
    let mut cause = Cause::new(Kind::SlowFollower, look.missing, &[id, leader], text)
        .aged(behind_for(look, id, leader))
        .facts(lag(look, id))
        .heals(format!(
            "its catching up; it is behind if it lacks something for {}",
            lasted(look.facts.lag_time_max_ms)
        ));
    if let Some(own) = own.filter(|own| own.hosted && !own.held) {
        cause = cause.fact(format!(
            "{}: the log of broker {id} ends at {}, {unflushed} records of it are not flushed",
            shown(look.at),
            own.log_end
        ));
    }
    if let Some(link) = look.facts.link(id, leader) {
        cause = cause.fact(format!(
            "broker {id}: its connection to broker {leader} has worked for {}, the last answer came {} ago",
            lasted(link.since_ms),
            lasted(link.answered_ms)
        ));
    }
    Some(if next {
        cause.step(steps::look_at_disk(look.facts, id))
    } else {
        let again = Step::new(format!("barnabas explain partition {}", shown(look.at)), "nothing");
        cause.step(again.when("again: the lag must shrink"))
    })
}
