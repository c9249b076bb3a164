//! The two files: an export of ZooKeeper's nodes, and the inventory of a broker's log directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use barnabas_log::Holding;
use barnabas_types::{BrokerId, ClusterId, LeaderEpoch, TopicId, TopicName, TopicPartition};
use serde_json::{Map, Value, json};

const EXPORT: &str = "barnabas zookeeper export";
const INVENTORY: &str = "barnabas zookeeper inventory";
/// The newest form of both that is read.
const VERSION_MAX: u64 = 1;

/// Path and content of each persistent node.
pub(super) type Nodes = BTreeMap<String, String>;

/// What ZooKeeper held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Backup {
    pub(super) nodes: Nodes,
}

/// What the log directories of one broker hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inventory {
    pub(super) broker: BrokerId,
    pub(super) cluster_id: ClusterId,
    pub(super) held: Vec<Holding>,
}

/// Either of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Saved {
    Backup(Backup),
    Inventory(Inventory),
}

impl Backup {
    pub(super) fn write(&self) -> Value {
        json!({ "kind": EXPORT, "version": VERSION_MAX, "nodes": self.nodes })
    }
}

impl Inventory {
    pub(super) fn write(&self) -> Value {
        let one = |held: &Holding| {
            json!({
                "topic": held.partition.topic.as_str(),
                "partition": held.partition.partition,
                "topic_id": held.topic_id.to_string(),
                "last_epoch": held.last_epoch.map(|epoch| epoch.0),
            })
        };
        json!({
            "kind": INVENTORY,
            "version": VERSION_MAX,
            "broker": self.broker.0,
            "cluster_id": self.cluster_id.0,
            "partitions": self.held.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

/// Reads a file of either kind; the error is a sentence.
pub(super) fn read(path: &Path) -> Result<Saved, String> {
    let text =
        fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str) -> Result<Saved, String> {
    let neither = "neither an export nor an inventory ('barnabas zookeeper export' and 'inventory' print them)";
    let value: Value = serde_json::from_str(text).map_err(|e| format!("{neither}: {e}"))?;
    if value["version"].as_u64().is_some_and(|version| version > VERSION_MAX) {
        return Err("a newer version of barnabas has written it; use that one".to_owned());
    }
    match value["kind"].as_str() {
        Some(EXPORT) => {
            let nodes = value["nodes"].as_object().ok_or("it has no nodes")?;
            let text = |(path, node): (&String, &Value)| {
                let node = node.as_str().ok_or_else(|| format!("node {path} is no text"))?;
                Ok::<_, String>((path.clone(), node.to_owned()))
            };
            let nodes = nodes.iter().map(text).collect::<Result<_, _>>()?;
            Ok(Saved::Backup(Backup { nodes }))
        }
        Some(INVENTORY) => {
            let broker = value["broker"].as_i64().and_then(|id| i32::try_from(id).ok());
            let cluster_id = value["cluster_id"].as_str().ok_or("it has no cluster_id")?;
            let partitions = value["partitions"].as_array().ok_or("it has no partitions")?;
            let held = partitions.iter().map(|held| {
                held.as_object()
                    .and_then(holding)
                    .ok_or_else(|| format!("it makes no sense: {held}"))
            });
            Ok(Saved::Inventory(Inventory {
                broker: BrokerId(broker.ok_or("it has no broker")?),
                cluster_id: ClusterId(cluster_id.to_owned()),
                held: held.collect::<Result<_, _>>()?,
            }))
        }
        _ => Err(neither.to_owned()),
    }
}

fn holding(held: &Map<String, Value>) -> Option<Holding> {
    let number = |key: &str| i32::try_from(held.get(key)?.as_i64()?).ok().filter(|n| *n >= 0);
    let topic = TopicName::new(held.get("topic")?.as_str()?).ok()?;
    Some(Holding {
        partition: TopicPartition { topic, partition: number("partition")? },
        topic_id: TopicId::parse(held.get("topic_id")?.as_str()?)?,
        last_epoch: number("last_epoch").map(LeaderEpoch),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_read_back_as_written() {
        let backup =
            Backup { nodes: [("/cluster/id".to_owned(), "{\"id\":\"x\"}".to_owned())].into() };
        assert_eq!(parse(&format!("{:#}", backup.write())), Ok(Saved::Backup(backup)));
        let topic = TopicName::new("orders").unwrap();
        let held = |partition, last_epoch: Option<i32>| Holding {
            partition: TopicPartition { topic: topic.clone(), partition },
            topic_id: TopicId([7; 16]),
            last_epoch: last_epoch.map(LeaderEpoch),
        };
        let inventory = Inventory {
            broker: BrokerId(2),
            cluster_id: ClusterId("c".into()),
            held: vec![held(0, None), held(1, Some(4))],
        };
        assert_eq!(parse(&inventory.write().to_string()), Ok(Saved::Inventory(inventory)));
    }

    #[test]
    fn what_is_something_else_is_refused() {
        for (text, part) in [
            ("{", "neither"),
            ("{}", "neither"),
            (r#"{"kind":"barnabas zookeeper export","version":2}"#, "newer"),
            (r#"{"kind":"barnabas zookeeper export","nodes":{"/a":1}}"#, "/a"),
            (
                r#"{"kind":"barnabas zookeeper inventory","broker":1,"cluster_id":"c","partitions":[{"topic":"t"}]}"#,
                "no sense",
            ),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
