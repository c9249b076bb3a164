//! The records inside a batch (v2): opened where offsets by time, the checks of a compacted topic or compaction must see them.

use std::borrow::Cow;

use crate::batch::{BatchError, BatchHeader, HEADER_BYTES};
use crate::codec::Codec;

/// Why records make no sense.
const CUT_OFF: BatchError = BatchError::Records("they are cut off");

/// Reads a zig-zag varint of at most ten bytes.
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<i64, BatchError> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(CUT_OFF)?;
        *bytes = rest;
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    Err(BatchError::Records("a number is too long"))
}

/// Writes a zig-zag varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Length and bytes of a field; `None` for length -1.
fn field<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BatchError> {
    let length = varint(bytes)?;
    if length < 0 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| CUT_OFF)?;
    let (field, rest) = bytes.split_at_checked(length).ok_or(CUT_OFF)?;
    *bytes = rest;
    Ok(Some(field))
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its offset, relative to the batch's base offset.
    pub offset_delta: i64,
    /// Its timestamp, relative to the batch's base timestamp, ms; see [`Record::timestamp`].
    pub timestamp_delta: i64,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its value; without one it is a tombstone for its key.
    pub value: Option<&'a [u8]>,
    /// Its headers as they are, their count first.
    pub headers: &'a [u8],
    /// All of it, its length first.
    pub(crate) whole: &'a [u8],
    /// The attributes.
    pub(crate) attributes: u8,
    /// What follows the timestamp: offset, key, value, headers.
    pub(crate) after_timestamp: &'a [u8],
}

impl Record<'_> {
    /// Its offset.
    #[must_use]
    pub fn offset(&self, header: &BatchHeader) -> i64 {
        header.base_offset.saturating_add(self.offset_delta)
    }

    /// Its timestamp, ms: the batch's greatest one if the broker stamped it.
    #[must_use]
    pub fn timestamp(&self, header: &BatchHeader) -> i64 {
        if header.is_log_append_time() {
            header.max_timestamp
        } else {
            header.base_timestamp.saturating_add(self.timestamp_delta)
        }
    }
}

fn take<'a>(bytes: &mut &'a [u8]) -> Result<Record<'a>, BatchError> {
    let from = *bytes;
    let mut body = field(bytes)?.ok_or(CUT_OFF)?;
    let whole = &from[..from.len() - bytes.len()];
    let (&attributes, rest) = body.split_first().ok_or(CUT_OFF)?;
    body = rest;
    let timestamp_delta = varint(&mut body)?;
    let after_timestamp = body;
    let offset_delta = varint(&mut body)?;
    let key = field(&mut body)?;
    let value = field(&mut body)?;
    if body.is_empty() {
        return Err(CUT_OFF);
    }
    Ok(Record {
        offset_delta,
        timestamp_delta,
        key,
        value,
        headers: body,
        whole,
        attributes,
        after_timestamp,
    })
}

/// The bytes of a whole batch's records, decompressed if need be.
///
/// # Errors
/// [`BatchError::Codec`], [`BatchError::Compression`], [`BatchError::RecordsTooLarge`], [`BatchError::Truncated`].
pub fn record_bytes<'a>(
    batch: &'a [u8],
    header: &BatchHeader,
) -> Result<Cow<'a, [u8]>, BatchError> {
    let stored = batch.get(HEADER_BYTES..header.size()).ok_or(BatchError::Truncated)?;
    match Codec::of(header.attributes)? {
        Codec::None => Ok(Cow::Borrowed(stored)),
        codec => {
            let mut out = Vec::new();
            codec.decompress(stored, &mut out)?;
            Ok(Cow::Owned(out))
        }
    }
}

/// Walks records as [`record_bytes`] gives them: as many as the header says, and nothing may follow. Ends after the first
/// error. No allocation.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    left: i32,
}

impl<'a> Records<'a> {
    /// The records in `bytes` of the batch with this header.
    #[must_use]
    pub fn new(bytes: &'a [u8], header: &BatchHeader) -> Self {
        Self { rest: bytes, left: header.record_count }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            let more = !self.rest.is_empty();
            self.rest = &[];
            return more.then_some(Err(BatchError::Records("bytes follow the last one")));
        }
        let item = take(&mut self.rest);
        self.left = if item.is_ok() { self.left - 1 } else { 0 };
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::BatchBuilder;

    #[test]
    fn varints_read_back_and_long_ones_are_refused() {
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(varint(&mut &bytes[..]), Ok(value));
            assert!(varint(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(varint(&mut &[0x80; 11][..]).is_err());
        let mut overlong = vec![0xff; 9];
        overlong.push(2);
        assert!(varint(&mut &overlong[..]).is_err());
    }

    #[test]
    fn records_are_what_was_put_in() {
        let batch = BatchBuilder::new()
            .timestamp(50)
            .record(b"no key")
            .timestamp(40)
            .keyed(b"k", Some(b"v"))
            .keyed(b"k", None)
            .build();
        let header = BatchHeader::parse(&batch).unwrap();
        let bytes = record_bytes(&batch, &header).unwrap();
        let records: Vec<Record<'_>> =
            Records::new(&bytes, &header).collect::<Result<_, _>>().unwrap();
        let seen: Vec<_> = records.iter().map(|r| (r.offset(&header), r.key, r.value)).collect();
        assert_eq!(
            seen,
            [
                (0, None, Some(&b"no key"[..])),
                (1, Some(&b"k"[..]), Some(&b"v"[..])),
                (2, Some(&b"k"[..]), None)
            ]
        );
        let times: Vec<i64> = records.iter().map(|r| r.timestamp(&header)).collect();
        assert_eq!(times, [50, 40, 40]);
        assert_eq!(records.iter().map(|r| r.whole.len()).sum::<usize>(), bytes.len());
    }

    #[test]
    fn every_cut_and_every_count_that_does_not_fit_is_an_error() {
        let batch = BatchBuilder::new().keyed(b"key", Some(b"value")).record(b"x").build();
        let header = BatchHeader::parse(&batch).unwrap();
        let bytes = record_bytes(&batch, &header).unwrap();
        for length in 0..bytes.len() {
            assert!(Records::new(&bytes[..length], &header).any(|r| r.is_err()), "{length}");
        }
        for record_count in [0, 1, 3, -1] {
            let header = BatchHeader { record_count, ..header };
            assert!(Records::new(&bytes, &header).any(|r| r.is_err()), "{record_count}");
        }
    }
}
