//! How much of a plan the cluster has reached, by the image alone: what was asked for may take its time after it was granted.

use barnabas_types::ClusterImage;
use serde_json::{Value, json};

use super::plan::Act;

/// `{"done", "of", "what"}`; null: there is nothing to wait for.
pub(super) fn of(image: &ClusterImage, act: &Act) -> Value {
    let partition = |at: &barnabas_types::TopicPartition| {
        image.topics.get(&at.topic).and_then(|topic| topic.partitions.get(&at.partition))
    };
    let told = |done: usize, of: usize, what: &str| json!({ "done": done, "of": of, "what": what });
    match act {
        Act::CreateTopic(_) | Act::AlterConfig(_) | Act::SetDraining(_, false) => Value::Null,
        Act::ElectPreferred(elected) => {
            let leads = |at: &_| {
                partition(at)
                    .is_some_and(|p| p.state.leader.as_ref() == p.assigned_replicas.first())
            };
            let done = elected.iter().filter(|(at, _)| leads(at)).count();
            told(done, elected.len(), "partitions are led by their preferred replica")
        }
        Act::SetDraining(id, true) => {
            let all = image.topics.values().flat_map(|topic| topic.partitions.values());
            let own: Vec<_> = all.filter(|p| p.assigned_replicas.contains(id)).collect();
            let left = own.iter().filter(|p| p.state.in_isr(*id) || p.state.leader == Some(*id));
            let left = left.count();
            told(own.len() - left, own.len(), "partitions do without it")
        }
        Act::Reassign { moves, .. } => {
            let there = |(at, replicas): &&(_, Vec<_>)| {
                partition(at)
                    .is_some_and(|p| !p.moving.is_under_way() && p.assigned_replicas == *replicas)
            };
            told(moves.iter().filter(there).count(), moves.len(), "partitions have moved")
        }
    }
}
