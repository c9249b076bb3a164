//! `barnabas ledger verify`: whether the present leaders, and the other replicas, have what replicas lost.
//!
//! In two logs, the same offset in the same leader epoch is the same record, and so is everything before it. So the end of an
//! epoch in a replica's log (OffsetForLeaderEpoch), set beside the epoch of the last lost record, tells how much of them it
//! has; no record is read. The leader's log is the partition; what another replica has beyond it goes when that one follows. What only may be lost is shown, too: nobody can tell of it, and that is no "all is well".

use std::collections::{BTreeMap, BTreeSet};

use barnabas_proto::v1::{DescribeTopicsRequest, Loss};
use barnabas_types::TopicId;
use barnabas_wire::messages::OffsetForLeaderEpochRequest;
use barnabas_wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use serde_json::{Value, json};

use super::super::ask::ask;
use super::super::kafka::{ByPartition, Cluster, EARLIEST};
use super::super::table::{print_json, table};
use super::super::topic::counted;
use super::super::{Asking, CliError};
use super::{LedgerArgs, row};

/// Who asks a replica for its own log, whether it leads or not, says so with this replica id (as in `kafka/offset_for_leader_epoch.rs`).
const ANY_REPLICA: i32 = -2;
/// Version of the request.
const VERSION: i16 = 3;
/// Epochs that are asked about in one request.
const ASKED_MAX: usize = 500;

/// Why an entry that names no lost record for sure is not judged.
const MAY_BE: &str = "it says from where on records may be lost, not which ones there were";

const COLUMNS: [&str; 11] = [
    "time",
    "broker",
    "topic",
    "partition",
    "from",
    "to",
    "epoch",
    "class",
    "verdict",
    "had_by",
    "why",
];

/// What became of lost records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The leader has none of them, or not all.
    Gone,
    /// The replica lost its copy, the cluster did not.
    StillThere,
    CannotTell,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::StillThere => "still there at the leader",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// What the leader's log has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Has {
    /// Where it begins.
    log_start: i64,
    /// The newest epoch that is not newer than the asked one, and where it ends (exclusive); `None`: all its epochs are newer.
    epoch: Option<(i32, i64)>,
}

/// The leader (-1: none) and the replicas of a topic's partition as the asked broker knows them.
struct Known {
    topic_ids: BTreeMap<String, String>,
    partitions: ByPartition<(i32, Vec<i32>)>,
}

pub(super) fn verify(args: &LedgerArgs) -> Result<(), CliError> {
    let losses = args.losses()?;
    let sure: Vec<&Loss> = losses.iter().filter(|loss| is_sure(loss)).collect();
    let logs = Logs::ask(&args.asking, &sure)?;
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for loss in &losses {
        let (verdict, why, had_by) = match logs.known.of(loss) {
            _ if !is_sure(loss) => (Verdict::CannotTell, MAY_BE.to_owned(), None),
            Ok((leader, replicas)) => {
                let others: BTreeMap<i32, Option<bool>> = replicas
                    .iter()
                    .filter(|id| **id != leader)
                    .map(|id| (*id, logs.is_had_by(loss, *id)))
                    .collect();
                let (verdict, why) = match (leader, logs.at_leader(loss, leader)) {
                    (..0, _) => without_leader(&others),
                    (_, Ok(has)) => judge(loss, has),
                    (_, Err(why)) => (Verdict::CannotTell, why),
                };
                let of_leader =
                    (leader >= 0).then(|| (leader, Some(verdict == Verdict::StillThere)));
                let all = others.iter().map(|(id, has)| (*id, *has)).chain(of_leader);
                let had_by: BTreeSet<i32> =
                    all.filter(|(_, has)| *has == Some(true)).map(|(id, _)| id).collect();
                (verdict, said_of(verdict, why, &others), Some(had_by))
            }
            Err(why) => (Verdict::CannotTell, why, None),
        };
        let mut row = row(loss);
        row["verdict"] = json!(verdict.name());
        row["had_by"] = json!(had_by);
        row["why"] = json!(why);
        rows.push(row);
        verdicts.push((loss.class.as_str(), verdict));
    }
    show(args.asking.json, &rows);
    summary(&verdicts)
}

fn show(as_json: bool, rows: &[Value]) {
    if as_json {
        print_json(&Value::Array(rows.to_vec()));
    } else if rows.is_empty() {
        say!("no losses");
    } else {
        let shown: Vec<Value> = rows
            .iter()
            .cloned()
            .map(|mut row| {
                let ids = row["had_by"].as_array().filter(|ids| !ids.is_empty());
                row["had_by"] = json!(
                    ids.map(|ids| ids.iter().map(Value::to_string).collect::<Vec<_>>().join(","))
                );
                row
            })
            .collect();
        say!("{}", table(&COLUMNS, &shown).trim_end());
    }
}

