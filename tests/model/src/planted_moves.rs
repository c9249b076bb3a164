//! Planted bugs of moves, reports and proposals: what a controller's shell writes, tells or believes that is not so.

use barnabas_controller_core::ReplicaReport;
use barnabas_types::{LeaderEpoch, Offset};

use crate::mutation::Mutation;
use crate::node::{Assigned, Mask, Node, Proposal, brokers_in, incarnation};
use crate::planted::Twist;
use crate::protocol::Protocol;
use crate::world::{BROKERS, Ix, World};

impl Protocol {
    /// A write of the assignment as it reaches the store.
    pub(crate) fn misassigned(&self, w: &mut World, term: u8, decided: Node) -> Node {
        let (before, mut node) = (w.node, decided);
        let ends = before.assigned.moves() && !node.assigned.moves();
        match self.row.mutation {
            Some(Mutation::FinishEarly) if node.assigned.moves() && node.leader.is_some() => {
                let target = node.assigned.target();
                let some = target & node.members();
                if some != 0 {
                    node.assigned = Assigned::of(&node.assigned.assignment().arrived());
                    keep_only(&mut node, some);
                    node.leader_epoch = before.leader_epoch + 1;
                }
            }
            Some(Mutation::LeaversLeaveAtOnce) if !before.assigned.moves() => {
                let leavers = node.assigned.removing;
                leave(&before, &mut node, leavers);
            }
            Some(Mutation::FinishKeepsEpoch) if ends && node.leader == before.leader => {
                node.leader_epoch = before.leader_epoch;
            }
            Some(Mutation::NewcomerDroppedAtOnce | Mutation::NewcomerOutsideIsrDropped) => {
                let unwanted = node.assigned.adding & node.assigned.removing;
                let spares = self.breaks(Mutation::NewcomerOutsideIsrDropped);
                let spared = if spares { node.members() } else { 0 };
                leave(&before, &mut node, unwanted & !spared);
            }
            Some(Mutation::MoveEndsInTwoWrites) if ends => {
                node.assigned = before.assigned;
                w.terms[usize::from(term)].edit().planted.split = true;
            }
            Some(Mutation::AssignmentKeepsVersion) => {
                let same = node.leader == before.leader && node.members() == before.members();
                if same && node.assigned != before.assigned {
                    node.leader_epoch = before.leader_epoch;
                    node.partition_epoch = before.partition_epoch;
                }
            }
            _ => {}
        }
        node
    }

    /// The assignment that a term takes for stored, because it has yet to write how the move ended: version of the topic's
    /// node, and all replicas of both ends.
    pub(crate) fn moves_hidden_from(&self, w: &World, term: u8) -> Option<(i32, Assigned)> {
        let split = w.terms[usize::from(term)].planted.split;
        split.then(|| (i32::from(w.topic_version), Assigned::settled(w.node.assigned.mask())))
    }

    /// The second write of a move's end.
    pub(crate) fn end_move(&self, w: &mut World) -> Option<()> {
        let k = w.present_term();
        if !std::mem::take(&mut w.terms[k].edit().planted.split) {
            return None;
        }
        let assigned = Assigned::of(&w.node.assigned.assignment().arrived());
        let partition_epoch = w.node.partition_epoch + 1;
        let next = Node { assigned, partition_epoch, ..w.node };
        self.note_move(w, next);
        w.node = next;
        w.topic_version += 1;
        self.reload(w, k)
    }

    /// What a term with a planted bug does with a proposal; `None`: what every other does.
    pub(crate) fn misjudge(
        &self,
        w: &mut World,
        k: usize,
        proposal: Proposal,
    ) -> Option<Option<()>> {
        let node = w.node;
        match self.row.mutation? {
            Mutation::AssignmentKeepsVersion => {
                let outside = (0..BROKERS).any(|b| proposal.isr[b] != 0 && !node.assigned.has(b));
                let builds = proposal.partition_epoch == node.partition_epoch
                    && proposal.leader_epoch == node.leader_epoch
                    && Some(proposal.leader) == node.leader;
                if !outside || !builds || usize::from(w.controller_epoch) != k + 1 {
                    return None;
                }
                let partition_epoch = node.partition_epoch + 1;
                w.node = Node { isr: proposal.isr, partition_epoch, ..node };
                Some(self.reload(w, k))
            }
            Mutation::DrainingAdmitted => {
                for b in 0..BROKERS {
                    let seen = w.terms[k].seen[b].filter(|seen| seen.draining);
                    if let Some(seen) = seen.filter(|_| proposal.isr[b] != 0 && node.isr[b] == 0) {
                        let quiet = crate::node::Registration { draining: false, ..seen };
                        self.tell(w, k, b, Some(quiet), Twist::None)?;
                    }
                }
                None
            }
            _ => None,
        }
    }

