//! Compressing a producer's batch anew, where its topic wants another codec than it has (`compression.type`).

use crate::batch::{
    BatchError, BatchHeader, CODEC_MASK, HEADER_BYTES, LENGTH_END, crc_of, crc_of_bytes,
};
use crate::check::{ProduceRules, ProduceSummary, STAMPED_END};
use crate::records::record_bytes;

/// A checked batch ([`crate::validate_produce`]) as its topic wants it stored; `None` if that is as it is. The records stay, and
/// all that the header says beside their size and codec. Do this before [`crate::stamp_append_time`], with the same summary, and
/// before taking the partition's lock.
///
/// # Errors
/// What [`record_bytes`] says of damaged records; [`BatchError::TooLarge`] if the batch has become larger than is allowed.
pub fn recompressed(
    batch: &[u8],
    rules: &ProduceRules,
    summary: &mut ProduceSummary,
) -> Result<Option<Vec<u8>>, BatchError> {
    let header = BatchHeader::parse(batch)?;
    let Some(codec) = rules.codec.filter(|codec| codec.number() != header.codec()) else {
        return Ok(None);
    };
    let records = record_bytes(batch, &header)?;
    let mut out = batch.get(..HEADER_BYTES).ok_or(BatchError::Truncated)?.to_vec();
    codec.compress(&records, &mut out).map_err(|_| BatchError::Compression(codec))?;
    let size_bytes = out.len();
    if size_bytes > rules.max_batch_bytes {
        return Err(BatchError::TooLarge { size_bytes });
    }
    let length =
        i32::try_from(size_bytes - LENGTH_END).map_err(|_| BatchError::TooLarge { size_bytes })?;
    let attributes = (header.attributes & !CODEC_MASK) | codec.number();
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[21..23].copy_from_slice(&attributes.to_be_bytes());
    if summary.append_time_ms.is_some() {
        summary.rest_crc = crc_of_bytes(&out[STAMPED_END..]);
    } else {
        let crc = crc_of(&out);
        out[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use barnabas_types::{CompressionType, TimestampType, TopicConfig};

    use super::*;
    use crate::batch::{Batch, Batches};
    use crate::codec::Codec;
    use crate::records::Records;
    use crate::testing::BatchBuilder;
    use crate::{stamp_append_time, validate_produce};

    const NOW: i64 = 1_700_000_000_000;

    fn rules(compression_type: CompressionType, stamps: TimestampType) -> ProduceRules {
        let message_timestamp_type = stamps;
        let config =
            TopicConfig { compression_type, message_timestamp_type, ..TopicConfig::default() };
        ProduceRules::from(&config)
    }

    /// Validates, compresses and stamps as the broker does.
    fn stored(batch: &[u8], rules: &ProduceRules) -> Result<Vec<u8>, BatchError> {
        let mut summary = validate_produce(batch, rules, NOW)?;
        let mut stored =
            recompressed(batch, rules, &mut summary)?.unwrap_or_else(|| batch.to_vec());
        stamp_append_time(&mut stored, &summary)?;
        Ok(stored)
    }

    fn builder() -> BatchBuilder {
        let value = [7; 500];
        let keyed = BatchBuilder::new().timestamp(NOW).keyed(b"k", Some(&value)).keyed(b"k", None);
        keyed.timestamp(NOW + 5).record(b"x").producer(7, 1, 40)
    }

    #[test]
    fn every_codec_becomes_every_other_and_nothing_else_changes() {
        for stamps in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
            for from in 0..=4 {
                let produced = builder().codec(from).build();
                for (number, (name, to)) in (-1..).zip(CompressionType::NAMED) {
                    let stored = stored(&produced, &rules(to, stamps)).unwrap();
                    let batch: Batch<'_> = Batches::new(&stored).next().unwrap().unwrap();
                    batch.check_crc().unwrap();
                    let header = batch.header;
                    let expected = if to == CompressionType::Producer { from } else { number };
                    assert_eq!(header.codec(), expected, "{from} to {name}");
                    let before = BatchHeader::parse(&produced).unwrap();
                    let same = |h: &BatchHeader| {
                        let producer = (h.producer_id, h.producer_epoch, h.base_sequence);
                        (producer, h.record_count, h.last_offset_delta, h.base_timestamp)
                    };
                    assert_eq!(same(&header), same(&before));
                    assert_eq!(header.is_log_append_time(), stamps == TimestampType::LogAppendTime);
                    let bytes = record_bytes(&stored, &header).unwrap();
                    assert_eq!(bytes, record_bytes(&produced, &before).unwrap());
                    assert_eq!(Records::new(&bytes, &header).filter(Result::is_ok).count(), 3);
                    if expected == from && stamps == TimestampType::CreateTime {
                        assert_eq!(stored, produced);
                    }
                }
            }
        }
    }

    #[test]
    fn what_grows_beyond_the_limit_or_is_damaged_is_refused() {
        let mut plain = rules(CompressionType::Uncompressed, TimestampType::CreateTime);
        plain.max_batch_bytes = 400;
        let produced = builder().codec(4).build();
        assert!(produced.len() < 400);
        assert!(matches!(stored(&produced, &plain), Err(BatchError::TooLarge { .. })));
        let garbage = BatchBuilder::new().record(b"no gzip at all").attributes(1).build();
        assert_eq!(stored(&garbage, &plain), Err(BatchError::Compression(Codec::Gzip)));
    }
}
