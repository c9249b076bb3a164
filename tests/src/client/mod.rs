//! A client with one connection that shows what the broker answers: error codes, offsets, and nothing sent again behind one's
//! back. One request is in flight, except for batches that are posted.

mod fetch;
mod groups;
mod produce;

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_wire::messages::{InitProducerIdRequest, MetadataRequest, StrBytes, metadata_request};
use barnabas_wire::{KafkaRequest, RequestResponsePair, decode_response, encode_request};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Outcome;

pub use fetch::{Fetch, Fetched, FetchedRecord};
pub use produce::Terms;

/// Longest wait for an answer, beyond what a produce request itself allows.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Longest wait for an answer about leaders before another broker is asked.
const METADATA_MAX: Duration = Duration::from_secs(1);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a broker said to records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Appended, the first at this offset.
    Appended(i64),
    /// Refused: Kafka's error code, and what the broker said to it.
    Refused(i16, String),
}

impl Answer {
    /// Whether Kafka's clients send again on such an answer.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::Refused(
                2 | 3
                    | 5
                    | 6
                    | 7
                    | 8
                    | 9
                    | 13
                    | 14
                    | 15
                    | 16
                    | 19
                    | 20
                    | 41
                    | 56
                    | 72
                    | 74
                    | 75
                    | 78
                    | 100,
                _
            )
        )
    }
}

/// Who sends the records of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// Producer id.
    pub id: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// Sequence of the first record.
    pub sequence: i32,
}

/// A connection to one broker.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn connect(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, correlation_id: 0 })
    }

    /// Connects to the first of several addresses, comma-separated, that takes a connection.
    ///
    /// # Errors
    /// None does.
    pub async fn bootstrap(addresses: &str) -> Outcome<Self> {
        for address in addresses.split(',') {
            if let Ok(client) = Self::connect(address).await {
                return Ok(client);
            }
        }
        Err(format!("nobody listens at {addresses}").into())
    }

    /// Connects to the leader of a partition as the first of several addresses says that answers in time. Whoever tries again
    /// begins with the next address (`attempt`): one that stands still, or knows nothing new, must not be asked for ever.
    ///
    /// # Errors
    /// None answers, or there is no leader.
    pub async fn of_leader(
        addresses: &str,
        attempt: usize,
        topic: &str,
        partition: i32,
    ) -> Outcome<Self> {
        Self::connect(&Self::leader(addresses, attempt, topic, partition).await?).await
    }

    /// Its address.
    ///
    /// # Errors
    /// None answers, or there is no leader.
    pub async fn leader(
        addresses: &str,
        attempt: usize,
        topic: &str,
        partition: i32,
    ) -> Outcome<String> {
        let addresses: Vec<&str> = addresses.split(',').collect();
        for n in 0..addresses.len() {
            let address = addresses[(attempt + n) % addresses.len()];
            let ask = async { Self::connect(address).await?.leaders(topic).await };
            if let Ok(Ok(mut leaders)) = tokio::time::timeout(METADATA_MAX, ask).await {
                return Ok(leaders.remove(&partition).ok_or("no leader")?);
            }
        }
        Err(format!("nobody answers at {addresses:?}").into())
    }

    async fn ask<Q>(&mut self, version: i16, request: &Q) -> Outcome<Q::Response>
    where
        Q: KafkaRequest + RequestResponsePair,
    {
        self.send(version, request).await?;
        let (correlation_id, response) = self.receive::<Q>(version).await?;
        if correlation_id != self.correlation_id {
            return Err("an answer to another request".into());
        }
        Ok(response)
    }

    async fn send<Q>(&mut self, version: i16, request: &Q) -> Outcome<()>
    where
        Q: KafkaRequest + RequestResponsePair,
    {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, "barnabas-tests", version, request)?;
        tokio::time::timeout(ANSWER_MAX, self.stream.write_all(&frame)).await??;
        Ok(())
    }

    async fn receive<Q>(&mut self, version: i16) -> Outcome<(i32, Q::Response)>
    where
        Q: KafkaRequest + RequestResponsePair,
    {
        let answer = async {
            let len = usize::try_from(self.stream.read_i32().await?)?;
            if len > ANSWER_BYTES_MAX {
                return Err(format!("an answer of {len} bytes").into());
            }
            let mut answer = vec![0; 4 + len];
            answer[..4].copy_from_slice(&u32::try_from(len)?.to_be_bytes());
            self.stream.read_exact(&mut answer[4..]).await?;
            Ok::<_, crate::Fault>(Bytes::from(answer))
        };
        let answer = tokio::time::timeout(ANSWER_MAX, answer).await??;
        Ok(decode_response::<Q>(version, answer)?)
    }

    /// Whether the broker closes the connection without a word.
    ///
    /// # Errors
    /// It says something, or neither within the deadline.
    pub async fn until_closed(mut self) -> Outcome<()> {
        match tokio::time::timeout(ANSWER_MAX, self.stream.read_u8()).await? {
            Ok(_) => Err("the broker answered".into()),
            Err(_) => Ok(()),
        }
    }

    /// Address of the leader of each partition that has one.
    ///
    /// # Errors
    /// No answer, or an error for the topic.
    pub async fn leaders(&mut self, topic: &str) -> Outcome<BTreeMap<i32, String>> {
        let mut named = metadata_request::MetadataRequestTopic::default();
        named.name = Some(StrBytes::from(topic));
        let mut request = MetadataRequest::default();
        request.topics = Some(vec![named]);
        let response = self.ask(7, &request).await?;
        let brokers: BTreeMap<i32, String> = response
            .brokers
            .iter()
            .map(|broker| (broker.node_id, format!("{}:{}", broker.host, broker.port)))
            .collect();
        let topic = response.topics.first().ok_or("no such topic in the answer")?;
        if topic.error_code != 0 {
            return Err(format!("error {} for the topic", topic.error_code).into());
        }
        let led = topic.partitions.iter().filter_map(|partition| {
            Some((partition.partition_index, brokers.get(&partition.leader_id)?.clone()))
        });
        Ok(led.collect())
    }

    /// A producer id of one's own, with epoch and sequence 0.
    ///
    /// # Errors
    /// No answer, or none is given now.
    pub async fn producer(&mut self) -> Outcome<Producer> {
        let mut request = InitProducerIdRequest::default();
        request.transactional_id = None;
        request.transaction_timeout_ms = i32::MAX;
        request.producer_id = -1;
        request.producer_epoch = -1;
        let response = self.ask(3, &request).await?;
        if response.error_code != 0 {
            return Err(format!("error {}: no producer id", response.error_code).into());
        }
        Ok(Producer { id: response.producer_id, epoch: response.producer_epoch, sequence: 0 })
    }
}
