//! The one table of served API keys: version ranges, flexible versions and limits. The keys, the decoder and ApiVersions
//! come from it.

/// Hands every served key to `$rows!`, in the order of their numbers: documentation, name, message and number; lowest
/// version advertised, lowest served, highest; first flexible version; most elements of one array; frame class; who
/// decodes the body.
///
/// Produce stays at 11: 12 adds partitions to transactions by itself (KIP-890), which are not served.
macro_rules! served {
    ($rows:ident) => {
        $rows! {
            /// Append record batches.
            Produce(ProduceRequest) = 0, (0, 3, 11), 9, 10_000, Produce, produce_body;
            /// Read record batches.
            Fetch(FetchRequest) = 1, (4, 4, 17), 12, 10_000, Other, body;
            /// Offsets by time, or first and last.
            ListOffsets(ListOffsetsRequest) = 2, (1, 1, 9), 6, 100_000, Other, body;
            /// Brokers, topics, partitions and their leaders.
            Metadata(MetadataRequest) = 3, (0, 0, 13), 9, 100_000, Other, body;
            /// Store offsets that a group has consumed.
            OffsetCommit(OffsetCommitRequest) = 8, (2, 2, 9), 8, 10_000, Other, body;
            /// Read stored offsets.
            OffsetFetch(OffsetFetchRequest) = 9, (1, 1, 9), 6, 10_000, Other, body;
            /// Which broker coordinates a group (KIP-699: several at once from 4).
            FindCoordinator(FindCoordinatorRequest) = 10, (0, 0, 6), 3, 10_000, Other, body;
            /// Become or stay a member of a group (KIP-62, KIP-345, KIP-394).
            JoinGroup(JoinGroupRequest) = 11, (0, 0, 9), 6, 1_000, Other, body;
            /// Say that a member lives.
            Heartbeat(HeartbeatRequest) = 12, (0, 0, 4), 4, 1_000, Small, body;
            /// Leave a group, or remove members (KIP-345).
            LeaveGroup(LeaveGroupRequest) = 13, (0, 0, 5), 4, 10_000, Other, body;
            /// Hand out the assignment, or get one's own.
            SyncGroup(SyncGroupRequest) = 14, (0, 0, 5), 4, 10_000, Other, body;
            /// Members and assignments of groups.
            DescribeGroups(DescribeGroupsRequest) = 15, (0, 0, 5), 5, 10_000, Other, body;
            /// The groups that this broker coordinates.
            ListGroups(ListGroupsRequest) = 16, (0, 0, 5), 3, 1_000, Small, body;
            /// Which keys and versions are served (KIP-35, KIP-511).
            ApiVersions(ApiVersionsRequest) = 18, (0, 0, 4), 3, 1_000, Small, body;
            /// Create topics.
            CreateTopics(CreateTopicsRequest) = 19, (2, 2, 7), 5, 100_000, Other, body;
            /// Delete topics.
            DeleteTopics(DeleteTopicsRequest) = 20, (1, 1, 6), 4, 100_000, Other, body;
            /// Delete the records below an offset (KIP-107).
            DeleteRecords(DeleteRecordsRequest) = 21, (0, 0, 2), 2, 100_000, Other, body;
            /// A producer id for idempotent producers (KIP-98).
            InitProducerId(InitProducerIdRequest) = 22, (0, 0, 5), 2, 1_000, Small, body;
            /// End offset of a leader epoch (KIP-101, KIP-320).
            OffsetForLeaderEpoch(OffsetForLeaderEpochRequest) = 23, (2, 2, 4), 4, 100_000, Other, body;
            /// Settings of topics and brokers (KIP-133, KIP-226, KIP-569).
            DescribeConfigs(DescribeConfigsRequest) = 32, (1, 1, 4), 4, 100_000, Other, body;
            /// Replace a topic's settings (KIP-133).
            AlterConfigs(AlterConfigsRequest) = 33, (0, 0, 2), 2, 100_000, Other, body;
            /// Sizes and lags of the replicas in each log directory (KIP-113, KIP-827).
            DescribeLogDirs(DescribeLogDirsRequest) = 35, (1, 1, 4), 2, 100_000, Other, body;
            /// Add partitions to topics (KIP-195).
            CreatePartitions(CreatePartitionsRequest) = 37, (0, 0, 3), 2, 100_000, Other, body;
            /// Forget groups without members (KIP-229).
            DeleteGroups(DeleteGroupsRequest) = 42, (0, 0, 2), 2, 10_000, Other, body;
            /// Elect the preferred leader, or any (KIP-183, KIP-460).
            ElectLeaders(ElectLeadersRequest) = 43, (0, 0, 2), 2, 100_000, Other, body;
            /// Change a topic's settings key by key (KIP-339).
            IncrementalAlterConfigs(IncrementalAlterConfigsRequest) = 44, (0, 0, 1), 1, 100_000, Other, body;
            /// Move replicas to other brokers (KIP-455).
            AlterPartitionReassignments(AlterPartitionReassignmentsRequest) = 45, (0, 0, 0), 0, 100_000, Other, body;
            /// Moves that are under way (KIP-455).
            ListPartitionReassignments(ListPartitionReassignmentsRequest) = 46, (0, 0, 0), 0, 100_000, Other, body;
            /// Forget a group's offsets of topics that it does not consume (KIP-496); never flexible.
            OffsetDelete(OffsetDeleteRequest) = 47, (0, 0, 0), i16::MAX, 10_000, Other, body;
            /// Brokers and the controller (KIP-700).
            DescribeCluster(DescribeClusterRequest) = 60, (0, 0, 1), 0, 1_000, Small, body;
            /// Idempotent producers of partitions (KIP-664).
            DescribeProducers(DescribeProducersRequest) = 61, (0, 0, 0), 0, 100_000, Other, body;
            /// Topics and their partitions, page by page (KIP-966).
            DescribeTopicPartitions(DescribeTopicPartitionsRequest) = 75, (0, 0, 0), 0, 100_000, Other, body;
        }
    };
}
pub(crate) use served;

