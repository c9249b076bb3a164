//! G2: every request at every version, with what is there and with what is not, is answered in its own version; what is not
//! served is refused as Kafka refuses it.

use std::net::SocketAddr;
use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options};
use barnabas_wire::messages::ApiVersionsRequest;
use barnabas_wire::{ApiKey, SERVED, decode_response, encode_request};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::examples::{each_version, example, produce};
use super::topic;

const ANSWER_MAX: Duration = Duration::from_secs(20);
const UNSUPPORTED_VERSION: i16 = 35;

async fn send(stream: &mut TcpStream, frame: &[u8]) -> Outcome<Bytes> {
    stream.write_all(frame).await?;
    let answer = async {
        let size = stream.read_u32().await?;
        let mut answer = size.to_be_bytes().to_vec();
        answer.resize(4 + usize::try_from(size).unwrap_or(0), 0);
        stream.read_exact(&mut answer[4..]).await?;
        Ok::<_, std::io::Error>(Bytes::from(answer))
    };
    Ok(tokio::time::timeout(ANSWER_MAX, answer).await??)
}

/// One connection takes them all, one after the other.
async fn ask_everything(kafka: SocketAddr, skipped: &[ApiKey]) -> Outcome<()> {
    let mut examples = Vec::new();
    each_version(|key, version| examples.push((key, version)));
    let mut stream = TcpStream::connect(kafka).await?;
    for (key, version) in examples {
        if skipped.contains(&key) {
            continue;
        }
        let (frame, read) = example(key, version);
        let answer = send(&mut stream, &frame).await;
        let answer = answer.map_err(|error| format!("{key} {version}: {error}"))?;
        let correlation_id = read(version, answer).map_err(|e| format!("{key} {version}: {e}"))?;
        assert_eq!(correlation_id, 77, "{key} {version}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_every_request_is_answered_in_its_own_version() -> Outcome<()> {
    let options = Options {
        brokers: 1,
        config: "auto.create.topics.enable: false\n".to_owned(),
        ..Options::default()
    };
    let mut cluster = Cluster::start(options).await?;
    let kafka: SocketAddr = cluster.broker(1).config().listener.to_string().parse()?;
    ask_everything(kafka, &[]).await?;
    let there = NewTopic { name: "orders", partitions: 3, replication_factor: 1, configs: &[] };
    topic(&cluster, there).await?;
    ask_everything(kafka, &[ApiKey::DeleteTopics]).await?;

    for version in 0..=127 {
        let mut stream = TcpStream::connect(kafka).await?;
        let newest = ApiKey::ApiVersions.api().max;
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request.client_software_name = "client".into();
            request.client_software_version = "1".into();
        }
        let mut frame = encode_request(5, "c", version.min(newest), &request)?.to_vec();
        frame[6..8].copy_from_slice(&version.to_be_bytes());
        let answer = send(&mut stream, &frame).await?;
        let read_at = if version <= newest { version } else { 0 };
        let (_, response) = decode_response::<ApiVersionsRequest>(read_at, answer)?;
        let expected = if version <= newest { 0 } else { UNSUPPORTED_VERSION };
        assert_eq!((response.error_code, response.api_keys.len()), (expected, SERVED.len()));
        // The connection stays open for a version that both know.
        send(&mut stream, &encode_request(6, "c", 0, &ApiVersionsRequest::default())?).await?;
    }

    for row in SERVED.iter().filter(|row| row.key != ApiKey::ApiVersions) {
        let (frame, _) = example(row.key, row.max);
        for version in [row.max + 1, i16::MAX, -1] {
            let mut frame = frame.to_vec();
            frame[6..8].copy_from_slice(&version.to_be_bytes());
            let mut stream = TcpStream::connect(kafka).await?;
            let answer = send(&mut stream, &frame).await;
            assert!(answer.is_err(), "{} {version} is answered", row.key);
        }
    }
    let mut unanswered = produce();
    unanswered.acks = 0;
    let mut stream = TcpStream::connect(kafka).await?;
    // Records that are none, at acks=0: no answer, and the connection ends.
    assert!(send(&mut stream, &encode_request(1, "c", 9, &unanswered)?).await.is_err());
    assert!(cluster.broker(1).runs(), "{}", cluster.broker(1).last_log_line());
    Ok(())
}
