//! `barnabas group`: what consumer groups there are, who consumes what, how far they are, and how to put them elsewhere.

mod calls;
mod describe;
mod reset;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ask::printable;
use super::kafka::Cluster;
use super::table::{print_json, table};
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum GroupVerb {
    /// List all groups, with their states and coordinators.
    List(ListArgs),
    /// Show a group's members and their partitions; for each partition what is committed and how far behind that is.
    Describe(GroupArgs),
    /// Delete a group without members, and its offsets.
    Delete(GroupArgs),
    /// Set a group's offsets; without --execute only show what would be set.
    ResetOffsets(reset::ResetArgs),
}

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    asking: Asking,
}

#[derive(Args, Debug)]
pub(super) struct GroupArgs {
    /// The group id.
    group: String,
    #[command(flatten)]
    asking: Asking,
}

impl GroupVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::List(args) => list(&args.asking),
            Self::Describe(args) => describe::describe(&args.group, &args.asking),
            Self::Delete(args) => delete(&args.group, &args.asking),
            Self::ResetOffsets(args) => reset::reset(&args),
        }
    }
}

fn list(asking: &Asking) -> Result<(), CliError> {
    let mut rows: Vec<Value> = Cluster::of(asking)?
        .groups()?
        .into_iter()
        .map(|(coordinator, group)| {
            json!({
                "group": group.group_id.as_str(), "state": group.group_state.as_str(),
                "protocol_type": group.protocol_type.as_str(), "coordinator": coordinator,
            })
        })
        .collect();
    rows.sort_by_key(|row| row["group"].as_str().unwrap_or_default().to_owned());
    if asking.json {
        print_json(&Value::Array(rows));
    } else if rows.is_empty() {
        say!("no groups");
    } else {
        let columns = ["group", "state", "protocol_type", "coordinator"];
        say!("{}", table(&columns, &rows).trim_end());
    }
    Ok(())
}

fn delete(group: &str, asking: &Asking) -> Result<(), CliError> {
    Cluster::of(asking)?.delete(group)?;
    if asking.json {
        print_json(&json!({ "group": group, "deleted": true }));
    } else {
        say!("deleted group '{}'", printable(group));
    }
    Ok(())
}
