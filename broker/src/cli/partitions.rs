//! `barnabas topic add-partitions`.

use barnabas_proto::v1::create_partitions_response::Result as Created;
use barnabas_proto::v1::{Assignment, CreatePartitionsRequest, Replicas};
use clap::Args;
use serde_json::json;

use super::ask::{ask, empty_answer, failure, printable};
use super::table::print_json;
use super::topic::{absent, assignment, counted};
use super::{Asking, CliError};

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// The topic.
    name: String,
    /// How many partitions it shall have afterwards, the present ones included. Records keep their places: keys that a
    /// client maps to partitions by their number go to other ones from now on.
    #[arg(long, value_name = "N")]
    to: i32,
    /// Replicas of one new partition, preferred leader first, such as 6:1,2,3; for each of them or for none.
    #[arg(long, value_name = "P:ID,ID", value_parser = assignment)]
    assignment: Vec<Assignment>,
    /// Check everything and add nothing.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    asking: Asking,
}

pub(super) fn add(args: AddArgs) -> Result<(), CliError> {
    let AddArgs { name, to, assignment, validate_only, asking } = args;
    let request = CreatePartitionsRequest {
        name: name.clone(),
        total: to,
        assignment: in_order(assignment, to)?,
        validate_only,
        forwarded: false,
    };
    let answer = ask(&asking, |mut client| async move { client.create_partitions(request).await })?;
    let created = match answer.result {
        Some(Created::Created(created)) => created,
        Some(Created::Failure(refusal)) if refusal.name == "UNKNOWN_TOPIC_OR_PARTITION" => {
            return Err(absent(&name));
        }
        Some(Created::Failure(refusal)) => return Err(failure(&refusal)),
        None => return Err(empty_answer(&asking)),
    };
    if asking.json {
        print_json(&json!({
            "name": created.name, "partitions": created.partitions, "validate_only": validate_only,
        }));
    } else {
        say!(
            "topic '{}' {} {}",
            printable(&created.name),
            if validate_only { "would have" } else { "has" },
            counted(i64::from(created.partitions), "partition")
        );
    }
    Ok(())
}

/// The replicas of the new partitions in the order of their indexes, the last of which is `total` - 1.
fn in_order(mut assignment: Vec<Assignment>, total: i32) -> Result<Vec<Replicas>, CliError> {
    assignment.sort_by_key(|a| a.partition);
    let first = i64::from(total) - i64::try_from(assignment.len()).unwrap_or(i64::MAX);
    for (expected, found) in (first..).zip(&assignment) {
        if i64::from(found.partition) != expected {
            return Err(CliError::Usage(format!(
                "--assignment names partition {} where {expected} is due: the new partitions run without a gap up to {}",
                found.partition,
                i64::from(total) - 1
            )));
        }
    }
    Ok(assignment.into_iter().map(|a| Replicas { brokers: a.brokers }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_end_at_the_last_new_partition_without_a_gap() {
        let of = |texts: &[&str]| texts.iter().map(|t| assignment(t).unwrap()).collect();
        let ordered = in_order(of(&["4:1,2", "3:2,3"]), 5).unwrap();
        assert_eq!(ordered[0].brokers, [2, 3]);
        assert_eq!(in_order(Vec::new(), 5).unwrap(), []);
        for (texts, due) in [(&["3:1"][..], "4"), (&["2:1", "4:1"], "3"), (&["5:1"], "4")] {
            let error = in_order(of(texts), 5).unwrap_err().to_string();
            assert!(error.contains(&format!("where {due} is due")), "{error}");
        }
    }
}
