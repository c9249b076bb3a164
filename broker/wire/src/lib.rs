//! Frames in, typed requests out and back, limits, the segmented Fetch writer and the replica fetch.
//!
//! Knows neither the broker nor sockets. Everything that the generated protocol crate gives is used behind this crate
//! only, so that it can be swapped key by key.
//!
//! A connection does: [`peek`] on what it has read so far (8 bytes are enough to refuse a frame before its body is
//! read), then [`split`] on the whole frame, then [`Request::decode`], and answers with [`reply`],
//! [`FetchReply::write`] or [`ReplicaFetchReply::encode`]. A [`FrameError`] closes the connection.

mod api;
mod client;
mod fetch_writer;
mod frame;
mod lengths;
pub mod messages;
mod produce;
mod replica_fetch;
mod replica_fetch_codec;
mod reply;
mod request;
mod segments;

pub use api::{Api, ApiKey, SERVED};
pub use client::{decode_response, encode_request};
pub use fetch_writer::{FetchReply, FetchReplyPartition, FetchReplyTopic, NodeEndpoint, Records};
pub use frame::{
    CLIENT_ID_BYTES_MAX, FrameError, FrameLimits, Peek, RequestFrame, peek, response_len, split,
};
pub use replica_fetch::{
    IntroducedPartition, PARTITION_INDEX_MAX, PartitionPosition, PositionEcho, RecordSlot,
    ReplicaFetchOutcome, ReplicaFetchPartition, ReplicaFetchReply, ReplicaFetchRequest,
    ReplicaFetchResponse,
};
pub use reply::{
    ReplyError, UNSUPPORTED_VERSION, api_versions_response, api_versions_unsupported, reply,
};
pub use request::Request;
pub use segments::{Segment, Segments};

/// Any response that [`reply`] can write.
pub use kafka_wire::KafkaResponse;
/// Any request that [`encode_request`] can write, and that [`decode_response`] finds the response of.
pub use kafka_wire::{KafkaRequest, RequestResponsePair};
