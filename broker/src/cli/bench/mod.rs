//! `barnabas bench`: drives a cluster cheaply with batches that are encoded once, from blocking threads, so that what is
//! measured is the cluster and not a client. One JSON object a result.

mod consume;
mod failover;
mod latency;
mod link;
mod produce;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::CliError;

/// Connections at once.
const CONNECTIONS_MAX: i64 = 256;

#[derive(Subcommand, Debug)]
pub(super) enum BenchVerb {
    /// Send batches to all partitions of a topic, several in flight on each connection.
    Produce(produce::ProduceArgs),
    /// Read all partitions of a topic from their beginning to their present end.
    Consume(consume::ConsumeArgs),
    /// Send one batch after the other and measure each, beside the plain round trip of as many bytes on this machine.
    Latency(latency::LatencyArgs),
    Failover(failover::FailoverArgs),
}

/// Whom a benchmark drives.
#[derive(Args, Clone, Debug)]
struct Driven {
    /// Brokers, comma-separated: the first that answers tells who leads.
    #[arg(long, value_name = "HOST:PORT,...", default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// The topic; it must exist.
    #[arg(long)]
    topic: String,
    /// Print JSON instead of a sentence.
    #[arg(long)]
    json: bool,
}

/// What a batch consists of.
#[derive(Args, Clone, Debug)]
struct Batch {
    /// Bytes of a record's value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    record_bytes: u32,
    /// Bytes of records in a batch, at least one record.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    batch_bytes: u32,
    /// What a broker waits for before it answers: 1 (the leader) or all (the ISR).
    #[arg(long, default_value = "all", value_parser = acks)]
    acks: i16,
}

fn acks(text: &str) -> Result<i16, String> {
    match text {
        "1" => Ok(1),
        "all" | "-1" => Ok(-1),
        _ => Err("expected 1 or all".to_owned()),
    }
}

impl BenchVerb {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            Self::Produce(args) => args.run(),
            Self::Consume(args) => args.run(),
            Self::Latency(args) => args.run(),
            Self::Failover(args) => args.run(),
        }
    }
}

fn refused(error: impl std::fmt::Display) -> CliError {
    CliError::Refused(error.to_string())
}

fn say(driven: &Driven, result: &Value, sentence: &str) {
    if driven.json {
        say!("{result}");
    } else {
        say!("{sentence}");
    }
}

/// Bytes a second, in MB.
fn megabytes(bytes: u64, passed: Duration) -> f64 {
    bytes as f64 / 1e6 / passed.as_secs_f64()
}

/// The value below which this share of the sorted times lies, in us.
fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
