//! Dumps the records of one batch.

use std::fs::File;
use std::io;

use super::item::{Batch, Item, Record, Shown, Unshown, Wrong};
use super::{Out, read_up_to};
use crate::batch::{BatchError, BatchHeader, HEADER_BYTES};
use crate::codec::RECORDS_BYTES_MAX;
use crate::records::{record_bytes, varint};

/// The records of larger batches are not shown.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a key, a value or a header that are handed out.
const SHOWN_BYTES_MAX: usize = 256;
/// Headers of a record that are handed out.
const HEADERS_SHOWN_MAX: usize = 16;

pub(super) fn dump(
    file: &File,
    batch: &Batch,
    last_good_offset: Option<i64>,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let size = batch.header.size();
    if !batch.crc_ok {
        out.content(&Item::Unshown(Unshown::Damaged));
    } else if size as u64 > BATCH_BYTES_MAX {
        out.content(&Item::Unshown(Unshown::Size(BATCH_BYTES_MAX)));
    } else {
        let mut bytes = vec![0; size];
        if read_up_to(file, &mut bytes, batch.position)? == size {
            opened(batch, &bytes, last_good_offset, out);
        }
    }
    Ok(())
}

fn opened(batch: &Batch, bytes: &[u8], last_good_offset: Option<i64>, out: &mut Out<'_>) {
    let records = match record_bytes(bytes, &batch.header) {
        Ok(records) => records,
        Err(BatchError::RecordsTooLarge) => {
            return out.content(&Item::Unshown(Unshown::Size(RECORDS_BYTES_MAX as u64)));
        }
        Err(BatchError::Codec(_)) => {
            return out.content(&Item::Unshown(Unshown::Codec(batch.codec())));
        }
        Err(error) => return out.damage(batch.position, last_good_offset, error.into()),
    };
    if let Err((at, wrong)) = each(&batch.header, &records, out) {
        // In compressed records a place has no position in the file.
        let at = if batch.header.codec() == 0 { HEADER_BYTES + at } else { 0 };
        out.damage(batch.position + at as u64, last_good_offset, wrong);
    }
}

/// Goes through the records of a batch. An error names the byte of `records` from which on they make no sense.
fn each(header: &BatchHeader, records: &[u8], out: &mut Out<'_>) -> Result<(), (usize, Wrong)> {
    let mut rest = records;
    let mut next_delta = 0;
    for number in 0..header.record_count.max(0).unsigned_abs() {
        let at = records.len() - rest.len();
        let mut headers = [(shown(&[]), None); HEADERS_SHOWN_MAX];
        let delta = record(header, &mut rest, &mut headers, &mut |record| {
            out.content(&Item::Record(*record));
        });
        match delta.filter(|d| *d >= next_delta && *d <= i64::from(header.last_offset_delta)) {
            Some(delta) => next_delta = delta + 1,
            None => return Err((at, Wrong::Record { number })),
        }
    }
    if rest.is_empty() { Ok(()) } else { Err((records.len() - rest.len(), Wrong::AfterRecords)) }
}

/// Takes one record off `rest` and hands it to `found`; its offset relative to the batch. `None`: it makes no sense.
fn record<'a>(
    header: &BatchHeader,
    rest: &mut &'a [u8],
    headers: &mut [(Shown<'a>, Option<Shown<'a>>); HEADERS_SHOWN_MAX],
    found: &mut dyn FnMut(&Record<'_>),
) -> Option<i64> {
    let length = usize::try_from(varint(rest).ok()?).ok()?;
    let (mut record, after) = rest.split_at_checked(length)?;
    let record = &mut record;
    let (_attributes, fields) = record.split_first()?;
    *record = fields;
    let timestamp_ms = header.base_timestamp.checked_add(varint(record).ok()?)?;
    let delta = varint(record).ok()?;
    let offset = header.base_offset.checked_add(delta)?;
    let key = bytes(record)?;
    let value = bytes(record)?;
    let header_count = u32::try_from(varint(record).ok()?).ok()?;
    for number in 0..header_count {
        let name = bytes(record)??;
        let value = bytes(record)?;
        if let Some(place) = headers.get_mut(number as usize) {
            *place = (shown(name), value.map(shown));
        }
    }
    if !record.is_empty() {
        return None;
    }
    *rest = after;
    let timestamp_ms =
        if header.is_log_append_time() { header.max_timestamp } else { timestamp_ms };
    let headers = &headers[..HEADERS_SHOWN_MAX.min(header_count as usize)];
    let (key, value) = (key.map(shown), value.map(shown));
    found(&Record { offset, timestamp_ms, key, value, headers, header_count });
    Some(delta)
}

/// Bytes behind their length; `Some(None)` for a length of -1.
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = varint(rest).ok()?;
    if length == -1 {
        return Some(None);
    }
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(bytes))
}

fn shown(bytes: &[u8]) -> Shown<'_> {
    Shown { size_bytes: bytes.len(), head: &bytes[..bytes.len().min(SHOWN_BYTES_MAX)] }
}
