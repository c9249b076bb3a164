//! `barnabas ledger verify`: whether the present leaders have what replicas lost.
//!
//! In two logs, the same offset in the same leader epoch is the same record, and so is everything before it. So the end of an
//! epoch in the leader's log (OffsetForLeaderEpoch), set beside the epoch of the last lost record, tells how much of them the leader
//! has; no record is read. What only may be lost is shown, too: nobody can tell of it, and that is no "all is well".

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

/// Version of the request.
const VERSION: i16 = 3;
/// Epochs that are asked about in one request.
const ASKED_MAX: usize = 500;

/// Why an entry that names no lost record for sure is not judged.
const MAY_BE: &str = "it says from where on records may be lost, not which ones there were";

const COLUMNS: [&str; 10] =
    ["time", "broker", "topic", "partition", "from", "to", "epoch", "class", "verdict", "why"];

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

/// The leader of a topic's partition as the asked broker knows it.
struct Known {
    topic_ids: BTreeMap<String, String>,
    leaders: ByPartition<i32>,
}

pub(super) fn verify(args: &LedgerArgs) -> Result<(), CliError> {
    let losses = args.losses()?;
    let sure: Vec<&Loss> = losses.iter().filter(|loss| is_sure(loss)).collect();
    let logs = Logs::ask(&args.asking, &sure)?;
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for loss in &losses {
        let (verdict, why) = match logs.of(loss) {
            _ if !is_sure(loss) => (Verdict::CannotTell, MAY_BE.to_owned()),
            Ok(has) => judge(loss, has),
            Err(why) => (Verdict::CannotTell, why),
        };
        let mut row = row(loss);
        row["verdict"] = json!(verdict.name());
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
        say!("{}", table(&COLUMNS, rows).trim_end());
    }
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
    ends: BTreeMap<Asked, Option<(i32, i64)>>,
    /// Why a broker did not answer.
    silent: BTreeMap<i32, String>,
}

impl Logs {
    fn ask(asking: &Asking, losses: &[&Loss]) -> Result<Self, CliError> {
        let known = Known::ask(asking)?;
        let mut logs =
            Self { known, starts: BTreeMap::new(), ends: BTreeMap::new(), silent: BTreeMap::new() };
        let mut of_leader: BTreeMap<i32, BTreeSet<Asked>> = BTreeMap::new();
        for loss in losses {
            if let (Ok(leader), Some(epoch)) = (logs.known.leader(loss), loss.last_epoch) {
                let asked = (loss.topic.clone(), loss.partition, epoch);
                of_leader.entry(leader).or_default().insert(asked);
            }
        }
        if of_leader.is_empty() {
            return Ok(logs);
        }
        let cluster = Cluster::of(asking)?;
        for (leader, asked) in of_leader {
            let asked: Vec<Asked> = asked.into_iter().collect();
            for asked in asked.chunks(ASKED_MAX) {
                let partitions: ByPartition<i32> = asked
                    .iter()
                    .map(|(topic, index, _)| ((topic.clone(), *index), leader))
                    .collect();
                let answered = ends(&cluster, leader, asked).and_then(|ends| {
                    logs.ends.extend(ends);
                    logs.starts.extend(cluster.offsets(&partitions, EARLIEST)?);
                    Ok(())
                });
                if let Err(error) = answered {
                    logs.silent.insert(leader, error.to_string());
                }
            }
        }
        Ok(logs)
    }

    fn of(&self, loss: &Loss) -> Result<Has, String> {
        let leader = self.known.leader(loss)?;
        let Some(epoch) = loss.last_epoch else { return Ok(Has { log_start: 0, epoch: None }) };
        let partition = (loss.topic.clone(), loss.partition);
        let asked = (loss.topic.clone(), loss.partition, epoch);
        match (self.starts.get(&partition), self.ends.get(&asked)) {
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
        let mut known = Self { topic_ids: BTreeMap::new(), leaders: BTreeMap::new() };
        for topic in told.topics {
            let id = topic.incarnation.and_then(|life| life.topic_id.try_into().ok());
            let id = TopicId(id.unwrap_or_default());
            known.topic_ids.insert(topic.name.clone(), id.to_string());
            for partition in topic.partitions {
                let leader = partition.state.as_ref().map_or(-1, |state| state.leader);
                known.leaders.insert((topic.name.clone(), partition.index), leader);
            }
        }
        Ok(known)
    }

    fn leader(&self, loss: &Loss) -> Result<i32, String> {
        if self.topic_ids.get(&loss.topic) != Some(&loss.topic_id) {
            return Err("the topic was deleted since".to_owned());
        }
        let leader = self.leaders.get(&(loss.topic.clone(), loss.partition)).copied();
        leader.filter(|id| *id >= 0).ok_or_else(|| "the partition has no leader now".to_owned())
    }
}

/// Where epochs end in the leader's logs. Partitions that it does not answer for are left out.
fn ends(
    cluster: &Cluster<'_>,
    leader: i32,
    asked: &[Asked],
) -> Result<BTreeMap<Asked, Option<(i32, i64)>>, CliError> {
    let mut request = OffsetForLeaderEpochRequest::default();
    request.replica_id = -1;
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
    let answer = cluster.call(leader, VERSION, &request)?;
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
