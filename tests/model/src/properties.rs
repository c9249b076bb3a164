//! The invariants of a world, one pure function each.

use barnabas_types::{BrokerEpoch, BrokerId, invariants};

use crate::broker::{Broker, Stopping};
use crate::protocol::Protocol;
use crate::world::{BROKERS, History, RECORDS_MAX, World, id_of, ix_of};

/// A property: its name, and whether it holds.
pub type Invariant = (&'static str, fn(&Protocol, &World) -> bool);

/// All of them.
pub const ALL: [Invariant; 18] = [
    ("assertions of the cores", |_, w| !w.broken),
    ("I6 acked stays", i6_acked_stays),
    ("I1 one leader", i1_one_leader),
    ("LM (epoch, offset) names one record", log_matching),
    ("I5 agreement below the HWs", i5_agreement),
    ("I4 HW monotone", i4_hw_monotone),
    ("V visible stays", visible_stays),
    ("I7 committed ISR within the maximal one", i7_maximal_isr),
    ("CS counted stays", counted_stays),
    ("I8 ISR within the assignment", i8_members),
    ("I3 offsets in order", i3_offsets),
    ("E ISR members have a directory", e_members_have_directories),
    ("F moves end with the whole target in the ISR", |_, w| !w.history.ended_early),
    ("T nobody acts with another life's bytes", t_own_bytes),
    ("D whoever may stop is in no ISR", d_stopped_is_out),
    ("AV a leader and enough members at any time", av_available),
    ("DR deleted stays deleted", dr_deleted_stays),
    ("I12 heals", i12_heals),
];

fn leaders(w: &World) -> impl Iterator<Item = (&Broker, i32)> {
    w.brokers.iter().filter_map(|b| b.leads().map(|epoch| (&**b, epoch)))
}

/// The leaders of the topic's present life.
fn present_leaders(w: &World) -> impl Iterator<Item = (&Broker, i32)> {
    leaders(w).filter(|(b, _)| b.life() == w.node.life)
}

/// Brokers with directories of the same life.
fn pairs(w: &World) -> impl Iterator<Item = (&Broker, &Broker)> {
    let all = (0..BROKERS).flat_map(|a| (0..a).map(move |b| (a, b)));
    let both = all.map(|(a, b)| (&*w.brokers[a], &*w.brokers[b]));
    both.filter(|(a, b)| a.life() == b.life())
}

/// Whether records may be lost lawfully: nothing is promised of those that stay then.
fn unpromised(p: &Protocol, w: &World) -> bool {
    w.history.lossy || p.row.switches > 0
}

/// An acknowledged record is in every leader's log of that or a later epoch.
fn i6_acked_stays(p: &Protocol, w: &World) -> bool {
    let History { lossy, promised_from, sync_promised, .. } = w.history;
    if (lossy && promised_from == 0) || (p.row.switches > 0 && !sync_promised) {
        return true;
    }
    !is_lost(w)
}

/// Whether a leader of the record's or a later epoch lacks an acknowledged record, also after an unclean election.
#[must_use]
pub fn is_lost(w: &World) -> bool {
    let acked = (0..w.history.produced).filter(|n| w.history.acked & (1 << n) != 0);
    let present = |n: &u8| w.history.lives[usize::from(*n)] == w.node.life;
    acked.into_iter().filter(present).any(|n| {
        let (epoch, at) = w.history.records[usize::from(n)];
        let promised = epoch >= w.history.promised_from && at >= w.history.deletable;
        let lacks = |b: &Broker| b.record(usize::from(at)) != u64::from(n) + 1;
        promised && present_leaders(w).any(|(b, led)| led >= i32::from(epoch) && lacks(b))
    })
}

fn i1_one_leader(_: &Protocol, w: &World) -> bool {
    pairs(w).all(|(a, b)| a.leads().is_none() || a.leads() != b.leads())
}

fn log_matching(_: &Protocol, w: &World) -> bool {
    pairs(w).all(|(a, b)| {
        let both = a.directory.records.iter().zip(&b.directory.records);
        both.into_iter().all(|(x, y)| x.epoch != y.epoch || x.agrees(y))
    })
}

fn i5_agreement(p: &Protocol, w: &World) -> bool {
    unpromised(p, w)
        || pairs(w).all(|(a, b)| {
            let end = a.high_watermark().min(b.high_watermark());
            (usize::from(w.history.deletable)..end).all(|at| a.record(at) == b.record(at))
        })
}

/// What consumers see, with KIP-320: a leader of the epoch last seen, or of a later one, shows no less.
fn i4_hw_monotone(p: &Protocol, w: &World) -> bool {
    let (end, epoch) = w.history.seen;
    let shown = |b: &Broker| b.replica.as_ref().and_then(|r| p.shown(r));
    let present = w.brokers.iter().filter(|b| b.life() == w.node.life);
    unpromised(p, w)
        || present.filter_map(|b| shown(b)).all(|(e, led)| led < epoch || e >= usize::from(end))
}

fn visible_stays(p: &Protocol, w: &World) -> bool {
    let (end, epoch) = w.history.seen;
    unpromised(p, w)
        || present_leaders(w).all(|(b, led)| {
            let own = b.high_watermark();
            let end = usize::from(end);
            let end = if led >= i32::from(epoch) { end } else { end.min(own) };
            let promised = usize::from(w.history.deletable)..end.min(RECORDS_MAX);
            promised.into_iter().all(|at| b.record(at) == u64::from(w.history.visible[at]))
        })
}

fn i7_maximal_isr(_: &Protocol, w: &World) -> bool {
    let epoch = i32::from(w.node.leader_epoch);
    let leading = present_leaders(w).filter(|(_, led)| *led == epoch);
    leading.filter_map(|(b, _)| b.replica.as_ref()).all(|replica| {
        let maximal = replica.maximal_isr();
        (0..BROKERS).all(|b| w.node.isr[b] == 0 || maximal.contains(&id_of(b)))
    })
}

/// A counted member of the ISR that follows in its leader's epoch has everything below the leader's HW (R10, R15, R31). Who
/// has come back since under another broker epoch is not counted for what it had.
fn counted_stays(_: &Protocol, w: &World) -> bool {
    leaders(w).all(|(leader, led)| {
        let Some(replica) = &leader.replica else { return true };
        let has_all = |(id, entry): &(BrokerId, BrokerEpoch)| {
            let member = &w.brokers[ix_of(*id)];
            let same = i64::from(member.epoch) == entry.0 && member.life() == leader.life();
            !same || !member.follows_in(led) || member.log_end() >= leader.high_watermark()
        };
        replica.isr().iter().all(has_all)
    })
}

fn i8_members(_: &Protocol, w: &World) -> bool {
    !w.exists() || invariants::i8_isr_within_assignment(&w.node.partition())
}

/// Also on the disk: nobody begins a log above what is committed.
fn i3_offsets(_: &Protocol, w: &World) -> bool {
    let open = w.brokers.iter().filter(|b| !b.is_fenced());
    open.filter_map(|b| b.replica.as_ref().map(|r| (b, r))).all(|(b, r)| {
        let (start, end) = (b.directory.log_start.max(r.log_start()), r.log_end());
        invariants::i3_offsets_in_order(start, r.high_watermark(), end, r.flushed())
            && end == b.directory.log_end()
    })
}

/// Where nobody deletes topics: a member of the ISR has what it is counted for.
fn e_members_have_directories(p: &Protocol, w: &World) -> bool {
    let member = |b: &usize| w.node.isr[*b] != 0;
    p.row.lives > 0 || (0..BROKERS).filter(member).all(|b| w.brokers[b].life() == w.node.life)
}

fn t_own_bytes(_: &Protocol, w: &World) -> bool {
    w.brokers.iter().all(|broker| {
        let own = |life: u8| {
            let mut records = broker.directory.records.iter().filter(|r| !r.is_hole());
            records.all(|r| r.topic_czxid == i64::from(life))
        };
        broker.acts_in().is_none_or(own)
    })
}

fn d_stopped_is_out(_: &Protocol, w: &World) -> bool {
    let granted = (0..BROKERS).filter(|b| w.brokers[*b].stopping == Stopping::Granted);
    granted.into_iter().all(|b| w.node.isr[b] == 0 && w.node.leader != Some(b as u8))
}

/// Where shutdowns are all that happens: there is a live leader, and min.insync.replicas live members, at every moment.
fn av_available(p: &Protocol, w: &World) -> bool {
    let live = |b: &usize| w.node.isr[*b] != 0 && w.brokers[*b].up();
    let enough = (0..BROKERS).filter(live).count() >= usize::from(p.row.min_insync);
    !p.row.available || (enough && w.node.leader.is_some_and(|l| w.brokers[usize::from(l)].up()))
}

fn dr_deleted_stays(_: &Protocol, w: &World) -> bool {
    let present = present_leaders(w).filter(|(_, led)| *led == i32::from(w.node.leader_epoch));
    let start = |b: &Broker| b.replica.as_ref().map_or(0, |r| r.log_start().0);
    present.into_iter().all(|(b, _)| start(b) >= i64::from(w.history.deleted))
}

/// Of every Nth world, by fingerprint: without further faults it comes to rest with a leader, a full ISR and equal logs.
fn i12_heals(p: &Protocol, w: &World) -> bool {
    let every = u64::from(p.row.heal);
    every == 0 || !w.fingerprint().is_multiple_of(every) || p.heals(w)
}
