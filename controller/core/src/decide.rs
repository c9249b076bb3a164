//! Leader and ISR decisions for one partition, as pure functions of its stored state, the registrations and the reports.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, Condition, ControllerEpoch, Incarnation,
    LeaderEpoch, Offset, PartitionEpoch, PartitionState,
};

use crate::controller_api::AlterPartition;
use crate::drain::leave;

/// What the decisions look at, apart from the partition itself.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// Live brokers as registered now.
    pub(crate) brokers: &'a BTreeMap<BrokerId, BrokerImage>,
    /// Epoch of this controller, written into every state.
    pub(crate) controller_epoch: ControllerEpoch,
    /// Assigned replicas whose live brokers cannot serve them (R38).
    pub(crate) failed: &'a [BrokerId],
    /// Draining brokers, in the order in which they began (R26).
    pub(crate) draining: &'a [BrokerId],
    /// Registered brokers whose processes seem to be gone (R17).
    pub(crate) suspected: &'a BTreeSet<BrokerId>,
    /// The topic's `min.insync.replicas`.
    pub(crate) min_insync_replicas: u32,
}

/// A replica's report as it is kept: it counts only while the broker is registered under `broker_epoch` (R8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Report {
    pub(crate) broker_epoch: BrokerEpoch,
    pub(crate) last_epoch: Option<LeaderEpoch>,
    pub(crate) log_end: Offset,
}

/// A state to write, and the line that tells why.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Decision {
    pub(crate) state: PartitionState,
    pub(crate) text: String,
    /// An operator should see it (leaderless, unclean, recovered from the longest log).
    pub(crate) warn: bool,
}

/// How an ISR member's registration compares with its entry in the state (R2, R3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Registered under the epoch of its entry. Eligible, even with the lost-tail mark: the entry confirms it (R7).
    Confirmed,
    /// The same, but its process seems to be gone: as good as gone while another member can lead, else as confirmed (R17).
    Suspected,
    /// Not registered.
    Gone,
    /// Registered, but it cannot serve its replica: as good as gone, until it reports otherwise (R38).
    Failed,
    /// Registered under another epoch, log whole: down, then up.
    BouncedWhole(BrokerEpoch),
    /// Registered under another epoch, the tail of its log may be lost (R6).
    BouncedLost(BrokerEpoch),
}

impl View<'_> {
    fn standing(&self, broker: BrokerId, entry: BrokerEpoch) -> Standing {
        match self.brokers.get(&broker) {
            None => Standing::Gone,
            Some(b) if b.epoch != entry && b.tail_lost => Standing::BouncedLost(b.epoch),
            Some(_) if self.failed.contains(&broker) => Standing::Failed,
            Some(b) if b.epoch == entry && self.is_suspected(broker) => Standing::Suspected,
            Some(b) if b.epoch == entry => Standing::Confirmed,
            Some(b) => Standing::BouncedWhole(b.epoch),
        }
    }

    /// Whether an ISR member is registered under the epoch of its entry and can serve.
    pub(crate) fn is_eligible(&self, state: &PartitionState, broker: BrokerId) -> bool {
        let entry = state.isr_epoch_of(broker);
        entry.is_some_and(|entry| self.standing(broker, entry) == Standing::Confirmed)
    }

    /// Whether the broker is registered and serves its replica of the partition.
    fn can_serve(&self, broker: BrokerId) -> bool {
        self.brokers.contains_key(&broker) && !self.failed.contains(&broker)
    }

    /// Whether the broker is being emptied: it never leads while another can, and enters no ISR (R26a).
    pub(crate) fn is_draining(&self, broker: BrokerId) -> bool {
        self.draining.contains(&broker)
    }

    /// Whether the broker is registered and seems to be gone all the same: it enters no ISR (R17).
    pub(crate) fn is_suspected(&self, broker: BrokerId) -> bool {
        self.suspected.contains(&broker)
    }

    /// ISR members that are registered under another broker epoch than their entry says: nothing may be pushed to them
    /// until they were processed as down, then up (R3).
    pub(crate) fn bounced(&self, state: &PartitionState) -> Vec<BrokerId> {
        let bounced = |&(broker, entry): &(BrokerId, BrokerEpoch)| {
            self.brokers.get(&broker).is_some_and(|b| b.epoch != entry)
        };
        state.isr.iter().filter(|m| bounced(m)).map(|m| m.0).collect()
    }
}

