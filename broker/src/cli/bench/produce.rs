//! `barnabas bench produce`: as many bytes as asked for, the same batch again and again.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use barnabas_broker::clock::unix_ms;
use barnabas_log::testing::BatchBuilder;
use barnabas_wire::messages::{ProduceRequest, StrBytes, produce_request};
use bytes::Bytes;
use clap::Args;
use serde_json::json;

use super::link::{Link, decode, frame, leaders};
use super::{Batch, CONNECTIONS_MAX, Driven, megabytes, percentile, refused, say};
use crate::cli::CliError;

/// Frames of single batches, without topic ids.
pub(super) const PRODUCE_VERSION: i16 = 8;
/// How long a broker may wait for its followers.
const TIMEOUT_MS: i32 = 30_000;

#[derive(Args, Debug)]
pub(in crate::cli) struct ProduceArgs {
    #[command(flatten)]
    driven: Driven,
    #[command(flatten)]
    batch: Batch,
    /// Bytes of batches to send in all.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    bytes: u64,
    /// Connections, spread over the partitions.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    connections: u32,
    /// Requests in flight on each connection.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: u32,
}

/// One connection that is ready to send.
struct Driver {
    link: Link,
    /// For each of its partitions, what of a request's frame comes before the batch, with which the frame ends.
    heads: Vec<Bytes>,
}

