//! What is wrong with a consumer group: its coordinator, its membership, its offsets, the partitions that it reads.

use barnabas_proto::v1;
use barnabas_types::{BrokerId, TopicName, TopicPartition};

use super::partition::partition;
use crate::explain::cause::{Cause, Kind, Severity, quoted, shown};
use crate::explain::facts::Facts;

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
            .next("wait", "nothing")
    } else {
        cause.stays_until(format!("{wanted} brokers are live, or offsets.topic.replication.factor is {live} in their files")).next(
            "start more brokers, or lower offsets.topic.replication.factor and restart",
            "with a lower factor, offsets are on fewer brokers for good",
        )
    }
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
    let waits = match health.state.as_str() {
        "PreparingRebalance" => "for its members to join",
        "CompletingRebalance" => "for the assignment of its leader",
        _ => return None,
    };
    let text =
        format!("group {group} is rebalancing: it waits {waits}, and nobody reads meanwhile");
    let members = health.members.iter().take(MEMBERS_SHOWN_MAX);
    let members =
        members.map(|m| format!("member {} ({} at {})", m.member_id, m.client_id, m.client_host));
    Some(
        Cause::new(Kind::GroupRebalancing, Severity::Degraded, &[], text)
            .fact(format!(
                "state {}, generation {}, {} members",
                health.state,
                health.generation,
                health.members.len()
            ))
            .facts(members)
            .aged(health.state_age_ms.map(|ms| (ms, false)))
            .heals("the members; who has not joined within its max.poll.interval.ms is left behind")
            .next(
                format!("barnabas group describe {} (a member that joins again and again has a session.timeout.ms or max.poll.interval.ms that is too short for its work)", quoted(group)),
                "nothing",
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
                .next("nothing", "nothing"),
        );
    };
    let log = facts.replica(partition.state.leader?, at).filter(|log| log.hosted && !log.held)?;
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
