//! A follower's bookkeeping of one session.

use barnabas_types::{BrokerId, Offset};
use tokio::net::TcpStream;

use super::*;
use crate::testing::{Disk, MY_EPOCH, node, push, sockets, state, tp};

async fn session<'a>(fetcher: &'a Fetcher, node: &'a Arc<Node>) -> (Session<'a>, TcpStream) {
    let (stream, leader) = sockets().await;
    (Session::new(fetcher, node, stream, MY_EPOCH), leader)
}

/// Takes the work and makes the next request of it, as if it were sent.
fn next(session: &mut Session<'_>) -> ReplicaFetchRequest {
    let (introduced, forgotten, over) = session.take_work();
    assert!(!over);
    session.take_retries();
    let request = session.request(introduced, forgotten);
    session.sent += 1;
    request
}

fn follower(disk: &Disk, node: &Arc<Node>, partition: i32) -> Arc<Hosted> {
    let hosted = disk.host(node, tp("t", partition));
    state(node, &hosted, push(2, 1, &[1, 2]));
    hosted
}

fn refused(index: u32) -> ReplicaFetchPartition<Bytes> {
    ReplicaFetchPartition {
        index,
        echo: PositionEcho {
            czxid: crate::testing::LIFE.czxid,
            leader_epoch: barnabas_types::LeaderEpoch(1),
            last_epoch: None,
            log_end: Offset(0),
        },
        outcome: ReplicaFetchOutcome::Refused { error_code: 6 },
    }
}

#[tokio::test]
async fn r31_an_index_rests_until_no_answer_can_speak_of_its_old_partition() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    fetcher.add(&follower(&disk, &node, 0));
    fetcher.add(&follower(&disk, &node, 1));
    let request = next(&mut session);
    assert!(request.full);
    assert_eq!(request.introduced.iter().map(|i| i.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(request.positions.len(), 2);

    // The leader holds this request: its answer may bring records of t-0, and t-2 stands where t-0 stood.
    fetcher.forget(&tp("t", 0));
    fetcher.add(&follower(&disk, &node, 2));
    let request = next(&mut session);
    assert_eq!((request.forgotten, request.introduced[0].index), (vec![0], 2));

    session.answered = 1;
    fetcher.add(&follower(&disk, &node, 3));
    assert_eq!(next(&mut session).introduced[0].index, 0, "every answer from here on knows");
}

#[tokio::test]
async fn r37_a_flushed_partition_is_named_at_once_and_the_request_says_if_it_overtakes_an_answer() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    let hosted = follower(&disk, &node, 0);
    fetcher.add(&hosted);
    assert!(!next(&mut session).overtakes);
    assert!(!session.has_more());
    fetcher.name_again(&hosted.topic_partition);
    fetcher.name_again(&tp("t", 1));
    assert!(session.has_more(), "although the leader holds a request");
    let request = next(&mut session);
    assert_eq!((request.introduced.len(), request.positions.len()), (0, 1));
    assert!(request.overtakes);
    session.answered = session.sent;
    assert!(!next(&mut session).overtakes);
}

#[tokio::test]
async fn a_partition_that_comes_back_is_introduced_anew() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    let (a, b) = (follower(&disk, &node, 0), follower(&disk, &node, 1));
    fetcher.add(&a);
    fetcher.add(&b);
    next(&mut session);
    // Gone and back before anything was said: it is only named.
    fetcher.forget(&a.topic_partition);
    fetcher.add(&a);
    let request = next(&mut session);
    assert_eq!((request.forgotten.len(), request.introduced.len()), (0, 0));
    assert_eq!(request.positions[0].index, 0);
    session.answered = session.sent;
    fetcher.forget(&a.topic_partition);
    assert_eq!(next(&mut session).forgotten, [0]);
    session.answered = session.sent;
    fetcher.add(&a);
    let request = next(&mut session);
    assert_eq!((request.introduced.len(), request.positions.len()), (1, 1));
}

