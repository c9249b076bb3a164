//! `/brokers/topics/T`, its partitions' state nodes, and settings (`/config/topics/T`, `/config/brokers/B`).

use std::collections::BTreeMap;

use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, ConfigEntity, ControllerEpoch, LeaderEpoch, Moving,
    PartitionEpoch, PartitionState, TopicId, TopicName, TopicPartition,
};
use serde_json::{Value, json};

use super::json::{Fields, ZnodeError, numeric_key};
use super::paths;

/// What `/brokers/topics/T` says: id and assignment (version 3), moves that are under way included (KIP-455).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicNode {
    /// The topic's id.
    pub topic_id: TopicId,
    /// Assigned replicas by partition; indexes are dense from 0.
    pub partitions: BTreeMap<i32, Assignment>,
}

/// A field of our own, which Kafka's readers skip: the throttle of a move goes with the move, in the same write.
const THROTTLES: &str = "reassignment_throttles";

/// Most replicas of one partition that are read.
const REPLICAS_MAX: usize = 1000;

impl TopicNode {
    /// The node's content.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let of = |part: fn(&Assignment) -> &Vec<BrokerId>| -> BTreeMap<String, Vec<i32>> {
            let named = self.partitions.iter().filter(|(_, a)| !part(a).is_empty());
            named
                .map(|(index, a)| (index.to_string(), part(a).iter().map(|b| b.0).collect()))
                .collect()
        };
        let mut node = json!({
            "version": 3,
            "topic_id": self.topic_id.to_string(),
            "partitions": of(|a| &a.replicas),
            "adding_replicas": of(|a| &a.moving.adding),
            "removing_replicas": of(|a| &a.moving.removing),
        });
        let limited = self.partitions.iter().filter_map(|(index, a)| {
            a.moving.throttle.map(|limit| (index.to_string(), json!(limit)))
        });
        let throttles: serde_json::Map<String, Value> = limited.collect();
        if !throttles.is_empty() {
            node[THROTTLES] = Value::Object(throttles);
        }
        node.to_string().into_bytes()
    }

    /// Reads the node of topic `name`.
    ///
    /// # Errors
    /// [`ZnodeError`] that names the field: no topic id (written by Kafka before 2.8), indexes with gaps, a partition
    /// without replicas or with one twice.
    pub fn parse(name: &TopicName, data: &[u8]) -> Result<Self, ZnodeError> {
        let path = paths::topic(name);
        let fields = Fields::parse(&path, data)?;
        let topic_id = TopicId::parse(fields.text("topic_id")?)
            .ok_or_else(|| fields.error("topic_id", "not 22 characters of URL-safe base64"))?;
        let mut partitions = BTreeMap::new();
        for (key, value) in fields.object("partitions")? {
            let field = format!("partitions.{key}");
            let index =
                numeric_key(key).ok_or_else(|| fields.error(&field, "not a partition index"))?;
            let replicas = broker_ids(&fields, &field, value)?;
            if replicas.is_empty() {
                return Err(fields.error(&field, "no replica"));
            }
            let moving = Moving {
                adding: move_of(&fields, "adding_replicas", key)?,
                removing: move_of(&fields, "removing_replicas", key)?,
                throttle: throttle_of(&fields, key),
            };
            partitions.insert(index, Assignment { replicas, moving }.tolerant());
        }
        let dense =
            partitions.keys().copied().eq(0..i32::try_from(partitions.len()).unwrap_or(i32::MAX));
        if partitions.is_empty() || !dense {
            return Err(fields.error("partitions", "indexes must run from 0 without a gap"));
        }
        Ok(Self { topic_id, partitions })
    }
}

/// The replicas that a move adds to a partition, or removes; none if the node does not say (Kafka before 2.4).
fn move_of(fields: &Fields<'_>, part: &str, key: &str) -> Result<Vec<BrokerId>, ZnodeError> {
    match fields.optional(part) {
        None => Ok(Vec::new()),
        Some(_) => match fields.object(part)?.get(key) {
            None => Ok(Vec::new()),
            Some(value) => broker_ids(fields, &format!("{part}.{key}"), value),
        },
    }
}

/// A limit that makes no sense is none: it must not keep the topic from being read.
fn throttle_of(fields: &Fields<'_>, key: &str) -> Option<u64> {
    let limits = fields.optional(THROTTLES)?.as_object()?;
    limits.get(key)?.as_u64().filter(|limit| *limit > 0)
}

