//! Writes a record batch (v2) of the broker's own records: uncompressed, without a producer id.

use crate::batch::{BatchError, HEADER_BYTES, LENGTH_END, MAGIC, crc_of};
use crate::records::put_varint;

/// One batch of keyed records, in their order, all of this time (ms since 1970); a record without a value is a tombstone.
/// Base offset 0 and leader epoch -1: the append stamps both.
///
/// # Errors
/// [`BatchError::Empty`] without records, [`BatchError::TooLarge`] above 2 GiB.
pub fn record_batch<'a>(
    timestamp_ms: i64,
    records: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> Result<Vec<u8>, BatchError> {
    let mut out = vec![0; HEADER_BYTES];
    let mut count = 0_i32;
    let mut body = Vec::new();
    for (key, value) in records {
        body.clear();
        // Attributes, and no distance from the batch's time.
        body.extend_from_slice(&[0, 0]);
        put_varint(&mut body, count.into());
        put_field(&mut body, Some(key));
        put_field(&mut body, value);
        put_varint(&mut body, 0);
        put_varint(&mut out, body.len() as i64);
        out.extend_from_slice(&body);
        count += 1;
    }
    if count == 0 {
        return Err(BatchError::Empty);
    }
    let size_bytes = out.len();
    let length =
        i32::try_from(size_bytes - LENGTH_END).map_err(|_| BatchError::TooLarge { size_bytes })?;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[12..16].copy_from_slice(&(-1_i32).to_be_bytes());
    out[16] = MAGIC.cast_unsigned();
    out[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    out[27..35].copy_from_slice(&timestamp_ms.to_be_bytes());
    out[35..43].copy_from_slice(&timestamp_ms.to_be_bytes());
    // No producer id, epoch and sequence.
    out[43..57].fill(0xff);
    out[57..61].copy_from_slice(&count.to_be_bytes());
    let crc = crc_of(&out);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Ok(out)
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    put_varint(out, field.map_or(-1, |field| field.len() as i64));
    out.extend_from_slice(field.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::BatchBuilder;

    #[test]
    fn a_batch_is_what_a_producer_would_have_sent() {
        let (key, value) = (&b"key"[..], &b"a value"[..]);
        let ours = record_batch(77, [(key, Some(value)), (key, None)]).unwrap();
        let theirs =
            BatchBuilder::new().timestamp(77).keyed(key, Some(value)).keyed(key, None).build();
        assert_eq!(ours, theirs);
        assert_eq!(record_batch(77, []), Err(BatchError::Empty));
    }
}
