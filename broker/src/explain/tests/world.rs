//! A small cluster as it is found when somebody asks, and ways to break it.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_proto::v1;
use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterDelta, ClusterImage, ControllerEpoch, LeaderEpoch, Moving, Now,
    Partition, PartitionState, TopicImage, TopicName, TopicPartition,
};

use crate::explain::Ages;
use crate::explain::cause::{Cause, in_order};
use crate::explain::facts::{BrokerFacts, Facts, Listener, Process, Reached};
use crate::explain::gather::as_found;
use crate::explain::judge;
use crate::testing::registered;

/// The partition of these worlds.
pub(in crate::explain) fn at() -> TopicPartition {
    TopicPartition { topic: TopicName::new("t").unwrap(), partition: 0 }
}

/// Brokers 1 to 3, all well; 1 is the controller and leads `t:0`, whose log ends at 100 everywhere.
pub(in crate::explain) struct World {
    pub(in crate::explain) image: ClusterImage,
    pub(super) ages: Ages,
    pub(super) brokers: BTreeMap<BrokerId, BrokerFacts>,
    /// Broker 1 has process 101 and `/etc/b1.yaml`, and so on.
    pub(super) processes: BTreeMap<BrokerId, Process>,
}

pub(super) fn id(id: i32) -> BrokerId {
    BrokerId(id)
}

pub(super) fn ids(of: &[i32]) -> Vec<BrokerId> {
    of.iter().copied().map(BrokerId).collect()
}

impl World {
    /// Replicas and ISR of the partition; the first of the ISR leads.
    pub(in crate::explain) fn new(replicas: &[i32], isr: &[i32]) -> Self {
        let epoch = BrokerEpoch(1);
        let state = PartitionState {
            leader: isr.first().copied().map(BrokerId),
            leader_epoch: LeaderEpoch(4),
            isr: isr.iter().map(|broker| (id(*broker), epoch)).collect(),
            ..PartitionState::default()
        };
        let partition =
            Partition { assigned_replicas: ids(replicas), moving: Moving::default(), state };
        let topic =
            TopicImage { partitions: BTreeMap::from([(0, partition)]), ..TopicImage::default() };
        let image = ClusterImage {
            controller: Some((id(1), ControllerEpoch(2))),
            brokers: (1..=3).map(|broker| (id(broker), registered(epoch))).collect(),
            topics: BTreeMap::from([(at().topic, topic)]),
            ..ClusterImage::default()
        };
        let process = |broker: i32| {
            let (pid, config_file) = (100 + broker.unsigned_abs(), format!("/etc/b{broker}.yaml"));
            (id(broker), Process { epoch, pid, config_file })
        };
        let processes = (1..=3).map(process).collect();
        let mut world = Self { image, ages: Ages::default(), brokers: BTreeMap::new(), processes };
        for broker in 1..=3 {
            let health = world.well(broker, replicas, isr);
            let found = BrokerFacts {
                kafka: format!("host{broker}:9092"),
                admin: format!("host{broker}:9192"),
                reached: Reached::Answered(Box::new(health)),
                listener: Listener::Answers,
            };
            world.brokers.insert(id(broker), found);
        }
        world
    }

    fn well(&self, broker: i32, replicas: &[i32], isr: &[i32]) -> v1::BrokerHealth {
        let leader = isr.first().copied();
        let leads = leader == Some(broker);
        let follower = |other: &&i32| **other != broker && leads;
        let followers = replicas.iter().filter(follower).map(|other| v1::FollowerHealth {
            broker_id: *other,
            log_end: Some(100),
            flushed: Some(100),
            in_isr: isr.contains(other),
            caught_up_ms: 10,
            last_fetch_ms: Some(10),
        });
        let replica = v1::ReplicaHealth {
            topic: "t".to_owned(),
            hosted: replicas.contains(&broker),
            directory: "/data".to_owned(),
            role: if leads { "leader" } else { "follower" }.to_owned(),
            leader_epoch: 4,
            log_start: 0,
            log_end: 100,
            flushed: 100,
            high_watermark: 100,
            last_epoch: 3,
            followers: followers.collect(),
            ..Default::default()
        };
        let link = |leader: i32| v1::LeaderLink {
            leader_id: leader,
            connected: true,
            since_ms: 60_000,
            answered_ms: 100,
            failure: String::new(),
        };
        let directory = v1::DirectoryHealth {
            path: "/data".to_owned(),
            room: "enough".to_owned(),
            free_bytes: Some(1 << 30),
            reserve_bytes: 1 << 20,
            ..Default::default()
        };
        v1::BrokerHealth {
            broker_id: broker,
            broker_epoch: 1,
            status: "ready".to_owned(),
            zookeeper_connected: true,
            controller_id: 1,
            controller_epoch: 2,
            zookeeper_servers: "zk1:2181,zk2:2181".to_owned(),
            directories: vec![directory],
            replicas: vec![replica],
            links: leader.filter(|_| !leads).map(link).into_iter().collect(),
            ..Default::default()
        }
    }

