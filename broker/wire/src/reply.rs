//! From a response to the bytes of its frame; the two forms of the ApiVersions answer.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_wire::api_versions_response::ApiVersion as ApiVersionRange;
use kafka_wire::{ApiVersionsResponse, KafkaResponse};
use kafka_wire_core::{ApiVersion, EncodeError};

use crate::api::{ApiKey, SERVED};

/// Kafka's error code UNSUPPORTED_VERSION.
pub const UNSUPPORTED_VERSION: i16 = 35;

/// A response that cannot be encoded. The peer waits for it, so the connection must be closed; never a silent hole.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The key or version is not in the table of served ones.
    #[error("there is no response for API key {key} in version {version}")]
    NotServed {
        /// The key's number.
        key: i16,
        /// The version asked for.
        version: i16,
    },
    /// A field cannot be written in this version; the source names it.
    #[error("the {key} response cannot be written in version {version}: {source}")]
    Encode {
        /// The key.
        key: ApiKey,
        /// The version.
        version: i16,
        /// Which field and why.
        source: EncodeError,
    },
    /// A field of a message with a writer of its own does not fit.
    #[error("{field} of the {message} is {length} long, at most {max} can be written")]
    FieldTooLong {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
        /// Bytes or elements.
        length: usize,
        /// The most that can be written.
        max: usize,
    },
    /// The frame does not fit its size prefix.
    #[error("a {message} of {length} bytes does not fit a frame")]
    FrameTooLong {
        /// Which message.
        message: &'static str,
        /// Bytes.
        length: usize,
    },
}

/// The whole frame of a response: size, header, body.
///
/// # Errors
/// [`ReplyError`], with key, version and field.
pub fn reply<R: KafkaResponse>(
    correlation_id: i32,
    version: i16,
    response: &R,
) -> Result<Bytes, ReplyError> {
    let number = R::API_KEY.value();
    let api = ApiKey::from_i16(number)
        .map(ApiKey::api)
        .filter(|api| api.serves(version))
        .ok_or(ReplyError::NotServed { key: number, version })?;
    let mut buffer = BytesMut::new();
    buffer.put_i32(0);
    buffer.put_i32(correlation_id);
    if api.response_header_version(version) == 1 {
        buffer.put_u8(0);
    }
    response
        .encode_into(&mut buffer, ApiVersion::new(version))
        .map_err(|source| ReplyError::Encode { key: api.key, version, source })?;
    patch_size(&mut buffer, R::NAME)?;
    Ok(buffer.freeze())
}

/// Writes the length of what follows over the first four bytes.
pub(crate) fn patch_size(buffer: &mut BytesMut, message: &'static str) -> Result<(), ReplyError> {
    let length = buffer.len() - 4;
    let size = i32::try_from(length).map_err(|_| ReplyError::FrameTooLong { message, length })?;
    buffer[..4].copy_from_slice(&size.to_be_bytes());
    Ok(())
}

/// The answer to ApiVersions: exactly the table of served keys. It has no tagged field at any version, because
/// librdkafka 2.0.2 never answers one that has.
#[must_use]
pub fn api_versions_response() -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.api_keys = SERVED
        .iter()
        .map(|row| {
            let mut range = ApiVersionRange::default();
            range.api_key = row.key.number();
            range.min_version = row.min_advertised;
            range.max_version = row.max;
            range
        })
        .collect();
    response
}

/// The whole frame that answers an ApiVersions request of a version that is not served: version 0, error 35, with the
/// list, so that the client can choose (KIP-511).
///
/// # Errors
/// [`ReplyError`]; not expected, the response is constant.
pub fn api_versions_unsupported(correlation_id: i32) -> Result<Bytes, ReplyError> {
    let mut response = api_versions_response();
    response.error_code = UNSUPPORTED_VERSION;
    reply(correlation_id, 0, &response)
}
