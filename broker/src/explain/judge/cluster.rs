//! What is wrong with the whole: ZooKeeper, the controller, and every broker that has something to hold.

use std::collections::BTreeSet;

use barnabas_types::BrokerId;

use super::broker::{broker, process};
use super::steps;
use crate::explain::cause::{Cause, Kind, Severity, Step, lasted, listed, named};
use crate::explain::facts::{Facts, State};

/// Brokers and what coordinates them; what it is worth if nobody does is `worst`. Partitions are looked at one by one elsewhere.
#[must_use]
pub fn cluster(facts: &Facts, worst: Severity) -> Vec<Cause> {
    let mut causes = coordination(facts, worst);
    let assigned: BTreeSet<BrokerId> = facts
        .image
        .topics
        .values()
        .flat_map(|topic| topic.partitions.values())
        .flat_map(|partition| partition.assigned_replicas.iter().copied())
        .collect();
    for id in facts.brokers.keys() {
        // One that is gone and has nothing to hold was taken out of the cluster.
        if facts.state(*id) != State::Down || assigned.contains(id) {
            causes.extend(broker(facts, *id, Severity::Degraded));
        }
    }
    causes
}

/// How bad it is that nobody is elected: that is what a partition that stands still waits for.
#[must_use]
pub fn undecided(causes: &[Cause]) -> Severity {
    let offline = causes.iter().any(|cause| cause.severity == Severity::Offline);
    if offline { Severity::Offline } else { Severity::WritesRefused }
}

/// ZooKeeper and the controller; what it is worth if nobody has them is `worst`.
#[must_use]
pub fn coordination(facts: &Facts, worst: Severity) -> Vec<Cause> {
    let answered: Vec<BrokerId> =
        facts.brokers.keys().copied().filter(|id| facts.health(*id).is_some()).collect();
    let connected =
        |id: &BrokerId| facts.health(*id).is_some_and(|health| health.zookeeper_connected);
    let mut away: Vec<BrokerId> = answered.iter().copied().filter(|id| !connected(id)).collect();
    if away.len() < answered.len() {
        // Of one that is fenced it is told there.
        away.retain(|id| !matches!(facts.state(*id), State::Fenced(_)));
    }
    let mut causes = Vec::new();
    if !away.is_empty() {
        causes.push(zookeeper(facts, &answered, &away, worst));
    }
    if away.len() < answered.len() {
        causes.extend(controller(facts, &answered, worst));
    }
    causes
}

fn zookeeper(facts: &Facts, answered: &[BrokerId], away: &[BrokerId], worst: Severity) -> Cause {
    let nobody = away.len() == answered.len();
    let severity = if nobody { worst } else { Severity::Degraded };
    let text = if nobody {
        "no broker that answers reaches ZooKeeper: nobody is elected and no ISR changes".to_owned()
    } else {
        let does = if away.len() > 1 { "do" } else { "does" };
        format!("{} {does} not reach ZooKeeper, others do", named(away))
    };
    let away_ms = |id: &BrokerId| facts.health(*id).and_then(|health| health.zookeeper_away_ms);
    let longest = away.iter().filter_map(away_ms).max();
    let mut cause = Cause::new(Kind::ZooKeeperUnreachable, severity, away, text)
        .aged(longest.map(|ms| (ms, false)));
    for id in away {
        cause = cause.fact(match away_ms(id) {
            Some(ms) => format!("broker {id} has had no connection for {}", lasted(ms)),
            None => format!("broker {id} has no connection"),
        });
    }
    cause
        .heals("a connection: brokers try again all the time; leaders go on serving meanwhile")
        .steps(away.first().map(|id| {
            Step {
                cost: "nothing; records at acks=1 of a leader that is cut off alone may be lost"
                    .to_owned(),
                ..steps::reach_zookeeper(facts, *id)
            }
        }))
}

fn controller(facts: &Facts, answered: &[BrokerId], severity: Severity) -> Option<Cause> {
    let health = |id: &BrokerId| facts.health(*id).filter(|health| health.zookeeper_connected);
    let known: BTreeSet<i32> = answered
        .iter()
        .filter_map(health)
        .filter(|health| health.controller_id >= 0)
        .map(|health| health.controller_id)
        .collect();
    let again = Step::new("barnabas cluster describe", "nothing")
        .when("again: it names the controller as soon as there is one");
    let Some(id) = known.iter().next().map(|id| BrokerId(*id)) else {
        let age = answered.iter().filter_map(health).filter_map(|h| h.no_controller_ms).max();
        let text = "nobody is controller: no leader is elected and no topic changes";
        return Some(
            Cause::new(Kind::NoController, severity, &[], text)
                .fact(format!("broker {} reach ZooKeeper and know of none", listed(answered)))
                .aged(age.map(|ms| (ms, false)))
                .heals("the brokers: they race for the office as soon as it is free")
                .step(again),
        );
    };
    let gone = process(facts, id, severity)?;
    if known.len() > 1 || matches!(facts.state(id), State::Fenced(_)) {
        // They are about to hear of the next one.
        return None;
    }
    let text = format!(
        "the controller, broker {id}, does not answer: no leader is elected and no topic changes"
    );
    Some(
        Cause::new(Kind::NoController, severity, &[id], text)
            .facts(gone.evidence)
            .steps(gone.next)
            .heals(format!(
                "another broker is elected at once if its ports refuse, else when its session ends, within {}",
                lasted(facts.session_timeout_ms)
            ))
            .step(again),
    )
}
