//! How something is, in one word.

use barnabas_types::{BrokerId, Standing, TopicPartition};

use crate::explain::cause::{Cause, Severity, first};
use crate::explain::facts::{Facts, State};

/// The word of [`Standing`], or `deleted` if there is no such partition. Offline is also what, by what was found out on asking, nobody
/// serves: of a leader that stands still the controller knows nothing before its session ends.
#[must_use]
pub fn state_of_partition(facts: &Facts, at: &TopicPartition, causes: &[Cause]) -> &'static str {
    let topic = facts.image.topics.get(&at.topic);
    let Some((topic, partition)) =
        topic.and_then(|topic| Some((topic, topic.partitions.get(&at.partition)?)))
    else {
        return if facts.ages.deleted(&at.topic).is_some() { "deleted" } else { "unknown" };
    };
    let offline = causes.iter().any(|cause| cause.severity == Severity::Offline);
    let told = Standing::of(&facts.image, &at.topic, topic, at.partition, partition);
    if offline { Standing::Offline.name() } else { told.name() }
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
