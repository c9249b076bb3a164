//! One scrape at a time: asks the coordinators, then gathers and writes on a thread of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use barnabas_metrics::{Counts, Text, Window};
use barnabas_types::BrokerId;

use super::detail::Detail;
use super::failovers::FailoverFigures;
use super::groups::{self, GroupFigures};
use super::replicas::Replicas;
use super::write;
use super::zookeeper::ZooKeeperFigures;
use crate::flush::Flusher;
use crate::health::Health;
use crate::node::Node;
use crate::storage::{Flushers, Storage};

/// Room for the first answer; later ones begin with that of the one before, and a little more.
const FIRST_ROOM_BYTES: usize = 64 << 10;

/// What scrapes are made of. There from the first moment of a start.
pub struct Metrics {
    pub(super) me: BrokerId,
    pub(super) detail: Detail,
    pub(super) health: Arc<Health>,
    /// How ZooKeeper answers.
    pub zookeeper: Arc<ZooKeeperFigures>,
    /// Failovers that this process recorded.
    pub failovers: FailoverFigures,
    sources: OnceLock<Sources>,
    /// Held by the scrape under way: one is enough for one broker.
    scrape: Arc<tokio::sync::Mutex<()>>,
    memory: Mutex<Memory>,
    began: Instant,
}

/// Present once the broker is registered.
pub(super) struct Sources {
    pub(super) node: Arc<Node>,
    pub(super) storage: Arc<Storage>,
    flushers: Vec<Weak<Flusher>>,
}

/// What one scrape leaves for the next.
#[derive(Default)]
struct Memory {
    windows: HashMap<String, Window>,
    room_bytes: usize,
    took: Option<Duration>,
}

impl Sources {
    /// How long syncs took, how many partitions each made durable, and (partitions, failures); of all directories.
    pub(super) fn flushes(&self) -> (Counts, Counts, (u64, u64)) {
        let (mut took, mut sizes, mut done) = (Counts::default(), Counts::default(), (0, 0));
        for flusher in self.flushers.iter().filter_map(Weak::upgrade) {
            let (times, numbers) = flusher.histograms();
            took.add(&times);
            sizes.add(&numbers);
            let counts = flusher.counts();
            done = (done.0 + counts.partitions, done.1 + counts.failed);
        }
        (took, sizes, done)
    }
}

impl Metrics {
    /// Of a broker that is starting.
    #[must_use]
    pub fn new(me: BrokerId, detail: Detail, health: Arc<Health>) -> Arc<Self> {
        Arc::new(Self {
            me,
            detail,
            health,
            zookeeper: Arc::default(),
            failovers: FailoverFigures::default(),
            sources: OnceLock::new(),
            scrape: Arc::default(),
            memory: Mutex::default(),
            began: Instant::now(),
        })
    }

    /// The broker is registered. The flushers end with their owner, not with this.
    pub fn registered(&self, node: &Arc<Node>, storage: &Arc<Storage>, flushers: &Flushers) {
        let flushers = flushers.iter().flatten().map(Arc::downgrade).collect();
        let sources = Sources { node: node.clone(), storage: storage.clone(), flushers };
        // Called once; a second call would change nothing.
        let _ = self.sources.set(sources);
    }

    /// As [`Sources::flushes`]; `None`: the broker is not registered yet.
    pub(super) fn flushes(&self) -> Option<(Counts, Counts, (u64, u64))> {
        self.sources.get().map(Sources::flushes)
    }

    /// The whole answer; `None`: something is broken in it.
    pub async fn scrape(self: &Arc<Self>) -> Option<String> {
        let scrape = self.scrape.clone().lock_owned().await;
        let groups = match self.sources.get() {
            Some(sources) => groups::gather(&sources.node).await,
            None => Vec::new(),
        };
        let this = self.clone();
        // The runtimes here have other things to do, ZooKeeper's heartbeats among them.
        let text = tokio::task::spawn_blocking(move || {
            let text = this.write(&groups);
            drop(scrape);
            text
        });
        match text.await {
            Ok(text) => Some(text),
            Err(error) => {
                tracing::error!(target: "request", %error, "the metrics could not be written");
                None
            }
        }
    }

    fn write(&self, groups: &[GroupFigures]) -> String {
        let began = Instant::now();
        let (room_bytes, took) = {
            let memory = self.memory();
            (memory.room_bytes.max(FIRST_ROOM_BYTES), memory.took)
        };
        let mut text = Text::with_room(room_bytes);
        write::process(self, &mut text);
        if let Some(sources) = self.sources.get() {
            let replicas = Replicas::look(&sources.node);
            write::traffic(self, sources, &mut text);
            write::cluster(self, sources, &replicas, &mut text);
            write::logs(self, sources, &replicas, &mut text);
            write::broker(sources, &mut text);
            write::groups(self, groups, &replicas, &mut text);
        }
        if let Some(took) = took {
            text.one("barnabas_scrape_seconds", took.as_secs_f64());
        }
        let text = text.finish();
        let mut memory = self.memory();
        memory.room_bytes = text.len() + text.len() / 8;
        memory.took = Some(began.elapsed());
        text
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the histogram `name` counted lately, when it has `now`.
    pub(super) fn recent(&self, name: &str, now: &Counts) -> Counts {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut memory = self.memory();
        if !memory.windows.contains_key(name) {
            memory.windows.insert(name.to_owned(), Window::default());
        }
        memory.windows.get_mut(name).map_or_else(Counts::default, |w| w.recent(now_ms, now))
    }
}
