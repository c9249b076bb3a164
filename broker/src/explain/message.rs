//! Causes as messages.

use barnabas_proto::v1;
use barnabas_types::BrokerId;

use super::cause::{Candidate, Cause, Step, in_order, shown};
use super::facts::Facts;

/// Most causes of one answer.
pub(super) const CAUSES_MAX: usize = 100;

/// The whole answer; `causes` come in any order.
pub(super) fn response(
    facts: &Facts,
    subject: String,
    headline: String,
    causes: Vec<Cause>,
    partitions_left_out: usize,
) -> v1::ExplainResponse {
    let causes = in_order(causes);
    let headline = match causes.len().saturating_sub(CAUSES_MAX) {
        0 => headline,
        more => format!("{headline}; {more} more causes than the {CAUSES_MAX} below are left out"),
    };
    let causes = causes.into_iter().take(CAUSES_MAX).map(write).collect();
    v1::ExplainResponse {
        subject,
        headline,
        causes,
        unanswered: facts.brokers.keys().filter_map(|id| facts.unanswered(*id)).collect(),
        answered_by: facts.me.0,
        failure: None,
        partitions_left_out: u32::try_from(partitions_left_out).unwrap_or(u32::MAX),
    }
}

fn write(cause: Cause) -> v1::ExplainedCause {
    let step = |step: Step| v1::NextStep { command: step.command, cost: step.cost };
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
        evidence: cause.evidence,
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
