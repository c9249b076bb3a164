//! `barnabas topic set-replicas | reassignments`: moving replicas (KIP-455) and looking at how far the moves are.

use std::time::Duration;

use barnabas_proto::v1::reassignment::Wish;
use barnabas_proto::v1::{
    AlterPartitionReassignmentsRequest, Assignment, CopyProgress,
    ListPartitionReassignmentsRequest, Partition, PartitionReassignment, Reassignment,
    ReassignmentResult, ReplicaTarget, ReplicationFactor,
};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};

use super::ask::{ask, failure, pause, printable};
use super::table::{print_json, table};
use super::topic::counted;
use super::{Asking, CliError};

/// Between two looks of `--wait`.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How many looks in a row may fail before `--wait` gives up: elections and restarts take seconds.
const FAILED_LOOKS_MAX: u32 = 60;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("wish")
    .args(["replication_factor", "assignment", "throttle", "cancel"])
    .required(true)
    .multiple(true))]
pub(super) struct SetReplicasArgs {
    /// The topic.
    name: String,
    /// Number of replicas of each partition; the controller chooses the brokers and moves as little as possible.
    #[arg(long, value_name = "R", conflicts_with = "assignment")]
    replication_factor: Option<i32>,
    /// Replicas of each partition, preferred leader first, such as 0:1,2,3;1:2,3,1; partitions that are not named stay.
    #[arg(
        long,
        value_name = "P:ID,ID;P:ID,ID",
        value_delimiter = ';',
        value_parser = super::topic::assignment
    )]
    assignment: Vec<Assignment>,
    /// Most bytes a second that each broker fetches for new replicas; 0: no limit. Alone: for the moves that are under way.
    #[arg(long, value_name = "BYTES/S")]
    throttle: Option<u64>,
    /// Move everything that is under way back to where it began.
    #[arg(long, conflicts_with_all = ["replication_factor", "assignment", "throttle"])]
    cancel: bool,
    /// Return when the moves are over and the removed replicas are gone from the live brokers.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    asking: Asking,
}

pub(super) fn set_replicas(args: SetReplicasArgs) -> Result<(), CliError> {
    let request = request(&args)?;
    let answer = ask(&args.asking, |mut client| async move {
        client.alter_partition_reassignments(request).await
    })?;
    if let Some(refusal) = answer.failure {
        return Err(match refusal.name.as_str() {
            "UNKNOWN_TOPIC_OR_PARTITION" => super::topic::absent(&args.name),
            _ => failure(&refusal),
        });
    }
    if let Some(factor) = args.replication_factor {
        warn_of_no_spare(&args, factor)?;
    }
    let failed = answer.results.iter().filter(|result| is_failed(result)).count();
    show_results(&answer.results, args.asking.json);
    if failed > 0 {
        return Err(CliError::Refused(format!(
            "{failed} of {} partitions were not changed",
            answer.results.len()
        )));
    }
    if args.wait {
        wait(&args.name, &args.asking)?;
    }
    if args.asking.json {
        let of = |result: &ReassignmentResult| json!(result.partition);
        let partitions: Vec<Value> = answer.results.iter().map(of).collect();
        print_json(&json!({"name": args.name, "partitions": partitions, "done": args.wait}));
    }
    Ok(())
}

/// With as many replicas as acknowledgements need, the first broker that stops stops the topic's producers.
fn warn_of_no_spare(args: &SetReplicasArgs, factor: i32) -> Result<(), CliError> {
    let min = super::topic::min_insync_replicas(&args.name, &args.asking)?;
    if factor > 1 && min.map(i64::from) == Some(i64::from(factor)) {
        let name = printable(&args.name);
        eprintln!(
            "barnabas: min.insync.replicas of topic '{name}' is {factor} too, so while one of its brokers is stopped or down, \
             producers with acks=all are refused; keep {} replicas, or `barnabas topic alter {name} --config \
             min.insync.replicas={}`",
            factor + 1,
            factor - 1
        );
    }
    Ok(())
}

