//! The records of `__consumer_offsets` against bytes that Kafka 4.0.2's own classes wrote.

use proptest::prelude::*;

use crate::record::{GroupMetadata, Key, MemberMetadata, OffsetCommit};

/// OffsetCommitValue, versions 0 to 4.
const OFFSET_COMMITS: [&str; 5] = [
    "00000000001cbe991a1400056dc3a974610000018bcfe5687b",
    "00010000001cbe991a1400056dc3a974610000018bcfe5687b0000018bcfee903b",
    "00020000001cbe991a1400056dc3a974610000018bcfe5687b",
    "00030000001cbe991a140000000500056dc3a974610000018bcfe5687b",
    "00040000001cbe991a1400000005066dc3a974610000018bcfe5687b00",
];

/// GroupMetadataValue, versions 0 to 4.
const GROUPS: [&str; 5] = [
    "00000008636f6e73756d657200000007000572616e676500036d2d310000000200036d2d31000163000a2f3132372e302e302e3100002710\
     0000000300010200000002030400036d2d32000000042f3a3a3100001770000000010500000000",
    "00010008636f6e73756d657200000007000572616e676500036d2d310000000200036d2d31000163000a2f3132372e302e302e310000ea60\
     000027100000000300010200000002030400036d2d32000000042f3a3a310000753000001770000000010500000000",
    "00020008636f6e73756d657200000007000572616e676500036d2d310000018bcfe5687b0000000200036d2d31000163000a2f3132372e30\
     2e302e310000ea60000027100000000300010200000002030400036d2d32000000042f3a3a310000753000001770000000010500000000",
    "00030008636f6e73756d657200000007000572616e676500036d2d310000018bcfe5687b0000000200036d2d3100026931000163000a2f31\
     32372e302e302e310000ea60000027100000000300010200000002030400036d2d32ffff000000042f3a3a31000075300000177000000001\
     0500000000",
    "000409636f6e73756d6572000000070672616e6765046d2d310000018bcfe5687b03046d2d3103693102630b2f3132372e302e302e310000\
     ea60000027100400010203030400046d2d320001052f3a3a3100007530000017700205010000",
];

/// A group without members, versions 3 and 4.
const EMPTY_GROUPS: [&str; 2] = [
    "00030008636f6e73756d657200000008ffffffff0000018bcfe5687b00000000",
    "000409636f6e73756d65720000000800000000018bcfe5687b0100",
];

const WRITTEN_MS: i64 = 1_700_000_000_123;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn commit(version: usize) -> OffsetCommit {
    OffsetCommit {
        offset: 123_456_789_012,
        leader_epoch: (version >= 3).then_some(5),
        metadata: "méta".to_owned(),
        commit_timestamp_ms: WRITTEN_MS,
        expire_timestamp_ms: (version == 1).then_some(1_700_000_600_123),
    }
}

fn group(version: usize) -> GroupMetadata {
    let first = MemberMetadata {
        member_id: "m-1".into(),
        instance_id: (version >= 3).then(|| "i1".into()),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout_ms: (version >= 1).then_some(60_000),
        session_timeout_ms: 10_000,
        subscription: vec![0, 1, 2].into(),
        assignment: vec![3, 4].into(),
    };
    let second = MemberMetadata {
        member_id: "m-2".into(),
        instance_id: None,
        client_id: "".into(),
        client_host: "/::1".into(),
        rebalance_timeout_ms: (version >= 1).then_some(30_000),
        session_timeout_ms: 6_000,
        subscription: vec![5].into(),
        assignment: vec![].into(),
    };
    GroupMetadata {
        protocol_type: "consumer".into(),
        generation: 7,
        protocol: Some("range".into()),
        leader: Some("m-1".into()),
        state_since_ms: (version >= 2).then_some(WRITTEN_MS),
        members: vec![first, second],
    }
}

fn empty_group() -> GroupMetadata {
    GroupMetadata { generation: 8, protocol: None, leader: None, members: Vec::new(), ..group(3) }
}

