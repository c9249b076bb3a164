//! The replica fetch, both ways.

use barnabas_types::{BrokerId, ClusterId, LeaderEpoch, Offset};
use barnabas_wire::{
    ApiKey, FrameError, PARTITION_INDEX_MAX, PositionEcho, RecordSlot, ReplicaFetchOutcome,
    ReplicaFetchPartition, ReplicaFetchReply, ReplicaFetchRequest, ReplicaFetchResponse,
    ReplyError, Request, Segment, response_len, split,
};
use bytes::{BufMut, Bytes, BytesMut};

use super::damage::Random;
use super::examples::replica_fetch as request;

fn records(slot: usize) -> Bytes {
    Bytes::from(vec![slot as u8; 100 + slot])
}

fn response() -> ReplicaFetchReply {
    let partition = |index, outcome| ReplicaFetchPartition {
        index,
        echo: PositionEcho {
            czxid: 0x1_0000_0002,
            leader_epoch: LeaderEpoch(4),
            last_epoch: (index > 1).then_some(LeaderEpoch(3)),
            log_end: Offset(77),
        },
        outcome,
    };
    let with_records = |slot, len| ReplicaFetchOutcome::Records {
        high_watermark: Offset(80),
        log_start: Offset(2),
        records: RecordSlot { slot, len },
    };
    ReplicaFetchReply {
        error_code: 0,
        partitions: vec![
            partition(0, with_records(8, 108)),
            partition(1, with_records(0, 0)),
            partition(2, ReplicaFetchOutcome::Diverging { epoch: LeaderEpoch(2), end: Offset(50) }),
            partition(3, ReplicaFetchOutcome::Reset { log_start: Offset(60) }),
            partition(4, ReplicaFetchOutcome::Refused { error_code: 74 }),
            partition(199_999, with_records(4, 104)),
        ],
    }
}

/// What the follower reads of a reply.
fn received(reply: &ReplicaFetchReply) -> ReplicaFetchResponse<Bytes> {
    let outcome = |outcome: &ReplicaFetchOutcome<RecordSlot>| match *outcome {
        ReplicaFetchOutcome::Records {
            high_watermark,
            log_start,
            records: RecordSlot { slot, len },
        } => {
            let records = if len == 0 { Bytes::new() } else { records(slot) };
            ReplicaFetchOutcome::Records { high_watermark, log_start, records }
        }
        ReplicaFetchOutcome::Diverging { epoch, end } => {
            ReplicaFetchOutcome::Diverging { epoch, end }
        }
        ReplicaFetchOutcome::Reset { log_start } => ReplicaFetchOutcome::Reset { log_start },
        ReplicaFetchOutcome::Refused { error_code } => ReplicaFetchOutcome::Refused { error_code },
    };
    ReplicaFetchResponse {
        error_code: reply.error_code,
        partitions: reply
            .partitions
            .iter()
            .map(|p| ReplicaFetchPartition {
                index: p.index,
                echo: p.echo,
                outcome: outcome(&p.outcome),
            })
            .collect(),
    }
}

#[test]
fn r15_a_request_carries_the_whole_position() {
    let asked = request();
    let bytes = asked.encode(31, "broker-2").unwrap();
    assert!(bytes.len() <= asked.encoded_bytes() + "broker-2".len());
    let frame = split(bytes).unwrap();
    assert_eq!((frame.key, frame.version, frame.correlation_id), (ApiKey::ReplicaFetch, 0, 31));
    assert_eq!(frame.client_id.as_deref(), Some("broker-2"));
    assert_eq!(Request::decode(&frame), Ok(Request::ReplicaFetch(asked)));
}

#[test]
fn an_idle_session_is_small() {
    let asked = ReplicaFetchRequest {
        full: false,
        overtakes: false,
        forgotten: Vec::new(),
        introduced: Vec::new(),
        positions: Vec::new(),
        ..request()
    };
    let bytes = asked.encode(1, "broker-2").unwrap();
    assert!(bytes.len() < 110, "{}", bytes.len());
    assert_eq!(Request::decode(&split(bytes).unwrap()), Ok(Request::ReplicaFetch(asked)));
}

#[test]
fn r31_a_response_echoes_the_position_that_it_answers() {
    let sent = response();
    let segments = sent.encode(99).unwrap();
    let slots = segments.parts.iter().filter(|p| matches!(p, Segment::Records { .. })).count();
    assert_eq!(slots, 2);
    let frame = segments.join(|slot| Some(records(slot))).unwrap();
    assert_eq!(segments.len, frame.len());
    assert_eq!(response_len(&frame, 1 << 20), Ok(Some(frame.len())));
    assert_eq!(response_len(&frame[..3], 1 << 20), Ok(None));
    assert!(matches!(response_len(&frame, 100), Err(FrameError::TooLong { .. })));
    let (correlation_id, read) = ReplicaFetchResponse::decode(&frame).unwrap();
    assert_eq!(correlation_id, 99);
    assert_eq!(read, received(&sent));
}

