//! Fetches without a session.

use barnabas_replica::{FetchPosition, FollowerFetch};
use barnabas_types::{Acks, BrokerEpoch, BrokerId, LeaderEpoch, Offset};
use barnabas_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use barnabas_wire::messages::{FetchResponse, StrBytes, Uuid};
use bytes::Bytes;

use super::*;
use crate::connection::{Out, Piece};
use crate::partition::{Aftermath, Flush, Hosted};
use crate::testing::{Disk, LIFE, connection, node, produce, push, state, tp};

/// Broker 1 leads `t-0` in epoch 1; broker 2 is in the ISR.
struct Rig {
    node: Arc<Node>,
    hosted: Arc<Hosted>,
    out: Arc<Out>,
    _disk: Disk,
    _client: tokio::net::TcpStream,
}

impl Rig {
    async fn new() -> Self {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1, 2]));
        let (out, client) = connection().await;
        Self { node, hosted, out, _disk: disk, _client: client }
    }

    fn ask(&self, request: FetchRequest) -> Handled {
        self.ask_in(11, request)
    }

    fn ask_in(&self, version: i16, request: FetchRequest) -> Handled {
        let context = RequestContext {
            node: &self.node,
            out: &self.out,
            slot: self.out.reserve(),
            version,
            correlation_id: 1,
            client_id: None,
            frame: &bytes::Bytes::new(),
        };
        handle(&context, request).unwrap()
    }

    /// One record more in the log, not committed.
    fn write(&self, sequence: i32) {
        produce(&self.node, &self.hosted, Acks::None, sequence, None);
    }

    fn commit(&self, log_end: i64) {
        self.hear(0, log_end);
    }

    /// A fetch of broker 2, after it has heard this roll call.
    fn hear(&self, heard: u64, log_end: i64) {
        let position = FetchPosition {
            incarnation: LIFE,
            broker_epoch: BrokerEpoch(102),
            leader_epoch: LeaderEpoch(1),
            last_epoch: Some(LeaderEpoch(1)),
            log_end: Offset(log_end),
            flushed: Offset(log_end),
            log_start: Offset(0),
        };
        let fetch = FollowerFetch { follower: BrokerId(2), position, heard };
        let mut after = Aftermath::default();
        self.hosted.follower_fetch(self.node.now(), fetch, &mut after);
        after.settle(&self.hosted, &*self.node, &mut Flush::default());
    }

    fn found(&self, request: &FetchRequest) -> (i16, usize) {
        let form = Form { version: 11, correlation_id: 1 };
        let fetch = Fetch::new(&self.node, form, request.clone()).unwrap();
        let found = fetch.read(&self.node, request, &Earlier::default());
        (found.topics[0].1[0].error_code, found.bytes)
    }
}

/// Asks for a place above the end, and waits.
fn asks_above_the_end(rig: &Rig, request: FetchRequest) -> Box<WaitingFetch> {
    let Handled::Fetch(waiting) = rig.ask_in(12, request) else { panic!("it is told at once") };
    waiting
}

/// The error of the first partition; `None`: it waits on.
fn error(rig: &Rig, waiting: &mut WaitingFetch, later: Duration) -> Option<i16> {
    let answer = waiting.answer(&rig.node, Instant::now() + later).unwrap()?;
    waiting.parked.cancel();
    Some(read_bytes(12, answer).responses[0].partitions[0].error_code)
}

/// What an answer says.
pub(super) fn read_answer(version: i16, handled: Handled) -> FetchResponse {
    let Handled::Pieces(answer) = handled else { panic!("it waits") };
    read_bytes(version, answer)
}

pub(super) fn read_bytes(version: i16, answer: Vec<Piece>) -> FetchResponse {
    let bytes = Bytes::from(answer.iter().flat_map(Piece::read).collect::<Vec<u8>>());
    barnabas_wire::decode_response::<FetchRequest>(version, bytes).unwrap().1
}

fn request(from: i64) -> FetchRequest {
    let mut partition = FetchPartition::default();
    partition.partition = 0;
    partition.fetch_offset = from;
    partition.current_leader_epoch = -1;
    partition.partition_max_bytes = 1 << 20;
    let mut topic = FetchTopic::default();
    topic.topic = StrBytes::from("t");
    topic.partitions.push(partition);
    let mut request = FetchRequest::default();
    request.replica_id = -1;
    request.max_wait_ms = 60_000;
    request.min_bytes = 1;
    request.max_bytes = 1 << 20;
    request.session_id = 0;
    request.session_epoch = -1;
    request.topics.push(topic);
    request
}

