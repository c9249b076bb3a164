//! The ledger as it is served: the losses in the journal, by time and topic, a page at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_proto::v1;
use barnabas_types::BrokerId;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::journal::{Entry, Journal, Kind, Origin, Place};

/// Most losses of one page.
const PAGE_MAX: usize = 1_000;
/// Most losses whose classes are looked through for those that a replica does not know.
const TOLD_MAX: usize = 10_000;
/// The class of what nobody has told yet.
const UNKNOWN: &str = "unknown";
/// Most who read the ledger of one broker at once.
const READERS_MAX: usize = 16;

/// What this broker has of the ledger: all of it, but for the last moments.
#[derive(Debug)]
pub struct Ledger {
    me: BrokerId,
    journal: Arc<Journal>,
    /// Places for those who read it.
    readers: Semaphore,
}

impl Ledger {
    /// The losses in `journal`.
    #[must_use]
    pub fn new(me: BrokerId, journal: Arc<Journal>) -> Self {
        Self { me, journal, readers: Semaphore::new(READERS_MAX) }
    }
}

impl barnabas_controller::Ledger for Ledger {
    fn list(&self, request: &v1::ListLossesRequest) -> Result<v1::ListLossesResponse, Status> {
        let Ok(_place) = self.readers.try_acquire() else {
            return Err(Status::resource_exhausted(format!(
                "{READERS_MAX} read the ledger here already; ask another broker"
            )));
        };
        let after = request.after.as_ref().map(place).transpose()?;
        let wanted = |entry: &Entry| {
            let topic = entry.body["topic"].as_str();
            request.topic.as_deref().is_none_or(|wanted| topic == Some(wanted))
        };
        let (page, more) =
            self.journal.page(Kind::Loss, request.since_ms, after.as_ref(), PAGE_MAX, wanted);
        let losses = self.completed(page.iter().map(loss).collect());
        Ok(v1::ListLossesResponse { losses, more, answered_by: self.me.0 })
    }
}

impl Ledger {
    /// What a replica had copied and lost, and could not tell the class of, has the class that its leader tells of the same records.
    fn completed(&self, losses: Vec<v1::Loss>) -> Vec<v1::Loss> {
        let of = |loss: &v1::Loss| (loss.topic_id.clone(), loss.partition);
        let open: BTreeSet<(String, i32)> = losses.iter().filter(|l| is_open(l)).map(of).collect();
        if open.is_empty() {
            return losses;
        }
        let tells = |entry: &Entry| {
            let told = loss(entry);
            told.last_epoch.is_some() && told.class != UNKNOWN && open.contains(&of(&told))
        };
        let (told, _) = self.journal.page(Kind::Loss, 0, None, TOLD_MAX, tells);
        let told: Vec<v1::Loss> = told.iter().map(loss).collect();
        losses.into_iter().flat_map(|loss| told_by_others(loss, &told)).collect()
    }
}

/// Whether another replica may know better: the records are known, their class is not.
fn is_open(loss: &v1::Loss) -> bool {
    loss.class == UNKNOWN && loss.last_epoch.is_some() && loss.to == Some(loss.at_least_to)
}

/// A loss in parts of which others tell the class; as it is if that leaves anything open. The same offset in the same leader epoch
/// is the same record, and so is everything before it.
fn told_by_others(loss: v1::Loss, told: &[v1::Loss]) -> Vec<v1::Loss> {
    let Some(end) = loss.to.filter(|_| is_open(&loss)) else { return vec![loss] };
    let (mut parts, mut from) = (Vec::new(), loss.from);
    while from < end {
        let covers = |known: &&v1::Loss| {
            known.topic_id == loss.topic_id
                && known.partition == loss.partition
                && known.last_epoch == loss.last_epoch
                && known.from <= from
                && known.at_least_to > from
        };
        let Some(known) = told.iter().find(covers) else { return vec![loss] };
        let to = known.at_least_to.min(end);
        parts.push(v1::Loss {
            from,
            to: Some(to),
            at_least_to: to,
            class: known.class.clone(),
            class_reason: format!("broker {} tells so of the same records", known.broker_id),
            ..loss.clone()
        });
        from = to;
    }
    parts
}

