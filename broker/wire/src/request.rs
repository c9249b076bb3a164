//! From a frame to a typed request, within the limits of its key.

use kafka_wire::{
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, ApiVersionsRequest,
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, ElectLeadersRequest, FetchRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest, ListOffsetsRequest, ListPartitionReassignmentsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode};

use crate::api::{Api, ApiKey};
use crate::frame::{FrameError, RequestFrame};
use crate::produce;
use crate::replica_fetch::ReplicaFetchRequest;

/// A decoded request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Produce 3-9. Records are opaque slices of the frame.
    Produce(ProduceRequest),
    /// Fetch 4-12 of a consumer.
    Fetch(FetchRequest),
    /// ListOffsets 1-7.
    ListOffsets(ListOffsetsRequest),
    /// Metadata 0-12.
    Metadata(MetadataRequest),
    /// ApiVersions 0-3.
    ApiVersions(ApiVersionsRequest),
    /// ApiVersions at a version that is not served: its body was not decoded; answer with
    /// [`crate::api_versions_unsupported`], the connection stays open (KIP-511).
    UnsupportedVersion {
        /// As sent.
        version: i16,
    },
    /// CreateTopics 2-7.
    CreateTopics(CreateTopicsRequest),
    /// DeleteTopics 1-6.
    DeleteTopics(DeleteTopicsRequest),
    /// DeleteRecords 0-2.
    DeleteRecords(DeleteRecordsRequest),
    /// InitProducerId 0-4.
    InitProducerId(InitProducerIdRequest),
    /// OffsetForLeaderEpoch 2-4.
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    /// DescribeConfigs 1-4.
    DescribeConfigs(DescribeConfigsRequest),
    /// AlterConfigs 0-2.
    AlterConfigs(AlterConfigsRequest),
    /// CreatePartitions 0-3.
    CreatePartitions(CreatePartitionsRequest),
    /// ElectLeaders 0-2.
    ElectLeaders(ElectLeadersRequest),
    /// IncrementalAlterConfigs 0-1.
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest),
    /// AlterPartitionReassignments 0.
    AlterPartitionReassignments(AlterPartitionReassignmentsRequest),
    /// ListPartitionReassignments 0.
    ListPartitionReassignments(ListPartitionReassignmentsRequest),
    /// A follower's fetch.
    ReplicaFetch(ReplicaFetchRequest),
}

impl Request {
    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// [`FrameError`] if the version is not served (Produce 0-2 among them: they are advertised, but an error answer
    /// cannot be encoded in them, so the connection closes), or if the body is damaged or breaks a limit.
    pub fn decode(frame: &RequestFrame) -> Result<Self, FrameError> {
        let api = frame.key.api();
        if !api.serves(frame.version) {
            return match frame.key {
                ApiKey::ApiVersions => Ok(Self::UnsupportedVersion { version: frame.version }),
                key => Err(FrameError::VersionNotServed {
                    key,
                    version: frame.version,
                    min: api.min_served,
                    max: api.max,
                }),
            };
        }
        match frame.key {
            ApiKey::Produce => {
                let limits = limits(api, frame.body.len());
                produce::decode(frame.body.clone(), frame.version, limits)
                    .map(Self::Produce)
                    .map_err(|source| body_error(frame, source))
            }
            ApiKey::Fetch => body(frame).map(Self::Fetch),
            ApiKey::ListOffsets => body(frame).map(Self::ListOffsets),
            ApiKey::Metadata => body(frame).map(Self::Metadata),
            ApiKey::ApiVersions => body(frame).map(Self::ApiVersions),
            ApiKey::CreateTopics => body(frame).map(Self::CreateTopics),
            ApiKey::DeleteTopics => body(frame).map(Self::DeleteTopics),
            ApiKey::DeleteRecords => body(frame).map(Self::DeleteRecords),
            ApiKey::InitProducerId => body(frame).map(Self::InitProducerId),
            ApiKey::OffsetForLeaderEpoch => body(frame).map(Self::OffsetForLeaderEpoch),
            ApiKey::DescribeConfigs => body(frame).map(Self::DescribeConfigs),
            ApiKey::AlterConfigs => body(frame).map(Self::AlterConfigs),
            ApiKey::CreatePartitions => body(frame).map(Self::CreatePartitions),
            ApiKey::ElectLeaders => body(frame).map(Self::ElectLeaders),
            ApiKey::IncrementalAlterConfigs => body(frame).map(Self::IncrementalAlterConfigs),
            ApiKey::AlterPartitionReassignments => {
                body(frame).map(Self::AlterPartitionReassignments)
            }
            ApiKey::ListPartitionReassignments => body(frame).map(Self::ListPartitionReassignments),
            ApiKey::ReplicaFetch => {
                ReplicaFetchRequest::decode(frame.body.clone()).map(Self::ReplicaFetch)
            }
        }
    }
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
