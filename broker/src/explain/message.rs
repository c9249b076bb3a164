//! Causes as messages.

use barnabas_proto::v1;
use barnabas_types::BrokerId;

use super::cause::{Candidate, Cause, Step, in_order, shown};
use super::facts::Facts;
use super::judge::{self, Subject};

/// Most causes of one answer.
pub(super) const CAUSES_MAX: usize = 100;

/// What is said of the subject as a whole.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) subject: Subject,
    /// An id, `TOPIC:PARTITION`, a group id; empty: of the cluster.
    pub(super) name: String,
    pub(super) state: String,
    pub(super) headline: String,
    /// What is known of it, whatever is wrong.
    pub(super) facts: Vec<String>,
    pub(super) partitions_left_out: usize,
}

/// The whole answer; `causes` come in any order.
pub(super) fn response(facts: &Facts, said: Said, causes: Vec<Cause>) -> v1::ExplainResponse {
    let Said { subject, name, state, headline, facts: known, partitions_left_out } = said;
    let ruled_out = judge::ruled_out(facts, subject, &causes).into_iter();
    let ruled_out =
        ruled_out.map(|(kind, text)| v1::RuledOut { cause: kind.name().to_owned(), text });
    let causes = in_order(causes);
    let left_out = causes.len().saturating_sub(CAUSES_MAX);
    let headline = match left_out {
        0 => headline,
        more => format!("{headline}; {more} more causes than the {CAUSES_MAX} below are left out"),
    };
    let kind = match subject {
        Subject::Partition => "partition",
        Subject::Broker => "broker",
        Subject::Cluster => "cluster",
        Subject::Group => "group",
    };
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    v1::ExplainResponse {
        subject: format!("{kind} {name}").trim_end().to_owned(),
        headline,
        causes: causes.into_iter().take(CAUSES_MAX).map(|cause| write(facts, cause)).collect(),
        unanswered: facts.brokers.keys().filter_map(|id| facts.unanswered(*id)).collect(),
        answered_by: facts.me.0,
        failure: None,
        partitions_left_out: count(partitions_left_out),
        kind: kind.to_owned(),
        name,
        state,
        now_ms: facts.now_ms,
        causes_left_out: count(left_out),
        facts: known.into_iter().map(|text| fact(facts, text)).collect(),
        ruled_out: ruled_out.collect(),
    }
}

/// A fact with whose word it is: what begins with `broker N: ` is that broker's, if it answered; the rest the asked broker found out, or
/// was told by the controller.
fn fact(facts: &Facts, text: String) -> v1::ExplainedFact {
    let named = text.strip_prefix("broker ").and_then(|rest| rest.split_once(": "));
    let named = named.and_then(|(id, _)| id.parse().ok()).map(BrokerId);
    let unanswered = named.is_some_and(|id| facts.unanswered(id).is_some());
    let (source, age_ms) = match named {
        Some(id) if facts.health(id).is_some() => (format!("broker {id}"), Some(facts.gathered_ms)),
        Some(_) if unanswered => (format!("asked by broker {}", facts.me), Some(facts.gathered_ms)),
        _ => (format!("broker {}, as it knows the cluster", facts.me), None),
    };
    v1::ExplainedFact { text, source, age_ms }
}

fn write(facts: &Facts, cause: Cause) -> v1::ExplainedCause {
    let step = |step: Step| v1::NextStep {
        command: step.command,
        cost: step.cost,
        place: step.place,
        when: step.when,
        loses_records: step.loses,
    };
    let candidate = |one: Candidate| v1::UncleanCandidate {
        broker_id: one.broker.0,
        last_epoch: one.last_epoch,
        lost_from: one.lost_from,
        lost_until: one.lost_until,
        lost_records: one.lost_records(),
    };
    let id = |id: BrokerId| id.0;
    v1::ExplainedCause {
        name: cause.kind.name().to_owned(),
        severity: cause.severity.name().to_owned(),
        summary: cause.summary,
        evidence: cause.evidence.into_iter().map(|text| fact(facts, text)).collect(),
        age_ms: cause.age.map(|(ms, _)| ms),
        age_at_least: cause.age.is_some_and(|(_, at_least)| at_least),
        heals_by_itself: cause.heals_by_itself,
        healing: cause.healing,
        next: cause.next.into_iter().map(step).collect(),
        candidates: cause.candidates.into_iter().map(candidate).collect(),
        brokers: cause.brokers.into_iter().map(id).collect(),
        partitions: cause.partitions.iter().map(shown).collect(),
    }
}
