//! The length prefix and the request header: which frames are let in, and how one is taken apart.

use bytes::Bytes;
use kafka_wire::RequestHeader;
use kafka_wire_core::{ApiVersion, DecodeError, DecodeLimits, Decoder, KafkaDecode};

use crate::api::{Api, ApiKey, FrameClass};

/// Longest client id that is kept, in bytes; a longer one is cut.
pub const CLIENT_ID_BYTES_MAX: usize = 255;

/// Size, key, version, correlation id and the length of a null client id: no request is shorter than this after its
/// size prefix.
const HEADER_BYTES_MIN: usize = 10;

/// How many bytes [`peek`] wants to see: size, key, version.
const PEEK_BYTES: usize = 8;

/// `FrameClass::Small` never allows more than this.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Largest frames by kind, in bytes after the size prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLimits {
    /// Produce.
    pub produce_bytes_max: usize,
    /// Every other request of clients. Decoding needs up to 66 times the frame in memory in the worst case.
    pub other_bytes_max: usize,
    /// The request between brokers; 0 refuses it (for listeners that only clients use).
    pub replica_fetch_bytes_max: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self {
            produce_bytes_max: 16 * 1024 * 1024,
            other_bytes_max: 1024 * 1024,
            replica_fetch_bytes_max: 4 * 1024 * 1024,
        }
    }
}

impl FrameLimits {
    /// Largest frame of `key`, in bytes after the size prefix.
    #[must_use]
    pub fn bytes_max(&self, key: ApiKey) -> usize {
        match key.api().class {
            FrameClass::Produce => self.produce_bytes_max,
            FrameClass::Other => self.other_bytes_max,
            FrameClass::Small => self.other_bytes_max.min(SMALL_BYTES_MAX),
            FrameClass::ReplicaFetch => self.replica_fetch_bytes_max,
        }
    }

    fn largest(&self) -> usize {
        self.produce_bytes_max.max(self.other_bytes_max).max(self.replica_fetch_bytes_max)
    }
}

/// Why a connection is closed. The texts hold numbers only, nothing that the peer wrote.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The size prefix is negative.
    #[error("the frame's size is negative ({size})")]
    NegativeSize {
        /// As sent.
        size: i32,
    },
    /// The size prefix leaves no room for a header.
    #[error("the frame's size is {size}, a request has at least 10 bytes")]
    TooShort {
        /// As sent.
        size: i32,
    },
    /// The size prefix is above every limit; the first bytes look like another protocol if `looks_like` says so.
    #[error("the frame's size is {size} bytes, at most {max} are accepted{looks_like}")]
    TooLong {
        /// As sent.
        size: i32,
        /// The limit that it broke.
        max: usize,
        /// Empty, or a hint at what the peer speaks instead.
        looks_like: &'static str,
    },
    /// The key is not served.
    #[error("API key {key} (version {version}) is not served here")]
    UnknownKey {
        /// As sent.
        key: i16,
        /// As sent.
        version: i16,
    },
    /// The frame is above the limit of its key.
    #[error("a {key} request of {size} bytes is above the limit of {max} bytes")]
    AboveKeyLimit {
        /// The key.
        key: ApiKey,
        /// As sent.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The key is served, the version is not. (ApiVersions never gives this error.)
    #[error("{key} version {version} is not served here, only {min} to {max}")]
    VersionNotServed {
        /// The key.
        key: ApiKey,
        /// As sent.
        version: i16,
        /// Lowest served.
        min: i16,
        /// Highest served.
        max: i16,
    },
    /// The request between brokers came on a listener that refuses it.
    #[error("ReplicaFetch is not accepted on this listener")]
    ReplicaFetchRefused,
    /// The bytes given to [`split`] are not one whole frame.
    #[error("a frame of {expected} bytes was announced, {actual} bytes are there")]
    NotOneFrame {
        /// Total length that the size prefix announces.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The header cannot be read.
    #[error("the header of a {key} request cannot be read: {source}")]
    Header {
        /// The key.
        key: ApiKey,
        /// Where and why.
        source: DecodeError,
    },
    /// The body cannot be read.
    #[error("the body of a {key} request (version {version}) cannot be read: {source}")]
    Body {
        /// The key.
        key: ApiKey,
        /// Its version.
        version: i16,
        /// Where and why.
        source: DecodeError,
    },
    /// A body of our own format cannot be read.
    #[error("{what} of a {message} at byte {offset} is not acceptable")]
    Malformed {
        /// Which message.
        message: &'static str,
        /// What was being read.
        what: &'static str,
        /// Where, from the beginning of the body.
        offset: usize,
    },
}

/// What the first bytes of a buffer say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// Not enough to tell: at least this many bytes must be in the buffer.
    NeedMore {
        /// Total bytes wanted, those already there included.
        at_least: usize,
    },
    /// A frame that is let in. Its body may not be there yet.
    Frame {
        /// Total length, the four bytes of the size included.
        len: usize,
        /// The key.
        key: ApiKey,
        /// The version; served, or the key is ApiVersions.
        version: i16,
    },
}

fn be_i32(buffer: &[u8]) -> Option<i32> {
    buffer.first_chunk::<4>().map(|bytes| i32::from_be_bytes(*bytes))
}

fn be_i16(buffer: &[u8], at: usize) -> Option<i16> {
    buffer.get(at..)?.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes))
}

/// What a size that is far too great spells in other protocols.
fn looks_like(size: i32) -> &'static str {
    match &size.to_be_bytes() {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"PRI " => "; this looks like HTTP",
        [0x16, 0x03, 0..=4, _] => "; this looks like TLS, which is not configured here",
        _ => "",
    }
}

