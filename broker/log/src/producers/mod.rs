//! Idempotent producers (KIP-98): which sequences each producer id wrote last, so that a repeated batch is answered again
//! and not written again.
//!
//! The table follows from the log alone: every replica keeps it from the batches that it appends, whoever led. [`snapshot`]
//! is the table as a file, [`reload`] says when such files are written and how a table comes back from one and from the
//! batches after it. A producer that is in the table is remembered after its records are gone (retention, deleted records);
//! it is forgotten by time ([`Log::expire_producers`]), or when there are too many.
//!
//! [`Log::expire_producers`]: crate::Log::expire_producers

mod reload;
pub(crate) mod snapshot;

use std::collections::BTreeMap;

use barnabas_types::{Condition, Offset};

use crate::batch::{BatchHeader, CONTROL};

pub(crate) use reload::Snapshots;
pub use snapshot::{ProducerBatch, SnapshotError};

/// Batches remembered of each producer: as many as a producer may have in flight (Kafka's number).
const BATCHES_PER_PRODUCER_MAX: usize = 5;
/// Producer ids remembered of a partition; beyond it those that wrote longest ago are forgotten.
const PRODUCERS_MAX: usize = 10_000;

/// What a producer's batch is to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// To be appended.
    New,
    /// In the log already, at these offsets.
    Duplicate {
        /// Offset of its first record.
        base: Offset,
        /// Offset after its last record.
        end: Offset,
    },
}

/// Producer ids with what they wrote last. No allocation while there is no producer, none for each batch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Producers {
    entries: BTreeMap<i64, Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    epoch: i16,
    /// How many of `batches` are in use.
    count: u8,
    /// Wrote since the last look for expired producers.
    active: bool,
    /// Greatest timestamp of its last batch, ms.
    timestamp: i64,
    /// Oldest first. None for a producer of which only control batches are known.
    batches: [Written; BATCHES_PER_PRODUCER_MAX],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Written {
    last_sequence: i32,
    /// Records less one.
    offset_delta: i32,
    last_offset: i64,
}

impl Written {
    fn of(header: &BatchHeader) -> Self {
        Self {
            last_sequence: after(header.base_sequence, header.last_offset_delta),
            offset_delta: header.last_offset_delta,
            last_offset: header.last_offset(),
        }
    }

    fn base(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

impl Entry {
    fn new(epoch: i16) -> Self {
        Self { epoch, count: 0, active: false, timestamp: -1, batches: Default::default() }
    }

    fn batches(&self) -> &[Written] {
        &self.batches[..usize::from(self.count)]
    }

    fn last_offset(&self) -> i64 {
        self.batches().last().map_or(-1, |w| w.last_offset)
    }

    fn enter_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            (self.epoch, self.count) = (epoch, 0);
        }
    }

    fn push(&mut self, written: Written) {
        if usize::from(self.count) == BATCHES_PER_PRODUCER_MAX {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        self.batches[usize::from(self.count)] = written;
        self.count += 1;
    }
}

impl Producers {
    /// Judges a batch before it is appended.
    ///
    /// A producer that is not known (never seen, or forgotten) may begin with any sequence, as in Kafka.
    ///
    /// # Errors
    /// [`Condition::InvalidProducerEpoch`], [`Condition::OutOfOrderSequenceNumber`].
    pub(crate) fn admit(&self, header: &BatchHeader) -> Result<Admission, Condition> {
        if header.producer_id < 0 {
            return Ok(Admission::New);
        }
        let Some(entry) = self.entries.get(&header.producer_id) else {
            return Ok(Admission::New);
        };
        let first = header.base_sequence;
        if header.producer_epoch < entry.epoch {
            return Err(Condition::InvalidProducerEpoch);
        }
        if header.producer_epoch > entry.epoch {
            let fresh = first == 0;
            return if fresh {
                Ok(Admission::New)
            } else {
                Err(Condition::OutOfOrderSequenceNumber { found: first, expected: 0 })
            };
        }
        let repeated = Written::of(header);
        let same = |w: &&Written| {
            w.last_sequence == repeated.last_sequence && w.offset_delta == repeated.offset_delta
        };
        if let Some(written) = entry.batches().iter().find(same) {
            return Ok(Admission::Duplicate {
                base: Offset(written.base()),
                end: Offset(written.last_offset + 1),
            });
        }
        let expected = entry.batches().last().map_or(0, |w| after(w.last_sequence, 1));
        if first == expected {
            Ok(Admission::New)
        } else {
            Err(Condition::OutOfOrderSequenceNumber { found: first, expected })
        }
    }

    /// Takes note of a batch that is in the log.
    pub(crate) fn note(&mut self, header: &BatchHeader) {
        if header.producer_id < 0 {
            return;
        }
        let entry = self.entry(header.producer_id, header.producer_epoch);
        (entry.timestamp, entry.active) = (header.max_timestamp, true);
        // The end of a transaction and what a group coordinator writes in one have no sequence.
        if header.attributes & CONTROL == 0 && header.base_sequence >= 0 {
            entry.push(Written::of(header));
        }
    }

