//! What this broker tells of itself: figures, where its replicas stand, the groups that it coordinates. From memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barnabas_proto::v1;
use barnabas_replica::{FollowerPosition, Role};
use barnabas_types::{Now, Offset};
use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::source::Parts;
use super::rates::{Rates, TOPICS_TOLD_MAX, TopicRates};
use crate::node::Node;
use crate::storage::Directory;

/// Groups that one broker tells of.
const GROUPS_MAX: usize = 1_000;
/// Committed offsets of one group, and members, that are told.
const OF_GROUP_MAX: usize = 1_000;
/// Committed offsets of all groups together.
const OFFSETS_MAX: usize = 20_000;
/// How long a coordinator may take.
const PATIENCE: Duration = Duration::from_millis(250);

/// What of `brokers[]` only the broker itself knows.
pub(super) fn broker(source: &Parts, rates: &Rates, topic_rates: &TopicRates) -> Value {
    let node = &source.node;
    let membership = *node.membership.borrow();
    let state = match source.health.status() {
        "stopping" => "stopping",
        "recovering" => "recovering",
        "registering" | "waiting for the controller" => "starting",
        _ if membership.broker_epoch.is_none() => "fenced",
        _ => "registered",
    };
    let session = match (membership.connected, membership.broker_epoch) {
        (true, Some(_)) => "connected",
        (true, None) => "expired",
        (false, _) => "suspended",
    };
    let recovered = source.storage.recovered();
    let settled = source.storage.opening().is_settled();
    let percent = recovered.opened.saturating_mul(100).checked_div(recovered.of);
    let carried = node.partitions.carried(|_| true);
    let mut all = carried.others;
    carried.topics.values().for_each(|of_topic| all += *of_topic);
    let now = Instant::now();
    let rates = rates.note(now, (all.bytes_in, all.bytes_out));
    let by_topic = carried.topics.into_iter().map(|(name, of_topic)| (name, of_topic.bytes_in));
    let by_topic = topic_rates.note(now, by_topic.collect());
    let all: Vec<_> = node.partitions.all();
    let found: Vec<_> = all
        .iter()
        .filter_map(|hosted| Some((&hosted.topic_partition, hosted.figures(node.now())?)))
        .collect();
    let mut led: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, figures) in found.iter().filter(|(_, figures)| figures.leads()) {
        *led.entry(at.topic.as_str()).or_default() += figures.size_bytes;
    }
    json!({
        "state": state,
        "http_port": source.http_port,
        "version": env!("CARGO_PKG_VERSION"),
        "zookeeper_session": session,
        "disk_used_percent": node.directories.iter().filter_map(|d| used_percent(d)).max(),
        // Of the follower that is the farthest behind what this broker has as a leader.
        "follower_lag_records_max": found.iter().filter_map(|(_, one)| one.farthest_lag()).max(),
        "unflushed_bytes": found.iter().map(|(_, one)| one.unflushed_bytes).sum::<u64>(),
        "flush_ms_p99": source.metrics.flush_ms_p99(),
        "topics_in_per_s": by_topic,
        "topics_led_bytes": Some(led).filter(|led| led.len() <= TOPICS_TOLD_MAX),
        "bytes_in_per_s": rates.map(|(into, _)| into),
        "bytes_out_per_s": rates.map(|(_, out)| out),
        "recovery_percent": if settled { None } else { percent },
    })
}

fn used_percent(directory: &Directory) -> Option<u64> {
    let (free, total) = directory.free_bytes().zip(directory.total_bytes())?;
    total.saturating_sub(free).saturating_mul(100).checked_div(total)
}

/// Where the replica here stands; null: there is none, or something holds it at this moment.
pub(in crate::http) fn replica(node: &Node, topic: &str, partition: i32) -> Value {
    let Some(hosted) = node.partitions.get(topic, partition) else { return Value::Null };
    let Some(found) = hosted.figures(node.now()) else { return Value::Null };
    let role = match found.role {
        _ if found.fenced => "fenced",
        Role::Leader { .. } => "leader",
        Role::Follower { .. } => "follower",
        Role::Leaderless { .. } => "leaderless",
        Role::Idle | Role::Deleted => "idle",
    };
    let now = node.now();
    let ago = |since: Now| now.0.saturating_sub(since.0);
    let follower = |f: &FollowerPosition| {
        json!({
            "broker": f.broker.0,
            "log_end_offset": f.position.map(|(end, ..)| end.0),
            "flushed_offset": f.position.map(|(_, flushed, _)| flushed.0),
            "caught_up_ms_ago": ago(f.caught_up_at),
            "reported_ms_ago": f.last_fetch_at.map(ago),
        })
    };
    json!({
        "role": role,
        "leader_epoch": found.leader_epoch.map(|epoch| epoch.0),
        "log_start_offset": found.log_start.0,
        "log_end_offset": found.log_end.0,
        "flushed_offset": found.flushed.0,
        "high_watermark": found.high_watermark.0,
        "bytes": found.size_bytes,
        "followers": found.followers.iter().map(follower).collect::<Vec<_>>(),
    })
}

/// When records of partitions that this broker leads were written, ms of Unix time; -1: not known. On a thread that may wait for a disk.
pub(super) async fn written(
    node: &Arc<Node>,
    asked: impl IntoIterator<Item = v1::RecordAt>,
) -> Vec<i64> {
    let (node, asked): (_, Vec<v1::RecordAt>) = (node.clone(), asked.into_iter().collect());
    if asked.is_empty() {
        return Vec::new();
    }
    let of = move |at: &v1::RecordAt| {
        let hosted = node.partitions.get(&at.topic, at.partition)?;
        hosted.written_at(Offset(at.offset)).filter(|at_ms| *at_ms >= 0)
    };
    let told = move || asked.iter().map(|at| of(at).unwrap_or(-1)).collect();
    tokio::task::spawn_blocking(told).await.unwrap_or_default()
}

