//! Fetch sessions: what is answered, what is looked at, and who is woken.

use barnabas_types::Acks;
use barnabas_wire::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use barnabas_wire::messages::{FetchResponse, StrBytes};

use super::super::error_codes::INVALID_FETCH_SESSION_EPOCH;
use super::tests::{read_answer, read_bytes};
use super::*;
use crate::connection::Out;
use crate::partition::Hosted;
use crate::testing::{Disk, connection, node, produce, push, state, tp};

const VERSION: i16 = 12;

/// Broker 1 leads all partitions of `t` alone, so that what is written is committed.
struct Rig {
    node: Arc<Node>,
    hosted: Vec<Arc<Hosted>>,
    out: Arc<Out>,
    sequences: Vec<i32>,
    _disk: Disk,
    _client: tokio::net::TcpStream,
}

impl Rig {
    async fn new(partitions: i32) -> Self {
        let (node, disk) = (node(), Disk::new());
        let host = |index| {
            let hosted = disk.host(&node, tp("t", index));
            state(&node, &hosted, push(1, 1, &[1]));
            hosted
        };
        let hosted: Vec<_> = (0..partitions).map(host).collect();
        let (out, client) = connection().await;
        let sequences = vec![0; hosted.len()];
        Self { node, hosted, out, sequences, _disk: disk, _client: client }
    }

