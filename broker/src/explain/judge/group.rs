//! What is wrong with a consumer group: its coordinator, its membership, its offsets, the partitions that it reads.

use barnabas_proto::v1;
use barnabas_types::{BrokerId, TopicName, TopicPartition};

use super::partition::partition;
use super::steps;
use crate::explain::cause::{Cause, Kind, Severity, Step, quoted, shown};
use crate::explain::facts::Facts;

/// Most partitions of which the lag is told, the greatest first.
const LAGS_SHOWN_MAX: usize = 20;
/// Most of a group's members that are named.
const MEMBERS_SHOWN_MAX: usize = 10;

/// Where a group is looked for, and what was told of it.
#[derive(Clone, Copy, Debug)]
pub struct Coordinated<'a> {
    /// Group id.
    pub group: &'a str,
    /// Its partition of the offsets topic; `None`: that topic does not exist.
    pub at: Option<&'a TopicPartition>,
    /// What its coordinator told; `None`: nothing.
    pub health: Option<&'a v1::GroupHealth>,
}

/// Everything that is wrong with a group, in no order yet.
#[must_use]
pub fn group(facts: &Facts, of: Coordinated<'_>) -> Vec<Cause> {
    let Some(at) = of.at else { return vec![no_offsets_topic(facts, of.group)] };
    // If nobody leads there, the group stands still; a missing follower there only costs safety.
    let mut causes = partition(facts, at);
    let Some(health) = of.health.filter(|health| health.coordinated && !health.loading) else {
        causes.push(not_coordinated(facts, of, at));
        return causes;
    };
    causes.extend(rebalancing(of.group, health));
    causes.extend(no_members(facts, of.group, health));
    for offset in &health.offsets {
        let Ok(topic) = TopicName::new(&offset.topic) else { continue };
        let read = TopicPartition { topic, partition: offset.partition };
        causes.extend(out_of_range(facts, of.group, &read, offset.offset));
        // What costs only safety is not the group's trouble.
        let stops = |cause: &Cause| cause.severity == Severity::Offline;
        causes.extend(partition(facts, &read).into_iter().filter(stops));
    }
    causes
}

fn no_offsets_topic(facts: &Facts, group: &str) -> Cause {
    let (live, wanted) = (facts.image.brokers.len(), facts.offsets_replication_factor);
    let enough = usize::try_from(wanted).is_ok_and(|wanted| live >= wanted);
    let text = format!(
        "group {group} has no coordinator: the topic of the groups' offsets does not exist"
    );
    let cause = Cause::new(Kind::CoordinatorUnavailable, Severity::Offline, &[], text)
        .fact(format!("{live} brokers are live, offsets.topic.replication.factor is {wanted}"));
    if enough {
        cause
            .heals("the first member of any group, whose request creates it")
            .next("barnabas group list", "nothing")
    } else {
        let missing = facts.ages.all_departed().map(|(id, _)| steps::start(facts, id));
        cause
            .stays_until(format!("{wanted} brokers are live, or offsets.topic.replication.factor is {live} in their files"))
            .steps(missing)
            .step(
                Step::new("barnabas broker list", "nothing")
                    .when(format!("it tells which are live: {wanted} of them are needed, or a lower offsets.topic.replication.factor in every file and a restart")),
            )
    }
}

/// Whether nobody can have a group: the topic of their offsets does not exist, and would if anybody had asked for it.
#[must_use]
pub fn is_without_groups(facts: &Facts, of: Coordinated<'_>) -> bool {
    let enough = usize::try_from(facts.offsets_replication_factor)
        .is_ok_and(|wanted| facts.image.brokers.len() >= wanted);
    of.at.is_none() && facts.image.controller.is_some() && enough
}

/// What a group has read of a partition, and how much there is: committed and log end (both exclusive ends), and their difference; only
/// where the leader's log could be looked at.
fn lag(facts: &Facts, at: &TopicPartition, committed: i64) -> Option<(i64, i64)> {
    let topic = facts.image.topics.get(&at.topic)?;
    let leader = topic.partitions.get(&at.partition)?.state.leader?;
    let log = facts.log(leader, at)?;
    Some((log.log_end, log.log_end.saturating_sub(committed.max(log.log_start)).max(0)))
}

