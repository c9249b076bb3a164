//! Elections that somebody asks for: of preferred leaders (KIP-460), by the clock or on demand, and unclean ones (R39).

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{BrokerId, Condition, PartitionEpoch, PartitionState, TopicPartition};

use crate::controller::{Controller, note};
use crate::controller_api::{Effects, ElectLeaders, ElectPartition, Election, RequestId};
use crate::decide::{Decision, Report, View, describe, heard, longest, shown, successor};

/// Most requests for elections that wait for their writes.
pub const ELECTIONS_MAX: usize = 64;

/// An election of one partition that waits for its turn, or for its write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wish {
    election: Election,
    /// Only if the partition is at this epoch.
    expected: Option<PartitionEpoch>,
    /// Who waits; nobody if the clock asked.
    requests: Vec<RequestId>,
}

/// A request whose partitions are not all settled.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Electing {
    waiting: BTreeSet<TopicPartition>,
    results: Vec<(TopicPartition, Result<PartitionState, Condition>)>,
}

/// The state that the election gives the partition. Nothing else is to be decided about it now.
///
/// # Errors
/// Why there is none.
pub(crate) fn elect(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
    reports: &BTreeMap<BrokerId, Report>,
    wish: &Wish,
) -> Result<Decision, Condition> {
    if wish.expected.is_some_and(|expected| expected != state.partition_epoch) {
        return Err(Condition::InvalidUpdateVersion {
            reason: "the partition has changed since it was looked at; look again, then decide",
        });
    }
    match wish.election {
        Election::Preferred => preferred(view, assigned, state),
        Election::Unclean { to } => unclean(view, assigned, state, reports, to),
    }
}

fn preferred(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
) -> Result<Decision, Condition> {
    let unavailable = |text: String| Err(Condition::PreferredLeaderNotAvailable(text));
    let Some(&first) = assigned.first() else {
        return unavailable("the partition has no replicas".to_owned());
    };
    if state.leader == Some(first) {
        let text = format!("broker {first}, the preferred replica, leads");
        return Err(Condition::ElectionNotNeeded(text));
    }
    if !state.in_isr(first) {
        return unavailable(format!("broker {first}, the preferred replica, is not in the ISR"));
    }
    if !view.is_eligible(state, first) {
        return unavailable(format!("broker {first}, the preferred replica, is not available"));
    }
    if view.is_draining(first) {
        return unavailable(format!("broker {first}, the preferred replica, is being drained"));
    }
    let next = successor(view, state, Some(first), true, state.isr.clone());
    let text = describe(state, &next, "election of the preferred leader");
    Ok(Decision { text, warn: false, state: next })
}

/// R39. The caller has found that no ISR member is eligible.
fn unclean(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
    reports: &BTreeMap<BrokerId, Report>,
    to: Option<BrokerId>,
) -> Result<Decision, Condition> {
    if let Some(leader) = state.leader {
        return Err(Condition::ElectionNotNeeded(format!("broker {leader} leads")));
    }
    let mut heard = heard(view, assigned, reports);
    heard.retain(|(b, _)| !view.is_draining(*b));
    let chosen = match to {
        Some(to) if !assigned.contains(&to) => {
            let text = format!("broker {to} has no replica of the partition");
            return Err(Condition::EligibleLeadersNotAvailable(text));
        }
        Some(to) if view.is_draining(to) => {
            let text = format!("broker {to} is being drained; undrain it first");
            return Err(Condition::EligibleLeadersNotAvailable(text));
        }
        Some(to) => heard.iter().copied().find(|(b, _)| *b == to),
        None => longest(state, &heard),
    };
    let Some((leader, report)) = chosen else {
        let text = match to {
            Some(to) if view.is_draining(to) => format!("broker {to} is being drained"),
            Some(to) => format!("broker {to} has not told what its replica holds"),
            None => {
                "no live replica has told what it holds; start a broker that has one".to_owned()
            }
        };
        return Err(Condition::EligibleLeadersNotAvailable(text));
    };
    let isr = vec![(leader, report.broker_epoch)];
    let next = successor(view, state, Some(leader), true, isr);
    let why = format!(
        "unclean election by an operator; what was acknowledged from offset {} on may be lost; reported {}",
        report.log_end,
        shown(&heard)
    );
    Ok(Decision { text: describe(state, &next, &why), warn: true, state: next })
}

