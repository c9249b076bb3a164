//! What this broker tells of itself: how it is, where its replicas stand, how its groups are. Waits for no disk.

use std::time::Duration;

use barnabas_group::GroupError;
use barnabas_proto::v1;
use barnabas_replica::{FollowerPosition, Replica, Role};
use barnabas_types::{Now, TopicName, TopicPartition};
use tokio::time::Instant;

use super::Explainer;
use crate::clock::unix_ms;
use crate::node::Node;

/// Most partitions of one request that are looked at.
pub(super) const PARTITIONS_MAX: usize = 256;
/// Most offsets of a group that are told.
const OFFSETS_MAX: usize = 1_000;
/// How long a replica or a group that something holds is tried.
const PATIENCE: Duration = Duration::from_millis(500);
/// A group that has been between two generations for so long is told without being asked for: members join within seconds, but for those
/// that are busy with what they have read.
const WAITING_LONG_MS: u64 = 30_000;
/// Most of them that are told.
const WAITING_GROUPS_MAX: usize = 20;
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Answers within about [`PATIENCE`].
pub(super) async fn describe(
    explainer: &Explainer,
    request: v1::DescribeHealthRequest,
) -> v1::BrokerHealth {
    let node = explainer.node();
    let membership = *node.membership.borrow();
    let (zookeeper_away_ms, no_controller_ms) = node.contact.away_ms(node.now());
    let group = async {
        match &request.group {
            Some(group) => Some(group_health(node, group).await),
            None => None,
        }
    };
    let waiting =
        async { if request.waiting_groups { groups_that_wait(node).await } else { Vec::new() } };
    let (replicas, group, mut waiting) =
        tokio::join!(replicas(node, &request.partitions), group, waiting);
    let waiting_groups_total = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    waiting.sort_by_key(|group| std::cmp::Reverse(group.state_age_ms));
    waiting.truncate(WAITING_GROUPS_MAX);
    v1::BrokerHealth {
        broker_id: node.me.0,
        broker_epoch: membership.broker_epoch.map_or(0, |epoch| epoch.0),
        status: explainer.health.status().to_owned(),
        zookeeper_connected: membership.connected,
        zookeeper_away_ms,
        controller_id: membership.controller.map_or(-1, |(id, _)| id.0),
        controller_epoch: membership.controller.map_or(0, |(_, epoch)| epoch.0),
        no_controller_ms,
        directories: directories(explainer),
        recovery: recovery(explainer),
        replicas,
        links: links(node),
        group,
        process: Some(v1::ProcessHealth {
            // The first process of a container has a number that means another one on the host.
            pid: if std::process::id() == 1 { 0 } else { std::process::id() },
            config_file: node.options.config_file.display().to_string(),
        }),
        zookeeper_servers: node.options.zookeeper_servers.clone(),
        waiting_groups: waiting,
        waiting_groups_total,
    }
}

fn directories(explainer: &Explainer) -> Vec<v1::DirectoryHealth> {
    let of = |directory: &std::sync::Arc<crate::storage::Directory>| v1::DirectoryHealth {
        path: directory.path().display().to_string(),
        offline_reason: directory.offline_reason().map(str::to_owned),
        room: directory.room().name().to_owned(),
        free_bytes: directory.free_bytes(),
        reserve_bytes: explainer.health.reserve_bytes(),
    };
    explainer.storage.directories().iter().map(of).collect()
}

fn recovery(explainer: &Explainer) -> Option<v1::RecoveryProgress> {
    if explainer.storage.opening().is_settled() {
        return None;
    }
    let recovered = explainer.storage.recovered();
    Some(v1::RecoveryProgress {
        opened: recovered.opened,
        of: recovered.of,
        scanned_bytes: recovered.scanned_bytes,
        bytes_to_scan: recovered.bytes_to_scan,
    })
}

fn links(node: &Node) -> Vec<v1::LeaderLink> {
    let now = Instant::now();
    let ms = |since: Instant| {
        u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX)
    };
    let links = node.followers.links().into_iter();
    links
        .map(|(leader, link)| v1::LeaderLink {
            leader_id: leader.0,
            connected: link.connected,
            since_ms: ms(link.since),
            answered_ms: ms(link.answered_at),
            failure: link.failure,
        })
        .collect()
}

