//! `cluster`: whether it is all right, and if not, what is wrong.

use barnabas_types::{BrokerId, Standings};
use serde_json::{Value, json};

use super::super::source::Source;
use super::brokers::everybody;
use super::problems::{Seen, problems};
use super::refusal::Refusal;
use crate::clock::unix_ms;

/// The whole object.
pub(in crate::http) async fn cluster(source: &Source) -> Result<Value, Refusal> {
    let node = &source.node;
    let image = node.view.image();
    let membership = *node.membership.borrow();
    let told = source.peers.brokers(source).await;
    let (ages, now) = node.view.ages();
    let (zookeeper_away_ms, no_controller_ms) = node.contact.away_ms(node.now());
    let counts = Standings::of(&image);
    let all = everybody(&image);
    let silent = source.peers.silent();
    let controller = membership.controller;
    // Who is only being elected has no word of the cluster from it yet.
    let pushed = image.controller.is_some_and(|pushed| Some(pushed) == controller);
    let state = match controller {
        None => "none",
        Some(_) if pushed => "active",
        Some(_) => "electing",
    };
    let session = match (membership.connected, membership.broker_epoch) {
        (true, Some(_)) => "connected",
        (true, None) => "expired",
        (false, _) => "suspended",
    };
    let recovering = told.iter().filter(|(_, told)| told.field("state") == "recovering");
    let seen = Seen {
        image: &image,
        ages: &ages,
        now,
        zookeeper_away_ms,
        no_controller_ms,
        recovering: recovering
            .map(|(id, told)| (*id, told.field("recovery_percent").as_u64()))
            .collect(),
        silent: &silent,
    };
    let lives = |id: &&BrokerId| !silent.contains_key(*id) && !image.suspected.contains(*id);
    let live = image.brokers.keys().filter(lives).count();
    let unix_now = unix_ms();
    Ok(json!({
        "cluster_id": node.cluster_id.to_string(),
        "cluster_name": null,
        "served_by": node.me.0,
        "version": env!("CARGO_PKG_VERSION"),
        "now_ms": unix_now,
        "read_only": source.read_only,
        "controller": {
            "id": controller.map_or(-1, |(id, _)| id.0),
            "epoch": controller.or(image.controller).map_or(0, |(_, epoch)| epoch.0),
            "state": state,
            "since_ms": null,
        },
        "zookeeper": {
            "session_state": session,
            "round_trip_ms_p99": source.metrics.zookeeper_ms_p99(),
            "session_timeout_ms": node.options.session_timeout_ms,
            "connect": source.zookeeper_connect,
        },
        "counts": {
            "brokers": all.len(),
            "brokers_live": live,
            "topics": image.topics.len(),
            "partitions": counts.partitions,
            "offline_partitions": counts.offline,
            "under_min_isr_partitions": counts.under_min_isr,
            "under_replicated_partitions": counts.under_replicated,
            "reassigning_partitions": counts.reassigning,
            "leaders_not_preferred": counts.not_preferred,
        },
        "lost_records_30d": source.losses.sums(source).await,
        "problems": problems(&seen).iter().map(|p| p.json(unix_now)).collect::<Vec<_>>(),
    }))
}
