//! Bytes that nobody sane sends: each is refused with an error, in bounded memory, without a panic.

use barnabas_wire::{ApiKey, FrameError, FrameLimits, Peek, Request, peek, split};
use bytes::{BufMut, Bytes, BytesMut};

use super::damage::Random;
use super::examples::{each_version, request_frame};

/// A frame with a null client id and `body`.
pub(crate) fn frame(key: ApiKey, version: i16, body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    bytes.put_i16(key.number());
    bytes.put_i16(version);
    bytes.put_i32(1);
    bytes.put_i16(-1);
    if key.api().is_flexible(version) {
        bytes.put_u8(0);
    }
    bytes.put_slice(body);
    let size = (bytes.len() - 4) as i32;
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes.freeze()
}

/// The whole way of a frame through the crate.
fn read(bytes: Bytes) -> Result<Request, FrameError> {
    match peek(&bytes, &FrameLimits::default())? {
        Peek::Frame { len, .. } if len == bytes.len() => Request::decode(&split(bytes)?),
        other => panic!("{other:?} of {} bytes", bytes.len()),
    }
}

#[test]
fn counts_that_the_frame_cannot_back_are_refused() {
    const MAX: [u8; 4] = i32::MAX.to_be_bytes();
    let varint_max = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let produce_v8 = [&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &MAX].concat();
    let produce_v9 = [&[0, 0, 1, 0, 0, 0, 1][..], &varint_max].concat();
    let produce_nested =
        [&[0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b't'][..], &MAX].concat();
    let fetch_v11_head =
        [&[0xff; 4][..], &[0, 0, 1, 0], &[0, 0, 0, 1], &[0, 1, 0, 0], &[0]].concat();
    let fetch_v11 = [&fetch_v11_head[..], &[0; 4], &[0xff; 4], &MAX].concat();
    let fetch_nested =
        [&fetch_v11_head[..], &[0; 4], &[0xff; 4], &[0, 0, 0, 1, 0, 1, b't'], &MAX].concat();
    let fifty_million =
        [&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &50_000_000_i32.to_be_bytes()].concat();
    let commit_v2_head = [&[0, 1, b'g', 0, 0, 0, 1, 0, 0][..], &[0; 8]].concat();
    let nested_head = [0, 0, 0, 1, 0, 1, b't'];
    let table: [(ApiKey, i16, Vec<u8>); 35] = [
        (ApiKey::Produce, 8, produce_v8),
        (ApiKey::Produce, 9, produce_v9),
        (ApiKey::Produce, 8, produce_nested),
        (ApiKey::Produce, 8, fifty_million),
        (ApiKey::Metadata, 1, MAX.to_vec()),
        (ApiKey::Metadata, 1, 100_000_000_i32.to_be_bytes().to_vec()),
        (ApiKey::Metadata, 12, varint_max.to_vec()),
        (ApiKey::Fetch, 11, fetch_v11),
        (ApiKey::Fetch, 11, fetch_nested),
        (ApiKey::DeleteTopics, 1, MAX.to_vec()),
        (ApiKey::OffsetCommit, 2, [&commit_v2_head[..], &MAX].concat()),
        (ApiKey::OffsetCommit, 2, [&commit_v2_head[..], &nested_head, &MAX].concat()),
        (ApiKey::OffsetFetch, 1, [&[0, 1, b'g'][..], &MAX].concat()),
        (ApiKey::OffsetFetch, 8, varint_max.to_vec()),
        (ApiKey::FindCoordinator, 4, [&[0][..], &varint_max].concat()),
        (ApiKey::JoinGroup, 0, [&[0, 1, b'g', 0, 0, 9, 9, 0, 0, 0, 0][..], &MAX].concat()),
        (ApiKey::LeaveGroup, 3, [&[0, 1, b'g'][..], &MAX].concat()),
        (ApiKey::SyncGroup, 0, [&[0, 1, b'g', 0, 0, 0, 1, 0, 0][..], &MAX].concat()),
        (ApiKey::DescribeGroups, 0, MAX.to_vec()),
        (ApiKey::ListGroups, 4, varint_max.to_vec()),
        (ApiKey::DeleteGroups, 0, MAX.to_vec()),
        (ApiKey::OffsetDelete, 0, [&[0, 1, b'g'][..], &MAX].concat()),
        (ApiKey::DeleteRecords, 0, MAX.to_vec()),
        (ApiKey::CreateTopics, 7, varint_max.to_vec()),
        (ApiKey::OffsetForLeaderEpoch, 2, MAX.to_vec()),
        (ApiKey::DescribeConfigs, 1, MAX.to_vec()),
        (ApiKey::AlterConfigs, 0, MAX.to_vec()),
        (ApiKey::CreatePartitions, 0, MAX.to_vec()),
        (ApiKey::ElectLeaders, 0, MAX.to_vec()),
        (ApiKey::IncrementalAlterConfigs, 1, varint_max.to_vec()),
        (ApiKey::AlterPartitionReassignments, 0, [&[0, 0, 0, 1][..], &varint_max[..]].concat()),
        (ApiKey::ListPartitionReassignments, 0, [&[0, 0, 0, 1][..], &varint_max[..]].concat()),
        (ApiKey::DescribeLogDirs, 1, MAX.to_vec()),
        (ApiKey::DescribeProducers, 0, varint_max.to_vec()),
        (ApiKey::DescribeTopicPartitions, 0, varint_max.to_vec()),
    ];
    for (key, version, body) in table {
        let error = read(frame(key, version, &body)).expect_err("an unbacked count");
        assert!(matches!(error, FrameError::Body { .. }), "{key} {version}: {error}");
    }
}

