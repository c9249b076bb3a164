//! `barnabas topic create | list | describe | alter | delete`; the verbs with files of their own are named in `TopicVerb`.

use std::collections::{BTreeMap, HashMap};

use barnabas_proto::v1::create_topic_response::Result as Created;
use barnabas_proto::v1::delete_topic_response::Result as Deleted;
use barnabas_proto::v1::{
    Assignment, CreateTopicRequest, DeleteTopicRequest, DescribeTopicsRequest,
    DescribeTopicsResponse, Partition, PartitionState, Topic,
};
use barnabas_types::{Standing, TopicId, nearest};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ask::{ask, empty_answer, failure, printable};
use super::durability::Durability;
use super::kafka::{ByPartition, Cluster, EARLIEST, LATEST};
use super::table::{print_json, table};
use super::{Asking, CliError, delete_records, key_value, partitions, reassign, settings};

#[derive(Subcommand, Debug)]
pub(super) enum TopicVerb {
    /// Create a topic.
    Create(CreateArgs),
    /// List the topics.
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Show partitions, leaders, epochs and ISRs.
    Describe {
        /// The topics; all if none is given.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Show where each partition begins and ends, too: the leaders are asked.
        #[arg(long)]
        offsets: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Give a topic more partitions.
    AddPartitions(partitions::AddArgs),
    /// Change a topic's settings, at once and for all its leaders.
    Alter(settings::AlterArgs),
    /// Delete the oldest records of a partition.
    DeleteRecords(delete_records::DeleteRecordsArgs),
    /// Move a topic's replicas to other brokers, or give it more or fewer; also: cancel that, or change its speed.
    SetReplicas(reassign::SetReplicasArgs),
    /// Show the moves of replicas that are under way.
    Reassignments(reassign::ReassignmentsArgs),
    /// Delete a topic with all its records.
    Delete {
        /// The topic.
        name: String,
        #[command(flatten)]
        asking: Asking,
    },
}

#[derive(Args, Debug)]
pub(super) struct CreateArgs {
    /// 1 to 249 characters of a-z A-Z 0-9 . _ -
    name: String,
    /// Number of partitions; the broker's num.partitions if absent.
    #[arg(long, value_name = "N")]
    partitions: Option<i32>,
    /// Number of replicas of each partition; the broker's default.replication.factor if absent.
    #[arg(long, value_name = "R")]
    replication_factor: Option<i32>,
    /// A topic setting, such as min.insync.replicas=2; may be repeated.
    #[arg(long = "config", value_name = "K=V", value_parser = key_value)]
    configs: Vec<(String, String)>,
    /// Replicas of one partition, preferred leader first, such as 0:1,2,3; repeated for each partition.
    #[arg(
        long,
        value_name = "P:ID,ID",
        value_parser = assignment,
        conflicts_with_all = ["partitions", "replication_factor"]
    )]
    assignment: Vec<Assignment>,
    /// Check everything and create nothing.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    asking: Asking,
}

impl TopicVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Create(args) => create(args),
            Self::List { asking } => list(&asking),
            Self::Describe { names, offsets, asking } => describe(names, offsets, &asking),
            Self::AddPartitions(args) => partitions::add(args),
            Self::Alter(args) => settings::alter(args),
            Self::DeleteRecords(args) => delete_records::delete_records(&args),
            Self::SetReplicas(args) => reassign::set_replicas(args),
            Self::Reassignments(args) => reassign::reassignments(&args),
            Self::Delete { name, asking } => delete(name, &asking),
        }
    }
}