#[tokio::test]
async fn a_long_introduction_comes_in_pieces_that_the_leader_takes() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    let hosted = follower(&disk, &node, 0);
    let total = 2 * PARTITIONS_PER_REQUEST_MAX + 1;
    let name = "n".repeat(barnabas_types::TopicName::LENGTH_MAX);
    for partition in 0..total {
        let partition = tp(&name, i32::try_from(partition).unwrap());
        fetcher.work().partitions.insert(partition, hosted.clone());
    }
    fetcher.begin();
    let mut named = BTreeSet::new();
    for _ in 0..3 {
        assert!(session.has_more() || session.sent == 0);
        let request = next(&mut session);
        assert!(
            request.encoded_bytes() < barnabas_wire::FrameLimits::default().replica_fetch_bytes_max
        );
        named.extend(request.positions.iter().map(|p| p.index));
        session.answered = session.sent;
    }
    assert_eq!((named.len(), session.has_more()), (total, false));
    // An answer may bring news of all of them.
    session.due.extend(named);
    assert_eq!(next(&mut session).positions.len(), PARTITIONS_PER_REQUEST_MAX);
    assert!(session.has_more());
}

#[tokio::test]
async fn a_refused_partition_is_named_again_after_a_wait_once() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    fetcher.add(&follower(&disk, &node, 0));
    next(&mut session);
    for _ in 0..10 {
        session.apply_one(refused(0), &mut Flush::default());
    }
    assert_eq!((session.retries.len(), session.due.len()), (1, 0));
    let longest = Duration::from_millis(REFUSED_RETRY_MS.1);
    assert!(session.retries.first().unwrap().0 <= Instant::now() + longest);
    fetcher.add(&follower(&disk, &node, 1));
    fetcher.forget(&tp("t", 0));
    next(&mut session);
    assert!(session.retries.is_empty());
}

#[tokio::test]
async fn r31_damaged_records_are_asked_for_again_after_a_wait() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    let hosted = follower(&disk, &node, 0);
    fetcher.add(&hosted);
    next(&mut session);
    let mut told = refused(0);
    told.outcome = ReplicaFetchOutcome::Records {
        high_watermark: Offset(0),
        log_start: Offset(0),
        records: Bytes::from_static(b"these are no batches"),
    };
    session.apply_one(told, &mut Flush::default());
    assert_eq!((session.retries.len(), session.due.len()), (1, 0));
    assert_eq!(hosted.fetch_position().unwrap().log_end, Offset(0));
}

#[tokio::test]
async fn records_and_marks_are_taken_and_the_partition_is_named_at_once() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    let hosted = follower(&disk, &node, 0);
    fetcher.add(&hosted);
    next(&mut session);
    let mut records = crate::testing::batch(0);
    barnabas_log::stamp(&mut records, Offset(0), barnabas_types::LeaderEpoch(1)).unwrap();
    let mut told = refused(0);
    let outcome = |records: Vec<u8>| ReplicaFetchOutcome::Records {
        high_watermark: Offset(1),
        log_start: Offset(0),
        records: Bytes::from(records),
    };
    told.outcome = outcome(records);
    session.apply_one(told, &mut Flush::default());
    assert_eq!(hosted.high_watermark(), Offset(1));
    let request = next(&mut session);
    assert_eq!((request.positions[0].index, request.positions[0].log_end), (0, Offset(1)));
    // A late answer to the first position changes nothing and is no reason to wait.
    let mut late = refused(0);
    late.outcome = outcome(Vec::new());
    session.apply_one(late, &mut Flush::default());
    assert_eq!((session.retries.len(), session.due.len()), (0, 1));
}

