//! What the agent makes of pushes.

use std::fs;
use std::path::{Path, PathBuf};

use barnabas_log::testing::TempDir;
use barnabas_log::{LogConfig, Op};
use barnabas_types::{
    Acks, BrokerId, BrokerImage, ClusterDelta, DirectoryId, FlushMode, Offset, Partition,
    TopicConfig, TopicId, TopicImage, TopicName,
};
use rustix::io::Errno;

use super::*;
use crate::journal::{Kind, Origin};
use crate::storage::Wanted;
use crate::testing::{
    Disk, LIFE, MY_EPOCH, Refusals, connection, node, pending, produce, push, registered, tp,
};

const NEXT_LIFE: Incarnation = Incarnation { topic_id: TopicId([8; 16]), czxid: 80 };

struct Rig {
    agent: Agent,
    node: Arc<Node>,
    temp: TempDir,
    version: u64,
}

impl Rig {
    /// Registered; controllers from epoch 3 on are obeyed.
    fn new() -> Self {
        Self::on(Disk::new())
    }

    fn on(disk: Disk) -> Self {
        let node = node();
        let outward: std::sync::Weak<dyn crate::partition::Outward> = Arc::downgrade(&node) as _;
        let flushers = disk.storage.start_flushers(&outward);
        let Disk { storage, temp, .. } = disk;
        let agent =
            Agent::new(node.clone(), storage, flushers, watch::channel(TailMark::default()).0);
        let mut rig = Self { agent, node, temp, version: 0 };
        rig.agent.registered(MY_EPOCH, ControllerEpoch(3));
        rig
    }

    fn update(&mut self, controller_epoch: i32, delta: ClusterDelta) -> Result<(), Condition> {
        self.version += 1;
        self.update_at(controller_epoch, self.version, delta)
    }

    fn update_at(
        &mut self,
        controller_epoch: i32,
        version: u64,
        delta: ClusterDelta,
    ) -> Result<(), Condition> {
        let update = StateUpdate {
            controller: BrokerId(9),
            controller_epoch: ControllerEpoch(controller_epoch),
            target: MY_EPOCH,
            version,
            delta,
        };
        self.agent.update(&update).map(|_| ())
    }

    /// A push to the registration after the first, which it shows with or without a lost tail.
    fn pushed_to_next(&mut self, tail_lost: bool, delta: ClusterDelta) -> Result<(), Condition> {
        self.version += 1;
        let target = BrokerEpoch(MY_EPOCH.0 + 1);
        let me = BrokerImage { tail_lost, ..registered(target) };
        let brokers = Some(BTreeMap::from([(self.node.me, me)]));
        let update = StateUpdate {
            controller: BrokerId(9),
            controller_epoch: ControllerEpoch(3),
            target,
            version: self.version,
            delta: ClusterDelta { brokers, ..delta },
        };
        self.agent.update(&update).map(|_| ())
    }

    fn hosted(&self) -> Option<Arc<Hosted>> {
        self.node.partitions.get("t", 0)
    }

    /// What the controller is told that this broker cannot serve.
    fn told(&self) -> Vec<TopicPartition> {
        self.node.failed.present().into_keys().collect()
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }
}

/// Topic `t` with partition 0 in this life, led by 1 in this epoch, assigned to these brokers.
fn topic(life: Incarnation, epoch: i32, assigned: &[i32]) -> BTreeMap<TopicName, TopicImage> {
    let mut partition = push(1, epoch, &[1]).partition;
    partition.assigned_replicas = assigned.iter().copied().map(BrokerId).collect();
    if !assigned.contains(&1) {
        partition.state.leader = None;
    }
    let image = TopicImage {
        incarnation: life,
        config: TopicConfig::default(),
        partitions: BTreeMap::from([(0, partition)]),
        ..TopicImage::default()
    };
    BTreeMap::from([(tp("t", 0).topic, image)])
}

fn full(topics: BTreeMap<TopicName, TopicImage>) -> ClusterDelta {
    let brokers = Some(BTreeMap::new());
    ClusterDelta { full: true, brokers, topics, ..ClusterDelta::default() }
}