fn checked_size(size: i32, max: usize) -> Result<usize, FrameError> {
    let bytes = usize::try_from(size).map_err(|_| FrameError::NegativeSize { size })?;
    if bytes > max {
        return Err(FrameError::TooLong { size, max, looks_like: looks_like(size) });
    }
    Ok(bytes)
}

/// Looks at the first bytes of a buffer and decides whether the frame is let in, before its body is read.
///
/// # Errors
/// [`FrameError`] for a size that is negative, too short or above the limit of its key, for a key that is not served,
/// and for a version that is not served, except that ApiVersions passes at every version (KIP-511).
pub fn peek(buffer: &[u8], limits: &FrameLimits) -> Result<Peek, FrameError> {
    let Some(size) = be_i32(buffer) else {
        return Ok(Peek::NeedMore { at_least: PEEK_BYTES });
    };
    let size_bytes = checked_size(size, limits.largest())?;
    if size_bytes < HEADER_BYTES_MIN {
        return Err(FrameError::TooShort { size });
    }
    let (Some(number), Some(version)) = (be_i16(buffer, 4), be_i16(buffer, 6)) else {
        return Ok(Peek::NeedMore { at_least: PEEK_BYTES });
    };
    let key = ApiKey::from_i16(number).ok_or(FrameError::UnknownKey { key: number, version })?;
    if key == ApiKey::ReplicaFetch && limits.replica_fetch_bytes_max == 0 {
        return Err(FrameError::ReplicaFetchRefused);
    }
    let max = limits.bytes_max(key);
    if size_bytes > max {
        return Err(FrameError::AboveKeyLimit { key, size: size_bytes, max });
    }
    check_version(key.api(), version)?;
    Ok(Peek::Frame { len: 4 + size_bytes, key, version })
}

fn check_version(api: &Api, version: i16) -> Result<(), FrameError> {
    if api.serves(version) || api.key == ApiKey::ApiVersions {
        return Ok(());
    }
    Err(FrameError::VersionNotServed { key: api.key, version, min: api.min_served, max: api.max })
}

/// One request, header read, body not yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestFrame {
    /// The key.
    pub key: ApiKey,
    /// The version; served, or the key is ApiVersions.
    pub version: i16,
    /// To be sent back with the answer.
    pub correlation_id: i32,
    /// As the client calls itself: a copy of at most [`CLIENT_ID_BYTES_MAX`] bytes, otherwise as sent (sanitise it
    /// before it reaches a log).
    pub client_id: Option<String>,
    /// The rest of the frame. It shares the frame's memory, and so does every string and record set decoded from it:
    /// copy what is to live longer than the request.
    pub body: Bytes,
}

/// Takes one whole frame (as measured by [`peek`], size prefix included) apart.
///
/// # Errors
/// [`FrameError`] if it is not one whole frame, its key or version is not served (ApiVersions passes at every
/// version), or its header is damaged.
pub fn split(frame: Bytes) -> Result<RequestFrame, FrameError> {
    let actual = frame.len();
    let size = be_i32(&frame).ok_or(FrameError::NotOneFrame { expected: PEEK_BYTES, actual })?;
    let size_bytes = checked_size(size, i32::MAX as usize)?;
    if size_bytes + 4 != actual {
        return Err(FrameError::NotOneFrame { expected: size_bytes + 4, actual });
    }
    let (Some(number), Some(version)) = (be_i16(&frame, 4), be_i16(&frame, 6)) else {
        return Err(FrameError::TooShort { size });
    };
    let key = ApiKey::from_i16(number).ok_or(FrameError::UnknownKey { key: number, version })?;
    let api = key.api();
    check_version(api, version)?;
    let header_error = |source| FrameError::Header { key, source };
    let mut decoder =
        Decoder::new(frame.slice(4..), header_limits(actual)).map_err(header_error)?;
    let header_version = ApiVersion::new(api.request_header_version(version));
    let header = RequestHeader::decode(&mut decoder, header_version).map_err(header_error)?;
    let body = frame.slice(actual - decoder.remaining()..);
    Ok(RequestFrame {
        key,
        version,
        correlation_id: header.correlation_id,
        client_id: header.client_id.map(|id| kept_client_id(id.as_str())),
        body,
    })
}

fn kept_client_id(id: &str) -> String {
    let mut end = id.len().min(CLIENT_ID_BYTES_MAX);
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    id[..end].to_owned()
}

fn header_limits(frame_bytes: usize) -> DecodeLimits {
    let mut limits = DecodeLimits::default();
    limits.max_frame_bytes = frame_bytes;
    limits.max_string_bytes = 32_767;
    limits.max_tagged_fields = 64;
    limits.max_tag_bytes = 64 * 1024;
    limits.max_total_tag_bytes = 64 * 1024;
    limits
}

/// Total length of the response at the front of a buffer (size prefix included), `None` while fewer than four bytes
/// are there. For clients and for the follower's fetcher.
///
/// # Errors
/// [`FrameError`] if the size is negative, holds no correlation id, or is above `bytes_max`.
pub fn response_len(buffer: &[u8], bytes_max: usize) -> Result<Option<usize>, FrameError> {
    let Some(size) = be_i32(buffer) else { return Ok(None) };
    let size_bytes = checked_size(size, bytes_max)?;
    if size_bytes < 4 {
        return Err(FrameError::TooShort { size });
    }
    Ok(Some(size_bytes + 4))
}
