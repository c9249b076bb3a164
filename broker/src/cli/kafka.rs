//! One question over the Kafka protocol, to the broker that can answer it: what Kafka's own tools ask, these commands ask likewise.

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_proto::v1::DescribeClusterRequest;
use barnabas_wire::{KafkaRequest, RequestResponsePair, decode_response, encode_request};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ask::{ask, runtime};
use super::{Asking, CliError};

/// How long an answer may take, what the broker itself waits for included.
const ANSWER_MAX: Duration = Duration::from_secs(40);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The brokers' addresses for clients, by id.
pub(super) fn brokers(asking: &Asking) -> Result<BTreeMap<i32, String>, CliError> {
    let request = DescribeClusterRequest {};
    let cluster = ask(asking, |mut client| async move { client.describe_cluster(request).await })?;
    let address = |broker: barnabas_proto::v1::Broker| {
        (broker.id, format!("{}:{}", broker.host, broker.port))
    };
    Ok(cluster.brokers.into_iter().map(address).collect())
}

/// Asks the broker at `address`; why it did not answer, if it did not.
pub(super) fn exchange<Q>(address: &str, version: i16, request: &Q) -> Result<Q::Response, String>
where
    Q: KafkaRequest + RequestResponsePair,
{
    let frame = encode_request(1, "barnabas", version, request).map_err(|e| e.to_string())?;
    let runtime = runtime().map_err(|error| error.to_string())?;
    let answer = runtime.block_on(async {
        match tokio::time::timeout(ANSWER_MAX, answer(address, &frame)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("{} s", ANSWER_MAX.as_secs())),
        }
    })?;
    let (_, response) = decode_response::<Q>(version, answer).map_err(|e| e.to_string())?;
    Ok(response)
}

async fn answer(address: &str, frame: &[u8]) -> std::io::Result<Bytes> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(frame).await?;
    let size = stream.read_u32().await?;
    let len = usize::try_from(size).unwrap_or(usize::MAX);
    if len > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other(format!("an answer of {len} bytes")));
    }
    let mut answer = vec![0; 4 + len];
    answer[..4].copy_from_slice(&size.to_be_bytes());
    stream.read_exact(&mut answer[4..]).await?;
    Ok(Bytes::from(answer))
}