/// Whether a stored state can be decided on at all; a damaged one is shown leaderless and never written.
///
/// The epochs are legal and I8 holds. (I8 is spelt out on slices, because this runs for every partition of the cluster.)
pub(crate) fn is_sound(assigned: &[BrokerId], state: &PartitionState) -> bool {
    let legal = |epoch: i32| (0..i32::MAX).contains(&epoch);
    let isr = &state.isr;
    legal(state.leader_epoch.0)
        && legal(state.partition_epoch.0)
        && assigned.iter().enumerate().all(|(i, b)| !assigned[..i].contains(b))
        && !isr.is_empty()
        && isr.iter().enumerate().all(|(i, m)| !isr[..i].iter().any(|earlier| earlier.0 == m.0))
        && isr.iter().all(|m| assigned.contains(&m.0))
        && state.leader.is_none_or(|leader| state.in_isr(leader))
}

/// What must be written because of registrations and reports; `None` if the stored state may stand (R5, R6, R8, R17).
///
/// All registration changes that concern the partition are settled in one write. `reports` are those given for exactly
/// the present leader epoch. `state` must be sound ([`is_sound`]).
pub(crate) fn decide(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
    reports: &BTreeMap<BrokerId, Report>,
    unclean: bool,
) -> Option<Decision> {
    let settled = |m: &(BrokerId, BrokerEpoch)| view.standing(m.0, m.1) == Standing::Confirmed;
    if state.leader.is_some() && state.isr.iter().all(settled) {
        return leave(view, assigned, state); // nearly always nobody drains
    }
    let members: Vec<(BrokerId, BrokerEpoch, Standing)> = assigned
        .iter()
        .filter_map(|&b| state.isr_epoch_of(b).map(|entry| (b, entry, view.standing(b, entry))))
        .collect();
    let entries = |wanted: fn(&Standing) -> bool| -> Vec<(BrokerId, BrokerEpoch)> {
        members.iter().filter(|m| wanted(&m.2)).map(|m| (m.0, m.1)).collect()
    };
    // Suspects go only if a member remains that is not one. Without it nothing is done that a wrong suspicion could cost (R17).
    let mut confirmed = entries(|s| *s == Standing::Confirmed);
    if confirmed.is_empty() {
        confirmed = entries(|s| *s == Standing::Suspected);
    }

    let able = confirmed.iter().find(|m| !view.is_draining(m.0)).or(confirmed.first());
    let bounced = || {
        members.iter().filter_map(|m| match m.2 {
            Standing::BouncedWhole(epoch) => Some((m.0, epoch)),
            _ => None,
        })
    };
    let back = bounced().find(|m| !view.is_draining(m.0)).or_else(|| bounced().next());

    let (leader, isr) = if let Some(&(first, _)) = able {
        let stays = state.leader.filter(|l| confirmed.iter().any(|(b, _)| b == l));
        (Some(stays.unwrap_or(first)), confirmed)
    } else if let Some(back) = back {
        (Some(back.0), vec![back])
    } else {
        if let Some(decision) = recover(view, assigned, state, reports, unclean) {
            return Some(decision);
        }
        let gone = entries(|s| matches!(s, Standing::Gone | Standing::Failed));
        let last = || members.iter().take(1).map(|m| (m.0, m.1)).collect();
        (None, if gone.is_empty() { last() } else { gone })
    };

    // A member bounced and whole leads under its new broker epoch: always a new leader epoch (one epoch, one incarnation).
    let reelected =
        leader != state.leader || leader.is_some_and(|l| !state.isr.contains(&entry_of(&isr, l)));
    if !reelected && isr.len() == state.isr.len() {
        return None;
    }
    let next = successor(view, state, leader, reelected, isr);
    let why: Vec<String> = members.iter().filter_map(|m| cause(m.0, m.1, m.2)).collect();
    let why = if why.is_empty() { "an ISR member can lead".to_owned() } else { why.join(", ") };
    Some(Decision { text: describe(state, &next, &why), warn: next.leader.is_none(), state: next })
}

