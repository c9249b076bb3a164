//! What an operator changes through the page: a plan is made and shown (`preview`), then run if the cluster is still as it was.
//!
//! Nothing is decided here. A plan is made of the image and of what the controller says when it is only asked to check; to run one is to
//! ask the controller what the CLI asks it. One file for each thing that can be done; none of them awaits.

mod create;
mod drain;
mod elect;
mod kept;
mod made_for;
mod plan;
mod progress;
mod reassign;
mod run;
mod settings;
#[cfg(test)]
mod tests;
mod wanted;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use barnabas_controller::{AlterConfig, NewTopic};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerId, ClusterImage, Condition};
use serde_json::{Value, json};

use super::api::Refusal;
use super::source::Source;
use kept::{Kept, Stage};
use plan::Plan;
use wanted::{Target, Wanted};

/// Random bytes of a plan's id.
const ID_BYTES: usize = 16;

/// The plans of this broker.
#[derive(Debug, Default)]
pub(super) struct Plans(Mutex<Kept>);

impl Plans {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a plan of what `body` asks for, and changes nothing.
    pub(super) async fn preview(&self, source: &Source, body: &[u8]) -> Result<Value, Refusal> {
        let wanted = Wanted::read(body)?;
        let mut plan = make(source, wanted).await?;
        let own = source.node.view.image().brokers.get(&source.node.me).cloned();
        if let Some(own) = own {
            plan.command = plan
                .command
                .split(" && ")
                .map(|one| format!("{one} --admin {}", own.control_address))
                .collect::<Vec<_>>()
                .join(" && ");
        }
        let id = id()?;
        let plan = self.lock().add(Instant::now(), id.clone(), plan);
        Ok(plan.json(&id))
    }

    /// Runs a plan. Goes on if whoever asked is gone: what became of it is kept.
    pub(super) async fn run(
        self: &Arc<Self>,
        source: &Arc<Source>,
        id: &str,
    ) -> Result<Value, Refusal> {
        let (plan, stage) = self.lock().get(Instant::now(), id)?;
        if stage == Stage::Previewed {
            let of = plan.clone();
            let moved_on = over(source, move |image| of.made_for.moved_on(image)).await?;
            if let Some(why) = moved_on {
                return Err(Refusal::conflict(format!("{why}; look at a new plan")));
            }
        }
        self.lock().begin(Instant::now(), id)?;
        let (this, source, id) = (self.clone(), source.clone(), id.to_owned());
        let running = tokio::spawn(async move {
            let outcome = run::run(&source.node, &plan).await;
            this.lock().end(Instant::now(), &id, outcome.clone());
            let mut told = outcome;
            told["plan_id"] = id.into();
            told
        });
        running.await.map_err(|error| Refusal::not_ready(error.to_string()))
    }

    /// A plan, how far it is, and what the cluster has of it.
    pub(super) async fn look(&self, source: &Source, id: &str) -> Result<Value, Refusal> {
        let (plan, stage) = self.lock().get(Instant::now(), id)?;
        let mut told = plan.json(id);
        let (word, outcome) = match stage {
            Stage::Previewed => ("previewed", Value::Null),
            Stage::Running => ("running", Value::Null),
            Stage::Ended(outcome) => ("ended", outcome),
        };
        told["state"] = word.into();
        told["outcome"] = outcome;
        told["progress"] = over(source, move |image| progress::of(image, &plan.act)).await?;
        Ok(told)
    }
}

fn id() -> Result<String, Refusal> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Refusal::not_ready(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why the controller refuses.
fn refused(condition: &Condition) -> Refusal {
    match condition.is_retriable() {
        true => Refusal::not_ready(condition.to_string()),
        false => Refusal::bad(condition.to_string()),
    }
}

/// What comes of a look that may be at all partitions: on a thread that may take its time.
async fn over<T: Send + 'static>(
    source: &Source,
    look: impl FnOnce(&ClusterImage) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let image = source.node.view.image();
    source.aside.run(move || look(&image)).await.ok_or_else(Refusal::failed)
}

async fn make(source: &Source, wanted: Wanted) -> Result<Plan, Refusal> {
    let (node, controller) = (&source.node, &source.node.controller);
    let refused = |condition: Condition| refused(&condition);
    match wanted {
        Wanted::CreateTopic { topic, partitions, replication_factor, configs } => {
            let new = NewTopic {
                name: topic,
                partitions,
                replication_factor,
                overrides: configs,
                validate_only: true,
                ..NewTopic::default()
            };
            let would = controller.create_topic(new.clone()).await.map_err(refused)?;
            create::plan(&node.view.image(), new, would, node.options.min_insync_replicas)
        }
        Wanted::ElectPreferred { partitions } => {
            over(source, move |image| elect::plan(image, partitions.as_deref())).await?
        }
        Wanted::Drain { broker } => {
            let verdict = controller.can_stop(BrokerId(broker)).await.map_err(refused)?;
            over(source, move |image| drain::drain(image, BrokerId(broker), &verdict)).await?
        }
        Wanted::Undrain { broker } => {
            over(source, move |image| drain::undrain(image, BrokerId(broker))).await?
        }
        Wanted::Reassign { partitions, throttle } => {
            let sizes = sizes(source, &partitions).await?;
            over(source, move |image| reassign::plan(image, &partitions, throttle, &sizes)).await?
        }
        Wanted::AlterConfig { scope, set, delete } => {
            let entity = settings::entity(&node.view.image(), &scope)?;
            let set = set.into_iter().map(|(key, value)| (key, SettingChange::Set(value)));
            let delete = delete.into_iter().map(|key| (key, SettingChange::Delete));
            let changes: Vec<_> = set.chain(delete).collect();
            if changes.is_empty() {
                return Err(Refusal::bad("no setting is named"));
            }
            let alter = AlterConfig { entity, replace: false, changes, validate_only: true };
            controller.alter_config(alter.clone()).await.map_err(refused)?;
            settings::plan(&node.view.image(), alter)
        }
    }
}

/// How large the partitions are, as their leaders tell.
async fn sizes(source: &Source, targets: &[Target]) -> Result<reassign::Sizes, Refusal> {
    let image = source.node.view.image();
    let mut wanted = Vec::new();
    for target in targets {
        let at = target.at().read()?;
        let topic = image.topics.get(&at.topic);
        let partition = topic.and_then(|topic| topic.partitions.get(&at.partition));
        if let Some(leader) = partition.and_then(|partition| partition.state.leader) {
            wanted.push((at, leader));
        }
    }
    let found = source.peers.positions(source, wanted).await;
    let size =
        |((at, _), told): (_, super::glance::Told)| Some((at, told.field("bytes").as_u64()?));
    Ok(found.into_iter().filter_map(size).collect())
}

/// What a step came to.
fn result(what: String, outcome: Result<String, String>) -> Value {
    let (ok, message) = match outcome {
        Ok(message) => (true, message),
        Err(message) => (false, message),
    };
    json!({ "what": what, "ok": ok, "message": message })
}