fn changed(topics: BTreeMap<TopicName, TopicImage>) -> ClusterDelta {
    ClusterDelta { topics, ..ClusterDelta::default() }
}

#[tokio::test]
async fn r22_an_older_controller_and_another_target_are_refused() {
    let mut rig = Rig::new();
    let delta = full(topic(LIFE, 1, &[1]));
    let refused = rig.update(2, delta.clone());
    assert!(matches!(refused, Err(Condition::StaleControllerEpoch { .. })), "{refused:?}");
    rig.agent.registered(BrokerEpoch(MY_EPOCH.0 + 1), ControllerEpoch(3));
    let refused = rig.update(3, delta);
    assert!(matches!(refused, Err(Condition::StaleBrokerEpoch { .. })), "{refused:?}");
    assert!(rig.hosted().is_none() && !rig.directory("t-0").exists());
}

#[tokio::test]
async fn r22_a_state_that_was_overtaken_deletes_nothing() {
    let mut rig = Rig::new();
    rig.update_at(3, 7, full(topic(LIFE, 5, &[1]))).unwrap();
    let overtaken = rig.update_at(3, 6, full(BTreeMap::new()));
    assert!(matches!(overtaken, Err(Condition::InvalidUpdateVersion { .. })), "{overtaken:?}");
    assert!(rig.hosted().is_some());
    rig.update_at(3, 7, full(topic(LIFE, 5, &[1]))).unwrap();
    // Versions begin anew with each term.
    rig.update_at(4, 1, full(BTreeMap::new())).unwrap();
    assert!(rig.hosted().is_none());
}

#[tokio::test]
async fn r22_a_tombstone_keeps_out_what_is_older_than_the_deletion() {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    assert!(rig.hosted().is_some());
    rig.update(3, changed(topic(LIFE, 6, &[2]))).unwrap();
    assert!(rig.hosted().is_none() && !rig.directory("t-0").exists());
    // A delayed push, given to the replica itself: the image refuses it too, so it is offered there directly.
    for late in [5, 6] {
        let topics = topic(LIFE, late, &[1]);
        let image = &topics[&tp("t", 0).topic];
        rig.agent.open_missing(MY_EPOCH, &[(tp("t", 0), image, &image.partitions[&0])]);
        assert!(rig.hosted().is_none(), "epoch {late}");
    }
    rig.update(3, changed(topic(LIFE, 7, &[1]))).unwrap();
    assert!(rig.hosted().is_some());
}

#[tokio::test]
async fn r27_a_topic_that_was_created_anew_begins_with_an_empty_log() {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    let old = rig.hosted().unwrap();
    produce(&rig.node, &old, Acks::None, 0, None);
    assert_eq!(old.consumer_view(None).unwrap().log_end, Offset(1));
    let mut delta = changed(topic(NEXT_LIFE, 1, &[1]));
    delta.deleted.push((tp("t", 0).topic, LIFE));
    rig.update(3, delta).unwrap();
    let new = rig.hosted().unwrap();
    assert_eq!((new.incarnation, new.consumer_view(None).unwrap().log_end), (NEXT_LIFE, Offset(0)));
    assert_eq!(old.consumer_view(None), Err(Condition::NotLeaderOrFollower));
    rig.update(3, changed(topic(LIFE, 9, &[1]))).unwrap();
    assert_eq!(rig.hosted().unwrap().incarnation, NEXT_LIFE, "the old life is over");
}

#[tokio::test]
async fn r28_the_next_life_of_a_topic_that_has_no_replica_here_leaves_no_directory() {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    rig.update(3, changed(topic(NEXT_LIFE, 1, &[2]))).unwrap();
    assert!(rig.hosted().is_none() && !rig.directory("t-0").exists());
}

