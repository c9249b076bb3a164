//! `barnabas group reset-offsets`: where a group goes on reading. Nothing is changed without --execute.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::super::ask::printable;
use super::super::kafka::{ByPartition, Cluster, EARLIEST, LATEST};
use super::super::leader::topic_or_partition;
use super::super::table::{print_json, table};
use super::super::when;
use super::super::{Asking, CliError};
use super::calls::refusal;

#[derive(Args, Debug)]
pub(in crate::cli) struct ResetArgs {
    /// The group id; it must have no members. One that does not exist begins with these offsets.
    group: String,
    /// A topic, or one partition of it (TOPIC:PARTITION); may be given several times.
    #[arg(
        long = "topic",
        value_name = "TOPIC[:PARTITION]",
        required = true,
        value_parser = topic_or_partition
    )]
    topics: Vec<(String, Option<i32>)>,
    #[command(flatten)]
    to: To,
    /// Set the offsets; without it they are only shown.
    #[arg(long)]
    execute: bool,
    /// Only show what would be set (the default).
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct To {
    /// The first record that is there.
    #[arg(long)]
    to_earliest: bool,
    /// The end: only what is written from now on.
    #[arg(long)]
    to_latest: bool,
    /// This offset; the nearest one if it is not there.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// The first record of this time or later: 2026-11-30T18:00:00Z, or milliseconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    to_datetime: Option<i64>,
    /// So many records further than what is committed, or back if it is negative; within what is there.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    shift_by: Option<i64>,
}

pub(super) fn reset(args: &ResetArgs) -> Result<(), CliError> {
    let cluster = Cluster::of(&args.asking)?;
    let coordinator = cluster.coordinator(&args.group)?;
    let described = cluster.describe(coordinator, &args.group)?;
    if !described.members.is_empty() {
        return Err(refusal(&args.group, 68));
    }
    let committed = cluster.committed(coordinator, &args.group)?;
    let is_new = described.group_state.as_str() == "Dead" && committed.is_empty();
    if is_new {
        // A name with a mistake in it would become a group of its own, and the one that was meant stays where it is.
        eprintln!(
            "barnabas: there is no group '{}': {} with these offsets; `barnabas group list` shows those that are",
            printable(&args.group),
            if args.execute { "it begins" } else { "it would begin" }
        );
    }
    let partitions = args.partitions(&cluster)?;
    let bounds = (cluster.offsets(&partitions, EARLIEST)?, cluster.offsets(&partitions, LATEST)?);
    let at = match args.to.to_datetime {
        Some(timestamp) => cluster.offsets(&partitions, timestamp)?,
        None => BTreeMap::new(),
    };
    let mut wanted: ByPartition<i64> = BTreeMap::new();
    for partition in partitions.keys() {
        let (Some(Some(start)), Some(Some(end))) =
            (bounds.0.get(partition), bounds.1.get(partition))
        else {
            return Err(CliError::NotNow(format!(
                "partition {} of topic '{}' has no leader that answers; try again",
                partition.1,
                printable(&partition.0)
            )));
        };
        let present = committed.get(partition).map(|one| one.offset);
        // Nothing as young as that: the end, as Kafka's tool does.
        let found = at.get(partition).copied().flatten().unwrap_or(*end);
        let asked = args.to.offset(*start, *end, present, found);
        let offset = asked.clamp(*start, *end);
        if offset != asked {
            eprintln!(
                "barnabas: topic '{}' partition {} has offsets {start} to {end}, not {asked}: {offset} is taken",
                printable(&partition.0),
                partition.1
            );
        }
        wanted.insert(partition.clone(), offset);
    }
    let codes = if args.execute { cluster.commit(&args.group, &wanted)? } else { BTreeMap::new() };
    if let Some(code) = codes.values().find(|code| **code != 0) {
        return Err(refusal(&args.group, *code));
    }
    let rows: Vec<Value> = wanted
        .iter()
        .map(|(partition, offset)| {
            let before = committed.get(partition).map(|one| one.offset);
            json!({ "topic": partition.0, "partition": partition.1, "before": before, "after": offset })
        })
        .collect();
    if args.asking.json {
        print_json(&json!({
            "group": args.group, "new": is_new, "executed": args.execute, "offsets": rows,
        }));
        return Ok(());
    }
    say!("{}", table(&["topic", "partition", "before", "after"], &rows).trim_end());
    if !args.execute {
        say!("nothing was changed; add --execute to set these offsets");
    }
    Ok(())
}

impl ResetArgs {
    /// The partitions with their leaders.
    fn partitions(&self, cluster: &Cluster<'_>) -> Result<ByPartition<i32>, CliError> {
        let mut all = BTreeMap::new();
        for (topic, index) in &self.topics {
            let mut leaders = cluster.leaders(std::slice::from_ref(topic))?;
            leaders.retain(|(_, of), _| index.is_none_or(|index| index == *of));
            if let Some(index) = index.filter(|_| leaders.is_empty()) {
                return Err(CliError::Refused(format!(
                    "topic '{}' has no partition {index}; `barnabas topic describe` shows those it has",
                    printable(topic)
                )));
            }
            all.extend(leaders);
        }
        Ok(all)
    }
}

impl To {
    /// What is asked for of a partition whose log is `[start, end)`, whether it is within or not. `present`: what is committed;
    /// `found`: at the time asked for.
    fn offset(&self, start: i64, end: i64, present: Option<i64>, found: i64) -> i64 {
        if self.to_earliest {
            start
        } else if self.to_latest {
            end
        } else if let Some(offset) = self.to_offset {
            offset
        } else if let Some(shift) = self.shift_by {
            present.unwrap_or(start).saturating_add(shift)
        } else {
            found
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_follows_from_the_option_the_log_and_what_is_committed() {
        let to = |to_offset, shift_by| To {
            to_earliest: false,
            to_latest: false,
            to_offset,
            to_datetime: None,
            shift_by,
        };
        let (start, end) = (10, 20);
        assert_eq!(to(Some(15), None).offset(start, end, None, 0), 15);
        assert_eq!(to(Some(99), None).offset(start, end, None, 0), 99);
        assert_eq!(to(None, Some(-3)).offset(start, end, Some(18), 0), 15);
        assert_eq!(to(None, Some(i64::MAX)).offset(start, end, Some(18), 0), i64::MAX);
        assert_eq!(to(None, Some(2)).offset(start, end, None, 0), 12, "from the start");
        assert_eq!(To { to_earliest: true, ..to(None, None) }.offset(start, end, None, 0), 10);
        assert_eq!(To { to_latest: true, ..to(None, None) }.offset(start, end, None, 0), 20);
        assert_eq!(to(None, None).offset(start, end, None, 13), 13);
    }
}
