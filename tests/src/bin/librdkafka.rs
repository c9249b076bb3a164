//! `librdkafka`: the rate at which librdkafka produces to a cluster, or, for comparison, to the mock cluster that it brings itself.
//!
//! The mock cluster is a thread of this process that stores next to nothing and replicates nothing. Prints one JSON object.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Brokers of the mock cluster.
const MOCK_BROKERS: i32 = 3;
/// Longest wait of one look at what was delivered.
const POLL: Duration = Duration::from_millis(10);
/// How long what is under way may take in the end.
const DELIVERED_MAX: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// Whom to send to; without it, the mock cluster.
    #[arg(long)]
    bootstrap: Option<String>,
    /// The topic; on a cluster it must exist.
    #[arg(long, default_value = "mock")]
    topic: String,
    /// Of the mock cluster's topic.
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Of the mock cluster's topic.
    #[arg(long, default_value_t = 1)]
    replicas: i32,
    #[arg(long, default_value = "all")]
    acks: String,
    /// Bytes to send, in records of 1 KiB.
    #[arg(long, default_value_t = 1 << 28)]
    bytes: u64,
}

/// Counts what became of the records.
#[derive(Default)]
struct Counter {
    delivered: AtomicU64,
    failed: AtomicU64,
}

impl ClientContext for Counter {}

impl ProducerContext for Counter {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() { &self.delivered } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let mock = match &arguments.bootstrap {
        Some(_) => None,
        None => Some(MockCluster::new(MOCK_BROKERS)?),
    };
    if let Some(mock) = &mock {
        mock.create_topic(&arguments.topic, arguments.partitions, arguments.replicas)?;
    }
    let bootstrap = match (&arguments.bootstrap, &mock) {
        (Some(given), _) => given.clone(),
        (None, Some(mock)) => mock.bootstrap_servers(),
        (None, None) => return Err("nobody to send to".into()),
    };
    let producer: BaseProducer<Counter> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("acks", &arguments.acks)
        .set("linger.ms", "5")
        .create_with_context(Counter::default())?;
    let value = [7; 1024];
    let records = (arguments.bytes / value.len() as u64).max(1);
    // Connections and metadata are there before the clock starts.
    send(&producer, &arguments.topic, &value)?;
    producer.flush(DELIVERED_MAX)?;
    let began = Instant::now();
    for _ in 0..records {
        send(&producer, &arguments.topic, &value)?;
    }
    producer.flush(DELIVERED_MAX)?;
    let seconds = began.elapsed().as_secs_f64();
    let (delivered, failed) = (
        producer.context().delivered.load(Ordering::Relaxed),
        producer.context().failed.load(Ordering::Relaxed),
    );
    if delivered != records + 1 {
        return Err(
            format!("of {records} records and one, {delivered} came and {failed} not").into()
        );
    }
    let bytes = (records * value.len() as u64) as f64;
    println!(
        "{}",
        json!({
            "bench": "librdkafka", "mock": mock.is_some(), "acks": arguments.acks, "bytes": bytes,
            "seconds": seconds, "megabytes_per_second": bytes / 1e6 / seconds,
        })
    );
    Ok(())
}

/// Hands one record over, as soon as the queue has room for it.
fn send(producer: &BaseProducer<Counter>, topic: &str, value: &[u8]) -> Outcome<()> {
    let mut record = BaseRecord::<(), [u8]>::to(topic).payload(value);
    loop {
        match producer.send(record) {
            Ok(()) => {
                producer.poll(Duration::ZERO);
                return Ok(());
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(POLL);
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}
