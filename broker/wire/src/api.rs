//! The one table of served API keys: version ranges, flexible versions and limits. ApiVersions is generated from it.

/// The requests that this broker serves. The numbers are Kafka's, except for [`ApiKey::ReplicaFetch`], which is ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i16)]
pub enum ApiKey {
    /// Append record batches.
    Produce = 0,
    /// Read record batches.
    Fetch = 1,
    /// Offsets by time, or first and last.
    ListOffsets = 2,
    /// Brokers, topics, partitions and their leaders.
    Metadata = 3,
    /// Which keys and versions are served (KIP-35, KIP-511).
    ApiVersions = 18,
    /// Create topics.
    CreateTopics = 19,
    /// Delete topics.
    DeleteTopics = 20,
    /// Delete the records below an offset (KIP-107).
    DeleteRecords = 21,
    /// A producer id for idempotent producers (KIP-98).
    InitProducerId = 22,
    /// End offset of a leader epoch (KIP-101, KIP-320).
    OffsetForLeaderEpoch = 23,
    /// Settings of topics and brokers (KIP-133, KIP-226, KIP-569).
    DescribeConfigs = 32,
    /// Replace a topic's settings (KIP-133).
    AlterConfigs = 33,
    /// Add partitions to topics (KIP-195).
    CreatePartitions = 37,
    /// Elect the preferred leader, or any (KIP-183, KIP-460).
    ElectLeaders = 43,
    /// Change a topic's settings key by key (KIP-339).
    IncrementalAlterConfigs = 44,
    /// Move replicas to other brokers (KIP-455).
    AlterPartitionReassignments = 45,
    /// Moves that are under way (KIP-455).
    ListPartitionReassignments = 46,
    /// Between brokers only, never advertised: a follower's fetch with its flushed offset and the topic's incarnation,
    /// for which Kafka's Fetch has no place (R15, R27).
    ReplicaFetch = 32001,
}

/// Which frame limit applies to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameClass {
    /// Carries records: `FrameLimits::produce_bytes_max`.
    Produce,
    /// Everything else: `FrameLimits::other_bytes_max`.
    Other,
    /// A handful of fields: `FrameLimits::other_bytes_max`, and never more than 64 KiB.
    Small,
    /// `FrameLimits::replica_fetch_bytes_max`.
    ReplicaFetch,
}

/// One row of the table. All version bounds are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Api {
    /// The key.
    pub key: ApiKey,
    /// Lowest version in ApiVersions. Below `min_served` for Produce alone: librdkafka compresses only if the range
    /// contains version 0 (KAFKA-18659).
    pub min_advertised: i16,
    /// Lowest version that is decoded; a request below it closes the connection.
    pub min_served: i16,
    /// Highest version, advertised and served.
    pub max: i16,
    /// First version with compact lengths and tagged fields (KIP-482). Valid upwards without bound: also for versions
    /// above `max`, whose header must still be read for ApiVersions.
    pub first_flexible: i16,
    /// Most elements of one array.
    pub array_len_max: usize,
    pub(crate) class: FrameClass,
}

const fn api(
    key: ApiKey,
    (min_advertised, min_served, max): (i16, i16, i16),
    first_flexible: i16,
    array_len_max: usize,
    class: FrameClass,
) -> Api {
    Api { key, min_advertised, min_served, max, first_flexible, array_len_max, class }
}

/// Every advertised key, in the order of their numbers.
///
/// Fetch stays at 12 (topic ids in Fetch come with version 13); Metadata goes to 12 because its topic ids are real.
pub const SERVED: [Api; 17] = [
    api(ApiKey::Produce, (0, 3, 9), 9, 10_000, FrameClass::Produce),
    api(ApiKey::Fetch, (4, 4, 12), 12, 10_000, FrameClass::Other),
    api(ApiKey::ListOffsets, (1, 1, 7), 6, 100_000, FrameClass::Other),
    api(ApiKey::Metadata, (0, 0, 12), 9, 100_000, FrameClass::Other),
    api(ApiKey::ApiVersions, (0, 0, 3), 3, 1_000, FrameClass::Small),
    api(ApiKey::CreateTopics, (2, 2, 7), 5, 100_000, FrameClass::Other),
    api(ApiKey::DeleteTopics, (1, 1, 6), 4, 100_000, FrameClass::Other),
    api(ApiKey::DeleteRecords, (0, 0, 2), 2, 100_000, FrameClass::Other),
    api(ApiKey::InitProducerId, (0, 0, 4), 2, 1_000, FrameClass::Small),
    api(ApiKey::OffsetForLeaderEpoch, (2, 2, 4), 4, 100_000, FrameClass::Other),
    api(ApiKey::DescribeConfigs, (1, 1, 4), 4, 100_000, FrameClass::Other),
    api(ApiKey::AlterConfigs, (0, 0, 2), 2, 100_000, FrameClass::Other),
    api(ApiKey::CreatePartitions, (0, 0, 3), 2, 100_000, FrameClass::Other),
    api(ApiKey::ElectLeaders, (0, 0, 2), 2, 100_000, FrameClass::Other),
    api(ApiKey::IncrementalAlterConfigs, (0, 0, 1), 1, 100_000, FrameClass::Other),
    api(ApiKey::AlterPartitionReassignments, (0, 0, 0), 0, 100_000, FrameClass::Other),
    api(ApiKey::ListPartitionReassignments, (0, 0, 0), 0, 100_000, FrameClass::Other),
];

