//! What a topic survives and where its settings are a trap, as `topic create` and `topic describe` say it.

use barnabas_proto::v1::{Partition, Topic};
use barnabas_types::durability::{Fault, Trap, survives};
use barnabas_types::{Acks, TopicConfig};
use serde_json::{Value, json};

const ACKS: [(Acks, &str); 2] = [(Acks::All, "acks=all"), (Acks::Leader, "acks=1")];

/// One topic's settings, and how many replicas its thinnest partition has.
pub(super) struct Durability {
    config: TopicConfig,
    replication_factor: usize,
}

impl Durability {
    /// `None` for a topic without partitions, or with settings that cannot be read.
    pub(super) fn of(topic: &Topic) -> Option<Self> {
        let config = TopicConfig::try_from(topic.config.as_ref()?).ok()?;
        let replication_factor = topic.partitions.iter().map(meant).min()?;
        (replication_factor > 0).then_some(Self { config, replication_factor })
    }

    /// Lines for a person: what is survived at which acks, then one warning for each trap.
    pub(super) fn lines(&self) -> Vec<String> {
        let of = |(acks, name): (Acks, &str)| {
            let (kept, lost): (Vec<Fault>, Vec<Fault>) =
                Fault::ALL.iter().partition(|fault| self.survives(acks, **fault));
            match (joined(&kept), joined(&lost)) {
                (kept, _) if kept.is_empty() => {
                    format!("{name} survives none of: {}", joined(&lost))
                }
                (kept, lost) if lost.is_empty() => format!("{name} survives {kept}"),
                (kept, lost) => format!("{name} survives {kept}, not {lost}"),
            }
        };
        let warnings = self.warnings();
        ACKS.map(of)
            .into_iter()
            .chain(warnings.into_iter().map(|text| format!("warning: {text}")))
            .collect()
    }

    /// `{"acks=all": {"broker_crash": true, ...}, "acks=1": ...}`
    pub(super) fn as_json(&self) -> Value {
        let of = |acks| {
            json!({
                "broker_crash": self.survives(acks, Fault::BrokerCrash),
                "power_cut": self.survives(acks, Fault::PowerCut),
                "power_cut_of_all": self.survives(acks, Fault::PowerCutOfAll),
            })
        };
        ACKS.into_iter().map(|(acks, name)| (name.to_owned(), of(acks))).collect()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let traps = Trap::of(&self.config, self.replication_factor);
        traps.into_iter().map(|trap| trap.advice(self.replication_factor)).collect()
    }

    fn survives(&self, acks: Acks, fault: Fault) -> bool {
        survives(&self.config, self.replication_factor, acks, fault)
    }
}

/// How many replicas a partition has without those that are only being added.
fn meant(partition: &Partition) -> usize {
    partition.assigned_replicas.iter().filter(|b| !partition.adding_replicas.contains(b)).count()
}

fn joined(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_as_durable_as_its_thinnest_partition() {
        let partition = |replicas: &[i32]| Partition {
            assigned_replicas: replicas.to_vec(),
            ..Partition::default()
        };
        let config = TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() };
        let mut topic = Topic {
            config: Some((&config).into()),
            partitions: vec![partition(&[1, 2, 3])],
            ..Topic::default()
        };
        assert_eq!(
            Durability::of(&topic).unwrap().lines(),
            [
                "acks=all survives one broker crash, one power cut, not a power cut of all",
                "acks=1 survives none of: one broker crash, one power cut, a power cut of all",
            ]
        );
        topic.partitions.push(partition(&[3]));
        let thin = Durability::of(&topic).unwrap();
        assert_eq!(thin.as_json()["acks=all"]["power_cut"], false);
        assert_eq!(thin.warnings().len(), 2, "{:?}", thin.warnings());
    }
}