#[tokio::test]
async fn r28_directories_of_which_nobody_speaks_are_set_aside_with_the_first_full_state() {
    let mut rig = Rig::new();
    let (partition, topic_id, config) = (tp("gone", 3), LIFE.topic_id, LogConfig::default());
    let gone = Wanted { partition, topic_id, config, is_new: true };
    drop(rig.agent.storage.open_all(&[gone]));
    assert!(rig.directory("gone-3").exists());
    rig.update(3, changed(topic(LIFE, 5, &[1]))).unwrap();
    assert!(rig.directory("gone-3").exists(), "a part of the state says nothing of the rest");
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    assert!(!rig.directory("gone-3").exists() && rig.directory("t-0").exists());
    let stray = rig.directory(&format!("gone-3.{}-stray", LIFE.topic_id));
    assert!(
        stray.is_dir(),
        "nobody knows whether it was deleted or forgotten: it is kept for a week"
    );
    rig.update(4, full(BTreeMap::new())).unwrap();
    assert!(rig.hosted().is_none() && !rig.directory("t-0").exists());
}

#[tokio::test]
async fn a_topic_whose_node_cannot_be_read_is_left_as_it_is() {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    let unreadable =
        || ClusterDelta { unreadable: [tp("t", 0).topic].into(), ..full(BTreeMap::new()) };
    rig.update(4, unreadable()).unwrap();
    assert!(rig.hosted().is_some() && rig.directory("t-0").is_dir());
    rig.agent.stop();
    let Rig { agent, node, temp, .. } = rig;
    drop((agent, node));
    let mut rig = Rig::on(Disk::again(temp));
    rig.update(4, unreadable()).unwrap();
    assert!(rig.hosted().is_none() && rig.directory("t-0").is_dir(), "closed, and untouched");
    rig.update(5, full(topic(LIFE, 6, &[1]))).unwrap();
    assert!(rig.hosted().is_some(), "the node is restored");
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_tried_again_without_a_push() {
    let mut rig = Rig::new();
    fs::write(rig.directory("t-0"), b"a file in the way").unwrap();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    assert!(rig.hosted().is_none());
    assert_eq!(rig.told(), [tp("t", 0)]);
    rig.agent.retry_now();
    rig.agent.handle(Message::Retry);
    assert!(rig.hosted().is_none() && rig.agent.next_retry().is_some());
    fs::remove_file(rig.directory("t-0")).unwrap();
    rig.agent.retry_now();
    rig.agent.handle(Message::Retry);
    let hosted = rig.hosted().unwrap();
    assert!(hosted.leads_in(LeaderEpoch(5)), "with the state that was pushed");
    assert!(rig.agent.failed.is_empty() && rig.told().is_empty());
}

#[tokio::test]
async fn a_stop_closes_every_log_and_leaves_the_clean_marker() {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    let hosted = rig.hosted().unwrap();
    produce(&rig.node, &hosted, Acks::None, 0, None);
    rig.agent.stop();
    assert!(rig.directory(".kafka_cleanshutdown").exists());
    let log_dir = hosted.directory.log_dir().unwrap();
    assert_eq!(log_dir.high_watermark_of(&tp("t", 0)), Some(Offset(1)));
    assert_eq!(log_dir.recovery_point_of(&tp("t", 0)), Some(Offset(1)));
}

/// Partitions 0 to 3 of `t`, led by 1 in this epoch (by 2, if it is even) and assigned to both.
fn four(epoch: i32) -> BTreeMap<TopicName, TopicImage> {
    let mut topics = topic(LIFE, epoch, &[1, 2]);
    for image in topics.values_mut() {
        let mut partition: Partition = image.partitions[&0].clone();
        partition.state = push(if epoch % 2 == 0 { 2 } else { 1 }, epoch, &[1, 2]).partition.state;
        image.partitions = (0..4).map(|index| (index, partition.clone())).collect();
    }
    topics
}

impl Rig {
    fn at(&self, partition: i32) -> Option<Arc<Hosted>> {
        self.node.partitions.get("t", partition)
    }

    /// Takes note of the logs that have failed.
    async fn failures(&mut self) {
        let failures = self.node.failed.taken().await;
        self.agent.handle(Message::LogsFailed(failures));
    }

    fn retry(&mut self) {
        self.agent.retry_now();
        self.agent.handle(Message::Retry);
    }
}

fn write_in(op: &Op<'_>, part: &str) -> bool {
    matches!(op, Op::Write { path, .. } if path.to_str().unwrap().contains(part))
}

fn log_end(hosted: &Hosted) -> Offset {
    hosted.fetch_position().unwrap().log_end
}

#[tokio::test]
async fn a_full_disk_refuses_producers_fences_nobody_and_is_over_when_there_is_room() {
    let (refusals, disk) = Refusals::disk();
    let mut rig = Rig::on(Disk::on(disk));
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    let hosted = rig.hosted().unwrap();
    produce(&rig.node, &hosted, Acks::None, 0, None);
    refusals.set(|op| write_in(op, "t-0").then_some(Errno::NOSPC));
    let (out, _client) = connection().await;
    let waiting = pending(&out, out.reserve(), 1);
    produce(&rig.node, &hosted, Acks::Leader, 1, Some(waiting.clone()));
    assert!(waiting.is_done(), "answered at once");
    assert!(hosted.leads_in(LeaderEpoch(5)) && rig.told().is_empty());
    refusals.lift();
    produce(&rig.node, &hosted, Acks::None, 1, None);
    assert_eq!(
        hosted.consumer_view(None).unwrap().log_end,
        Offset(1),
        "full until somebody has looked"
    );
    rig.agent.storage.directories().iter().for_each(|directory| directory.look_at_space(0));
    produce(&rig.node, &hosted, Acks::None, 1, None);
    assert_eq!(hosted.consumer_view(None).unwrap().log_end, Offset(2));
}

#[tokio::test]
async fn r38_a_failed_write_is_reported_and_its_replica_follows_once_another_leads() {
    let (refusals, disk) = Refusals::disk();
    let mut rig = Rig::on(Disk::on(disk));
    rig.update(3, full(four(5))).unwrap();
    let hosted = rig.at(1).unwrap();
    produce(&rig.node, &hosted, Acks::None, 0, None);
    refusals.set(|op| write_in(op, "t-1").then_some(Errno::IO));
    produce(&rig.node, &hosted, Acks::None, 1, None);
    refusals.lift();
    rig.failures().await;
    assert_eq!(rig.told(), [tp("t", 1)]);
    assert!(rig.at(1).is_none() && rig.at(0).unwrap().leads_in(LeaderEpoch(5)));
    rig.retry();
    assert!(rig.at(1).is_none(), "one leader epoch, one leader, one life");
    rig.update(3, changed(four(6))).unwrap();
    let again = rig.at(1).unwrap();
    assert!(!Arc::ptr_eq(&again, &hosted) && rig.told().is_empty());
    assert_eq!(log_end(&again), Offset(1), "what was written before is there");
    assert!(!rig.directory("barnabas.tail_lost").exists());
}

#[tokio::test]
async fn r38_a_failed_sync_is_a_lost_tail_and_the_log_comes_back_cut_under_a_new_registration() {
    let (refusals, disk) = Refusals::disk();
    let mut rig = Rig::on(Disk::on(disk));
    let mark = rig.agent.tail_lost.subscribe();
    let mut topics = four(5);
    for image in topics.values_mut() {
        image.config.flush_mode = barnabas_types::FlushMode::Sync;
    }
    rig.update(3, full(topics.clone())).unwrap();
    let hosted = rig.at(2).unwrap();
    let in_2 = |op: &Op<'_>| {
        matches!(op, Op::SyncData(path) if path.to_str().unwrap().contains("t-2"))
            .then_some(Errno::IO)
    };
    refusals.set(in_2);
    produce(&rig.node, &hosted, Acks::None, 0, None);
    rig.failures().await;
    refusals.lift();
    assert!(rig.directory("barnabas.tail_lost").exists(), "durable");
    assert_eq!(*mark.borrow(), TailMark { lost: true, failures: 1 });
    assert_eq!(rig.told(), [tp("t", 2)]);
    for image in topics.values_mut() {
        let state = push(2, 6, &[1, 2]).partition.state;
        image.partitions.values_mut().for_each(|p| p.state = state.clone());
    }
    rig.update(3, changed(topics.clone())).unwrap();
    rig.retry();
    assert!(rig.at(2).is_none(), "not under the registration under which it reported more");
    rig.agent.registered(BrokerEpoch(MY_EPOCH.0 + 1), ControllerEpoch(3));
    rig.agent.handle(Message::Retry);
    assert!(rig.at(2).is_none(), "not by a state that was pushed to the old registration");
    rig.pushed_to_next(false, changed(topics.clone())).unwrap();
    assert!(rig.at(2).is_none(), "this registration was asked for before the tail was lost");
    rig.pushed_to_next(true, changed(topics)).unwrap();
    let again = rig.at(2).unwrap();
    assert!(rig.told().is_empty());
    let kept = log_end(&again);
    assert_eq!(kept, Offset(0), "cut to what was flushed");
}

