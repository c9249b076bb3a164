//! Coordinators over real partitions: loaded when this broker leads, silent when it does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barnabas_group::{
    Answer, Commit, CommitPartition, Event, GroupError, Groups, Join, OffsetRead, Protocol, Waiter,
};
use barnabas_replica::{FetchPosition, FollowerFetch};
use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterDelta, ControllerEpoch, LeaderEpoch, Now, Offset, Partition,
    TopicImage, TopicName,
};
use barnabas_wire::{Request, messages};
use tokio::sync::oneshot;

use super::*;
use crate::kafka::{self, Handled, RequestContext};
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};
use crate::testing::{Disk, LIFE, connection, node, push, state, tp};

type Asked = oneshot::Receiver<Result<Answer, GroupError>>;

/// The offsets topic with one partition, as this broker knows it, and its replica here.
fn offsets_partition(node: &Arc<Node>, disk: &Disk) -> Arc<Hosted> {
    let partition = Partition {
        assigned_replicas: vec![BrokerId(1), BrokerId(2)],
        ..push(1, 1, &[1]).partition
    };
    let topic = TopicImage {
        incarnation: LIFE,
        partitions: BTreeMap::from([(0, partition)]),
        ..TopicImage::default()
    };
    let name = |text| TopicName::new(text).unwrap();
    let topics = BTreeMap::from([(name(OFFSETS_TOPIC), topic), (name("t"), TopicImage::default())]);
    let delta = ClusterDelta { full: true, topics, ..ClusterDelta::default() };
    node.view.apply((BrokerId(1), ControllerEpoch(1)), &delta);
    disk.host(node, tp(OFFSETS_TOPIC, 0))
}

fn commit(node: &Node, offset: i64) -> Asked {
    let waiter = node.groups.next_waiter();
    let partition = CommitPartition {
        topic: "t".into(),
        partition: 0,
        offset,
        leader_epoch: -1,
        metadata: String::new(),
    };
    let event = Event::Commit(Commit {
        waiter,
        group: "g".into(),
        generation: -1,
        member_id: "".into(),
        instance_id: None,
        retention_ms: None,
        knows_group_id_not_found: false,
        partitions: vec![partition],
    });
    node.groups.of_group("g").unwrap().request(waiter, event)
}

fn done() -> Result<Result<Answer, GroupError>, oneshot::error::RecvError> {
    Ok(Ok(Answer::Commit(Ok(vec![Ok(())]))))
}

fn new_join(waiter: Waiter) -> Event {
    Event::Join(Join {
        waiter,
        group: "joined".into(),
        member_id: "".into(),
        instance_id: None,
        suffix: "1".into(),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol { name: "range".into(), metadata: bytes::Bytes::new() }],
        member_id_required: false,
        skip_assignment: false,
        reason: None,
    })
}

fn join(node: &Node) -> Asked {
    let waiter = node.groups.next_waiter();
    let event = new_join(waiter);
    node.groups.of_group("joined").unwrap().request(waiter, event)
}

async fn committed(node: &Node) -> Result<Option<i64>, GroupError> {
    let coordinator = node.groups.of_group("g")?;
    let read = |read: OffsetRead<'_>| match read {
        OffsetRead::Committed(offset) => Some(offset.offset),
        _ => None,
    };
    coordinator.look(move |groups| read(groups.committed("g", "t", 0))).await
}

