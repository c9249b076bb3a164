//! How the planted bugs are planted: what the shells tell the cores that is not so, alter on its way, or count by themselves.

use barnabas_replica::{Effects, Event, FetchPosition, FollowerFetch, Replica};
use barnabas_types::{BrokerEpoch, BrokerId, LeaderEpoch, Now, Offset};

use crate::mutation::Mutation;
use crate::node::{Node, Proposal, Push, Registration, incarnation};
use crate::protocol::Protocol;
use crate::world::{BROKERS, Ix, World, id_of, ix_of};

/// What becomes of a controller's write on its way to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Twist {
    /// Nothing: it is written as it was decided.
    None,
    /// This member keeps its place, under its new epoch.
    Stays(Ix, u8),
    /// Any live replica but this one leads.
    Outside(Ix),
    /// The leader epoch stays.
    KeepsEpoch,
}

impl Protocol {
    pub(crate) fn observation_twist(&self, b: Ix, registration: Registration) -> Twist {
        match self.breaks(Mutation::RestartedMemberStays) {
            true => Twist::Stays(b, registration.epoch),
            false => Twist::None,
        }
    }

    pub(crate) fn suspicion_twist(&self, suspect: Ix) -> Twist {
        match self.row.mutation {
            Some(Mutation::SuspicionElectsOutsideIsr) => Twist::Outside(suspect),
            Some(Mutation::SuspicionKeepsEpoch) => Twist::KeepsEpoch,
            _ => Twist::None,
        }
    }

    /// A write as it reaches the store.
    pub(crate) fn twisted(&self, w: &World, twist: Twist, decided: Node) -> Node {
        let stored = w.node;
        let next = Node { partition_epoch: decided.partition_epoch, ..stored };
        match twist {
            Twist::None => decided,
            Twist::Stays(b, epoch) if stored.isr[b] != 0 => {
                let mut isr = stored.isr;
                isr[b] = epoch;
                Node { isr, ..next }
            }
            Twist::Stays(..) => decided,
            Twist::Outside(suspect) => {
                let k = w.present_term();
                let live = |b: &Ix| *b != suspect && w.terms[k].seen[*b].is_some();
                let Some(new) = (0..BROKERS).rev().find(live) else { return decided };
                let mut isr = decided.isr;
                isr[suspect] = 0;
                isr[new] = w.terms[k].seen[new].map_or(0, |r| r.epoch);
                let leader_epoch = stored.leader_epoch + 1;
                Node { leader: Some(new as u8), leader_epoch, isr, ..decided }
            }
            Twist::KeepsEpoch => Node { leader_epoch: stored.leader_epoch, ..decided },
        }
    }

    /// A registration as a term is told of it.
    pub(crate) fn misread_registration(
        &self,
        w: &World,
        k: usize,
        b: Ix,
        registration: Registration,
    ) -> Registration {
        let Registration { epoch, tail_lost, .. } = registration;
        let others = w.node.members() & !(1 << b);
        let brokers = &w.terms[k].controller.image().brokers;
        let confirmed = |m: &Ix| {
            let known = brokers.get(&id_of(*m)).map(|r| r.epoch);
            others & (1 << m) != 0 && known == Some(BrokerEpoch(i64::from(w.node.isr[*m])))
        };
        let told = match self.row.mutation {
            Some(Mutation::TailLossUnreported) => false,
            Some(Mutation::LostTailStaysIfNoOtherLives) => (0..BROKERS).any(|m| confirmed(&m)),
            Some(Mutation::LastMemberWithLostTailLeads) => others != 0,
            _ => true,
        };
        let draining = self.misread_draining(w, k, b, registration);
        Registration { epoch, tail_lost: tail_lost && told, draining }
    }

    /// The state node as a new term reads it.
    pub(crate) fn loaded_node(&self, w: &World) -> Node {
        let mut node = w.node;
        let forgets = matches!(
            self.row.mutation,
            Some(
                Mutation::NoIsrBrokerEpochs
                    | Mutation::NoIsrBrokerEpochsButControllerEpochRead
                    | Mutation::NoIsrBrokerEpochsButLedEpochsKept
            )
        );
        if forgets {
            for b in 0..BROKERS {
                if let Some(registration) = w.registered[b].filter(|_| node.isr[b] != 0) {
                    node.isr[b] = registration.epoch;
                }
            }
        }
        node
    }

    /// The member epochs of a proposal as a term reads them.
    pub(crate) fn claimed_epochs(&self, w: &World, k: usize, proposal: Proposal) -> [u8; BROKERS] {
        let mut isr = proposal.isr;
        if self.breaks(Mutation::NoMemberEpochCheck) {
            let brokers = &w.terms[k].controller.image().brokers;
            for (b, entry) in isr.iter_mut().enumerate().filter(|(_, entry)| **entry != 0) {
                *entry = brokers.get(&id_of(b)).map_or(*entry, |r| r.epoch.0 as u8);
            }
        }
        isr
    }