/// How many losses there are of each class.
#[must_use]
pub fn classes(journal: &Journal) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (name, count) in journal.classes(Kind::Loss) {
        *counts.entry(class(Some(&name)).to_owned()).or_default() += count;
    }
    counts
}

fn place(place: &v1::LossPlace) -> Result<Place, Status> {
    let origin = Origin::parse(&place.origin).ok_or_else(|| {
        Status::invalid_argument(
            "after.origin is no origin of a loss; give the place of the last loss of the page before",
        )
    })?;
    Ok(Place { time_ms: place.time_ms, origin, sequence: place.sequence })
}

fn loss(entry: &Entry) -> v1::Loss {
    let body = &entry.body;
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| body[name].as_i64();
    let epoch = |name: &str| number(name).and_then(|epoch| i32::try_from(epoch).ok());
    v1::Loss {
        place: Some(v1::LossPlace {
            time_ms: entry.time_ms,
            origin: entry.origin.to_string(),
            sequence: entry.sequence,
        }),
        broker_id: entry.origin.broker.0,
        topic: text("topic"),
        partition: epoch("partition").unwrap_or(-1),
        topic_id: text("topic_id"),
        from: number("from").unwrap_or(-1),
        to: number("to"),
        at_least_to: number("at_least_to").unwrap_or(-1),
        bytes: body["bytes"].as_u64().unwrap_or(0),
        last_epoch: epoch("last_epoch"),
        leader_epoch: epoch("leader_epoch"),
        high_watermark: number("high_watermark"),
        class: class(body["class"].as_str()).to_owned(),
        class_reason: text("class_reason"),
        cause: text("cause"),
        detail: text("detail"),
    }
}

/// Records of an earlier version told less: what was not committed might have been acknowledged at acks=1, or not at all.
fn class(class: Option<&str>) -> &str {
    match class {
        Some("committed") => "acks=all",
        Some("uncommitted") | None => "unknown",
        Some(class) => class,
    }
}

#[cfg(test)]
mod tests {
    use barnabas_controller::Ledger as _;
    use barnabas_types::DirectoryId;
    use serde_json::json;

    use super::*;
    use crate::testing::Disk;

