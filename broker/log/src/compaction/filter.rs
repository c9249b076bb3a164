//! What compaction keeps of one batch.

use crate::batch::{
    Batch, BatchError, BatchHeader, CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, LENGTH_END,
    TRANSACTIONAL, crc_of,
};
use crate::codec::Codec;
use crate::records::{Record, Records, put_varint, record_bytes};

use super::offset_map::OffsetMap;

/// What a round of compaction goes by.
pub(super) struct Filter {
    /// Last offsets of the keys that have records in `[first dirty, end)`.
    pub(super) map: OffsetMap,
    /// Records from here on are not looked at.
    pub(super) end: i64,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
    /// A batch was met whose records are unknown, so they may be older values of any key: no tombstone may go any more.
    pub(super) met_opaque: bool,
    pub(super) counts: Counts,
    scratch: Vec<u8>,
}

/// What a round did to records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) removed: u64,
    pub(super) unreadable: u64,
}

/// What is kept of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// It stays as it is.
    Whole,
    /// Another one stands for it.
    Changed,
    Nothing,
}

/// Whether a batch's records are not compaction's to judge. Transactions are not served; a log that Kafka wrote may hold some.
pub(super) fn is_opaque(header: &BatchHeader) -> bool {
    header.is_control() || header.attributes & TRANSACTIONAL != 0
}

impl Filter {
    pub(super) fn new(map: OffsetMap, end: i64, now_ms: i64, delete_retention_ms: i64) -> Self {
        Self {
            map,
            end,
            now_ms,
            delete_retention_ms,
            met_opaque: false,
            counts: Counts::default(),
            scratch: Vec::new(),
        }
    }

    fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        let offset = record.offset(header);
        if offset >= self.end {
            return true;
        }
        let Some(key) = record.key else { return false };
        let is_last = self.map.get(key).is_none_or(|last| offset >= last);
        let due = header.delete_horizon().is_some_and(|horizon| self.now_ms >= horizon);
        is_last && (record.value.is_some() || !due || self.met_opaque)
    }

    /// Decides on a batch; one that stands for it is appended to `out`. `in_any_case`: its offsets and sequences must stay,
    /// if need be in a batch without records.
    pub(super) fn apply(
        &mut self,
        batch: &Batch<'_>,
        in_any_case: bool,
        out: &mut Vec<u8>,
    ) -> Kept {
        let header = &batch.header;
        if header.base_offset >= self.end {
            return Kept::Whole;
        }
        if header.record_count == 0 {
            return if in_any_case { Kept::Whole } else { Kept::Nothing };
        }
        if is_opaque(header) {
            self.met_opaque = true;
            return Kept::Whole;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let kept = self.of_records(batch, &mut scratch);
        let result = match kept {
            Ok(None) => Kept::Whole,
            Ok(Some(records)) if records.count > 0 => {
                match rewrite(batch, &records, &scratch, out) {
                    Ok(()) => Kept::Changed,
                    Err(_) => self.unreadable(),
                }
            }
            Ok(Some(_)) if in_any_case => {
                out.extend_from_slice(&without_records(batch));
                Kept::Changed
            }
            Ok(Some(_)) => Kept::Nothing,
            Err(_) => self.unreadable(),
        };
        self.scratch = scratch;
        result
    }

    /// What cannot be opened stays: whoever wrote it may be able to read it.
    fn unreadable(&mut self) -> Kept {
        self.counts.unreadable += 1;
        self.met_opaque = true;
        Kept::Whole
    }

    /// Puts the records that stay into `scratch`; `None` if the batch can stay as it is.
    fn of_records(
        &mut self,
        batch: &Batch<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<KeptRecords>, BatchError> {
        scratch.clear();
        let header = &batch.header;
        let bytes = record_bytes(batch.bytes, header)?;
        let mut kept =
            KeptRecords { count: 0, max_timestamp: -1, base_timestamp: header.base_timestamp };
        let (mut seen, mut tombstones) = (0, false);
        for record in Records::new(&bytes, header) {
            let record = record?;
            seen += 1;
            if self.keeps(header, &record) {
                scratch.extend_from_slice(record.whole);
                kept.note(header, &record);
                tombstones |= record.value.is_none();
            }
        }
        self.counts.records += seen;
        self.counts.removed += seen - u64::from(kept.count.unsigned_abs());
        if tombstones && header.delete_horizon().is_none() {
            // This is the first compaction to meet them: from now on their time runs (KIP-534).
            kept.base_timestamp = self.now_ms.saturating_add(self.delete_retention_ms);
            scratch.clear();
            for record in Records::new(&bytes, header) {
                let record = record?;
                if self.keeps(header, &record) {
                    let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
                    put_record(scratch, &record, timestamp.wrapping_sub(kept.base_timestamp));
                }
            }
        } else if kept.count == header.record_count {
            return Ok(None);
        }
        Ok(Some(kept))
    }
}

/// Records of a batch that stay.
struct KeptRecords {
    count: i32,
    max_timestamp: i64,
    base_timestamp: i64,
}

impl KeptRecords {
    fn note(&mut self, header: &BatchHeader, record: &Record<'_>) {
        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(record.timestamp(header));
    }
}

/// Writes a record whose timestamp is relative to another base.
fn put_record(out: &mut Vec<u8>, record: &Record<'_>, timestamp_delta: i64) {
    let mut delta = Vec::with_capacity(10);
    put_varint(&mut delta, timestamp_delta);
    let length = 1 + delta.len() + record.after_timestamp.len();
    put_varint(out, i64::try_from(length).unwrap_or(i64::MAX));
    out.push(record.attributes);
    out.extend_from_slice(&delta);
    out.extend_from_slice(record.after_timestamp);
}

/// Appends the batch with these records only: same offsets, sequences and codec, a length, count, times and CRC of its own.
fn rewrite(
    batch: &Batch<'_>,
    kept: &KeptRecords,
    records: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), BatchError> {
    let header = &batch.header;
    let from = out.len();
    out.extend_from_slice(&batch.bytes[..HEADER_BYTES]);
    let codec = Codec::of(header.attributes)?;
    if codec.compress(records, out).is_err() {
        out.truncate(from);
        return Err(BatchError::Compression(codec));
    }
    let stamped = &mut out[from..];
    let mut attributes = header.attributes;
    if kept.base_timestamp != header.base_timestamp {
        attributes |= DELETE_HORIZON;
    }
    put(stamped, 21, attributes.to_be_bytes());
    put(stamped, 27, kept.base_timestamp.to_be_bytes());
    put(stamped, 35, kept.max_timestamp.to_be_bytes());
    put(stamped, 57, kept.count.to_be_bytes());
    if seal(stamped).is_err() {
        out.truncate(from);
        return Err(BatchError::RecordsTooLarge);
    }
    Ok(())
}

/// The batch with the same offsets and sequences, and no record.
fn without_records(batch: &Batch<'_>) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out.copy_from_slice(&batch.bytes[..HEADER_BYTES]);
    let attributes = batch.header.attributes & !(CODEC_MASK | DELETE_HORIZON);
    put(&mut out, 21, attributes.to_be_bytes());
    put(&mut out, 27, (-1_i64).to_be_bytes());
    put(&mut out, 57, 0_i32.to_be_bytes());
    // 61 bytes: its length can be said.
    let _ = seal(&mut out);
    out
}

fn put<const N: usize>(batch: &mut [u8], at: usize, bytes: [u8; N]) {
    batch[at..at + N].copy_from_slice(&bytes);
}

/// Length and CRC.
fn seal(batch: &mut [u8]) -> Result<(), std::num::TryFromIntError> {
    let length = i32::try_from(batch.len() - LENGTH_END)?;
    put(batch, 8, length.to_be_bytes());
    let crc = crc_of(batch);
    put(batch, 17, crc.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{CONTROL, LOG_APPEND_TIME};
    use crate::check::stamp;
    use crate::testing::BatchBuilder;
    use barnabas_types::{LeaderEpoch, Offset};

    const NOW: i64 = 1_000_000;

    /// A filter whose map says these last offsets.
    fn filter(last: &[(&str, i64)], end: i64) -> Filter {
        let mut map = OffsetMap::new(1 << 20, 100);
        for (key, offset) in last {
            assert!(map.put(key.as_bytes(), *offset));
        }
        Filter::new(map, end, NOW, 500)
    }

    fn stamped(builder: BatchBuilder, base: i64) -> Vec<u8> {
        let mut batch = builder.build();
        stamp(&mut batch, Offset(base), LeaderEpoch(3)).unwrap();
        batch
    }

    fn as_batch(bytes: &[u8]) -> Batch<'_> {
        let batch = Batch { header: BatchHeader::parse(bytes).unwrap(), bytes };
        assert_eq!(batch.header.size(), bytes.len());
        batch.check_crc().unwrap();
        batch
    }

    /// Offset, timestamp, key, value of each record.
    type Seen = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn records(batch: &Batch<'_>) -> Vec<Seen> {
        let bytes = record_bytes(batch.bytes, &batch.header).unwrap();
        Records::new(&bytes, &batch.header)
            .map(|record| {
                let record = record.unwrap();
                let owned = |field: Option<&[u8]>| field.map(<[u8]>::to_vec);
                let header = &batch.header;
                let (key, value) = (owned(record.key), owned(record.value));
                (record.offset(header), record.timestamp(header), key, value)
            })
            .collect()
    }

    #[test]
    fn only_the_last_record_of_a_key_stays_in_every_codec() {
        for codec in 0..=4 {
            let builder = BatchBuilder::new().codec(codec).producer(9, 2, 70);
            let builder = builder.timestamp(100).keyed(b"a", Some(b"1")).timestamp(300);
            let builder = builder.keyed(b"b", Some(b"2")).timestamp(200).keyed(b"c", Some(b"3"));
            let bytes = stamped(builder.record(b"no key"), 10);
            let before = as_batch(&bytes);
            let mut out = Vec::new();
            let mut filter = filter(&[("a", 10), ("b", 99), ("c", 12)], 100);
            assert_eq!(filter.apply(&before, false, &mut out), Kept::Changed);
            let after = as_batch(&out);
            let expected = records(&before);
            assert_eq!(records(&after), [expected[0].clone(), expected[2].clone()]);
            let header = BatchHeader {
                length: after.header.length,
                crc: after.header.crc,
                max_timestamp: 200,
                record_count: 2,
                ..before.header
            };
            assert_eq!(after.header, header, "codec {codec}");
            assert_eq!(filter.counts, Counts { records: 4, removed: 2, unreadable: 0 });
        }
    }

    #[test]
    fn what_is_not_superseded_stays_as_it_is() {
        let bytes = stamped(BatchBuilder::new().keyed(b"a", Some(b"1")), 10);
        let mut out = Vec::new();
        assert_eq!(filter(&[], 100).apply(&as_batch(&bytes), false, &mut out), Kept::Whole);
        let mut later = filter(&[("a", 50)], 10);
        assert_eq!(later.apply(&as_batch(&bytes), false, &mut out), Kept::Whole, "above the end");
        assert!(out.is_empty());
    }

    #[test]
    fn a_batch_across_the_end_keeps_what_lies_above() {
        let builder = BatchBuilder::new().keyed(b"a", Some(b"1")).keyed(b"a", Some(b"2"));
        let bytes = stamped(builder, 10);
        let mut out = Vec::new();
        let mut filter = filter(&[("a", 99)], 11);
        assert_eq!(filter.apply(&as_batch(&bytes), false, &mut out), Kept::Changed);
        assert_eq!(records(&as_batch(&out))[0].0, 11);
    }

    #[test]
    fn an_empty_batch_keeps_offsets_and_sequences() {
        for codec in [0, 4] {
            let builder = BatchBuilder::new().codec(codec).producer(9, 2, 70).timestamp(5);
            let bytes = stamped(builder.keyed(b"a", Some(b"1")).keyed(b"a", Some(b"2")), 10);
            let mut out = Vec::new();
            let mut filter = filter(&[("a", 99)], 100);
            assert_eq!(filter.apply(&as_batch(&bytes), false, &mut out), Kept::Nothing);
            assert_eq!(filter.apply(&as_batch(&bytes), true, &mut out), Kept::Changed);
            let empty = as_batch(&out).header;
            let before = as_batch(&bytes).header;
            assert_eq!((out.len(), empty.record_count, empty.codec()), (61, 0, 0));
            assert_eq!((empty.base_offset, empty.next_offset()), (10, 12));
            assert_eq!(
                (empty.producer_id, empty.producer_epoch, empty.base_sequence),
                (before.producer_id, before.producer_epoch, before.base_sequence)
            );
            assert_eq!(empty.partition_leader_epoch, 3);
            assert_eq!(filter.apply(&as_batch(&out), true, &mut Vec::new()), Kept::Whole);
            assert_eq!(filter.apply(&as_batch(&out), false, &mut Vec::new()), Kept::Nothing);
        }
    }

    #[test]
    fn a_tombstone_stays_for_its_time_and_goes_then() {
        for codec in 0..=4 {
            let builder = BatchBuilder::new().codec(codec).timestamp(100).keyed(b"a", None);
            let bytes = stamped(builder.timestamp(90).keyed(b"b", Some(b"2")), 10);
            let before = as_batch(&bytes);
            let mut out = Vec::new();
            let mut first = filter(&[("a", 10), ("b", 11)], 100);
            assert_eq!(first.apply(&before, false, &mut out), Kept::Changed);
            let met = as_batch(&out);
            assert_eq!(met.header.delete_horizon(), Some(NOW + 500));
            assert_eq!(records(&met), records(&before), "times and all");
            assert_eq!(met.header.max_timestamp, 100);
            // It may be met again any number of times before.
            let mut again = Filter { now_ms: NOW + 499, ..filter(&[], 100) };
            assert_eq!(again.apply(&met, false, &mut Vec::new()), Kept::Whole);
            let mut last = Vec::new();
            let mut due = Filter { now_ms: NOW + 500, ..filter(&[], 100) };
            assert_eq!(due.apply(&met, false, &mut last), Kept::Changed);
            assert_eq!(records(&as_batch(&last)), records(&before)[1..]);
            let mut unsure = Filter { now_ms: NOW + 500, met_opaque: true, ..filter(&[], 100) };
            assert_eq!(unsure.apply(&met, false, &mut Vec::new()), Kept::Whole);
        }
    }

    #[test]
    fn a_tombstone_without_time_or_with_the_leaders_keeps_it() {
        for (attributes, timestamp) in [(0, -1), (LOG_APPEND_TIME, 77)] {
            let builder = BatchBuilder::new().attributes(attributes).timestamp(timestamp);
            let bytes = stamped(builder.keyed(b"a", None), 10);
            let mut out = Vec::new();
            filter(&[], 100).apply(&as_batch(&bytes), false, &mut out);
            assert_eq!(records(&as_batch(&out)), records(&as_batch(&bytes)));
            assert!(as_batch(&out).header.delete_horizon().is_some());
        }
    }

    #[test]
    fn control_and_transactional_batches_and_unreadable_ones_stay() {
        let garbage = BatchBuilder::new().record(b"no zstd").attributes(4);
        let control = BatchBuilder::new().keyed(b"a", Some(b"1")).attributes(CONTROL);
        let transactional = BatchBuilder::new().keyed(b"a", Some(b"1")).attributes(TRANSACTIONAL);
        for (builder, unreadable) in [(garbage, 1), (control, 0), (transactional, 0)] {
            let bytes = stamped(builder, 10);
            let mut filter = filter(&[("a", 99)], 100);
            let kept = filter.apply(&as_batch(&bytes), false, &mut Vec::new());
            assert_eq!((kept, filter.met_opaque), (Kept::Whole, true));
            assert_eq!(filter.counts.unreadable, unreadable);
        }
    }
}