#[tokio::test]
async fn a_directory_that_fails_takes_its_partitions_with_it_and_no_others() {
    let (refusals, disk) = Refusals::disk();
    let mut rig = Rig::on(Disk::with_directories(disk, &["a", "b"]));
    rig.update(3, full(four(5))).unwrap();
    refusals.set(|op| {
        let path = match op {
            Op::Write { path, .. } | Op::SyncData(path) | Op::Create { path, .. } => path,
            _ => return None,
        };
        path.to_str().unwrap().contains("/b/").then_some(Errno::IO)
    });
    let hosted = rig.at(1).unwrap();
    assert!(hosted.directory.path().ends_with("b"));
    produce(&rig.node, &hosted, Acks::None, 0, None);
    rig.failures().await;
    assert_eq!(rig.told(), [tp("t", 1), tp("t", 3)]);
    assert!(hosted.directory.offline_reason().is_some() && rig.at(3).is_none());
    assert!(rig.at(0).unwrap().leads_in(LeaderEpoch(5)));
    assert!(rig.at(2).unwrap().leads_in(LeaderEpoch(5)));
    refusals.lift();
    rig.update(3, changed(four(6))).unwrap();
    rig.retry();
    assert_eq!(rig.told(), [tp("t", 1), tp("t", 3)], "until the broker restarts");
    rig.agent.stop();
    assert!(rig.directory("a/.kafka_cleanshutdown").exists());
    assert!(!rig.directory("b/.kafka_cleanshutdown").exists());
    assert!(rig.directory("a/barnabas.tail_lost").exists(), "what was in b may be anything");
}

