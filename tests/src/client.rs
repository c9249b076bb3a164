//! A client with one connection and one request in flight, that shows what the broker answers: error codes, offsets, and nothing
//! sent again behind one's back.

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_log::testing::BatchBuilder;
use barnabas_wire::messages::{
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest, StrBytes,
    list_offsets_request, metadata_request, produce_request,
};
use barnabas_wire::{KafkaRequest, RequestResponsePair, decode_response, encode_request};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Outcome;

/// Longest wait for an answer, beyond what a produce request itself allows.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// `timeout.ms` of a produce request.
const PRODUCE_TIMEOUT_MS: i32 = 10_000;
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

    async fn ask<Q>(&mut self, version: i16, request: &Q) -> Outcome<Q::Response>
    where
        Q: KafkaRequest + RequestResponsePair,
    {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, "barnabas-tests", version, request)?;
        let answer = async {
            self.stream.write_all(&frame).await?;
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
        let (correlation_id, response) = decode_response::<Q>(version, answer)?;
        if correlation_id != self.correlation_id {
            return Err("an answer to another request".into());
        }
        Ok(response)
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

    /// Sends one batch with acks=all.
    ///
    /// # Errors
    /// No answer: whether the records are there is unknown.
    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        producer: Option<Producer>,
        values: &[Vec<u8>],
    ) -> Outcome<Answer> {
        let answers = self.produce_to(topic, &[partition], producer, values).await?;
        Ok(answers.into_iter().next().ok_or("an answer without the partition")?.1)
    }

    /// Sends the same batch to several partitions with acks=all.
    ///
    /// # Errors
    /// No answer: whether the records are there is unknown.
    pub async fn produce_to(
        &mut self,
        topic: &str,
        partitions: &[i32],
        producer: Option<Producer>,
        values: &[Vec<u8>],
    ) -> Outcome<BTreeMap<i32, Answer>> {
        let builder = BatchBuilder::new().timestamp(now_ms()?);
        let mut builder = values.iter().fold(builder, |builder, value| builder.record(value));
        if let Some(producer) = producer {
            builder = builder.producer(producer.id, producer.epoch, producer.sequence);
        }
        self.send(topic, partitions, builder.build()).await
    }

    /// Sends one batch of records with keys to partition 0 with acks=all; no value: a tombstone.
    ///
    /// # Errors
    /// No answer: whether the records are there is unknown.
    pub async fn produce_keyed(
        &mut self,
        topic: &str,
        records: &[(Vec<u8>, Option<Vec<u8>>)],
    ) -> Outcome<Answer> {
        let builder = BatchBuilder::new().timestamp(now_ms()?);
        let keyed = |builder: BatchBuilder, (key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            builder.keyed(key, value.as_deref())
        };
        let batch = records.iter().fold(builder, keyed).build();
        let answers = self.send(topic, &[0], batch).await?;
        Ok(answers.into_values().next().ok_or("an answer without the partition")?)
    }

    async fn send(
        &mut self,
        topic: &str,
        partitions: &[i32],
        batch: Vec<u8>,
    ) -> Outcome<BTreeMap<i32, Answer>> {
        let batch = Bytes::from(batch);
        let mut of_topic = produce_request::TopicProduceData::default();
        of_topic.name = StrBytes::from(topic);
        for partition in partitions {
            let mut data = produce_request::PartitionProduceData::default();
            data.index = *partition;
            data.records = Some(batch.clone());
            of_topic.partition_data.push(data);
        }
        let mut request = ProduceRequest::default();
        request.transactional_id = None;
        request.acks = -1;
        request.timeout_ms = PRODUCE_TIMEOUT_MS;
        request.topic_data = vec![of_topic];
        let response = self.ask(8, &request).await?;
        let said = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        let answers = said.map(|said| {
            let answer = match said.error_code {
                0 => Answer::Appended(said.base_offset),
                code => {
                    let message = said.error_message.as_ref().map(ToString::to_string);
                    Answer::Refused(code, message.unwrap_or_default())
                }
            };
            (said.index, answer)
        });
        Ok(answers.collect())
    }

    /// The end of a partition as consumers see it, exclusive.
    ///
    /// # Errors
    /// No answer, or an error.
    pub async fn end_offset(&mut self, topic: &str, partition: i32) -> Outcome<i64> {
        let mut of_partition = list_offsets_request::ListOffsetsPartition::default();
        of_partition.partition_index = partition;
        of_partition.timestamp = -1;
        of_partition.current_leader_epoch = -1;
        let mut of_topic = list_offsets_request::ListOffsetsTopic::default();
        of_topic.name = StrBytes::from(topic);
        of_topic.partitions = vec![of_partition];
        let mut request = ListOffsetsRequest::default();
        request.replica_id = -1;
        request.topics = vec![of_topic];
        let response = self.ask(5, &request).await?;
        let said = response
            .topics
            .first()
            .and_then(|topic| topic.partitions.first())
            .ok_or("an answer without the partition")?;
        match said.error_code {
            0 => Ok(said.offset),
            code => Err(format!("error {code}").into()),
        }
    }
}

fn now_ms() -> Outcome<i64> {
    Ok(i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?)
}
