//! What every fault scenario is judged by, at work while the faults happen and after the last one is lifted.
//!
//! | | what must hold | where |
//! |---|---|---|
//! | 1 | a record acknowledged at acks=all is in the final log: once if idempotent, at least once if not | [`crate::load::judge`], [`Oracles::expect`] |
//! | 2 | what a consumer saw at an offset never changes and never vanishes | [`marks`], [`reader`] |
//! | 3 | all replicas are the same, byte for byte | [`crate::replicas::identical`] |
//! | 4 | controller and leader epochs never go down; a leader epoch has one leader | [`epochs`] |
//! | 5 | last offset and high watermark, as one client sees them, never go down | [`marks`], [`reader`] |
//! | 7 | offsets in data files increase strictly | [`files`] |
//! | 8 | everything heals within a bound, and nothing was restarted for it | [`healed`] |
//!
//! (6, offsets of consumer groups, waits for groups.) They hold for topics without unclean elections, retention or compaction.

pub mod epochs;
pub mod files;
pub mod healed;
pub mod marks;
pub mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Outcome;
use crate::client::{Client, Fetch};
use crate::cluster::Cluster;
use crate::load::{self, Account, Target, Verdict};
use crate::wait::next_look;

use epochs::Epochs;
use marks::Marks;

/// Most broken promises that are kept; the first ones tell the most.
const FAULTS_MAX: usize = 50;

/// Broken promises, one sentence each.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    /// Notes some.
    pub fn extend(&self, faults: impl IntoIterator<Item = String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = FAULTS_MAX.saturating_sub(all.len());
        all.extend(faults.into_iter().take(room));
    }

    /// All so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Which promises the settings of a scenario leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// All of them.
    Kept,
    /// What was acknowledged or seen may be lost (acks=1; a loss of power in async mode); replicas still agree in the end.
    LossAllowed,
}

/// Watchers at work on some topics of a cluster.
#[derive(Debug)]
pub struct Oracles {
    promise: Promise,
    topics: BTreeMap<String, i32>,
    faults: Faults,
    marks: BTreeMap<String, Arc<Mutex<Marks>>>,
    stop: watch::Sender<bool>,
    watchers: Vec<JoinHandle<()>>,
    epochs: Arc<Mutex<Epochs>>,
    expected: BTreeMap<(String, i32, i64), Vec<u8>>,
    sent: BTreeSet<Vec<u8>>,
}

