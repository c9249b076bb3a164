//! The other side, for tools, tests and fetchers: requests out, responses in.

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    KafkaRequest, OutboundFrameLimits, RequestResponsePair, ResponseHeader,
    response_header_version_for,
};
use kafka_wire_core::{
    ApiVersion, DecodeError, DecodeLimits, Decoder, EncodeError, KafkaDecode, StrBytes,
};

/// The whole frame of a request.
///
/// # Errors
/// The crate's own error: a field that the version cannot carry, or a frame above 2 GiB.
pub fn encode_request<Q: KafkaRequest>(
    correlation_id: i32,
    client_id: &str,
    version: i16,
    request: &Q,
) -> Result<Bytes, EncodeError> {
    let mut buffer = BytesMut::new();
    kafka_wire::encode_request(
        &mut buffer,
        correlation_id,
        Some(StrBytes::from(client_id)),
        request,
        ApiVersion::new(version),
        OutboundFrameLimits::new(i32::MAX as usize),
    )?;
    Ok(buffer.freeze())
}

/// Reads a whole response frame (as measured by [`crate::response_len`]): correlation id and body.
///
/// # Errors
/// The crate's own error: a version that it does not know, damaged bytes, or bytes left over.
pub fn decode_response<Q: RequestResponsePair>(
    version: i16,
    frame: Bytes,
) -> Result<(i32, Q::Response), DecodeError> {
    let too_short = DecodeError::UnexpectedEnd { offset: 0, needed: 4, remaining: frame.len() };
    let unsupported = DecodeError::UnsupportedVersion {
        message: Q::NAME,
        version: ApiVersion::new(version),
        supported: Q::SUPPORTED_VERSIONS,
    };
    if frame.len() < 4 {
        return Err(too_short);
    }
    let mut limits = DecodeLimits::default();
    limits.max_bytes_bytes = frame.len();
    limits.max_frame_bytes = frame.len();
    let header_version =
        response_header_version_for::<Q>(ApiVersion::new(version)).map_err(|_| unsupported)?;
    let mut decoder = Decoder::new(frame.slice(4..), limits)?;
    let header = ResponseHeader::decode(&mut decoder, ApiVersion::new(header_version))?;
    let body = frame.slice(frame.len() - decoder.remaining()..);
    let response = Q::Response::decode_from_bytes(body, ApiVersion::new(version), limits)?;
    Ok((header.correlation_id, response))
}