fn create(args: CreateArgs) -> Result<(), CliError> {
    let request = CreateTopicRequest {
        name: args.name,
        partitions: args.partitions,
        replication_factor: args.replication_factor,
        configs: args.configs.into_iter().collect::<HashMap<_, _>>(),
        assignment: args.assignment,
        validate_only: args.validate_only,
        forwarded: false,
    };
    let answer = ask(&args.asking, |mut client| async move { client.create_topic(request).await })?;
    let topic = match answer.result {
        Some(Created::Created(topic)) => topic,
        Some(Created::Failure(refusal)) => return Err(failure(&refusal)),
        None => return Err(empty_answer(&args.asking)),
    };
    let mut row = json!({
        "name": topic.name, "topic_id": topic_id(&topic.topic_id), "partitions": topic.partitions,
        "replication_factor": topic.replication_factor, "validate_only": args.validate_only,
    });
    // It is there: that the asked broker cannot describe it yet is no failure.
    let described =
        if args.validate_only { None } else { topics(vec![topic.name.clone()], &args.asking).ok() };
    let described = described.and_then(|answer| answer.topics.into_iter().next());
    if args.asking.json {
        if let Some(durability) = described.as_ref().and_then(Durability::of) {
            row["survives"] = durability.as_json();
            row["warnings"] = durability.warnings().into();
        }
        print_json(&row);
    } else {
        say!(
            "{} topic '{}': {}, replication factor {}",
            if args.validate_only { "would create" } else { "created" },
            printable(&topic.name),
            counted(i64::from(topic.partitions), "partition"),
            topic.replication_factor
        );
        described.iter().for_each(say_durability);
    }
    Ok(())
}

/// What the topic survives, and what to beware of.
fn say_durability(topic: &Topic) {
    for line in Durability::of(topic).iter().flat_map(Durability::lines) {
        say!("  {line}");
    }
}

fn list(asking: &Asking) -> Result<(), CliError> {
    let topics = topics(Vec::new(), asking)?.topics;
    let rows: Vec<Value> = topics.iter().map(summary).collect();
    if asking.json {
        print_json(&Value::Array(rows));
    } else if rows.is_empty() {
        say!("no topics");
    } else {
        let columns = [
            "name",
            "partitions",
            "replication_factor",
            "offline",
            "under_min_isr",
            "under_replicated",
        ];
        say!("{}", table(&columns, &rows).trim_end());
    }
    Ok(())
}

fn describe(names: Vec<String>, offsets: bool, asking: &Asking) -> Result<(), CliError> {
    let answer = topics(names, asking)?;
    if let Some(missing) = answer.missing.first() {
        return Err(absent_among(missing, asking));
    }
    let offsets = if offsets { Some(Offsets::of(&answer.topics, asking)?) } else { None };
    let full = |topic: &Topic| {
        let mut value = full(topic, &answer.cluster_settings);
        if let Some(offsets) = &offsets {
            offsets.add_to(&mut value);
        }
        value
    };
    if asking.json {
        print_json(&answer.topics.iter().map(full).collect());
        return Ok(());
    }
    if answer.topics.is_empty() {
        say!("no topics");
    }
    for (i, topic) in answer.topics.iter().enumerate() {
        let value = full(topic);
        say!(
            "{}topic {}  id {}",
            if i > 0 { "\n" } else { "" },
            printable(&topic.name),
            cell(&value["topic_id"])
        );
        if let Some(chosen) = settings::as_line(topic, &answer.cluster_settings) {
            say!("  {}", printable(&chosen));
        }
        say_durability(topic);
        let rows = value["partitions"].as_array().cloned().unwrap_or_default();
        let mut columns = vec![
            "partition",
            "state",
            "leader",
            "leader_epoch",
            "partition_epoch",
            "controller_epoch",
            "replicas",
            "isr",
            "offline",
        ];
        if offsets.is_some() {
            columns.extend(["start", "end"]);
        }
        say!("{}", table(&columns, &rows).trim_end());
    }
    Ok(())
}

/// Where partitions begin and end, as their leaders say; those that do not answer are left out.
struct Offsets {
    start: ByPartition<Option<i64>>,
    end: ByPartition<Option<i64>>,
}

impl Offsets {
    fn of(topics: &[Topic], asking: &Asking) -> Result<Self, CliError> {
        let cluster = Cluster::of(asking)?;
        let mut led: BTreeMap<i32, ByPartition<i32>> = BTreeMap::new();
        for topic in topics {
            for partition in &topic.partitions {
                let leader = partition.state.as_ref().map_or(-1, |state| state.leader);
                let at = (topic.name.clone(), partition.index);
                led.entry(leader).or_default().insert(at, leader);
            }
        }
        let (mut start, mut end) = (BTreeMap::new(), BTreeMap::new());
        for partitions in led.values() {
            start.extend(cluster.offsets(partitions, EARLIEST).unwrap_or_default());
            end.extend(cluster.offsets(partitions, LATEST).unwrap_or_default());
        }
        Ok(Self { start, end })
    }

