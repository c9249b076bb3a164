//! The ledger as it is served: the losses in the journal, by time and topic, a page at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
        let losses = self.completed(&page);
        Ok(v1::ListLossesResponse { losses, more, answered_by: self.me.0 })
    }
}

impl Ledger {
    /// What a replica had copied and lost, and could not tell the class of, has the class that its leader tells of the same records; what
    /// it had appended itself and another may have acknowledged since is `never acked` if nobody can have.
    fn completed(&self, page: &[Entry]) -> Vec<v1::Loss> {
        let losses = page.iter().map(Listed::of);
        let open: BTreeSet<(String, i32)> =
            losses.clone().filter(|l| l.is_unknown()).map(|listed| listed.partition()).collect();
        if open.is_empty() {
            return losses.map(|listed| listed.loss).collect();
        }
        let tells = |entry: &Entry| {
            let told = Listed::of(entry);
            (told.tells_class() || told.tells_unclean()) && open.contains(&told.partition())
        };
        let (told, _) = self.journal.page(Kind::Loss, 0, None, TOLD_MAX, tells);
        let told = Told::of(told.iter().map(Listed::of));
        losses.flat_map(|listed| told.complete(listed)).collect()
    }
}

/// A loss as it lies in the journal.
#[derive(Clone, Debug)]
struct Listed {
    loss: v1::Loss,
    /// Its class if nobody has led between this epoch and that in which it was lost.
    unless_led: Option<(String, i32)>,
}

impl Listed {
    fn of(entry: &Entry) -> Self {
        let class = entry.body["class_unless_led"].as_str();
        let epoch = entry.body["led_epoch"].as_i64().and_then(|epoch| epoch.try_into().ok());
        Self { loss: loss(entry), unless_led: class.map(str::to_owned).zip(epoch) }
    }

    fn partition(&self) -> (String, i32) {
        (self.loss.topic_id.clone(), self.loss.partition)
    }

    fn is_unknown(&self) -> bool {
        self.loss.class == UNKNOWN && (self.loss.last_epoch.is_some() || self.unless_led.is_some())
    }

    /// Of records in an epoch.
    fn tells_class(&self) -> bool {
        self.loss.class != UNKNOWN && self.loss.last_epoch.is_some()
    }

    /// That the epoch before that of the loss was without a leader: an unclean election comes after one.
    fn tells_unclean(&self) -> bool {
        self.loss.cause == "unclean_election" && self.loss.leader_epoch.is_some()
    }
}

/// The records of one leader epoch in one partition: their ranges, by their beginnings.
#[derive(Debug, Default)]
struct OfEpoch {
    /// With an end, which is that of `at_least_to`. Beside each, which of those up to it ends last.
    bounded: Vec<(v1::Loss, usize)>,
    /// Without an end, after a crash of the leader's host.
    open: Vec<v1::Loss>,
}

impl OfEpoch {
    /// Who tells of the record at this offset.
    fn at(&self, offset: i64) -> Option<&v1::Loss> {
        let up_to = self.bounded.partition_point(|(told, _)| told.from <= offset);
        let (_, longest) = self.bounded[..up_to].last()?;
        Some(&self.bounded[*longest].0).filter(|told| told.at_least_to > offset)
    }
}

/// What replicas tell of what they lost.
#[derive(Debug, Default)]
struct Told {
    of: HashMap<(String, i32), BTreeMap<i32, OfEpoch>>,
    /// The epochs of leaders that were elected uncleanly.
    unclean: HashMap<(String, i32), BTreeSet<i32>>,
}

impl Told {
    fn of(losses: impl Iterator<Item = Listed>) -> Self {
        let mut told = Self::default();
        for listed in losses {
            let partition = listed.partition();
            if listed.tells_unclean() {
                let unclean = told.unclean.entry(partition.clone()).or_default();
                unclean.extend(listed.loss.leader_epoch);
            }
            let Some(epoch) = listed.loss.last_epoch.filter(|_| listed.tells_class()) else {
                continue;
            };
            let of_epoch = told.of.entry(partition).or_default().entry(epoch).or_default();
            if listed.loss.at_least_to > listed.loss.from {
                of_epoch.bounded.push((listed.loss, 0));
            } else if listed.loss.cause == "host_crash" && listed.loss.to.is_none() {
                of_epoch.open.push(listed.loss);
            }
        }
        for of_epoch in told.of.values_mut().flat_map(BTreeMap::values_mut) {
            of_epoch.open.sort_by_key(|told| told.from);
            of_epoch.bounded.sort_by_key(|(told, _)| told.from);
            for index in 1..of_epoch.bounded.len() {
                let before = of_epoch.bounded[index - 1].1;
                let ends = |index: usize| of_epoch.bounded[index].0.at_least_to;
                let longest = if ends(before) > ends(index) { before } else { index };
                of_epoch.bounded[index].1 = longest;
            }
        }
        told
    }

