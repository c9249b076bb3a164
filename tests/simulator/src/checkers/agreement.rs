//! I3 offsets in order, I5 two replicas agree below both high watermarks, from where both begin.

use barnabas_types::{Offset, invariants};

use super::history::common_prefix;
use super::{Checkers, Life};
use crate::disk::{Directory, Record};

/// A replica as it is now.
#[derive(Clone, Copy)]
pub struct ReplicaView<'a> {
    /// On which broker.
    pub broker: usize,
    /// Its log start as it reports it.
    pub log_start: Offset,
    /// Whether that is to be durable (a planted bug shows by what follows from it).
    pub start_must_be_durable: bool,
    /// Its high watermark, exclusive.
    pub high_watermark: Offset,
    /// Its log.
    pub directory: &'a Directory,
}

impl Checkers {
    /// I3, and that the core and the disk agree on the LEO.
    pub fn offsets(
        &mut self,
        life: &Life,
        view: ReplicaView<'_>,
        log_end: Offset,
        flushed: Offset,
    ) {
        let (broker, hw) = (view.broker + 1, view.high_watermark);
        if !invariants::i3_offsets_in_order(view.log_start, hw, log_end, flushed) {
            self.broken(
                "I3",
                format!("{} broker {broker}: HW {hw}, LEO {log_end}, flushed {flushed}", life.0),
            );
        }
        let on_disk = view.directory.log_end();
        if log_end != on_disk {
            self.broken(
                "I3",
                format!(
                    "{} broker {broker}: LEO {log_end}, but the disk ends at {on_disk}",
                    life.0
                ),
            );
        }
        let start = view.log_start;
        let deletable = self.histories.get(life).map_or(start, |h| h.deletable_to);
        if start > deletable {
            self.broken(
                "R35",
                format!("{} broker {broker}: begins at {start}, but nothing above {deletable} was to be deleted", life.0),
            );
        }
        if start > view.directory.durable_start() && view.start_must_be_durable {
            self.broken(
                "R34",
                format!(
                    "{} broker {broker}: says that its log begins at {start}, which is not durable",
                    life.0
                ),
            );
        }
        if view.directory.log_start > hw {
            let begun = view.directory.log_start;
            self.broken(
                "R32",
                format!("{} broker {broker}: begins at {begun}, above its HW {hw}", life.0),
            );
        }
        if flushed > view.directory.durable {
            let durable = view.directory.durable;
            self.broken(
                "I3",
                format!("{} broker {broker}: flushed {flushed}, but durable {durable}", life.0),
            );
        }
    }

    /// I5 between two replicas. After an allowed loss a replica that has not met the new leader yet counts only as far
    /// as it agrees with the log with which that leader began.
    pub fn agree(&mut self, life: &Life, a: ReplicaView<'_>, b: ReplicaView<'_>) {
        let Some(history) = self.histories.get(life) else { return };
        let sure = |view: &ReplicaView<'_>| {
            let records: &[Record] = &view.directory.records;
            let end = usize::try_from(view.high_watermark.0).unwrap_or(0);
            match &history.lossy {
                Some((epoch, base)) if view.directory.last_epoch().is_none_or(|e| e < *epoch) => {
                    end.min(common_prefix(records, base))
                }
                _ => end,
            }
        };
        let end = sure(&a).min(sure(&b));
        // Where that leader's log has a hole, it cannot tell what the others may hold.
        let untold = |at: usize| {
            let base = history.lossy.as_ref().and_then(|(_, base)| base.get(at));
            base.is_some_and(Record::is_hole)
        };
        // What lies below a log start is deleted, though the disk may have it still.
        let start = a.directory.log_start.max(b.directory.log_start);
        let start = usize::try_from(start.0).unwrap_or(0);
        let pairs = a.directory.records.iter().zip(&b.directory.records).take(end);
        let pairs = pairs.enumerate().skip(start);
        let mut apart = pairs.filter(|(at, (a, b))| !a.agrees(b) && !untold(*at));
        if let Some((same, _)) = apart.next() {
            let text = format!(
                "{} offset {same}: brokers {} and {} differ below both high watermarks {} and {}",
                life.0,
                a.broker + 1,
                b.broker + 1,
                a.high_watermark,
                b.high_watermark
            );
            self.broken("I5", text);
        }
    }
}