impl Controller {
    /// Elects leaders of several partitions; answered when each is settled.
    pub(crate) fn elect_leaders(
        &mut self,
        request: RequestId,
        elect: ElectLeaders,
        effects: &mut Effects,
    ) {
        let mut electing = Electing::default();
        if self.electing.len() >= ELECTIONS_MAX {
            let busy = Condition::InvalidRequest(format!(
                "{ELECTIONS_MAX} requests for elections wait already; try again later"
            ));
            let refused = |p: ElectPartition| (p.partition, Err(busy.clone()));
            let results = elect.partitions.into_iter().map(refused).collect();
            effects.elect_answers.push((request, results));
            return;
        }
        let mut asked: Vec<ElectPartition> = Vec::new();
        for one in elect.partitions {
            if !electing.waiting.insert(one.partition.clone()) {
                continue; // named twice: one election, one result
            }
            asked.push(one);
        }
        self.electing.insert(request, electing);
        for ElectPartition { partition: at, expected } in asked {
            let election = elect.election;
            let wish = Wish { election, expected, requests: vec![request] };
            self.wish(&at, wish, effects);
        }
        self.answer_electing(request, effects);
    }

    fn wish(&mut self, at: &TopicPartition, wish: Wish, effects: &mut Effects) {
        let deleting = self.topics.get(&at.topic).is_some_and(|t| t.deleting.is_some());
        let Some(slot) = self.slot_mut(at).filter(|_| !deleting) else {
            return self.election_ended(
                at,
                wish,
                &Err(Condition::UnknownTopicOrPartition),
                effects,
            );
        };
        match &mut slot.wish {
            Some(known) if known.election == wish.election && known.expected == wish.expected => {
                known.requests.extend(wish.requests);
            }
            Some(_) => {
                let text = "another election of this partition is under way".to_owned();
                self.election_ended(at, wish, &Err(Condition::ElectionNotNeeded(text)), effects);
            }
            None => {
                slot.wish = Some(Box::new(wish));
                self.settle(at, effects);
            }
        }
    }

    /// Tells everybody who waits for this election.
    pub(crate) fn election_ended(
        &mut self,
        at: &TopicPartition,
        wish: Wish,
        result: &Result<PartitionState, Condition>,
        effects: &mut Effects,
    ) {
        for request in wish.requests {
            if let Some(electing) = self.electing.get_mut(&request)
                && electing.waiting.remove(at)
            {
                electing.results.push((at.clone(), result.clone()));
            }
            self.answer_electing(request, effects);
        }
    }

    fn answer_electing(&mut self, request: RequestId, effects: &mut Effects) {
        if self.electing.get(&request).is_some_and(|e| e.waiting.is_empty())
            && let Some(mut electing) = self.electing.remove(&request)
        {
            electing.results.sort_by(|a, b| a.0.cmp(&b.0));
            effects.elect_answers.push((request, electing.results));
        }
    }

    /// The term is over: what was not settled has an unknown outcome.
    pub(crate) fn abandon_elections(&mut self, effects: &mut Effects) {
        for (request, electing) in std::mem::take(&mut self.electing) {
            let unknown = || Condition::UnknownOutcome("the controller was deposed meanwhile");
            let rest = electing.waiting.into_iter().map(|at| (at, Err(unknown())));
            let results = electing.results.into_iter().chain(rest).collect();
            effects.elect_answers.push((request, results));
        }
    }

    /// Gives leaderships back to preferred replicas, for each broker that lacks more than `percentage` percent of those that
    /// it is preferred for.
    pub(crate) fn rebalance(&mut self, percentage: u32, effects: &mut Effects) {
        #[derive(Default)]
        struct Share {
            preferred: u64,
            wanted: Vec<TopicPartition>,
            lacking: u64,
        }
        let wish = Wish { election: Election::Preferred, expected: None, requests: Vec::new() };
        let mut shares: BTreeMap<BrokerId, Share> = BTreeMap::new();
        for (name, topic) in self.topics.iter().filter(|(_, t)| !t.hidden && t.deleting.is_none()) {
            for (index, slot) in &topic.slots {
                let (Some(&first), Some(state)) =
                    (slot.assignment.replicas.first(), slot.committed())
                else {
                    continue;
                };
                let share = shares.entry(first).or_default();
                share.preferred += 1;
                if state.leader == Some(first) {
                    continue;
                }
                share.lacking += 1;
                let view = self.view(topic, slot);
                let idle = slot.is_idle() && slot.wish.is_none();
                if idle
                    && elect(&view, &slot.assignment.replicas, state, &slot.reports, &wish).is_ok()
                {
                    let at = TopicPartition { topic: name.clone(), partition: *index };
                    share.wanted.push(at);
                }
            }
        }
        for (broker, share) in shares {
            let above = share.lacking * 100 > u64::from(percentage) * share.preferred;
            if !above || share.wanted.is_empty() {
                continue;
            }
            let text = format!(
                "leaders are out of balance: broker {broker} leads {} of {} partitions that it is preferred for; it gets {} back",
                share.preferred - share.lacking,
                share.preferred,
                share.wanted.len()
            );
            note(effects, None, false, text);
            for at in share.wanted {
                self.wish(&at, wish.clone(), effects);
            }
        }
    }
}