/// One batch of records without compression.
pub(super) fn batch(of: &Batch) -> Vec<u8> {
    // Not all alike, so that nothing on the way can make less of it.
    let value: Vec<u8> =
        (0..of.record_bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let records = (of.batch_bytes / of.record_bytes).max(1);
    // Of now: retention would delete older ones while they are read.
    let empty = BatchBuilder::new().timestamp(unix_ms());
    (0..records).fold(empty, |batch, _| batch.record(&value)).build()
}

/// The frame that sends a batch to one partition; it ends with the batch.
pub(super) fn request(
    topic: &str,
    partition: i32,
    acks: i16,
    batch: &[u8],
) -> Result<Bytes, CliError> {
    let mut data = produce_request::PartitionProduceData::default();
    data.index = partition;
    data.records = Some(Bytes::copy_from_slice(batch));
    let mut of_topic = produce_request::TopicProduceData::default();
    of_topic.name = StrBytes::from(topic);
    of_topic.partition_data = vec![data];
    let mut request = ProduceRequest::default();
    request.acks = acks;
    request.timeout_ms = TIMEOUT_MS;
    request.topic_data = vec![of_topic];
    frame(PRODUCE_VERSION, &request)
}

/// The answer's error, if it has one.
pub(super) fn check(answer: &[u8]) -> Result<(), CliError> {
    let said = decode::<ProduceRequest>(PRODUCE_VERSION, answer)?;
    let partitions = said.responses.iter().flat_map(|topic| &topic.partition_responses);
    for partition in partitions {
        if partition.error_code != 0 {
            return Err(refused(format!(
                "partition {} refused a batch with Kafka's error {}",
                partition.index, partition.error_code
            )));
        }
    }
    Ok(())
}

impl ProduceArgs {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let partitions = leaders(&self.driven)?;
        let batch = batch(&self.batch);
        let requests = (self.bytes / batch.len() as u64).max(1);
        let connections = u64::from(self.connections).min(requests);
        let step = usize::try_from(connections).unwrap_or(1);
        let drivers: Vec<Driver> = (0..step)
            .map(|mine| self.driver(&partitions, mine, step, &batch))
            .collect::<Result<_, _>>()?;
        let began = Instant::now();
        let ran: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..connections)
                .zip(drivers)
                .map(|(number, driver)| {
                    let batch = &batch;
                    let share = requests / connections + u64::from(number < requests % connections);
                    scope.spawn(move || self.drive(driver, batch, share))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        let passed = began.elapsed();
        let mut times = Vec::new();
        for result in ran {
            times.extend(result.map_err(|_| refused("a thread ended with a panic"))??);
        }
        times.sort_unstable();
        let bytes = requests * batch.len() as u64;
        let rate = megabytes(bytes, passed);
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        let result = json!({
            "bench": "produce", "bytes": bytes, "requests": requests, "batch_bytes": batch.len(),
            "acks": if self.batch.acks == 1 { "1" } else { "all" }, "partitions": partitions.len(),
            "seconds": passed.as_secs_f64(), "megabytes_per_second": rate, "p50_us": p50, "p99_us": p99,
        });
        let sentence = format!(
            "{requests} batches of {} bytes in {:.1} s: {rate:.0} MB/s; p50 {p50:.0} us, p99 {p99:.0} us",
            batch.len(),
            passed.as_secs_f64()
        );
        say(&self.driven, &result, &sentence);
        Ok(())
    }

    /// One connection to one of the leaders; it serves, in turn, its share of the partitions that this one leads.
    fn driver(
        &self,
        partitions: &[(i32, String)],
        mine: usize,
        step: usize,
        batch: &[u8],
    ) -> Result<Driver, CliError> {
        let (address, served) = share_of(partitions, mine, step);
        let head = |partition: &i32| {
            let frame = request(&self.driven.topic, *partition, self.batch.acks, batch)?;
            Ok(Bytes::copy_from_slice(&frame[..frame.len() - batch.len()]))
        };
        let heads = served.iter().map(head).collect::<Result<_, CliError>>()?;
        Ok(Driver { link: Link::dial(address)?, heads })
    }

    fn drive(
        &self,
        Driver { mut link, heads }: Driver,
        batch: &[u8],
        share: u64,
    ) -> Result<Vec<Duration>, CliError> {
        let mut sent = std::collections::VecDeque::new();
        let mut times = Vec::new();
        let mut next = heads.iter().cycle();
        for _ in 0..share {
            if sent.len() >= self.in_flight as usize {
                receive(&mut link, &mut sent, &mut times)?;
            }
            if let Some(head) = next.next() {
                sent.push_back(Instant::now());
                link.send_parts(head, batch)?;
            }
        }
        while !sent.is_empty() {
            receive(&mut link, &mut sent, &mut times)?;
        }
        Ok(times)
    }
}

/// Whom connection `mine` of `connections` serves: the leaders in turn, and of a leader's partitions every one that is not
/// another connection's; where there are more connections than partitions, several serve one.
fn share_of(partitions: &[(i32, String)], mine: usize, connections: usize) -> (&str, Vec<i32>) {
    let leaders: BTreeSet<&str> = partitions.iter().map(|(_, leader)| leader.as_str()).collect();
    let address = leaders.iter().nth(mine % leaders.len()).copied().unwrap_or_default();
    let rank = mine / leaders.len();
    let beside = (mine % leaders.len()..connections).step_by(leaders.len()).count();
    let led: Vec<i32> =
        partitions.iter().filter(|(_, leader)| leader == address).map(|(p, _)| *p).collect();
    let share: Vec<i32> = led.iter().skip(rank).step_by(beside.max(1)).copied().collect();
    let served = if share.is_empty() { vec![led[rank % led.len()]] } else { share };
    (address, served)
}

fn receive(
    link: &mut Link,
    sent: &mut std::collections::VecDeque<Instant>,
    times: &mut Vec<Duration>,
) -> Result<(), CliError> {
    check(link.receive()?)?;
    times.extend(sent.pop_front().map(|at| at.elapsed()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_served_by_somebody_and_every_connection_serves_its_leader() {
        for (partitions, leaders) in [(1, 1), (4, 3), (5, 2), (1_000, 3)] {
            let led: Vec<(i32, String)> =
                (0..partitions).map(|p| (p, format!("b{}", p % leaders))).collect();
            for connections in [1, 3, 4, 7] {
                let mut served = BTreeSet::new();
                for mine in 0..connections {
                    let (address, share) = share_of(&led, mine, connections);
                    assert!(!share.is_empty());
                    for partition in share {
                        assert_eq!(led[partition as usize].1, address);
                        served.insert(partition);
                    }
                }
                // Fewer connections than leaders leave some leaders out.
                let whole = connections >= leaders as usize;
                assert!(!whole || served.len() == led.len(), "{partitions}, {connections}");
            }
        }
    }
}
