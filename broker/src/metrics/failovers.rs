//! What the records of failovers come to: counted where they are made, by the controller of their term.
//!
//! A record is told several times, each time with what has been reached since; each phase of each broker counts once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use barnabas_metrics::{Counts, Histogram};
use barnabas_proto::v1;

/// Failovers of which later tellings are recognised; as many as a term watches at once, twice.
const KNOWN_MAX: usize = 64;

/// Of all terms of this process.
#[derive(Debug, Default)]
pub struct FailoverFigures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_cause: BTreeMap<String, u64>,
    suspicions: u64,
    wrong: u64,
    /// By the phase's name.
    phases: BTreeMap<String, Histogram>,
    pushed: Histogram,
    known: VecDeque<Known>,
}

#[derive(Debug, Default)]
struct Known {
    id: String,
    reached: BTreeSet<(String, Option<i32>)>,
    suspected: bool,
    wrong: bool,
    pushed: bool,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct CountedFailovers {
    /// By cause.
    pub by_cause: Vec<(String, u64)>,
    /// Those with a suspicion, and with a wrong one.
    pub suspicions: (u64, u64),
    /// Microseconds from the first sign, by phase.
    pub phases: Vec<(String, Counts)>,
    /// Microseconds from the first sign until a push told everybody who leads.
    pub pushed: Counts,
}

impl FailoverFigures {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A failover is recorded, or got further.
    pub fn told(&self, record: &v1::Failover) {
        let mut state = self.lock();
        let State { by_cause, suspicions, wrong, phases, pushed, known } = &mut *state;
        let index = known.iter().position(|known| known.id == record.id).unwrap_or_else(|| {
            *by_cause.entry(record.cause.clone()).or_default() += 1;
            if known.len() >= KNOWN_MAX {
                known.pop_front();
            }
            known.push_back(Known { id: record.id.clone(), ..Known::default() });
            known.len() - 1
        });
        let Some(known) = known.get_mut(index) else { return };
        for phase in &record.phases {
            if known.reached.insert((phase.name.clone(), phase.broker_id)) {
                phases.entry(phase.name.clone()).or_default().observe(phase.at_us);
            }
        }
        let suspected = |phase: &v1::FailoverPhase| {
            matches!(phase.name.as_str(), "suspected" | "controller_suspected")
        };
        if !known.suspected && record.phases.iter().any(suspected) {
            known.suspected = true;
            *suspicions += 1;
        }
        if !known.wrong && record.suspicion_was_wrong {
            known.wrong = true;
            *wrong += 1;
        }
        let last =
            record.phases.iter().filter(|phase| phase.name == "pushed").map(|p| p.at_us).max();
        if let Some(last) = last.filter(|_| !known.pushed) {
            known.pushed = true;
            pushed.observe(last);
        }
    }

    /// What there is.
    #[must_use]
    pub fn counted(&self) -> CountedFailovers {
        let state = self.lock();
        let phases = state.phases.iter().map(|(name, took)| (name.clone(), took.counts()));
        CountedFailovers {
            by_cause: state.by_cause.clone().into_iter().collect(),
            suspicions: (state.suspicions, state.wrong),
            phases: phases.collect(),
            pushed: state.pushed.counts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, at_us: u64, broker_id: Option<i32>) -> v1::FailoverPhase {
        v1::FailoverPhase { name: name.into(), at_us, broker_id, ..Default::default() }
    }

    #[test]
    fn a_failover_that_is_told_again_counts_only_what_is_new() {
        let figures = FailoverFigures::default();
        let mut record = v1::Failover {
            id: "2-1".into(),
            cause: "suspicion".into(),
            phases: vec![
                phase("suspected", 0, None),
                phase("pushed", 50_000, Some(2)),
                phase("pushed", 60_000, Some(3)),
            ],
            ..Default::default()
        };
        figures.told(&record);
        record.phases.push(phase("last_ack", 90_000, Some(2)));
        record.suspicion_was_wrong = true;
        figures.told(&record);
        figures.told(&record);
        let counted = figures.counted();
        assert_eq!(counted.by_cause, [("suspicion".to_owned(), 1)]);
        assert_eq!(counted.suspicions, (1, 1));
        assert_eq!((counted.pushed.count(), counted.pushed.sum()), (1, 60_000));
        let phases: Vec<_> =
            counted.phases.iter().map(|(n, c)| (n.as_str(), c.count(), c.sum())).collect();
        let expected = [("last_ack", 1, 90_000), ("pushed", 2, 110_000), ("suspected", 1, 0)];
        assert_eq!(phases, expected);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let figures = FailoverFigures::default();
        for n in 0..3 * KNOWN_MAX {
            figures.told(&v1::Failover {
                id: format!("1-{n}"),
                cause: "drain".into(),
                ..Default::default()
            });
        }
        assert_eq!(figures.lock().known.len(), KNOWN_MAX);
        assert_eq!(figures.counted().by_cause[0].1, 3 * KNOWN_MAX as u64);
    }
}