/// A group as its coordinator tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::http) struct GroupTold {
    /// Its id: anything.
    pub(in crate::http) name: String,
    /// stable, rebalancing, empty or dead.
    pub(in crate::http) state: String,
    pub(in crate::http) members: u64,
    pub(in crate::http) offsets: Vec<CommittedOffset>,
    /// What is assigned to whom, as far as the members' own protocol can be read.
    pub(in crate::http) owners: Vec<Owner>,
    /// Whether `owners` is all there is.
    pub(in crate::http) owners_known: bool,
}

/// The last commit of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in crate::http) struct CommittedOffset {
    pub(in crate::http) topic: String,
    pub(in crate::http) partition: i32,
    pub(in crate::http) offset: i64,
}

/// Who reads a partition.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in crate::http) struct Owner {
    pub(in crate::http) topic: String,
    pub(in crate::http) partition: i32,
    pub(in crate::http) member: String,
    pub(in crate::http) client_id: String,
    pub(in crate::http) host: String,
}

/// The groups that this broker coordinates.
pub(super) async fn groups(node: &Node) -> Vec<GroupTold> {
    let (mut told, mut offsets): (Vec<GroupTold>, usize) = (Vec::new(), 0);
    for coordinator in node.groups.all() {
        let room = GROUPS_MAX.saturating_sub(told.len());
        let offsets_room = OFFSETS_MAX.saturating_sub(offsets);
        let look = coordinator.look(move |groups| {
            let mut left = offsets_room;
            let listed: Vec<_> = groups.list().take(room).collect();
            let told = listed.iter().map(|listed| {
                let committed = groups.offsets(&listed.group).take(OF_GROUP_MAX.min(left));
                let committed = committed.map(|(topic, partition, offset)| CommittedOffset {
                    topic: topic.to_string(),
                    partition,
                    offset: offset.offset,
                });
                let committed: Vec<_> = committed.collect();
                left -= committed.len();
                let mut group = GroupTold {
                    name: listed.group.to_string(),
                    state: state(listed.state.name()),
                    offsets: committed,
                    owners_known: true,
                    ..GroupTold::default()
                };
                let described = groups.describe(&listed.group);
                for member in described.iter().flat_map(|found| &found.members) {
                    group.members += 1;
                    match assigned(member.assignment.clone()) {
                        Some(partitions) if group.owners.len() < OF_GROUP_MAX => {
                            group.owners.extend(partitions.into_iter().map(
                                |(topic, partition)| Owner {
                                    topic,
                                    partition,
                                    member: member.member_id.to_string(),
                                    client_id: member.client_id.to_string(),
                                    host: member.client_host.to_string(),
                                },
                            ));
                        }
                        _ => group.owners_known = false,
                    }
                }
                group
            });
            told.collect::<Vec<_>>()
        });
        if let Ok(Ok(found)) = tokio::time::timeout(PATIENCE, look).await {
            offsets += found.iter().map(|group| group.offsets.len()).sum::<usize>();
            told.extend(found);
        }
    }
    told
}

/// The page's word for Kafka's.
fn state(name: &str) -> String {
    match name {
        "PreparingRebalance" | "CompletingRebalance" => "rebalancing".to_owned(),
        name => name.to_lowercase(),
    }
}

/// The partitions in an assignment of the consumers' own protocol (version, topics with partitions, user data); `None`: it is none.
fn assigned(mut bytes: Bytes) -> Option<Vec<(String, i32)>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let mut found = Vec::new();
    bytes.try_get_i16().ok()?;
    for _ in 0..bytes.try_get_i32().ok()?.max(0) {
        let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
        if bytes.remaining() < length {
            return None;
        }
        let topic = String::from_utf8(bytes.split_to(length).to_vec()).ok()?;
        for _ in 0..bytes.try_get_i32().ok()?.max(0) {
            if found.len() == OF_GROUP_MAX {
                return None;
            }
            found.push((topic.clone(), bytes.try_get_i32().ok()?));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use barnabas_types::Acks;
    use bytes::{BufMut as _, BytesMut};

    use super::*;
    use crate::testing::{Disk, node, produce, push, state as pushed, tp};

    #[tokio::test]
    async fn a_replica_tells_where_it_stands_and_what_is_not_here_is_null() {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        pushed(&node, &hosted, push(1, 1, &[1]));
        produce(&node, &hosted, Acks::Leader, 0, None);
        let told = replica(&node, "t", 0);
        assert_eq!((&told["role"], &told["log_end_offset"]), (&json!("leader"), &json!(1)));
        assert!(told["bytes"].as_u64().unwrap() > 0);
        assert_eq!(replica(&node, "t", 1), Value::Null);
    }

    #[test]
    fn assignments_are_read_and_nonsense_is_not_believed() {
        let mut bytes = BytesMut::new();
        bytes.put_i16(3);
        bytes.put_i32(1);
        bytes.put_i16(1);
        bytes.put_slice(b"t");
        bytes.put_i32(2);
        bytes.put_i32(0);
        bytes.put_i32(5);
        bytes.put_i32(-1);
        let whole = bytes.freeze();
        assert_eq!(assigned(whole.clone()), Some(vec![("t".into(), 0), ("t".into(), 5)]));
        assert_eq!(assigned(Bytes::new()), Some(Vec::new()), "nothing is assigned yet");
        assert_eq!(assigned(whole.slice(..14)), None);
        assert_eq!(assigned(Bytes::from_static(b"\0\0\x7f\xff\xff\xff")), None);
        assert_eq!(assigned(Bytes::from_static(&[0, 0, 0, 0, 0, 1, 0xff, 0xff])), None);
    }
}