    /// What the controller takes for `min.insync.replicas`.
    pub(crate) fn min_insync_of_controller(&self) -> u32 {
        let ignored = [Mutation::DrainWithoutWait, Mutation::MoveBelowMinInsync];
        let ignored = self.row.mutation.is_some_and(|m| ignored.contains(&m));
        if ignored { 1 } else { u32::from(self.row.min_insync) }
    }

    pub(crate) fn elects_uncleanly(&self) -> bool {
        let elects = [Mutation::UncleanThoughForbidden, Mutation::LongestLiveLogLeads];
        self.row.mutation.is_some_and(|m| elects.contains(&m))
    }

    pub(crate) fn min_insync_told(&self) -> u32 {
        let ignored = [Mutation::NoGateOnHighWatermark, Mutation::MinInsyncOnlyBeforeAppend];
        let ignored = self.row.mutation.is_some_and(|m| ignored.contains(&m));
        if ignored { 1 } else { u32::from(self.row.min_insync) }
    }

    /// Whether the shell keeps an acknowledgement back, which the core would not have given.
    pub(crate) fn withholds_ack(&self, w: &World, b: Ix) -> bool {
        let isr = w.brokers[b].replica.as_ref().map_or(0, |r| r.isr().len());
        self.breaks(Mutation::NoGateOnHighWatermark) && isr < usize::from(self.row.min_insync)
    }

    /// A fetch as a leader with a planted bug takes it.
    pub(crate) fn misread_fetch(
        &self,
        w: &mut World,
        leader: Ix,
        follower: Ix,
        asked: FetchPosition,
    ) -> FetchPosition {
        let mut position = asked;
        let Some(replica) = &w.brokers[leader].replica else { return position };
        let fits = |replica: &Replica, end: Offset| {
            let end = end.min(replica.log_end());
            let last = Offset(end.0 - 1);
            FetchPosition { log_end: end, last_epoch: replica.epochs().epoch_at(last), ..asked }
        };
        match self.row.mutation {
            Some(Mutation::FollowersReportLogEnd) => position.flushed = position.log_end,
            Some(Mutation::DeadFetchCounts) => {
                position.broker_epoch = BrokerEpoch(i64::from(w.brokers[follower].epoch));
            }
            Some(Mutation::FetchOfAnyLife) => {
                position.incarnation = replica.incarnation().unwrap_or(asked.incarnation);
            }
            Some(Mutation::JoinWithoutLogStart) => {
                let (start, outside) =
                    (replica.log_start(), !replica.maximal_isr().contains(&id_of(follower)));
                if outside && asked.log_start < start {
                    let lie = FetchPosition { log_start: start, ..asked };
                    self.step_fetch(w, leader, follower, lie);
                }
            }
            Some(Mutation::NoTruncation) => position = fits(replica, asked.log_end),
            Some(Mutation::DivergingPositionCounts) => {
                let lie = fits(replica, asked.log_end);
                self.step_fetch(w, leader, follower, lie);
            }
            Some(Mutation::JoinAtHighWatermarkOnly | Mutation::JoinAtEpochStartOnly) => {
                let start = replica.leader_epoch().and_then(|e| replica.epochs().start_of(e));
                let (start, mark) = (start.unwrap_or_default(), replica.high_watermark());
                let (enough, ignored) = match self.breaks(Mutation::JoinAtHighWatermarkOnly) {
                    true => (mark, start),
                    false => (start, mark),
                };
                if asked.log_end >= enough && asked.log_end < ignored {
                    let lie = fits(replica, ignored);
                    self.step_fetch(w, leader, follower, lie);
                }
            }
            _ => {}
        }
        position
    }

    fn step_fetch(&self, w: &mut World, leader: Ix, follower: Ix, position: FetchPosition) {
        let fetch = FollowerFetch { follower: id_of(follower), position, heard: 0 };
        self.step_replica(w, leader, Event::FollowerFetch(fetch));
    }

    /// Whether a broker looks at a push at all.
    pub(crate) fn admits_push(&self, w: &World, push: Push) -> bool {
        let broker = &w.brokers[usize::from(push.to)];
        let reads = self.breaks(Mutation::NoIsrBrokerEpochsButControllerEpochRead);
        let too_old = reads && push.controller_epoch < broker.heard;
        let leads = push.node.leader == Some(push.to);
        let led = leads
            && self.breaks(Mutation::NoIsrBrokerEpochsButLedEpochsKept)
            && broker.planted.led >= Some(push.node.leader_epoch)
            && broker.leads() != Some(i32::from(push.node.leader_epoch));
        !too_old && !led
    }