/// Content of a partition's state node. The partition epoch is the node's version and not part of it.
#[must_use]
pub fn write_partition_state(state: &PartitionState) -> Vec<u8> {
    let epochs: BTreeMap<String, i64> =
        state.isr.iter().map(|(id, epoch)| (id.to_string(), epoch.0)).collect();
    json!({
        "version": 1,
        "controller_epoch": state.controller_epoch.0,
        "leader": state.leader.map_or(-1, |leader| leader.0),
        "leader_epoch": state.leader_epoch.0,
        "isr": state.isr.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
        "isr_broker_epochs": epochs,
    })
    .to_string()
    .into_bytes()
}

/// Reads a partition's state node of data version `version`.
///
/// A member without an entry in `isr_broker_epochs` (written by Kafka) gets the broker epoch -1, which no registration
/// ever has: it counts as restarted since.
///
/// # Errors
/// [`ZnodeError`] that names the field: negative epochs, a leader below -1, an empty ISR or a member twice, a leader
/// outside the ISR.
pub fn parse_partition_state(
    partition: &TopicPartition,
    data: &[u8],
    version: i32,
) -> Result<PartitionState, ZnodeError> {
    let path = paths::partition_state(partition);
    let fields = Fields::parse(&path, data)?;
    let not_negative = |field: &str| -> Result<i32, ZnodeError> {
        let number = fields.integer::<i32>(field)?;
        if number < 0 {
            Err(fields.error(field, format!("{number} is negative")))
        } else {
            Ok(number)
        }
    };
    let leader = match fields.integer::<i32>("leader")? {
        -1 => None,
        id if id >= 0 => Some(BrokerId(id)),
        id => return Err(fields.error("leader", format!("{id} is no broker id"))),
    };
    let ids = broker_ids(&fields, "isr", &Value::Array(fields.array("isr")?.clone()))?;
    if ids.is_empty() {
        return Err(fields.error("isr", "empty"));
    }
    if leader.is_some_and(|leader| !ids.contains(&leader)) {
        return Err(fields.error("leader", "not in the ISR"));
    }
    let mut isr = Vec::with_capacity(ids.len());
    for id in ids {
        isr.push((id, isr_broker_epoch(&fields, id)?));
    }
    Ok(PartitionState {
        leader,
        leader_epoch: LeaderEpoch(not_negative("leader_epoch")?),
        partition_epoch: PartitionEpoch(version),
        controller_epoch: ControllerEpoch(not_negative("controller_epoch")?),
        isr,
    })
}

fn isr_broker_epoch(fields: &Fields<'_>, id: BrokerId) -> Result<BrokerEpoch, ZnodeError> {
    let field = format!("isr_broker_epochs.{id}");
    let known = match fields.optional("isr_broker_epochs") {
        None => None,
        Some(_) => fields.object("isr_broker_epochs")?.get(&id.to_string()),
    };
    match known {
        None => Ok(BrokerEpoch(-1)),
        Some(value) => fields.to_integer::<i64>(&field, value).map(BrokerEpoch),
    }
}

