//! Idempotent producers (KIP-98): which sequences each producer id wrote last, so that a repeated batch is answered again
//! and not written again.
//!
//! The table follows from the log alone: every replica keeps it from the batches that it appends, whoever led, and reads it
//! back from the batch headers when the log is opened or cut. There it looks at the last [`TAIL_BYTES`] only, so that opening
//! many large logs stays cheap. What lies before is forgotten: a producer of which nothing is left may begin with any
//! sequence, and a repeated batch from there is written again, or refused as out of order if later ones of its producer are
//! remembered. That takes a retry across an opening of the log, with so many bytes of others in between.

use std::collections::{BTreeMap, VecDeque};

use barnabas_types::{Condition, Offset};

use crate::batch::BatchHeader;
use crate::error::{At as _, LogError};
use crate::log::Log;
use crate::segment::{Finder, path_of};
use crate::walk::{Step, Walk};

/// Bytes at the end of the log that are looked at when it is opened or cut: far more than producers have in flight.
const TAIL_BYTES: u64 = 32 << 20;
/// Chunk of the walk over batch headers: most batches are larger than it.
const CHUNK_BYTES: usize = 1024;

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

/// Producer ids with what they wrote last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Producers {
    entries: BTreeMap<i64, Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    epoch: i16,
    /// Oldest first, never empty.
    batches: VecDeque<Written>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Written {
    first_sequence: i32,
    last_sequence: i32,
    base: i64,
    end: i64,
}

