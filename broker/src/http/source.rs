//! What the page's answers are made of, once the broker is registered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use barnabas_controller::{ClusterView as _, Explains, FailoverHistory, Ledger};
use bytes::Bytes;

use super::api::{Losses, Refusal};
use super::events::Ring;
use super::glance::{Groups, Peers, Rates, TopicRates};
use super::history::IsrHistory;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::storage::Storage;

/// How long an answer about the whole cluster is given again, unless the cluster has changed.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The parts of a [`Source`] that come from elsewhere.
pub struct Parts {
    /// This broker.
    pub node: Arc<Node>,
    /// Its log directories.
    pub storage: Arc<Storage>,
    /// How it is.
    pub health: Arc<Health>,
    /// What is wrong with something.
    pub explains: Arc<dyn Explains>,
    /// The failovers.
    pub failovers: Arc<dyn FailoverHistory>,
    /// The lost records.
    pub ledger: Arc<dyn Ledger>,
    /// `zookeeper.connect`.
    pub zookeeper_connect: String,
    /// The port of `http.listener`.
    pub http_port: u16,
    /// What is counted and measured here.
    pub metrics: Arc<Metrics>,
    /// No operator's token opens anything.
    pub read_only: bool,
}

/// See the module's head.
pub struct Source {
    pub(super) node: Arc<Node>,
    pub(super) storage: Arc<Storage>,
    pub(super) health: Arc<Health>,
    pub(super) explains: Arc<dyn Explains>,
    pub(super) failovers: Arc<dyn FailoverHistory>,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) zookeeper_connect: String,
    pub(super) http_port: u16,
    pub(super) metrics: Arc<Metrics>,
    pub(super) read_only: bool,
    pub(super) peers: Peers,
    pub(super) groups: Groups,
    pub(super) rates: Rates,
    pub(super) topic_rates: TopicRates,
    pub(super) losses: Losses,
    pub(super) isr_history: IsrHistory,
    pub(super) ring: Ring,
    kept: Mutex<HashMap<&'static str, Kept>>,
}

struct Kept {
    version: u64,
    built: Instant,
    body: Bytes,
}

impl Source {
    /// Of a registered broker.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            node,
            storage,
            health,
            explains,
            failovers,
            ledger,
            zookeeper_connect,
            http_port,
            metrics,
            read_only,
        } = parts;
        Arc::new(Self {
            node,
            storage,
            health,
            explains,
            failovers,
            ledger,
            zookeeper_connect,
            http_port,
            metrics,
            read_only,
            peers: Peers::default(),
            groups: Groups::default(),
            rates: Rates::default(),
            topic_rates: TopicRates::default(),
            losses: Losses::default(),
            isr_history: IsrHistory::default(),
            ring: Ring::default(),
            kept: Mutex::default(),
        })
    }

    /// The answer that was given within the last second, if nothing has changed in the cluster; else a new one, for all who come.
    pub(super) async fn kept(
        &self,
        name: &'static str,
        build: impl Future<Output = Result<serde_json::Value, Refusal>>,
    ) -> Result<Bytes, Refusal> {
        let version = *self.node.view.changes().borrow();
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(name)
            && kept.version == version
            && kept.built.elapsed() < KEPT_FOR
        {
            return Ok(kept.body.clone());
        }
        let body = Bytes::from(format!("{}\n", build.await?));
        let kept = Kept { version, built: Instant::now(), body: body.clone() };
        lock().insert(name, kept);
        Ok(body)
    }
}