/// The lag of each partition, in words, with whose word it is; the greatest first.
#[must_use]
pub fn lags(facts: &Facts, health: &v1::GroupHealth) -> Vec<String> {
    let mut known = Vec::new();
    let (mut total, mut unknown) = (0_i64, 0);
    for offset in &health.offsets {
        let Ok(topic) = TopicName::new(&offset.topic) else { continue };
        let at = TopicPartition { topic, partition: offset.partition };
        match lag(facts, &at, offset.offset) {
            Some((end, behind)) => {
                total = total.saturating_add(behind);
                known.push((behind, at, offset.offset, end));
            }
            None => unknown += 1,
        }
    }
    known.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut told = Vec::new();
    if health.coordinated && health.offsets.is_empty() {
        told.push("no commits".to_owned());
    }
    if !known.is_empty() {
        told.push(format!("lag {total} records in {} partitions", known.len()));
    }
    told.extend(known.iter().take(LAGS_SHOWN_MAX).map(|(behind, at, committed, end)| {
        format!("{}: committed {committed}, log end {end}, lag {behind}", shown(at))
    }));
    if unknown > 0 {
        told.push(format!("of {unknown} more partitions the log end is not known"));
    }
    told
}

/// Whether any record is known to be unread.
fn is_behind(facts: &Facts, health: &v1::GroupHealth) -> bool {
    health.offsets.iter().any(|offset| {
        let Ok(topic) = TopicName::new(&offset.topic) else { return false };
        let at = TopicPartition { topic, partition: offset.partition };
        lag(facts, &at, offset.offset).is_some_and(|(_, behind)| behind > 0)
    })
}

fn no_members(facts: &Facts, group: &str, health: &v1::GroupHealth) -> Option<Cause> {
    if health.state != "Empty" || !health.members.is_empty() {
        return None;
    }
    // One that has read everything may be a job that is over.
    let severity = if is_behind(facts, health) { Severity::Degraded } else { Severity::Notice };
    let text = format!("group {group} has no members: nobody reads");
    Some(
        Cause::new(Kind::NoMembers, severity, &[], text)
            .fact(format!("state Empty, generation {}", health.generation))
            .facts(lags(facts, health))
            .aged(health.state_age_ms.map(|ms| (ms, false)))
            .stays_until("a consumer of the group is started")
            .step(
                Step::new(format!("barnabas group describe {}", quoted(group)), "nothing")
                    .when("it tells what the group has committed; start its consumers"),
            ),
    )
}

/// Groups that have been between two generations for long, as their coordinators tell without being asked for one of them.
#[must_use]
pub fn groups_waiting(facts: &Facts) -> Vec<Cause> {
    let told = facts.brokers.keys().filter_map(|id| Some((*id, facts.health(*id)?)));
    let groups = told.flat_map(|(id, health)| health.waiting_groups.iter().map(move |g| (id, g)));
    let causes = groups.map(|(id, group)| {
        let health = v1::GroupHealth {
            state: group.state.clone(),
            state_age_ms: Some(group.state_age_ms),
            ..Default::default()
        };
        let members = usize::try_from(group.members).unwrap_or(usize::MAX);
        let cause = rebalancing_of(&group.group, &health, members)?;
        Some(cause.fact(format!("broker {id}: it coordinates the group")))
    });
    causes.flatten().collect()
}

/// Groups whose partition of the offsets topic nobody serves.
#[must_use]
pub fn without_coordinator(at: &TopicPartition, causes: &[Cause]) -> Option<Cause> {
    let worst =
        causes.iter().filter(|cause| cause.severity == Severity::Offline).min_by_key(|c| c.kind)?;
    let text = format!("the groups whose offsets are in {} have no coordinator", shown(at));
    let mut cause = Cause::new(Kind::CoordinatorUnavailable, Severity::Offline, &[], text)
        .fact(worst.summary.clone())
        .heals("whoever leads that partition, once it has read it")
        .next(format!("barnabas explain partition {}", shown(at)), "nothing");
    cause.partitions = vec![at.clone()];
    Some(cause)
}

