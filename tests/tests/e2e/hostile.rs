//! Hostile bytes at both ports: bounded memory, the connection closed, the broker alive.

use std::net::SocketAddr;
use std::time::Duration;

use super::damage::Random;
use super::examples::{each_version, request_frame};
use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Cluster, Options, usage};
use barnabas_tests::kcat;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How much a broker may grow under all that is sent here.
const GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;
const CLOSE_MAX: Duration = Duration::from_secs(20);
/// Damaged and random frames, `BARNABAS_HOSTILE_FRAMES` for a longer run by hand.
const FRAMES: usize = 3_000;
/// Frames between two questions whether others are served.
const FRAMES_A_LOOK: usize = 1_000;

/// A frame with header version 1: length, key, version, correlation id, null client id, body.
fn frame(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&i32::try_from(10 + body.len()).unwrap_or(i32::MAX).to_be_bytes());
    bytes.extend_from_slice(&key.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&7_i32.to_be_bytes());
    bytes.extend_from_slice(&(-1_i16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Sends bytes and reads until the broker closes the connection; how many bytes it answered.
async fn until_closed(address: SocketAddr, bytes: &[u8]) -> Outcome<usize> {
    let mut stream = TcpStream::connect(address).await?;
    // The broker may close while we still write: that is a close, too.
    let _ = stream.write_all(bytes).await;
    let mut answer = [0; 4096];
    let mut answered = 0;
    let closed = async {
        while let Ok(read @ 1..) = stream.read(&mut answer).await {
            answered += read;
        }
    };
    match tokio::time::timeout(CLOSE_MAX, closed).await {
        Ok(()) => Ok(answered),
        Err(_) => Err(format!("not closed after {:?}", &bytes[..bytes.len().min(40)]).into()),
    }
}

/// AlterPartitionReassignments: as many partitions of one topic as a request may name, each to be cancelled.
fn many_cancellations() -> Vec<u8> {
    let count = 99_999_u32;
    // The end of the header, timeout, one topic "t", count + 1 as a varint.
    let mut body = vec![0, 0, 0, 0x75, 0x30, 2, 2, b't', 0xa0, 0x8d, 0x06];
    for index in 0..count {
        body.extend_from_slice(&index.to_be_bytes());
        body.extend_from_slice(&[0, 0]);
    }
    body.extend_from_slice(&[0, 0]);
    frame(45, 0, &body)
}

/// DescribeConfigs of one broker, many times over.
fn many_descriptions() -> Vec<u8> {
    let count = 60_000_u32;
    let mut body = count.to_be_bytes().to_vec();
    for _ in 0..count {
        body.extend_from_slice(&[4, 0, 1, b'1', 0xff, 0xff, 0xff, 0xff]);
    }
    body.push(1);
    frame(32, 1, &body)
}

/// Sends a frame and reads the whole answer; how many bytes it has.
async fn answered(address: SocketAddr, bytes: &[u8]) -> Outcome<usize> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut answer = vec![0; usize::try_from(stream.read_i32().await?).unwrap_or(0)];
        stream.read_exact(&mut answer).await
    };
    Ok(tokio::time::timeout(CLOSE_MAX, exchange).await??)
}