    /// What a broker tells.
    pub(super) fn health(&mut self, broker: i32) -> &mut v1::BrokerHealth {
        match &mut self.brokers.get_mut(&id(broker)).unwrap().reached {
            Reached::Answered(health) => health,
            other => panic!("{other:?}"),
        }
    }

    /// What it tells of its replica.
    pub(super) fn replica(&mut self, broker: i32) -> &mut v1::ReplicaHealth {
        &mut self.health(broker).replicas[0]
    }

    /// What was found out about it.
    pub(super) fn found(&mut self, broker: i32) -> &mut BrokerFacts {
        self.brokers.get_mut(&id(broker)).unwrap()
    }

    /// The partition's state.
    pub(super) fn state(&mut self) -> &mut PartitionState {
        &mut self.topic().partitions.get_mut(&0).unwrap().state
    }

    /// The topic.
    pub(super) fn topic(&mut self) -> &mut TopicImage {
        self.image.topics.get_mut(&at().topic).unwrap()
    }

    /// Its process is gone, and so is its registration.
    pub(super) fn dead(&mut self, broker: i32) -> &mut Self {
        let before = self.image.clone();
        self.image.brokers.remove(&id(broker));
        self.ages.note(Now(1_000), &before, &self.image, (&ClusterDelta::default(), &[]));
        let found = self.found(broker);
        (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
        self
    }

    /// Nobody leads, with this ISR.
    pub(super) fn leaderless(&mut self, isr: &[i32]) -> &mut Self {
        let state = self.state();
        state.leader = None;
        state.isr = isr.iter().map(|broker| (id(*broker), BrokerEpoch(1))).collect();
        for broker in self.brokers.keys().copied().collect::<Vec<_>>() {
            if let Reached::Answered(health) = &mut self.brokers.get_mut(&broker).unwrap().reached {
                health.links.clear();
                let replica = &mut health.replicas[0];
                replica.role = "leaderless".to_owned();
                replica.followers.clear();
            }
        }
        self
    }

    /// `min.insync.replicas`.
    pub(super) fn min_insync(&mut self, min: u32) -> &mut Self {
        self.topic().config.min_insync_replicas = min;
        self
    }

    /// A push of everything that is there.
    pub(super) fn changed(&self) -> ClusterDelta {
        ClusterDelta { topics: self.image.topics.clone(), ..ClusterDelta::default() }
    }

    /// As broker 3 finds them, 34 s after the first broker died.
    pub(super) fn facts(&self) -> Facts {
        Facts {
            me: id(3),
            image: as_found(Arc::new(self.image.clone()), &self.brokers),
            ages: self.ages.clone(),
            now: Now(35_000),
            answer_max_ms: 1_500,
            lag_time_max_ms: 10_000,
            fetch_wait_max_ms: 500,
            session_timeout_ms: 6_000,
            offsets_replication_factor: 3,
            brokers: self.brokers.clone(),
            processes: self.processes.clone(),
            gathered_ms: 40,
            now_ms: 1_000_000,
        }
    }

    /// Those of the partition.
    pub(super) fn causes(&self) -> Vec<Cause> {
        in_order(judge::partition(&self.facts(), &at()))
    }
}

/// The follower was left behind.
pub(super) fn out_of_isr(world: &mut World, broker: i32) {
    world.state().isr.retain(|(member, _)| *member != id(broker));
    let leader = world.replica(1);
    for follower in leader.followers.iter_mut().filter(|f| f.broker_id == broker) {
        (follower.in_isr, follower.caught_up_ms) = (false, 20_000);
    }
}

/// It stands still.
pub(super) fn silent(world: &mut World, broker: i32) {
    let found = world.found(broker);
    found.reached = Reached::Silent { connected: true };
    found.listener = Listener::Unreachable("it took the connection and did not answer".to_owned());
}

/// Its connection to the leader is closed again and again.
pub(super) fn broken(world: &mut World, follower: i32) {
    let link = &mut world.health(follower).links[0];
    (link.connected, link.failure) = (false, "the leader closed the connection".to_owned());
}
