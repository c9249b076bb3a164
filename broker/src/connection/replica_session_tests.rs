//! A leader's side of a follower's session: what is answered at once, what waits, what is never forgotten.

use std::collections::BTreeMap;

use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, ClusterDelta, ClusterId, ControllerEpoch, LeaderEpoch, Offset,
};
use barnabas_wire::{PartitionPosition, response_len};
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::*;
use crate::partition::PendingProduce;
use crate::testing::{
    CLUSTER, Disk, LIFE, connection, node, pending, produce, push, registered, state, tp,
};

type Told = (u32, i64, Result<(i64, usize), i16>);

/// Broker 2's session on broker 1, which leads `t-0` (and hosts `t-1`) in epoch 1.
struct Rig {
    node: Arc<Node>,
    disk: Disk,
    hosted: Arc<Hosted>,
    session: ReplicaSession,
    out: Arc<Out>,
    client: TcpStream,
}

impl Rig {
    async fn new() -> Self {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1, 2]));
        let brokers = BTreeMap::from([(BrokerId(2), registered(BrokerEpoch(102)))]);
        let delta = ClusterDelta { full: true, brokers: Some(brokers), ..ClusterDelta::default() };
        node.view.apply((BrokerId(9), ControllerEpoch(1)), &delta);
        let (out, client) = connection().await;
        let session = ReplicaSession::new(out.clone(), node.turns.number());
        Self { node, disk, hosted, session, out, client }
    }

    fn produce(&self, sequence: i32) {
        produce(&self.node, &self.hosted, Acks::None, sequence, None);
    }

    fn ask(&mut self, request: ReplicaFetchRequest) -> Result<(), String> {
        let slot = self.out.reserve();
        let result = self.session.request(&self.node, request, slot, 0, &mut Flush::default());
        self.out.flush();
        result
    }

    /// Whether the session is parked.
    fn waits(&mut self) -> bool {
        self.session.answer_if_due(Instant::now()).unwrap();
        self.out.flush();
        self.session.deadline().is_some()
    }

    fn time_is_over(&mut self) {
        let deadline = self.session.deadline().unwrap();
        self.session.answer_if_due(deadline).unwrap();
        self.out.flush();
    }

    async fn frame(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        self.client.read_exact(&mut frame).await.unwrap();
        let len = response_len(&frame, 1 << 20).unwrap().unwrap();
        frame.resize(len, 0);
        self.client.read_exact(&mut frame[4..]).await.unwrap();
        frame
    }

    /// The next answer: index, LEO echoed, and HW with bytes of records or the error.
    async fn answer(&mut self) -> Vec<Told> {
        let frame = tokio::time::timeout(Duration::from_secs(10), self.frame());
        let frame = frame.await.expect("an answer was sent");
        let (_, response) = ReplicaFetchResponse::decode(&Bytes::from(frame)).unwrap();
        let told = response.partitions.iter().map(|p| {
            let said = match &p.outcome {
                ReplicaFetchOutcome::Records { high_watermark, records, .. } => {
                    Ok((high_watermark.0, records.len()))
                }
                ReplicaFetchOutcome::Refused { error_code } => Err(*error_code),
                other => panic!("{other:?}"),
            };
            (p.index, p.echo.log_end.0, said)
        });
        told.collect()
    }
}

fn request() -> ReplicaFetchRequest {
    ReplicaFetchRequest {
        cluster_id: ClusterId(CLUSTER.into()),
        follower: BrokerId(2),
        broker_epoch: BrokerEpoch(102),
        max_wait_ms: 60_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        partition_max_bytes: 1 << 20,
        full: false,
        overtakes: false,
        forgotten: Vec::new(),
        introduced: Vec::new(),
        positions: Vec::new(),
    }
}

fn introduced(index: u32, partition: i32) -> IntroducedPartition {
    let topic = tp("t", partition).topic;
    IntroducedPartition { index, topic, partition, incarnation: LIFE }
}

fn at(index: u32, log_end: i64) -> PartitionPosition {
    PartitionPosition {
        index,
        leader_epoch: LeaderEpoch(1),
        last_epoch: (log_end > 0).then_some(LeaderEpoch(1)),
        log_end: Offset(log_end),
        flushed: Offset(log_end),
        log_start: Offset(0),
    }
}

