//! `barnabas bench consume`: reads a topic once, by large fetches, and looks at nothing but the heads of the batches.

use std::thread;
use std::time::Instant;

use barnabas_log::{BatchError, Batches};
use barnabas_wire::messages::{
    FetchRequest, ListOffsetsRequest, StrBytes, fetch_request, list_offsets_request,
};
use clap::Args;
use serde_json::json;

use super::link::{Link, leaders};
use super::{Driven, megabytes, refused, say};
use crate::cli::CliError;

const FETCH_VERSION: i16 = 11;
const OFFSETS_VERSION: i16 = 5;
/// Longest wait of a fetch; the records are there.
const WAIT_MS: i32 = 500;

#[derive(Args, Debug)]
pub(in crate::cli) struct ConsumeArgs {
    #[command(flatten)]
    driven: Driven,
    /// Bytes of one fetch.
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576, value_parser = clap::value_parser!(i32).range(1..))]
    fetch_bytes: i32,
    /// How often everything is read.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
}

impl ConsumeArgs {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let partitions = leaders(&self.driven)?;
        let mut addresses: Vec<&String> = partitions.iter().map(|(_, leader)| leader).collect();
        addresses.sort();
        addresses.dedup();
        let began = Instant::now();
        // One connection a broker, as consumers have.
        let ran: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = addresses
                .iter()
                .map(|address| {
                    let led = partitions.iter().filter(|(_, leader)| leader == *address);
                    let led: Vec<i32> = led.map(|(partition, _)| *partition).collect();
                    scope.spawn(move || self.read(address, &led))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        let passed = began.elapsed();
        let mut bytes = 0;
        for result in ran {
            bytes += result.map_err(|_| refused("a thread ended with a panic"))??;
        }
        let rate = megabytes(bytes, passed);
        let result = json!({
            "bench": "consume", "bytes": bytes, "partitions": partitions.len(),
            "seconds": passed.as_secs_f64(), "megabytes_per_second": rate,
        });
        let sentence = format!("{bytes} bytes in {:.1} s: {rate:.0} MB/s", passed.as_secs_f64());
        say(&self.driven, &result, &sentence);
        Ok(())
    }

    fn read(&self, address: &str, partitions: &[i32]) -> Result<u64, CliError> {
        let mut link = Link::dial(address)?;
        let mut bytes = 0;
        for _ in 0..self.times {
            for partition in partitions {
                bytes += self.read_partition(&mut link, *partition)?;
            }
        }
        Ok(bytes)
    }

    fn read_partition(&self, link: &mut Link, partition: i32) -> Result<u64, CliError> {
        let mut offset = self.offset(link, partition, -2)?;
        let end = self.offset(link, partition, -1)?;
        let mut bytes = 0;
        while offset < end {
            let said = link.ask(FETCH_VERSION, &self.fetch(partition, offset))?;
            let found = said.responses.first().and_then(|topic| topic.partitions.first());
            let found = found.ok_or_else(|| refused("an answer without the partition"))?;
            if said.error_code != 0 || found.error_code != 0 {
                let code = if said.error_code != 0 { said.error_code } else { found.error_code };
                return Err(refused(format!("partition {partition}: Kafka's error {code}")));
            }
            let records = found.records.clone().unwrap_or_default();
            bytes += records.len() as u64;
            for batch in Batches::new(&records) {
                match batch {
                    Ok(batch) => offset = batch.header.next_offset(),
                    // The last one may be cut off by the bytes asked for.
                    Err(BatchError::Truncated) => break,
                    Err(error) => return Err(refused(error)),
                }
            }
        }
        Ok(bytes)
    }

    fn fetch(&self, partition: i32, offset: i64) -> FetchRequest {
        let mut of_partition = fetch_request::FetchPartition::default();
        of_partition.partition = partition;
        of_partition.current_leader_epoch = -1;
        of_partition.fetch_offset = offset;
        of_partition.log_start_offset = -1;
        of_partition.partition_max_bytes = self.fetch_bytes;
        let mut of_topic = fetch_request::FetchTopic::default();
        of_topic.topic = StrBytes::from(self.driven.topic.as_str());
        of_topic.partitions = vec![of_partition];
        let mut request = FetchRequest::default();
        request.replica_id = -1;
        request.max_wait_ms = WAIT_MS;
        request.min_bytes = 1;
        request.max_bytes = self.fetch_bytes;
        (request.session_id, request.session_epoch) = (0, -1);
        request.topics = vec![of_topic];
        request
    }

    /// The first (-2) or the next (-1) offset.
    fn offset(&self, link: &mut Link, partition: i32, which: i64) -> Result<i64, CliError> {
        let mut of_partition = list_offsets_request::ListOffsetsPartition::default();
        of_partition.partition_index = partition;
        of_partition.timestamp = which;
        of_partition.current_leader_epoch = -1;
        let mut of_topic = list_offsets_request::ListOffsetsTopic::default();
        of_topic.name = StrBytes::from(self.driven.topic.as_str());
        of_topic.partitions = vec![of_partition];
        let mut request = ListOffsetsRequest::default();
        request.replica_id = -1;
        request.topics = vec![of_topic];
        let said = link.ask(OFFSETS_VERSION, &request)?;
        let found = said.topics.first().and_then(|topic| topic.partitions.first());
        match found {
            Some(found) if found.error_code == 0 => Ok(found.offset),
            Some(found) => {
                Err(refused(format!("partition {partition}: Kafka's error {}", found.error_code)))
            }
            None => Err(refused("an answer without the partition")),
        }
    }
}
