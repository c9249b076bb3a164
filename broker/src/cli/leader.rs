//! `barnabas leader elect`: preferred leaders back, or, when no ISR member can lead, any.

use barnabas_proto::v1::elected_partition::Result as Elected;
use barnabas_proto::v1::{
    DescribeTopicsRequest, DescribeTopicsResponse, ElectLeadersRequest, ElectPartition, Partition,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ask::{ask, failure, printable};
use super::table::{print_json, table};
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum LeaderVerb {
    /// Elect leaders: of all partitions, of topics, or of single partitions.
    Elect(ElectArgs),
}

#[derive(Args, Debug)]
pub(super) struct ElectArgs {
    /// A topic, or one partition of it (TOPIC:PARTITION); all topics if none is given.
    #[arg(value_name = "TOPIC[:PARTITION]", value_parser = topic_or_partition)]
    of: Vec<(String, Option<i32>)>,
    /// The first of the assigned replicas, if it is in the ISR (the default).
    #[arg(long, conflicts_with = "unclean")]
    preferred: bool,
    /// Partitions without a leader get one outside the ISR: acknowledged records may be lost.
    #[arg(long, requires = "of")]
    unclean: bool,
    /// With --unclean: this broker, not the one with the longest log.
    #[arg(long, value_name = "BROKER", requires = "unclean")]
    to: Option<i32>,
    #[command(flatten)]
    asking: Asking,
}

const COLUMNS: [&str; 6] = ["topic", "partition", "result", "leader", "leader_epoch", "message"];

impl LeaderVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        let Self::Elect(args) = self;
        let partitions = args.partitions()?;
        if partitions.is_empty() {
            if args.asking.json {
                print_json(&Value::Array(Vec::new()));
            } else {
                say!("{}", args.nothing());
            }
            return Ok(());
        }
        let request = ElectLeadersRequest {
            unclean: args.unclean,
            to: args.to,
            partitions,
            forwarded: false,
        };
        let answer =
            ask(&args.asking, |mut client| async move { client.elect_leaders(request).await })?;
        if let Some(refused) = answer.failure {
            return Err(failure(&refused));
        }
        let mut refused = 0;
        let rows: Vec<Value> = answer
            .results
            .into_iter()
            .map(|one| {
                let (result, leader, leader_epoch, message) = match one.result {
                    Some(Elected::State(state)) => {
                        ("ELECTED".to_owned(), Some(state.leader), Some(state.leader_epoch), None)
                    }
                    Some(Elected::Failure(failure)) => {
                        refused += usize::from(failure.name != "ELECTION_NOT_NEEDED");
                        (failure.name, None, None, Some(failure.message))
                    }
                    None => ("UNKNOWN".to_owned(), None, None, None),
                };
                json!({
                    "topic": one.topic, "partition": one.partition, "result": result,
                    "leader": leader, "leader_epoch": leader_epoch, "message": message,
                })
            })
            .collect();
        let count = rows.len();
        if args.asking.json {
            print_json(&Value::Array(rows));
        } else {
            say!("{}", table(&COLUMNS, &rows).trim_end());
        }
        match refused {
            0 => Ok(()),
            _ => Err(CliError::Refused(format!(
                "{refused} of {count} elections were not made; who led leads on"
            ))),
        }
    }
}

impl ElectArgs {
    /// The partitions to elect; for an unclean election each with the epoch at which it was looked at (R39). A preferred one is
    /// right whenever it is possible: the controller may just have made it by itself.
    fn partitions(&self) -> Result<Vec<ElectPartition>, CliError> {
        let mut names: Vec<String> = self.of.iter().map(|(topic, _)| topic.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let request = DescribeTopicsRequest { names };
        let known: DescribeTopicsResponse =
            ask(&self.asking, |mut client| async move { client.describe_topics(request).await })?;
        if let Some(missing) = known.missing.first() {
            return Err(super::topic::absent(missing));
        }
        let mut found = Vec::new();
        for topic in &known.topics {
            for partition in &topic.partitions {
                let named = |index: &Option<i32>| index.is_none_or(|i| i == partition.index);
                let exactly = self.of.contains(&(topic.name.clone(), Some(partition.index)));
                let asked = self.of.is_empty()
                    || self.of.iter().any(|(name, index)| *name == topic.name && named(index));
                // Whoever names a partition gets an answer for it; of a whole topic only what there is to do.
                if asked && (exactly || self.concerns(partition)) {
                    found.push(ElectPartition {
                        topic: topic.name.clone(),
                        partition: partition.index,
                        partition_epoch: partition
                            .state
                            .as_ref()
                            .filter(|_| self.unclean)
                            .map(|s| s.partition_epoch),
                    });
                }
            }
        }
        for (name, index) in &self.of {
            let topic = known.topics.iter().find(|topic| topic.name == *name);
            if let Some(index) = index
                && topic.is_some_and(|t| t.partitions.iter().all(|p| p.index != *index))
            {
                let name = printable(name);
                return Err(CliError::Refused(format!(
                    "topic '{name}' has no partition {index}; `barnabas topic describe` shows those it has"
                )));
            }
        }
        Ok(found)
    }

    fn concerns(&self, partition: &Partition) -> bool {
        let leader = partition.state.as_ref().map_or(-1, |state| state.leader);
        if self.unclean {
            leader < 0
        } else {
            partition.assigned_replicas.first().is_some_and(|first| *first != leader)
        }
    }

    fn nothing(&self) -> &'static str {
        if self.unclean {
            "every partition has a leader"
        } else {
            "every partition is led by its preferred replica"
        }
    }
}

/// `TOPIC` or `TOPIC:PARTITION`; a topic's name has no colon.
pub(super) fn topic_or_partition(text: &str) -> Result<(String, Option<i32>), String> {
    match text.split_once(':') {
        None => Ok((text.to_owned(), None)),
        Some((topic, index)) => match index.parse() {
            Ok(index) if index >= 0 => Ok((topic.to_owned(), Some(index))),
            _ => Err("expected TOPIC or TOPIC:PARTITION, for instance orders:0".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_named_after_a_colon() {
        assert_eq!(topic_or_partition("orders"), Ok(("orders".to_owned(), None)));
        assert_eq!(topic_or_partition("orders:3"), Ok(("orders".to_owned(), Some(3))));
        assert!(topic_or_partition("orders:x").is_err());
        assert!(topic_or_partition("orders:-1").is_err());
    }
}