#[tokio::test]
async fn r6_a_log_that_is_shorter_than_it_was_is_served_only_under_a_registration_that_says_so() {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    let hosted = rig.hosted().unwrap();
    produce(&rig.node, &hosted, Acks::None, 0, None);
    produce(&rig.node, &hosted, Acks::None, 1, None);
    rig.agent.stop();
    let Rig { agent, node, temp, .. } = rig;
    drop((agent, hosted, node));
    for name in [".kafka_cleanshutdown", "t-0/00000000000000000000.log"] {
        fs::remove_file(temp.path().join(name)).unwrap();
    }
    let mut rig = Rig::on(Disk::again(temp));
    let mark = rig.agent.tail_lost.subscribe();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    assert!(rig.hosted().is_none());
    assert_eq!((rig.told(), mark.borrow().failures), (vec![tp("t", 0)], 1));
    rig.agent.registered(BrokerEpoch(MY_EPOCH.0 + 1), ControllerEpoch(3));
    rig.agent.handle(Message::Retry);
    assert!(rig.hosted().is_none(), "nothing was pushed to this registration yet");
    rig.pushed_to_next(true, changed(topic(LIFE, 6, &[1]))).unwrap();
    assert!(rig.hosted().is_some() && rig.told().is_empty());
    assert_eq!(mark.borrow().failures, 1, "told once");
}

