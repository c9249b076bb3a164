//! `groups`: who falls behind, and whether it grows.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::glance::GroupTold;
use super::super::source::Source;
use super::exact;
use super::refusal::Refusal;
use crate::clock::unix_ms;
use crate::http::glance::{Group, lag};

/// Groups in one answer.
const GROUPS_MAX: usize = 2_000;

/// `{"groups": [...], "total", "complete"}`; `complete`: every broker told of those that it coordinates.
pub(super) async fn list(source: &Source) -> Value {
    let known = source.groups.known(source).await;
    let groups: Vec<Value> = known.groups.values().take(GROUPS_MAX).map(told).collect();
    json!({ "groups": groups, "total": known.groups.len(), "complete": known.complete })
}

/// One with its partitions.
pub(super) async fn one(source: &Source, name: &str) -> Result<Value, Refusal> {
    let known = source.groups.known(source).await;
    let Some(group) = known.groups.get(name) else {
        return Err(match known.complete {
            true => Refusal::not_found(format!("there is no group {name}")),
            false => Refusal::not_ready("not every broker has told of its groups"),
        });
    };
    let mut shown = told(group);
    let partitions = group.told.offsets.iter().zip(&group.ends).map(|(at, end)| {
        let mut owners = group.told.owners.iter();
        let owner = owners.find(|o| (&o.topic, o.partition) == (&at.topic, at.partition));
        json!({
            "topic": at.topic,
            "partition": at.partition,
            "committed_offset": exact(at.offset),
            "log_end_offset": end.map(exact),
            "lag_records": lag(at, *end),
            "member": owner.map(|owner| &owner.member),
            "client_id": owner.map(|owner| &owner.client_id),
            "host": owner.map(|owner| &owner.host),
        })
    });
    shown["partitions"] = partitions.collect();
    Ok(shown)
}

fn told(group: &Group) -> Value {
    json!({
        "name": group.told.name,
        "state": group.told.state,
        "coordinator": group.coordinator.0,
        "members": group.told.members,
        "topics": group.topics(),
        "lag_records": group.lag(),
        "lag_ms": group.lag_ms(unix_ms()),
        "lag_trend": group.trend,
        "partitions_without_owner": unowned(&group.told),
    })
}

/// Partitions with a commit that no member reads; null: the members' own protocol cannot be read.
fn unowned(group: &GroupTold) -> Option<usize> {
    let owners = group.owners.iter().map(|owner| (owner.topic.as_str(), owner.partition));
    let owned: BTreeSet<(&str, i32)> = owners.collect();
    let left =
        group.offsets.iter().filter(|at| !owned.contains(&(at.topic.as_str(), at.partition)));
    group.owners_known.then(|| left.count())
}
