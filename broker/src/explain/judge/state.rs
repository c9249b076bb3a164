//! How something is, in one word.

use barnabas_types::{BrokerId, TopicPartition};

use crate::explain::ages::{is_below_min, is_short};
use crate::explain::cause::{Cause, Severity, first};
use crate::explain::facts::{Facts, State};

/// `offline`, `under_min_isr`, `under_replicated`, `online`, or `deleted` if there is none: the worst that holds.
#[must_use]
pub fn state_of_partition(facts: &Facts, at: &TopicPartition, causes: &[Cause]) -> &'static str {
    let topic = facts.image.topics.get(&at.topic);
    let Some((topic, partition)) =
        topic.and_then(|topic| Some((topic, topic.partitions.get(&at.partition)?)))
    else {
        return if facts.ages.deleted(&at.topic).is_some() { "deleted" } else { "unknown" };
    };
    let offline = causes.iter().any(|cause| cause.severity == Severity::Offline);
    if offline || partition.state.leader.is_none() {
        "offline"
    } else if is_below_min(&topic.config, partition) {
        "under_min_isr"
    } else if is_short(partition) {
        "under_replicated"
    } else {
        "online"
    }
}

/// `registered`, `draining`, `starting`, `recovering`, `fenced`, `suspected`, `silent` or `dead`.
#[must_use]
pub fn state_of_broker(facts: &Facts, id: BrokerId) -> &'static str {
    let draining = facts.image.brokers.get(&id).is_some_and(|broker| broker.draining);
    match facts.state(id) {
        State::Up(health) if health.status == "recovering" => "recovering",
        State::Up(_) | State::NotAsked if draining => "draining",
        State::Up(_) | State::NotAsked => "registered",
        State::Starting => "starting",
        State::Fenced(_) => "fenced",
        State::Suspected => "suspected",
        State::Silent => "silent",
        State::Down => "dead",
    }
}

/// `well`, or the severity of the worst cause.
#[must_use]
pub fn of_causes(causes: &[Cause]) -> &'static str {
    first(causes).map_or("well", |worst| worst.severity.name())
}
