//! The replicas' shell: steps a core and performs its effects in their order; produce, flush, lag, proposals.

use barnabas_replica::{
    Effects, Event, FetchReply, Produce, ProposalOutcome, ReplicaOptions, WaiterId,
};
use barnabas_simulator::disk::Record;
use barnabas_types::{BrokerEpoch, Condition, LeaderEpoch, Now, Offset, PartitionState};

use crate::log_start::DELETION;
use crate::mutation::Mutation;
use crate::node::{Proposal, small};
use crate::protocol::Protocol;
use crate::world::{Ix, World};

/// Lag time of the replicas; [`crate::action::Action::Lag`] lets more than this pass.
const LAG_MS: u64 = 400;
/// Ticks of half a lag time that make up a lag; longer ones would look like a stall of the leader itself (B7).
const LAG_TICKS: u32 = 3;

/// Options of every replica.
pub(crate) const OPTIONS: ReplicaOptions = ReplicaOptions { lag_time_max_ms: LAG_MS };

impl Protocol {
    /// Steps a replica that gets no records with the event.
    pub(crate) fn step_replica(&self, w: &mut World, b: Ix, event: Event) -> Option<FetchReply> {
        self.step_with(w, b, event, &[])
    }

    /// Steps a replica and performs its effects in their order; completions are stepped on the way.
    pub(crate) fn step_with(
        &self,
        w: &mut World,
        b: Ix,
        event: Event,
        records: &[Record],
    ) -> Option<FetchReply> {
        let broker = w.brokers[b].edit();
        let now = Now(broker.clock);
        let mut effects = Effects::default();
        broker.replica.as_mut()?.step(now, event, &mut effects);
        if let Some(end) = effects.truncate_to {
            broker.directory.truncate(end);
            self.cut(w, b);
        }
        if let Some(start) = effects.reset_to {
            w.brokers[b].edit().directory.reset(start);
            self.cut(w, b);
        }
        let broker = w.brokers[b].edit();
        if let Some((epoch, start)) = effects.assign_epoch {
            broker.directory.epochs.assign(epoch, start);
        }
        if let Some(order) = effects.append {
            let leader_epoch = order.leader_epoch;
            match order.waiter {
                Some(waiter) => {
                    let life = broker.life();
                    broker.directory.append(record(waiter, leader_epoch, life));
                }
                None => records.iter().for_each(|r| broker.directory.append(*r)),
            }
            let log_end = broker.directory.log_end();
            let done = Event::Appended { waiter: order.waiter, leader_epoch, log_end };
            self.step_replica(w, b, done);
        }
        for (waiter, result) in effects.answers {
            self.answered(w, b, waiter, result);
        }
        if let Some(to) = effects.log_start {
            let segments_go = !self.breaks(Mutation::LogStartForgotten);
            let directory = &mut w.brokers[b].edit().directory;
            directory.log_start = to;
            directory.start_written(to, segments_go);
            self.step_replica(w, b, Event::LogStartDurable { to });
        }
        if let Some(asked) = effects.propose {
            let broker = w.brokers[b].edit();
            broker.waiting = Some(Proposal {
                life: broker.life(),
                leader: b as u8,
                broker_epoch: broker.epoch,
                leader_epoch: asked.leader_epoch.0 as u8,
                partition_epoch: asked.partition_epoch.0 as u8,
                isr: small(&asked.isr),
            });
        }
        effects.fetch_reply
    }

    fn cut(&self, w: &mut World, b: Ix) {
        let broker = w.brokers[b].edit();
        let end = broker.log_end();
        broker.planted.bad = broker.planted.bad.filter(|bad| usize::from(*bad) < end);
        let directory = &mut broker.directory;
        directory.truncations = 0;
        let event = Event::Truncated {
            log_start: directory.log_start,
            log_end: directory.log_end(),
            flushed: directory.recovery_point,
        };
        self.step_replica(w, b, event);
    }

