//! The failovers that this broker can tell of: those in the journal, each once, as it was told last.
//!
//! The controller's records go into the journal, which every broker keeps whole; a failover that got further is another entry of the
//! same id. What is told is read from there whenever something has come, and held in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_controller::FailoverHistory;
use barnabas_proto::convert::{failover_from_json, failover_json};
use barnabas_proto::v1;
use tokio::sync::{mpsc, watch};

use crate::journal::{Entry, Journal, Kind};

/// Most failovers that are told of; beyond it the oldest are not.
pub const FAILOVERS_TOLD_MAX: usize = 1_000;
/// Entries of the journal in which they are looked for: each failover has several.
const ENTRIES_READ_MAX: usize = 10 * FAILOVERS_TOLD_MAX;
/// Shortest time between two readings of the journal.
const READ_EVERY: Duration = Duration::from_millis(100);

/// See the module's head.
#[derive(Default)]
pub struct Timeline {
    /// The oldest first.
    told: Mutex<Arc<[v1::Failover]>>,
    changes: watch::Sender<u64>,
}

impl Timeline {
    /// Follows the journal, until the broker ends.
    pub async fn run(self: Arc<Self>, journal: Arc<Journal>) {
        let mut entries = journal.watch();
        let mut read = Vec::new();
        loop {
            entries.mark_unchanged();
            let marks = journal.newest(Kind::Failover);
            if marks != read {
                read = marks;
                let journal = journal.clone();
                let failovers = tokio::task::spawn_blocking(move || {
                    in_order(&journal.last(Kind::Failover, ENTRIES_READ_MAX))
                });
                match failovers.await {
                    Ok(failovers) => self.set(failovers),
                    Err(error) => {
                        tracing::error!(target: "controller", %error, "the timeline was not read");
                    }
                }
            }
            if entries.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    fn set(&self, failovers: Vec<v1::Failover>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = failovers.into();
        self.changes.send_modify(|number| *number += 1);
    }
}

impl FailoverHistory for Timeline {
    fn kept(&self) -> Vec<v1::Failover> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        told.to_vec()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Puts what the controller service of this process records into the journal, until that ends. `told` hears of it too.
pub async fn keep(
    journal: Arc<Journal>,
    mut records: mpsc::Receiver<v1::Failover>,
    told: impl Fn(&v1::Failover),
) {
    while let Some(record) = records.recv().await {
        told(&record);
        journal.add(Kind::Failover, failover_json(&record));
    }
}

/// Each failover once, as its newest entry tells it, in the order of their beginnings. What makes no sense was written by another
/// version, and is passed over.
fn in_order(entries: &[Entry]) -> Vec<v1::Failover> {
    let mut newest: BTreeMap<String, (u64, v1::Failover)> = BTreeMap::new();
    for entry in entries {
        let Ok(failover) = failover_from_json(&entry.body) else { continue };
        let known = newest.get(&failover.id).map(|(sequence, _)| *sequence);
        if known.is_none_or(|known| known < entry.sequence) {
            newest.insert(failover.id.clone(), (entry.sequence, failover));
        }
    }
    let mut failovers: Vec<_> = newest.into_values().map(|(_, failover)| failover).collect();
    failovers.sort_by(|one, other| (one.at_ms, &one.id).cmp(&(other.at_ms, &other.id)));
    failovers.split_off(failovers.len().saturating_sub(FAILOVERS_TOLD_MAX))
}

#[cfg(test)]
mod tests {
    use barnabas_types::{BrokerId, DirectoryId};

    use super::*;
    use crate::journal::Origin;
    use crate::testing::Disk;

    fn failover(id: &str, at_ms: i64, moved: u32) -> v1::Failover {
        v1::Failover { id: id.to_owned(), at_ms, moved, ..v1::Failover::default() }
    }

    fn entry(sequence: u64, failover: &v1::Failover) -> Entry {
        Entry {
            origin: Origin { broker: BrokerId(1), directory: DirectoryId([1; 16]) },
            sequence,
            // The clock was set back in between: it is the sequence that counts.
            time_ms: 1_000 - i64::try_from(sequence).unwrap(),
            kind: Kind::Failover,
            body: failover_json(failover),
        }
    }

    #[test]
    fn a_failover_is_told_once_as_it_was_told_last_and_nonsense_is_passed_over() {
        let (first, second) = (failover("1-1", 500, 0), failover("1-2", 400, 3));
        let further = failover("1-1", 500, 7);
        let mut entries = [entry(3, &further), entry(2, &second), entry(1, &first)].to_vec();
        let nonsense = Entry { body: serde_json::json!({"id": 5}), ..entry(4, &first) };
        entries.push(nonsense);
        assert_eq!(in_order(&entries), [second, further]);
    }

    #[tokio::test]
    async fn the_last_words_of_a_term_are_durable_when_the_journal_has_stopped() {
        let disk = Disk::new();
        let me = Origin { broker: BrokerId(1), directory: DirectoryId([1; 16]) };
        let journal = Arc::new(Journal::default());
        let thread = journal.start(disk.storage.clone(), me).unwrap();
        let (term, records) = mpsc::channel(4);
        let kept = tokio::spawn(keep(journal.clone(), records, |_| ()));
        for id in ["1-1", "1-2", "1-3"] {
            term.send(failover(id, 1, 0)).await.unwrap();
        }
        drop(term);
        kept.await.unwrap();
        journal.stop();
        thread.join().unwrap();
        let told = in_order(&journal.last(Kind::Failover, 9));
        let ids: Vec<&str> = told.iter().map(|failover| failover.id.as_str()).collect();
        assert_eq!(ids, ["1-1", "1-2", "1-3"]);
    }

    #[test]
    fn the_last_are_told_and_the_oldest_are_not() {
        let count = i64::try_from(FAILOVERS_TOLD_MAX).unwrap() + 1;
        let of = |n: i64| entry(u64::try_from(n).unwrap(), &failover(&format!("1-{n}"), n, 0));
        let timeline = Timeline::default();
        let changes = timeline.changes();
        timeline.set(in_order(&(1..=count).map(of).collect::<Vec<_>>()));
        let told = timeline.kept();
        assert_eq!((told.len(), told[0].id.as_str()), (FAILOVERS_TOLD_MAX, "1-2"));
        assert_eq!(told.last(), Some(&failover(&format!("1-{count}"), count, 0)));
        assert_eq!(*changes.borrow(), 1);
    }
}
