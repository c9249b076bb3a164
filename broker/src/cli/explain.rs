//! `barnabas explain partition | broker | cluster | group`: what is wrong, since when, whether it heals, what to do and what that costs.

use barnabas_broker::explain::cause::lasted;
use barnabas_proto::v1::explain_request::Subject;
use barnabas_proto::v1::{ExplainRequest, ExplainResponse, ExplainedCause, FollowedPartition};
use clap::Subcommand;
use serde_json::{Value, json};

use super::ask::{ask, failure, printable};
use super::leader::topic_or_partition;
use super::table::print_json;
use super::topic::counted;
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum ExplainVerb {
    /// Why a partition is offline, refuses writes, or lacks replicas. Exit codes of all of these: 0 nothing is wrong, 2 something is.
    Partition {
        /// Topic and partition.
        #[arg(value_name = "TOPIC:PARTITION", value_parser = one_partition)]
        partition: (String, i32),
        #[command(flatten)]
        asking: Asking,
    },
    /// What is wrong with a broker, and with the partitions on it.
    Broker {
        /// Which broker.
        #[arg(value_name = "ID")]
        id: i32,
        #[command(flatten)]
        asking: Asking,
    },
    /// What is wrong anywhere.
    Cluster {
        #[command(flatten)]
        asking: Asking,
    },
    /// Why a consumer group does not read: its coordinator, its members, its offsets, the partitions that it reads.
    Group {
        /// The group id.
        group: String,
        #[command(flatten)]
        asking: Asking,
    },
}

impl ExplainVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        let (subject, asking) = match self {
            Self::Partition { partition: (topic, partition), asking } => {
                (Subject::Partition(FollowedPartition { topic, partition }), asking)
            }
            Self::Broker { id, asking } => (Subject::BrokerId(id), asking),
            Self::Cluster { asking } => (Subject::Cluster(true), asking),
            Self::Group { group, asking } => (Subject::Group(group), asking),
        };
        let request = ExplainRequest { subject: Some(subject) };
        let told = ask(&asking, |mut client| async move { client.explain(request).await })?;
        if let Some(refused) = &told.failure {
            return Err(failure(refused));
        }
        if asking.json {
            print_json(&full(&told));
        } else {
            say!("{}", text(&told).trim_end());
        }
        match wrong(&told) {
            0 => Ok(()),
            n => {
                let causes = counted(i64::try_from(n).unwrap_or(i64::MAX), "cause");
                Err(CliError::Unwell(format!("{} is not well: {causes}", printable(&told.subject))))
            }
        }
    }
}

/// `TOPIC:PARTITION`.
fn one_partition(text: &str) -> Result<(String, i32), String> {
    match topic_or_partition(text)? {
        (topic, Some(partition)) => Ok((topic, partition)),
        (_, None) => Err("expected TOPIC:PARTITION, for instance orders:0".to_owned()),
    }
}

/// Causes that are more than worth knowing.
fn wrong(told: &ExplainResponse) -> usize {
    told.causes.iter().filter(|cause| cause.severity != "notice").count()
}

fn full(told: &ExplainResponse) -> Value {
    json!({
        "subject": told.subject,
        "headline": told.headline,
        "well": wrong(told) == 0,
        "causes": told.causes.iter().map(cause).collect::<Vec<_>>(),
        "unanswered": told.unanswered,
        "partitions_left_out": told.partitions_left_out,
        "answered_by": told.answered_by,
    })
}

fn cause(cause: &ExplainedCause) -> Value {
    let step =
        |step: &barnabas_proto::v1::NextStep| json!({"command": step.command, "cost": step.cost});
    let candidate = |one: &barnabas_proto::v1::UncleanCandidate| {
        json!({
            "broker_id": one.broker_id, "last_epoch": one.last_epoch, "lost_from": one.lost_from,
            "lost_until": one.lost_until, "lost_records": one.lost_records,
        })
    };
    json!({
        "name": cause.name,
        "severity": cause.severity,
        "summary": cause.summary,
        "evidence": cause.evidence,
        "age_ms": cause.age_ms,
        "age_at_least": cause.age_at_least,
        "heals_by_itself": cause.heals_by_itself,
        "healing": cause.healing,
        "next": cause.next.iter().map(step).collect::<Vec<_>>(),
        "candidates": cause.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "brokers": cause.brokers,
        "partitions": cause.partitions,
    })
}

