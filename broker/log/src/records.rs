//! Timestamps inside an uncompressed batch: the one place that looks at records, for offsets by time.

use crate::batch::{BatchHeader, HEADER_BYTES};

/// Reads a zig-zag varint; `None` if it is cut off or longer than ten bytes.
pub(crate) fn varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    None
}

/// The first record of a whole batch whose timestamp is at least `timestamp` (ms): its offset and timestamp.
///
/// Records of a compressed batch are not looked at: then the answer is the batch's first record, which may be older.
/// `None` if no record is young enough, or the records do not make sense.
pub(crate) fn first_at_least(
    batch: &[u8],
    header: &BatchHeader,
    timestamp: i64,
) -> Option<(i64, i64)> {
    if header.is_log_append_time() {
        return (header.max_timestamp >= timestamp)
            .then_some((header.base_offset, header.max_timestamp));
    }
    if header.codec() != 0 {
        return Some((header.base_offset, header.base_timestamp));
    }
    let mut rest = batch.get(HEADER_BYTES..)?;
    for _ in 0..header.record_count {
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let (mut record, after) = rest.split_at_checked(length)?;
        record = record.get(1..)?;
        let at = header.base_timestamp.checked_add(varint(&mut record)?)?;
        let offset = header.base_offset.checked_add(varint(&mut record)?)?;
        if at >= timestamp {
            return Some((offset, at));
        }
        rest = after;
    }
    None
}