#[test]
fn keys_are_kafkas() {
    let offset = Key::Offset { group: "grüppe".into(), topic: "topic".into(), partition: 12 };
    for hex in [
        "000000076772c3bc7070650005746f7069630000000c",
        "000100076772c3bc7070650005746f7069630000000c",
    ] {
        assert_eq!(Key::decode(&bytes(hex)).unwrap(), offset);
    }
    assert_eq!(
        &Key::offset("grüppe", "topic", 12)[..],
        bytes("000100076772c3bc7070650005746f7069630000000c")
    );
    let hex = "000200076772c3bc707065";
    assert_eq!(Key::decode(&bytes(hex)).unwrap(), Key::Group { group: "grüppe".into() });
    assert_eq!(&Key::group("grüppe")[..], bytes(hex));
    assert_eq!(Key::decode(&[0, 11, 1]).unwrap(), Key::Unknown { version: 11 });
}

#[test]
fn values_of_every_version_are_read() {
    for (version, hex) in OFFSET_COMMITS.iter().enumerate() {
        assert_eq!(
            OffsetCommit::decode(&bytes(hex)).unwrap(),
            commit(version),
            "version {version}"
        );
    }
    for (version, hex) in GROUPS.iter().enumerate() {
        assert_eq!(
            GroupMetadata::decode(&bytes(hex)).unwrap(),
            group(version),
            "version {version}"
        );
    }
    for hex in EMPTY_GROUPS {
        assert_eq!(GroupMetadata::decode(&bytes(hex)).unwrap(), empty_group());
    }
}

#[test]
fn values_are_written_as_kafka_writes_them() {
    assert_eq!(&commit(3).encode()[..], bytes(OFFSET_COMMITS[3]));
    assert_eq!(&commit(1).encode()[..], bytes(OFFSET_COMMITS[1]));
    assert_eq!(&group(3).encode()[..], bytes(GROUPS[3]));
    assert_eq!(&empty_group().encode()[..], bytes(EMPTY_GROUPS[0]));
}

#[test]
fn a_cut_record_is_damaged_and_nothing_worse() {
    for hex in OFFSET_COMMITS {
        let whole = bytes(hex);
        for end in 0..whole.len() {
            assert!(OffsetCommit::decode(&whole[..end]).is_err(), "{hex} cut at {end}");
        }
    }
    for hex in GROUPS {
        let whole = bytes(hex);
        for end in 0..whole.len() {
            assert!(GroupMetadata::decode(&whole[..end]).is_err(), "{hex} cut at {end}");
        }
    }
}

#[test]
fn a_member_count_is_no_reason_to_allocate() {
    let mut record = bytes(EMPTY_GROUPS[0]);
    let end = record.len();
    record[end - 4..].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(GroupMetadata::decode(&record), Err(crate::DamagedRecord::Length));
}

#[test]
fn the_subscription_is_read_from_its_first_version_on() {
    let of = |topics: &[&str]| super::world::protocol("p", topics).metadata;
    let topics = crate::subscription::topics(&of(&["a", "bc"])).unwrap();
    assert_eq!(topics, ["a".into(), "bc".into()]);
    let whole = of(&["a", "bc"]);
    for end in 0..13 {
        assert_eq!(crate::subscription::topics(&whole[..end]), None, "cut at {end}");
    }
    let mut huge = whole.to_vec();
    huge[2..6].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(crate::subscription::topics(&huge), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(key in any::<Vec<u8>>(), value in any::<Vec<u8>>(), version in 0u8..6) {
        let versioned = [&[0, version], &value[..]].concat();
        let mut groups = crate::Groups::loading(super::world::settings());
        for key in [&key[..], &Key::group("g"), &Key::offset("g", "t", 0)] {
            for value in [None, Some(&value[..]), Some(&versioned[..])] {
                groups.replay(key, value);
            }
        }
        let mut effects = crate::Effects::default();
        let moment = crate::Moment { now: barnabas_types::Now(5), wall_ms: 5 };
        groups.loaded(moment, &mut effects);
        groups.step(moment, crate::Event::Tick, &mut effects);
    }

    #[test]
    fn what_is_written_is_read_again(offset in any::<i64>(), epoch in proptest::option::of(0..i32::MAX),
        metadata in ".{0,40}", expire in proptest::option::of(0..i64::MAX)) {
        let commit = OffsetCommit {
            offset,
            leader_epoch: epoch.filter(|_| expire.is_none()),
            metadata,
            commit_timestamp_ms: 1,
            expire_timestamp_ms: expire,
        };
        prop_assert_eq!(OffsetCommit::decode(&commit.encode()).unwrap(), commit);
    }
}