    /// The producer's entry in this epoch, made if need be.
    fn entry(&mut self, id: i64, epoch: i16) -> &mut Entry {
        if self.entries.len() >= PRODUCERS_MAX && !self.entries.contains_key(&id) {
            self.forget_oldest();
        }
        let entry = self.entries.entry(id).or_insert_with(|| Entry::new(epoch));
        entry.enter_epoch(epoch);
        entry
    }

    /// Takes over what a snapshot says, in its order.
    fn restore(&mut self, row: &ProducerBatch) {
        let entry = self.entry(row.producer_id, row.producer_epoch);
        entry.timestamp = row.timestamp_ms;
        // Kafka has rows without a sequence: what its group coordinator wrote in a transaction.
        if row.last_offset >= 0 && row.last_sequence >= 0 {
            entry.push(Written {
                last_sequence: row.last_sequence,
                offset_delta: row.offset_delta,
                last_offset: row.last_offset,
            });
        }
    }

    /// All that is known, by producer id, the batches of each oldest first; one row without a batch for a producer of which
    /// no batch is known.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ProducerBatch> + '_ {
        self.entries.iter().flat_map(|(&producer_id, entry)| {
            let nothing = Written { last_sequence: -1, offset_delta: 0, last_offset: -1 };
            let alone = entry.batches().is_empty().then_some(nothing);
            entry.batches().iter().copied().chain(alone).map(move |written| ProducerBatch {
                producer_id,
                producer_epoch: entry.epoch,
                last_sequence: written.last_sequence,
                last_offset: written.last_offset,
                offset_delta: written.offset_delta,
                timestamp_ms: entry.timestamp,
                coordinator_epoch: -1,
                current_txn_first_offset: -1,
            })
        })
    }

    /// Producer ids with the last offset below `end` that each is known to have written.
    pub(crate) fn last_offsets_below(&self, end: i64) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.entries.iter().filter_map(move |(&id, entry)| {
            let written = entry.batches().iter().rev().find(|w| w.last_offset < end)?;
            Some((id, written.last_offset))
        })
    }

    /// Forgets the batches that end above `end`. `false` if a producer would be left without any batch: then the table does
    /// not say what it wrote before, and must be read from the log again. (The batches that remain are enough: a producer has
    /// no more in flight than are remembered, so what lies before them was answered.)
    pub(crate) fn cut(&mut self, end: i64) -> bool {
        for entry in self.entries.values_mut() {
            let kept = entry.batches().partition_point(|w| w.last_offset < end);
            if kept == 0 {
                return false;
            }
            entry.count = kept as u8;
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets the producers whose last batch is `expiration_ms` old or older, unless they wrote since the last call: what a
    /// producer says of time (old events written now) must not let its retries through. Returns how many were forgotten.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| {
            let wrote = std::mem::take(&mut entry.active);
            wrote || now_ms.saturating_sub(entry.timestamp) < expiration_ms
        });
        before - self.entries.len()
    }

    /// Forgets a tenth of the producers, those that wrote longest ago.
    fn forget_oldest(&mut self) {
        let mut ends: Vec<i64> = self.entries.values().map(Entry::last_offset).collect();
        let tenth = ends.len() / 10;
        let (_, limit, _) = ends.select_nth_unstable(tenth);
        let limit = *limit;
        self.entries.retain(|_, entry| entry.last_offset() > limit);
    }
}

