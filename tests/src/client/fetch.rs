//! What can be read: records with the high watermark at that moment, first and last offsets, ends of leader epochs.

use barnabas_log::{Batches, Records, record_bytes};
use barnabas_wire::messages::{
    FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, StrBytes, fetch_request,
    list_offsets_request, offset_for_leader_epoch_request,
};

use super::Client;
use crate::Outcome;

/// What to fetch of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Fetch {
    /// Offset of the first record wanted.
    pub offset: i64,
    /// Leader epoch that the client knows; -1: it says nothing about it.
    pub leader_epoch: i32,
    /// Longest wait for records.
    pub wait_ms: i32,
    /// Most bytes, one batch at least.
    pub bytes: i32,
    /// Fetch session, id and epoch (KIP-227); (0, -1): none.
    pub session: (i32, i32),
}

impl Default for Fetch {
    /// From the beginning, whatever the epoch, without a wait or a session.
    fn default() -> Self {
        Self { offset: 0, leader_epoch: -1, wait_ms: 0, bytes: 1 << 20, session: (0, -1) }
    }
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedRecord {
    /// Its offset.
    pub offset: i64,
    /// Its value, empty if it has none.
    pub value: Vec<u8>,
}

/// What a broker answered to a fetch of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// 0, or Kafka's error code: the answer's own, or the partition's.
    pub error: i16,
    /// High watermark; -1 with an error.
    pub high_watermark: i64,
    /// First offset of the log; -1 with an error.
    pub log_start: i64,
    /// The records from the offset on that was asked for.
    pub records: Vec<FetchedRecord>,
}

/// The time that means the end.
const LATEST: i64 = -1;

impl Client {
    /// Reads from one partition.
    ///
    /// # Errors
    /// No answer, or one that cannot be read.
    pub async fn fetch(&mut self, topic: &str, partition: i32, fetch: Fetch) -> Outcome<Fetched> {
        let mut of_partition = fetch_request::FetchPartition::default();
        of_partition.partition = partition;
        of_partition.current_leader_epoch = fetch.leader_epoch;
        of_partition.fetch_offset = fetch.offset;
        of_partition.log_start_offset = -1;
        of_partition.partition_max_bytes = fetch.bytes;
        let mut of_topic = fetch_request::FetchTopic::default();
        of_topic.topic = StrBytes::from(topic);
        of_topic.partitions = vec![of_partition];
        let mut request = FetchRequest::default();
        request.replica_id = -1;
        request.max_wait_ms = fetch.wait_ms;
        request.min_bytes = 1;
        request.max_bytes = fetch.bytes;
        (request.session_id, request.session_epoch) = fetch.session;
        request.topics = vec![of_topic];
        let response = self.ask(11, &request).await?;
        let nothing = |error| Fetched { error, high_watermark: -1, log_start: -1, records: vec![] };
        if response.error_code != 0 {
            return Ok(nothing(response.error_code));
        }
        let said = response.responses.first().and_then(|topic| topic.partitions.first());
        let said = said.ok_or("an answer without the partition")?;
        if said.error_code != 0 {
            return Ok(nothing(said.error_code));
        }
        let records = match &said.records {
            Some(bytes) => records(bytes, fetch.offset)?,
            None => Vec::new(),
        };
        let (high_watermark, log_start) = (said.high_watermark, said.log_start_offset);
        Ok(Fetched { error: 0, high_watermark, log_start, records })
    }

    /// The end of a partition as consumers see it, exclusive.
    ///
    /// # Errors
    /// No answer, or an error.
    pub async fn end_offset(&mut self, topic: &str, partition: i32) -> Outcome<i64> {
        match self.latest(topic, partition, -1).await? {
            Ok(offset) => Ok(offset),
            Err(code) => Err(format!("error {code}").into()),
        }
    }

    /// The same, or Kafka's error code, for a client that knows a leader epoch (-1: none).
    ///
    /// # Errors
    /// No answer.
    pub async fn latest(
        &mut self,
        topic: &str,
        partition: i32,
        leader_epoch: i32,
    ) -> Outcome<Result<i64, i16>> {
        self.offset_at(topic, partition, (LATEST, leader_epoch)).await
    }

    /// The offset of the first record at a time, ms since 1970, or later (-1: there is none), or Kafka's error code; some negative
    /// times mean something else.
    ///
    /// # Errors
    /// No answer.
    pub async fn offset_at(
        &mut self,
        topic: &str,
        partition: i32,
        (timestamp, leader_epoch): (i64, i32),
    ) -> Outcome<Result<i64, i16>> {
        let mut of_partition = list_offsets_request::ListOffsetsPartition::default();
        of_partition.partition_index = partition;
        of_partition.timestamp = timestamp;
        of_partition.current_leader_epoch = leader_epoch;
        let mut of_topic = list_offsets_request::ListOffsetsTopic::default();
        of_topic.name = StrBytes::from(topic);
        of_topic.partitions = vec![of_partition];
        let mut request = ListOffsetsRequest::default();
        request.replica_id = -1;
        request.topics = vec![of_topic];
        let response = self.ask(7, &request).await?;
        let said = response.topics.first().and_then(|topic| topic.partitions.first());
        let said = said.ok_or("an answer without the partition")?;
        Ok(if said.error_code == 0 { Ok(said.offset) } else { Err(said.error_code) })
    }

    /// The greatest epoch up to `epoch` that the leader knows, and where it ends (exclusive); or Kafka's error code.
    ///
    /// # Errors
    /// No answer.
    pub async fn epoch_end(
        &mut self,
        topic: &str,
        partition: i32,
        (current, epoch): (i32, i32),
    ) -> Outcome<Result<(i32, i64), i16>> {
        let mut of_partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default();
        of_partition.partition = partition;
        of_partition.current_leader_epoch = current;
        of_partition.leader_epoch = epoch;
        let mut of_topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default();
        of_topic.topic = StrBytes::from(topic);
        of_topic.partitions = vec![of_partition];
        let mut request = OffsetForLeaderEpochRequest::default();
        request.replica_id = -1;
        request.topics = vec![of_topic];
        let response = self.ask(3, &request).await?;
        let said = response.topics.first().and_then(|topic| topic.partitions.first());
        let said = said.ok_or("an answer without the partition")?;
        Ok(match said.error_code {
            0 => Ok((said.leader_epoch, said.end_offset)),
            code => Err(code),
        })
    }
}

/// The records of whole batches from an offset on.
fn records(bytes: &[u8], from: i64) -> Outcome<Vec<FetchedRecord>> {
    let mut found = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = match batch {
            Ok(batch) => batch,
            // The last one may be cut off by the bytes asked for.
            Err(barnabas_log::BatchError::Truncated) => break,
            Err(error) => return Err(error.into()),
        };
        batch.check_crc()?;
        let opened = record_bytes(batch.bytes, &batch.header)?;
        for record in Records::new(&opened, &batch.header) {
            let record = record?;
            let offset = record.offset(&batch.header);
            if offset >= from {
                let value = record.value.unwrap_or_default().to_vec();
                found.push(FetchedRecord { offset, value });
            }
        }
    }
    Ok(found)
}