    /// `start` (inclusive) and `end` (exclusive; what consumers see) for each partition of a topic; null where nobody answers.
    fn add_to(&self, topic: &mut Value) {
        let name = topic["name"].as_str().unwrap_or_default().to_owned();
        for partition in topic["partitions"].as_array_mut().into_iter().flatten() {
            let index = partition["partition"].as_i64().and_then(|index| i32::try_from(index).ok());
            let at = (name.clone(), index.unwrap_or(-1));
            partition["start"] = json!(self.start.get(&at).copied().flatten());
            partition["end"] = json!(self.end.get(&at).copied().flatten());
        }
    }
}

fn delete(name: String, asking: &Asking) -> Result<(), CliError> {
    let request = DeleteTopicRequest { name: name.clone(), forwarded: false };
    let answer = ask(asking, |mut client| async move { client.delete_topic(request).await })?;
    match answer.result {
        Some(Deleted::Deleted(topic)) if asking.json => print_json(&json!({"name": topic.name})),
        Some(Deleted::Deleted(topic)) => say!("deleted topic '{}'", printable(&topic.name)),
        // The condition itself does not name the topic.
        Some(Deleted::Failure(refusal)) if refusal.name == "UNKNOWN_TOPIC_OR_PARTITION" => {
            return Err(absent_among(&name, asking));
        }
        Some(Deleted::Failure(refusal)) => return Err(failure(&refusal)),
        None => return Err(empty_answer(asking)),
    }
    Ok(())
}

/// [`absent`], with the nearest name that there is, if that can be found out.
fn absent_among(name: &str, asking: &Asking) -> CliError {
    let all = topics(Vec::new(), asking).map(|answer| answer.topics).unwrap_or_default();
    match nearest(name, all.iter().map(|topic| topic.name.as_str())) {
        Some(meant) => CliError::Refused(format!(
            "topic '{}' does not exist; did you mean '{}'?",
            printable(name),
            printable(meant)
        )),
        None => absent(name),
    }
}

pub(super) fn absent(name: &str) -> CliError {
    CliError::Refused(format!(
        "topic '{}' does not exist; `barnabas topic list` shows those that do",
        printable(name)
    ))
}

/// The topics of these names (all if empty), by name.
fn topics(names: Vec<String>, asking: &Asking) -> Result<DescribeTopicsResponse, CliError> {
    let request = DescribeTopicsRequest { names };
    let mut answer =
        ask(asking, |mut client| async move { client.describe_topics(request).await })?;
    answer.topics.sort_by(|a, b| a.name.cmp(&b.name));
    for topic in &mut answer.topics {
        topic.partitions.sort_by_key(|partition| partition.index);
    }
    Ok(answer)
}

/// `min.insync.replicas` as it is in force for a topic; `None` if there is no such topic.
pub(super) fn min_insync_replicas(name: &str, asking: &Asking) -> Result<Option<u32>, CliError> {
    let topic = topics(vec![name.to_owned()], asking)?.topics.pop();
    Ok(topic.and_then(|topic| topic.config).map(|config| config.min_insync_replicas))
}

/// One line of `topic list`; null where a broker of an earlier version does not tell how its partitions are.
fn summary(topic: &Topic) -> Value {
    let told = topic.partitions.iter().all(|p| !p.standing.is_empty());
    let count = |wanted: &dyn Fn(&Partition) -> bool| {
        told.then(|| topic.partitions.iter().filter(|p| wanted(p)).count())
    };
    let lacks = |p: &Partition| p.read().is_ok_and(|(_, read)| read.lacks_replicas());
    json!({
        "name": topic.name,
        "partitions": topic.partitions.len(),
        "replication_factor": topic.partitions.first().map_or(0, |p| p.assigned_replicas.len()),
        "offline": count(&|p| p.standing == Standing::Offline.name()),
        "under_min_isr": count(&|p| p.standing == Standing::UnderMinIsr.name()),
        "under_replicated": count(&|p| p.standing != Standing::Offline.name() && lacks(p)),
    })
}

