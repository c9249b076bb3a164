//! Whether ZooKeeper was taken back to an earlier time: a log knows a leader epoch that its partition has not come to yet.
//!
//! Leader epochs only rise within one life of a topic, and none is in a log before it was in ZooKeeper. It is looked at once, before
//! the broker registers: afterwards elections raise the epochs, and nothing could be told any more.

use std::collections::BTreeMap;

use barnabas_proto::znode::{self, TopicNode, paths};
use barnabas_types::{LeaderEpoch, TopicId, TopicName, TopicPartition};

use crate::error::Error;
use crate::open::ask;
use crate::zookeeper::{Node, Reply, Request, ZooKeeper};

/// Nodes in one multi-read.
const NODES_A_READ: usize = 100;

/// Compares; see [`crate::Opened::refuse_older`].
pub(crate) async fn refuse<Z: ZooKeeper>(
    client: &Z,
    address: &str,
    logs: &[(TopicPartition, TopicId, LeaderEpoch)],
) -> Result<(), Error> {
    let failed = |error: crate::zookeeper::Error| Error::ZooKeeper {
        connect: address.to_owned(),
        reason: error.to_string(),
    };
    let mut names: Vec<&TopicName> = logs.iter().map(|(tp, ..)| &tp.topic).collect();
    names.dedup();
    let topics = read(client, names.iter().map(|name| paths::topic(name)).collect()).await;
    let mut ids: BTreeMap<&TopicName, TopicId> = BTreeMap::new();
    for (name, node) in names.into_iter().zip(topics.map_err(failed)?) {
        // What makes no sense is told by the controller.
        if let Some(read) = node.and_then(|node| TopicNode::parse(name, &node.data).ok()) {
            ids.insert(name, read.topic_id);
        }
    }
    let of_this_life = |(tp, id, _): &&(TopicPartition, TopicId, LeaderEpoch)| {
        ids.get(&tp.topic).is_some_and(|present| present == id)
    };
    let logs: Vec<_> = logs.iter().filter(of_this_life).collect();
    let states = read(client, logs.iter().map(|(tp, ..)| paths::partition_state(tp)).collect());
    let mut older = Vec::new();
    for ((tp, _, log), node) in logs.into_iter().zip(states.await.map_err(failed)?) {
        let Some(node) = node else { continue };
        let state = znode::parse_partition_state(tp, &node.data, node.stat.version);
        if let Some(stored) = state.ok().map(|state| state.leader_epoch)
            && stored < *log
        {
            older.push((tp, *log, stored));
        }
    }
    match older.first() {
        None => Ok(()),
        Some(&(tp, log, stored)) => Err(Error::OlderThanLogs {
            connect: address.to_owned(),
            partition: tp.clone(),
            log,
            stored,
            partitions: older.len(),
        }),
    }
}

async fn read<Z: ZooKeeper>(
    client: &Z,
    paths: Vec<String>,
) -> Result<Vec<Option<Node>>, crate::zookeeper::Error> {
    let mut found = Vec::with_capacity(paths.len());
    for chunk in paths.chunks(NODES_A_READ) {
        match ask(client, &Request::MultiRead(chunk.to_vec())).await? {
            Reply::Nodes(nodes) => found.extend(nodes),
            _ => found.resize(found.len() + chunk.len(), None),
        }
    }
    Ok(found)
}
