//! `barnabas ledger`: which records logs dropped, or may have, and whether the leaders still have them.

mod verify;

use barnabas_proto::v1::{DescribeTopicsRequest, ListLossesRequest, Loss};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ask::{ask, printable};
use super::table::{print_json, table};
use super::when;
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum LedgerVerb {
    /// List what the logs of all brokers dropped: offsets, epochs, cause, and what the records had been acknowledged at.
    List(LedgerArgs),
    /// Compare that with the logs of the present leaders and the other replicas: what a replica lost, the cluster may still have.
    /// Exit code 1: records are gone that were acknowledged, or may have been, or nobody can tell.
    Verify(LedgerArgs),
}

#[derive(Args, Debug)]
pub(super) struct LedgerArgs {
    /// Only what was noticed since then: a time in UTC like 2026-11-30T18:00:00Z, or how long ago, like 2h.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<i64>,
    /// Only of this topic.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    #[command(flatten)]
    asking: Asking,
}

const COLUMNS: [&str; 9] =
    ["time", "broker", "topic", "partition", "from", "to", "epoch", "class", "cause"];

fn since(text: &str) -> Result<i64, String> {
    when::parse_or_ago(text, barnabas_broker::clock::unix_ms())
}

impl LedgerVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::List(args) => args.list(),
            Self::Verify(args) => verify::verify(&args),
        }
    }
}

impl LedgerArgs {
    fn list(&self) -> Result<(), CliError> {
        let rows: Vec<Value> = self.losses()?.iter().map(row).collect();
        if self.asking.json {
            print_json(&Value::Array(rows));
        } else if rows.is_empty() {
            say!("no losses");
        } else {
            say!("{}", table(&COLUMNS, &rows).trim_end());
        }
        Ok(())
    }

    /// Whether the topic that is asked for may have losses: it is there, or one of its name has been.
    ///
    /// # Errors
    /// It is neither.
    fn check_topic(&self, losses: &[Loss]) -> Result<(), CliError> {
        let Some(name) = self.topic.as_ref().filter(|_| losses.is_empty()) else { return Ok(()) };
        let request = DescribeTopicsRequest::default();
        let told =
            ask(&self.asking, |mut client| async move { client.describe_topics(request).await })?;
        if told.topics.iter().any(|topic| topic.name == *name) {
            return Ok(());
        }
        Err(CliError::Refused(format!(
            "there is no topic '{}', and nothing was lost of one of that name since then; `barnabas topic list` names those that there are",
            printable(name)
        )))
    }

    /// All that match, in the order of their times, whatever the number of pages.
    fn losses(&self) -> Result<Vec<Loss>, CliError> {
        let mut request = ListLossesRequest {
            since_ms: self.since.unwrap_or(0),
            topic: self.topic.clone(),
            after: None,
        };
        let mut all = Vec::new();
        loop {
            let next = request.clone();
            let page =
                ask(&self.asking, |mut client| async move { client.list_losses(next).await })?;
            all.extend(page.losses);
            request.after = all.last().and_then(|loss| loss.place.clone());
            if !page.more || request.after.is_none() {
                self.check_topic(&all)?;
                return Ok(all);
            }
        }
    }
}

/// A loss as it is shown; the table has some of it.
fn row(loss: &Loss) -> Value {
    let place = loss.place.clone().unwrap_or_default();
    let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let at = |offset: i64| if offset < 0 { Value::Null } else { json!(offset) };
    json!({
        "time": when::show(place.time_ms), "time_ms": place.time_ms,
        "broker": loss.broker_id, "origin": place.origin, "sequence": place.sequence,
        "topic": text(&loss.topic), "partition": at(loss.partition.into()),
        "topic_id": text(&loss.topic_id),
        "from": at(loss.from), "to": loss.to, "at_least_to": at(loss.at_least_to),
        "bytes": loss.bytes, "epoch": loss.last_epoch, "leader_epoch": loss.leader_epoch,
        "high_watermark": loss.high_watermark,
        "class": text(&loss.class), "class_reason": text(&loss.class_reason),
        "cause": text(&loss.cause), "detail": text(&loss.detail),
    })
}

#[cfg(test)]
mod tests {
    use barnabas_proto::v1::LossPlace;

    use super::*;

    #[test]
    fn what_is_not_known_is_null() {
        let place = LossPlace { time_ms: 1_000, origin: "3-x".into(), sequence: 4 };
        let mut loss = Loss { place: Some(place), broker_id: 3, from: 5, ..Loss::default() };
        let shown = row(&loss);
        assert_eq!(
            (&shown["time"], &shown["from"]),
            (&json!("1970-01-01T00:00:01.000Z"), &json!(5))
        );
        assert!(shown["to"].is_null() && shown["epoch"].is_null() && shown["topic"].is_null());
        (loss.to, loss.partition, loss.from) = (Some(9), -1, -1);
        let shown = row(&loss);
        assert_eq!(shown["to"], 9);
        assert!(shown["partition"].is_null() && shown["from"].is_null());
    }
}
