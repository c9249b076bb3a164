//! `barnabas config check | explain | reference`: what a broker's file says, before a broker reads it.

use std::path::{Path, PathBuf};

use barnabas_broker::config::{self, BrokerConfig, KEYS, Key};
use barnabas_proto::v1::{DescribeBrokerConfigRequest, DescribeBrokerConfigResponse};
use clap::Args;
use serde_json::{Value, json};

use super::ask::{ask, printable};
use super::table::print_json;
use super::topic::counted;
use super::{Asking, CliError};

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ExplainArgs {
    /// The setting, by the name that a broker's file or a topic has for it.
    #[arg(value_name = "KEY")]
    key: String,
    /// Ask this file, and not a broker.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    asking: Asking,
}

/// Everything that is wrong with a file, then what is allowed and a trap; refused if anything is wrong.
pub(super) fn check(args: &CheckArgs) -> Result<(), CliError> {
    let file = &args.file;
    let text = read(file)?;
    let checked = config::check(file, &text);
    let errors: Vec<String> =
        checked.errors.iter().map(|error| printable(&error.to_string())).collect();
    if args.json {
        let traps = checked.traps.iter().map(|trap| json!({"key": trap.key, "text": trap.text}));
        print_json(&json!({
            "file": file.display().to_string(), "keys": checked.keys, "errors": errors,
            "warnings": traps.collect::<Vec<Value>>(),
        }));
    } else {
        for error in &errors {
            say!("error    {error}");
        }
        for trap in &checked.traps {
            say!("warning  {}: {}", file.display(), printable(&trap.to_string()));
        }
    }
    let named = file.display();
    match i64::try_from(errors.len()).unwrap_or(i64::MAX) {
        0 if args.json => Ok(()),
        0 => {
            let keys = counted(i64::try_from(checked.keys).unwrap_or(i64::MAX), "key");
            say!("{named}: {keys}, a broker starts with it");
            Ok(())
        }
        number => Err(CliError::Refused(format!(
            "{named} has {}; a broker does not start with it",
            counted(number, "error")
        ))),
    }
}

fn read(file: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(file).map_err(|error| {
        CliError::Refused(format!(
            "cannot read {}: {error}; give the path of a YAML file",
            file.display()
        ))
    })
}

/// What is in force, and why.
struct InForce {
    value: Option<String>,
    source: String,
}

/// What one setting is, and its value in force.
pub(super) fn explain(args: &ExplainArgs) -> Result<(), CliError> {
    let key = key(&args.key)?;
    let in_force = match &args.config {
        Some(file) => of_file(key, file),
        None => of_cluster(key, &args.asking),
    };
    let (value, failed) = match in_force {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    };
    let default = Some(&key.default).filter(|default| !default.is_empty());
    let none = || "none".to_owned();
    if args.asking.json {
        print_json(&json!({
            "key": key.name,
            "value": value.as_ref().map(|in_force| &in_force.value),
            "source": value.as_ref().map(|in_force| &in_force.source),
            "default": default, "unit": key.unit(), "form": key.form, "changed": key.changed(),
            "topics_name": key.topics_name(), "meaning": key.meaning,
        }));
    } else {
        say!("key        {}", key.name);
        say!("meaning    {}", key.meaning);
        match &value {
            Some(InForce { value, source }) => {
                let value = value.as_deref().map_or_else(none, printable);
                say!("in force   {value} ({source})");
            }
            None => say!("in force   not known"),
        }
        say!("default    {}", default.cloned().unwrap_or_else(none));
        say!("form       {}", key.form);
        say!("unit       {}", key.unit().map_or_else(none, str::to_owned));
        say!("changed    {}", key.changed());
        if let Some(name) = key.topics_name() {
            say!("topics     call it {name}, and may say otherwise each for itself");
        }
    }
    failed.map_or(Ok(()), Err)
}

fn key(name: &str) -> Result<&'static Key, CliError> {
    if let Some(key) = config::find(name) {
        return Ok(key);
    }
    // A topic's name for it is no mistake.
    if let Some(key) = KEYS.iter().find(|key| key.topics_name() == Some(name)) {
        return Ok(key);
    }
    let topics = KEYS.iter().filter_map(Key::topics_name);
    let nearest = config::nearest(name).or_else(|| barnabas_types::nearest(name, topics));
    let remedy = match nearest {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => "`barnabas config reference` lists those that there are".to_owned(),
    };
    Err(CliError::Refused(format!("there is no setting '{}'; {remedy}", printable(name))))
}

fn of_file(key: &Key, file: &Path) -> Result<InForce, CliError> {
    let config = BrokerConfig::load(file).map_err(|e| CliError::Refused(e.to_string()))?;
    let shown = config.shown.iter().find(|shown| shown.name == key.name);
    let given = shown.is_some_and(|shown| shown.given);
    let source = match given {
        true => format!("given in {}", file.display()),
        false => format!("the default: {} does not give it", file.display()),
    };
    Ok(InForce { value: shown.and_then(|shown| shown.value.clone()), source })
}

fn of_cluster(key: &Key, asking: &Asking) -> Result<InForce, CliError> {
    let request = DescribeBrokerConfigRequest { cluster_default: false };
    let answer: DescribeBrokerConfigResponse =
        ask(asking, |mut client| async move { client.describe_broker_config(request).await })?;
    let id = answer.broker_id;
    let setting = answer.settings.into_iter().find(|setting| setting.name == key.name);
    let Some(setting) = setting else {
        return Err(CliError::Refused(format!(
            "broker {id} at {} does not know {}; it runs another version",
            asking.admin, key.name
        )));
    };
    let source = match setting.source.as_str() {
        "broker" => format!("stored in ZooKeeper for broker {id}"),
        "cluster" => "stored in ZooKeeper for all brokers".to_owned(),
        "file" => format!("given in the file of broker {id}"),
        "default" => format!("the default, at broker {id}"),
        other => format!("{}, at broker {id}", printable(other)),
    };
    Ok(InForce { value: setting.value, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_by_either_name_and_a_misspelt_one_is_told() {
        assert_eq!(key("log.retention.ms").unwrap().name, "log.retention.ms");
        assert_eq!(key("flush.ms").unwrap().name, "log.flush.interval.ms");
        let refused = |name: &str| key(name).unwrap_err().to_string();
        assert!(refused("log.retentoin.ms").contains("did you mean 'log.retention.ms'?"));
        assert!(refused("flush.m").contains("did you mean 'flush.ms'?"), "{}", refused("flush.m"));
        assert!(refused("quota.window.num").contains("config reference"));
    }
}
