//! `barnabas explain partition | broker | cluster | group`: what is wrong, since when, whether it heals, what to do and what that costs.

use barnabas_broker::explain::cause::{by_topic_of_names, lasted};
use barnabas_broker::explain::json;
use barnabas_proto::v1::explain_request::Subject;
use barnabas_proto::v1::{ExplainRequest, ExplainResponse, FollowedPartition};
use clap::Subcommand;

use super::ask::{ask, failure, printable};
use super::leader::topic_or_partition;
use super::table::print_json;
use super::topic::counted;
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum ExplainVerb {
    /// Why a partition is offline, refuses writes, or lacks replicas. Exit codes of all of these: 0 nothing is wrong, 6 something is.
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
        #[arg(value_name = "ID", value_parser = broker_id)]
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
            print_json(&json::of(&told, &asking.admin));
        } else {
            say!("{}", text(&told, &asking.admin).trim_end());
        }
        match json::wrong(&told) {
            0 => Ok(()),
            n => {
                let causes = counted(i64::try_from(n).unwrap_or(i64::MAX), "cause");
                Err(CliError::Unwell(format!("{} is not well: {causes}", printable(&told.subject))))
            }
        }
    }
}

/// `TOPIC:PARTITION`; whoever writes it in another way is told how it is written here.
fn one_partition(text: &str) -> Result<(String, i32), String> {
    if let Ok((topic, Some(partition))) = topic_or_partition(text) {
        return Ok((topic, partition));
    }
    // As the page and Kafka's logs have it.
    let parts = text.rsplit_once(['/', '-', '.']);
    let parts = parts.filter(|(topic, _)| !topic.is_empty() && !topic.contains(':'));
    let meant = parts.and_then(|(topic, index)| Some((topic, index.parse::<i32>().ok()?)));
    Err(match meant.filter(|(_, index)| *index >= 0) {
        Some((topic, index)) => format!("expected TOPIC:PARTITION; did you mean {topic}:{index}?"),
        None => "expected TOPIC:PARTITION, for instance orders:0".to_owned(),
    })
}

/// The id of a broker.
pub(super) fn broker_id(text: &str) -> Result<i32, String> {
    let id = text.parse::<i32>().ok().filter(|id| *id >= 0);
    id.ok_or_else(|| {
        "expected the id of a broker, a whole number such as 1; `barnabas broker list` shows them"
            .to_owned()
    })
}

fn text(told: &ExplainResponse, admin: &str) -> String {
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
        if cause.partitions.len() > 1 {
            let (all, topics) = (cause.partitions.len(), by_topic_of_names(&cause.partitions));
            lines.push(format!(
                "   of     {all} partitions: {} (named with --json)",
                printable(&topics)
            ));
        }
        for (n, fact) in cause.evidence.iter().enumerate() {
            let label = if n == 0 { "facts " } else { "      " };
            lines.push(format!("   {label} {}", printable(&fact.text)));
        }
        let how = if cause.heals_by_itself { "by itself" } else { "not by itself, only when" };
        let colon = if cause.heals_by_itself { ":" } else { "" };
        lines.push(format!("   heals  {how}{colon} {}", printable(&cause.healing)));
        for (n, step) in cause.next.iter().enumerate() {
            let label = if n == 0 { "next  " } else { "or    " };
            let command = json::pasted(&step.command, admin);
            lines.push(format!("   {label} {}", printable(&command)));
            for (label, text) in
                [("where", &step.place), ("when", &step.when), ("cost", &step.cost)]
            {
                if !text.is_empty() {
                    lines.push(format!("          {label}: {}", printable(text)));
                }
            }
        }
    }
    for (n, fact) in told.facts.iter().enumerate() {
        let label = if n == 0 { "\nknown " } else { "      " };
        lines.push(format!("{label} {}", printable(&fact.text)));
    }
    if told.causes_left_out > 0 {
        lines.push(format!("\n{} more causes are left out", told.causes_left_out));
    }
    if told.partitions_left_out > 0 {
        lines.push(format!("\n{} more partitions were not looked at", told.partitions_left_out));
    }
    let shown = |silent: &&String| {
        let mut facts = told.causes.iter().flat_map(|cause| &cause.evidence);
        facts.any(|fact| fact.text == **silent)
    };
    for silent in told.unanswered.iter().filter(|silent| !shown(silent)) {
        lines.push(format!("\nno answer: {}", printable(silent)));
    }
    lines.push(format!("\nfound out by broker {}", told.answered_by));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_proto::v1::{ExplainedCause, ExplainedFact, NextStep};

    #[test]
    fn a_partition_is_always_named() {
        assert_eq!(one_partition("orders:3"), Ok(("orders".to_owned(), 3)));
        for (wrong, hint) in [
            ("orders", "for instance"),
            ("orders:x", "for instance"),
            ("orders/3", "did you mean orders:3?"),
            ("my-orders-3", "did you mean my-orders:3?"),
            ("orders/x", "for instance"),
        ] {
            let said = one_partition(wrong).unwrap_err();
            assert!(said.contains(hint), "{wrong}: {said}");
        }
        assert_eq!(broker_id("3"), Ok(3));
        assert!(broker_id("x").unwrap_err().contains("broker list") && broker_id("-1").is_err());
    }

    #[test]
    fn people_read_the_same_as_programs() {
        let well = ExplainResponse { headline: "t:0 is led".to_owned(), ..Default::default() };
        assert!(text(&well, "h:1").contains("nothing is wrong"));
        let next = NextStep {
            command: "barnabas explain broker 2".to_owned(),
            cost: "nothing".to_owned(),
            place: "the host of broker 2".to_owned(),
            when: "again".to_owned(),
            loses_records: Some(0),
        };
        let fact = |text: &str| ExplainedFact { text: text.to_owned(), ..Default::default() };
        let down = ExplainedCause {
            name: "broker_down".to_owned(),
            severity: "degraded".to_owned(),
            summary: "broker 2 is down\u{7}".to_owned(),
            evidence: vec![fact("it is gone")],
            age_ms: Some(34_000),
            age_at_least: true,
            healing: "its process is started".to_owned(),
            next: vec![next.clone(), next],
            partitions: vec!["t:0".to_owned(), "t:1".to_owned(), "u:0".to_owned()],
            ..Default::default()
        };
        let facts = vec![fact("lag 3")];
        let sick = ExplainResponse { causes: vec![down], causes_left_out: 2, facts, ..well };
        let shown = text(&sick, "h:1");
        for part in [
            "1. broker 2 is down ",
            "for at least 34 s",
            "facts  it is gone",
            "of     3 partitions: t 2, u 1 (named with --json)",
            "not by itself",
            "next   barnabas explain broker 2 --admin h:1\n          where: the host of broker 2\n          when: again",
            "or     barnabas explain broker 2",
            "known  lag 3",
            "2 more causes are left out",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
