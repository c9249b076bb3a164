//! Three replicas over logs in memory and a controller made of method calls: whole scenarios, message by message.

use std::collections::BTreeMap;

use super::*;

/// One record: the epoch in which it was appended and a value that names it.
type Record = (LeaderEpoch, u64);

/// What a leader sent back, with the records that it read at that moment.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) to: i32,
    pub(super) answer: FetchAnswer,
    records: Vec<Record>,
}

pub(super) struct Broker {
    pub(super) replica: Replica,
    pub(super) log: Vec<Record>,
    pub(super) epoch: BrokerEpoch,
}

pub(super) struct World {
    pub(super) brokers: BTreeMap<i32, Broker>,
    pub(super) partition: Partition,
    pub(super) min_insync: u32,
    pub(super) now: u64,
    /// Produce requests by waiter: the value, and the answer once there is one.
    pub(super) produced: BTreeMap<u64, Option<Result<i64, Condition>>>,
    /// To which broker each was sent.
    sent_to: BTreeMap<u64, i32>,
    pub(super) proposals: Vec<IsrProposal>,
    next_broker_epoch: i64,
}

impl World {
    /// Brokers 1 to 3; broker 1 leads in epoch 1 with this ISR.
    pub(super) fn new(isr: &[i32], min_insync: u32) -> Self {
        let partition = push(1, 1, 1, isr).partition;
        let broker = |id: i32| Broker {
            replica: Replica::new(BrokerId(id), log(0, &[]), OPTIONS),
            log: Vec::new(),
            epoch: broker_epoch(id),
        };
        let mut world = Self {
            brokers: (1..=3).map(|id| (id, broker(id))).collect(),
            partition,
            min_insync,
            now: 1_000,
            produced: BTreeMap::new(),
            sent_to: BTreeMap::new(),
            proposals: Vec::new(),
            next_broker_epoch: 200,
        };
        for id in 1..=3 {
            world.step(id, Event::Registered { broker_epoch: broker_epoch(id) }, &[]);
            world.push(id);
        }
        world
    }

    /// Steps one broker and performs the effects on its log; `bytes` is what an ordered append writes.
    fn step(&mut self, id: i32, event: Event, bytes: &[Record]) -> Option<FetchReply> {
        let mut effects = Effects::default();
        let broker = self.brokers.get_mut(&id).unwrap();
        broker.replica.step(Now(self.now), event, &mut effects);
        for (waiter, answer) in effects.answers.drain(..) {
            let before = self.produced.insert(waiter.0, Some(answer.map(|offset| offset.0)));
            assert!(matches!(before, Some(None)), "waiter {} is answered twice", waiter.0);
        }
        self.proposals.extend(effects.propose.take());
        let reply = effects.fetch_reply.take();
        if let Some(to) = effects.truncate_to.or(effects.reset_to) {
            broker.log.truncate(usize::try_from(to.0).unwrap());
            let done = Event::Truncated { log_start: Offset(0), log_end: to, flushed: Offset(0) };
            self.step(id, done, &[]);
        } else if let Some(order) = effects.append {
            assert_eq!(order.base_offset.0, broker.log.len() as i64);
            let stamped = bytes.iter().map(|&(epoch, value)| {
                (if order.waiter.is_some() { order.leader_epoch } else { epoch }, value)
            });
            broker.log.extend(stamped);
            let done = Event::Appended {
                waiter: order.waiter,
                leader_epoch: order.leader_epoch,
                log_end: Offset(broker.log.len() as i64),
            };
            self.step(id, done, &[]);
        }
        let broker = &self.brokers[&id];
        assert_eq!(broker.replica.log_end().0, broker.log.len() as i64);
        for (offset, (epoch, _)) in broker.log.iter().enumerate() {
            let known = broker.replica.epochs().epoch_at(Offset(offset as i64));
            assert_eq!(known, Some(*epoch), "the epoch table of {id} is wrong at {offset}");
        }
        reply
    }

    /// Pushes the present state to one broker.
    pub(super) fn push(&mut self, id: i32) {
        let state = self.state_for(id);
        self.deliver_push(id, state);
    }

