//! `barnabas broker list`, `drain`, `undrain`, `can-stop` and `log-level`.

use barnabas_proto::v1::can_stop_broker_response::Result as CanStop;
use barnabas_proto::v1::drain_response::Result as Drained;
use barnabas_proto::v1::{CanStopBrokerRequest, Obstruction, SetBrokerDrainingRequest};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ask::{ask, empty_answer, failure};
use super::cluster::{BROKER_COLUMNS, brokers, cluster, gone};
use super::explain::broker_id;
use super::log_level::LogLevelArgs;
use super::table::{print_json, table};
use super::topic::counted;
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum BrokerVerb {
    /// List the registered brokers, and who is missing.
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Let a broker lead nothing and leave every ISR, until it is undrained or registers again.
    Drain(OneBroker),
    /// Let a drained broker join ISRs and lead again.
    Undrain(OneBroker),
    /// Tell whether a broker may be stopped without a partition being left without a leader or under min.insync.replicas.
    /// Exit codes: 0 yes, 4 not now, 5 never as things are.
    CanStop(OneBroker),
    /// Show how much a broker logs, and change it until it ends.
    LogLevel(LogLevelArgs),
}

#[derive(Args, Debug)]
pub(super) struct OneBroker {
    /// Which broker.
    #[arg(value_name = "ID", value_parser = broker_id)]
    id: i32,
    /// Show each partition that stands in the way, not only how many of which topics.
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    asking: Asking,
}

const OBSTRUCTION_COLUMNS: [&str; 4] = ["topic", "partition", "never", "reason"];
const SUMMARY_COLUMNS: [&str; 4] = ["topic", "partitions", "never", "reason"];

impl BrokerVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::List { asking } => list(&asking),
            Self::Drain(one) => one.drain(true),
            Self::Undrain(one) => one.drain(false),
            Self::CanStop(one) => one.can_stop(),
            Self::LogLevel(args) => args.run(),
        }
    }
}

fn list(asking: &Asking) -> Result<(), CliError> {
    let cluster = cluster(asking)?;
    let brokers = brokers(&cluster);
    if asking.json {
        print_json(&Value::Array(brokers));
    } else {
        say!("{}", table(&BROKER_COLUMNS, &brokers).trim_end());
        if let Some(gone) = gone(&cluster) {
            say!("{gone}");
        }
    }
    Ok(())
}

fn obstructions(of: Vec<Obstruction>) -> Vec<Value> {
    let row = |o: Obstruction| json!({"topic": o.topic, "partition": o.partition, "never": o.never, "reason": o.reason});
    of.into_iter().map(row).collect()
}

/// One row for each topic and reason: how many partitions stand in the way for it; what no waiting resolves comes first.
fn by_topic(rows: &[Value]) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for row in rows {
        let same = |known: &&mut Value| {
            ["topic", "never", "reason"].iter().all(|key| known[*key] == row[*key])
        };
        match found.iter_mut().find(same) {
            Some(known) => known["partitions"] = json!(known["partitions"].as_u64().unwrap_or(0) + 1),
            None => found.push(json!({
                "topic": row["topic"], "partitions": 1, "never": row["never"], "reason": row["reason"],
            })),
        }
    }
    found.sort_by_key(|row| row["never"] != true);
    found
}

fn show(partitions: u32, rows: &[Value], verbose: bool) {
    if verbose && !rows.is_empty() {
        say!("{}", table(&OBSTRUCTION_COLUMNS, rows).trim_end());
    } else if !rows.is_empty() {
        say!("{}", table(&SUMMARY_COLUMNS, &by_topic(rows)).trim_end());
    }
    let more = usize::try_from(partitions).unwrap_or(usize::MAX).saturating_sub(rows.len());
    if more > 0 {
        say!("and {more} more");
    }
}

impl OneBroker {
    fn drain(self, draining: bool) -> Result<(), CliError> {
        let id = self.id;
        let request = SetBrokerDrainingRequest { broker_id: id, draining, forwarded: false };
        let answer =
            ask(
                &self.asking,
                |mut client| async move { client.set_broker_draining(request).await },
            )?;
        let progress = match answer.result {
            Some(Drained::Progress(progress)) => progress,
            Some(Drained::Failure(refused)) => return Err(failure(&refused)),
            None => return Err(empty_answer(&self.asking)),
        };
        let rows = obstructions(progress.obstructions);
        if self.asking.json {
            // Of an undrained broker nobody has asked whether it may stop.
            let may_stop = draining.then_some(progress.may_stop);
            print_json(&json!({
                "id": id, "draining": draining, "may_stop": may_stop,
                "partitions": progress.partitions, "obstructions": rows,
            }));
            return Ok(());
        }
        if !draining {
            say!("broker {id} is no longer draining");
            return Ok(());
        }
        let left = counted(i64::from(progress.partitions), "partition");
        say!("broker {id} is draining; {left} left");
        show(progress.partitions, &rows, self.verbose);
        Ok(())
    }

    fn can_stop(self) -> Result<(), CliError> {
        let id = self.id;
        let request = CanStopBrokerRequest { broker_id: id, forwarded: false };
        let answer =
            ask(&self.asking, |mut client| async move { client.can_stop_broker(request).await })?;
        let verdict = match answer.result {
            Some(CanStop::Verdict(verdict)) => verdict,
            Some(CanStop::Failure(refused)) => return Err(failure(&refused)),
            None => return Err(empty_answer(&self.asking)),
        };
        let rows = obstructions(verdict.obstructions);
        let (word, number) = (answer_of(verdict.partitions, verdict.never), verdict.partitions);
        if self.asking.json {
            print_json(&json!({
                "id": id, "can_stop": word, "partitions": number, "obstructions": rows,
            }));
        } else {
            say!("{word}");
            show(number, &rows, self.verbose);
        }
        let text = format!(
            "broker {id} cannot be stopped: {} would be left without a leader or under min.insync.replicas",
            counted(i64::from(number), "partition")
        );
        match word {
            "yes" => Ok(()),
            "never" => Err(CliError::Never(format!("{text}, and waiting does not help"))),
            _ => Err(CliError::NotNow(text)),
        }
    }
}

fn answer_of(partitions: u32, never: bool) -> &'static str {
    match (partitions, never) {
        (0, _) => "yes",
        (_, true) => "never",
        (_, false) => "not now",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_summed_up_by_topic_and_reason() {
        let row = |topic: &str, partition: i32, never: bool| {
            let reason = if never { "only replica" } else { "too few" };
            json!({"topic": topic, "partition": partition, "never": never, "reason": reason})
        };
        let rows = [row("a", 0, false), row("a", 1, false), row("b", 0, false), row("a", 2, true)];
        let told = by_topic(&rows);
        let of =
            |row: &Value| (row["topic"].as_str().unwrap().to_owned(), row["partitions"].as_u64());
        assert_eq!(
            told.iter().map(of).collect::<Vec<_>>(),
            [("a".to_owned(), Some(1)), ("a".to_owned(), Some(2)), ("b".to_owned(), Some(1))]
        );
        assert_eq!(
            table(&SUMMARY_COLUMNS, &told[..1]).lines().next().unwrap(),
            "TOPIC  PARTITIONS  NEVER  REASON"
        );
    }

    #[test]
    fn never_is_said_only_of_what_stands_in_the_way() {
        assert_eq!(answer_of(0, false), "yes");
        assert_eq!(answer_of(2, false), "not now");
        assert_eq!(answer_of(2, true), "never");
    }
}
