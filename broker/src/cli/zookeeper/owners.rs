//! Whose the nodes of a cluster are, and making them the brokers' alone or anybody's.

use std::time::Duration;

use barnabas_broker::config::BrokerConfig;
use barnabas_controller::zookeeper::{Found, Held, Servers, WalkError, Walked, Wish};
use clap::Args;
use serde_json::{Value, json};

use super::super::CliError;
use super::super::ask::{printable, runtime};
use super::super::table::{print_json, table};
use super::{OfBroker, load};

/// Most nodes that are printed one by one without `--json`.
const SHOWN_MAX: usize = 20;

#[derive(Args, Debug)]
pub(in crate::cli) struct OwnersArgs {
    #[command(flatten)]
    of: OfBroker,
    /// Print JSON, with every node.
    #[arg(long)]
    json: bool,
}

impl OwnersArgs {
    /// Exit codes: 0 done (a look: all nodes are the brokers' alone), 1 refused, 3 no server, 6 (a look) others may change nodes.
    pub(super) fn run(self, wish: Wish) -> Result<(), CliError> {
        let config = load(&self.of)?;
        let walked = walk(&config, wish)?;
        if self.json {
            print_json(&json(&walked));
        } else {
            print(&walked, wish);
        }
        let refused = walked.found.iter().filter(|found| found.refused.is_some()).count();
        match wish {
            _ if refused > 0 => Err(CliError::Refused(format!(
                "{refused} nodes are as they were; put the credentials that own them on a line of zookeeper.credentials.file too, and repeat"
            ))),
            Wish::Look if !walked.found.is_empty() => Err(CliError::Unwell(format!(
                "{} of {} nodes are not the brokers' alone; run `barnabas zookeeper secure --config {}` once all brokers have credentials",
                walked.found.len(),
                walked.nodes,
                self.of.config.display()
            ))),
            _ => Ok(()),
        }
    }
}

fn walk(config: &BrokerConfig, wish: Wish) -> Result<Walked, CliError> {
    let access = config.zookeeper_access.open().map_err(CliError::Refused)?;
    let connect = config.zookeeper_connect.to_string();
    let timeout = Duration::from_millis(config.zookeeper_session_timeout_ms);
    let servers = Servers::new(&connect, timeout).with_access(access);
    let patience = Duration::from_millis(config.zookeeper_connection_timeout_ms);
    let walked = runtime()?.block_on(servers.walk(wish, patience));
    walked.map_err(|error| match error {
        WalkError::Connect(_) => CliError::Unreachable(format!(
            "ZooKeeper at {connect}: {error}; start it, or correct zookeeper.connect in the file"
        )),
        WalkError::Nobody => CliError::Refused(
            "a node cannot belong to nobody: add zookeeper.credentials.file to the broker's file"
                .to_owned(),
        ),
        error => CliError::Refused(format!("ZooKeeper at {connect}: {error}")),
    })
}

fn row(found: &Found) -> Value {
    let (who, what) = match &found.held {
        Held::Ours => ("ours", Value::Null),
        Held::Anybody(what) => ("anybody", json!(what)),
        Held::Others(what) => ("others", json!(what)),
    };
    json!({"path": found.path, "held_by": who, "acl": what, "refused": found.refused})
}

fn json(walked: &Walked) -> Value {
    let found: Vec<Value> = walked.found.iter().map(row).collect();
    json!({
        "nodes": walked.nodes, "changed": walked.changed, "root_left": walked.root_left, "found": found,
    })
}

fn print(walked: &Walked, wish: Wish) {
    let told: Vec<Value> = walked
        .found
        .iter()
        .filter(|found| wish == Wish::Look || found.refused.is_some())
        .map(row)
        .collect();
    if !told.is_empty() {
        let shown = &told[..told.len().min(SHOWN_MAX)];
        print!("{}", table(&["path", "held_by", "acl"], shown));
        if told.len() > shown.len() {
            say!("... and {} more; --json has them all", told.len() - shown.len());
        }
    }
    let fitting = walked.nodes.saturating_sub(walked.found.len() as u64);
    match wish {
        Wish::Look => say!("{fitting} of {} nodes are the brokers' alone", walked.nodes),
        Wish::Secure => {
            say!("{} nodes belong to the brokers now, {fitting} did before", walked.changed)
        }
        Wish::Unsecure => {
            say!("{} nodes belong to anybody now, {fitting} did before", walked.changed)
        }
    }
    if walked.root_left {
        say!(
            "zookeeper.connect has no chroot, and the root of the ensemble, which others may use too, is left alone: whoever may delete there may delete {}",
            printable("/controller")
        );
    }
}
