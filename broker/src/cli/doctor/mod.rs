//! `barnabas doctor`: looks at a broker's file, its machine, its cluster and its ZooKeeper, and says of each thing how it is and what to do.
//!
//! It dials what is configured or registered, and nothing else.

mod cluster;
mod machine;
mod zookeeper;

use std::path::PathBuf;

use barnabas_broker::config::{self, BrokerConfig};
use clap::Args;
use serde_json::{Value, json};

use super::ask::printable;
use super::table::print_json;
use super::topic::counted;
use super::{Asking, CliError};

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    /// The file of a broker of this machine: then the machine's disks and the ZooKeeper servers are looked at, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    asking: Asking,
}

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Ok,
    Warn,
    Bad,
    /// It was not looked at; the text says why.
    Skipped,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Skipped => "skipped",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    /// What to do.
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, level: Level::Skipped, text: why.into(), advice: None }
    }

    fn warn(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, text: text.into(), advice: Some(advice.into()) }
    }

    fn bad(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Bad, text: text.into(), advice: Some(advice.into()) }
    }

    fn json(&self) -> Value {
        json!({"check": self.check, "level": self.level.name(), "text": self.text, "advice": self.advice})
    }
}

impl DoctorArgs {
    /// Exit codes: 0 nothing is bad, 2 something is.
    pub(super) fn run(self) -> Result<(), CliError> {
        let mut found = Vec::new();
        let config = self.file(&mut found);
        machine::look(config.as_ref(), &mut found);
        cluster::look(&self.asking, config.as_ref(), &mut found);
        match &config {
            Some(config) => zookeeper::look(config, &mut found),
            None => found.push(Finding::skipped(
                "zookeeper",
                "give --config FILE: a broker's file names the servers",
            )),
        }
        let count = |level| found.iter().filter(|finding| finding.level == level).count();
        if self.asking.json {
            print_json(&found.iter().map(Finding::json).collect());
        } else {
            for finding in &found {
                let advice = finding.advice.as_deref().map(|advice| format!("; {advice}"));
                let text = format!("{}{}", finding.text, advice.unwrap_or_default());
                say!("{:<7}  {:<20}  {}", finding.level.name(), finding.check, printable(&text));
            }
        }
        let bad = i64::try_from(count(Level::Bad)).unwrap_or(i64::MAX);
        match bad {
            0 => Ok(()),
            bad => Err(CliError::Unwell(format!("{} found bad", counted(bad, "thing")))),
        }
    }

    /// What the file says, if a broker could start with it.
    fn file(&self, found: &mut Vec<Finding>) -> Option<BrokerConfig> {
        let file = self.config.as_ref()?;
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("{} cannot be read: {error}", file.display());
                found.push(Finding::bad("config", text, "name the broker's YAML file"));
                return None;
            }
        };
        let checked = config::check(file, &text);
        for error in &checked.errors {
            found.push(Finding::bad(
                "config",
                error.to_string(),
                "a broker does not start with it",
            ));
        }
        for trap in &checked.traps {
            found.push(Finding {
                check: "config",
                level: Level::Warn,
                text: trap.to_string(),
                advice: None,
            });
        }
        let config = BrokerConfig::load(file).ok()?;
        if checked.traps.is_empty() {
            let keys = i64::try_from(checked.keys).unwrap_or(i64::MAX);
            found.push(Finding::ok("config", format!("{}, nothing to say", counted(keys, "key"))));
        }
        Some(config)
    }
}