    #[tokio::test]
    async fn losses_are_listed_by_topic_and_page_by_page() {
        let (disk, journal) = (Disk::new(), Arc::new(Journal::default()));
        let me = Origin { broker: BrokerId(3), directory: DirectoryId([3; 16]) };
        let _thread = journal.start(disk.storage.clone(), me).unwrap();
        let count = PAGE_MAX + 10;
        for n in 0..count {
            let topic = if n % 2 == 0 { "even" } else { "odd" };
            let (from, to, class) = (n, json!(null), "acks=1");
            journal.add(
                Kind::Loss,
                json!({ "topic": topic, "partition": 2, "from": from, "to": to, "class": class }),
            );
        }
        let mut changed = journal.watch();
        while journal.written() < count as u64 {
            changed.changed().await.unwrap();
        }
        let ledger = Ledger::new(me.broker, journal);
        let mut request = v1::ListLossesRequest::default();
        let first = ledger.list(&request).unwrap();
        assert_eq!((first.losses.len(), first.more, first.answered_by), (PAGE_MAX, true, 3));
        let shown = &first.losses[7];
        assert_eq!((shown.from, shown.to, shown.partition, shown.broker_id), (7, None, 2, 3));
        assert_eq!((shown.topic.as_str(), shown.class.as_str()), ("odd", "acks=1"));
        request.after = first.losses.last().unwrap().place.clone();
        let second = ledger.list(&request).unwrap();
        assert_eq!((second.losses.len(), second.more), (10, false));
        assert_eq!(second.losses[0].from, i64::try_from(PAGE_MAX).unwrap());
        let even = v1::ListLossesRequest { topic: Some("even".into()), ..Default::default() };
        assert_eq!(ledger.list(&even).unwrap().losses.len(), count / 2);
        let later = v1::ListLossesRequest { since_ms: i64::MAX, ..Default::default() };
        assert!(ledger.list(&later).unwrap().losses.is_empty());
        request.after = Some(v1::LossPlace { origin: "nobody".into(), ..Default::default() });
        assert!(ledger.list(&request).is_err());
        let places = ledger.readers.try_acquire_many(u32::try_from(READERS_MAX).unwrap()).unwrap();
        assert_eq!(ledger.list(&even).unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(places);
        assert!(ledger.list(&even).is_ok());
    }

    #[test]
    fn what_was_copied_has_the_class_that_its_leader_tells_or_none() {
        let loss = |broker_id, (from, to), epoch, class: &str| v1::Loss {
            broker_id,
            from,
            to: Some(to),
            at_least_to: to,
            last_epoch: Some(epoch),
            class: class.into(),
            ..v1::Loss::default()
        };
        let of_leader = [loss(1, (3, 8), 4, "acks=1"), loss(1, (8, 10), 4, "never acked")];
        let ranges = |copied, told: &[v1::Loss]| -> Vec<(i64, i64, String)> {
            let parts = told_by_others(copied, told).into_iter();
            parts.map(|part| (part.from, part.at_least_to, part.class)).collect()
        };
        let copied = |range| loss(2, range, 4, UNKNOWN);
        assert_eq!(
            ranges(copied((4, 9)), &of_leader),
            [(4, 8, "acks=1".to_owned()), (8, 9, "never acked".to_owned())]
        );
        let whole = |from, to| vec![(from, to, UNKNOWN.to_owned())];
        assert_eq!(ranges(copied((2, 9)), &of_leader), whole(2, 9), "the beginning is open");
        assert_eq!(ranges(copied((4, 11)), &of_leader), whole(4, 11), "the end is open");
        assert_eq!(ranges(loss(2, (4, 9), 3, UNKNOWN), &of_leader), whole(4, 9), "other records");
        let elsewhere = of_leader.clone().map(|told| v1::Loss { partition: 1, ..told });
        assert_eq!(ranges(copied((4, 9)), &elsewhere), whole(4, 9));
        let may_be = v1::Loss { to: None, ..copied((4, 9)) };
        assert_eq!(told_by_others(may_be.clone(), &of_leader), [may_be]);
    }

    #[tokio::test]
    async fn a_list_is_completed_with_what_the_leader_tells() {
        let (disk, journal) = (Disk::new(), Arc::new(Journal::default()));
        let me = Origin { broker: BrokerId(3), directory: DirectoryId([3; 16]) };
        let _thread = journal.start(disk.storage, me).unwrap();
        for class in [UNKNOWN, "acks=1"] {
            let body = json!({
                "topic": "t", "topic_id": "x", "partition": 0, "from": 1, "to": 5, "at_least_to": 5,
                "last_epoch": 2, "class": class,
            });
            journal.add(Kind::Loss, body);
        }
        assert!(journal.wait_until_written(std::time::Duration::from_secs(20)));
        let ledger = Ledger::new(me.broker, journal);
        let listed = ledger.list(&v1::ListLossesRequest::default()).unwrap();
        let classes: Vec<&str> = listed.losses.iter().map(|loss| loss.class.as_str()).collect();
        assert_eq!(classes, ["acks=1", "acks=1"]);
    }

    #[test]
    fn records_of_an_earlier_version_have_a_class_too() {
        let classes = [Some("committed"), Some("uncommitted"), None, Some("acks=1")];
        assert_eq!(classes.map(class), ["acks=all", "unknown", "unknown", "acks=1"]);
    }
}