impl Producers {
    /// Judges a batch before it is appended.
    ///
    /// A producer that is not known (never seen, or forgotten) may begin with any sequence, as in Kafka.
    ///
    /// # Errors
    /// [`Condition::InvalidProducerEpoch`], [`Condition::OutOfOrderSequenceNumber`].
    pub(crate) fn admit(&self, header: &BatchHeader) -> Result<Admission, Condition> {
        let Some(entry) = self.entries.get(&header.producer_id).filter(|_| header.producer_id >= 0)
        else {
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
        let last = last_sequence(header);
        let same = |w: &&Written| w.first_sequence == first && w.last_sequence == last;
        if let Some(written) = entry.batches.iter().find(same) {
            return Ok(Admission::Duplicate {
                base: Offset(written.base),
                end: Offset(written.end),
            });
        }
        let expected = entry.batches.back().map_or(0, |w| after(w.last_sequence, 1));
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
        if self.entries.len() >= PRODUCERS_MAX && !self.entries.contains_key(&header.producer_id) {
            self.forget_oldest();
        }
        let entry = self
            .entries
            .entry(header.producer_id)
            .or_insert_with(|| Entry { epoch: header.producer_epoch, batches: VecDeque::new() });
        if entry.epoch != header.producer_epoch {
            entry.epoch = header.producer_epoch;
            entry.batches.clear();
        }
        if entry.batches.len() == BATCHES_PER_PRODUCER_MAX {
            entry.batches.pop_front();
        }
        entry.batches.push_back(Written {
            first_sequence: header.base_sequence,
            last_sequence: last_sequence(header),
            base: header.base_offset,
            end: header.next_offset(),
        });
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Forgets a tenth of the producers, those that wrote longest ago.
    fn forget_oldest(&mut self) {
        let mut ends: Vec<i64> =
            self.entries.values().filter_map(|e| e.batches.back().map(|w| w.end)).collect();
        let tenth = ends.len() / 10;
        let (_, limit, _) = ends.select_nth_unstable(tenth);
        let limit = *limit;
        self.entries.retain(|_, entry| entry.batches.back().is_some_and(|w| w.end > limit));
    }
}

impl Log {
    /// Reads the producers back from the headers of the last batches.
    pub(crate) fn read_producers(&mut self) -> Result<(), LogError> {
        self.read_producers_of(TAIL_BYTES)
    }

    fn read_producers_of(&mut self, tail_bytes: u64) -> Result<(), LogError> {
        self.producers.clear();
        let (first, from) = self.tail_begin(tail_bytes)?;
        for (index, segment) in self.segments.iter().enumerate().skip(first) {
            let path = path_of(&self.dir, segment.base, "log");
            let file = segment.any_file(&self.dir)?;
            let position = if index == first { from } else { 0 };
            let mut walk = Walk::new(&file, segment.size, position, CHUNK_BYTES);
            while let Step::Batch(_, header) = walk.next().at("read", &path)? {
                self.producers.note(&header);
            }
        }
        Ok(())
    }

    /// The batch boundary at or before which the last `tail_bytes` begin: the segment's place and the position in it.
    fn tail_begin(&self, tail_bytes: u64) -> Result<(usize, u64), LogError> {
        let mut left = tail_bytes;
        for (index, segment) in self.segments.iter().enumerate().rev() {
            let Some(limit) = segment.size.checked_sub(left).filter(|limit| *limit > 0) else {
                left -= segment.size;
                continue;
            };
            let file = segment.any_file(&self.dir)?;
            let tail = (index + 1 == self.segments.len()).then_some(&self.tail);
            let finder = Finder { dir: &self.dir, segment, tail, file: &file };
            // Damage before the tail is found by whoever reads there; here the walk then begins at the front.
            let found = finder.boundary_below(0, limit).unwrap_or_default();
            return Ok((index, found.map_or(0, |(position, _)| position)));
        }
        Ok((0, 0))
    }
}

fn last_sequence(header: &BatchHeader) -> i32 {
    after(header.base_sequence, header.last_offset_delta)
}

/// The sequence `steps` after `sequence`; after the greatest comes 0.
fn after(sequence: i32, steps: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(steps);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BatchBuilder, TempDir};
    use crate::{LogConfig, LogDir};
    use barnabas_types::{LeaderEpoch, TopicId, TopicName, TopicPartition};

    fn batch(id: i64, epoch: i16, sequence: i32, records: i32, base: i64) -> BatchHeader {
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
    fn sequences_wrap_to_zero() {
        let mut producers = Producers::default();
        producers.note(&batch(7, 0, i32::MAX - 1, 2, 0));
        assert_eq!(producers.admit(&batch(7, 0, 0, 1, -1)), Ok(Admission::New));
        producers.note(&batch(7, 0, i32::MAX - 1, 4, 2));
        assert_eq!(producers.admit(&batch(7, 0, 2, 1, -1)), Ok(Admission::New));
    }

    #[test]
    fn batches_without_a_producer_id_are_never_duplicates() {
        let mut producers = Producers::default();
        producers.note(&batch(-1, -1, -1, 1, 0));
        assert_eq!(producers.admit(&batch(-1, -1, -1, 1, -1)), Ok(Admission::New));
    }

    #[test]
    fn opening_looks_at_the_end_of_the_log_only() {
        let temp = TempDir::new("producers-tail");
        let dir = LogDir::lock(temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let tp = TopicPartition { topic: TopicName::new("t").unwrap(), partition: 0 };
        let config = LogConfig { segment_bytes: 400, ..LogConfig::default() };
        let mut log = dir.open(&tp, TopicId([7; 16]), config).unwrap();
        let mut size = 0;
        for id in 0..9 {
            let mut batch = BatchBuilder::new().record(&[1; 60]).producer(id, 0, 0).build();
            size = batch.len() as u64;
            log.append(&mut batch, Offset(id), LeaderEpoch(1)).unwrap();
        }
        assert!(log.segment_count() > 2);
        for (bytes, first) in [(size, 8), (size + 1, 7), (4 * size, 5), (9 * size, 0), (1 << 30, 0)]
        {
            log.read_producers_of(bytes).unwrap();
            let known: Vec<i64> = log.producers.entries.keys().copied().collect();
            assert_eq!(known, (first..9).collect::<Vec<_>>(), "the last {bytes} bytes");
        }
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
}
