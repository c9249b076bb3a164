//! `brokers`: which broker is ill or overloaded.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{BrokerId, ClusterImage};
use serde_json::{Value, json};

use super::super::glance::Told;
use super::super::source::Source;
use super::exact;
use super::refusal::Refusal;
use crate::clock::unix_ms;
use crate::config::HostPort;

/// What a broker alone knows, and tells.
const OWN: [&str; 10] = [
    "bytes_in_per_s",
    "bytes_out_per_s",
    "http_port",
    "version",
    "zookeeper_session",
    "disk_used_percent",
    "follower_lag_records_max",
    "recovery_percent",
    "unflushed_bytes",
    "flush_ms_p99",
];

/// All brokers: those that are registered, and those to which anything is assigned.
pub(super) fn everybody(image: &ClusterImage) -> BTreeSet<BrokerId> {
    let partitions = image.topics.values().flat_map(|topic| topic.partitions.values());
    let assigned = partitions.flat_map(|partition| partition.assigned_replicas.iter().copied());
    image.brokers.keys().copied().chain(assigned).collect()
}

/// How much a broker has to do.
#[derive(Clone, Copy, Default)]
struct Load {
    leaders: u64,
    replicas: u64,
    under_replicated_leaders: u64,
}

fn loads(image: &ClusterImage) -> BTreeMap<BrokerId, Load> {
    let mut loads: BTreeMap<BrokerId, Load> = BTreeMap::new();
    let topics = image.topics.iter();
    let all = topics.flat_map(|(name, topic)| topic.partitions.iter().map(move |p| (name, p)));
    for (name, (index, partition)) in all {
        for id in &partition.assigned_replicas {
            loads.entry(*id).or_default().replicas += 1;
        }
        if let Some(leader) = image.serving_leader(name, *index, partition) {
            let load = loads.entry(leader).or_default();
            load.leaders += 1;
            load.under_replicated_leaders += u64::from(partition.lacks_replicas());
        }
    }
    loads
}

/// `{"brokers": [...]}`.
pub(in crate::http) async fn brokers(source: &Source) -> Result<Value, Refusal> {
    let image = source.node.view.image();
    let told = source.peers.brokers(source).await;
    let (loads, silent) = (loads(&image), source.peers.silent());
    let all = everybody(&image).into_iter();
    let brokers = all.map(|id| {
        let load = loads.get(&id).copied().unwrap_or_default();
        one(source, &image, id, load, told.get(&id), silent.get(&id).copied())
    });
    Ok(json!({ "brokers": brokers.collect::<Vec<_>>() }))
}

fn one(
    source: &Source,
    image: &ClusterImage,
    id: BrokerId,
    load: Load,
    told: Option<&Told>,
    silent_ms: Option<u64>,
) -> Value {
    // What a broker that is silent now said of itself is no longer so.
    let told = told.filter(|_| silent_ms.is_none());
    let (ages, now) = source.node.view.ages();
    let registered = image.brokers.get(&id);
    let gone = ages.departed(id);
    let known = registered.or_else(|| gone.map(|gone| &gone.broker));
    let state = match registered {
        None => "dead".to_owned(),
        Some(_) if image.suspected.contains(&id) => "suspected".to_owned(),
        Some(_) if silent_ms.is_some() => "silent".to_owned(),
        Some(broker) if broker.draining => "draining".to_owned(),
        Some(_) => match told.map(|told| told.field("state")) {
            Some(Value::String(state)) => state,
            _ => "registered".to_owned(),
        },
    };
    let since = gone.filter(|_| registered.is_none()).map(|gone| gone.since.age_ms(now).0);
    let since = since.or(silent_ms.filter(|_| registered.is_some()));
    let since = since.and_then(|ms| i64::try_from(ms).ok()).map(|ms| unix_ms() - ms);
    let controller = source.node.membership.borrow().controller;
    let mut broker = json!({
        "id": id.0,
        "host": known.map(|broker| broker.host.as_str()),
        "rack": known.and_then(|broker| broker.rack.as_deref()),
        "kafka_port": known.map(|broker| broker.port),
        "grpc_port": known.and_then(|broker| HostPort::parse(&broker.control_address)).map(|a| a.port),
        "state": state,
        "state_since_ms": since,
        "broker_epoch": known.map(|broker| exact(broker.epoch.0)),
        "is_controller": controller.is_some_and(|(controller, _)| controller == id),
        "leaders": load.leaders,
        "replicas": load.replicas,
        "under_replicated_leaders": load.under_replicated_leaders,
        "told_ms_ago": told.map(Told::age_ms),
    });
    for name in OWN {
        broker[name] = told.map_or(Value::Null, |told| told.field(name));
    }
    broker
}