/// One topic of `topic describe`.
fn full(topic: &Topic, cluster: &HashMap<String, String>) -> Value {
    let id = topic.incarnation.as_ref().map(|incarnation| topic_id(&incarnation.topic_id));
    let partitions: Vec<Value> = topic.partitions.iter().map(partition).collect();
    let (configs, sources) = settings::as_json(topic, cluster);
    let durability = Durability::of(topic);
    json!({
        "name": topic.name, "topic_id": id, "configs": configs, "config_sources": sources,
        "survives": durability.as_ref().map(Durability::as_json),
        "warnings": durability.as_ref().map(Durability::warnings).unwrap_or_default(),
        "partitions": partitions,
    })
}

fn partition(partition: &Partition) -> Value {
    let PartitionState { leader, leader_epoch, partition_epoch, controller_epoch, isr } =
        partition.state.clone().unwrap_or_default();
    json!({
        "partition": partition.index,
        "state": Some(&partition.standing).filter(|standing| !standing.is_empty()),
        "leader": leader,
        "leader_epoch": leader_epoch,
        "partition_epoch": partition_epoch,
        "controller_epoch": controller_epoch,
        "replicas": partition.assigned_replicas,
        "isr": isr.iter().map(|member| member.broker_id).collect::<Vec<_>>(),
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
        "offline": partition.offline_replicas,
    })
}

/// `1 partition`, `2 partitions`.
pub(super) fn counted(n: i64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn topic_id(bytes: &[u8]) -> Option<String> {
    bytes.try_into().ok().map(|bytes| TopicId(bytes).to_string())
}

fn cell(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), printable)
}

/// `P:ID,ID`.
pub(super) fn assignment(text: &str) -> Result<Assignment, String> {
    let parse = || {
        let (partition, brokers) = text.split_once(':')?;
        let brokers: Option<Vec<i32>> =
            brokers.split(',').map(|id| id.trim().parse().ok().filter(|id| *id >= 0)).collect();
        let partition = partition.trim().parse().ok().filter(|partition| *partition >= 0)?;
        Some(Assignment { partition, brokers: brokers? })
    };
    parse().ok_or_else(|| "expected PARTITION:BROKER,BROKER, such as 0:1,2,3".to_owned())
}

#[cfg(test)]
mod tests {
    use barnabas_proto::v1::IsrMember;

    use super::*;

    #[test]
    fn assignments_are_read() {
        assert_eq!(assignment("2:1,3"), Ok(Assignment { partition: 2, brokers: vec![1, 3] }));
        for bad in ["", "1", "1:", ":1", "a:1", "1:-2", "-1:2", "1:2,,3"] {
            assert!(assignment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn offsets_are_shown_where_a_leader_told_them() {
        let at = |index, offset| BTreeMap::from([(("t".to_owned(), index), Some(offset))]);
        let offsets = Offsets { start: at(0, 3), end: at(0, 7) };
        let mut topic = json!({"name": "t", "partitions": [{"partition": 0}, {"partition": 1}]});
        offsets.add_to(&mut topic);
        let partitions = topic["partitions"].as_array().unwrap();
        assert_eq!(partitions[0], json!({"partition": 0, "start": 3, "end": 7}));
        assert_eq!(partitions[1], json!({"partition": 1, "start": null, "end": null}));
    }

    #[test]
    fn partitions_are_counted_by_what_the_broker_says_of_them() {
        let partition = |leader, isr: &[i32], standing: &str| {
            let isr = isr.iter().map(|id| IsrMember { broker_id: *id, broker_epoch: 1 });
            Partition {
                assigned_replicas: vec![1, 2, 3],
                state: Some(PartitionState { leader, isr: isr.collect(), ..Default::default() }),
                standing: standing.to_owned(),
                ..Partition::default()
            }
        };
        let mut topic = Topic {
            name: "t".into(),
            partitions: vec![
                partition(1, &[1, 2, 3], "online"),
                partition(1, &[1, 2], "under_replicated"),
                partition(1, &[1], "under_min_isr"),
                partition(2, &[2], "offline"),
            ],
            ..Topic::default()
        };
        let row = summary(&topic);
        let counts = ["offline", "under_min_isr", "under_replicated"].map(|of| row[of].as_u64());
        assert_eq!(counts, [Some(1), Some(1), Some(2)]);
        assert_eq!(super::partition(&topic.partitions[3])["state"], "offline");
        topic.partitions.push(partition(1, &[1], ""));
        assert!(summary(&topic)["offline"].is_null(), "an earlier version tells nothing");
    }
}
