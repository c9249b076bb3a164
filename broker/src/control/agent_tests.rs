//! What the agent makes of pushes.

use std::fs;
use std::path::PathBuf;

use barnabas_log::testing::TempDir;
use barnabas_types::{Acks, BrokerId, ClusterDelta, Offset, TopicConfig, TopicId};

use super::*;
use crate::testing::{Disk, LIFE, MY_EPOCH, node, produce, push, tp};

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
        let (node, disk) = (node(), Disk::new());
        let flushers = vec![Some(disk.flusher(&node))];
        let Disk { storage, temp, .. } = disk;
        let agent = Agent::new(node.clone(), storage, flushers, watch::channel(false).0);
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

    fn hosted(&self) -> Option<Arc<Hosted>> {
        self.node.partitions.get("t", 0)
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
async fn r28_directories_of_which_nobody_speaks_go_with_the_first_full_state() {
    let mut rig = Rig::new();
    let (partition, topic_id, config) = (tp("gone", 3), LIFE.topic_id, LogConfig::default());
    let gone = Wanted { partition, topic_id, config, is_new: true };
    drop(rig.agent.storage.open_all(&[gone]));
    assert!(rig.directory("gone-3").exists());
    rig.update(3, changed(topic(LIFE, 5, &[1]))).unwrap();
    assert!(rig.directory("gone-3").exists(), "a part of the state says nothing of the rest");
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    assert!(!rig.directory("gone-3").exists() && rig.directory("t-0").exists());
    rig.update(4, full(BTreeMap::new())).unwrap();
    assert!(rig.hosted().is_none() && !rig.directory("t-0").exists());
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_tried_again_without_a_push() {
    let mut rig = Rig::new();
    fs::write(rig.directory("t-0"), b"a file in the way").unwrap();
    rig.update(3, full(topic(LIFE, 5, &[1]))).unwrap();
    assert!(rig.hosted().is_none());
    rig.agent.handle(Message::Checkpoint);
    assert!(rig.hosted().is_none());
    fs::remove_file(rig.directory("t-0")).unwrap();
    rig.agent.handle(Message::Checkpoint);
    let hosted = rig.hosted().unwrap();
    assert!(hosted.leads_in(LeaderEpoch(5)), "with the state that was pushed");
    assert!(rig.agent.offline.is_empty());
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
