//! A producer that notes how long each partition went without an acknowledgement while brokers failed, and what it was acknowledged.
//!
//! It is an ordinary librdkafka producer, idempotent at acks=all, so that what it measures is what users wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::Error;

/// Between two records of a partition: the resolution of what is measured.
const SEND_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for what is on its way at the end.
const FLUSH_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the next record when everything is read back.
const READ_MAX: Duration = Duration::from_secs(30);

/// Where to, and with which further settings of the library.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Brokers to begin with, comma-separated.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// Records go to the partitions from 0 on up to this one, exclusive.
    pub partitions: i32,
    /// Settings of librdkafka beside acks=all and enable.idempotence=true; the last word is theirs.
    pub client_config: Vec<(String, String)>,
}

/// What was acknowledged.
#[derive(Debug, Default)]
struct Seen {
    last: BTreeMap<i32, Instant>,
    /// Longest silence of each partition since it was last forgotten.
    silence: BTreeMap<i32, Duration>,
    /// Number of the record that was acknowledged at each offset.
    acked: BTreeMap<(i32, i64), u64>,
    failed: u64,
}

#[derive(Clone, Debug, Default)]
struct Deliveries(Arc<Mutex<Seen>>);

impl Deliveries {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Deliveries {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let now = Instant::now();
        let mut seen = self.seen();
        let Ok(message) = result else {
            seen.failed += 1;
            return;
        };
        let partition = message.partition();
        seen.acked.insert((partition, message.offset()), number as u64);
        if let Some(before) = seen.last.insert(partition, now) {
            let silence = seen.silence.entry(partition).or_default();
            *silence = now.duration_since(before).max(*silence);
        }
    }
}

/// A producer at work.
#[derive(Debug)]
pub struct Load {
    terms: Terms,
    deliveries: Deliveries,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Load {
    /// Begins to send one record to each partition every 10 ms.
    ///
    /// # Errors
    /// A setting that the library does not know.
    pub fn start(terms: Terms) -> Result<Self, Error> {
        let deliveries = Deliveries::default();
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &terms.bootstrap)
            .set("client.id", "barnabas-bench")
            .set("acks", "all")
            .set("enable.idempotence", "true");
        for (key, value) in &terms.client_config {
            config.set(key, value);
        }
        let producer: ThreadedProducer<Deliveries> = config
            .create_with_context(deliveries.clone())
            .map_err(|error| Error::refused("cannot start a producer", error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, topic, partitions) = (stop.clone(), terms.topic.clone(), terms.partitions);
        let thread = std::thread::spawn(move || {
            let cannot_send = |error| Error::refused("cannot send", error);
            let mut number: usize = 0;
            while !stopped.load(Ordering::Relaxed) {
                for partition in 0..partitions {
                    let payload = number.to_string();
                    let record = BaseRecord::<str, str, usize>::with_opaque_to(&topic, number);
                    let sent = producer.send(record.partition(partition).payload(&payload));
                    sent.map_err(|(error, _)| cannot_send(error))?;
                    number += 1;
                }
                std::thread::park_timeout(SEND_EVERY);
            }
            producer.flush(FLUSH_MAX).map_err(cannot_send)
        });
        Ok(Self { terms, deliveries, stop, thread })
    }

    /// From here on the longest silences are counted anew.
    pub fn forget_silences(&self) {
        self.deliveries.seen().silence.clear();
    }

    /// The longest time between two acknowledgements of a partition, of all partitions; one that lasts does not count yet.
    #[must_use]
    pub fn longest_silence(&self) -> Duration {
        self.deliveries.seen().silence.values().max().copied().unwrap_or_default()
    }

    /// Whether every partition was acknowledged something after that moment.
    #[must_use]
    pub fn all_acknowledged_since(&self, since: Instant) -> bool {
        let seen = self.deliveries.seen();
        (0..self.terms.partitions).all(|p| seen.last.get(&p).is_some_and(|at| *at > since))
    }

    /// Records that the library gave up.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.deliveries.seen().failed
    }

    /// Stops, waits for what is on its way, reads everything back, and compares.
    ///
    /// # Errors
    /// Nothing more is acknowledged, or what is there cannot be read.
    pub fn finish(self) -> Result<Balance, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| Error::Refused("the producer panicked".to_owned()))??;
        let there = read_back(&self.terms)?;
        let seen = self.deliveries.seen();
        let kept = |(at, number): &(&(i32, i64), &u64)| there.get(*at) == Some(*number);
        let lost = seen.acked.iter().filter(|of| !kept(of)).map(|(at, _)| *at).collect();
        Ok(Balance { acknowledged: seen.acked.len() as u64, failed: seen.failed, lost })
    }
}

/// What a producer's records came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Balance {
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Records that the library gave up: the errors that a user would have seen.
    pub failed: u64,
    /// Partition and offset of each that was acknowledged and is not there.
    pub lost: Vec<(i32, i64)>,
}

/// A consumer that says nothing of its attempts.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
}

impl ConsumerContext for Quiet {}

/// The number of the record at each offset of each partition.
fn read_back(terms: &Terms) -> Result<BTreeMap<(i32, i64), u64>, Error> {
    let cannot_read = |error| Error::refused("cannot read back", error);
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &terms.bootstrap)
        .set("client.id", "barnabas-bench")
        .set("group.id", "barnabas-bench")
        .set("enable.auto.commit", "false")
        .set("check.crcs", "true");
    let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet).map_err(cannot_read)?;
    let mut open = BTreeMap::new();
    let mut from = TopicPartitionList::new();
    for partition in 0..terms.partitions {
        let marks = consumer.fetch_watermarks(&terms.topic, partition, READ_MAX);
        let (begin, end) = marks.map_err(cannot_read)?;
        if begin < end {
            open.insert(partition, end);
            from.add_partition_offset(&terms.topic, partition, Offset::Offset(begin))
                .map_err(cannot_read)?;
        }
    }
    consumer.assign(&from).map_err(cannot_read)?;
    let mut there = BTreeMap::new();
    let mut heard = Instant::now();
    while !open.is_empty() {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let (partition, offset) = (message.partition(), message.offset());
                let text = message.payload().and_then(|bytes| std::str::from_utf8(bytes).ok());
                if let Some(number) = text.and_then(|text| text.parse().ok()) {
                    there.insert((partition, offset), number);
                }
                if open.get(&partition).is_some_and(|end| offset + 1 >= *end) {
                    open.remove(&partition);
                }
            }
            // The library goes on by itself; that it does not is seen by the silence.
            Some(Err(_)) | None if heard.elapsed() < READ_MAX => {}
            _ => {
                let left: Vec<&i32> = open.keys().collect();
                return Err(Error::Refused(format!(
                    "cannot read partitions {left:?} to their ends"
                )));
            }
        }
    }
    Ok(there)
}