#[test]
fn negative_lengths_and_long_varints_are_refused() {
    let table: [(ApiKey, i16, &[u8]); 6] = [
        (ApiKey::Metadata, 1, &[0xff, 0xff, 0xff, 0xfe]),
        (ApiKey::Metadata, 1, &[0, 0, 0, 1, 0xff, 0xfe]),
        (ApiKey::Produce, 3, &[0xff, 0xfe, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
        (
            ApiKey::Produce,
            3,
            &[
                0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0x7f,
                0xff, 0xff, 0xff,
            ],
        ),
        (ApiKey::Metadata, 12, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
        (ApiKey::Metadata, 12, &[0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]),
    ];
    for (key, version, body) in table {
        let error = read(frame(key, version, body)).expect_err("a damaged length");
        assert!(matches!(error, FrameError::Body { .. }), "{key} {version}: {error}");
    }
    let negative_client_id = Bytes::from_static(&[0, 0, 0, 10, 0, 3, 0, 0, 0, 0, 0, 1, 0xff, 0xfe]);
    assert!(matches!(split(negative_client_id), Err(FrameError::Header { .. })));
}

#[test]
fn tagged_fields_are_bounded() {
    let mut header = BytesMut::new();
    header.put_slice(&[0, 0, 0, 0, 0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff]);
    header.put_slice(&[0xa0, 0x8d, 0x06]);
    header.put_bytes(0, 384_000);
    let size = (header.len() - 4) as i32;
    header[..4].copy_from_slice(&size.to_be_bytes());
    let error = split(header.freeze()).expect_err("100,000 tagged fields in a header");
    assert!(matches!(error, FrameError::Header { .. }), "{error}");

    let duplicate = [0, 1, 0, 2, 5, 0, 5, 0];
    assert!(read(frame(ApiKey::Metadata, 12, &duplicate)).is_err());
    let produce_tags: Vec<u8> =
        [0, 0, 1, 0, 0, 0, 1, 1, 9].into_iter().chain((0..9).flat_map(|tag| [tag, 0])).collect();
    assert!(read(frame(ApiKey::Produce, 9, &produce_tags)).is_err(), "at most 8 in Produce");
}

#[test]
fn odd_booleans_are_refused_and_bytes_left_over_are_ignored() {
    // As librdkafka 2.16 sends "all topics": three bytes too many.
    assert!(read(frame(ApiKey::Metadata, 12, &[0, 0, 0, 0, 1, 0, 0])).is_ok());
    assert!(read(frame(ApiKey::Metadata, 4, &[0, 0, 0, 0, 2])).is_err());
    assert!(read(frame(ApiKey::Metadata, 4, &[0, 0, 0, 0, 1])).is_ok());
}

#[test]
fn sizes_are_checked_before_the_body_is_there() {
    let limits = FrameLimits::default();
    let with_size = |size: i32| size.to_be_bytes().to_vec();
    assert_eq!(peek(&[], &limits), Ok(Peek::NeedMore { at_least: 8 }));
    assert_eq!(peek(&[0, 0, 1], &limits), Ok(Peek::NeedMore { at_least: 8 }));
    assert_eq!(peek(&with_size(100), &limits), Ok(Peek::NeedMore { at_least: 8 }));
    assert_eq!(peek(&with_size(-1), &limits), Err(FrameError::NegativeSize { size: -1 }));
    assert_eq!(
        peek(&with_size(i32::MIN), &limits),
        Err(FrameError::NegativeSize { size: i32::MIN })
    );
    for size in 0..10 {
        assert_eq!(peek(&with_size(size), &limits), Err(FrameError::TooShort { size }));
    }
    assert!(matches!(peek(&with_size(i32::MAX), &limits), Err(FrameError::TooLong { .. })));
    let http = peek(b"GET / HTTP/1.1", &limits).unwrap_err().to_string();
    assert!(http.contains("HTTP"), "{http}");
    let tls = peek(&[0x16, 0x03, 0x01, 0x02], &limits).unwrap_err().to_string();
    assert!(tls.contains("TLS"), "{tls}");
}

#[test]
fn each_key_has_its_own_frame_limit() {
    let limits = FrameLimits { replica_fetch_bytes_max: 3000, ..FrameLimits::default() };
    let table = [
        (ApiKey::Produce, 3, 16 * 1024 * 1024),
        (ApiKey::Fetch, 4, 1024 * 1024),
        (ApiKey::ListOffsets, 1, 1024 * 1024),
        (ApiKey::Metadata, 0, 1024 * 1024),
        (ApiKey::OffsetCommit, 2, 1024 * 1024),
        (ApiKey::JoinGroup, 0, 1024 * 1024),
        (ApiKey::Heartbeat, 0, 64 * 1024),
        (ApiKey::ApiVersions, 0, 64 * 1024),
        (ApiKey::CreateTopics, 2, 1024 * 1024),
        (ApiKey::DeleteTopics, 1, 1024 * 1024),
        (ApiKey::DeleteRecords, 0, 1024 * 1024),
        (ApiKey::InitProducerId, 0, 64 * 1024),
        (ApiKey::OffsetForLeaderEpoch, 2, 1024 * 1024),
        (ApiKey::DescribeConfigs, 1, 1024 * 1024),
        (ApiKey::AlterConfigs, 0, 1024 * 1024),
        (ApiKey::CreatePartitions, 0, 1024 * 1024),
        (ApiKey::ElectLeaders, 0, 1024 * 1024),
        (ApiKey::IncrementalAlterConfigs, 0, 1024 * 1024),
        (ApiKey::DescribeLogDirs, 1, 1024 * 1024),
        (ApiKey::DescribeCluster, 0, 64 * 1024),
        (ApiKey::DescribeProducers, 0, 1024 * 1024),
        (ApiKey::DescribeTopicPartitions, 0, 1024 * 1024),
        (ApiKey::ReplicaFetch, 0, 3000),
    ];
    for (key, version, max) in table {
        let head = |size: usize| {
            let mut bytes = BytesMut::new();
            bytes.put_i32(size as i32);
            bytes.put_i16(key.number());
            bytes.put_i16(version);
            bytes
        };
        let let_in = Peek::Frame { len: max + 4, key, version };
        assert_eq!(peek(&head(max), &limits), Ok(let_in), "{key}");
        let refused = peek(&head(max + 1), &limits);
        let above =
            matches!(refused, Err(FrameError::AboveKeyLimit { .. } | FrameError::TooLong { .. }));
        assert!(above, "{key}: {refused:?}");
    }
}

#[test]
fn a_client_listener_refuses_the_replica_fetch() {
    let limits = FrameLimits { replica_fetch_bytes_max: 0, ..FrameLimits::default() };
    let bytes = request_frame(ApiKey::ReplicaFetch, 0);
    assert_eq!(peek(&bytes, &limits), Err(FrameError::ReplicaFetchRefused));
    assert!(peek(&bytes, &FrameLimits::default()).is_ok());
}

#[test]
fn split_wants_exactly_one_frame() {
    let whole = request_frame(ApiKey::Metadata, 1);
    for end in 0..whole.len() {
        assert!(split(whole.slice(..end)).is_err(), "{end}");
    }
    let mut longer = BytesMut::from(&whole[..]);
    longer.put_u8(0);
    assert!(matches!(split(longer.freeze()), Err(FrameError::NotOneFrame { .. })));
}

#[test]
fn a_thousand_damaged_bodies_a_version_never_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0_u32;
    let mut check = |key: ApiKey, version: i16| {
        let whole = split(request_frame(key, version)).unwrap();
        for _ in 0..1000 {
            let mut body = whole.body.to_vec();
            for _ in 0..=random.below(3) {
                random.damage(&mut body);
            }
            accepted += u32::from(read(frame(key, version, &body)).is_ok());
        }
    };
    each_version(&mut check);
    check(ApiKey::ReplicaFetch, 0);
    assert!(accepted > 1000, "the mutations reach the inside of the decoders: {accepted}");
}

#[test]
fn damaged_frames_never_panic() {
    let mut random = Random(42);
    each_version(|key, version| {
        for _ in 0..200 {
            let mut bytes = request_frame(key, version).to_vec();
            random.damage(&mut bytes);
            let _ = peek(&bytes, &FrameLimits::default());
            if let Ok(frame) = split(Bytes::from(bytes)) {
                let _ = Request::decode(&frame);
            }
        }
    });
}
