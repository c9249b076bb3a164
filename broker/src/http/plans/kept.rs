//! The plans of one broker: bounded in number and age, each run at most once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::api::Refusal;
use super::plan::Plan;

/// Plans that are kept; the oldest that does not run makes room.
pub(super) const PLANS_MAX: usize = 64;
/// How long a plan can be run, and how long what became of it is told.
pub(super) const PLAN_AGE_MAX: Duration = Duration::from_secs(600);
/// Plans that run at once.
pub(super) const RUNNING_MAX: usize = 4;

/// How far a plan is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Previewed,
    Running,
    /// With what became of it.
    Ended(Value),
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Kept(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    id: String,
    /// Of what became of it, once it is run.
    since: Instant,
    stage: Stage,
    plan: Arc<Plan>,
}

impl Kept {
    fn forget(&mut self, now: Instant) {
        self.0.retain(|entry| {
            entry.stage == Stage::Running
                || now.saturating_duration_since(entry.since) < PLAN_AGE_MAX
        });
    }

    /// A new one.
    pub(super) fn add(&mut self, now: Instant, id: String, plan: Plan) -> Arc<Plan> {
        self.forget(now);
        if self.0.len() >= PLANS_MAX
            && let Some(oldest) = self.0.iter().position(|entry| entry.stage != Stage::Running)
        {
            self.0.remove(oldest);
        }
        let plan = Arc::new(plan);
        self.0.push_back(Entry { id, since: now, stage: Stage::Previewed, plan: plan.clone() });
        plan
    }

    /// A plan and how far it is.
    pub(super) fn get(&mut self, now: Instant, id: &str) -> Result<(Arc<Plan>, Stage), Refusal> {
        self.forget(now);
        let unknown = || {
            Refusal::not_found(
                "this broker has no such plan: it is older than ten minutes, or another broker made it",
            )
        };
        let found = self.0.iter().find(|entry| entry.id == id).ok_or_else(unknown)?;
        Ok((found.plan.clone(), found.stage.clone()))
    }

    /// The plan runs from now on.
    pub(super) fn begin(&mut self, now: Instant, id: &str) -> Result<(), Refusal> {
        match self.get(now, id)?.1 {
            Stage::Previewed => {}
            Stage::Running => return Err(Refusal::conflict("the plan is being run")),
            Stage::Ended(_) => return Err(Refusal::conflict("the plan was run already")),
        }
        let running = self.0.iter().filter(|entry| entry.stage == Stage::Running).count();
        if running >= RUNNING_MAX {
            return Err(Refusal::too_many(format!("{RUNNING_MAX} plans are being run already")));
        }
        self.set(id, now, Stage::Running);
        Ok(())
    }

    /// It does not any more.
    pub(super) fn end(&mut self, now: Instant, id: &str, outcome: Value) {
        self.set(id, now, Stage::Ended(outcome));
    }

    fn set(&mut self, id: &str, now: Instant, stage: Stage) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.id == id) {
            (entry.since, entry.stage) = (now, stage);
        }
    }
}