/// Our own request between brokers: version 0 only, in no advertised list.
const REPLICA_FETCH: Api =
    api(ApiKey::ReplicaFetch, (0, 0, 0), i16::MAX, 200_000, FrameClass::ReplicaFetch);

impl ApiKey {
    /// The key of a number, `None` if it is not served.
    #[must_use]
    pub fn from_i16(number: i16) -> Option<Self> {
        if number == REPLICA_FETCH.key.number() {
            return Some(ApiKey::ReplicaFetch);
        }
        SERVED.iter().find(|row| row.key.number() == number).map(|row| row.key)
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> i16 {
        self as i16
    }

    /// Kafka's name of the request.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ApiKey::Produce => "Produce",
            ApiKey::Fetch => "Fetch",
            ApiKey::ListOffsets => "ListOffsets",
            ApiKey::Metadata => "Metadata",
            ApiKey::ApiVersions => "ApiVersions",
            ApiKey::CreateTopics => "CreateTopics",
            ApiKey::DeleteTopics => "DeleteTopics",
            ApiKey::DeleteRecords => "DeleteRecords",
            ApiKey::InitProducerId => "InitProducerId",
            ApiKey::OffsetForLeaderEpoch => "OffsetForLeaderEpoch",
            ApiKey::DescribeConfigs => "DescribeConfigs",
            ApiKey::AlterConfigs => "AlterConfigs",
            ApiKey::CreatePartitions => "CreatePartitions",
            ApiKey::ElectLeaders => "ElectLeaders",
            ApiKey::IncrementalAlterConfigs => "IncrementalAlterConfigs",
            ApiKey::AlterPartitionReassignments => "AlterPartitionReassignments",
            ApiKey::ListPartitionReassignments => "ListPartitionReassignments",
            ApiKey::ReplicaFetch => "ReplicaFetch",
        }
    }

    /// The key's row.
    #[must_use]
    pub fn api(self) -> &'static Api {
        match self {
            ApiKey::Produce => &SERVED[0],
            ApiKey::Fetch => &SERVED[1],
            ApiKey::ListOffsets => &SERVED[2],
            ApiKey::Metadata => &SERVED[3],
            ApiKey::ApiVersions => &SERVED[4],
            ApiKey::CreateTopics => &SERVED[5],
            ApiKey::DeleteTopics => &SERVED[6],
            ApiKey::DeleteRecords => &SERVED[7],
            ApiKey::InitProducerId => &SERVED[8],
            ApiKey::OffsetForLeaderEpoch => &SERVED[9],
            ApiKey::DescribeConfigs => &SERVED[10],
            ApiKey::AlterConfigs => &SERVED[11],
            ApiKey::CreatePartitions => &SERVED[12],
            ApiKey::ElectLeaders => &SERVED[13],
            ApiKey::IncrementalAlterConfigs => &SERVED[14],
            ApiKey::AlterPartitionReassignments => &SERVED[15],
            ApiKey::ListPartitionReassignments => &SERVED[16],
            ApiKey::ReplicaFetch => &REPLICA_FETCH,
        }
    }
}

impl std::fmt::Display for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Api {
    /// Whether `version` is decoded and answered.
    #[must_use]
    pub fn serves(&self, version: i16) -> bool {
        (self.min_served..=self.max).contains(&version)
    }