fn request(args: &SetReplicasArgs) -> Result<AlterPartitionReassignmentsRequest, CliError> {
    let topic = args.name.clone();
    if let Some(replication_factor) = args.replication_factor {
        let wanted = ReplicationFactor { topic, replication_factor, throttle: args.throttle };
        let replication_factor = Some(wanted);
        return Ok(AlterPartitionReassignmentsRequest { replication_factor, ..Default::default() });
    }
    let mut named: Vec<i32> = args.assignment.iter().map(|a| a.partition).collect();
    named.sort_unstable();
    if let Some(twice) = named.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(CliError::Usage(format!("--assignment names partition {} twice", twice[0])));
    }
    let wishes: Vec<(i32, Wish)> = if args.assignment.is_empty() {
        let wish = || args.throttle.map_or(Wish::Cancel(true), Wish::Limit);
        let moving = listed(&args.asking, false)?;
        let of_topic = moving.iter().filter(|listed| listed.topic == args.name);
        of_topic.map(|listed| (index(listed), wish())).collect()
    } else {
        let to =
            |a: &Assignment| ReplicaTarget { replicas: a.brokers.clone(), throttle: args.throttle };
        args.assignment.iter().map(|a| (a.partition, Wish::To(to(a)))).collect()
    };
    if wishes.is_empty() {
        return Err(CliError::Refused(format!(
            "no reassignment of topic '{}' is under way; `barnabas topic reassignments` shows those that are",
            printable(&args.name)
        )));
    }
    let partitions = wishes.into_iter().map(|(partition, wish)| Reassignment {
        topic: topic.clone(),
        partition,
        wish: Some(wish),
    });
    Ok(AlterPartitionReassignmentsRequest {
        partitions: partitions.collect(),
        ..Default::default()
    })
}

/// A move that ended before it could be cancelled or slowed down is no failure: what was asked for is moot.
fn is_failed(result: &ReassignmentResult) -> bool {
    result.failure.as_ref().is_some_and(|refusal| refusal.name != "NO_REASSIGNMENT_IN_PROGRESS")
}

/// With `json` what was refused, on stderr, and nothing else.
fn show_results(results: &[ReassignmentResult], json: bool) {
    for result in results {
        let (topic, partition) = (printable(&result.topic), result.partition);
        match &result.failure {
            _ if json && !is_failed(result) => {}
            None => say!("topic '{topic}' partition {partition}: on its way"),
            Some(_) if !is_failed(result) => {
                say!("topic '{topic}' partition {partition}: its reassignment is over already");
            }
            Some(refusal) => eprintln!(
                "barnabas: topic '{topic}' partition {partition}: {} ({})",
                printable(&refusal.message),
                printable(&refusal.name)
            ),
        }
    }
}

/// Until none of the topic's partitions is listed. Whoever asks sees how many are left.
fn wait(name: &str, asking: &Asking) -> Result<(), CliError> {
    let (mut before, mut failed) = (usize::MAX, 0);
    loop {
        match listed(asking, false) {
            Ok(all) => {
                failed = 0;
                let left = all.iter().filter(|listed| listed.topic == name).count();
                if left != before && !asking.json {
                    let left = counted(i64::try_from(left).unwrap_or(i64::MAX), "partition");
                    say!("{left} of topic '{}' on the way", printable(name));
                }
                before = left;
                if left == 0 {
                    return Ok(());
                }
            }
            Err(error) if failed >= FAILED_LOOKS_MAX => return Err(error),
            Err(_) => failed += 1,
        }
        pause(LOOK_AGAIN)?;
    }
}

#[derive(Args, Debug)]
pub(super) struct ReassignmentsArgs {
    #[command(flatten)]
    asking: Asking,
}

pub(super) fn reassignments(args: &ReassignmentsArgs) -> Result<(), CliError> {
    let all = listed(&args.asking, true)?;
    if args.asking.json {
        print_json(&all.iter().map(full).collect());
        return Ok(());
    }
    let columns = [
        "topic",
        "partition",
        "replicas",
        "adding",
        "removing",
        "throttle",
        "copying_to",
        "bytes_copied",
        "bytes_left",
        "seconds_left",
    ];
    let rows: Vec<Value> = all.iter().flat_map(rows).collect();
    if rows.is_empty() {
        say!("no reassignment is under way");
    } else {
        say!("{}", table(&columns, &rows).trim_end());
    }
    Ok(())
}

fn listed(asking: &Asking, progress: bool) -> Result<Vec<PartitionReassignment>, CliError> {
    let request = ListPartitionReassignmentsRequest { progress, forwarded: false };
    let answer =
        ask(
            asking,
            |mut client| async move { client.list_partition_reassignments(request).await },
        )?;
    match answer.failure {
        Some(refusal) => Err(failure(&refusal)),
        None => Ok(answer.partitions),
    }
}