#[tokio::test]
async fn a_fetch_waits_until_records_are_committed() {
    let rig = Rig::new().await;
    let Handled::Fetch(mut waiting) = rig.ask(request(0)) else { panic!("it waits") };
    rig.write(0);
    assert!(!waiting.parked.is_fired(), "written is not committed");
    rig.commit(1);
    assert!(waiting.parked.is_fired());
    rig.out.woken().await;
    assert!(waiting.answer(&rig.node, Instant::now()).unwrap().is_some());
    assert!(matches!(rig.ask(request(0)), Handled::Pieces(_)), "there is something now");
}

#[tokio::test]
async fn a_change_of_role_ends_the_wait() {
    let rig = Rig::new().await;
    let Handled::Fetch(mut waiting) = rig.ask(request(0)) else { panic!("it waits") };
    state(&rig.node, &rig.hosted, push(2, 2, &[1, 2]));
    assert!(waiting.parked.is_fired());
    assert!(waiting.answer(&rig.node, Instant::now()).unwrap().is_some());
}

#[tokio::test]
async fn too_few_bytes_renew_the_wait_and_its_end_gives_them() {
    let rig = Rig::new().await;
    let mut asked = request(0);
    asked.min_bytes = 1 << 16;
    let Handled::Fetch(mut waiting) = rig.ask(asked) else { panic!("it waits") };
    rig.write(0);
    rig.commit(1);
    assert!(!waiting.parked.is_fired());
    waiting.parked.fire();
    assert!(waiting.answer(&rig.node, Instant::now()).unwrap().is_none());
    assert!(!waiting.parked.is_fired(), "parked anew");
    assert!(waiting.answer(&rig.node, Instant::now() + WAIT_MAX).unwrap().is_some());
}

#[tokio::test]
async fn a_client_that_waits_for_nothing_is_answered_at_once() {
    let rig = Rig::new().await;
    for change in [
        |r: &mut FetchRequest| r.min_bytes = 0,
        |r: &mut FetchRequest| r.max_wait_ms = 0,
        |r: &mut FetchRequest| r.max_wait_ms = -1,
        |r: &mut FetchRequest| r.topics.clear(),
    ] {
        let mut asked = request(0);
        change(&mut asked);
        assert!(matches!(rig.ask(asked), Handled::Pieces(_)));
    }
}

#[tokio::test]
async fn limits_below_one_batch_give_one_batch() {
    let rig = Rig::new().await;
    rig.write(0);
    rig.write(1);
    rig.commit(2);
    let (code, both) = rig.found(&request(0));
    assert_eq!(code, 0);
    let mut narrow = request(0);
    narrow.topics[0].partitions[0].partition_max_bytes = 0;
    assert_eq!(rig.found(&narrow), (0, both / 2));
    let mut narrow = request(0);
    narrow.max_bytes = -1;
    assert_eq!(rig.found(&narrow), (0, both / 2));
}

#[tokio::test]
async fn while_too_many_answers_wait_for_their_readers_records_stay_in_their_files() {
    let rig = Rig::new().await;
    rig.write(0);
    rig.commit(1);
    let pieces = || match rig.ask(request(0)) {
        Handled::Pieces(pieces) => pieces,
        _ => panic!("it waits"),
    };
    let roomy = pieces();
    assert!(roomy.iter().all(|piece| matches!(piece, Piece::Bytes(_))));
    rig.node.budget.answers_grew(rig.node.budget.max_bytes() + 1);
    let short = pieces();
    assert!(short.iter().any(|piece| matches!(piece, Piece::File(_))));
    let bytes = |pieces: &[Piece]| pieces.iter().flat_map(Piece::read).collect::<Vec<u8>>();
    assert_eq!(bytes(&roomy), bytes(&short));
}

#[tokio::test]
async fn errors_are_kafkas_and_end_the_wait() {
    let rig = Rig::new().await;
    rig.write(0);
    // Between HW and LEO there is nothing to read, and nothing wrong.
    assert_eq!(rig.found(&request(1)), (0, 0));
    type Change = fn(&mut FetchRequest);
    let changes: [(Change, i16); 4] = [
        (|r| r.topics[0].partitions[0].partition = 7, 3),
        (|r| r.topics[0].partitions[0].current_leader_epoch = 0, 74),
        (|r| r.topics[0].partitions[0].current_leader_epoch = 2, 75),
        (|r| r.replica_id = 2, 29),
    ];
    for (change, code) in changes {
        let mut asked = request(0);
        change(&mut asked);
        assert_eq!(rig.found(&asked), (code, 0));
        assert!(matches!(rig.ask(asked), Handled::Pieces(_)));
    }
}