impl Oracles {
    /// Begins to watch topics that exist.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn watch(cluster: &Cluster, topics: &[&str], promise: Promise) -> Outcome<Self> {
        let znodes = cluster.znodes().await?;
        let (stop, stopped) = watch::channel(false);
        let faults = Faults::default();
        let epochs = Arc::<Mutex<Epochs>>::default();
        let mut oracles = Self {
            promise,
            topics: BTreeMap::new(),
            faults: faults.clone(),
            marks: BTreeMap::new(),
            stop,
            watchers: Vec::new(),
            epochs: epochs.clone(),
            expected: BTreeMap::new(),
            sent: BTreeSet::new(),
        };
        for topic in topics {
            let partitions = i32::try_from(znodes.partitions(topic).await?.len())?;
            oracles.topics.insert((*topic).to_owned(), partitions);
            let marks = Arc::<Mutex<Marks>>::default();
            oracles.marks.insert((*topic).to_owned(), marks.clone());
            let target =
                Target { bootstrap: cluster.bootstrap(), topic: (*topic).to_owned(), partitions };
            let faults = (promise == Promise::Kept).then(|| faults.clone());
            let reader = reader::run(target, marks, faults, stopped.clone());
            oracles.watchers.push(tokio::spawn(reader));
        }
        let topics = oracles.topics.keys().cloned().collect();
        let connect = cluster.zookeeper_connect().to_owned();
        let watcher = epochs::run(connect, topics, epochs, faults, stopped);
        oracles.watchers.push(tokio::spawn(watcher));
        Ok(oracles)
    }

    /// A record that was acknowledged at acks=all outside of a [`load::Load`]: it must be at this offset in the end.
    pub fn expect(&mut self, topic: &str, partition: i32, offset: i64, value: &[u8]) {
        self.sent(value);
        self.expected.insert((topic.to_owned(), partition, offset), value.to_owned());
    }

    /// A value that was sent outside of a [`load::Load`]: it may be there in the end.
    pub fn sent(&mut self, value: &[u8]) {
        self.sent.insert(value.to_owned());
    }

    /// Broken promises so far.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.faults.all()
    }

    /// How many records consumers have seen so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.marks.values().map(|m| m.lock().unwrap_or_else(PoisonError::into_inner).seen()).sum()
    }

    /// How many elections of partition leaders were noticed.
    #[must_use]
    pub fn elections(&self) -> u64 {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner).elections()
    }

    /// The last fault is lifted, and nobody writes any more: waits until everything has healed, then judges.
    ///
    /// # Errors
    /// Something does not heal, or a promise is broken: all of them, one a line.
    pub async fn judge(
        self,
        cluster: &mut Cluster,
        loads: &[(Target, Vec<Account>)],
    ) -> Outcome<Verdict> {
        let (verdict, faults) = self.examine(cluster, loads).await?;
        if faults.is_empty() { Ok(verdict) } else { Err(faults.join("\n").into()) }
    }

    /// The same; what became of the records, and which promises were broken.
    ///
    /// # Errors
    /// Something does not heal.
    pub async fn examine(
        self,
        cluster: &mut Cluster,
        loads: &[(Target, Vec<Account>)],
    ) -> Outcome<(Verdict, Vec<String>)> {
        let faults = self.faults.clone();
        for (topic, partitions) in &self.topics {
            healed::until_healed(cluster, topic).await?;
            for partition in 0..*partitions {
                files::until_identical(cluster, topic, partition).await?;
                faults.extend(files::disorder(cluster, topic, partition)?);
            }
        }
        self.stop.send_replace(true);
        for watcher in self.watchers {
            watcher.await?;
        }
        for (topic, partitions) in &self.topics {
            for partition in 0..*partitions {
                let found = read_all(&cluster.bootstrap(), topic, partition).await?;
                if self.promise == Promise::Kept {
                    let marks = self.marks[topic].lock().unwrap_or_else(PoisonError::into_inner);
                    faults.extend(marks.vanished(topic, partition, &found));
                }
                let expected =
                    self.expected.iter().filter(|((t, p, _), _)| t == topic && *p == partition);
                faults.extend(expected.filter(|((.., offset), value)| found.get(offset) != Some(value)).map(
                    |((.., offset), value)| {
                        let value = String::from_utf8_lossy(value);
                        format!("{topic}-{partition}: '{value}' was acknowledged at offset {offset} and is not there")
                    },
                ));
            }
        }
        let mut sum = Verdict::default();
        for (target, accounts) in loads {
            let verdict = load::judge_beside(target, accounts, &self.sent)?;
            if self.promise == Promise::Kept && !verdict.holds() {
                faults.extend([format!("{}: {}", target.topic, verdict.summary())]);
            }
            sum = sum.plus(verdict);
        }
        for broker in cluster.brokers() {
            let log = broker.log();
            let id = broker.id();
            faults.extend(
                log.lines()
                    .filter(|line| line.contains("panicked"))
                    .map(|line| format!("broker {id}: {line}")),
            );
        }
        Ok((sum, faults.all()))
    }
}

/// Everything that consumers may see of a partition, by offset.
async fn read_all(bootstrap: &str, topic: &str, partition: i32) -> Outcome<BTreeMap<i64, Vec<u8>>> {
    let deadline = std::time::Instant::now() + crate::cluster::SETTLE_MAX;
    let mut found = BTreeMap::new();
    let mut offset = 0;
    loop {
        let step = async {
            let mut client = Client::of_leader(bootstrap, 0, topic, partition).await?;
            loop {
                let fetched =
                    client.fetch(topic, partition, Fetch { offset, ..Fetch::default() }).await?;
                if fetched.error != 0 {
                    return Err(format!("error {}", fetched.error).into());
                }
                for record in fetched.records {
                    offset = record.offset + 1;
                    found.insert(record.offset, record.value);
                }
                if offset >= fetched.high_watermark {
                    return Ok::<_, crate::Fault>(());
                }
                offset = offset.max(fetched.log_start);
            }
        };
        match step.await {
            Ok(()) => return Ok(found),
            Err(error) if std::time::Instant::now() > deadline => {
                return Err(format!("{topic}-{partition} cannot be read: {error}").into());
            }
            Err(_) => next_look().await,
        }
    }
}
