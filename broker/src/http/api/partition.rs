//! `partitions/{topic}/{partition}`: one partition, where each of its replicas stands, how its ISR came to be.

use std::collections::HashMap;

use barnabas_types::{BrokerId, ClusterImage, Partition, TopicName, TopicPartition};
use serde_json::{Value, json};

use super::super::glance::Told;
use super::super::source::Source;
use super::partitions::who_knows;
use super::refusal::Refusal;
use super::standing::{described, ids};

type Positions = HashMap<(TopicPartition, BrokerId), Told>;

/// One partition.
pub(super) async fn one(source: &Source, topic: &str, index: &str) -> Result<Value, Refusal> {
    let Ok(index) = index.parse::<i32>() else {
        return Err(Refusal::bad("partition must be a whole number"));
    };
    let unknown = || Refusal::not_found(format!("there is no partition {topic}-{index}"));
    let name = TopicName::new(topic).map_err(|_| unknown())?;
    let image = source.node.view.image();
    let of = image.topics.get(&name).ok_or_else(unknown)?;
    let partition = of.partitions.get(&index).ok_or_else(unknown)?;
    let at = TopicPartition { topic: name, partition: index };
    let asked = partition.assigned_replicas.iter().map(|id| (at.clone(), *id));
    let found = source.peers.positions(source, asked.collect::<Vec<_>>()).await;
    let mut told = described(&image, &at.topic, of, index, partition);
    let word = who_knows(source.node.me, partition).and_then(|id| found.get(&(at.clone(), id)));
    for name in ["log_start_offset", "log_end_offset", "high_watermark", "flushed_offset", "bytes"]
    {
        told[name] = word.map_or(Value::Null, |word| word.field(name));
    }
    told["reported_ms_ago"] = json!(word.map(Told::age_ms));
    told["preferred_leader"] = json!(partition.assigned_replicas.first().map(|id| id.0));
    let replicas = partition.assigned_replicas.iter();
    let mut replicas: Vec<Value> =
        replicas.map(|id| replica(&image, &at, partition, *id, &found)).collect();
    // They were asked one after the other: what an in-sync follower has, its leader had before.
    let ends = replicas.iter().filter(|r| r["in_isr"] == true && r["state"] != "offline");
    let most = ends.filter_map(|r| r["log_end_offset"].as_i64()).max();
    for replica in replicas.iter_mut().filter(|replica| replica["state"] == "leading") {
        replica["log_end_offset"] = json!(replica["log_end_offset"].as_i64().max(most));
        told["log_end_offset"] = replica["log_end_offset"].clone();
    }
    told["replicas"] = replicas.into();
    let history = source.isr_history.of(&at).into_iter().map(|change| {
        json!({
            "at_ms": change.at_ms,
            "isr": ids(&change.isr),
            "why": change.why,
            "leader_epoch": change.leader_epoch.0,
        })
    });
    told["isr_history"] = history.collect();
    Ok(told)
}

fn replica(
    image: &ClusterImage,
    at: &TopicPartition,
    partition: &Partition,
    id: BrokerId,
    found: &Positions,
) -> Value {
    let own = found.get(&(at.clone(), id));
    let leads = partition.state.leader == Some(id);
    // What the leader knows of it, which is what counts; a follower that does not answer may be known by that alone.
    let leader = partition.state.leader.and_then(|leader| found.get(&(at.clone(), leader)));
    let followers = leader.map(|leader| leader.field("followers")).unwrap_or_default();
    let followed = followers.as_array().into_iter().flatten().find(|f| f["broker"] == id.0);
    let followed = followed.cloned().unwrap_or_default();
    let of_own = |name: &str| own.map(|own| own.field(name)).unwrap_or_default();
    let either = |name: &str| match of_own(name) {
        Value::Null => followed[name].clone(),
        told => told,
    };
    let log_end = either("log_end_offset");
    let end_of_leader = leader.and_then(|leader| leader.field("log_end_offset").as_i64());
    let lag = end_of_leader.zip(log_end.as_i64()).map(|(end, own)| (end - own).max(0));
    let in_isr = partition.state.in_isr(id);
    let broker = image.brokers.get(&id);
    let role = of_own("role");
    let state = if broker.is_none() || image.suspected.contains(&id) {
        "offline"
    } else if !image.is_online(id, &at.topic, at.partition) || role == "fenced" {
        "directory_failed"
    } else if leads {
        "leading"
    } else if in_isr {
        "in_sync"
    } else {
        "lagging"
    };
    let reported = match own {
        Some(own) => json!(own.age_ms()),
        None => followed["reported_ms_ago"].clone(),
    };
    json!({
        "broker": id.0,
        "broker_epoch": partition.state.isr_epoch_of(id).or(broker.map(|b| b.epoch)).map(|e| super::exact(e.0)),
        "role": if leads { "leader" } else { "follower" },
        "state": state,
        "in_isr": in_isr,
        "log_end_offset": log_end,
        "flushed_offset": either("flushed_offset"),
        "lag_records": lag,
        "caught_up_ms_ago": if leads { json!(0) } else { followed["caught_up_ms_ago"].clone() },
        "reported_ms_ago": reported,
    })
}