#[tokio::test]
async fn i12_a_partition_outside_the_isr_is_named_again_and_again() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    fetcher.add(&follower(&disk, &node, 0));
    let outsider = disk.host(&node, tp("t", 1));
    state(&node, &outsider, push(2, 1, &[2]));
    fetcher.add(&outsider);
    assert_eq!(next(&mut session).positions.len(), 2);
    for _ in 0..2 {
        session.name_outsiders(Duration::ZERO);
        let named: Vec<_> = next(&mut session).positions.iter().map(|p| p.index).collect();
        assert_eq!(named, [1], "the ISR member has nothing new to say");
    }
    session.name_outsiders(Duration::from_secs(60));
    next(&mut session);
    session.name_outsiders(Duration::from_secs(60));
    assert!(next(&mut session).positions.is_empty(), "not with every request");
    session.outsiders_at = Instant::now();
    session.apply_one(refused(1), &mut Flush::default());
    session.name_outsiders(Duration::ZERO);
    assert!(session.due.is_empty(), "a refused one waits for its time");
}

fn limited(limit: u64, isr: &[i32], leader_epoch: i32) -> barnabas_replica::StatePush {
    let mut pushed = push(2, leader_epoch, isr);
    pushed.partition.moving.adding = vec![BrokerId(1)];
    pushed.partition.moving.throttle = Some(limit);
    pushed
}

#[tokio::test]
async fn a_copy_that_must_rest_is_introduced_while_the_leader_holds_a_request() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    fetcher.add(&follower(&disk, &node, 0));
    next(&mut session);
    assert!(!session.must_tell(&[], &[]), "the leader holds the request, nothing is new");
    // Other copies of this broker have used up the limit.
    node.pace.fetched(1 << 20, 1, Instant::now());
    let copy = disk.host(&node, tp("t", 1));
    state(&node, &copy, limited(1, &[2], 1));
    fetcher.add(&copy);
    let (introduced, forgotten, _) = session.take_work();
    assert_eq!((introduced.len(), session.due.len()), (1, 0));
    assert!(session.must_tell(&introduced, &forgotten), "it will be named by its index");
}

#[tokio::test]
async fn a_copy_with_a_limit_pauses_and_nothing_else_does() {
    let (node, disk) = (node(), Disk::new());
    let fetcher = Fetcher::new(BrokerId(2));
    let (mut session, _leader) = session(&fetcher, &node).await;
    let copy = disk.host(&node, tp("t", 0));
    state(&node, &copy, limited(1, &[2], 1));
    fetcher.add(&copy);
    fetcher.add(&follower(&disk, &node, 1));
    assert_eq!(next(&mut session).positions.len(), 2);
    let records = |index: u32| {
        let mut records = crate::testing::batch(0);
        barnabas_log::stamp(&mut records, Offset(0), barnabas_types::LeaderEpoch(1)).unwrap();
        let mut told = refused(index);
        told.outcome = ReplicaFetchOutcome::Records {
            high_watermark: Offset(0),
            log_start: Offset(0),
            records: Bytes::from(records),
        };
        told
    };
    session.apply_one(records(0), &mut Flush::default());
    session.apply_one(records(1), &mut Flush::default());
    session.answered = session.sent;
    let named: Vec<_> = next(&mut session).positions.iter().map(|p| p.index).collect();
    assert_eq!(named, [1], "the copy has fetched for a minute");
    assert_eq!(session.retries.len(), 1);
    session.name_outsiders(Duration::ZERO);
    fetcher.name_again(&copy.topic_partition);
    session.answered = session.sent;
    assert!(next(&mut session).positions.is_empty(), "no way around the limit");
    // The limit is lifted in the middle of the pause.
    state(&node, &copy, limited(1 << 30, &[2], 2));
    fetcher.name_again(&copy.topic_partition);
    session.answered = session.sent;
    let named: Vec<_> = next(&mut session).positions.iter().map(|p| p.index).collect();
    assert_eq!(named, [0]);
    // In the ISR it would hold every acknowledgement back.
    state(&node, &copy, limited(1, &[2, 1], 3));
    assert_eq!(copy.fetch_limit(), None);
}
