//! The ledger as it is served: the losses in the journal, by time and topic, a page at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_proto::v1;
use barnabas_types::BrokerId;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::journal::{Entry, Journal, Kind, Origin, Place};

/// Most losses of one page.
const PAGE_MAX: usize = 1_000;
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
        let losses = page.iter().map(loss).collect();
        Ok(v1::ListLossesResponse { losses, more, answered_by: self.me.0 })
    }
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
    fn records_of_an_earlier_version_have_a_class_too() {
        let classes = [Some("committed"), Some("uncommitted"), None, Some("acks=1")];
        assert_eq!(classes.map(class), ["acks=all", "unknown", "unknown", "acks=1"]);
    }
}