fn first(log_end: i64) -> ReplicaFetchRequest {
    ReplicaFetchRequest {
        full: true,
        introduced: vec![introduced(0, 0)],
        positions: vec![at(0, log_end)],
        ..request()
    }
}

fn next(log_end: i64) -> ReplicaFetchRequest {
    ReplicaFetchRequest { positions: vec![at(0, log_end)], ..request() }
}

#[tokio::test]
async fn records_end_the_wait_and_are_told_once() {
    let mut rig = Rig::new().await;
    rig.ask(first(0)).unwrap();
    // The HW of a new session is news, but not urgent.
    assert!(rig.waits());
    rig.produce(0);
    assert!(!rig.waits());
    let told = rig.answer().await;
    assert!(matches!(told[..], [(0, 0, Ok((0, 1..)))]), "{told:?}");
    // Not named again: more records are not its business yet.
    rig.ask(request()).unwrap();
    rig.produce(1);
    assert!(rig.waits());
    rig.ask(next(1)).unwrap();
    assert_eq!(rig.answer().await, [], "the request that was held");
    let told = rig.answer().await;
    assert!(matches!(told[..], [(0, 1, Ok((1, 1..)))]), "{told:?}");
}

#[tokio::test]
async fn records_that_come_between_two_requests_are_not_forgotten() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(0)).unwrap();
    rig.answer().await;
    rig.produce(1);
    rig.ask(next(1)).unwrap();
    let told = rig.answer().await;
    assert!(matches!(told[..], [(0, 1, Ok((1, 1..)))]), "{told:?}");
}

#[tokio::test]
async fn records_on_their_way_are_not_sent_again_to_a_position_that_overtook_them() {
    let mut rig = Rig::new().await;
    rig.ask(first(0)).unwrap();
    rig.produce(0);
    assert!(!rig.waits());
    // The follower has flushed something and says so before it sees that answer.
    rig.ask(ReplicaFetchRequest { overtakes: true, ..next(0) }).unwrap();
    rig.produce(1);
    assert!(rig.waits());
    assert!(matches!(rig.answer().await[..], [(0, 0, Ok((_, 1..)))]));
    // It stands elsewhere now, or at the same place again: both are answered.
    rig.ask(ReplicaFetchRequest { overtakes: true, ..next(1) }).unwrap();
    assert_eq!(rig.answer().await, [], "the request that was held");
    assert!(matches!(rig.answer().await[..], [(0, 1, Ok((_, 1..)))]));
    rig.ask(next(1)).unwrap();
    assert!(matches!(rig.answer().await[..], [(0, 1, Ok((_, 1..)))]), "it asks again");
}

#[tokio::test]
async fn a_higher_high_watermark_waits_for_the_end_of_the_poll_and_is_then_told() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(0)).unwrap();
    rig.answer().await;
    // Reported now, so committed now; the follower does not know.
    rig.ask(next(1)).unwrap();
    assert!(rig.waits());
    rig.time_is_over();
    assert_eq!(rig.answer().await, [(0, 1, Ok((1, 0)))]);
    rig.ask(next(1)).unwrap();
    rig.time_is_over();
    assert_eq!(rig.answer().await, [], "it is known there");
}

#[tokio::test]
async fn a_high_watermark_that_moved_between_answer_and_next_position_is_told() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(0)).unwrap();
    rig.answer().await;
    // The ISR shrinks: committed without this follower, which has been told of records and has not asked again.
    let mut alone = push(1, 1, &[1]);
    alone.partition.state.partition_epoch = barnabas_types::PartitionEpoch(2);
    state(&rig.node, &rig.hosted, alone);
    rig.ask(request()).unwrap();
    rig.time_is_over();
    assert_eq!(rig.answer().await, [], "it has not said where it stands");
    rig.ask(next(1)).unwrap();
    rig.time_is_over();
    assert_eq!(rig.answer().await, [(0, 1, Ok((1, 0)))]);
}

/// A producer of `t-0` that leaves sequences out, at acks=all.
fn leave_out(rig: &Rig) -> Arc<PendingProduce> {
    let waits = pending(&rig.out, rig.out.reserve(), 1);
    produce(&rig.node, &rig.hosted, Acks::All, 9, Some(waits.clone()));
    waits
}

