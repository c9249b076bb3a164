//! The Produce body, decoded with limits that hold for the whole request.
//!
//! The generated decoder bounds each array by itself. A Produce frame may be 16 MiB, so nested arrays of tiny elements
//! would take a gigabyte; here the partitions of all topics together are bounded. Equal to the generated decoder on
//! everything that it lets pass.

use bytes::Bytes;
use kafka_wire::ProduceRequest;
use kafka_wire::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_wire_core::{ApiVersion, BoundedCount, DecodeError, DecodeLimits, Decoder, KafkaDecode};

use crate::api::ApiKey;

/// Most unknown tagged fields in one structure: clients send none in Produce.
const TAGGED_FIELDS_MAX: usize = 8;

/// Decodes a whole body; at most `limits.max_array_elements` topics, and as many partitions in all of them together.
pub(crate) fn decode(
    body: Bytes,
    version: i16,
    mut limits: DecodeLimits,
) -> Result<ProduceRequest, DecodeError> {
    limits.max_tagged_fields = TAGGED_FIELDS_MAX;
    let flexible = ApiKey::Produce.api().is_flexible(version);
    let mut decoder = Decoder::new(body, limits)?;
    let mut request = ProduceRequest::default();
    request.transactional_id = if flexible {
        decoder.read_compact_nullable_string()?
    } else {
        decoder.read_nullable_string()?
    };
    request.acks = decoder.read_i16()?;
    request.timeout_ms = decoder.read_i32()?;
    let topics = array_len(&mut decoder, flexible)?;
    let mut partitions_left = limits.max_array_elements;
    request.topic_data = decoder.read_vec(topics, |decoder| {
        topic(decoder, version, flexible, limits.max_array_elements, &mut partitions_left)
    })?;
    if flexible {
        request.unknown_tagged_fields = decoder.read_tagged_fields()?;
    }
    decoder.finish()?;
    Ok(request)
}

fn array_len(decoder: &mut Decoder, flexible: bool) -> Result<BoundedCount, DecodeError> {
    if flexible { decoder.read_compact_array_len() } else { decoder.read_array_len() }
}

fn topic(
    decoder: &mut Decoder,
    version: i16,
    flexible: bool,
    partitions_max: usize,
    partitions_left: &mut usize,
) -> Result<TopicProduceData, DecodeError> {
    let mut topic = TopicProduceData::default();
    topic.name = if flexible { decoder.read_compact_string()? } else { decoder.read_string()? };
    let offset = decoder.offset();
    let count = array_len(decoder, flexible)?;
    *partitions_left =
        partitions_left.checked_sub(count.get()).ok_or(DecodeError::LimitExceeded {
            kind: "partitions of all topics",
            length: partitions_max - *partitions_left + count.get(),
            limit: partitions_max,
            offset,
        })?;
    topic.partition_data = decoder.read_vec(count, |decoder| {
        PartitionProduceData::decode(decoder, ApiVersion::new(version))
    })?;
    if flexible {
        topic.unknown_tagged_fields = decoder.read_tagged_fields()?;
    }
    Ok(topic)
}