    /// What a broker with a planted bug does before it takes a push.
    pub(crate) fn before_push(&self, w: &mut World, push: Push) {
        let b = usize::from(push.to);
        let Some(replica) = &w.brokers[b].replica else { return };
        let leader_epoch = LeaderEpoch(i32::from(push.node.leader_epoch));
        match self.row.mutation {
            Some(Mutation::NoIsrBrokerEpochsButLedEpochsKept)
                if push.node.leader == Some(push.to) =>
            {
                w.brokers[b].edit().planted.led = Some(push.node.leader_epoch);
            }
            Some(Mutation::TruncateToHighWatermark) => {
                let follows = push.node.leader.is_some_and(|leader| leader != push.to);
                if follows && replica.leader_epoch().is_none_or(|known| known < leader_epoch) {
                    let end = replica.high_watermark();
                    let directory = &mut w.brokers[b].edit().directory;
                    directory.truncate(end);
                    directory.high_watermark = end;
                    self.open(w, b);
                }
            }
            Some(Mutation::OldPushesObeyed) => {
                let older = replica.partition_epoch().is_some_and(|known| {
                    i32::from(push.node.partition_epoch) < known.0
                        || Some(leader_epoch) < replica.leader_epoch()
                });
                if older {
                    let high_watermark = replica.high_watermark();
                    w.brokers[b].edit().directory.high_watermark = high_watermark;
                    self.open(w, b);
                }
            }
            _ => {}
        }
    }

    /// What a broker with a planted bug counts by itself.
    pub(crate) fn lie(&self, w: &mut World) {
        for b in 0..BROKERS {
            match self.row.mutation {
                Some(Mutation::LeaderCountsUnflushed) if w.brokers[b].leads().is_some() => {
                    let to = w.brokers[b].directory.log_end();
                    let counted = w.brokers[b].replica.as_ref().map(Replica::flushed);
                    if counted.is_some_and(|counted| counted < to) {
                        self.step_replica(w, b, Event::Flushed { to });
                    }
                }
                Some(Mutation::WaitersOutliveEpoch) => outlive(w, b),
                Some(
                    Mutation::HighWatermarkOverCommittedIsr
                    | Mutation::RefusalForgetsProposal
                    | Mutation::ShrinkAtOnce,
                ) => self.count_without(w, b),
                _ => {}
            }
        }
    }

    /// Acknowledges and shows what a leader would that does not count all whom it must.
    fn count_without(&self, w: &mut World, b: Ix) {
        let broker = &w.brokers[b];
        let Some(replica) = broker.replica.as_ref().filter(|_| broker.leads().is_some()) else {
            return;
        };
        let committed: Vec<BrokerId> = replica.isr().iter().map(|(id, _)| *id).collect();
        let proposed = || {
            let all = replica.maximal_isr().into_iter();
            all.filter(|m| !committed.contains(m)).collect::<Vec<_>>()
        };
        let refused = broker.planted.refused_at == replica.partition_epoch().map(|e| e.0);
        let uncounted = match self.row.mutation {
            Some(Mutation::HighWatermarkOverCommittedIsr) => proposed(),
            Some(Mutation::RefusalForgetsProposal) if refused => proposed(),
            Some(Mutation::ShrinkAtOnce) => {
                let Some(waiting) = broker.waiting else { return };
                let dropped = |m: &BrokerId| waiting.isr[ix_of(*m)] == 0;
                committed.into_iter().filter(dropped).collect()
            }
            _ => return,
        };
        let mut copy = replica.clone();
        let mut effects = Effects::default();
        for follower in uncounted {
            let position = FetchPosition {
                incarnation: copy.incarnation().unwrap_or(incarnation(0)),
                broker_epoch: BrokerEpoch(i64::MAX),
                leader_epoch: copy.leader_epoch().unwrap_or_default(),
                last_epoch: broker.directory.last_epoch(),
                log_end: copy.log_end(),
                flushed: copy.log_end(),
                log_start: copy.log_start(),
            };
            let fetch = FollowerFetch { follower, position, heard: 0 };
            copy.step(Now(broker.clock), Event::FollowerFetch(fetch), &mut effects);
        }
        let shown = self.shown(&copy);
        for (waiter, answer) in effects.answers {
            w.history.acked |= if answer.is_ok() { 1 << (waiter.0 - 1) } else { 0 };
        }
        if let Some((end, epoch)) = shown {
            self.note_visible(w, b, end, epoch);
        }
    }
}

/// Producers whose epoch is over are answered once the high watermark passes their record's offset.
fn outlive(w: &mut World, b: Ix) {
    let broker = &w.brokers[b];
    let (waiting, end) = (broker.planted.outlived, broker.high_watermark());
    for n in 0..w.history.produced {
        let at = usize::from(w.history.records[usize::from(n)].1);
        if broker.up() && waiting & (1 << n) != 0 && end > at {
            w.history.acked |= 1 << n;
        }
    }
}