/// Frames of every key and version that is served, and of some that are not, each damaged or all random. Some of them are
/// sound enough to be answered; in any case the connection ends with its client.
async fn damaged_frames(cluster: &Cluster, kafka: SocketAddr) -> Outcome<()> {
    let given = std::env::var("BARNABAS_HOSTILE_FRAMES").ok().and_then(|text| text.parse().ok());
    let frames: usize = given.unwrap_or(FRAMES);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut examples = Vec::new();
    each_version(|key, version| examples.push((key, version)));
    for n in 0..frames {
        let (key, version) = examples[n % examples.len()];
        let mut bytes = request_frame(key, version).to_vec();
        match random.below(4) {
            0 => {
                let body: Vec<u8> =
                    (0..random.below(200)).map(|_| random.next().to_le_bytes()[0]).collect();
                let key = i16::try_from(random.below(80))?;
                bytes = frame(key, i16::try_from(random.below(20))?, &body);
            }
            1 => random.damage(&mut bytes),
            _ => {
                // The head stays whole, so that the damage reaches the decoders of the body.
                let mut body = bytes.split_off(20.min(bytes.len()));
                random.damage(&mut body);
                bytes.extend_from_slice(&body);
                let size = u32::try_from(bytes.len() - 4)?;
                bytes[..4].copy_from_slice(&size.to_be_bytes());
            }
        }
        let mut stream = TcpStream::connect(kafka).await?;
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(CLOSE_MAX, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "not closed after frame {n}: {key} {version}, {bytes:?}");
        if n % FRAMES_A_LOOK == 0 {
            kcat::metadata(&cluster.bootstrap(), None)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_frames_close_the_connection_in_bounded_memory() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        brokers: 1,
        // A damaged name is no reason to make a topic.
        config: "auto.create.topics.enable: false\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let kafka: SocketAddr = cluster.broker(1).config().listener.to_string().parse()?;
    let pid = cluster.broker(1).pid()?;
    let (before, _) = usage(pid)?;

    let many = i32::MAX.to_be_bytes();
    let compact_many = [0xff, 0xff, 0xff, 0xff, 0x0f];
    // acks, timeout, count of topics; with and without the null transactional id before.
    let produce_v8 = [&[0xff, 0xff, 0xff, 0xff, 0, 0, 0x75, 0x30][..], &many].concat();
    let produce_v9 = [&[0, 0, 0xff, 0xff, 0, 0, 0x75, 0x30][..], &compact_many].concat();
    let lengths = [i32::MAX, -1, i32::MIN, 0, 3];
    let mut hostile: Vec<Vec<u8>> =
        lengths.iter().map(|length| length.to_be_bytes().to_vec()).collect();
    hostile.extend([
        frame(0, 8, &produce_v8),
        frame(0, 9, &produce_v9),
        frame(3, 1, &many),
        frame(3, 12, &[&[0][..], &compact_many].concat()),
        frame(1, 11, &[&[0xff; 12][..], &[0; 17], &many].concat()),
        frame(2, 2, &[&[0xff; 4][..], &[0], &many].concat()),
        frame(0, 8, &[0x80, 0x00]),
        frame(9999, 0, b""),
        frame(-1, -1, b""),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
    ]);
    for bytes in &hostile {
        // Bytes that promise more than they hold are closed when the sender gives up, the rest at once.
        let mut stream = TcpStream::connect(kafka).await?;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(CLOSE_MAX, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "not closed after {bytes:?}");
    }
    for length in [i32::MAX, -1, i32::MIN] {
        // Refused before the body comes: nobody has to hang up.
        let bytes = [&length.to_be_bytes()[..], &[0, 3, 0, 1]].concat();
        assert_eq!(until_closed(kafka, &bytes).await?, 0, "length {length}");
    }

    damaged_frames(&cluster, kafka).await?;

    // Sound requests, and as large as may be: they take neither minutes nor a multiple of memory.
    assert!(answered(kafka, &many_cancellations()).await? < 16 * 1024 * 1024);
    assert!(answered(kafka, &many_descriptions()).await? < 16 * 1024 * 1024);

    let grpc: SocketAddr = cluster.broker(1).config().admin_listener.to_string().parse()?;
    for bytes in [
        &[0xff; 64][..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = TcpStream::connect(grpc).await?;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(CLOSE_MAX, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the gRPC port holds a connection open after {bytes:?}");
    }

    assert!(cluster.broker(1).runs(), "{}", cluster.broker(1).last_log_line());
    let (after, _) = usage(pid)?;
    assert!(after < before + GROWTH_BYTES_MAX, "grew from {before} to {after} bytes");
    kcat::metadata(&cluster.bootstrap(), None)?;
    Ok(())
}
