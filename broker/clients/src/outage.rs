//! A producer that notes how long each partition went without an acknowledgement while brokers failed, and what it was acknowledged.
//!
//! It is an ordinary librdkafka producer, idempotent at acks=all, so that what it measures is what users wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
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
    /// Where each record was acknowledged, by its number. An offset below 0 is none: the library takes a record whose request got no answer
    /// for written when one behind it is acknowledged.
    acked: BTreeMap<u64, (i32, i64)>,
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
        seen.acked.insert(number as u64, (partition, message.offset()));
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
        Ok(balance(&seen, &there))
    }
}

/// What a producer's records came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Balance {
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Records that the library gave up: the errors that a user would have seen.
    pub failed: u64,
    /// Partition and offset of each that was acknowledged and is nowhere in its partition.
    pub lost: Vec<(i32, i64)>,
    /// Partition and offset of each that is in its partition, but not where it was acknowledged.
    pub misplaced: Vec<(i32, i64)>,
    /// Records that were acknowledged without an offset: they have to be there, wherever.
    pub without_offset: u64,
}

fn balance(seen: &Seen, there: &BTreeMap<(i32, i64), u64>) -> Balance {
    let somewhere: BTreeSet<(i32, u64)> =
        there.iter().map(|((partition, _), number)| (*partition, *number)).collect();
    let mut balance = Balance {
        acknowledged: seen.acked.len() as u64,
        failed: seen.failed,
        lost: Vec::new(),
        misplaced: Vec::new(),
        without_offset: 0,
    };
    for (number, at) in &seen.acked {
        let placed = at.1 >= 0;
        balance.without_offset += u64::from(!placed);
        if !somewhere.contains(&(at.0, *number)) {
            balance.lost.push(*at);
        } else if placed && there.get(at) != Some(number) {
            balance.misplaced.push(*at);
        }
    }
    balance
}

/// A consumer that says nothing of its attempts.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
}

impl ConsumerContext for Quiet {}

/// Between two attempts to learn where a partition begins and ends.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Where a partition begins and ends. The library does not ask again by itself when the answer is that of a broker which has just lost
/// the leadership, or come back.
fn watermarks(
    consumer: &BaseConsumer<Quiet>,
    topic: &str,
    partition: i32,
) -> Result<(i64, i64), KafkaError> {
    let began = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition, READ_MAX) {
            Err(_) if began.elapsed() < READ_MAX => std::thread::park_timeout(ASK_AGAIN),
            marks => return marks,
        }
    }
}

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
        let (begin, end) = watermarks(&consumer, &terms.topic, partition).map_err(cannot_read)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_an_offset_has_to_be_there_and_one_with_an_offset_just_there() {
        let acked = BTreeMap::from([
            (0, (0, 0)),
            (1, (0, -1001)),
            (2, (0, -1001)),
            (3, (0, 3)),
            (4, (0, 9)),
        ]);
        let seen = Seen { acked, ..Seen::default() };
        // 2 is nowhere, 3 is at 2, 4 is in another partition.
        let there = BTreeMap::from([((0, 0), 0), ((0, 1), 1), ((0, 2), 3), ((1, 9), 4)]);
        let found = balance(&seen, &there);
        assert_eq!((found.acknowledged, found.without_offset), (5, 2));
        assert_eq!(found.lost, [(0, -1001), (0, 9)]);
        assert_eq!(found.misplaced, [(0, 3)]);
    }
}
