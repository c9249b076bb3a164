//! Frames in: what real clients may send is let in and read whole.

use barnabas_wire::{ApiKey, FrameError, FrameLimits, Peek, Request, encode_request, peek, split};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_wire::ProduceRequest;
use kafka_wire_core::{ApiVersion, DecodeLimits, KafkaDecode};

use super::examples::{each_version, produce, request_frame};

#[test]
fn every_request_is_read_whole_at_every_version() {
    each_version(|key, version| {
        let bytes = request_frame(key, version);
        let expected = Peek::Frame { len: bytes.len(), key, version };
        assert_eq!(peek(&bytes[..8], &FrameLimits::default()), Ok(expected));
        let frame = split(bytes).unwrap_or_else(|e| panic!("{key} {version}: {e}"));
        assert_eq!((frame.correlation_id, frame.client_id.as_deref()), (77, Some("a client")));
        let request = Request::decode(&frame).unwrap_or_else(|e| panic!("{key} {version}: {e}"));
        let shown = format!("{request:?}");
        assert!(shown.starts_with(key.name()), "{key} {version}: {shown}");
        let has_topic = match key {
            ApiKey::ApiVersions
            | ApiKey::InitProducerId
            | ApiKey::ListGroups
            | ApiKey::DescribeCluster => false,
            ApiKey::Fetch => version < 13,
            _ => true,
        };
        assert_eq!(shown.contains("orders"), has_topic, "{key} {version}: {shown}");
    });
}

#[test]
fn produce_is_read_as_the_generated_decoder_reads_it() {
    for version in 3..=11 {
        let frame = split(request_frame(ApiKey::Produce, version)).unwrap();
        let ours = Request::decode(&frame).unwrap();
        let theirs = ProduceRequest::decode_from_bytes(
            frame.body.clone(),
            ApiVersion::new(version),
            DecodeLimits::default(),
        );
        assert_eq!(ours, Request::Produce(theirs.unwrap()), "{version}");
        assert_eq!(ours, Request::Produce(produce()), "{version}");
    }
}

#[test]
fn records_are_slices_of_the_frame() {
    let bytes = request_frame(ApiKey::Produce, 7);
    let range = bytes.as_ptr_range();
    let Ok(Request::Produce(request)) = Request::decode(&split(bytes).unwrap()) else {
        panic!("not a Produce request");
    };
    let records = request.topic_data[0].partition_data[0].records.clone().unwrap();
    assert!(range.contains(&records.as_ptr()));
}

#[test]
fn a_null_and_a_long_client_id_are_legal() {
    let mut bytes = BytesMut::new();
    bytes.put_i32(10 + 4);
    bytes.put_slice(&[0, 3, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0]);
    let frame = split(bytes.freeze()).unwrap();
    assert_eq!((frame.client_id.clone(), frame.correlation_id), (None, 1));
    assert!(matches!(Request::decode(&frame), Ok(Request::Metadata(_))));

    let long = "ä".repeat(400);
    let request = kafka_wire::ApiVersionsRequest::default();
    let frame = split(encode_request(1, &long, 0, &request).unwrap()).unwrap();
    assert_eq!(frame.client_id, Some("ä".repeat(127)), "cut at a character, at most 255 bytes");
}

#[test]
fn produce_below_3_is_advertised_but_closes_the_connection() {
    for version in 0..3_i16 {
        let mut bytes = BytesMut::new();
        bytes.put_i32(10);
        bytes.put_slice(&[0, 0, 0, version as u8, 0, 0, 0, 1, 0xff, 0xff]);
        let expected =
            FrameError::VersionNotServed { key: ApiKey::Produce, version, min: 3, max: 11 };
        assert_eq!(peek(&bytes, &FrameLimits::default()), Err(expected.clone()));
        assert_eq!(split(bytes.freeze()), Err(expected));
    }
}

#[test]
fn api_versions_of_an_unknown_version_is_answered_without_its_body() {
    for version in [5_i16, 6, 99, i16::MAX] {
        let mut bytes = BytesMut::new();
        // Header version 2: the client id still has a two-byte length, then a tag section; the body is of the future.
        bytes.put_i32(8 + 2 + 1 + 1 + 3);
        bytes.put_slice(&[0, 18]);
        bytes.put_i16(version);
        bytes.put_slice(&[0, 0, 0, 9, 0, 1, b'c', 0, 0xde, 0xad, 0xbe]);
        assert!(matches!(peek(&bytes, &FrameLimits::default()), Ok(Peek::Frame { len: 19, .. })));
        let frame = split(bytes.freeze()).unwrap();
        assert_eq!((frame.correlation_id, frame.client_id.as_deref()), (9, Some("c")));
        assert_eq!(frame.body, Bytes::from_static(&[0xde, 0xad, 0xbe]));
        assert_eq!(Request::decode(&frame), Ok(Request::UnsupportedVersion { version }));
    }
}

#[test]
fn keys_that_are_not_served_close_the_connection() {
    for key in [4_i16, 65, 68, 71, 32000, -1, i16::MIN] {
        let mut bytes = BytesMut::new();
        bytes.put_i32(10);
        bytes.put_i16(key);
        bytes.put_slice(&[0, 0, 0, 0, 0, 1, 0xff, 0xff]);
        let expected = FrameError::UnknownKey { key, version: 0 };
        assert_eq!(peek(&bytes, &FrameLimits::default()), Err(expected));
    }
}