fn not_coordinated(facts: &Facts, of: Coordinated<'_>, at: &TopicPartition) -> Cause {
    let leader = facts
        .image
        .topics
        .get(&at.topic)
        .and_then(|t| t.partitions.get(&at.partition)?.state.leader);
    let brokers: Vec<BrokerId> = leader.into_iter().collect();
    let loading = of.health.is_some_and(|health| health.loading);
    let text = match leader {
        None => format!("group {} has no coordinator: nobody leads {}", of.group, shown(at)),
        Some(id) if loading => format!("broker {id} is reading the offsets of group {}", of.group),
        Some(id) => {
            format!("broker {id}, the coordinator of group {}, does not answer for it", of.group)
        }
    };
    let told = leader.and_then(|id| facts.unanswered(id));
    Cause::new(Kind::CoordinatorUnavailable, Severity::Offline, &brokers, text)
        .fact(format!("the offsets of group {} are in {}", of.group, shown(at)))
        .facts(told)
        .heals("whoever leads that partition, once it has read it")
        .next(format!("barnabas explain partition {}", shown(at)), "nothing")
}

fn rebalancing(group: &str, health: &v1::GroupHealth) -> Option<Cause> {
    let members = health.members.iter().take(MEMBERS_SHOWN_MAX);
    let members =
        members.map(|m| format!("member {} ({} at {})", m.member_id, m.client_id, m.client_host));
    Some(rebalancing_of(group, health, health.members.len())?.facts(members))
}

fn rebalancing_of(group: &str, health: &v1::GroupHealth, members: usize) -> Option<Cause> {
    let waits = match health.state.as_str() {
        "PreparingRebalance" => "for its members to join",
        "CompletingRebalance" => "for the assignment of its leader",
        _ => return None,
    };
    let text =
        format!("group {group} is rebalancing: it waits {waits}, and nobody reads meanwhile");
    let generation = match health.generation {
        0 => String::new(),
        generation => format!(", generation {generation}"),
    };
    Some(
        Cause::new(Kind::GroupRebalancing, Severity::Degraded, &[], text)
            .fact(format!("state {}{generation}, {members} members", health.state))
            .aged(health.state_age_ms.map(|ms| (ms, false)))
            .heals("the members; who has not joined within its max.poll.interval.ms is left behind")
            .step(
                Step::new(format!("barnabas group describe {}", quoted(group)), "nothing")
                    .when("it tells who has joined; one that joins again and again has a session.timeout.ms or max.poll.interval.ms that is too short for its work"),
            ),
    )
}

fn out_of_range(facts: &Facts, group: &str, at: &TopicPartition, committed: i64) -> Option<Cause> {
    let topic = facts.image.topics.get(&at.topic);
    let place = shown(at);
    let Some(partition) = topic.and_then(|topic| topic.partitions.get(&at.partition)) else {
        let text = format!(
            "group {group} has committed offset {committed} in {place}, which does not exist"
        );
        return Some(
            Cause::new(Kind::OffsetOutOfRange, Severity::Notice, &[], text)
                .fact(format!("broker {} knows no such partition", facts.me))
                .heals("offsets.retention.minutes")
                .next(format!("barnabas group describe {}", quoted(group)), "nothing"),
        );
    };
    let log = facts.log(partition.state.leader?, at)?;
    if (log.log_start..=log.log_end).contains(&committed) {
        return None;
    }
    let (what, lost) = if committed < log.log_start {
        let lost = log.log_start - committed;
        ("before the log begins", format!("{lost} records that the group has not read are gone"))
    } else {
        let beyond = committed - log.log_end;
        ("beyond the end of the log", format!("{beyond} records that the group has read are gone"))
    };
    let text = format!("group {group} has committed offset {committed} in {place}, {what}");
    let reset = format!("barnabas group reset-offsets {} --topic {place}", quoted(group));
    let cause = Cause::new(Kind::OffsetOutOfRange, Severity::Degraded, &[], text)
        .fact(format!("{place} begins at offset {} and ends at {}", log.log_start, log.log_end))
        .fact(lost.clone())
        .fact("a consumer goes by auto.offset.reset there".to_owned())
        .heals("a consumer with auto.offset.reset=earliest or latest, and its next commit");
    let mut cause = cause
        .next(
            format!("{reset} --to-earliest --execute"),
            format!("{lost}; what is there is read from offset {}", log.log_start),
        )
        .next(
            format!("{reset} --to-latest --execute"),
            format!(
                "{} records that are there are not read",
                log.high_watermark.max(log.log_start) - log.log_start
            ),
        );
    cause.partitions = vec![at.clone()];
    Some(cause)
}