fn text(told: &ExplainResponse) -> String {
    let mut lines = vec![printable(&told.headline)];
    if told.causes.is_empty() {
        lines.push("nothing is wrong".to_owned());
    }
    for (n, cause) in (1..).zip(&told.causes) {
        lines.push(format!("\n{n}. {}", printable(&cause.summary)));
        let age = cause.age_ms.map_or(String::new(), |ms| {
            let bound = if cause.age_at_least { "at least " } else { "" };
            format!(", for {bound}{}", lasted(ms))
        });
        lines.push(format!(
            "   cause  {}, {}{age}",
            printable(&cause.name),
            printable(&cause.severity)
        ));
        if let [first, _, ..] = &cause.partitions[..] {
            let all = cause.partitions.len();
            lines.push(format!("   of     {all} partitions, the first is {}", printable(first)));
        }
        for (n, fact) in cause.evidence.iter().enumerate() {
            let label = if n == 0 { "facts " } else { "      " };
            lines.push(format!("   {label} {}", printable(fact)));
        }
        let how = if cause.heals_by_itself { "by itself" } else { "not by itself, only when" };
        let colon = if cause.heals_by_itself { ":" } else { "" };
        lines.push(format!("   heals  {how}{colon} {}", printable(&cause.healing)));
        for (n, step) in cause.next.iter().enumerate() {
            let label = if n == 0 { "next  " } else { "or    " };
            lines.push(format!("   {label} {}", printable(&step.command)));
            lines.push(format!("          cost: {}", printable(&step.cost)));
        }
    }
    if told.partitions_left_out > 0 {
        lines.push(format!("\n{} more partitions were not looked at", told.partitions_left_out));
    }
    let shown = |silent: &&String| told.causes.iter().any(|cause| cause.evidence.contains(silent));
    for silent in told.unanswered.iter().filter(|silent| !shown(silent)) {
        lines.push(format!("\nno answer: {}", printable(silent)));
    }
    lines.push(format!("\nfound out by broker {}", told.answered_by));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_proto::v1::NextStep;

    #[test]
    fn a_partition_is_always_named() {
        assert_eq!(one_partition("orders:3"), Ok(("orders".to_owned(), 3)));
        assert!(one_partition("orders").is_err() && one_partition("orders:x").is_err());
    }

    #[test]
    fn people_read_the_same_as_programs() {
        let well = ExplainResponse { headline: "t:0 is led".to_owned(), ..Default::default() };
        assert!(text(&well).contains("nothing is wrong") && full(&well)["well"] == true);
        let next = NextStep { command: "start it".to_owned(), cost: "nothing".to_owned() };
        let down = ExplainedCause {
            name: "broker_down".to_owned(),
            severity: "degraded".to_owned(),
            summary: "broker 2 is down\u{7}".to_owned(),
            evidence: vec!["it is gone".to_owned()],
            age_ms: Some(34_000),
            age_at_least: true,
            healing: "its process is started".to_owned(),
            next: vec![next.clone(), next],
            ..Default::default()
        };
        let sick = ExplainResponse { causes: vec![down.clone()], ..well.clone() };
        let shown = text(&sick);
        for part in [
            "1. broker 2 is down ",
            "for at least 34 s",
            "facts  it is gone",
            "not by itself",
            "or     start it",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let told = full(&sick);
        assert_eq!((&told["well"], &told["causes"][0]["age_ms"]), (&json!(false), &json!(34_000)));
        // What is only worth knowing is no trouble.
        let notice = ExplainedCause { severity: "notice".to_owned(), ..down };
        let noticed = ExplainResponse { causes: vec![notice], ..well };
        assert_eq!((wrong(&sick), wrong(&noticed)), (1, 0));
    }
}