    /// The push that would be sent now.
    pub(super) fn state_for(&self, id: i32) -> StatePush {
        StatePush {
            controller_epoch: ControllerEpoch(1),
            broker_epoch: self.brokers[&id].epoch,
            incarnation: LIFE,
            partition: self.partition.clone(),
            min_insync_replicas: self.min_insync,
            flush_mode: FlushMode::Async,
        }
    }

    pub(super) fn deliver_push(&mut self, id: i32, state: StatePush) {
        self.step(id, Event::State(state), &[]);
    }

    /// The controller chooses a leader of the next epoch and an ISR, without telling anyone yet.
    pub(super) fn elect(&mut self, leader: Option<i32>, isr: &[i32]) {
        let epochs: Vec<_> = isr.iter().map(|id| (BrokerId(*id), self.brokers[id].epoch)).collect();
        let state = &mut self.partition.state;
        state.leader = leader.map(BrokerId);
        state.leader_epoch = state.leader_epoch.next();
        state.partition_epoch.0 += 1;
        state.isr = epochs;
    }

    /// The controller handles a proposal as R12 says; returns whether it was written.
    pub(super) fn admit(&mut self, proposal: &IsrProposal) -> bool {
        let state = &mut self.partition.state;
        let registered = proposal.isr.iter().all(|(id, epoch)| self.brokers[&id.0].epoch == *epoch);
        let fits = registered
            && proposal.leader_epoch == state.leader_epoch
            && proposal.partition_epoch == state.partition_epoch;
        if fits {
            state.partition_epoch.0 += 1;
            state.isr = proposal.isr.clone();
        }
        fits
    }

    /// The answer that a proposal of `id` was written.
    pub(super) fn accepted(&self, id: i32) -> ProposalOutcome {
        ProposalOutcome::Accepted {
            broker_epoch: self.brokers[&id].epoch,
            state: self.partition.state.clone(),
        }
    }

    pub(super) fn answer_proposal(&mut self, id: i32, outcome: ProposalOutcome) {
        self.step(id, Event::ProposalAnswered(outcome), &[]);
    }

    /// The process dies and comes back with its log, its HW checkpoint (at most what it had) and a new registration.
    pub(super) fn restart(&mut self, id: i32, checkpoint: i64) {
        self.next_broker_epoch += 1;
        let epoch = BrokerEpoch(self.next_broker_epoch);
        let broker = self.brokers.get_mut(&id).unwrap();
        let state = LogState {
            log_start: Offset(0),
            log_end: Offset(broker.log.len() as i64),
            flushed: Offset(0),
            high_watermark: Offset(checkpoint).min(broker.replica.high_watermark()),
            epochs: broker.replica.epochs().clone(),
        };
        broker.replica = Replica::new(BrokerId(id), state, OPTIONS);
        broker.epoch = epoch;
        self.step(id, Event::Registered { broker_epoch: epoch }, &[]);
        // Its clients saw the connection close: neither success nor failure.
        let lost = self.sent_to.iter().filter(|(_, to)| **to == id).map(|(value, _)| *value);
        for value in lost {
            let stopped = Err(Condition::UnknownOutcome("the broker stopped"));
            self.produced.get_mut(&value).unwrap().get_or_insert(stopped);
        }
    }

    /// The host dies: the log keeps only this many records.
    pub(super) fn lose_tail(&mut self, id: i32, kept: usize) {
        let broker = self.brokers.get_mut(&id).unwrap();
        broker.log.truncate(kept);
        let mut epochs = broker.replica.epochs().clone();
        epochs.truncate_from_end(Offset(kept as i64));
        let state = LogState {
            log_start: Offset(0),
            log_end: Offset(kept as i64),
            flushed: Offset(0),
            high_watermark: Offset(0),
            epochs,
        };
        broker.replica = Replica::new(BrokerId(id), state, OPTIONS);
        self.restart(id, 0);
    }