/// Tells the node that brokers 1 and 2 are there, and that 2 leads `t-0`, of this topic id, in epoch 4.
fn told_of_another_leader(node: &Arc<Node>, id: [u8; 16]) {
    use barnabas_types::{
        ClusterDelta, ControllerEpoch, Incarnation, TopicId, TopicImage, TopicName,
    };
    let mut pushed = push(2, 4, &[2]);
    pushed.partition.state.leader = Some(BrokerId(2));
    let topic = TopicImage {
        incarnation: Incarnation { topic_id: TopicId(id), czxid: 70 },
        partitions: [(0, pushed.partition)].into(),
        ..TopicImage::default()
    };
    let broker = |id| (BrokerId(id), crate::testing::registered(BrokerEpoch(100 + i64::from(id))));
    let delta = ClusterDelta {
        full: true,
        brokers: Some([broker(1), broker(2)].into()),
        topics: [(TopicName::new("t").unwrap(), topic)].into(),
        ..ClusterDelta::default()
    };
    node.view.apply((BrokerId(1), ControllerEpoch(1)), &delta);
}

#[tokio::test]
async fn who_leads_instead_is_told_with_its_address() {
    let rig = Rig::new().await;
    told_of_another_leader(&rig.node, LIFE.topic_id.0);
    state(&rig.node, &rig.hosted, push(2, 4, &[2]));
    for version in 4..=17 {
        let mut asked = request(0);
        asked.topics[0].topic_id = Uuid::from_bytes(LIFE.topic_id.0);
        let response = read_answer(version, rig.ask_in(version, asked));
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, 6, "{version}");
        let leader = (partition.current_leader.leader_id, partition.current_leader.leader_epoch);
        assert_eq!(leader, if version >= 12 { (2, 4) } else { (-1, -1) }, "{version}");
        let endpoints: Vec<_> =
            response.node_endpoints.iter().map(|e| (e.node_id, e.port)).collect();
        assert_eq!(endpoints, if version >= 16 { vec![(2, 9092)] } else { vec![] }, "{version}");
    }
}

#[tokio::test]
async fn from_13_on_topics_are_named_by_their_ids_alone() {
    let rig = Rig::new().await;
    rig.write(0);
    rig.commit(1);
    let id = LIFE.topic_id.0;
    // (the id that the cluster tells, the id asked for, the error)
    let table = [(id, id, 0), (id, [9; 16], 100), (id, [0; 16], 100), ([9; 16], [9; 16], 103)];
    for (told, asked_for, error) in table {
        told_of_another_leader(&rig.node, told);
        for version in 13..=17 {
            let mut asked = request(0);
            asked.topics[0].topic = StrBytes::default();
            asked.topics[0].topic_id = Uuid::from_bytes(asked_for);
            let response = read_answer(version, rig.ask_in(version, asked));
            let topic = &response.responses[0];
            assert_eq!(topic.topic_id, Uuid::from_bytes(asked_for));
            assert_eq!(topic.partitions[0].error_code, error, "{version} {asked_for:?}");
            let bytes = topic.partitions[0].records.as_ref().map_or(0, Bytes::len);
            assert_eq!(bytes > 0, error == 0);
        }
    }
}

#[tokio::test]
async fn f6_a_consumer_that_read_what_is_not_here_is_told_where_to_go_back_to() {
    let rig = Rig::new().await;
    rig.write(0);
    state(&rig.node, &rig.hosted, push(1, 3, &[1]));
    rig.write(1);
    // Epoch 1 has offset 0, epoch 3 offset 1; the log ends at 2.
    let ask = |from, last, version| {
        let mut asked = request(from);
        asked.topics[0].partitions[0].last_fetched_epoch = last;
        asked.max_wait_ms = 0;
        let response = read_answer(version, rig.ask_in(version, asked));
        let partition = response.responses[0].partitions[0].clone();
        let diverging = (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset);
        (partition.error_code, diverging, partition.records.unwrap().len())
    };
    let batch = ask(1, 1, 12).2;
    assert!(batch > 0);
    let table = [
        (1, -1, (0, (-1, -1), batch), "says nothing"),
        (1, 1, (0, (-1, -1), batch), "the same as here"),
        (2, 3, (0, (-1, -1), 0), "at the end"),
        (2, 1, (0, (1, 1), 0), "offset 1 was of another leader of epoch 1"),
        (2, 2, (0, (1, 1), 0), "epoch 2 is not here at all"),
        (5, 2, (0, (1, 1), 0), "beyond the end, of an epoch that is not here"),
        (5, 3, (0, (3, 2), 0), "beyond the end of the present epoch"),
        (2, 4, (1, (-1, -1), 0), "an epoch newer than all"),
        (5, -1, (1, (-1, -1), 0), "beyond the end"),
    ];
    for (from, last, expected, why) in table {
        for version in 12..=12 {
            assert_eq!(ask(from, last, version), expected, "{why}");
        }
    }
    // Older versions say nothing about it, whatever the decoder's default.
    assert_eq!(ask(2, -1, 11).0, 0);
}