/// The loss records after a host crash, when the first state says `topics`; one record was written before.
fn told_after_a_host_crash(topics: BTreeMap<TopicName, TopicImage>) -> Vec<serde_json::Value> {
    let crash = |path: &Path| fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
    told_after(crash, Disk::after_a_boot, topics)
}

/// The same after the log directory was emptied.
fn told_after_a_wipe(topics: BTreeMap<TopicName, TopicImage>) -> Vec<serde_json::Value> {
    let wipe = |path: &Path| {
        fs::remove_dir_all(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    told_after(wipe, Disk::again, topics)
}

fn told_after(
    what: impl FnOnce(&Path),
    start: fn(TempDir) -> Disk,
    topics: BTreeMap<TopicName, TopicImage>,
) -> Vec<serde_json::Value> {
    let mut rig = Rig::new();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    let hosted = rig.hosted().unwrap();
    produce(&rig.node, &hosted, Acks::None, 0, None);
    rig.agent.stop();
    let Rig { agent, node, temp, .. } = rig;
    drop((agent, hosted, node));
    what(temp.path());
    let mut rig = Rig::on(start(temp));
    rig.agent.tail_lost.send_replace(TailMark { lost: true, failures: 0 });
    rig.update(3, full(topics)).unwrap();
    let origin = Origin { broker: rig.node.me, directory: DirectoryId([1; 16]) };
    let thread = rig.node.journal.start(rig.agent.storage.clone(), origin).unwrap();
    rig.node.journal.stop();
    thread.join().unwrap();
    rig.node.journal.last(Kind::Loss, 1_000).into_iter().map(|entry| entry.body).collect()
}

/// The state with the ISR as it was before the crash.
fn before_the_crash(
    mut topics: BTreeMap<TopicName, TopicImage>,
) -> BTreeMap<TopicName, TopicImage> {
    for partition in topics.values_mut().flat_map(|topic| topic.partitions.values_mut()) {
        partition.state.leader = None;
        partition.state.isr = vec![(BrokerId(1), BrokerEpoch(MY_EPOCH.0 - 1))];
    }
    topics
}

#[tokio::test]
async fn after_a_crash_of_the_host_it_is_told_from_where_on_records_may_be_gone() {
    let lines = told_after_a_host_crash(before_the_crash(topic(LIFE, 5, &[1])));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line["cause"].as_str(), line["from"].as_i64()), (Some("host_crash"), Some(1)));
    assert!(line["to"].is_null() && line["at_least_to"] == 1, "{line}");
    assert_eq!(
        line["class"], "unknown",
        "what it noted is of epoch 5, in which it does not lead now"
    );
}

#[tokio::test]
async fn after_a_crash_the_leader_until_then_tells_how_it_had_acknowledged_and_nobody_else_does() {
    let class = |topics| {
        let lines = told_after_a_host_crash(topics);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((line["from"].as_i64(), line["to"].is_null()), (Some(1), true));
        (line["class"].as_str().unwrap().to_owned(), line["last_epoch"].as_i64())
    };
    // It was asked for no acknowledgement. The epoch after its own has no leader.
    let next = || before_the_crash(topic(LIFE, 6, &[1]));
    assert_eq!(class(next()), ("never acked".to_owned(), Some(5)));
    assert_eq!(class(before_the_crash(topic(LIFE, 7, &[1]))).0, "unknown", "who led in epoch 6?");
    // Broker 2 leads in the epoch after its own: from before the crash on, maybe, and this one copied from it.
    let mut led = next();
    for partition in led.values_mut().flat_map(|topic| topic.partitions.values_mut()) {
        partition.state.leader = Some(BrokerId(2));
        partition.state.isr.push((BrokerId(2), BrokerEpoch(7)));
    }
    assert_eq!(class(led).0, "unknown");
}

