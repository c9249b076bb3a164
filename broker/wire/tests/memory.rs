//! Peak memory of the worst frames that pass the frame limits. A process of its own, because the peak is one number.

use barnabas_wire::{ApiKey, FrameLimits, Peek, Request, peek, split};
use bytes::{BufMut, Bytes, BytesMut};

const MIB: usize = 1024 * 1024;

/// A frame of `total` bytes: `head`, then as often as it fits `element`, whose number `count` writes between the two.
fn crowded(
    (key, version): (ApiKey, i16),
    total: usize,
    head: &[u8],
    elements_max: usize,
    element: &[u8],
    tail: &[u8],
) -> Bytes {
    let flexible = key.api().is_flexible(version);
    let mut bytes = BytesMut::with_capacity(total);
    bytes.put_i32(0);
    bytes.put_i16(key.number());
    bytes.put_i16(version);
    bytes.put_i32(1);
    bytes.put_i16(-1);
    if flexible {
        bytes.put_u8(0);
    }
    bytes.put_slice(head);
    let room = total - bytes.len() - 5 - tail.len();
    let count = (room / element.len()).min(elements_max);
    put_count(&mut bytes, flexible, count);
    (0..count).for_each(|_| bytes.put_slice(element));
    bytes.put_slice(tail);
    let size = (bytes.len() - 4) as i32;
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes.freeze()
}

fn put_count(bytes: &mut BytesMut, flexible: bool, count: usize) {
    if !flexible {
        bytes.put_i32(count as i32);
        return;
    }
    let mut rest = count + 1;
    while rest > 0x7f {
        bytes.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.put_u8(rest as u8);
}

/// VmHWM of this process, in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    let kib: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024
}

/// One topic of Produce version 9 with `count` partitions without records.
fn crowded_topic(count: usize) -> Vec<u8> {
    let mut topic = BytesMut::new();
    topic.put_slice(&[2, b't']);
    put_count(&mut topic, true, count);
    (0..count).for_each(|_| topic.put_slice(&[0, 0, 0, 0, 0, 0]));
    topic.put_u8(0);
    topic.to_vec()
}

#[test]
fn the_worst_frames_within_the_limits_take_bounded_memory() {
    let produce_head = [0, 0, 1, 0, 0, 0, 1];
    // name, null assignments and configs are empty arrays: the smallest topic of CreateTopics version 5.
    let create = [1, 0, 0, 0, 0, 0, 0, 1, 1, 0];
    let eight_tags: Vec<u8> =
        [2, b't', 1, 8].into_iter().chain((0..8).flat_map(|tag| [tag, 0])).collect();
    #[allow(clippy::type_complexity)] // a table of one use
    let table: [((ApiKey, i16), usize, Vec<u8>, usize, Vec<u8>, Vec<u8>, bool); 9] = [
        ((ApiKey::Metadata, 1), MIB, vec![], 100_000, vec![0, 0], vec![], true),
        ((ApiKey::Metadata, 1), MIB, vec![], usize::MAX, vec![0, 0], vec![], false),
        ((ApiKey::Metadata, 9), MIB, vec![], 100_000, vec![1, 0], vec![0, 0, 0, 0], true),
        ((ApiKey::DeleteTopics, 4), MIB, vec![], 100_000, vec![1], vec![0, 0, 0, 1, 0], true),
        (
            (ApiKey::CreateTopics, 5),
            MIB,
            vec![],
            100_000,
            create.to_vec(),
            vec![0, 0, 0, 1, 0, 0],
            true,
        ),
        (
            (ApiKey::Produce, 9),
            16 * MIB,
            produce_head.to_vec(),
            10_000,
            vec![1, 1, 0],
            vec![0],
            true,
        ),
        ((ApiKey::Produce, 9), 16 * MIB, produce_head.to_vec(), 10_000, eight_tags, vec![0], true),
        (
            (ApiKey::Produce, 9),
            16 * MIB,
            produce_head.to_vec(),
            1,
            crowded_topic(10_000),
            vec![0],
            true,
        ),
        (
            (ApiKey::Produce, 9),
            16 * MIB,
            produce_head.to_vec(),
            200,
            crowded_topic(9_000),
            vec![0],
            false,
        ),
    ];
    let before = peak_bytes();
    let mut largest = 0;
    for (which, total, head, elements_max, element, tail, accepted) in table {
        let bytes = crowded(which, total, &head, elements_max, &element, &tail);
        let peeked = peek(&bytes, &FrameLimits::default());
        assert!(matches!(peeked, Ok(Peek::Frame { len, .. }) if len == bytes.len()), "{peeked:?}");
        largest = largest.max(bytes.len());
        let decoded = split(bytes).and_then(|frame| Request::decode(&frame));
        assert_eq!(decoded.is_ok(), accepted, "{which:?}: {:?}", decoded.err());
    }
    let grown = peak_bytes() - before;
    // The frames themselves (built with up to twice their size), and 66 times the 1 MiB of everything but Produce.
    assert!(largest > 10 * MIB, "{largest}");
    assert!(grown < 2 * largest + 66 * MIB, "{} MiB", grown / MIB);
}