#[tokio::test]
async fn r14_above_the_end_is_told_once_the_isr_has_answered_the_roll_call() {
    let rig = Rig::new().await;
    rig.write(0);
    rig.commit(1);
    type Change = fn(&mut FetchPartition);
    // Whatever the consumer knows of epochs: its offset may be one that another has committed under a newer leader.
    let changes: [Change; 3] = [
        |_| {},
        |p| p.current_leader_epoch = 1,
        |p| (p.fetch_offset, p.last_fetched_epoch) = (1, 2),
    ];
    for (call, change) in (1..).zip(changes) {
        let mut asked = request(2);
        asked.topics[0].partitions[0].last_fetched_epoch = -1;
        change(&mut asked.topics[0].partitions[0]);
        let mut waiting = asks_above_the_end(&rig, asked);
        rig.hear(call - 1, 1);
        assert!(!waiting.parked.is_fired(), "the call before was for another request");
        assert_eq!(error(&rig, &mut waiting, Duration::ZERO), None);
        rig.hear(call, 1);
        assert!(waiting.parked.is_fired());
        rig.out.woken().await;
        assert_eq!(error(&rig, &mut waiting, Duration::ZERO), Some(1));
    }
}

#[tokio::test]
async fn r14_a_deposed_leader_says_who_leads_and_not_that_there_is_nothing() {
    let rig = Rig::new().await;
    let mut waiting = asks_above_the_end(&rig, request(2));
    state(&rig.node, &rig.hosted, push(2, 2, &[1, 2]));
    assert!(waiting.parked.is_fired());
    assert_eq!(error(&rig, &mut waiting, Duration::ZERO), Some(6));
}

#[tokio::test]
async fn whom_the_isr_does_not_answer_in_time_tells_the_client_to_look_for_the_leader() {
    let rig = Rig::new().await;
    for (max_wait_ms, wait) in [(60_000, Duration::from_secs(60)), (0, ROLL_CALL_WAIT)] {
        let mut asked = request(2);
        asked.max_wait_ms = max_wait_ms;
        let mut waiting = asks_above_the_end(&rig, asked);
        assert_eq!(error(&rig, &mut waiting, wait - Duration::from_millis(400)), None);
        let late = waiting.answer(&rig.node, Instant::now() + wait).unwrap().unwrap();
        let partition = &read_bytes(12, late).responses[0].partitions[0];
        // No hint: it would name this broker.
        assert_eq!((partition.error_code, partition.current_leader.leader_id), (6, -1));
    }
}

#[tokio::test]
async fn a_client_that_waits_for_nothing_is_told_by_the_roll_call_too() {
    let rig = Rig::new().await;
    let mut asked = request(2);
    (asked.max_wait_ms, asked.min_bytes) = (0, 0);
    let mut waiting = asks_above_the_end(&rig, asked);
    rig.hear(1, 0);
    assert_eq!(error(&rig, &mut waiting, Duration::ZERO), Some(1));
}

#[tokio::test]
async fn who_asked_above_the_end_gets_the_records_that_came_meanwhile() {
    let rig = Rig::new().await;
    let mut waiting = asks_above_the_end(&rig, request(1));
    rig.write(0);
    rig.write(1);
    rig.hear(1, 0);
    assert!(waiting.parked.is_fired());
    assert_eq!(error(&rig, &mut waiting, Duration::ZERO), None, "they are not committed");
    rig.commit(2);
    assert!(waiting.parked.is_fired(), "it waits for them now");
    assert_eq!(error(&rig, &mut waiting, Duration::ZERO), Some(0));
}

#[tokio::test]
async fn records_of_other_partitions_do_not_take_the_place_of_a_doubt() {
    let rig = Rig::new().await;
    let other = rig._disk.host(&rig.node, tp("t", 1));
    state(&rig.node, &other, push(1, 1, &[1]));
    produce(&rig.node, &other, Acks::None, 0, None);
    let mut asked = request(2);
    let mut second = asked.topics[0].partitions[0].clone();
    (second.partition, second.fetch_offset) = (1, 0);
    asked.topics[0].partitions.push(second);
    let mut waiting = asks_above_the_end(&rig, asked);
    rig.hear(1, 0);
    let answer = waiting.answer(&rig.node, Instant::now()).unwrap().unwrap();
    let told = read_bytes(12, answer);
    let told: Vec<_> = told.responses[0]
        .partitions
        .iter()
        .map(|p| (p.error_code, p.records.as_ref().is_some_and(|records| !records.is_empty())))
        .collect();
    assert_eq!(told, [(1, false), (0, true)]);
}