fn index(listed: &PartitionReassignment) -> i32 {
    listed.partition.as_ref().map_or(-1, |partition| partition.index)
}

fn without(ids: &[i32], others: &[i32]) -> Vec<i32> {
    ids.iter().copied().filter(|id| !others.contains(id)).collect()
}

/// One partition of `topic reassignments --json`.
fn full(listed: &PartitionReassignment) -> Value {
    let Partition {
        index, assigned_replicas, adding_replicas, removing_replicas, throttle, ..
    } = listed.partition.clone().unwrap_or_default();
    let progress: Vec<Value> = listed.progress.iter().map(|copy| copied(copy, throttle)).collect();
    json!({
        "topic": listed.topic,
        "partition": index,
        "replicas": assigned_replicas,
        "target": without(&assigned_replicas, &removing_replicas),
        "adding": without(&adding_replicas, &removing_replicas),
        "removing": removing_replicas,
        "throttle": (throttle > 0).then_some(throttle),
        "progress": progress,
    })
}

/// One copy. Nothing is known of a follower that the leader has not heard of in its epoch.
fn copied(copy: &CopyProgress, throttle: u64) -> Value {
    // Under a limit a copy rests most of the time: what was measured in half a second says nothing.
    let speed = if throttle > 0 { throttle } else { copy.bytes_per_second };
    let seconds = match copy.bytes_left {
        0 => Some(0),
        left => left.div_ceil(speed.max(1)).checked_div(u64::from(speed > 0)),
    };
    json!({
        "broker": copy.broker_id,
        "bytes_copied": copy.heard.then_some(copy.bytes_copied),
        "bytes_left": copy.heard.then_some(copy.bytes_left),
        "bytes_per_second": copy.heard.then_some(copy.bytes_per_second),
        "seconds_left": seconds.filter(|_| copy.heard),
    })
}

/// The lines of one partition in the table: one for each copy.
fn rows(listed: &PartitionReassignment) -> Vec<Value> {
    let mut row = full(listed);
    let copies = row["progress"].as_array().cloned().unwrap_or_default();
    if copies.is_empty() {
        return vec![row];
    }
    let line = |copy: Value| {
        row["copying_to"] = copy["broker"].clone();
        for column in ["bytes_copied", "bytes_left", "seconds_left"] {
            row[column] = copy[column].clone();
        }
        row.clone()
    };
    copies.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> PartitionReassignment {
        let partition = Partition {
            index: 2,
            assigned_replicas: vec![4, 2, 5, 1],
            adding_replicas: vec![4, 5],
            removing_replicas: vec![5, 1],
            throttle: 100,
            ..Partition::default()
        };
        let copy = CopyProgress {
            broker_id: 4,
            heard: true,
            bytes_copied: 900,
            bytes_left: 1001,
            bytes_per_second: 7,
        };
        let silent = CopyProgress { broker_id: 5, ..CopyProgress::default() };
        PartitionReassignment {
            topic: "t".into(),
            partition: Some(partition),
            progress: vec![copy, silent],
        }
    }

    #[test]
    fn a_move_is_shown_with_its_target_and_its_copies() {
        let shown = full(&listed());
        assert_eq!(shown["target"], json!([4, 2]));
        assert_eq!(shown["adding"], json!([4]));
        assert_eq!(shown["progress"][0]["seconds_left"], json!(11), "at the limit");
        assert_eq!(shown["progress"][1]["bytes_left"], Value::Null);
        let lines = rows(&listed());
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["copying_to"], &lines[1]["copying_to"]), (&json!(4), &json!(5)));
    }

    #[test]
    fn without_a_limit_the_measured_speed_counts() {
        let copy = |left, speed| CopyProgress {
            heard: true,
            bytes_left: left,
            bytes_per_second: speed,
            ..CopyProgress::default()
        };
        assert_eq!(copied(&copy(100, 7), 0)["seconds_left"], json!(15));
        assert_eq!(copied(&copy(100, 0), 0)["seconds_left"], Value::Null);
        assert_eq!(copied(&copy(0, 0), 0)["seconds_left"], json!(0));
    }
}