/// Waits until the coordinator says what is expected.
async fn until(node: &Node, expected: Result<Option<i64>, GroupError>) {
    let reached = async {
        while committed(node).await != expected {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(waited.is_ok(), "{:?}, expected {expected:?}", committed(node).await);
}

/// Broker 2 has everything below `log_end`, the last of it of `last_epoch`, and says so in epoch 2.
fn follower_has(node: &Arc<Node>, hosted: &Arc<Hosted>, last_epoch: i32, log_end: i64) {
    follower_in(node, hosted, 2, Some(last_epoch), log_end);
}

/// Waits until so much is in the log here.
async fn log_ends_at(hosted: &Arc<Hosted>, end: i64) {
    let reached = async {
        while hosted.with_log(|log| log.log_end()) != Offset(end) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached).await.expect("in time");
}

/// Broker 2 says in `leader_epoch` what it has.
fn follower_in(
    node: &Arc<Node>,
    hosted: &Arc<Hosted>,
    leader_epoch: i32,
    last_epoch: Option<i32>,
    log_end: i64,
) {
    let position = FetchPosition {
        incarnation: LIFE,
        broker_epoch: BrokerEpoch(102),
        leader_epoch: LeaderEpoch(leader_epoch),
        last_epoch: last_epoch.map(LeaderEpoch),
        log_end: Offset(log_end),
        flushed: Offset(log_end),
        log_start: Offset(0),
    };
    let mut after = Aftermath::default();
    hosted.follower_fetch(
        node.now(),
        FollowerFetch { follower: BrokerId(2), position, heard: 0 },
        &mut after,
    );
    after.settle(hosted, &**node, &mut Flush::default());
}

#[tokio::test]
async fn f2_a_new_epoch_reads_what_the_last_one_wrote_and_the_old_one_says_no_more() {
    let (node, disk) = (node(), Disk::new());
    let hosted = offsets_partition(&node, &disk);
    state(&node, &hosted, push(1, 1, &[1]));
    until(&node, Ok(None)).await;
    assert_eq!(commit(&node, 5).await, done());
    assert_eq!(committed(&node).await, Ok(Some(5)));
    let old = node.groups.of_group("g").unwrap();
    let waiting = join(&node);

    // The leader of the next epoch is somebody else.
    state(&node, &hosted, push(2, 2, &[1, 2]));
    assert_eq!(old.check(), Err(GroupError::NotCoordinator), "at once");
    assert!(node.groups.of_group("g").is_err());
    // It was answered in either way that sends the client to the new coordinator.
    let told = waiting.await.unwrap();
    let refused = match &told {
        Ok(Answer::Join(Err(refused))) => refused.error,
        Err(error) => *error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused, GroupError::NotCoordinator);

    state(&node, &hosted, push(1, 3, &[1]));
    until(&node, Ok(Some(5))).await;
    // The same epoch told again changes nothing.
    let present = node.groups.of_group("g").unwrap();
    node.groups.role_changed(&hosted);
    assert_eq!(present.check(), Ok(()));
    assert_eq!(old.check(), Err(GroupError::NotCoordinator));
    assert_eq!(commit(&node, 6).await, done());
    // A newer epoch of the same leader begins anew.
    state(&node, &hosted, push(1, 4, &[1]));
    assert_eq!(present.check(), Err(GroupError::NotCoordinator));
    until(&node, Ok(Some(6))).await;
    node.groups.end_all();
    let stopping = committed(&node).await;
    assert_eq!(stopping, Err(GroupError::NotCoordinator), "whatever the image says");
}

/// Another broker may have heard of the topic first, and have sent a client here.
#[tokio::test]
async fn who_has_not_heard_yet_that_it_coordinates_asks_for_patience() {
    let loading = Err(GroupError::CoordinatorLoadInProgress);
    let (node, disk) = (node(), Disk::new());
    assert_eq!(committed(&node).await, loading, "of the topic itself");
    let hosted = offsets_partition(&node, &disk);
    assert_eq!(committed(&node).await, loading, "its replica does not lead yet");
    state(&node, &hosted, push(1, 1, &[1]));
    until(&node, Ok(None)).await;

    // That somebody else does is no matter of patience.
    state(&node, &hosted, push(2, 2, &[1, 2]));
    let mut topic = node.view.image().topics[&hosted.topic_partition.topic].clone();
    topic.partitions.insert(0, push(2, 2, &[1, 2]).partition);
    let topics = BTreeMap::from([(hosted.topic_partition.topic.clone(), topic)]);
    let delta = ClusterDelta { topics, ..ClusterDelta::default() };
    node.view.apply((BrokerId(1), ControllerEpoch(1)), &delta);
    assert_eq!(committed(&node).await, Err(GroupError::NotCoordinator));
}

#[tokio::test]
async fn nothing_is_told_before_it_is_committed() {
    let (node, disk) = (node(), Disk::new());
    let hosted = offsets_partition(&node, &disk);
    state(&node, &hosted, push(1, 1, &[1]));
    until(&node, Ok(None)).await;
    assert_eq!(commit(&node, 5).await, done());
    // In the next epoch broker 2 is in the ISR, and nobody knows what it has.
    state(&node, &hosted, push(1, 2, &[1, 2]));
    let loading = Err(GroupError::CoordinatorLoadInProgress);
    assert_eq!(committed(&node).await, loading);
    let refused = commit(&node, 6).await.unwrap();
    assert_eq!(refused, Err(GroupError::CoordinatorLoadInProgress));
    follower_has(&node, &hosted, 1, 1);
    until(&node, Ok(Some(5))).await;
    // A commit counts once broker 2 has it.
    let mut waiting = commit(&node, 7);
    log_ends_at(&hosted, 2).await;
    assert_eq!(committed(&node).await, Ok(Some(5)));
    assert!(waiting.try_recv().is_err());
    follower_has(&node, &hosted, 2, 2);
    assert_eq!(waiting.await, done());
    assert_eq!(committed(&node).await, Ok(Some(7)));
}

#[tokio::test]
async fn a_connection_that_ends_before_its_join_is_looked_at_leaves_no_member() {
    let (node, disk) = (node(), Disk::new());
    let hosted = offsets_partition(&node, &disk);
    state(&node, &hosted, push(1, 1, &[1]));
    until(&node, Ok(None)).await;
    let members = async || {
        let coordinator = node.groups.of_group("joined").unwrap();
        let members = |groups: &Groups| groups.describe("joined").map(|group| group.members.len());
        coordinator.look(members).await.unwrap()
    };
    for (ends, expected) in [(true, Some(0)), (false, Some(1))] {
        let coordinator = node.groups.of_group("joined").unwrap();
        let reply = Reply::new(|_, _| ());
        let (waiter, gone) = (node.groups.next_waiter(), reply.gone());
        coordinator.ask(waiter, new_join(waiter), reply, &mut Flush::default());
        let wait = GroupWait::new(coordinator, waiter, Arc::default(), gone);
        // The coordinator runs in this thread: it has seen neither the request nor the end.
        let _wait = (!ends).then_some(wait);
        assert_eq!(members().await, expected);
    }
}

/// What memory says is not trusted once an invariant is broken, and the log is read anew; only what cannot be taken back.
#[tokio::test]
async fn a_coordinator_that_begins_anew_waits_for_what_itself_has_written() {
    let (node, disk) = (node(), Disk::new());
    let hosted = offsets_partition(&node, &disk);
    state(&node, &hosted, push(1, 1, &[1, 2]));
    follower_in(&node, &hosted, 1, None, 0);
    until(&node, Ok(None)).await;
    let first = commit(&node, 5);
    log_ends_at(&hosted, 1).await;
    follower_in(&node, &hosted, 1, Some(1), 1);
    assert_eq!(first.await, done());
    let second = commit(&node, 6);
    log_ends_at(&hosted, 2).await;
    let coordinator = node.groups.of_group("g").unwrap();
    let looked = coordinator.look(|_| panic!("a broken invariant, on purpose")).await;
    assert_eq!(looked, Err::<(), _>(GroupError::NotCoordinator));
    assert_eq!(second.await, Ok(Err(GroupError::NotCoordinator)), "nobody is left waiting");
    until(&node, Err(GroupError::CoordinatorLoadInProgress)).await;
    // Broker 2 has it only now, when a load that did not wait would be over.
    let waits = async {
        while hosted.sessions() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits).await.expect("in time");
    follower_in(&node, &hosted, 1, Some(1), 2);
    until(&node, Ok(Some(6))).await;
    assert_eq!(coordinator.check(), Ok(()), "the same leadership goes on");
}

#[tokio::test]
async fn after_a_long_stop_of_the_process_nothing_is_told_from_memory() {
    let (node, disk) = (node(), Disk::new());
    let hosted = offsets_partition(&node, &disk);
    state(&node, &hosted, push(1, 1, &[1]));
    until(&node, Ok(None)).await;
    assert_eq!(commit(&node, 5).await, done());
    let hour_later = Now(crate::clock::since_boot().0 + 3_600_000);
    node.pulse.beat(hour_later);
    assert_eq!(committed(&node).await, Err(GroupError::NotCoordinator));
    assert_eq!(commit(&node, 6).await, Ok(Err(GroupError::NotCoordinator)));
}

/// Sets a flag when it is gone.
struct Kept(Arc<AtomicBool>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        b"a request"
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What the coordinator has not looked at counts as a request still; a join that waits for others does not.
#[tokio::test]
async fn a_request_in_the_inbox_keeps_its_share_of_the_memory_for_requests() {
    let (node, disk) = (node(), Disk::new());
    let hosted = offsets_partition(&node, &disk);
    state(&node, &hosted, push(1, 1, &[1, 2]));
    follower_in(&node, &hosted, 1, None, 0);
    until(&node, Ok(None)).await;
    let (out, _client) = connection().await;
    let ask = |request: Request| {
        let given_back = Arc::new(AtomicBool::new(false));
        let context = RequestContext {
            node: &node,
            out: &out,
            slot: out.reserve(),
            version: 3,
            correlation_id: 1,
            client_id: None,
            frame: &bytes::Bytes::from_owner(Kept(given_back.clone())),
        };
        let handled = kafka::handle(&context, request, &mut Flush::default()).unwrap();
        let Handled::Group(wait) = handled else { panic!("not asked of a coordinator") };
        (wait, given_back)
    };
    let mut join = messages::JoinGroupRequest::default();
    join.group_id = "joined".into();
    (join.session_timeout_ms, join.rebalance_timeout_ms) = (30_000, 30_000);
    join.protocol_type = "consumer".into();
    let mut protocol = messages::join_group_request::JoinGroupRequestProtocol::default();
    protocol.name = "range".into();
    join.protocols.push(protocol);
    let (join, given_back) = ask(Request::JoinGroup(join));
    // The coordinator runs in this thread: it has not seen it.
    assert!(!given_back.load(Ordering::Acquire));
    let seen = node.groups.of_group("g").unwrap().look(|_| ()).await;
    assert!(seen.is_ok() && given_back.load(Ordering::Acquire) && !join.is_answered());

    let mut commit = messages::OffsetCommitRequest::default();
    commit.group_id = "g".into();
    commit.generation_id_or_member_epoch = -1;
    let mut topic = messages::offset_commit_request::OffsetCommitRequestTopic::default();
    topic.name = OFFSETS_TOPIC.into();
    topic.partitions.push(Default::default());
    commit.topics.push(topic);
    let (commit, given_back) = ask(Request::OffsetCommit(commit));
    log_ends_at(&hosted, 1).await;
    assert!(!given_back.load(Ordering::Acquire) && !commit.is_answered(), "broker 2 lacks it");
    follower_in(&node, &hosted, 1, Some(1), 1);
    while !commit.is_answered() {
        tokio::task::yield_now().await;
    }
    assert!(given_back.load(Ordering::Acquire));
}
