//! A new topic. The controller has checked it, and chooses the brokers when it is made.

use barnabas_controller::{CreatedTopic, NewTopic};
use barnabas_types::durability::Trap;
use barnabas_types::topic_config::Setting;
use barnabas_types::{ClusterImage, TopicConfig, TopicName};

use super::super::api::Refusal;
use super::made_for::{MadeFor, Part};
use super::plan::{Act, Plan, Risk, counted};
use crate::explain::cause::quoted;

/// `would`: what the controller says would be created. `min_insync_replicas`: what holds where nobody says, as this broker's file knows.
pub(super) fn plan(
    image: &ClusterImage,
    new: NewTopic,
    would: CreatedTopic,
    min_insync_replicas: u32,
) -> Result<Plan, Refusal> {
    let name = TopicName::new(&new.name).map_err(|error| Refusal::bad(error.to_string()))?;
    let CreatedTopic { partitions, replication_factor, .. } = would;
    let count = |n: i32, what| counted(usize::try_from(n).unwrap_or(0), what);
    let mut steps = vec![format!(
        "topic {name} is created with {}, {} each, on brokers that the controller chooses",
        count(partitions, "partition"),
        count(replication_factor, "replica")
    )];
    steps.extend(new.overrides.iter().map(|(key, value)| format!("its {key} is {value}")));
    let config = config(image, &new, min_insync_replicas);
    let factor = usize::try_from(replication_factor).unwrap_or(0);
    let risk = |trap: Trap| {
        let text = trap.advice(factor);
        match trap {
            Trap::OneReplica | Trap::MinInsyncOutOfReach | Trap::UncleanElections => {
                Risk::bad(text)
            }
            _ => Risk::warn(text),
        }
    };
    let risks = Trap::of(&config, factor).into_iter().map(risk).collect();
    let mut command = format!(
        "barnabas topic create {} --partitions {partitions} --replication-factor {replication_factor}",
        quoted(&new.name)
    );
    for (key, value) in &new.overrides {
        command.push_str(&format!(" --config {}", quoted(&format!("{key}={value}"))));
    }
    let new = NewTopic {
        partitions: Some(partitions),
        replication_factor: Some(replication_factor),
        validate_only: false,
        ..new
    };
    Ok(Plan {
        act: Act::CreateTopic(new),
        steps,
        moves_leaders: 0,
        copies_bytes: Some(0),
        eta_ms: None,
        risks,
        command,
        made_for: MadeFor::of(image, Part::Absent(name)),
    })
}

/// What will be in force, as far as is known here: what is stored for all brokers, and above it what the topic says.
fn config(image: &ClusterImage, new: &NewTopic, min_insync_replicas: u32) -> TopicConfig {
    let mut config = TopicConfig { min_insync_replicas, ..TopicConfig::default() };
    let of_all = image.broker_settings.get(&None).into_iter().flatten();
    let of_all = of_all.filter_map(|(key, value)| Some((Setting::of_broker(key)?, value)));
    let own = new.overrides.iter();
    let own = own.filter_map(|(key, value)| Some((Setting::find(key)?, value)));
    for (setting, value) in of_all.chain(own) {
        // The controller has found it legal.
        let _ = setting.read(&mut config, value);
    }
    config
}