    /// The life of which a term takes a proposal to speak.
    pub(crate) fn claimed_life(&self, w: &World, k: usize, proposal: Proposal) -> u8 {
        let topics = &w.terms[k].controller.image().topics;
        let present = topics.get(&crate::world::partition().topic).map(|t| t.incarnation.czxid);
        match present.filter(|_| self.breaks(Mutation::ProposalOfAnyLife)) {
            Some(czxid) => czxid as u8,
            None => proposal.life,
        }
    }

    /// What a broker with a planted bug reports of its log although it has not accepted the present leaderless state.
    pub(crate) fn misreport(&self, w: &World, b: Ix) -> Option<ReplicaReport> {
        let broker = &w.brokers[b];
        let (last, end) = match self.row.mutation? {
            Mutation::ReportOfAnyEpoch => broker.planted.reported?,
            Mutation::ReportUnfenced => {
                let last = broker.directory.last_epoch().map_or(0, |e| e.0 as u8 + 1);
                (last, broker.log_end() as u8)
            }
            _ => return None,
        };
        Some(ReplicaReport {
            incarnation: incarnation(w.node.life),
            leader_epoch: LeaderEpoch(i32::from(w.node.leader_epoch)),
            last_epoch: (last > 0).then(|| LeaderEpoch(i32::from(last) - 1)),
            log_end: Offset(i64::from(end)),
        })
    }

    /// A term with a planted bug asks the target of a move only (against R24). `true`: it has elected.
    pub(crate) fn misrecover(&self, w: &mut World, k: usize, b: Ix, report: ReplicaReport) -> bool {
        let node = w.node;
        let elected = usize::from(w.controller_epoch) == k + 1;
        if !self.breaks(Mutation::RecoveryOverTarget) || node.leader.is_some() || !elected {
            return false;
        }
        let last = report.last_epoch.map_or(0, |e| e.0 as u8 + 1);
        let said = (report.leader_epoch.0 as u8, last, report.log_end.0 as u8);
        w.terms[k].edit().planted.reports[b] = Some(said);
        let term = &w.terms[k];
        let heard = |b: Ix| {
            let (epoch, last, end) = term.planted.reports[b]?;
            let registered = term.seen[b].filter(|r| r.epoch == w.brokers[b].epoch)?;
            (epoch == node.leader_epoch).then_some((last, end, b, registered.epoch))
        };
        let all: Option<Vec<_>> = brokers_in(node.assigned.target()).map(heard).collect();
        let best = all.and_then(|all| all.into_iter().max_by_key(|(last, end, ..)| (*last, *end)));
        let Some((.., leader, epoch)) = best else { return false };
        let mut isr = [0; BROKERS];
        isr[leader] = epoch;
        w.node = Node {
            leader: Some(leader as u8),
            leader_epoch: node.leader_epoch + 1,
            partition_epoch: node.partition_epoch + 1,
            isr,
            ..node
        };
        self.reload(w, k).is_some()
    }
}

/// The ISR keeps these members only; one of them leads.
fn keep_only(node: &mut Node, members: Mask) {
    for b in 0..BROKERS {
        if members & (1 << b) == 0 {
            node.isr[b] = 0;
        }
    }
    let leads = |l: &u8| members & (1 << l) != 0;
    node.leader = node.leader.filter(leads).or(Some(members.trailing_zeros() as u8));
}

/// These leave the assignment and the ISR at once, unless nobody would be left there.
fn leave(before: &Node, node: &mut Node, leavers: Mask) {
    let rest = node.members() & !leavers;
    if leavers == 0 || rest == 0 {
        return;
    }
    let mut assignment = node.assigned.assignment();
    let dropped: Vec<_> = brokers_in(leavers).map(crate::world::id_of).collect();
    assignment.replicas.retain(|b| !dropped.contains(b));
    assignment.moving.adding.retain(|b| !dropped.contains(b));
    assignment.moving.removing.retain(|b| !dropped.contains(b));
    node.assigned = Assigned::of(&assignment);
    if node.leader.is_some() {
        keep_only(node, rest);
    } else {
        for b in brokers_in(leavers) {
            node.isr[b] = 0;
        }
    }
    node.leader_epoch = before.leader_epoch + 1;
}
