//! A plan: what is to be done, and what an operator is shown of it before.

use barnabas_controller::{AlterConfig, NewTopic};
use barnabas_types::{BrokerId, PartitionEpoch, TopicPartition};
use serde_json::{Value, json};

use super::made_for::MadeFor;

/// Steps, and risks, that are told one by one.
pub(super) const TOLD_MAX: usize = 200;

/// What the controller is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    CreateTopic(NewTopic),
    /// Each only at this partition epoch.
    ElectPreferred(Vec<(TopicPartition, PartitionEpoch)>),
    SetDraining(BrokerId, bool),
    Reassign {
        moves: Vec<(TopicPartition, Vec<BrokerId>)>,
        throttle: Option<u64>,
    },
    AlterConfig(AlterConfig),
}

impl Act {
    /// Its name in the API.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::CreateTopic(_) => "create_topic",
            Self::ElectPreferred(_) => "elect_preferred",
            Self::SetDraining(_, true) => "drain",
            Self::SetDraining(_, false) => "undrain",
            Self::Reassign { .. } => "reassign",
            Self::AlterConfig(_) => "alter_config",
        }
    }
}

/// Something that may not be wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Risk {
    /// Records or availability are at stake, not only time.
    pub(super) bad: bool,
    /// One sentence.
    pub(super) text: String,
}

impl Risk {
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self { bad: true, text: text.into() }
    }

    pub(super) fn warn(text: impl Into<String>) -> Self {
        Self { bad: false, text: text.into() }
    }
}

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) act: Act,
    /// Sentences without full stops, in the order in which they happen.
    pub(super) steps: Vec<String>,
    /// Leaderships that go to another broker.
    pub(super) moves_leaders: usize,
    /// Bytes that brokers copy from one another; `None`: not known.
    pub(super) copies_bytes: Option<u64>,
    /// How long it takes, in ms; `None`: not known.
    pub(super) eta_ms: Option<u64>,
    pub(super) risks: Vec<Risk>,
    /// The same act in the CLI.
    pub(super) command: String,
    /// What the cluster was when it was made.
    pub(super) made_for: MadeFor,
}

impl Plan {
    /// As it is shown.
    pub(super) fn json(&self, id: &str) -> Value {
        let risk = |risk: &Risk| json!({ "severity": if risk.bad { "bad" } else { "warn" }, "text": risk.text });
        json!({
            "plan_id": id,
            "action": self.act.name(),
            "steps": self.steps.iter().take(TOLD_MAX).collect::<Vec<_>>(),
            "steps_total": self.steps.len(),
            "moves_leaders": self.moves_leaders,
            "copies_bytes": self.copies_bytes,
            "eta_ms": self.eta_ms,
            "risks": self.risks.iter().take(TOLD_MAX).map(risk).collect::<Vec<_>>(),
            "risks_total": self.risks.len(),
            "command": self.command,
        })
    }
}

/// `1 partition`, `2 partitions`.
pub(super) fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
