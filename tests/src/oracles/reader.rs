//! A consumer that reads a topic from its beginning on, through every fault, and notes all that it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Faults;
use super::marks::Marks;
use crate::Outcome;
use crate::client::{Client, Fetch};
use crate::load::Target;
use crate::wait::next_look;

/// How long an answer may take before another broker is asked.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Kafka's OFFSET_OUT_OF_RANGE: a reader that follows the log never deserves it.
const OUT_OF_RANGE: i16 = 1;

/// Reads until told to stop. Without `faults` it reads all the same and complains about nothing.
pub async fn run(
    target: Target,
    marks: Arc<Mutex<Marks>>,
    faults: Option<Faults>,
    mut stop: watch::Receiver<bool>,
) {
    let mut reader = Reader {
        target,
        marks,
        faults,
        connections: BTreeMap::new(),
        next: BTreeMap::new(),
        attempts: 0,
    };
    while !*stop.borrow_and_update() {
        for partition in 0..reader.target.partitions {
            let looked = tokio::time::timeout(ANSWER_MAX, reader.look(partition)).await;
            if !matches!(looked, Ok(Ok(()))) {
                reader.connections.remove(&partition);
            }
        }
        next_look().await;
    }
}

struct Reader {
    target: Target,
    marks: Arc<Mutex<Marks>>,
    faults: Option<Faults>,
    /// To the leader of each partition, as far as known.
    connections: BTreeMap<i32, Client>,
    attempts: usize,
    /// Next offset of each partition.
    next: BTreeMap<i32, i64>,
}

impl Reader {
    async fn look(&mut self, partition: i32) -> Outcome<()> {
        let mut client = match self.connections.remove(&partition) {
            Some(client) => client,
            None => {
                self.attempts += 1;
                let Target { bootstrap, topic, .. } = &self.target;
                Client::of_leader(bootstrap, self.attempts, topic, partition).await?
            }
        };
        let offset = self.next.get(&partition).copied().unwrap_or(0);
        let fetch = Fetch { offset, ..Fetch::default() };
        let fetched = client.fetch(&self.target.topic, partition, fetch).await?;
        if fetched.error != 0 {
            if fetched.error == OUT_OF_RANGE {
                self.complain([format!("partition {partition}: offset {offset} is out of range")]);
            }
            return Err(format!("error {}", fetched.error).into());
        }
        let mut wrong = Vec::new();
        {
            let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.extend(marks.latest(partition, "high watermark", fetched.high_watermark));
            for record in fetched.records {
                if record.offset >= fetched.high_watermark {
                    wrong.push(format!(
                        "partition {partition}: offset {} is above the high watermark {}",
                        record.offset, fetched.high_watermark
                    ));
                }
                self.next.insert(partition, record.offset + 1);
                wrong.extend(marks.record(partition, record.offset, &record.value));
            }
        }
        if let Ok(latest) = client.latest(&self.target.topic, partition, -1).await? {
            let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.extend(marks.latest(partition, "last offset", latest));
        }
        self.complain(wrong);
        self.connections.insert(partition, client);
        Ok(())
    }

    fn complain(&self, wrong: impl IntoIterator<Item = String>) {
        if let Some(faults) = &self.faults {
            let topic = &self.target.topic;
            faults.extend(wrong.into_iter().map(|wrong| format!("{topic}: {wrong}")));
        }
    }
}
