//! Asks the controller for what a plan says, as the CLI does.

use std::time::Instant;

use barnabas_controller::{ElectLeaders, ElectPartition, Election, Reassign, ReplicaMoves};
use barnabas_types::Condition;
use serde_json::{Value, json};

use super::plan::{Act, Plan, TOLD_MAX, counted};
use super::result;
use crate::node::Node;

/// `{"outcome": done, partly, failed or unknown; "message", "results", "took_ms"}`.
pub(super) async fn run(node: &Node, plan: &Plan) -> Value {
    let began = Instant::now();
    let done = act(node, &plan.act).await;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (outcome, message, results) = match done {
        Ok(results) => {
            let failed = results.iter().filter(|result| result["ok"] == false).count();
            let of = counted(results.len(), "step");
            match failed {
                0 => ("done", String::new(), results),
                _ if failed < results.len() => {
                    ("partly", format!("{failed} of {of} were refused"), results)
                }
                _ => ("failed", "nothing was changed".to_owned(), results),
            }
        }
        Err(condition @ (Condition::UnknownOutcome(_) | Condition::RequestTimedOut)) => {
            ("unknown", condition.to_string(), Vec::new())
        }
        Err(condition) => ("failed", condition.to_string(), Vec::new()),
    };
    // The command says what was asked for; the token is nowhere near.
    tracing::info!(
        target: "controller", action = plan.act.name(), outcome, took_ms, command = %plan.command,
        "an operator's plan was run"
    );
    json!({
        "outcome": outcome,
        "message": message,
        "results_total": results.len(),
        "results": results.into_iter().take(TOLD_MAX).collect::<Vec<_>>(),
        "took_ms": took_ms,
    })
}

async fn act(node: &Node, act: &Act) -> Result<Vec<Value>, Condition> {
    let controller = &node.controller;
    let said = |condition: Condition| condition.to_string();
    match act {
        Act::CreateTopic(new) => {
            let created = controller.create_topic(new.clone()).await?;
            let id = created.topic_id.map(|id| id.to_string()).unwrap_or_default();
            Ok(vec![result(
                format!("topic {}", new.name),
                Ok(format!("is there, with the id {id}")),
            )])
        }
        Act::ElectPreferred(elected) => {
            let one = |(at, epoch): &(_, _)| ElectPartition {
                partition: Clone::clone(at),
                expected: Some(*epoch),
            };
            let partitions = elected.iter().map(one).collect();
            let elect = ElectLeaders { election: Election::Preferred, partitions };
            let answer = controller.elect_leaders(elect).await?;
            let one = |(at, outcome): (barnabas_types::TopicPartition, Result<_, Condition>)| {
                let outcome: Result<barnabas_types::PartitionState, Condition> = outcome;
                let outcome = match outcome {
                    Ok(state) => Ok(state
                        .leader
                        .map_or_else(String::new, |id| format!("is led by broker {id}"))),
                    Err(Condition::ElectionNotNeeded(why)) => Ok(why),
                    Err(condition) => Err(condition.to_string()),
                };
                result(at.to_string(), outcome)
            };
            Ok(answer.into_iter().map(one).collect())
        }
        Act::SetDraining(id, draining) => {
            let progress = controller.set_broker_draining(*id, *draining).await?;
            let message = match (draining, progress.may_stop) {
                (false, _) => "takes part again",
                (true, true) => "is drained: it may be stopped",
                (true, false) => "is draining",
            };
            Ok(vec![result(format!("broker {id}"), Ok(message.to_owned()))])
        }
        Act::Reassign { moves, throttle } => {
            let to = |(at, replicas): &(barnabas_types::TopicPartition, Vec<_>)| {
                let wish = Reassign::To { replicas: replicas.clone(), throttle: *throttle };
                (at.topic.to_string(), at.partition, wish)
            };
            let wanted = ReplicaMoves::Partitions(moves.iter().map(to).collect());
            let moved = controller.reassign(wanted).await?;
            let one = |moved: barnabas_controller::ReplicaMoved| {
                let outcome = moved.outcome.map(|()| "is on its way".to_owned()).map_err(said);
                result(format!("{}-{}", moved.topic, moved.partition), outcome)
            };
            Ok(moved.into_iter().map(one).collect())
        }
        Act::AlterConfig(alter) => {
            let altered = controller.alter_config(alter.clone()).await?;
            let message = match &altered.unconfirmed[..] {
                [] => "are stored, and in force".to_owned(),
                late => format!(
                    "are stored; {} have not confirmed them yet",
                    crate::explain::cause::named(late)
                ),
            };
            Ok(vec![result(
                format!("the settings of {}", super::made_for::whose(&alter.entity)),
                Ok(message),
            )])
        }
    }
}