    fn write(&mut self, partition: usize) {
        produce(&self.node, &self.hosted[partition], Acks::Leader, self.sequences[partition], None);
        self.sequences[partition] += 1;
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

    fn ask(&self, request: FetchRequest) -> FetchResponse {
        read_answer(VERSION, self.ask_in(VERSION, request))
    }

    /// Opens a session over all partitions, from the beginning.
    fn open(&self) -> i32 {
        let all: Vec<_> = (0..self.hosted.len()).map(|index| (index as i32, 0)).collect();
        let response = self.ask(request((0, 0), &all));
        assert_ne!(response.session_id, 0);
        assert_eq!(told(&response).len(), all.len(), "the first answer is a full one");
        response.session_id
    }

    fn session(&self, id: i32) -> Arc<Session> {
        self.node.fetch_sessions.get(id, self.node.now()).unwrap()
    }
}

/// A fetch of (partition, offset), without a wait.
fn request((id, epoch): (i32, i32), partitions: &[(i32, i64)]) -> FetchRequest {
    let mut topic = FetchTopic::default();
    topic.topic = StrBytes::from("t");
    for (index, offset) in partitions {
        let mut partition = FetchPartition::default();
        partition.partition = *index;
        partition.fetch_offset = *offset;
        partition.current_leader_epoch = -1;
        partition.last_fetched_epoch = -1;
        partition.partition_max_bytes = 1 << 20;
        topic.partitions.push(partition);
    }
    let mut request = FetchRequest::default();
    request.replica_id = -1;
    request.max_wait_ms = 0;
    request.min_bytes = 1;
    request.max_bytes = 1 << 20;
    (request.session_id, request.session_epoch) = (id, epoch);
    request.topics = vec![topic];
    request
}

fn forgetting(mut request: FetchRequest, partitions: &[i32]) -> FetchRequest {
    let mut forgotten = ForgottenTopic::default();
    forgotten.topic = StrBytes::from("t");
    forgotten.partitions = partitions.to_vec();
    request.forgotten_topics_data.push(forgotten);
    request
}

/// (partition, error, HW, whether there are records) in the order of the answer.
fn told(response: &FetchResponse) -> Vec<(i32, i16, i64, bool)> {
    let all = response.responses.iter().flat_map(|topic| &topic.partitions);
    let one = |p: &barnabas_wire::messages::fetch_response::PartitionData| {
        let has_records = p.records.as_ref().is_some_and(|records| !records.is_empty());
        (p.partition_index, p.error_code, p.high_watermark, has_records)
    };
    all.map(one).collect()
}

#[tokio::test]
async fn an_incremental_fetch_answers_what_changed() {
    let mut rig = Rig::new(3).await;
    rig.write(1);
    let id = rig.open();
    // The client has read offset 0 of partition 1.
    let response = rig.ask(request((id, 1), &[(1, 1)]));
    assert_eq!((response.session_id, told(&response)), (id, vec![]));
    rig.write(2);
    assert_eq!(told(&rig.ask(request((id, 2), &[]))), [(2, 0, 1, true)]);
    // Not read yet: told again. Read: told no more.
    assert_eq!(told(&rig.ask(request((id, 3), &[]))), [(2, 0, 1, true)]);
    assert_eq!(told(&rig.ask(request((id, 4), &[(2, 1)]))), []);
    // Back to the beginning, and a partition that is not here, until it is forgotten.
    let response = rig.ask(request((id, 5), &[(1, 0), (9, 0)]));
    assert_eq!(told(&response), [(1, 0, 1, true), (9, 3, -1, false)]);
    let response = rig.ask(forgetting(request((id, 6), &[(1, 1)]), &[9]));
    assert_eq!(told(&response), []);
    assert_eq!(rig.session(id).partitions(), 3);
}

#[tokio::test]
async fn an_error_is_told_while_it_lasts_and_its_end_as_well() {
    let rig = Rig::new(2).await;
    let id = rig.open();
    assert_eq!(told(&rig.ask(request((id, 1), &[]))), []);
    state(&rig.node, &rig.hosted[1], push(2, 2, &[1, 2]));
    for epoch in 2..4 {
        assert_eq!(told(&rig.ask(request((id, epoch), &[]))), [(1, 6, -1, false)]);
    }
    state(&rig.node, &rig.hosted[1], push(1, 3, &[1]));
    assert_eq!(told(&rig.ask(request((id, 4), &[]))), [(1, 0, 0, false)]);
    assert_eq!(told(&rig.ask(request((id, 5), &[]))), []);
}

#[tokio::test]
async fn a_session_answers_in_turn_when_there_is_not_room_for_all() {
    let mut rig = Rig::new(3).await;
    let id = rig.open();
    let mut offsets = [0; 3];
    (0..3).for_each(|index| (0..4).for_each(|_| rig.write(index)));
    let mut order = Vec::new();
    let mut read: Vec<(i32, i64)> = Vec::new();
    for epoch in 1..=6 {
        let mut asked = request((id, epoch), &read);
        asked.max_bytes = 1;
        // A single batch, whatever the limits; the client reads it.
        asked.topics[0].partitions.iter_mut().for_each(|p| p.partition_max_bytes = 1);
        let answer = told(&rig.ask(asked));
        let with: Vec<i32> = answer.iter().filter(|told| told.3).map(|told| told.0).collect();
        assert_eq!(with.len(), 1, "{answer:?}");
        offsets[with[0] as usize] += 1;
        read = vec![(with[0], offsets[with[0] as usize])];
        order.push(with[0]);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[tokio::test]
async fn idle_partitions_cost_nothing() {
    const PARTITIONS: i32 = 100;
    let mut rig = Rig::new(PARTITIONS).await;
    let id = rig.open();
    assert_eq!(told(&rig.ask(request((id, 1), &[]))), []);
    let session = rig.session(id);
    let before = session.looks();
    assert_eq!(before, 100, "each has been looked at once and left a watcher");
    let mut epoch = 2;
    for round in 0..50 {
        rig.write(7);
        let found = told(&rig.ask(request((id, epoch), &[(7, round)])));
        assert_eq!(found, [(7, 0, round + 1, true)]);
        epoch += 1;
    }
    assert!(session.looks() - before <= 2 * 50, "{} looks", session.looks() - before);
    // While it waits, the same holds: one append, one wake, one look or two.
    let mut asked = request((id, epoch), &[(7, 50)]);
    asked.max_wait_ms = 60_000;
    let before = session.looks();
    let Handled::Fetch(mut waiting) = rig.ask_in(VERSION, asked) else { panic!("it waits") };
    rig.write(8);
    assert!(waiting.parked.is_fired());
    let answer = waiting.answer(&rig.node, Instant::now()).unwrap().expect("it is due");
    assert_eq!(told(&read_bytes(VERSION, answer)), [(8, 0, 1, true)]);
    assert!(session.looks() - before <= 3, "{} looks", session.looks() - before);
}

#[tokio::test]
async fn a_session_that_nobody_uses_leaves_its_partitions_with_the_first_news() {
    let mut rig = Rig::new(2).await;
    let id = rig.open();
    rig.ask(request((id, 1), &[]));
    assert_eq!(rig.hosted[0].watchers(), 1);
    (0..3).for_each(|_| rig.write(0));
    assert_eq!(rig.hosted[0].watchers(), 0, "it was told once, and is told no more");
    assert_eq!(rig.hosted[1].watchers(), 1);
    rig.node.fetch_sessions.close(id);
    assert_eq!(rig.hosted[1].watchers(), 0);
    let response = rig.ask(request((id, 2), &[]));
    assert_eq!(response.error_code, FETCH_SESSION_ID_NOT_FOUND);
}

#[tokio::test]
async fn forgetting_and_adding_again_leaves_one_watcher() {
    let mut rig = Rig::new(2).await;
    let id = rig.open();
    let mut epoch = 1;
    for _ in 0..20 {
        rig.ask(request((id, epoch), &[(0, 0), (1, 0)]));
        assert_eq!((rig.hosted[0].watchers(), rig.hosted[1].watchers()), (1, 1));
        rig.ask(forgetting(request((id, epoch + 1), &[]), &[1]));
        assert_eq!((rig.hosted[0].watchers(), rig.hosted[1].watchers()), (1, 0));
        epoch += 2;
    }
    rig.ask(request((id, epoch), &[(1, 0)]));
    rig.write(1);
    assert_eq!(told(&rig.ask(request((id, epoch + 1), &[]))), [(1, 0, 1, true)]);
}

#[tokio::test]
async fn a_waiting_fetch_gathers_min_bytes_over_partitions() {
    let mut rig = Rig::new(2).await;
    let id = rig.open();
    let mut asked = request((id, 1), &[]);
    asked.max_wait_ms = 60_000;
    asked.min_bytes = 2 * crate::testing::batch(0).len() as i32;
    let Handled::Fetch(mut waiting) = rig.ask_in(VERSION, asked) else { panic!("it waits") };
    rig.write(0);
    assert!(!waiting.parked.is_fired(), "half of the bytes");
    assert_eq!(rig.hosted[0].watchers(), 1, "more may come");
    rig.write(1);
    assert!(waiting.parked.is_fired());
    let answer = waiting.answer(&rig.node, Instant::now()).unwrap().expect("it is due");
    assert_eq!(told(&read_bytes(VERSION, answer)), [(0, 0, 1, true), (1, 0, 1, true)]);
}

#[tokio::test]
async fn the_end_of_a_wait_tells_of_a_higher_hw_too() {
    let mut rig = Rig::new(1).await;
    rig.write(0);
    let id = rig.open();
    let mut asked = request((id, 1), &[(0, 1)]);
    asked.max_wait_ms = 60_000;
    let Handled::Fetch(mut waiting) = rig.ask_in(VERSION, asked) else { panic!("it waits") };
    let answer = waiting.answer(&rig.node, Instant::now() + WAIT_MAX).unwrap().expect("it is late");
    assert_eq!(told(&read_bytes(VERSION, answer)), [], "nothing is new");
    // A partition that the client is at the end of, whose HW moves with what it has read already by then.
    rig.write(0);
    assert_eq!(told(&rig.ask(request((id, 2), &[(0, 2)]))), [(0, 0, 2, false)]);
    assert_eq!(told(&rig.ask(request((id, 3), &[]))), []);
}

#[tokio::test]
async fn epochs_go_up_by_one_and_a_newer_fetch_ends_the_one_that_waits() {
    let mut rig = Rig::new(1).await;
    let id = rig.open();
    for (session, error) in [
        ((id, 2), INVALID_FETCH_SESSION_EPOCH),
        ((id, -2), INVALID_FETCH_SESSION_EPOCH),
        ((id.wrapping_add(1), 1), FETCH_SESSION_ID_NOT_FOUND),
        ((0, 1), FETCH_SESSION_ID_NOT_FOUND),
    ] {
        let response = rig.ask(request(session, &[]));
        assert_eq!((response.error_code, response.session_id), (error, 0), "{session:?}");
    }
    let mut asked = request((id, 1), &[]);
    asked.max_wait_ms = 60_000;
    let Handled::Fetch(mut waiting) = rig.ask_in(VERSION, asked) else { panic!("it waits") };
    rig.write(0);
    assert_eq!(told(&rig.ask(request((id, 2), &[]))).len(), 1);
    assert!(waiting.parked.is_fired());
    let answer = waiting.answer(&rig.node, Instant::now()).unwrap().expect("it is over");
    assert_eq!(read_bytes(VERSION, answer).error_code, INVALID_FETCH_SESSION_EPOCH);
}

#[tokio::test]
async fn a_fetch_that_is_overtaken_as_it_begins_to_wait_does_not_take_the_newer_ones_place() {
    let mut rig = Rig::new(1).await;
    let id = rig.open();
    let [mut older, newer] = [1, 2].map(|epoch| {
        let mut asked = request((id, epoch), &[]);
        asked.max_wait_ms = 60_000;
        let Handled::Fetch(waiting) = rig.ask_in(VERSION, asked) else { panic!("it waits") };
        waiting
    });
    assert!(older.wait(&rig.node, Outcome::Wait(0)).unwrap().is_some(), "it is over");
    rig.write(0);
    assert!(newer.parked.is_fired());
}

#[tokio::test]
async fn a_full_fetch_ends_the_session_that_it_names() {
    let rig = Rig::new(1).await;
    let (first, second) = (rig.open(), rig.open());
    let response = rig.ask(request((first, -1), &[(0, 0)]));
    assert_eq!((response.error_code, response.session_id), (0, 0));
    let response = rig.ask(request((second, 0), &[(0, 0)]));
    assert!(response.session_id != 0 && response.session_id != second);
    assert_eq!(rig.node.fetch_sessions.size(), (1, 1));
    // Nothing left to read: that ends it, too.
    let response = rig.ask(forgetting(request((response.session_id, 1), &[]), &[0]));
    assert_eq!((response.error_code, response.session_id), (0, 0));
    assert_eq!(rig.node.fetch_sessions.size(), (0, 0));
}

#[tokio::test]
async fn without_room_clients_are_answered_without_a_session() {
    let rig = Rig::new(1).await;
    for _ in 0..4 {
        rig.open();
    }
    let response = rig.ask(request((0, 0), &[(0, 0)]));
    assert_eq!((response.session_id, told(&response).len()), (0, 1));
    assert_eq!(rig.node.fetch_sessions.size(), (4, 4));
    for version in 4..7 {
        let response = read_answer(version, rig.ask_in(version, request((0, -1), &[(0, 0)])));
        assert_eq!(response.session_id, 0, "sessions begin with version 7");
    }
}

#[tokio::test]
async fn names_and_ids_do_not_mix_in_a_session() {
    let rig = Rig::new(1).await;
    let id = rig.open();
    let mut asked = request((id, 1), &[]);
    asked.topics.clear();
    let response = read_answer(13, rig.ask_in(13, asked));
    assert_eq!(response.error_code, 106);
}

#[tokio::test]
async fn a_session_wakes_for_a_change_of_role() {
    let rig = Rig::new(2).await;
    let id = rig.open();
    let mut asked = request((id, 1), &[]);
    (asked.max_wait_ms, asked.min_bytes) = (60_000, 1 << 20);
    let Handled::Fetch(mut waiting) = rig.ask_in(VERSION, asked) else { panic!("it waits") };
    state(&rig.node, &rig.hosted[0], push(2, 2, &[1, 2]));
    assert!(waiting.parked.is_fired());
    let answer = waiting.answer(&rig.node, Instant::now()).unwrap().expect("it is due");
    assert_eq!(told(&read_bytes(VERSION, answer)), [(0, 6, -1, false)]);
}

#[tokio::test]
async fn r14_above_the_end_is_told_in_a_session_after_a_roll_call_too() {
    let mut rig = Rig::new(2).await;
    rig.write(0);
    let id = rig.open();
    state(&rig.node, &rig.hosted[0], push(1, 2, &[1, 2]));
    let wait = |epoch, partitions: &[(i32, i64)]| {
        let Handled::Fetch(waiting) = rig.ask_in(VERSION, request((id, epoch), partitions)) else {
            panic!("it is told at once")
        };
        waiting
    };
    let mut waiting = wait(1, &[(0, 9)]);
    let late = waiting.answer(&rig.node, Instant::now() + ROLL_CALL_WAIT).unwrap().unwrap();
    assert_eq!(told(&read_bytes(VERSION, late))[0].1, 6, "nobody has answered");
    // It stands where it stood; the client names it no more.
    let mut waiting = wait(2, &[]);
    state(&rig.node, &rig.hosted[0], push(1, 3, &[1]));
    assert!(waiting.parked.is_fired(), "nobody else is left to be asked");
    let answer = waiting.answer(&rig.node, Instant::now()).unwrap().unwrap();
    assert_eq!(told(&read_bytes(VERSION, answer)).iter().map(|t| t.1).max(), Some(1));
}