#[tokio::test]
async fn a_gap_is_told_to_its_producer_when_the_follower_has_heard_the_roll_call() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(0)).unwrap();
    rig.answer().await;
    rig.ask(next(1)).unwrap();
    rig.time_is_over();
    rig.answer().await;
    // Nothing is news on this partition; the roll call is.
    rig.ask(next(1)).unwrap();
    assert!(rig.waits());
    let gap = leave_out(&rig);
    assert!(!rig.waits(), "the follower is answered at once");
    assert!(!gap.is_done(), "it has not said that it follows");
    rig.ask(next(1)).unwrap();
    assert!(gap.is_done());
    assert!(rig.waits(), "the roll call is no news any more");
}

#[tokio::test]
async fn a_request_that_overtakes_the_roll_call_has_not_heard_it() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(1)).unwrap();
    let gap = leave_out(&rig);
    assert!(!rig.waits());
    // Sent before that answer was seen, with an older position and with the same.
    rig.ask(ReplicaFetchRequest { overtakes: true, ..next(0) }).unwrap();
    assert!(!gap.is_done());
    rig.ask(ReplicaFetchRequest { overtakes: true, ..next(1) }).unwrap();
    assert!(gap.is_done(), "sent when the first of two answers had been seen");
}

#[tokio::test]
async fn a_follower_whose_every_request_overtakes_an_answer_is_heard_too() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(0)).unwrap();
    let gaps = [leave_out(&rig), leave_out(&rig)];
    for log_end in 1..=3 {
        assert!(!gaps[0].is_done());
        rig.produce(log_end as i32);
        rig.ask(ReplicaFetchRequest { overtakes: true, ..next(log_end) }).unwrap();
    }
    assert!(gaps.iter().all(|gap| gap.is_done()), "the first answer that told it is seen");
}

#[tokio::test]
async fn a_new_session_hears_the_roll_call_anew() {
    let mut rig = Rig::new().await;
    rig.produce(0);
    rig.ask(first(1)).unwrap();
    let gap = leave_out(&rig);
    assert!(!rig.waits());
    rig.ask(first(1)).unwrap();
    assert!(!gap.is_done(), "what was said in the old session may not have been heard");
    assert!(!rig.waits(), "so it is said again");
    rig.ask(next(1)).unwrap();
    assert!(gap.is_done());
}

#[tokio::test]
async fn what_does_not_fit_comes_with_the_next_answer() {
    let mut rig = Rig::new().await;
    let other = rig.disk.host(&rig.node, tp("t", 1));
    state(&rig.node, &other, push(1, 1, &[1, 2]));
    rig.produce(0);
    produce(&rig.node, &other, Acks::None, 0, None);
    let both = ReplicaFetchRequest {
        full: true,
        max_bytes: 0,
        introduced: vec![introduced(0, 0), introduced(1, 1)],
        positions: vec![at(0, 0), at(1, 0)],
        ..request()
    };
    rig.ask(both).unwrap();
    let told = rig.answer().await;
    assert!(matches!(told[..], [(0, 0, Ok((_, 1..)))]), "{told:?}");
    rig.ask(request()).unwrap();
    let told = rig.answer().await;
    assert!(matches!(told[..], [(1, 0, Ok((_, 1..)))]), "{told:?}");
}

#[tokio::test]
async fn a_refused_partition_is_told_so_and_found_when_it_has_come() {
    let mut rig = Rig::new().await;
    let absent = ReplicaFetchRequest {
        full: true,
        introduced: vec![introduced(0, 1)],
        positions: vec![at(0, 0)],
        ..request()
    };
    rig.ask(absent).unwrap();
    assert_eq!(rig.answer().await, [(0, 0, Err(3))]);
    let come = rig.disk.host(&rig.node, tp("t", 1));
    state(&rig.node, &come, push(1, 1, &[1, 2]));
    produce(&rig.node, &come, Acks::None, 0, None);
    rig.ask(next(0)).unwrap();
    assert!(matches!(rig.answer().await[..], [(0, 0, Ok((_, 1..)))]));
}

#[tokio::test]
async fn a_replica_that_was_opened_anew_is_found_in_place_of_the_old_one() {
    let mut rig = Rig::new().await;
    rig.ask(first(0)).unwrap();
    rig.hosted.retire();
    rig.disk.storage.delete_all(&[tp("t", 0)]).unwrap();
    rig.hosted = rig.disk.host(&rig.node, tp("t", 0));
    state(&rig.node, &rig.hosted, push(1, 1, &[1, 2]));
    rig.ask(next(0)).unwrap();
    rig.answer().await;
    rig.produce(0);
    assert!(!rig.waits(), "news of the new one reach the session");
}