macro_rules! keys {
    ($($(#[$doc:meta])+ $name:ident($request:ident) = $number:literal, $versions:expr, $flexible:expr, $elements:literal, $class:ident, $body:path;)+) => {
        /// The requests that this broker serves. The numbers are Kafka's, except for [`ApiKey::ReplicaFetch`], which is ours.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i16)]
        pub enum ApiKey {
            $($(#[$doc])+ $name = $number,)+
            /// Between brokers only, never advertised: a follower's fetch with its flushed offset and the topic's
            /// incarnation, for which Kafka's Fetch has no place (R15, R27).
            ReplicaFetch = 32001,
        }

        /// Every advertised key, in the order of their numbers.
        pub const SERVED: &[Api] = &[
            $(api(ApiKey::$name, $versions, $flexible, $elements, FrameClass::$class),)+
        ];

        impl ApiKey {
            /// Kafka's name of the request.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$name => stringify!($name),)+
                    ApiKey::ReplicaFetch => "ReplicaFetch",
                }
            }

            /// The key's row.
            #[must_use]
            pub fn api(self) -> &'static Api {
                match self {
                    $(ApiKey::$name => {
                        const ROW: Api = api(ApiKey::$name, $versions, $flexible, $elements, FrameClass::$class);
                        &ROW
                    })+
                    ApiKey::ReplicaFetch => &REPLICA_FETCH,
                }
            }
        }
    };
}
served!(keys);

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
        for row in SERVED {
            let descriptor = API_DESCRIPTORS
                .iter()
                .find(|d| d.api_key.value() == row.key.number())
                .unwrap_or_else(|| panic!("{} is unknown to the crate", row.key));
            assert_eq!(descriptor.request.name, format!("{}Request", row.key));
            let supported = descriptor.supported_versions;
            assert!(supported.contains(ApiVersion::new(row.min_served)), "{}", row.key);
            assert!(supported.contains(ApiVersion::new(row.max)), "{}", row.key);
            let flexible = descriptor.flexible_versions.map_or(i16::MAX, |v| v.min().value());
            assert_eq!(flexible, row.first_flexible, "{}", row.key);
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
        macro_rules! headers {
            ($($(#[$doc:meta])+ $name:ident($request:ident) = $($rest:expr),+;)+) => {
                $(response_headers::<kafka_wire::$request>(ApiKey::$name);)+
            };
        }
        served!(headers);
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