/// The sequence `steps` after `sequence`; after the greatest comes 0.
pub(crate) fn after(sequence: i32, steps: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(steps);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn batch(
        id: i64,
        epoch: i16,
        sequence: i32,
        records: i32,
        base: i64,
    ) -> BatchHeader {
        BatchHeader {
            base_offset: base,
            length: 100,
            partition_leader_epoch: 1,
            crc: 0,
            attributes: 0,
            last_offset_delta: records - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: id,
            producer_epoch: epoch,
            base_sequence: sequence,
            record_count: records,
        }
    }

    #[test]
    fn a_repeated_batch_is_recognised_among_the_last_five() {
        let mut producers = Producers::default();
        for n in 0..6 {
            let header = batch(7, 0, n * 2, 2, i64::from(n) * 2);
            assert_eq!(producers.admit(&header), Ok(Admission::New));
            producers.note(&header);
        }
        let repeated = producers.admit(&batch(7, 0, 2, 2, -1));
        assert_eq!(repeated, Ok(Admission::Duplicate { base: Offset(2), end: Offset(4) }));
        let forgotten = producers.admit(&batch(7, 0, 0, 2, -1));
        assert_eq!(forgotten, Err(Condition::OutOfOrderSequenceNumber { found: 0, expected: 12 }));
        let shorter = producers.admit(&batch(7, 0, 11, 1, -1));
        assert_eq!(shorter, Err(Condition::OutOfOrderSequenceNumber { found: 11, expected: 12 }));
    }

    #[test]
    fn gaps_and_old_epochs_are_refused_and_a_new_epoch_begins_at_zero() {
        let mut producers = Producers::default();
        producers.note(&batch(7, 1, 0, 3, 0));
        let gap = producers.admit(&batch(7, 1, 4, 1, -1));
        assert_eq!(gap, Err(Condition::OutOfOrderSequenceNumber { found: 4, expected: 3 }));
        let old = producers.admit(&batch(7, 0, 3, 1, -1));
        assert_eq!(old, Err(Condition::InvalidProducerEpoch));
        let middle = producers.admit(&batch(7, 2, 3, 1, -1));
        assert_eq!(middle, Err(Condition::OutOfOrderSequenceNumber { found: 3, expected: 0 }));
        assert_eq!(producers.admit(&batch(7, 2, 0, 1, -1)), Ok(Admission::New));
    }

    #[test]
    fn sequences_wrap_to_zero_between_and_inside_batches() {
        let mut producers = Producers::default();
        producers.note(&batch(7, 0, i32::MAX - 1, 2, 0));
        assert_eq!(producers.admit(&batch(7, 0, 0, 1, -1)), Ok(Admission::New));
        producers.note(&batch(7, 0, i32::MAX - 1, 4, 2));
        assert_eq!(producers.admit(&batch(7, 0, 2, 1, -1)), Ok(Admission::New));
        let repeated = producers.admit(&batch(7, 0, i32::MAX - 1, 4, -1));
        assert_eq!(repeated, Ok(Admission::Duplicate { base: Offset(2), end: Offset(6) }));
    }

    #[test]
    fn batches_without_a_producer_id_are_never_duplicates() {
        let mut producers = Producers::default();
        producers.note(&batch(-1, -1, -1, 1, 0));
        assert_eq!(producers.admit(&batch(-1, -1, -1, 1, -1)), Ok(Admission::New));
        assert!(producers.is_empty());
    }

    #[test]
    fn a_control_batch_raises_the_epoch_and_has_no_sequence() {
        let mut producers = Producers::default();
        producers.note(&batch(7, 0, 0, 3, 0));
        let mut marker = batch(7, 0, -1, 1, 3);
        marker.attributes = CONTROL;
        producers.note(&marker);
        assert_eq!(producers.admit(&batch(7, 0, 3, 1, -1)), Ok(Admission::New), "goes on");
        marker.producer_epoch = 1;
        producers.note(&marker);
        assert_eq!(producers.admit(&batch(7, 0, 3, 1, -1)), Err(Condition::InvalidProducerEpoch));
        assert_eq!(producers.admit(&batch(7, 1, 0, 1, -1)), Ok(Admission::New));
        let rows: Vec<_> =
            producers.rows().map(|row| (row.producer_epoch, row.last_offset)).collect();
        assert_eq!(rows, [(1, -1)]);
    }

    #[test]
    fn the_number_of_producers_is_bounded() {
        let mut producers = Producers::default();
        for n in 0..2 * PRODUCERS_MAX as i64 {
            producers.note(&batch(n, 0, 0, 1, n));
        }
        assert!(producers.entries.len() <= PRODUCERS_MAX);
        let newest = batch(2 * PRODUCERS_MAX as i64 - 1, 0, 0, 1, -1);
        assert!(matches!(producers.admit(&newest), Ok(Admission::Duplicate { .. })));
    }

    #[test]
    fn a_producer_expires_by_the_time_of_its_last_batch() {
        let mut producers = Producers::default();
        for (id, timestamp) in [(1, 1000), (2, 1500)] {
            producers.note(&BatchHeader { max_timestamp: timestamp, ..batch(id, 0, 0, 1, id) });
        }
        assert_eq!(producers.expire(1_000_000, 500), 0, "both have just written");
        assert_eq!(producers.expire(1999, 1000), 0);
        assert_eq!(producers.expire(2000, 1000), 1);
        assert_eq!(producers.admit(&batch(1, 0, 9, 1, -1)), Ok(Admission::New), "unknown again");
        assert!(producers.admit(&batch(2, 0, 9, 1, -1)).is_err(), "still known");
    }

    #[test]
    fn r15_a_cut_keeps_what_lies_below_and_says_when_that_is_not_enough() {
        let mut producers = Producers::default();
        for n in 0..6 {
            producers.note(&batch(7, 0, n, 1, i64::from(n)));
        }
        assert!(producers.cut(4));
        let repeated = producers.admit(&batch(7, 0, 3, 1, -1));
        assert_eq!(repeated, Ok(Admission::Duplicate { base: Offset(3), end: Offset(4) }));
        assert_eq!(producers.admit(&batch(7, 0, 4, 1, -1)), Ok(Admission::New));
        assert!(!producers.cut(1), "nothing of the last five lies below");
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 96, "{}", size_of::<Entry>());
    }
}