#[tokio::test]
async fn a_change_of_role_refuses_what_was_granted() {
    let mut rig = Rig::new().await;
    rig.ask(first(0)).unwrap();
    assert!(rig.waits());
    state(&rig.node, &rig.hosted, push(2, 2, &[1, 2]));
    assert!(!rig.waits());
    assert_eq!(rig.answer().await, [(0, 0, Err(74))]);
}

#[tokio::test]
async fn a_skipped_index_allocates_nothing() {
    let mut rig = Rig::new().await;
    let skips = ReplicaFetchRequest {
        full: true,
        introduced: vec![introduced(PARTITION_INDEX_MAX - 1, 0)],
        ..request()
    };
    assert!(rig.ask(skips).is_err());
    assert!(rig.session.entries.is_empty());
    let unknown = ReplicaFetchRequest { positions: vec![at(5, 0)], ..request() };
    assert!(rig.ask(unknown).is_err());
}

#[tokio::test]
async fn a_full_request_and_the_end_leave_nothing_behind() {
    let mut rig = Rig::new().await;
    rig.ask(first(0)).unwrap();
    rig.ask(first(0)).unwrap();
    assert_eq!(rig.hosted.sessions(), 1);
    rig.session.end();
    assert_eq!(rig.hosted.sessions(), 0);
}

#[tokio::test]
async fn r30_an_epoch_that_the_controller_has_not_told_is_refused_and_shuts_nobody_out() {
    let mut rig = Rig::new().await;
    let forged = ReplicaFetchRequest { broker_epoch: BrokerEpoch(1 << 62), ..first(0) };
    rig.ask(forged).unwrap();
    assert_eq!(rig.answer().await, [(0, 0, Err(77))]);
    rig.ask(next(0)).unwrap();
    rig.produce(0);
    assert!(!rig.waits());
    assert!(matches!(rig.answer().await[..], [(0, 0, Ok((_, 1..)))]), "the true one is served");
}

#[tokio::test]
async fn i12_a_late_request_of_a_connection_that_its_follower_gave_up_does_not_put_it_back() {
    let mut rig = Rig::new().await;
    let mut led = push(1, 2, &[1, 2, 3]);
    led.partition.assigned_replicas.push(BrokerId(3));
    state(&rig.node, &rig.hosted, led);
    let register = |id| (BrokerId(id), registered(BrokerEpoch(i64::from(100 + id))));
    let brokers = BTreeMap::from([register(2), register(3)]);
    let delta = ClusterDelta { brokers: Some(brokers), ..ClusterDelta::default() };
    rig.node.view.apply((BrokerId(9), ControllerEpoch(1)), &delta);
    let in_epoch = |mut request: ReplicaFetchRequest, id: i32| {
        request.follower = BrokerId(id);
        request.broker_epoch = BrokerEpoch(i64::from(100 + id));
        for position in &mut request.positions {
            position.leader_epoch = LeaderEpoch(2);
            position.last_epoch = position.last_epoch.map(|_| LeaderEpoch(2));
        }
        request
    };
    rig.ask(in_epoch(first(0), 2)).unwrap();
    let node = rig.node.clone();
    let session = async || {
        let (out, client) = connection().await;
        (ReplicaSession::new(out.clone(), node.turns.number()), out, client)
    };
    let tell = |(session, out, _): &mut (ReplicaSession, Arc<Out>, TcpStream), request| {
        session.request(&node, request, out.reserve(), 0, &mut Flush::default())
    };
    let (mut second, mut third) = (session().await, session().await);
    tell(&mut second, in_epoch(first(0), 2)).unwrap();
    assert!(
        rig.out.is_closed(),
        "what the follower has given up need not wait for the system to say so"
    );
    rig.produce(0);
    tell(&mut third, in_epoch(first(0), 3)).unwrap();
    assert!(!second.1.is_closed(), "that was another follower");
    tell(&mut second, in_epoch(next(1), 2)).unwrap();
    assert!(rig.ask(in_epoch(next(0), 2)).is_err());
    tell(&mut third, in_epoch(next(1), 3)).unwrap();
    assert_eq!(rig.hosted.high_watermark(), Offset(1), "nobody has a reason to say more");
}