/// Of a partition that nobody leads: who leads next may be any of its replicas. `None`: that one does not answer.
fn without_leader(replicas: &BTreeMap<i32, Option<bool>>) -> (Verdict, String) {
    if replicas.values().all(|has| *has == Some(false)) {
        return (
            Verdict::Gone,
            "the partition has no leader now, and no replica has all of them".to_owned(),
        );
    }
    (Verdict::CannotTell, "the partition has no leader now".to_owned())
}

/// What a verdict on the leader's log leaves open of the other replicas' (`None`: it does not answer).
fn said_of(verdict: Verdict, why: String, others: &BTreeMap<i32, Option<bool>>) -> String {
    let brokers = |wanted: Option<bool>| {
        let ids = others.iter().filter(|(_, has)| **has == wanted);
        ids.map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (with, without, silent) = (brokers(Some(true)), brokers(Some(false)), brokers(None));
    let mut said = why;
    match verdict {
        Verdict::Gone if !with.is_empty() => {
            said += &format!("; still at {with}, until that follows");
        }
        Verdict::StillThere if !without.is_empty() => said += &format!("; not yet at {without}"),
        _ => {}
    }
    if verdict != Verdict::CannotTell && !silent.is_empty() {
        said += &format!("; {silent} does not tell");
    }
    said
}

/// What comes of the classes and verdicts. What nobody ever acknowledged may be gone.
///
/// # Errors
/// Something is gone, or nobody can tell.
fn summary(verdicts: &[(&str, Verdict)]) -> Result<(), CliError> {
    let count = |of: Verdict| {
        let found = verdicts.iter().filter(|(class, is)| *class != "never acked" && *is == of);
        i64::try_from(found.count()).unwrap_or(i64::MAX)
    };
    let (gone, open) = (count(Verdict::Gone), count(Verdict::CannotTell));
    let mut said = Vec::new();
    if gone > 0 {
        said.push(format!(
            "gone: {} of records that were acknowledged, or may have been",
            counted(gone, "range")
        ));
    }
    if open > 0 {
        said.push(format!(
            "cannot tell of {}; the column `why` says what is in the way, and `--since` leaves out what was looked into",
            counted(open, "range")
        ));
    }
    if said.is_empty() { Ok(()) } else { Err(CliError::Refused(said.join("; "))) }
}

/// Whether a loss names records that the replica had and has no more.
fn is_sure(loss: &Loss) -> bool {
    loss.at_least_to > loss.from && !loss.topic.is_empty()
}

/// What is left of a loss at the leader.
fn judge(loss: &Loss, has: Has) -> (Verdict, String) {
    let Has { log_start, epoch } = has;
    let Some(last_epoch) = loss.last_epoch else {
        return (Verdict::CannotTell, "the epochs of the lost records are not known".to_owned());
    };
    let end = loss.at_least_to;
    if log_start >= end {
        return (Verdict::CannotTell, format!("the leader's log begins at {log_start} by now"));
    }
    let from = loss.from.max(log_start);
    match epoch {
        None => (Verdict::Gone, format!("the leader has no record of epoch {last_epoch} or older")),
        Some((_, has_to)) if has_to <= from => (
            Verdict::Gone,
            format!("the leader's records up to epoch {last_epoch} end at {has_to}"),
        ),
        Some((epoch, has_to)) if epoch == last_epoch && has_to >= end => {
            (Verdict::StillThere, format!("the leader has epoch {epoch} up to {has_to}"))
        }
        // Up to there they are the same ones, or of an older epoch that the leader may have from elsewhere.
        Some((_, has_to)) if has_to < end => (Verdict::Gone, format!("from {has_to} on")),
        // Another epoch at the same offset is another record. Those before it may be the same ones.
        Some((epoch, _)) => (
            Verdict::Gone,
            format!(
                "the leader's record at {} is of epoch {epoch} or older, and the lost one of {last_epoch}",
                end - 1
            ),
        ),
    }
}

/// A partition's epoch that is asked about.
type Asked = (String, i32, i32);

/// What the leaders say.
struct Logs {
    known: Known,
    starts: ByPartition<Option<i64>>,
    /// By broker.
    ends: BTreeMap<(i32, Asked), Option<(i32, i64)>>,
    /// Why a broker did not answer.
    silent: BTreeMap<i32, String>,
}

impl Logs {
    fn ask(asking: &Asking, losses: &[&Loss]) -> Result<Self, CliError> {
        let known = Known::ask(asking)?;
        let mut logs =
            Self { known, starts: BTreeMap::new(), ends: BTreeMap::new(), silent: BTreeMap::new() };
        // By broker, and whether it is asked as the leader.
        let mut of_broker: BTreeMap<(i32, bool), BTreeSet<Asked>> = BTreeMap::new();
        for loss in losses {
            if let (Ok((leader, replicas)), Some(epoch)) = (logs.known.of(loss), loss.last_epoch) {
                let asked = (loss.topic.clone(), loss.partition, epoch);
                for id in replicas.iter().copied().chain((leader >= 0).then_some(leader)) {
                    of_broker.entry((id, id == leader)).or_default().insert(asked.clone());
                }
            }
        }
        if of_broker.is_empty() {
            return Ok(logs);
        }
        let cluster = Cluster::of(asking)?;
        for ((broker, leads), asked) in of_broker {
            let asked: Vec<Asked> = asked.into_iter().collect();
            for asked in asked.chunks(ASKED_MAX) {
                let partitions: ByPartition<i32> = asked
                    .iter()
                    .filter(|_| leads)
                    .map(|(topic, index, _)| ((topic.clone(), *index), broker))
                    .collect();
                let answered = ends(&cluster, broker, leads, asked).and_then(|ends| {
                    logs.ends.extend(ends.into_iter().map(|(asked, end)| ((broker, asked), end)));
                    logs.starts.extend(cluster.offsets(&partitions, EARLIEST)?);
                    Ok(())
                });
                if let Err(error) = answered {
                    logs.silent.insert(broker, error.to_string());
                }
            }
        }
        Ok(logs)
    }

    /// Whether this replica has all of what is lost for sure; `None`: it does not tell.
    fn is_had_by(&self, loss: &Loss, broker: i32) -> Option<bool> {
        let asked = (loss.topic.clone(), loss.partition, loss.last_epoch?);
        let epoch = *self.ends.get(&(broker, asked))?;
        Some(judge(loss, Has { log_start: 0, epoch }).0 == Verdict::StillThere)
    }

    fn at_leader(&self, loss: &Loss, leader: i32) -> Result<Has, String> {
        let Some(epoch) = loss.last_epoch else { return Ok(Has { log_start: 0, epoch: None }) };
        let partition = (loss.topic.clone(), loss.partition);
        let asked = (loss.topic.clone(), loss.partition, epoch);
        match (self.starts.get(&partition), self.ends.get(&(leader, asked))) {
            (Some(Some(log_start)), Some(epoch)) => {
                Ok(Has { log_start: *log_start, epoch: *epoch })
            }
            _ => Err(match self.silent.get(&leader) {
                Some(why) => why.clone(),
                None => format!("broker {leader} does not serve it as the leader now"),
            }),
        }
    }
}

impl Known {
    fn ask(asking: &Asking) -> Result<Self, CliError> {
        let request = DescribeTopicsRequest::default();
        let told = ask(asking, |mut client| async move { client.describe_topics(request).await })?;
        let mut known = Self { topic_ids: BTreeMap::new(), partitions: BTreeMap::new() };
        for topic in told.topics {
            let id = topic.incarnation.and_then(|life| life.topic_id.try_into().ok());
            let id = TopicId(id.unwrap_or_default());
            known.topic_ids.insert(topic.name.clone(), id.to_string());
            for partition in topic.partitions {
                let leader = partition.state.as_ref().map_or(-1, |state| state.leader);
                let told = (leader, partition.assigned_replicas);
                known.partitions.insert((topic.name.clone(), partition.index), told);
            }
        }
        Ok(known)
    }

    /// Leader and replicas.
    fn of(&self, loss: &Loss) -> Result<(i32, &[i32]), String> {
        if self.topic_ids.get(&loss.topic) != Some(&loss.topic_id) {
            return Err("the topic was deleted since".to_owned());
        }
        let known = self.partitions.get(&(loss.topic.clone(), loss.partition));
        let known = known.map(|(leader, replicas)| (*leader, &replicas[..]));
        known.ok_or_else(|| "the partition is not known now".to_owned())
    }
}

/// Where epochs end in a broker's logs. Partitions that it does not answer for, or does not lead though it should, are left out.
fn ends(
    cluster: &Cluster<'_>,
    broker: i32,
    leads: bool,
    asked: &[Asked],
) -> Result<BTreeMap<Asked, Option<(i32, i64)>>, CliError> {
    let mut request = OffsetForLeaderEpochRequest::default();
    request.replica_id = if leads { -1 } else { ANY_REPLICA };
    for (topic, index, epoch) in asked {
        let mut of_partition = OffsetForLeaderPartition::default();
        of_partition.partition = *index;
        of_partition.current_leader_epoch = -1;
        of_partition.leader_epoch = *epoch;
        let mut of_topic = OffsetForLeaderTopic::default();
        of_topic.topic = topic.as_str().into();
        of_topic.partitions = vec![of_partition];
        request.topics.push(of_topic);
    }
    let answer = cluster.call(broker, VERSION, &request)?;
    let mut found = BTreeMap::new();
    // In the order of the request.
    for (asked, topic) in asked.iter().zip(answer.topics) {
        let is_it = topic.topic.as_str() == asked.0;
        let ended = topic.partitions.first().filter(|p| is_it && p.partition == asked.1);
        if let Some(end) = ended.filter(|end| end.error_code == 0) {
            let has = (end.leader_epoch >= 0).then_some((end.leader_epoch, end.end_offset));
            found.insert(asked.clone(), has);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(from: i64, at_least_to: i64, last_epoch: Option<i32>) -> Loss {
        Loss { topic: "t".into(), from, at_least_to, last_epoch, ..Loss::default() }
    }

    fn verdict(loss: &Loss, log_start: i64, epoch: Option<(i32, i64)>) -> Verdict {
        judge(loss, Has { log_start, epoch }).0
    }

    #[test]
    fn the_same_epoch_at_the_same_offset_is_the_same_record() {
        let lost = loss(10, 20, Some(4));
        assert_eq!(verdict(&lost, 0, Some((4, 20))), Verdict::StillThere);
        assert_eq!(verdict(&lost, 0, Some((4, 90))), Verdict::StillThere);
        assert_eq!(verdict(&lost, 0, Some((4, 10))), Verdict::Gone);
        let (verdict_, why) = judge(&lost, Has { log_start: 0, epoch: Some((4, 15)) });
        assert_eq!((verdict_, why.as_str()), (Verdict::Gone, "from 15 on"));
    }

    #[test]
    fn another_epoch_is_another_record_also_an_older_one() {
        let lost = loss(10, 20, Some(4));
        assert_eq!(verdict(&lost, 0, Some((3, 10))), Verdict::Gone, "the next epoch begins there");
        assert_eq!(verdict(&lost, 0, Some((3, 15))), Verdict::Gone, "from there on");
        assert_eq!(verdict(&lost, 0, Some((3, 25))), Verdict::Gone, "an out-of-sync replica leads");
        assert_eq!(verdict(&lost, 0, None), Verdict::Gone);
    }

    #[test]
    fn what_was_deleted_since_or_is_not_known_is_not_judged() {
        let lost = loss(10, 20, Some(4));
        assert_eq!(verdict(&lost, 20, Some((9, 40))), Verdict::CannotTell);
        assert_eq!(verdict(&lost, 15, Some((4, 20))), Verdict::StillThere);
        assert_eq!(verdict(&loss(10, 20, None), 0, Some((9, 40))), Verdict::CannotTell);
        assert!(is_sure(&lost) && !is_sure(&loss(10, 10, None)));
    }

    #[test]
    fn the_other_replicas_are_told_of_too_and_decide_where_nobody_leads() {
        let of = |has: &[Option<bool>]| (2..).zip(has.iter().copied()).collect::<BTreeMap<_, _>>();
        let said = |verdict, has: &[Option<bool>]| said_of(verdict, "why".to_owned(), &of(has));
        assert_eq!(said(Verdict::Gone, &[Some(false), Some(false)]), "why");
        assert_eq!(
            said(Verdict::Gone, &[Some(false), Some(true)]),
            "why; still at 3, until that follows"
        );
        assert_eq!(
            said(Verdict::StillThere, &[Some(false), None]),
            "why; not yet at 2; 3 does not tell"
        );
        assert_eq!(without_leader(&of(&[Some(false), Some(false)])).0, Verdict::Gone);
        for open in [[Some(true), Some(false)], [None, Some(false)]] {
            assert_eq!(without_leader(&of(&open)).0, Verdict::CannotTell);
        }
    }

    #[test]
    fn all_is_well_only_if_nothing_acknowledged_is_gone_and_nothing_is_open() {
        let said = |verdicts: &[(&str, Verdict)]| summary(verdicts).err().map(|e| e.to_string());
        assert_eq!(said(&[]), None);
        let never = |verdict| ("never acked", verdict);
        let well =
            [never(Verdict::Gone), never(Verdict::CannotTell), ("acks=all", Verdict::StillThere)];
        assert_eq!(said(&well), None);
        assert!(said(&[("acks=1", Verdict::Gone)]).unwrap().contains("gone: 1 range "));
        // Such as an unclean election, before the members that it passed over are back.
        let open = said(&[("unknown", Verdict::CannotTell), ("acks=all", Verdict::CannotTell)]);
        assert!(open.unwrap().contains("cannot tell of 2 ranges"));
    }
}
