//! Questions over the Kafka protocol, to the broker that can answer them: what Kafka's own tools ask, these commands ask likewise.

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_proto::v1::{DescribeClusterRequest, DescribeTopicsRequest};
use barnabas_wire::messages::ListOffsetsRequest;
use barnabas_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use barnabas_wire::{KafkaRequest, RequestResponsePair, decode_response, encode_request};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ask::{ask, runtime};
use super::topic::absent;
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

/// The first and the last offset of a partition, as ListOffsets asks for them.
pub(super) const EARLIEST: i64 = -2;
/// See [`EARLIEST`].
pub(super) const LATEST: i64 = -1;

/// Partitions by topic and index.
pub(super) type ByPartition<T> = BTreeMap<(String, i32), T>;

/// A cluster whose brokers are asked.
pub(super) struct Cluster<'a> {
    asking: &'a Asking,
    brokers: BTreeMap<i32, String>,
}

impl<'a> Cluster<'a> {
    pub(super) fn of(asking: &'a Asking) -> Result<Self, CliError> {
        Ok(Self { asking, brokers: brokers(asking)? })
    }

    /// The ids of its brokers.
    pub(super) fn brokers(&self) -> impl Iterator<Item = i32> + '_ {
        self.brokers.keys().copied()
    }

    /// Asks one of its brokers.
    pub(super) fn call<Q>(
        &self,
        broker: i32,
        version: i16,
        request: &Q,
    ) -> Result<Q::Response, CliError>
    where
        Q: KafkaRequest + RequestResponsePair,
    {
        let address = self.brokers.get(&broker).ok_or_else(|| {
            CliError::Unreachable(format!("broker {broker} is not registered now; try again"))
        })?;
        exchange(address, version, request).map_err(|error| {
            CliError::Unreachable(format!(
                "broker {broker} at {address} did not answer ({error}); try again"
            ))
        })
    }

    /// Leaders of all partitions of these topics; a topic that is not there is an error.
    pub(super) fn leaders(&self, topics: &[String]) -> Result<ByPartition<i32>, CliError> {
        let request = DescribeTopicsRequest { names: topics.to_vec() };
        let known =
            ask(self.asking, |mut client| async move { client.describe_topics(request).await })?;
        if let Some(missing) = known.missing.first() {
            return Err(absent(missing));
        }
        let mut leaders = BTreeMap::new();
        for topic in known.topics {
            for partition in topic.partitions {
                let leader = partition.state.as_ref().map_or(-1, |state| state.leader);
                leaders.insert((topic.name.clone(), partition.index), leader);
            }
        }
        Ok(leaders)
    }

    /// The offsets at a time (ms since 1970, [`EARLIEST`] or [`LATEST`]); `None` where nothing is that young. Partitions whose
    /// leaders do not answer are left out.
    pub(super) fn offsets(
        &self,
        leaders: &ByPartition<i32>,
        timestamp: i64,
    ) -> Result<ByPartition<Option<i64>>, CliError> {
        let mut of_broker: BTreeMap<i32, ByPartition<()>> = BTreeMap::new();
        for (partition, leader) in leaders {
            of_broker.entry(*leader).or_default().insert(partition.clone(), ());
        }
        let mut found = BTreeMap::new();
        for (broker, partitions) in of_broker.into_iter().filter(|(broker, _)| *broker >= 0) {
            let mut request = ListOffsetsRequest::default();
            request.replica_id = -1;
            for (name, index) in partitions.into_keys() {
                if request.topics.last().is_none_or(|topic| topic.name.as_str() != name) {
                    let mut topic = ListOffsetsTopic::default();
                    topic.name = name.as_str().into();
                    request.topics.push(topic);
                }
                let mut partition = ListOffsetsPartition::default();
                partition.partition_index = index;
                partition.current_leader_epoch = -1;
                partition.timestamp = timestamp;
                if let Some(topic) = request.topics.last_mut() {
                    topic.partitions.push(partition);
                }
            }
            for topic in self.call(broker, 5, &request)?.topics {
                for partition in topic.partitions.iter().filter(|p| p.error_code == 0) {
                    let at = (topic.name.as_str().to_owned(), partition.partition_index);
                    found.insert(at, Some(partition.offset).filter(|offset| *offset >= 0));
                }
            }
        }
        Ok(found)
    }
}
