//! `barnabas config`: settings of one broker, or of all of them; and what a broker's file says.

use barnabas_proto::v1::alter_config_request::Entity;
use barnabas_proto::v1::alter_config_response::Result as Altered;
use barnabas_proto::v1::{
    BrokerSetting, DescribeBrokerConfigRequest, DescribeBrokerConfigResponse,
    DescribeClusterRequest,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ask::{ask, failure};
use super::config_file::{self, CheckArgs, ExplainArgs};
use super::settings::{Changes, change, say_altered};
use super::table::{print_json, table};
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum ConfigVerb {
    /// Show a broker's settings and where each comes from, or what is stored for all brokers.
    Describe {
        #[command(flatten)]
        whose: Whose,
        /// With the settings that nobody has set, too.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Change settings while the brokers run; ZooKeeper keeps them.
    Alter {
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        changes: Changes,
        #[command(flatten)]
        asking: Asking,
    },
    /// Check a broker's file: everything that is wrong with it at once, and what is allowed and a trap.
    Check(CheckArgs),
    /// Tell what a setting is, its value in force, and where that comes from.
    Explain(ExplainArgs),
    /// Print the page of every key of a broker's file (deploy/configuration.md).
    Reference,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct Whose {
    /// One broker.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i32).range(0..))]
    broker: Option<i32>,
    /// All brokers, and topics that do not say.
    #[arg(long)]
    cluster_default: bool,
}

impl ConfigVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Describe { whose, all, asking } => describe(&whose, all, asking),
            Self::Alter { whose, changes, asking } => alter(&whose, changes, &asking),
            Self::Check(args) => config_file::check(&args),
            Self::Explain(args) => config_file::explain(&args),
            Self::Reference => {
                say!("{}", barnabas_broker::config::reference().trim_end());
                Ok(())
            }
        }
    }
}

fn describe(whose: &Whose, all: bool, mut asking: Asking) -> Result<(), CliError> {
    if let Some(id) = whose.broker {
        // What is in a broker's file it alone knows.
        asking.admin = address_of(id, &asking)?;
    }
    let request = DescribeBrokerConfigRequest { cluster_default: whose.cluster_default };
    let answer: DescribeBrokerConfigResponse =
        ask(&asking, |mut client| async move { client.describe_broker_config(request).await })?;
    if let Some(id) = whose.broker.filter(|id| *id != answer.broker_id) {
        return Err(CliError::Refused(format!(
            "at {} broker {} answers, not broker {id}; see `barnabas broker list`",
            asking.admin, answer.broker_id
        )));
    }
    let shown = |setting: &&BrokerSetting| all || asking.json || setting.source != "default";
    let rows: Vec<Value> = answer.settings.iter().filter(shown).map(row).collect();
    if asking.json {
        print_json(&Value::Array(rows));
    } else if rows.is_empty() {
        say!("no settings are stored");
    } else {
        say!("{}", table(&["name", "value", "source", "read_only"], &rows).trim_end());
    }
    Ok(())
}

fn row(setting: &BrokerSetting) -> Value {
    json!({
        "name": setting.name, "value": setting.value, "source": setting.source,
        "read_only": setting.read_only,
    })
}

/// The gRPC address of a registered broker.
pub(super) fn address_of(id: i32, asking: &Asking) -> Result<String, CliError> {
    let request = DescribeClusterRequest {};
    let cluster = ask(asking, |mut client| async move { client.describe_cluster(request).await })?;
    let broker = cluster.brokers.into_iter().find(|broker| broker.id == id);
    broker.map(|broker| broker.control_address).ok_or_else(|| {
        CliError::Refused(format!(
            "broker {id} is not registered; `barnabas broker list` shows those that are"
        ))
    })
}

fn alter(whose: &Whose, changes: Changes, asking: &Asking) -> Result<(), CliError> {
    let validate_only = changes.validate_only;
    let (entity, text) = match whose.broker {
        Some(id) => (Entity::BrokerId(id), format!("broker {id}")),
        None => (Entity::ClusterDefault(true), "the cluster".to_owned()),
    };
    match change(entity, changes, asking)? {
        Altered::Altered(altered) => {
            say_altered(("broker", json!(whose.broker)), &text, altered, validate_only, asking);
            Ok(())
        }
        Altered::Failure(refusal) => Err(failure(&refusal)),
    }
}
