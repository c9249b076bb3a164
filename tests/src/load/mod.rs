//! Producers, idempotent and plain by turns, that send until told to stop and never give up a batch; what was acknowledged, when
//! and where; and the judgement of what can be read afterwards.

mod judge;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Answer, Client, Producer, Terms};
use crate::prng::Prng;
use crate::{Outcome, wait};

pub use judge::{Verdict, forget, judge, judge_beside};

/// Most records of a batch.
const BATCH_RECORDS_MAX: u64 = 20;
/// Sixteen bytes each, beyond a value's name.
const PADDING: usize = 6;
/// OUT_OF_ORDER_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID: what the producer sent before is gone.
const SEQUENCE_LOST: [i16; 2] = [45, 59];

/// A batch that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Number of its first record among those of its producer.
    pub first: u64,
    /// How many records.
    pub count: u64,
    /// Offset of the first.
    pub offset: i64,
    /// When the acknowledgement came.
    pub at: Instant,
}

/// What one producer did.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Number of the producer.
    pub producer: usize,
    /// Its partition.
    pub partition: i32,
    /// Whether it has a producer id.
    pub idempotent: bool,
    /// Whether it asks for the acknowledgement of all: only then is it promised anything.
    pub acks_all: bool,
    /// In the order of its records.
    pub acked: Vec<Acked>,
    /// How often it was told that what it had sent before is not there, and began anew.
    pub restarts: u64,
    /// Refusals by code.
    pub refused: BTreeMap<i16, u64>,
}

impl Account {
    /// Longest time between two acknowledgements.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        let pauses = self.acked.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at));
        pauses.max().unwrap_or_default()
    }
}

/// Producers at work.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    acked: Vec<Arc<AtomicU64>>,
    trouble: Arc<Mutex<String>>,
    errors: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Account>>,
}

/// Where producers send to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Addresses to ask for leaders.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// Its number of partitions.
    pub partitions: i32,
}

/// How producers work.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many; the k-th sends to the partition k modulo their number.
    pub producers: usize,
    /// Number of the first.
    pub first: usize,
    /// Where their random choices begin.
    pub seed: u64,
    /// -1 is all.
    pub acks: i16,
    /// Whether each rests for a moment after each batch: about 20 a second.
    pub paced: bool,
    /// Whether all have producer ids, or every other.
    pub idempotent: bool,
}

impl Default for Plan {
    /// One producer at acks=all, at full speed.
    fn default() -> Self {
        Self { producers: 1, first: 0, seed: 0, acks: -1, paced: false, idempotent: false }
    }
}

impl Load {
    /// Starts some producers at acks=all, numbered from `first` on; the k-th sends to the partition k modulo their number.
    #[must_use]
    pub fn start(target: &Target, producers: usize, first: usize, seed: u64) -> Self {
        Self::start_with(target, Plan { producers, first, seed, ..Plan::default() })
    }

    /// The same on other terms.
    #[must_use]
    pub fn start_with(target: &Target, plan: Plan) -> Self {
        let Plan { producers, first, seed, acks, paced, idempotent } = plan;
        let (stop, stopped) = watch::channel(false);
        let (trouble, errors) = (Arc::default(), Arc::default());
        let mut load = Self { stop, acked: Vec::new(), trouble, errors, tasks: Vec::new() };
        for producer in first..first + producers {
            let acked = Arc::new(AtomicU64::new(0));
            let one = One {
                target: target.clone(),
                prng: Prng::new(seed ^ (producer as u64) << 32),
                stopped: stopped.clone(),
                batches: acked.clone(),
                trouble: load.trouble.clone(),
                errors: load.errors.clone(),
                acks,
                paced,
                attempts: 0,
                client: None,
                id: None,
                account: Account {
                    producer,
                    partition: i32::try_from(producer).unwrap_or(0) % target.partitions,
                    idempotent: idempotent || producer.is_multiple_of(2),
                    acks_all: acks == -1,
                    ..Account::default()
                },
            };
            load.acked.push(acked);
            load.tasks.push(tokio::spawn(one.run()));
        }
        load
    }

    /// Batches acknowledged so far, by producer.
    #[must_use]
    pub fn batches(&self) -> Vec<u64> {
        self.acked.iter().map(|acked| acked.load(Ordering::SeqCst)).collect()
    }

    /// What a producer was told last when it did not succeed.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often so far a producer was refused, or got no answer, or found nobody to send to.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }

    /// Lets every producer finish the batch that it has in hand.
    ///
    /// # Errors
    /// A producer panicked.
    pub async fn stop(self) -> Outcome<Vec<Account>> {
        self.stop.send_replace(true);
        let mut accounts = Vec::new();
        for task in self.tasks {
            accounts.push(task.await?);
        }
        Ok(accounts)
    }
}

struct One {
    target: Target,
    prng: Prng,
    stopped: watch::Receiver<bool>,
    batches: Arc<AtomicU64>,
    trouble: Arc<Mutex<String>>,
    errors: Arc<AtomicU64>,
    acks: i16,
    paced: bool,
    attempts: usize,
    client: Option<Client>,
    id: Option<Producer>,
    account: Account,
}

impl One {
    async fn run(mut self) -> Account {
        let mut next = 0;
        while !*self.stopped.borrow() {
            let count = 1 + self.prng.below(BATCH_RECORDS_MAX);
            let values: Vec<Vec<u8>> =
                (next..next + count).map(|n| value(self.account.producer, n)).collect();
            // Until it is acknowledged: what is sent may be there though nothing was said.
            let offset = loop {
                let trouble = match self.send(&values).await {
                    Ok(Answer::Appended(offset)) => break offset,
                    Ok(Answer::Refused(code, message)) => {
                        *self.account.refused.entry(code).or_default() += 1;
                        if SEQUENCE_LOST.contains(&code) {
                            self.id = None;
                            self.account.restarts += 1;
                        }
                        format!("error {code} {message}")
                    }
                    Err(error) => error.to_string(),
                };
                self.errors.fetch_add(1, Ordering::SeqCst);
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
                self.client = None;
                wait::next_look().await;
            };
            self.account.acked.push(Acked { first: next, count, offset, at: Instant::now() });
            self.batches.fetch_add(1, Ordering::SeqCst);
            if let Some(id) = &mut self.id {
                id.sequence += i32::try_from(count).unwrap_or(0);
            }
            next += count;
            if self.paced {
                wait::next_look().await;
            }
        }
        self.account
    }

    async fn send(&mut self, values: &[Vec<u8>]) -> Outcome<Answer> {
        let partition = self.account.partition;
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                self.attempts += 1;
                let Target { bootstrap, topic, .. } = &self.target;
                let leader = Client::of_leader(bootstrap, self.attempts, topic, partition);
                let mut leader = leader.await?;
                if self.account.idempotent && self.id.is_none() {
                    self.id = Some(leader.producer().await?);
                }
                leader
            }
        };
        let terms = Terms { acks: self.acks, producer: self.id, ..Terms::default() };
        let answer = client.produce_on(&self.target.topic, partition, terms, values).await?;
        self.client = Some(client);
        Ok(answer)
    }
}

/// The value of a producer's n-th record: its name, and bytes that follow from it.
fn value(producer: usize, n: u64) -> Vec<u8> {
    let mut value = format!("{producer}:{n}:").into_bytes();
    let mut prng = Prng::new(n ^ (producer as u64) << 48);
    for _ in 0..PADDING {
        value.extend_from_slice(format!("{:016x}", prng.next_u64()).as_bytes());
    }
    value
}
