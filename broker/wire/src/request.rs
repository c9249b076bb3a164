//! From a frame to a typed request, within the limits of its key.

use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode};

use crate::api::{Api, ApiKey, served};
use crate::frame::{FrameError, RequestFrame};
use crate::produce;
use crate::replica_fetch::ReplicaFetchRequest;

macro_rules! requests {
    ($($(#[$doc:meta])+ $name:ident($request:ident) = $number:literal, $versions:expr, $flexible:expr, $elements:literal, $class:ident, $body:path;)+) => {
        /// A decoded request.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Request {
            $($(#[$doc])+ $name(kafka_wire::$request),)+
            /// ApiVersions at a version that is not served: its body was not decoded; answer with
            /// [`crate::api_versions_unsupported`], the connection stays open (KIP-511).
            UnsupportedVersion {
                /// As sent.
                version: i16,
            },
            /// A follower's fetch.
            ReplicaFetch(ReplicaFetchRequest),
        }

        fn decode(frame: &RequestFrame) -> Result<Request, FrameError> {
            match frame.key {
                $(ApiKey::$name => $body(frame).map(Request::$name),)+
                ApiKey::ReplicaFetch => {
                    ReplicaFetchRequest::decode(frame.body.clone()).map(Request::ReplicaFetch)
                }
            }
        }
    };
}
served!(requests);

impl Request {
    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// [`FrameError`] if the version is not served (Produce 0-2 among them: they are advertised, but an error answer
    /// cannot be encoded in them, so the connection closes), or if the body is damaged or breaks a limit.
    pub fn decode(frame: &RequestFrame) -> Result<Self, FrameError> {
        let api = frame.key.api();
        if api.serves(frame.version) {
            return decode(frame);
        }
        match frame.key {
            ApiKey::ApiVersions => Ok(Self::UnsupportedVersion { version: frame.version }),
            key => Err(FrameError::VersionNotServed {
                key,
                version: frame.version,
                min: api.min_served,
                max: api.max,
            }),
        }
    }
}

fn produce_body(frame: &RequestFrame) -> Result<kafka_wire::ProduceRequest, FrameError> {
    let limits = limits(frame.key.api(), frame.body.len());
    produce::decode(frame.body.clone(), frame.version, limits)
        .map_err(|source| body_error(frame, source))
}

/// Bytes after the last field are ignored, as Kafka does: librdkafka sends some in Metadata 9 and later for "all topics".
fn body<M: KafkaDecode>(frame: &RequestFrame) -> Result<M, FrameError> {
    let limits = limits(frame.key.api(), frame.body.len());
    Decoder::new(frame.body.clone(), limits)
        .and_then(|mut decoder| M::decode(&mut decoder, ApiVersion::new(frame.version)))
        .map_err(|source| body_error(frame, source))
}

fn body_error(frame: &RequestFrame, source: kafka_wire_core::DecodeError) -> FrameError {
    FrameError::Body { key: frame.key, version: frame.version, source }
}

/// The decoder's limits for a body that passed the frame limit.
fn limits(api: &Api, body_bytes: usize) -> DecodeLimits {
    let mut limits = DecodeLimits::default();
    limits.max_frame_bytes = body_bytes;
    limits.max_bytes_bytes = body_bytes;
    limits.max_string_bytes = 32_767;
    limits.max_array_elements = api.array_len_max;
    limits.max_tagged_fields = 64;
    limits.max_tag_bytes = 64 * 1024;
    limits.max_total_tag_bytes = 64 * 1024;
    limits
}