    pub(super) fn produce(&mut self, id: i32, acks: Acks) -> u64 {
        let value = self.produced.len() as u64;
        self.produced.insert(value, None);
        self.sent_to.insert(value, id);
        let request = Produce { waiter: WaiterId(value), acks, offsets: 1 };
        self.step(id, Event::Produce(request), &[(LeaderEpoch(0), value)]);
        value
    }

    /// The request that `id` would send now, to the leader that it knows.
    pub(super) fn request(&self, id: i32) -> Option<(i32, FollowerFetch)> {
        let replica = &self.brokers[&id].replica;
        let Role::Follower { leader, .. } = replica.role() else { return None };
        let position = replica.fetch_position()?;
        Some((leader.0, FollowerFetch { follower: BrokerId(id), position, heard: 0 }))
    }

    /// The request reaches the leader, which answers with at most this many records.
    pub(super) fn serve(
        &mut self,
        leader: i32,
        fetch: FollowerFetch,
        records_max: usize,
    ) -> Answer {
        let reply = self.step(leader, Event::FollowerFetch(fetch), &[]).unwrap();
        let mut records = Vec::new();
        let outcome = match reply {
            FetchReply::Grant(grant) => {
                let log = &self.brokers[&leader].log;
                let (from, to) = (grant.from.0 as usize, grant.to.0 as usize);
                records.extend(log[from..to].iter().copied().take(records_max));
                let mut epochs: Vec<(LeaderEpoch, Offset)> = Vec::new();
                for (offset, (epoch, _)) in (grant.from.0..).zip(&records) {
                    if epochs.last().is_none_or(|(last, _)| last != epoch) {
                        epochs.push((*epoch, Offset(offset)));
                    }
                }
                FetchOutcome::Records {
                    end: Offset(grant.from.0 + records.len() as i64),
                    epochs,
                    high_watermark: grant.high_watermark,
                    log_start: grant.log_start,
                }
            }
            FetchReply::Diverging { epoch, end } => FetchOutcome::Diverging { epoch, end },
            FetchReply::Reset { log_start } => FetchOutcome::Reset { log_start },
            FetchReply::Refused(condition) => FetchOutcome::Refused(condition),
        };
        let answer = FetchAnswer { leader: BrokerId(leader), asked: fetch.position, outcome };
        Answer { to: fetch.follower.0, answer, records }
    }

    pub(super) fn deliver(&mut self, answer: Answer) {
        self.step(answer.to, Event::FetchAnswered(answer.answer), &answer.records);
    }

    /// One whole fetch of `id`.
    pub(super) fn fetch(&mut self, id: i32) {
        if let Some((leader, fetch)) = self.request(id) {
            let answer = self.serve(leader, fetch, usize::MAX);
            self.deliver(answer);
        }
    }

    pub(super) fn tick(&mut self, ms: u64) {
        self.now += ms;
        for id in 1..=3 {
            self.step(id, Event::Tick, &[]);
        }
    }

    /// Everyone knows the state and fetches until nothing changes. Panics if that takes too long (I12).
    pub(super) fn settle(&mut self) {
        for id in 1..=3 {
            self.push(id);
        }
        for _round in 0..100 {
            let before: Vec<_> = self.brokers.values().map(|b| b.replica.clone()).collect();
            for id in 1..=3 {
                self.fetch(id);
            }
            if before.iter().eq(self.brokers.values().map(|b| &b.replica)) {
                return;
            }
        }
        panic!("the replicas do not come to rest");
    }

    /// All logs are equal, with equal HWs at their end.
    pub(super) fn assert_equal_logs(&self) {
        let first = &self.brokers[&1];
        for (id, broker) in &self.brokers {
            assert_eq!(broker.log, first.log, "log of {id}");
            assert_eq!(broker.replica.high_watermark(), broker.replica.log_end(), "HW of {id}");
        }
    }

    pub(super) fn values(&self, id: i32) -> Vec<u64> {
        self.brokers[&id].log.iter().map(|(_, value)| *value).collect()
    }

    pub(super) fn is_acked(&self, value: u64) -> bool {
        matches!(self.produced[&value], Some(Ok(_)))
    }

    pub(super) fn high_watermark(&self, id: i32) -> i64 {
        self.brokers[&id].replica.high_watermark().0
    }
}