#[tokio::test]
async fn an_emptied_directory_is_told_as_such_in_either_flush_mode_and_is_bounded() {
    for flush_mode in [FlushMode::Async, FlushMode::Sync] {
        let mut topics = before_the_crash(topic(LIFE, 5, &[1]));
        topics.values_mut().for_each(|image| image.config.flush_mode = flush_mode);
        let lines = told_after_a_wipe(topics);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(
            (line["cause"].as_str(), line["from"].as_i64()),
            (Some("directory_lost"), Some(0))
        );
        assert!(line["to"].is_null() && line["class"] == "unknown", "{line}");
    }
    // Of several directories another one is gone: the tail of the broker counts as lost, but not of what is here.
    let whole = told_after(|_| (), Disk::again, before_the_crash(topic(LIFE, 5, &[1])));
    assert!(whole.is_empty(), "{whole:?}");
    let mut topics = before_the_crash(topic(LIFE, 5, &[1]));
    let image = topics.values_mut().next().unwrap();
    let partition = image.partitions[&0].clone();
    image.partitions.extend((1..130).map(|index| (index, partition.clone())));
    let lines = told_after_a_wipe(topics);
    let (named, rest): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["topic"] == "t");
    let [rest] = &rest[..] else { panic!("{rest:?}") };
    assert_eq!((named.len(), &rest["replicas"]), (100, &30.into()));
}

#[tokio::test]
async fn a_replica_that_came_to_the_broker_after_the_crash_has_lost_nothing() {
    let mut topics = before_the_crash(topic(LIFE, 5, &[1]));
    let image = topics.values_mut().next().unwrap();
    let mut joining = image.partitions[&0].clone();
    joining.state.isr = vec![(BrokerId(2), BrokerEpoch(7))];
    joining.assigned_replicas.push(BrokerId(2));
    joining.moving.adding = vec![BrokerId(1)];
    image.partitions.insert(1, joining);
    // Created, or admitted, since: under the present registration.
    let since = push(1, 5, &[1]).partition;
    assert_eq!(since.state.isr_epoch_of(BrokerId(1)), Some(MY_EPOCH));
    image.partitions.insert(2, since);
    let lines = told_after_a_host_crash(topics);
    let of: Vec<_> = lines.iter().map(|line| line["partition"].as_i64()).collect();
    assert_eq!(of, [Some(0)], "{lines:?}");
}

#[tokio::test]
async fn r22_a_failed_replica_that_is_not_wanted_any_more_leaves_no_directory() {
    let (refusals, disk) = Refusals::disk();
    let mut rig = Rig::on(Disk::on(disk));
    rig.update(3, full(four(5))).unwrap();
    refusals.set(|op| write_in(op, "t-").then_some(Errno::IO));
    for partition in [1, 2] {
        produce(&rig.node, &rig.at(partition).unwrap(), Acks::None, 0, None);
    }
    refusals.lift();
    rig.failures().await;
    assert_eq!(rig.told(), [tp("t", 1), tp("t", 2)]);
    let mut moved = four(6);
    for image in moved.values_mut() {
        image.partitions.retain(|index, _| *index == 1);
        image.partitions.get_mut(&1).unwrap().assigned_replicas = vec![BrokerId(2)];
    }
    rig.update(3, changed(moved)).unwrap();
    assert!(!rig.directory("t-1").exists() && rig.directory("t-2").exists());
    assert_eq!(rig.told(), [tp("t", 2)]);
    // A full state tells only of the topic's next life, which has no replica here.
    let mut next = topic(NEXT_LIFE, 0, &[2]);
    for image in next.values_mut() {
        let elsewhere = image.partitions[&0].clone();
        image.partitions.insert(2, elsewhere);
    }
    rig.update(3, full(next)).unwrap();
    assert!(!rig.directory("t-2").exists());
    let mut gone = changed(BTreeMap::new());
    gone.deleted.push((tp("t", 0).topic, NEXT_LIFE));
    rig.update(3, gone).unwrap();
    assert!((0..4).all(|index| !rig.directory(&format!("t-{index}")).exists()));
    assert!(rig.told().is_empty() && rig.agent.next_retry().is_none());
}
