//! What an unclean election would lose, for each replica that could be elected.
//!
//! Of two logs only as much is known to be equal as both have of one epoch. A leader has all that was committed before it, so a log
//! whose last record is of the last leader's epoch is the beginning of that leader's log: by electing it only what is behind its end is
//! lost. The end of any other log may be a tail that a later leader has replaced by other records, which were acknowledged; of it only
//! what is below its own high watermark is known to be committed.

use barnabas_proto::v1;
use barnabas_types::BrokerId;

use super::partition::Look;
use crate::explain::cause::{Candidate, Cause, Step, listed, shown};
use crate::explain::facts::State;

/// Live replicas among these, the one with the longest log first.
pub(super) fn candidates(look: &Look<'_>, of: &[BrokerId]) -> Vec<Candidate> {
    // The epoch rose when the last leader went.
    let last_led = look.partition.state.leader_epoch.0 - 1;
    // Also of those that cannot lead now.
    let assigned = &look.partition.assigned_replicas;
    let known: Vec<(BrokerId, &v1::ReplicaHealth)> =
        assigned.iter().filter_map(|id| Some((*id, look.facts.log(*id, look.at)?))).collect();
    let mut found = Vec::new();
    for (broker, own) in known.iter().filter(|(id, own)| of.contains(id) && !own.failed) {
        let draining = look.facts.image.brokers.get(broker).is_none_or(|b| b.draining);
        if draining || !matches!(look.facts.state(*broker), State::Up(_)) {
            continue;
        }
        let is_whole = own.last_epoch >= last_led;
        let lost_from = if is_whole { own.log_end } else { own.high_watermark.min(own.log_end) };
        // What an older log has behind its high watermark was replaced, or is in this one too.
        let ends = known.iter().map(|(id, other)| {
            let counts = id != broker && other.last_epoch >= own.last_epoch;
            if counts { other.log_end.max(other.high_watermark) } else { other.high_watermark }
        });
        found.push(Candidate {
            broker: *broker,
            last_epoch: own.last_epoch,
            log_end: own.log_end,
            last_led,
            lost_from,
            lost_until: ends.max().unwrap_or(0).max(lost_from),
        });
    }
    found.sort_by_key(|c| std::cmp::Reverse((c.last_epoch, c.log_end)));
    found
}

/// The last resort, with its price for each candidate. `away` are those whose logs nobody sees now.
pub(super) fn with_prices(
    look: &Look<'_>,
    mut cause: Cause,
    candidates: Vec<Candidate>,
    away: &[BrokerId],
) -> Cause {
    for one in &candidates {
        let (from, until, records) = (one.lost_from, one.lost_until, one.lost_records());
        let cost = if one.is_whole() {
            let more = match away {
                [] => String::new(),
                _ => format!(", and what broker {} had from offset {until} on", listed(away)),
            };
            format!(
                "loses what was acknowledged from offset {from} on: {records} records that other live replicas have{more}"
            )
        } else {
            let more = match away {
                [] => String::new(),
                _ => format!(", and all that broker {} had from there on", listed(away)),
            };
            format!(
                "may lose what was acknowledged from offset {from} on, though its log ends at {}: up to {records} records that other live replicas have{more}",
                one.log_end
            )
        };
        let command =
            format!("barnabas leader elect --unclean {} --to {}", shown(look.at), one.broker);
        // What nobody sees now may be more.
        let loses = away.is_empty().then_some(records);
        let gone = match away {
            [] => "if nothing else helps".to_owned(),
            _ => format!("only if the log of broker {} is gone for good", listed(away)),
        };
        cause = cause.step(Step::new(command, cost).when(gone).loses(loses));
    }
    cause.candidates = candidates;
    cause
}
