//! Tests of the replica, named after the rules they prove; here the rig that steps one replica by hand.
//!
//! Three brokers 1, 2 and 3, registered under broker epochs 101, 102 and 103; a lag limit of 10 s.

mod flush_mode;
mod flushing;
mod follower;
mod gaps;
mod isr;
mod leader;
mod log_start;
mod produce_again;
mod r4_accept;
mod roll_call;
mod waiters;
mod withdrawal;
mod world;
mod world_random;
mod world_scenarios;

use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, Condition, ControllerEpoch, EpochStart, FlushMode, Incarnation,
    LeaderEpoch, LeaderEpochs, Now, Offset, Partition, PartitionEpoch, PartitionState, TopicId,
};

use crate::*;

const LAG_MS: u64 = 10_000;
const OPTIONS: ReplicaOptions = ReplicaOptions { lag_time_max_ms: LAG_MS };
const LIFE: Incarnation = Incarnation { topic_id: TopicId([7; 16]), czxid: 70 };

fn broker_epoch(id: i32) -> BrokerEpoch {
    BrokerEpoch(100 + i64::from(id))
}

/// A log of records [0, end) with these (epoch, start) entries, nothing flushed, HW 0.
fn log(end: i64, epochs: &[(i32, i64)]) -> LogState {
    LogState {
        log_start: Offset(0),
        log_end: Offset(end),
        flushed: Offset(0),
        high_watermark: Offset(0),
        epochs: table(epochs),
    }
}

fn table(epochs: &[(i32, i64)]) -> LeaderEpochs {
    let entry =
        |&(e, o): &(i32, i64)| EpochStart { epoch: LeaderEpoch(e), start_offset: Offset(o) };
    epochs.iter().map(entry).collect()
}

/// A push to broker 1: AR {1, 2, 3}, min.insync 1, async.
fn push(leader: i32, leader_epoch: i32, partition_epoch: i32, isr: &[i32]) -> StatePush {
    StatePush {
        controller_epoch: ControllerEpoch(1),
        broker_epoch: broker_epoch(1),
        incarnation: LIFE,
        partition: Partition {
            assigned_replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
            moving: Default::default(),
            state: PartitionState {
                leader: (leader >= 0).then_some(BrokerId(leader)),
                leader_epoch: LeaderEpoch(leader_epoch),
                partition_epoch: PartitionEpoch(partition_epoch),
                controller_epoch: ControllerEpoch(1),
                isr: isr.iter().map(|&id| (BrokerId(id), broker_epoch(id))).collect(),
            },
        },
        min_insync_replicas: 1,
        flush_mode: FlushMode::Async,
    }
}

/// Broker 1's replica, stepped by hand.
struct Rig {
    replica: Replica,
    now: u64,
}

impl Rig {
    /// Registered, nothing accepted.
    fn new(log: LogState) -> Self {
        let mut rig = Self { replica: Replica::new(BrokerId(1), log, OPTIONS), now: 1_000 };
        rig.step(Event::Registered { broker_epoch: broker_epoch(1) });
        rig
    }

    /// Leads in epoch 1 from an empty log, partition epoch 1.
    fn leader(isr: &[i32]) -> Self {
        Self::leader_with(log(0, &[]), isr, 1, FlushMode::Async)
    }

    /// Leads in the epoch after the log's latest, partition epoch 1.
    fn leader_with(log: LogState, isr: &[i32], min_insync: u32, mode: FlushMode) -> Self {
        let epoch = log.epochs.latest().map_or(1, |e| e.0 + 1);
        let mut rig = Self::new(log);
        let state = push(1, epoch, 1, isr);
        rig.state(StatePush { min_insync_replicas: min_insync, flush_mode: mode, ..state });
        assert_eq!(rig.replica.role(), Role::Leader { leader_epoch: LeaderEpoch(epoch) });
        rig
    }

    /// Follows broker 2 in this epoch, partition epoch 1.
    fn follower(log: LogState, leader_epoch: i32) -> Self {
        let mut rig = Self::new(log);
        rig.state(push(2, leader_epoch, 1, &[1, 2]));
        rig
    }

    fn step(&mut self, event: Event) -> Effects {
        let mut effects = Effects::default();
        self.replica.step(Now(self.now), event, &mut effects);
        effects
    }

    fn state(&mut self, push: StatePush) -> Effects {
        self.step(Event::State(push))
    }

    /// One more partition epoch of the present state with this ISR.
    fn isr(&mut self, isr: &[i32]) -> Effects {
        let accepted = self.replica.accepted.clone().unwrap();
        let state = &accepted.partition.state;
        let next = push(1, state.leader_epoch.0, state.partition_epoch.0 + 1, isr);
        self.state(StatePush {
            min_insync_replicas: accepted.min_insync_replicas,
            flush_mode: accepted.flush_mode,
            ..next
        })
    }

    /// A produce of one record whose append completes at once. Effects of both steps, answers in order.
    fn produce(&mut self, waiter: u64, acks: Acks) -> Effects {
        let ordered = self.order(waiter, acks, 1);
        let Some(order) = ordered.append else { return ordered };
        self.written(waiter, order.base_offset.0 + 1)
    }