    fn answered(&self, w: &mut World, b: Ix, waiter: WaiterId, result: Result<Offset, Condition>) {
        if waiter == DELETION {
            return self.deletion_answered(w, result);
        }
        let bit = 1 << (waiter.0 - 1);
        match result {
            Ok(_) if self.withholds_ack(w, b) => {}
            Ok(_) => w.history.acked |= bit,
            Err(Condition::NotLeaderOrFollower) if self.breaks(Mutation::WaitersOutliveEpoch) => {
                w.brokers[b].edit().planted.outlived |= bit;
            }
            Err(_) => {}
        }
    }

    /// A producer's record reaches a leader.
    pub(crate) fn produce(&self, w: &mut World, b: Ix) -> Option<()> {
        let id = w.history.produced + 1;
        let broker = &w.brokers[b];
        let replica = broker.replica.as_ref()?;
        let epoch = u8::try_from(broker.leads()?).ok()?;
        let end = broker.log_end();
        if self.breaks(Mutation::MinInsyncOnlyBeforeAppend)
            && replica.isr().len() < usize::from(self.row.min_insync)
        {
            return None;
        }
        w.history.produced = id;
        w.history.records[usize::from(id) - 1] = (epoch, end as u8);
        w.history.lives[usize::from(id) - 1] = w.brokers[b].life();
        let waiter = WaiterId(u64::from(id));
        let produce = Produce { waiter, acks: self.row.acks, offsets: 1 };
        self.step_replica(w, b, Event::Produce(produce));
        (w.brokers[b].log_end() > end).then_some(())
    }

    /// A flush of everything that is written.
    pub(crate) fn flush(&self, w: &mut World, b: Ix) -> Option<()> {
        if !w.brokers[b].up() {
            return None;
        }
        let broker = w.brokers[b].edit();
        let to = broker.directory.log_end();
        match broker.planted.bad {
            // The system says so, and has not written a byte.
            Some(_) => broker.directory.recovery_point = to,
            None => broker.directory.flushed(to),
        }
        self.step_replica(w, b, Event::Flushed { to });
        Some(())
    }

    /// More than the lag time passes at a leader: it proposes what follows from that. Uses up one proposal.
    pub(crate) fn lag(&self, w: &mut World, b: Ix) -> Option<()> {
        w.brokers[b].leads()?;
        for _ in 0..LAG_TICKS {
            w.brokers[b].edit().clock += LAG_MS / 2;
            self.step_replica(w, b, Event::Tick);
            if w.brokers[b].waiting.is_some() {
                return self.send(w, b);
            }
        }
        None
    }

    /// The proposal that waits gets into the net.
    pub(crate) fn send(&self, w: &mut World, b: Ix) -> Option<()> {
        let proposal = w.brokers[b].waiting?;
        w.spent.proposals += 1;
        w.propose(proposal);
        Some(())
    }

    /// A proposal waits no longer for its answer.
    pub(crate) fn give_up(&self, w: &mut World, b: Ix) -> Option<()> {
        w.brokers[b].edit().waiting.take()?;
        self.proposal_failed(w, b, ProposalOutcome::Unknown);
        Some(())
    }

    /// A proposal was refused, or not answered.
    pub(crate) fn proposal_failed(&self, w: &mut World, b: Ix, outcome: ProposalOutcome) {
        let broker = w.brokers[b].edit();
        let epoch = broker.replica.as_ref().and_then(|r| r.partition_epoch());
        if self.breaks(Mutation::RefusalForgetsProposal) {
            broker.planted.refused_at = epoch.map(|e| e.0);
        }
        self.step_replica(w, b, Event::ProposalAnswered(outcome));
    }

    /// A proposal was written, and its leader hears it.
    pub(crate) fn proposal_accepted(&self, w: &mut World, b: Ix, state: PartitionState) {
        let broker = w.brokers[b].edit();
        broker.waiting = None;
        let broker_epoch = BrokerEpoch(i64::from(broker.epoch));
        let outcome = ProposalOutcome::Accepted { broker_epoch, state };
        self.step_replica(w, b, Event::ProposalAnswered(outcome));
        self.consider_mark(w, b);
    }
}

fn record(waiter: WaiterId, epoch: LeaderEpoch, life: u8) -> Record {
    Record { epoch, value: waiter.0, topic_czxid: i64::from(life) }
}