/// In the order of the request. A replica whose lock the same one holds all the time is told to be held, one that somebody else has at
/// each try to be busy.
async fn replicas(node: &Node, asked: &[v1::FollowedPartition]) -> Vec<v1::ReplicaHealth> {
    let asked = &asked[..asked.len().min(PARTITIONS_MAX)];
    let deadline = Instant::now() + PATIENCE;
    let failed = node.failed.present();
    let mut tries = vec![Try::default(); asked.len()];
    loop {
        for (one, tried) in asked.iter().zip(&mut tries).filter(|(_, tried)| tried.told.is_none()) {
            match replica(node, one) {
                Ok(told) => tried.told = Some(told),
                Err(turn) => tried.taken(turn),
            }
        }
        if tries.iter().all(|tried| tried.told.is_some()) || Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    let whole = |(one, tried): (&v1::FollowedPartition, Try)| {
        let mut told = tried.over();
        (told.topic, told.partition) = (one.topic.clone(), one.partition);
        if let Ok(topic) = TopicName::new(&one.topic) {
            let at = TopicPartition { topic, partition: one.partition };
            told.failed = failed.contains_key(&at);
            told.failure = node.failed.reason(&at).filter(|_| told.failed).unwrap_or_default();
        }
        told
    };
    asked.iter().zip(tries).map(whole).collect()
}

/// What came of looking at one replica again and again.
#[derive(Clone, Default)]
struct Try {
    told: Option<v1::ReplicaHealth>,
    /// Whose turn it was at the first try.
    first: Option<u64>,
    /// Since then it was somebody else's.
    goes_on: bool,
}

impl Try {
    fn taken(&mut self, turn: u64) {
        let first = *self.first.get_or_insert(turn);
        self.goes_on |= first != turn;
    }

    fn over(self) -> v1::ReplicaHealth {
        self.told.unwrap_or_else(|| v1::ReplicaHealth {
            hosted: true,
            held: !self.goes_on,
            busy: self.goes_on,
            ..Default::default()
        })
    }
}

/// # Errors
/// Whose turn it is with the partition's lock.
fn replica(node: &Node, asked: &v1::FollowedPartition) -> Result<v1::ReplicaHealth, u64> {
    let Some(hosted) = node.partitions.get(&asked.topic, asked.partition) else {
        return Ok(v1::ReplicaHealth { last_epoch: -1, ..Default::default() });
    };
    let now = node.now();
    let mut told = hosted.try_look(|replica| standing(replica, now))?;
    told.directory = hosted.directory.path().display().to_string();
    Ok(told)
}

fn standing(replica: &Replica, now: Now) -> v1::ReplicaHealth {
    let role = match replica.role() {
        _ if replica.is_fenced() => "fenced",
        Role::Leader { .. } => "leader",
        Role::Follower { .. } => "follower",
        Role::Leaderless { .. } => "leaderless",
        Role::Idle | Role::Deleted => "idle",
    };
    let ago = |since: Now| now.0.saturating_sub(since.0);
    let follower = |f: FollowerPosition| v1::FollowerHealth {
        broker_id: f.broker.0,
        log_end: f.position.map(|(log_end, ..)| log_end.0),
        flushed: f.position.map(|(_, flushed, _)| flushed.0),
        in_isr: f.in_isr,
        caught_up_ms: ago(f.caught_up_at),
        last_fetch_ms: f.last_fetch_at.map(ago),
    };
    v1::ReplicaHealth {
        hosted: true,
        role: role.to_owned(),
        leader_epoch: replica.leader_epoch().map_or(-1, |epoch| epoch.0),
        partition_epoch: replica.partition_epoch().map_or(-1, |epoch| epoch.0),
        log_start: replica.log_start().0,
        log_end: replica.log_end().0,
        flushed: replica.flushed().0,
        high_watermark: replica.high_watermark().0,
        last_epoch: replica.last_epoch().map_or(-1, |epoch| epoch.0),
        followers: replica.follower_positions().into_iter().map(follower).collect(),
        ..Default::default()
    }
}

async fn group_health(node: &Node, group: &str) -> v1::GroupHealth {
    let coordinator = match node.groups.of_group(group) {
        Ok(coordinator) => coordinator,
        Err(_) => return v1::GroupHealth::default(),
    };
    let id = group.to_owned();
    let look = coordinator.look(move |groups| {
        let mut told = v1::GroupHealth { coordinated: true, ..Default::default() };
        if let Some(found) = groups.describe(&id) {
            told.state = found.state.name().to_owned();
            told.generation = found.generation;
            let age = |since: i64| u64::try_from(unix_ms().saturating_sub(since)).unwrap_or(0);
            told.state_age_ms = found.state_since_ms.map(age);
            let members = found.members.iter().map(|member| v1::GroupMember {
                member_id: member.member_id.to_string(),
                client_id: member.client_id.to_string(),
                client_host: member.client_host.to_string(),
            });
            told.members = members.collect();
        }
        let offsets = groups.offsets(&id).take(OFFSETS_MAX);
        let offsets = offsets.map(|(topic, partition, offset)| v1::GroupOffset {
            topic: topic.to_string(),
            partition,
            offset: offset.offset,
        });
        told.offsets = offsets.collect();
        told
    });
    match tokio::time::timeout(PATIENCE, look).await {
        Ok(Ok(told)) => told,
        Ok(Err(GroupError::CoordinatorLoadInProgress)) => {
            v1::GroupHealth { coordinated: true, loading: true, ..Default::default() }
        }
        Ok(Err(_)) | Err(_) => v1::GroupHealth::default(),
    }
}

/// Those that this broker coordinates and that have been between two generations for long.
async fn groups_that_wait(node: &Node) -> Vec<v1::WaitingGroup> {
    let mut waiting = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    for coordinator in node.groups.all() {
        let look = coordinator.look(|groups| {
            let between =
                |state: &str| matches!(state, "PreparingRebalance" | "CompletingRebalance");
            let named = groups.list().filter(|listed| between(listed.state.name()));
            let described = named.filter_map(|listed| {
                let found = groups.describe(&listed.group)?;
                let since = found.state_since_ms?;
                Some(v1::WaitingGroup {
                    group: listed.group.to_string(),
                    state: found.state.name().to_owned(),
                    state_age_ms: u64::try_from(unix_ms().saturating_sub(since)).unwrap_or(0),
                    members: u32::try_from(found.members.len()).unwrap_or(u32::MAX),
                })
            });
            described.filter(|group| group.state_age_ms >= WAITING_LONG_MS).collect::<Vec<_>>()
        });
        match tokio::time::timeout_at(deadline, look).await {
            Ok(Ok(found)) => waiting.extend(found),
            // It does not coordinate yet, or any more.
            Ok(Err(_)) => {}
            Err(_) => break,
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use crate::testing::{Disk, ME, node, tp};

    #[tokio::test]
    async fn a_broker_tells_of_itself_what_it_is_asked_and_no_more() {
        let (node, disk) = (node(), Disk::new());
        let explainer = Explainer::new(node, disk.storage.clone(), Health::new(ME, 7));
        let at = tp("t", 3);
        let partitions =
            vec![v1::FollowedPartition { topic: at.topic.to_string(), partition: at.partition }];
        let group = Some("g".to_owned());
        let request = v1::DescribeHealthRequest { partitions, group, waiting_groups: true };
        let told = explainer.own_health(request).await;
        assert_eq!((told.broker_id, told.broker_epoch), (1, 101));
        assert!(!told.zookeeper_connected && told.controller_id == -1);
        assert_eq!(told.directories[0].reserve_bytes, 7);
        let [replica] = &told.replicas[..] else { panic!("{told:?}") };
        assert!((&*replica.topic, replica.partition) == ("t", 3) && !replica.hosted);
        assert!(!told.group.unwrap().coordinated && told.waiting_groups.is_empty());
        let process = told.process.unwrap();
        assert_eq!(
            (process.pid, &*process.config_file),
            (std::process::id(), "/etc/barnabas/broker-1.yaml")
        );
        assert_eq!(told.zookeeper_servers, "zk1:2181");
        let many = vec![v1::FollowedPartition::default(); PARTITIONS_MAX + 1];
        let request = v1::DescribeHealthRequest { partitions: many, ..Default::default() };
        assert_eq!(explainer.own_health(request).await.replicas.len(), PARTITIONS_MAX);
    }

    #[test]
    fn a_partition_with_much_to_do_is_not_one_whose_write_does_not_end() {
        let told = |turns: &[u64]| {
            let mut tried = Try::default();
            turns.iter().for_each(|turn| tried.taken(*turn));
            let over = tried.over();
            (over.held, over.busy)
        };
        assert_eq!(told(&[7, 7, 7]), (true, false));
        assert_eq!(told(&[7, 7, 9]), (false, true));
        let well = Try { told: Some(v1::ReplicaHealth::default()), ..Try::default() };
        assert!(!well.over().held);
    }
}
