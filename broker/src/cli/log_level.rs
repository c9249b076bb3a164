//! `barnabas broker log-level`: how much a broker logs, shown and changed while it runs.

use barnabas_broker::logs::{Level, Levels, ROOT, TARGETS};
use barnabas_proto::v1::{LogLevelsRequest, LogLevelsResponse, SetLogLevel};
use clap::Args;
use serde_json::{Value, json};

use super::ask::{ask, failure, printable};
use super::config::address_of;
use super::table::{print_json, table};
use super::{Asking, CliError};

#[derive(Args, Debug)]
pub(super) struct LogLevelArgs {
    /// Which broker; else the one at --admin.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i32).range(0..))]
    broker: Option<i32>,
    /// A target and its level, such as request=debug; a level alone is that of all other targets.
    #[arg(value_name = "TARGET=LEVEL", value_parser = one)]
    set: Vec<(String, String)>,
    /// Forget first what was set in this way: the broker's command line and file hold again.
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Refused here already if this program knows that a broker would refuse it.
fn one(text: &str) -> Result<(String, String), String> {
    Levels::parse(text).map_err(|error| error.to_string())?;
    let (target, level) = text.split_once('=').unwrap_or((ROOT, text));
    if Level::find(level.trim()).is_none() {
        return Err("expected one TARGET=LEVEL in each word".to_owned());
    }
    Ok((target.trim().to_owned(), level.trim().to_owned()))
}

impl LogLevelArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let Self { broker, set, reset, mut asking } = self;
        if let Some(id) = broker {
            asking.admin = address_of(id, &asking)?;
        }
        let set = set.into_iter().map(|(target, level)| SetLogLevel { target, level }).collect();
        let request = LogLevelsRequest { reset, set };
        let answer: LogLevelsResponse =
            ask(&asking, |mut client| async move { client.log_levels(request).await })?;
        if let Some(refused) = &answer.failure {
            return Err(failure(refused));
        }
        if let Some(id) = broker.filter(|id| *id != answer.broker_id) {
            return Err(CliError::Refused(format!(
                "at {} broker {} answers, not broker {id}; see `barnabas broker list`",
                asking.admin, answer.broker_id
            )));
        }
        let rows: Vec<Value> = answer
            .levels
            .iter()
            .map(|one| {
                json!({
                    "target": printable(&one.target), "level": printable(&one.level),
                    "source": printable(&one.source), "what": meaning(&one.target),
                })
            })
            .collect();
        if asking.json {
            print_json(&json!({"broker": answer.broker_id, "levels": rows}));
        } else {
            say!("{}", table(&["target", "level", "source", "what"], &rows).trim_end());
        }
        Ok(())
    }
}

fn meaning(target: &str) -> &'static str {
    match target {
        ROOT => "whatever no other target names",
        _ => TARGETS.iter().find(|one| one.name == target).map_or("", |one| one.meaning),
    }
}