    /// A loss in parts of which others tell the class; as it is if that leaves anything open.
    fn complete(&self, listed: Listed) -> Vec<v1::Loss> {
        let partition = listed.partition();
        let Listed { mut loss, unless_led } = listed;
        if loss.class != UNKNOWN {
            return vec![loss];
        }
        if let (Some((class, led)), Some(lost)) = (unless_led, loss.leader_epoch)
            && led + 2 == lost
            && self.unclean.get(&partition).is_some_and(|epochs| epochs.contains(&lost))
        {
            loss.class = class;
            loss.class_reason = format!(
                "this replica led and acknowledged none of it, and the partition was without a leader until the unclean election of epoch {lost}"
            );
            return vec![loss];
        }
        let Some(epoch) = loss.last_epoch else { return vec![loss] };
        let Some(told) = self.of.get(&partition).and_then(|of| of.get(&epoch)) else {
            return vec![loss];
        };
        match loss.to {
            Some(end) if end == loss.at_least_to => bounded(loss, end, told),
            None if loss.at_least_to == loss.from => open(loss, told),
            _ => vec![loss],
        }
    }
}

/// The same offset in the same leader epoch is the same record, and so is everything before it.
fn bounded(loss: v1::Loss, end: i64, told: &OfEpoch) -> Vec<v1::Loss> {
    let (mut parts, mut from) = (Vec::new(), loss.from);
    while from < end {
        let Some(known) = told.at(from) else { return vec![loss] };
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

/// Of what may be gone from somewhere on. The last record before it was of the epoch in which the other replica led until its host crashed;
/// epochs never fall in a log, and none is newer that had a leader: what followed was of that leader, too. So the loss must be of
/// the same crash (noticed in the epoch after it), or of the unclean election that followed from it.
fn open(loss: v1::Loss, told: &OfEpoch) -> Vec<v1::Loss> {
    let noticed = match loss.cause.as_str() {
        "host_crash" => loss.leader_epoch,
        "unclean_election" => loss.leader_epoch.map(|epoch| epoch - 1),
        _ => None,
    };
    let told = told.open.iter().filter(|told| noticed.is_some() && told.leader_epoch == noticed);
    let (before, after): (Vec<_>, Vec<_>) = told.partition(|told| told.from <= loss.from);
    let Some(known) = before.last().or(after.first()) else { return vec![loss] };
    let from = loss.from.max(known.from);
    let reason = format!("broker {} led until its host crashed, and tells so", known.broker_id);
    let class = known.class.clone();
    let rest = v1::Loss { from, at_least_to: from, class, class_reason: reason, ..loss.clone() };
    if from == loss.from {
        return vec![rest];
    }
    vec![v1::Loss { to: Some(from), ..loss }, rest]
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

    fn listed(loss: v1::Loss) -> Listed {
        Listed { loss, unless_led: None }
    }

    fn told(losses: &[v1::Loss]) -> Told {
        Told::of(losses.iter().cloned().map(listed))
    }

    fn ranges(told: &Told, listed: Listed) -> Vec<(i64, Option<i64>, String)> {
        let parts = told.complete(listed).into_iter();
        parts.map(|part| (part.from, part.to, part.class)).collect()
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
        // In any order, and one within another.
        let all = [
            loss(1, (8, 10), 4, "never acked"),
            loss(1, (3, 8), 4, "acks=1"),
            loss(1, (4, 5), 4, "acks=1"),
        ];
        let of_leader = told(&all);
        let ranges = |copied: v1::Loss| ranges(&of_leader, listed(copied));
        let copied = |range| loss(2, range, 4, UNKNOWN);
        assert_eq!(
            ranges(copied((4, 9))),
            [(4, Some(8), "acks=1".to_owned()), (8, Some(9), "never acked".to_owned())]
        );
        let whole = |from, to| vec![(from, Some(to), UNKNOWN.to_owned())];
        assert_eq!(ranges(copied((2, 9))), whole(2, 9), "the beginning is open");
        assert_eq!(ranges(copied((4, 11))), whole(4, 11), "the end is open");
        assert_eq!(ranges(loss(2, (4, 9), 3, UNKNOWN)), whole(4, 9), "other records");
        let elsewhere = v1::Loss { partition: 1, ..copied((4, 9)) };
        assert_eq!(ranges(elsewhere), whole(4, 9));
        let may_be = v1::Loss { to: None, ..copied((4, 9)) };
        assert_eq!(of_leader.complete(listed(may_be.clone())), [may_be]);
    }

    #[test]
    fn after_a_crash_of_all_hosts_the_leader_tells_for_those_that_copied_from_it() {
        let loss = |broker_id, from, class: &str| v1::Loss {
            broker_id,
            from,
            at_least_to: from,
            last_epoch: Some(4),
            leader_epoch: Some(5),
            class: class.into(),
            cause: "host_crash".into(),
            ..v1::Loss::default()
        };
        let of_leader = told(&[loss(1, 20, "acks=all")]);
        let ranges = |copied: v1::Loss| ranges(&of_leader, listed(copied));
        let all = || "acks=all".to_owned();
        assert_eq!(ranges(loss(2, 25, UNKNOWN)), [(25, None, all())]);
        assert_eq!(
            ranges(loss(2, 12, UNKNOWN)),
            [(12, Some(20), UNKNOWN.to_owned()), (20, None, all())],
            "the leader has what lies between"
        );
        let elected = |leader_epoch| v1::Loss {
            cause: "unclean_election".into(),
            leader_epoch: Some(leader_epoch),
            ..loss(3, 30, UNKNOWN)
        };
        assert_eq!(ranges(elected(6)), [(30, None, all())]);
        let unknown = |from| [(from, None, UNKNOWN.to_owned())];
        assert_eq!(ranges(elected(8)), unknown(30), "another led in epoch 6");
        let again = v1::Loss { leader_epoch: Some(7), ..loss(2, 25, UNKNOWN) };
        assert_eq!(ranges(again), unknown(25), "a later crash took what that one appended");
        let older = v1::Loss { last_epoch: Some(3), ..loss(2, 25, UNKNOWN) };
        assert_eq!(ranges(older), [(25, None, UNKNOWN.to_owned())], "its tail may be of another");
        let emptied = v1::Loss { cause: "directory_lost".into(), ..loss(2, 25, UNKNOWN) };
        assert_eq!(ranges(emptied), [(25, None, UNKNOWN.to_owned())]);
    }

    #[test]
    fn what_nobody_can_have_acknowledged_between_two_epochs_is_never_acked() {
        let cut = |leader_epoch| Listed {
            loss: v1::Loss {
                from: 4,
                to: Some(9),
                at_least_to: 9,
                leader_epoch: Some(leader_epoch),
                class: UNKNOWN.into(),
                ..v1::Loss::default()
            },
            unless_led: Some(("never acked".to_owned(), 4)),
        };
        let elected = |leader_epoch| v1::Loss {
            leader_epoch: Some(leader_epoch),
            class: UNKNOWN.into(),
            cause: "unclean_election".into(),
            ..v1::Loss::default()
        };
        let class = |told: &[v1::Loss], cut| ranges(&super::tests::told(told), cut)[0].2.clone();
        assert_eq!(class(&[elected(6)], cut(6)), "never acked");
        assert_eq!(class(&[], cut(6)), UNKNOWN, "in epoch 5 another may have led");
        assert_eq!(class(&[elected(6)], cut(7)), UNKNOWN, "the leader of epoch 6 may have had it");
        assert_eq!(class(&[elected(7)], cut(7)), UNKNOWN, "in epoch 5 another may have led");
        let elsewhere = v1::Loss { partition: 1, ..elected(6) };
        assert_eq!(class(&[elsewhere], cut(6)), UNKNOWN);
    }

    /// Ten thousand that tell, and a page of as many that ask: not a look at each for each.
    #[test]
    fn a_long_ledger_is_completed_in_one_look_at_each() {
        let loss = |partition, from: i64, class: &str| v1::Loss {
            partition,
            from,
            to: Some(from + 1),
            at_least_to: from + 1,
            last_epoch: Some(1),
            class: class.into(),
            ..v1::Loss::default()
        };
        let count = i64::try_from(TOLD_MAX).unwrap();
        let all: Vec<v1::Loss> = (0..count).map(|from| loss(0, from, "acks=1")).collect();
        let told = told(&all);
        let whole = v1::Loss { to: Some(count), at_least_to: count, ..loss(0, 0, UNKNOWN) };
        assert_eq!(told.complete(listed(whole)).len(), TOLD_MAX);
        let of_epoch = &told.of[&(String::new(), 0)][&1];
        assert_eq!(of_epoch.at(count - 1).map(|told| told.from), Some(count - 1));
        assert_eq!(of_epoch.at(count), None);
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