    /// Whether `version` uses compact lengths and tagged fields; also right for versions above `max`.
    #[must_use]
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.first_flexible
    }

    /// Header version of a request: 2 if flexible, else 1.
    #[must_use]
    pub fn request_header_version(&self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// Header version of a response: 1 if flexible, else 0; ApiVersions always 0 (KIP-511).
    #[must_use]
    pub fn response_header_version(&self, version: i16) -> i16 {
        i16::from(self.is_flexible(version) && self.key != ApiKey::ApiVersions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_wire::{API_DESCRIPTORS, KafkaRequest, response_header_version_for};
    use kafka_wire_core::ApiVersion;

    #[test]
    fn the_table_agrees_with_the_protocol_crate() {
        for row in &SERVED {
            let descriptor = API_DESCRIPTORS
                .iter()
                .find(|d| d.api_key.value() == row.key.number())
                .unwrap_or_else(|| panic!("{} is unknown to the crate", row.key));
            assert_eq!(descriptor.request.name, format!("{}Request", row.key));
            let supported = descriptor.supported_versions;
            assert!(supported.contains(ApiVersion::new(row.min_served)), "{}", row.key);
            assert!(supported.contains(ApiVersion::new(row.max)), "{}", row.key);
            let flexible = descriptor.flexible_versions.expect("all have flexible versions");
            assert_eq!(flexible.min().value(), row.first_flexible, "{}", row.key);
            assert_eq!(row.key.api().key, row.key);
            assert_eq!(ApiKey::from_i16(row.key.number()), Some(row.key));
        }
        assert!(SERVED.windows(2).all(|pair| pair[0].key < pair[1].key));
    }

    fn response_headers<Q: KafkaRequest>(key: ApiKey) {
        let row = key.api();
        for version in row.min_served..=row.max {
            let expected = response_header_version_for::<Q>(ApiVersion::new(version)).unwrap();
            assert_eq!(row.response_header_version(version), expected, "{key} {version}");
        }
    }

    #[test]
    fn response_header_versions_agree_with_the_protocol_crate() {
        response_headers::<kafka_wire::ProduceRequest>(ApiKey::Produce);
        response_headers::<kafka_wire::FetchRequest>(ApiKey::Fetch);
        response_headers::<kafka_wire::ListOffsetsRequest>(ApiKey::ListOffsets);
        response_headers::<kafka_wire::MetadataRequest>(ApiKey::Metadata);
        response_headers::<kafka_wire::ApiVersionsRequest>(ApiKey::ApiVersions);
        response_headers::<kafka_wire::CreateTopicsRequest>(ApiKey::CreateTopics);
        response_headers::<kafka_wire::DeleteTopicsRequest>(ApiKey::DeleteTopics);
        response_headers::<kafka_wire::DeleteRecordsRequest>(ApiKey::DeleteRecords);
        response_headers::<kafka_wire::InitProducerIdRequest>(ApiKey::InitProducerId);
        response_headers::<kafka_wire::OffsetForLeaderEpochRequest>(ApiKey::OffsetForLeaderEpoch);
        response_headers::<kafka_wire::DescribeConfigsRequest>(ApiKey::DescribeConfigs);
        response_headers::<kafka_wire::AlterConfigsRequest>(ApiKey::AlterConfigs);
        response_headers::<kafka_wire::CreatePartitionsRequest>(ApiKey::CreatePartitions);
        response_headers::<kafka_wire::ElectLeadersRequest>(ApiKey::ElectLeaders);
        response_headers::<kafka_wire::IncrementalAlterConfigsRequest>(
            ApiKey::IncrementalAlterConfigs,
        );
        response_headers::<kafka_wire::AlterPartitionReassignmentsRequest>(
            ApiKey::AlterPartitionReassignments,
        );
        response_headers::<kafka_wire::ListPartitionReassignmentsRequest>(
            ApiKey::ListPartitionReassignments,
        );
    }

    #[test]
    fn the_replica_fetch_is_known_but_not_advertised() {
        assert_eq!(ApiKey::from_i16(32001), Some(ApiKey::ReplicaFetch));
        assert!(SERVED.iter().all(|row| row.key != ApiKey::ReplicaFetch));
        assert_eq!(ApiKey::ReplicaFetch.api().request_header_version(0), 1);
        assert_eq!(ApiKey::ReplicaFetch.api().response_header_version(0), 0);
    }

    #[test]
    fn librdkafka_finds_the_versions_that_switch_compression_on() {
        let contains =
            |key: ApiKey, version| (key.api().min_advertised..=key.api().max).contains(&version);
        assert!([0, 3, 7].iter().all(|v| contains(ApiKey::Produce, *v)));
        assert!([4, 10].iter().all(|v| contains(ApiKey::Fetch, *v)));
    }
}
