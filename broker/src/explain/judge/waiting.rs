//! Partitions that wait for the same dead brokers: told once, of the brokers, however many partitions there are. Each by itself, with what
//! an unclean election of it would cost, is told to whoever asks about it.

use std::collections::BTreeMap;

use barnabas_types::{BrokerId, ClusterImage, Standing, TopicPartition};

use super::broker::{process, woken};
use super::steps;
use crate::explain::cause::{Cause, Kind, Severity, Step, by_topic, listed, named, shown};
use crate::explain::facts::{Facts, State};

/// Fewer are told one by one.
const TOGETHER_MIN: usize = 2;
/// Most partitions that one cause lists by name; beyond it they are only counted.
const LISTED_MAX: usize = 10_000;

/// Partitions that nobody serves before one of these brokers is back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Their whole ISR, in the order of ids.
    pub brokers: Vec<BrokerId>,
    /// All of them, in order.
    pub partitions: Vec<TopicPartition>,
}

/// What waits for the same brokers, of the partitions of interest; what waits alone is left out.
#[must_use]
pub fn waiting(facts: &Facts, concerns: impl Fn(&TopicPartition) -> bool) -> Vec<Waiting> {
    let image = &facts.image;
    let dead = |id: &BrokerId| matches!(facts.state(*id), State::Down | State::Suspected);
    let mut found: BTreeMap<Vec<BrokerId>, Vec<TopicPartition>> = BTreeMap::new();
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let standing = Standing::of(image, name, topic, *index, partition);
            let mut isr = partition.state.isr_ids();
            if standing != Standing::Offline || isr.is_empty() || !isr.iter().all(dead) {
                continue;
            }
            let at = TopicPartition { topic: name.clone(), partition: *index };
            if concerns(&at) {
                isr.sort();
                found.entry(isr).or_default().push(at);
            }
        }
    }
    let found = found.into_iter().filter(|(_, partitions)| partitions.len() >= TOGETHER_MIN);
    found.map(|(brokers, partitions)| Waiting { brokers, partitions }).collect()
}

/// The brokers that are waited for, as the cause of it all.
#[must_use]
pub fn awaited(facts: &Facts, waiting: &Waiting) -> Cause {
    let Waiting { brokers, partitions } = waiting;
    let suspected = |id: &BrokerId| facts.state(*id) == State::Suspected;
    let kind = match brokers.iter().all(suspected) {
        true => Kind::BrokerSuspected,
        false => Kind::BrokerDown,
    };
    let (is, whom) = match brokers.len() {
        1 => ("is", "it"),
        _ => ("are", "one of them"),
    };
    let text = format!(
        "{} {is} down, and {} partitions wait for {whom}: {}",
        named(brokers),
        partitions.len(),
        by_topic(partitions)
    );
    let since = partitions.iter().filter_map(|at| facts.ages.unwell(at).offline);
    let age = since.map(|since| since.age_ms(facts.now)).max();
    let mut cause = Cause::new(kind, Severity::Offline, brokers, text).aged(age);
    for id in brokers {
        let process = process(facts, *id, Severity::Offline);
        cause = cause.facts(process.into_iter().flat_map(|process| process.evidence));
    }
    cause = cause.facts(others(&facts.image, waiting));
    cause = cause.stays_until(format!("broker {} is started again", listed(brokers)));
    for id in brokers {
        let cost = "nothing: what was acknowledged is in its log".to_owned();
        cause = cause.step(Step { cost, ..steps::start(facts, *id) });
    }
    cause = woken(facts, cause);
    if let Some(first) = partitions.first() {
        let one = Step::new(format!("barnabas explain partition {}", shown(first)), "nothing");
        cause = cause.step(one.when(
            "for one of the partitions: it tells what an unclean election of it would cost, if nobody comes back",
        ));
    }
    cause.partitions = partitions.iter().take(LISTED_MAX).cloned().collect();
    cause
}

/// What else is known of the partitions.
fn others(image: &ClusterImage, waiting: &Waiting) -> Vec<String> {
    let assigned = |at: &TopicPartition| {
        let of = image.topics.get(&at.topic).and_then(|t| t.partitions.get(&at.partition));
        of.map(|of| of.assigned_replicas.as_slice()).unwrap_or_default()
    };
    let alive = |id: &BrokerId| {
        image.brokers.contains_key(id)
            && !image.suspected.contains(id)
            && !waiting.brokers.contains(id)
    };
    let with = waiting.partitions.iter().filter(|at| assigned(at).iter().any(alive)).count();
    let mut told = vec![format!("the ISR of all of them: {}", listed(&waiting.brokers))];
    if with > 0 {
        told.push(format!("replicas that are out of sync, but alive, have {with} of them"));
    }
    if waiting.partitions.len() > LISTED_MAX {
        told.push(format!("only the first {LISTED_MAX} of them are named"));
    }
    told
}

/// What else is told of a broker that is waited for is told with it.
#[must_use]
pub fn told_once(mut causes: Vec<Cause>, awaited: Vec<Cause>) -> Vec<Cause> {
    for mut first in awaited {
        let same = |cause: &Cause| {
            let gone = matches!(cause.kind, Kind::BrokerDown | Kind::BrokerSuspected);
            gone && cause.brokers == first.brokers
        };
        let (with, rest): (Vec<Cause>, Vec<Cause>) = causes.into_iter().partition(same);
        causes = rest;
        let more: std::collections::BTreeSet<TopicPartition> = with
            .into_iter()
            .flat_map(|cause| cause.partitions)
            .filter(|at| !first.partitions.contains(at))
            .collect();
        if !more.is_empty() {
            let more: Vec<TopicPartition> = more.into_iter().collect();
            first = first.fact(format!("others are without its replica: {}", by_topic(&more)));
            first.partitions.extend(more);
        }
        causes.push(first);
    }
    causes
}