fn entry_of(isr: &[(BrokerId, BrokerEpoch)], broker: BrokerId) -> (BrokerId, BrokerEpoch) {
    let epoch = isr.iter().find(|m| m.0 == broker).map_or(BrokerEpoch(-1), |m| m.1);
    (broker, epoch)
}

fn cause(broker: BrokerId, entry: BrokerEpoch, standing: Standing) -> Option<String> {
    match standing {
        Standing::Confirmed => None,
        Standing::Suspected => Some(format!("broker {broker} (epoch {entry}) is suspected")),
        Standing::Gone => Some(format!("broker {broker} went away")),
        Standing::Failed => Some(format!("broker {broker} cannot serve its replica")),
        Standing::BouncedWhole(epoch) => {
            Some(format!("broker {broker} came back under epoch {epoch} (was {entry})"))
        }
        Standing::BouncedLost(epoch) => Some(format!(
            "broker {broker} came back under epoch {epoch} (was {entry}) and may have lost the tail of its log"
        )),
    }
}

/// The way back of a leaderless partition without an eligible ISR member: R8 if all of AR have reported, else, with
/// `unclean.leader.election.enable`, if all live ones have. Takes the greatest (last epoch, LEO).
fn recover(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
    reports: &BTreeMap<BrokerId, Report>,
    unclean: bool,
) -> Option<Decision> {
    if state.leader.is_some() {
        return None;
    }
    let heard = heard(view, assigned, reports);
    let live = assigned.iter().filter(|b| view.can_serve(**b)).count();
    let all = heard.len() == assigned.len();
    if !(all || (unclean && heard.len() == live)) {
        return None;
    }
    let (best, report) =
        longest(state, &heard).filter(|(b, _)| !view.is_draining(*b)).or_else(|| {
            // Who drains may have been told that it may stop (R26): it is waited for, until it is back, or undrained.
            let staying = heard.iter().copied().filter(|(b, _)| !view.is_draining(*b));
            if unclean { longest(state, &staying.collect::<Vec<_>>()) } else { None }
        })?;
    if view.is_suspected(best) {
        return None; // its session ends, or it answers
    }
    let mut next = successor(view, state, Some(best), true, vec![(best, report.broker_epoch)]);
    // Only where what is stored was taken back to an earlier time do logs know newer epochs: an epoch has one leader.
    if let Some(known) = heard.iter().filter_map(|(_, report)| report.last_epoch).max() {
        next.leader_epoch = next.leader_epoch.max(known.next());
    }
    let kind = if all { "recovered from the longest log" } else { "unclean leader election" };
    let why = format!("{kind}: reported {}", shown(&heard));
    Some(Decision { text: describe(state, &next, &why), warn: true, state: next })
}

/// The reports that count: of live replicas that can be served, under their present registrations (R8).
pub(crate) fn heard(
    view: &View<'_>,
    assigned: &[BrokerId],
    reports: &BTreeMap<BrokerId, Report>,
) -> Vec<(BrokerId, Report)> {
    let counted = |b: &BrokerId| {
        let present = view.brokers.get(b).filter(|_| view.can_serve(*b))?.epoch;
        let report = reports.get(b).filter(|r| r.broker_epoch == present)?;
        Some((*b, *report))
    };
    assigned.iter().filter_map(counted).collect()
}

/// The greatest (last epoch, LEO). Ties: an ISR member first, then the order of AR (`max_by_key` keeps the last of equals, hence
/// the reversal).
pub(crate) fn longest(
    state: &PartitionState,
    heard: &[(BrokerId, Report)],
) -> Option<(BrokerId, Report)> {
    let key = |(b, r): &&(BrokerId, Report)| (r.last_epoch, r.log_end, state.in_isr(*b));
    heard.iter().rev().max_by_key(key).copied()
}

