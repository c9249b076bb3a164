//! Batches: sent and answered, or posted without waiting so that several are in flight.

use std::collections::BTreeMap;

use barnabas_log::testing::BatchBuilder;
use barnabas_wire::messages::{
    DeleteRecordsRequest, ProduceRequest, ProduceResponse, StrBytes, delete_records_request,
    produce_request,
};
use bytes::Bytes;

use super::{Answer, Client, Producer};
use crate::Outcome;

const PRODUCE_VERSION: i16 = 8;

/// On what terms a batch is sent.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// -1 is all.
    pub acks: i16,
    /// `timeout.ms` of the request.
    pub timeout_ms: i32,
    /// Who sends it, if idempotent.
    pub producer: Option<Producer>,
}

impl Default for Terms {
    /// acks=all, ten seconds, not idempotent.
    fn default() -> Self {
        Self { acks: -1, timeout_ms: 10_000, producer: None }
    }
}

impl Client {
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

    /// Sends one batch on any terms but acks=0, which has no answer.
    ///
    /// # Errors
    /// No answer: whether the records are there is unknown.
    pub async fn produce_on(
        &mut self,
        topic: &str,
        partition: i32,
        terms: Terms,
        values: &[Vec<u8>],
    ) -> Outcome<Answer> {
        let request = request(topic, &[partition], terms, batch(terms.producer, values)?);
        one(self.ask(PRODUCE_VERSION, &request).await?)
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
        let request = request(topic, partitions, Terms::default(), batch(producer, values)?);
        Ok(answers(&self.ask(PRODUCE_VERSION, &request).await?))
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
        let request = request(topic, &[0], Terms::default(), batch);
        one(self.ask(PRODUCE_VERSION, &request).await?)
    }

    /// Sends one batch and does not wait for the answer; [`Client::posted`] reads it, one for each batch, in their order.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn post(
        &mut self,
        topic: &str,
        partition: i32,
        terms: Terms,
        values: &[Vec<u8>],
    ) -> Outcome<()> {
        let request = request(topic, &[partition], terms, batch(terms.producer, values)?);
        self.send(PRODUCE_VERSION, &request).await
    }

    /// The answer to the oldest posted batch that has not been read.
    ///
    /// # Errors
    /// No answer: whether the records are there is unknown.
    pub async fn posted(&mut self) -> Outcome<Answer> {
        one(self.receive::<ProduceRequest>(PRODUCE_VERSION).await?.1)
    }

    /// Deletes the records below `before` (-1: below the high watermark); the new start, or the error code.
    ///
    /// # Errors
    /// No answer.
    pub async fn delete_records(
        &mut self,
        topic: &str,
        partition: i32,
        before: i64,
    ) -> Outcome<Result<i64, i16>> {
        let mut of_partition = delete_records_request::DeleteRecordsPartition::default();
        of_partition.partition_index = partition;
        of_partition.offset = before;
        let mut of_topic = delete_records_request::DeleteRecordsTopic::default();
        of_topic.name = StrBytes::from(topic);
        of_topic.partitions = vec![of_partition];
        let mut request = DeleteRecordsRequest::default();
        request.timeout_ms = 10_000;
        request.topics = vec![of_topic];
        let response = self.ask(1, &request).await?;
        let said = response.topics.first().and_then(|topic| topic.partitions.first());
        let said = said.ok_or("an answer without the partition")?;
        Ok(if said.error_code == 0 { Ok(said.low_watermark) } else { Err(said.error_code) })
    }
}

fn batch(producer: Option<Producer>, values: &[Vec<u8>]) -> Outcome<Vec<u8>> {
    let builder = BatchBuilder::new().timestamp(now_ms()?);
    let mut builder = values.iter().fold(builder, |builder, value| builder.record(value));
    if let Some(producer) = producer {
        builder = builder.producer(producer.id, producer.epoch, producer.sequence);
    }
    Ok(builder.build())
}

fn request(topic: &str, partitions: &[i32], terms: Terms, batch: Vec<u8>) -> ProduceRequest {
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
    request.acks = terms.acks;
    request.timeout_ms = terms.timeout_ms;
    request.topic_data = vec![of_topic];
    request
}

fn answers(response: &ProduceResponse) -> BTreeMap<i32, Answer> {
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
    answers.collect()
}

fn one(response: ProduceResponse) -> Outcome<Answer> {
    Ok(answers(&response).into_values().next().ok_or("an answer without the partition")?)
}

fn now_ms() -> Outcome<i64> {
    Ok(i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?)
}
