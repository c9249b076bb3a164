//! The Fetch response in segments against the generated encoder.

use barnabas_types::{BrokerId, LeaderEpoch, Offset, TopicId};
use barnabas_wire::messages::{FetchResponse, Uuid, fetch_response};
use barnabas_wire::{
    FetchReply, FetchReplyPartition, FetchReplyTopic, NodeEndpoint, Records, ReplyError, Segment,
    reply,
};
use bytes::Bytes;

fn record_bytes(slot: usize) -> Bytes {
    // Lengths around the borders of the varint: 1 and 2 bytes, 2 and 3 bytes.
    let lengths = [1, 126, 127, 128, 16_382, 16_383, 16_384, 70_000];
    Bytes::from(vec![slot as u8 + 1; lengths[slot]])
}

fn partition(index: i32, slot: Option<usize>) -> FetchReplyPartition {
    FetchReplyPartition {
        index,
        error_code: 0,
        high_watermark: 1 << 33,
        last_stable_offset: 1 << 33,
        log_start_offset: 17,
        records: slot.map_or(Records::Empty, |slot| Records::Segment {
            slot,
            len: record_bytes(slot).len(),
        }),
        current_leader: None,
        diverging_epoch: None,
    }
}

fn example() -> FetchReply<'static> {
    let mut misled = FetchReplyPartition::error(9, 6);
    misled.current_leader = Some((BrokerId(3), LeaderEpoch(8)));
    let mut diverging = FetchReplyPartition::error(10, 0);
    diverging.diverging_epoch = Some((LeaderEpoch(4), Offset(99)));
    let mut both = diverging;
    both.current_leader = Some((BrokerId(0), LeaderEpoch(0)));
    let mut zero = partition(11, None);
    zero.records = Records::Segment { slot: 5, len: 0 };
    let mut defaults = FetchReplyPartition::error(12, 1);
    defaults.current_leader = Some((BrokerId(-1), LeaderEpoch(-1)));
    FetchReply {
        throttle_time_ms: 3,
        error_code: 0,
        session_id: 1 << 30,
        topics: vec![
            FetchReplyTopic {
                name: "first",
                id: TopicId([1; 16]),
                partitions: (0..8).map(|i| partition(i as i32, Some(i))).collect(),
            },
            FetchReplyTopic { name: "empty", ..FetchReplyTopic::default() },
            FetchReplyTopic {
                name: "errors",
                id: TopicId([2; 16]),
                partitions: vec![misled, partition(1, None), diverging, both, zero, defaults],
            },
            FetchReplyTopic {
                name: "last",
                id: TopicId([0xff; 16]),
                partitions: vec![partition(0, Some(2))],
            },
        ],
        node_endpoints: vec![
            NodeEndpoint { broker: BrokerId(3), host: "h".repeat(130), port: 9092, rack: None },
            NodeEndpoint {
                broker: BrokerId(0),
                host: String::new(),
                port: -1,
                rack: Some("r".into()),
            },
        ],
    }
}

/// The same response for the generated encoder.
fn generated(of: &FetchReply<'_>, version: i16) -> FetchResponse {
    let mut response = FetchResponse::default();
    response.throttle_time_ms = of.throttle_time_ms;
    response.error_code = of.error_code;
    if version >= 7 {
        response.session_id = of.session_id;
    }
    if version >= 16 {
        response.node_endpoints = of.node_endpoints.iter().map(generated_endpoint).collect();
    }
    for topic in &of.topics {
        let mut out = fetch_response::FetchableTopicResponse::default();
        if version >= 13 {
            out.topic_id = Uuid::from_bytes(topic.id.0);
        } else {
            out.topic = topic.name.into();
        }
        for partition in &topic.partitions {
            let mut data = fetch_response::PartitionData::default();
            data.partition_index = partition.index;
            data.error_code = partition.error_code;
            data.high_watermark = partition.high_watermark;
            data.last_stable_offset = partition.last_stable_offset;
            data.log_start_offset = partition.log_start_offset;
            data.aborted_transactions = None;
            data.records = Some(match partition.records {
                Records::Segment { slot, len } if len > 0 => record_bytes(slot),
                _ => Bytes::new(),
            });
            if version >= 12 {
                if let Some((leader, epoch)) = partition.current_leader {
                    data.current_leader.leader_id = leader.0;
                    data.current_leader.leader_epoch = epoch.0;
                }
                if let Some((epoch, end)) = partition.diverging_epoch {
                    data.diverging_epoch.epoch = epoch.0;
                    data.diverging_epoch.end_offset = end.0;
                }
            }
            out.partitions.push(data);
        }
        response.responses.push(out);
    }
    response
}

fn generated_endpoint(of: &NodeEndpoint) -> fetch_response::NodeEndpoint {
    let mut endpoint = fetch_response::NodeEndpoint::default();
    endpoint.node_id = of.broker.0;
    endpoint.host = of.host.as_str().into();
    endpoint.port = of.port;
    endpoint.rack = of.rack.as_deref().map(Into::into);
    endpoint
}

#[test]
fn the_segments_joined_are_the_generated_bytes_at_every_version() {
    for version in 4..=17 {
        for of in [FetchReply::default(), example()] {
            let segments = of.write(21, version).unwrap();
            let joined = segments.join(|slot| Some(record_bytes(slot))).unwrap();
            assert_eq!(joined, reply(21, version, &generated(&of, version)).unwrap(), "{version}");
            assert_eq!(segments.len, joined.len(), "the length is known before sending");
        }
    }
}

#[test]
fn an_error_of_the_whole_request_is_written_from_version_7_on() {
    let of = FetchReply { error_code: 70, ..FetchReply::default() };
    for version in 7..=17 {
        let joined = of.write(1, version).unwrap().join(|_| None).unwrap();
        assert_eq!(joined, reply(1, version, &generated(&of, version)).unwrap(), "{version}");
    }
}

#[test]
fn records_are_not_in_the_bytes_but_in_their_slots() {
    let segments = example().write(1, 12).unwrap();
    let slots: Vec<usize> = segments
        .parts
        .iter()
        .filter_map(|part| match part {
            Segment::Records { slot, .. } => Some(*slot),
            Segment::Bytes(_) => None,
        })
        .collect();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7, 2]);
    let heads: usize = segments
        .parts
        .iter()
        .map(|part| if let Segment::Bytes(bytes) = part { bytes.len() } else { 0 })
        .sum();
    assert!(heads < 1200, "{heads}");
    assert_eq!(segments.join(|_| Some(Bytes::from_static(b"wrong"))), None);
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert!(matches!(example().write(1, 18), Err(ReplyError::NotServed { key: 1, version: 18 })));
    assert!(matches!(example().write(1, 3), Err(ReplyError::NotServed { .. })));
    let long = "x".repeat(40_000);
    let named = FetchReply {
        topics: vec![FetchReplyTopic { name: &long, ..FetchReplyTopic::default() }],
        ..FetchReply::default()
    };
    assert!(matches!(named.write(1, 4), Err(ReplyError::FieldTooLong { field: "topic", .. })));
    let mut great = partition(0, None);
    great.records = Records::Segment { slot: 0, len: i32::MAX as usize - 10 };
    let of = FetchReply {
        topics: vec![FetchReplyTopic { partitions: vec![great], ..FetchReplyTopic::default() }],
        ..FetchReply::default()
    };
    assert!(matches!(of.write(1, 12), Err(ReplyError::FrameTooLong { .. })));
}