    fn order(&mut self, waiter: u64, acks: Acks, offsets: i64) -> Effects {
        self.step(Event::Produce(Produce { waiter: WaiterId(waiter), acks, offsets }))
    }

    fn written(&mut self, waiter: u64, log_end: i64) -> Effects {
        let leader_epoch = self.epoch();
        self.step(Event::Appended {
            waiter: Some(WaiterId(waiter)),
            leader_epoch,
            log_end: Offset(log_end),
        })
    }

    fn epoch(&self) -> LeaderEpoch {
        self.replica.leader_epoch().unwrap()
    }

    /// A follower's position in the present epoch, last epoch = present epoch, everything flushed.
    fn at(&self, follower: i32, log_end: i64) -> FetchPosition {
        FetchPosition {
            incarnation: LIFE,
            broker_epoch: broker_epoch(follower),
            leader_epoch: self.epoch(),
            last_epoch: self.replica.epochs().epoch_at(Offset(log_end - 1)).filter(|_| log_end > 0),
            log_end: Offset(log_end),
            flushed: Offset(log_end),
            log_start: Offset(0),
        }
    }

    fn fetch(&mut self, follower: i32, log_end: i64) -> Effects {
        let position = self.at(follower, log_end);
        self.fetch_at(follower, position)
    }

    fn fetch_at(&mut self, follower: i32, position: FetchPosition) -> Effects {
        self.fetch_after(0, follower, position)
    }

    /// A fetch that was sent after an answer with this roll call.
    fn fetch_after(&mut self, heard: u64, follower: i32, position: FetchPosition) -> Effects {
        let follower = BrokerId(follower);
        self.step(Event::FollowerFetch(FollowerFetch { follower, position, heard }))
    }

    /// A time `ms` later, with ticks on the way.
    fn pass_ms(&mut self, ms: u64) -> Effects {
        let end = self.now + ms;
        let mut effects = Effects::default();
        while self.now < end {
            self.now = (self.now + LAG_MS / 4).min(end);
            let tick = self.step(Event::Tick);
            effects.propose = tick.propose.or(effects.propose);
            effects.answers.extend(tick.answers);
        }
        effects
    }

    /// An answer of leader 2 to the present fetch position.
    fn answer(&mut self, outcome: FetchOutcome) -> Effects {
        let asked = self.replica.fetch_position().unwrap();
        self.answer_to(asked, outcome)
    }

    fn answer_to(&mut self, asked: FetchPosition, outcome: FetchOutcome) -> Effects {
        self.step(Event::FetchAnswered(FetchAnswer { leader: BrokerId(2), asked, outcome }))
    }

    fn high_watermark(&self) -> i64 {
        self.replica.high_watermark().0
    }
}

fn proposed(effects: &Effects) -> Option<Vec<i32>> {
    effects.propose.as_ref().map(|p| p.isr.iter().map(|(id, _)| id.0).collect())
}

fn answers(effects: &Effects) -> Vec<(u64, Result<i64, Condition>)> {
    effects.answers.iter().map(|(w, r)| (w.0, r.clone().map(|o| o.0))).collect()
}

fn records(end: i64, epochs: &[(i32, i64)], high_watermark: i64) -> FetchOutcome {
    FetchOutcome::Records {
        end: Offset(end),
        epochs: epochs.iter().map(|&(e, o)| (LeaderEpoch(e), Offset(o))).collect(),
        high_watermark: Offset(high_watermark),
        log_start: Offset(0),
    }
}

/// The answer that a proposal has become this state.
fn accepted(state: StatePush) -> ProposalOutcome {
    ProposalOutcome::Accepted { broker_epoch: state.broker_epoch, state: state.partition.state }
}

fn refused(effects: &Effects) -> Option<Condition> {
    match effects.fetch_reply.clone() {
        Some(FetchReply::Refused(condition)) => Some(condition),
        _ => None,
    }
}

#[test]
fn clear_keeps_the_capacity_and_nothing_else() {
    let mut effects = Effects::default();
    effects.answers.push((WaiterId(1), Ok(Offset(0))));
    effects.high_watermark = Some(Offset(1));
    effects.note(true, "x".to_owned());
    effects.clear();
    assert_eq!(effects, Effects::default());
    assert!(effects.answers.capacity() > 0 && effects.notes.capacity() > 0);
}

#[test]
fn a_stale_checkpoint_is_brought_between_log_start_and_leo() {
    let mut state = log(10, &[(1, 0)]);
    state.log_start = Offset(5);
    state.flushed = Offset(99);
    let low = Replica::new(BrokerId(1), state.clone(), OPTIONS);
    assert_eq!((low.high_watermark(), low.flushed()), (Offset(5), Offset(10)));
    state.high_watermark = Offset(11);
    assert_eq!(Replica::new(BrokerId(1), state, OPTIONS).high_watermark(), Offset(10));
}