/// Reports for the log.
pub(crate) fn shown(heard: &[(BrokerId, Report)]) -> String {
    let one = |(b, r): &(BrokerId, Report)| {
        let epoch = r.last_epoch.map_or_else(|| "none".to_owned(), |e| e.to_string());
        format!("broker {b} (last epoch {epoch}, log end {})", r.log_end)
    };
    heard.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The state with which a move of replicas begins or gets another target (R19, R21): as it was, at the next partition epoch,
/// so that no proposal made for the earlier assignment is taken.
pub(crate) fn start(
    view: &View<'_>,
    before: &Assignment,
    after: &Assignment,
    state: &PartitionState,
) -> Decision {
    let next = successor(view, state, state.leader, false, in_order(&after.replicas, state));
    let limit = after.moving.throttle.map_or_else(String::new, |l| format!(", {l} bytes a second"));
    let why = format!(
        "replicas {} -> {} on the way to {}{limit}",
        listed(&before.replicas),
        listed(&after.replicas),
        listed(&after.target()),
    );
    Decision { text: describe(state, &next, &why), warn: false, state: next }
}

/// The state with which a move of replicas ends, `None` if it is not over (R20): the whole target is in the committed ISR, and
/// one of it can lead. Whenever replicas leave, the leader epoch rises, also if the leader stays: this is what makes it forget
/// the positions of those that left.
pub(crate) fn finish(
    view: &View<'_>,
    assignment: &Assignment,
    state: &PartitionState,
) -> Option<Decision> {
    let target = assignment.target();
    let before = state.leader.filter(|_| assignment.moving.is_under_way())?;
    if !target.iter().all(|b| state.in_isr(*b)) {
        return None;
    }
    let able: Vec<BrokerId> =
        target.iter().copied().filter(|b| view.is_eligible(state, *b)).collect();
    // One that is being emptied leads only if nobody else can (R26a).
    let chosen = able.iter().find(|b| !view.is_draining(**b)).or(able.first());
    let leader = if able.contains(&before) { before } else { *chosen? };
    let leaves = !assignment.moving.removing.is_empty();
    let next = successor(view, state, Some(leader), leaves, in_order(&target, state));
    let why = format!(
        "the move is over: replicas {} -> {}",
        listed(&assignment.replicas),
        listed(&target)
    );
    Some(Decision { text: describe(state, &next, &why), warn: false, state: next })
}

/// The ISR members among these replicas, in their order.
fn in_order(replicas: &[BrokerId], state: &PartitionState) -> Vec<(BrokerId, BrokerEpoch)> {
    replicas.iter().filter_map(|&b| state.isr_epoch_of(b).map(|epoch| (b, epoch))).collect()
}

fn listed(replicas: &[BrokerId]) -> String {
    let ids: Vec<String> = replicas.iter().map(BrokerId::to_string).collect();
    format!("[{}]", ids.join(","))
}

/// The state after `state`: partition epoch + 1, leader epoch + 1 if `reelected`.
pub(crate) fn successor(
    view: &View<'_>,
    state: &PartitionState,
    leader: Option<BrokerId>,
    reelected: bool,
    isr: Vec<(BrokerId, BrokerEpoch)>,
) -> PartitionState {
    let leader_epoch = if reelected { state.leader_epoch.next() } else { state.leader_epoch };
    PartitionState {
        leader,
        leader_epoch,
        partition_epoch: PartitionEpoch(state.partition_epoch.0 + 1),
        controller_epoch: view.controller_epoch,
        isr,
    }
}

/// `old -> new` with epochs, and the cause.
pub(crate) fn describe(old: &PartitionState, new: &PartitionState, why: &str) -> String {
    let leader = |s: &PartitionState| s.leader.map_or(-1, |l| l.0);
    let isr = |s: &PartitionState| listed(&s.isr_ids());
    format!(
        "leader {} -> {}, leader epoch {} -> {}, ISR {} -> {}, partition epoch {} -> {}: {why}",
        leader(old),
        leader(new),
        old.leader_epoch,
        new.leader_epoch,
        isr(old),
        isr(new),
        old.partition_epoch,
        new.partition_epoch,
    )
}

/// Judges a leader's ISR proposal against the stored state (R1, R9, R12, R13, R29).
///
/// A proposal of the committed ISR itself is written too: raising the partition epoch is how a leader withdraws what it
/// proposed before (R9).
///
/// # Errors
/// The condition that refuses it; nothing is written then.
pub(crate) fn judge(
    view: &View<'_>,
    incarnation: Incarnation,
    assigned: &[BrokerId],
    state: &PartitionState,
    proposal: &AlterPartition,
) -> Result<Decision, Condition> {
    judge_sender(view, incarnation, state, proposal)?;
    judge_members(view, assigned, state, proposal)?;
    let mut isr = proposal.isr.clone();
    isr.sort_by_key(|(b, _)| assigned.iter().position(|a| a == b));
    let next = successor(view, state, state.leader, false, isr);
    let why = format!("proposal of leader {}", proposal.leader);
    Ok(Decision { text: describe(state, &next, &why), warn: false, state: next })
}

fn refuse(reason: &'static str) -> Condition {
    Condition::InvalidUpdateVersion { reason }
}

fn judge_sender(
    view: &View<'_>,
    incarnation: Incarnation,
    state: &PartitionState,
    proposal: &AlterPartition,
) -> Result<(), Condition> {
    let (asked, present) = (proposal.leader_epoch, state.leader_epoch);
    if proposal.incarnation != incarnation {
        return Err(Condition::InconsistentTopicId);
    }
    if asked < present {
        return Err(Condition::FencedLeaderEpoch { asked, present });
    }
    if asked > present {
        return Err(Condition::UnknownLeaderEpoch { asked, present });
    }
    if state.leader != Some(proposal.leader) {
        return Err(Condition::NotLeaderOrFollower);
    }
    match view.brokers.get(&proposal.leader) {
        None => return Err(refuse("the proposing broker is not registered")),
        Some(b) if b.epoch != proposal.broker_epoch => {
            return Err(Condition::StaleBrokerEpoch {
                asked: proposal.broker_epoch,
                present: b.epoch,
            });
        }
        Some(_) => {}
    }
    if proposal.partition_epoch != state.partition_epoch {
        return Err(refuse("it builds on another partition epoch than the present one"));
    }
    Ok(())
}

fn judge_members(
    view: &View<'_>,
    assigned: &[BrokerId],
    state: &PartitionState,
    proposal: &AlterPartition,
) -> Result<(), Condition> {
    let isr = &proposal.isr;
    if !isr.iter().any(|m| m.0 == proposal.leader) {
        return Err(refuse("the leader is not in the proposed ISR"));
    }
    for (index, &(broker, epoch)) in isr.iter().enumerate() {
        if isr[..index].iter().any(|m| m.0 == broker) {
            return Err(refuse("a broker is named twice in the proposed ISR"));
        }
        if !assigned.contains(&broker) {
            return Err(refuse("a broker in the proposed ISR is not an assigned replica"));
        }
        if view.brokers.get(&broker).is_none_or(|b| b.epoch != epoch) {
            if !state.in_isr(broker) {
                // It went just now, or is another one: the leader withdraws it at once, and nobody waits for a dead replica until it
                // has been silent for `replica.lag.time.max.ms`.
                return Err(Condition::IneligibleReplica(broker));
            }
            return Err(refuse(
                "a broker in the proposed ISR is not registered under the broker epoch it names",
            ));
        }
        if (view.is_draining(broker) || view.is_suspected(broker)) && !state.in_isr(broker) {
            return Err(Condition::IneligibleReplica(broker));
        }
        if view.failed.contains(&broker) {
            return Err(refuse("a broker in the proposed ISR cannot serve its replica"));
        }
        if state.isr_epoch_of(broker).is_some_and(|entry| entry != epoch) {
            return Err(refuse(
                "an ISR member came back under another broker epoch and is not processed yet",
            ));
        }
    }
    Ok(())
}