fn broker_ids(
    fields: &Fields<'_>,
    field: &str,
    value: &Value,
) -> Result<Vec<BrokerId>, ZnodeError> {
    let list = value.as_array().ok_or_else(|| fields.error(field, "not a list"))?;
    if list.len() > REPLICAS_MAX {
        return Err(fields.error(field, "too many members"));
    }
    let mut ids = Vec::with_capacity(list.len());
    for value in list {
        let id = BrokerId(fields.to_integer(field, value)?);
        if id.0 < 0 {
            return Err(fields.error(field, format!("{id} is no broker id")));
        }
        if ids.contains(&id) {
            return Err(fields.error(field, format!("broker {id} stands twice")));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Content of a node of settings, of whomever they are.
#[must_use]
pub fn write_config(overrides: &BTreeMap<String, String>) -> Vec<u8> {
    json!({"version": 1, "config": overrides}).to_string().into_bytes()
}

/// Reads a node of settings: as text, as they were typed.
///
/// # Errors
/// [`ZnodeError`] that names the field.
pub fn parse_config(
    entity: &ConfigEntity,
    data: &[u8],
) -> Result<BTreeMap<String, String>, ZnodeError> {
    let path = paths::config(entity);
    let fields = Fields::parse(&path, data)?;
    let mut overrides = BTreeMap::new();
    for (key, value) in fields.object("config")? {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(fields.error(&format!("config.{key}"), "not a string")),
        };
        overrides.insert(key.clone(), text);
    }
    Ok(overrides)
}

/// Reads a notice below `/config/changes`: whose settings were changed, `None` if it speaks of something else (or makes no
/// sense). Version 2 names a path, version 1 a type and a name.
#[must_use]
pub fn parse_config_change(data: &[u8]) -> Option<ConfigEntity> {
    let fields = Fields::parse(paths::CONFIG_CHANGES, data).ok()?;
    let (kind, name) = match fields.optional("entity_path") {
        Some(path) => path.as_str()?.split_once('/')?,
        None => (fields.text("entity_type").ok()?, fields.text("entity_name").ok()?),
    };
    match kind {
        "topics" => TopicName::new(name).ok().map(ConfigEntity::Topic),
        "brokers" => parse_broker_config_name(name).map(ConfigEntity::Broker),
        _ => None,
    }
}

/// Reads the name of a node below `/config/brokers`: a broker, or (`Some(None)`) all of them; `None` if it is neither.
#[must_use]
pub fn parse_broker_config_name(name: &str) -> Option<Option<BrokerId>> {
    if name == paths::CLUSTER_DEFAULT {
        return Some(None);
    }
    let id: i32 = name.parse().ok().filter(|id| *id >= 0)?;
    (id.to_string() == name).then_some(Some(BrokerId(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> TopicName {
        TopicName::new("orders").unwrap()
    }

    fn partition() -> TopicPartition {
        TopicPartition { topic: name(), partition: 0 }
    }

    #[test]
    fn topic_reads_back_as_written() {
        let replicas = || vec![BrokerId(2), BrokerId(1)];
        let node = TopicNode {
            topic_id: TopicId([4; 16]),
            partitions: (0..12).map(|index| (index, Assignment::settled(replicas()))).collect(),
        };
        assert_eq!(TopicNode::parse(&name(), &node.write()), Ok(node));
    }

    #[test]
    fn a_move_reads_back_as_written_and_leaves_nothing_behind() {
        let settled = Assignment::settled(vec![BrokerId(1), BrokerId(2)]);
        let moving = settled.towards(&[BrokerId(2), BrokerId(3)], Some(5000));
        let mut node = TopicNode {
            topic_id: TopicId([4; 16]),
            partitions: BTreeMap::from([(0, settled), (1, moving.clone())]),
        };
        assert_eq!(TopicNode::parse(&name(), &node.write()), Ok(node.clone()));
        let json: Value = serde_json::from_slice(&node.write()).unwrap();
        assert_eq!(json["partitions"], json!({"0": [1, 2], "1": [2, 3, 1]}));
        assert_eq!(json["adding_replicas"], json!({"1": [3]}));
        assert_eq!(json["removing_replicas"], json!({"1": [1]}));
        node.partitions.insert(1, moving.arrived());
        let json: Value = serde_json::from_slice(&node.write()).unwrap();
        assert_eq!(json.get(THROTTLES), None, "the throttle goes with the move");
        assert_eq!(json["adding_replicas"], json!({}));
    }

    #[test]
    fn what_kafka_wrote_about_a_move_is_understood() {
        let read = |extra: Value| {
            let mut node = json!({
                "version": 3, "topic_id": TopicId([1; 16]).to_string(),
                "partitions": {"0": [3, 1, 2]},
            });
            for (field, value) in extra.as_object().unwrap() {
                node[field] = value.clone();
            }
            let parsed = TopicNode::parse(&name(), node.to_string().as_bytes()).unwrap();
            parsed.partitions[&0].clone()
        };
        assert_eq!(read(json!({})).moving, Moving::default());
        let kafka = read(json!({"adding_replicas": {"0": [3]}, "removing_replicas": {"0": [2]}}));
        assert_eq!(kafka.target(), vec![BrokerId(3), BrokerId(1)]);
        assert_eq!(kafka.original(), vec![BrokerId(1), BrokerId(2)]);
        let odd = read(json!({
            "adding_replicas": {"0": [8], "7": [1]}, "removing_replicas": {"0": [1, 2, 3]},
            "reassignment_throttles": {"0": "much"},
        }));
        assert_eq!(odd, Assignment::settled(vec![BrokerId(3), BrokerId(1), BrokerId(2)]));
    }

    #[test]
    fn r2_state_carries_the_broker_epoch_of_each_isr_member() {
        let state = PartitionState {
            leader: Some(BrokerId(2)),
            leader_epoch: LeaderEpoch(4),
            partition_epoch: PartitionEpoch(9),
            controller_epoch: ControllerEpoch(3),
            isr: vec![(BrokerId(2), BrokerEpoch(77)), (BrokerId(1), BrokerEpoch(4_294_967_400))],
        };
        assert_eq!(
            parse_partition_state(&partition(), &write_partition_state(&state), 9),
            Ok(state)
        );
    }

    #[test]
    fn r3_a_state_written_by_kafka_counts_every_member_as_restarted() {
        let kafka =
            br#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}"#;
        let state = parse_partition_state(&partition(), kafka, 0).unwrap();
        assert_eq!(state.isr, vec![(BrokerId(1), BrokerEpoch(-1)), (BrokerId(2), BrokerEpoch(-1))]);
    }

    #[test]
    fn nonsense_is_refused_with_path_and_field() {
        let good =
            json!({"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]});
        for (field, value, part) in [
            ("leader", json!(-2), "leader: -2 is no broker id"),
            ("leader", json!(5), "leader: not in the ISR"),
            ("leader", json!("1"), "leader: not a whole number"),
            ("leader_epoch", json!(-1), "leader_epoch: -1 is negative"),
            ("isr", json!([]), "isr: empty"),
            ("isr", json!([1, 1]), "isr: broker 1 stands twice"),
            ("isr", json!([1, -1]), "isr: -1 is no broker id"),
            ("isr_broker_epochs", json!([]), "isr_broker_epochs: not an object"),
        ] {
            let mut json = good.clone();
            json[field] = value;
            let error = parse_partition_state(&partition(), json.to_string().as_bytes(), 0)
                .unwrap_err()
                .to_string();
            assert_eq!(
                error,
                format!("ZooKeeper node /brokers/topics/orders/partitions/0/state: {part}")
            );
        }
        for bad in [
            json!({"partitions": {"0": [1]}}),
            json!({"topic_id": TopicId([1; 16]).to_string(), "partitions": {"1": [1]}}),
            json!({"topic_id": TopicId([1; 16]).to_string(), "partitions": {"0": []}}),
            json!({"topic_id": TopicId([1; 16]).to_string(), "partitions": {"00": [1]}}),
            json!({"topic_id": TopicId([1; 16]).to_string(), "partitions": {}}),
        ] {
            assert!(TopicNode::parse(&name(), bad.to_string().as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn config_reads_back_as_written() {
        let overrides = BTreeMap::from([("min.insync.replicas".to_owned(), "2".to_owned())]);
        let topic = ConfigEntity::Topic(name());
        assert_eq!(parse_config(&topic, &write_config(&overrides)), Ok(overrides));
        let broken = parse_config(&ConfigEntity::Broker(None), br#"{"config":{"a":[]}}"#);
        assert!(broken.unwrap_err().to_string().contains("/config/brokers/<default>"));
    }

    #[test]
    fn notices_are_understood_in_both_versions() {
        let read = |text: &str| parse_config_change(text.as_bytes());
        assert_eq!(
            read(r#"{"version":2,"entity_path":"topics/orders"}"#),
            Some(ConfigEntity::Topic(name()))
        );
        let old = r#"{"version":1,"entity_type":"topics","entity_name":"orders"}"#;
        assert_eq!(read(old), Some(ConfigEntity::Topic(name())));
        let broker = read(r#"{"version":2,"entity_path":"brokers/1"}"#);
        assert_eq!(broker, Some(ConfigEntity::Broker(Some(BrokerId(1)))));
        let all = read(r#"{"version":2,"entity_path":"brokers/<default>"}"#);
        assert_eq!(all, Some(ConfigEntity::Broker(None)));
        for other in [
            r#"{"version":2,"entity_path":"brokers/01"}"#,
            r#"{"version":2,"entity_path":"brokers/-1"}"#,
            r#"{"version":2,"entity_path":"users/u"}"#,
            r#"{"version":1,"entity_type":"clients","entity_name":"c"}"#,
            r#"{"version":2,"entity_path":"topics/../x"}"#,
            r#"{"version":2,"entity_path":7}"#,
            "[]",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