#[test]
fn a_refusal_of_the_whole_request_is_read_back() {
    let frame = ReplicaFetchResponse::refused(77).encode(2).unwrap().join(|_| None).unwrap();
    let (_, read) = ReplicaFetchResponse::decode(&frame).unwrap();
    assert_eq!(read, ReplicaFetchResponse { error_code: 77, partitions: Vec::new() });
}

#[test]
fn every_cut_of_a_request_or_response_is_refused() {
    let body = split(request().encode(1, "b").unwrap()).unwrap().body;
    for end in 0..body.len() {
        assert!(ReplicaFetchRequest::decode(body.slice(..end)).is_err(), "{end}");
    }
    let longer = [&body[..], &[0]].concat();
    assert!(ReplicaFetchRequest::decode(Bytes::from(longer)).is_err());
    let frame = response().encode(1).unwrap().join(|slot| Some(records(slot))).unwrap();
    for end in 0..frame.len() {
        let mut cut = BytesMut::from(&frame[..end]);
        if let Some(size) = cut.first_chunk_mut::<4>() {
            *size = (end as i32 - 4).to_be_bytes();
        }
        assert!(ReplicaFetchResponse::decode(&cut.freeze()).is_err(), "{end}");
    }
}

#[test]
fn counts_are_checked_before_anything_is_reserved() {
    let head_len = {
        let empty = ReplicaFetchRequest {
            forgotten: Vec::new(),
            introduced: Vec::new(),
            positions: Vec::new(),
            ..request()
        };
        split(empty.encode(1, "b").unwrap()).unwrap().body.len() - 12
    };
    let head = split(request().encode(1, "b").unwrap()).unwrap().body.slice(..head_len);
    for counts in [[i32::MAX, 0, 0], [0, i32::MAX, 0], [0, 0, i32::MAX], [-1, 0, 0], [0, 0, 1]] {
        let mut body = BytesMut::from(&head[..]);
        counts.iter().for_each(|count| body.put_i32(*count));
        let error = ReplicaFetchRequest::decode(body.freeze()).unwrap_err();
        assert!(matches!(error, FrameError::Malformed { .. }), "{counts:?}: {error}");
    }
    let mut frame = BytesMut::new();
    frame.put_slice(&[0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    assert!(ReplicaFetchResponse::decode(&frame.freeze()).is_err());
    for short in [&[][..], &[0], &[0, 0, 0, 0], &[0xff; 4], &[0, 0, 0, 3, 0, 0, 0]] {
        assert!(ReplicaFetchResponse::decode(&Bytes::from_static(short)).is_err());
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let decoded = |change: &dyn Fn(&mut ReplicaFetchRequest)| {
        let mut asked = request();
        change(&mut asked);
        Request::decode(&split(asked.encode(1, "b").unwrap()).unwrap())
    };
    assert!(decoded(&|_| ()).is_ok());
    assert!(decoded(&|r| r.follower = BrokerId(-1)).is_err());
    assert!(decoded(&|r| r.max_bytes = -1).is_err());
    assert!(decoded(&|r| r.positions[0].index = PARTITION_INDEX_MAX).is_err());
    assert!(decoded(&|r| r.positions[0].last_epoch = Some(LeaderEpoch(-2))).is_err());
    assert!(decoded(&|r| r.positions[0].log_end = Offset(-1)).is_err());
    assert!(decoded(&|r| r.introduced[0].partition = -3).is_err());
    let mut long = request();
    long.cluster_id = ClusterId("x".repeat(65));
    assert!(matches!(
        long.encode(1, "b"),
        Err(ReplyError::FieldTooLong { field: "cluster id", .. })
    ));
}

#[test]
fn a_topic_name_is_checked_before_anyone_sees_it() {
    let mut bytes = request().encode(1, "b").unwrap().to_vec();
    let at = bytes.windows(6).position(|w| w == b"orders").unwrap();
    bytes[at..at + 3].copy_from_slice(b"../");
    let error = Request::decode(&split(Bytes::from(bytes)).unwrap()).unwrap_err();
    assert!(matches!(error, FrameError::Malformed { what: "topic", .. }), "{error}");
}

#[test]
fn damaged_responses_never_panic() {
    let frame = response().encode(1).unwrap().join(|slot| Some(records(slot))).unwrap();
    let mut random = Random(7);
    for _ in 0..20_000 {
        let mut body = frame[4..].to_vec();
        for _ in 0..=random.below(3) {
            random.damage(&mut body);
        }
        let damaged = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
        let _ = ReplicaFetchResponse::decode(&Bytes::from(damaged));
    }
}
