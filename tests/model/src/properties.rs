//! The invariants of a world, one pure function each, and what explorations should come across.

use barnabas_replica::Replica;
use barnabas_types::{LeaderEpoch, invariants};

use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::world::{BROKERS, Broker, RECORDS_MAX, World, id_of};

/// A property: its name, and whether it holds.
pub type Invariant = (&'static str, fn(&Protocol, &World) -> bool);

/// All of them.
pub const ALL: [Invariant; 11] = [
    ("assertions of the cores", |_, w| !w.broken),
    ("I6 acked stays", i6_acked_stays),
    ("I1 one leader", i1_one_leader),
    ("LM (epoch, offset) names one record", log_matching),
    ("I5 agreement below the HWs", i5_agreement),
    ("I4 HW monotone", i4_hw_monotone),
    ("V visible stays", visible_stays),
    ("I7 committed ISR within the maximal one", i7_maximal_isr),
    ("I8 ISR within the assignment", i8_members),
    ("I3 offsets in order", i3_offsets),
    ("I12 heals", i12_heals),
];

fn leaders(w: &World) -> impl Iterator<Item = (&Broker, i32)> {
    w.brokers.iter().filter_map(|b| b.leads().map(|epoch| (&**b, epoch)))
}

fn pairs(w: &World) -> impl Iterator<Item = (&Broker, &Broker)> {
    let all = (0..BROKERS).flat_map(|a| (0..a).map(move |b| (a, b)));
    all.map(|(a, b)| (&*w.brokers[a], &*w.brokers[b]))
}

/// An acknowledged record is in every leader's log of that or a later epoch.
fn i6_acked_stays(_: &Protocol, w: &World) -> bool {
    if w.history.lossy {
        return true;
    }
    !is_lost(w)
}

/// Whether a leader of the record's or a later epoch lacks an acknowledged record, also after an unclean election.
#[must_use]
pub fn is_lost(w: &World) -> bool {
    let acked = (0..w.history.produced).filter(|n| w.history.acked & (1 << n) != 0);
    acked.into_iter().any(|n| {
        let (epoch, at) = w.history.records[usize::from(n)];
        let lacks = |b: &Broker| b.record(usize::from(at)) != u64::from(n) + 1;
        leaders(w).any(|(b, led)| led >= i32::from(epoch) && lacks(b))
    })
}

fn i1_one_leader(_: &Protocol, w: &World) -> bool {
    pairs(w).all(|(a, b)| a.leads().is_none() || a.leads() != b.leads())
}

fn log_matching(_: &Protocol, w: &World) -> bool {
    pairs(w).all(|(a, b)| {
        let both = a.directory.records.iter().zip(&b.directory.records);
        both.into_iter().all(|(x, y)| x.epoch != y.epoch || x.value == y.value)
    })
}

fn i5_agreement(_: &Protocol, w: &World) -> bool {
    w.history.lossy
        || pairs(w).all(|(a, b)| {
            let end = a.high_watermark().min(b.high_watermark());
            (0..end).all(|at| a.record(at) == b.record(at))
        })
}

/// What consumers see, with KIP-320: a leader of the epoch last seen, or of a later one, shows no less.
fn i4_hw_monotone(p: &Protocol, w: &World) -> bool {
    let (end, epoch) = w.history.seen;
    let shown = |b: &Broker| b.replica.as_ref().and_then(|r| p.shown(r));
    w.history.lossy
        || w.brokers
            .iter()
            .filter_map(|b| shown(b))
            .all(|(e, led)| led < epoch || e >= usize::from(end))
}

fn visible_stays(_: &Protocol, w: &World) -> bool {
    let (end, epoch) = w.history.seen;
    w.history.lossy
        || leaders(w).all(|(b, led)| {
            let own = b.high_watermark();
            let end = usize::from(end);
            let end = if led >= i32::from(epoch) { end } else { end.min(own) };
            (0..end.min(RECORDS_MAX)).all(|at| b.record(at) == u64::from(w.history.visible[at]))
        })
}

fn i7_maximal_isr(_: &Protocol, w: &World) -> bool {
    let epoch = LeaderEpoch(i32::from(w.node.leader_epoch));
    let of_epoch = |r: &&Replica| r.leader_epoch() == Some(epoch);
    let leading = w.brokers.iter().filter(|b| b.leads().is_some());
    leading.filter_map(|b| b.replica.as_ref()).filter(of_epoch).all(|replica| {
        let maximal = replica.maximal_isr();
        (0..BROKERS).all(|b| w.node.isr[b] == 0 || maximal.contains(&id_of(b)))
    })
}

fn i8_members(_: &Protocol, w: &World) -> bool {
    invariants::i8_isr_within_assignment(&w.node.partition())
}

fn i3_offsets(_: &Protocol, w: &World) -> bool {
    w.brokers.iter().filter_map(|b| b.replica.as_ref().map(|r| (b, r))).all(|(b, r)| {
        let (start, end) = (r.log_start(), r.log_end());
        invariants::i3_offsets_in_order(start, r.high_watermark(), end, r.flushed())
            && end == b.directory.log_end()
    })
}

/// Of every Nth world, by fingerprint: without further faults it comes to rest with a leader, a full ISR and equal logs.
fn i12_heals(p: &Protocol, w: &World) -> bool {
    let every = u64::from(p.row.heal);
    every == 0 || !w.fingerprint().is_multiple_of(every) || p.heals(w)
}

impl Protocol {
    /// Notes what is to be seen in a world.
    pub fn look(&self, w: &World) {
        let epoch_of = |n: u8| w.history.records[usize::from(n)].0;
        let acked = |n: &u8| w.history.acked & (1 << n) != 0;
        if (0..w.history.produced).filter(acked).any(|n| epoch_of(n) > 0) {
            self.reach(Reached::AckedAfterFailover);
        }
        if leaders(w).count() > 1 {
            self.reach(Reached::TwoLeaders);
        }
        let differ = |a: &Broker, b: &Broker| {
            let both = a.directory.records.iter().zip(&b.directory.records);
            both.into_iter().any(|(x, y)| x.value != y.value)
        };
        if pairs(w).any(|(a, b)| differ(a, b)) {
            self.reach(Reached::Diverged);
        }
        if w.node.leader.is_none() {
            self.reach(Reached::Leaderless);
        }
        let all = w.history.acked.count_ones() == u32::from(self.row.records);
        let known = |b: &Broker| b.high_watermark() == usize::from(self.row.records);
        if all && w.node.leader_epoch > 0 && w.brokers.iter().all(|b| known(b)) {
            self.reach(Reached::AllAckedEverywhere);
        }
        if w.node.controller_epoch == 2 && leaders(w).any(|(b, _)| b.heard == 2) {
            self.reach(Reached::SecondTermLeads);
        }
        if w.terms.iter().any(|t| t.over) {
            self.reach(Reached::Resigned);
        }
    }
}
