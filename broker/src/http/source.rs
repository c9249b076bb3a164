//! What the page's answers are made of, once the broker is registered.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use barnabas_controller::{ClusterView as _, Explains, FailoverHistory, Ledger};
use bytes::Bytes;

use super::api::{Losses, Refusal};
use super::aside::Aside;
use super::events::Ring;
use super::glance::{Groups, Peers, Rates, TopicRates};
use super::history::IsrHistory;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::storage::Storage;

/// How long an answer about the whole cluster is given again, unless the cluster has changed.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// What a [`Source`] has from elsewhere.
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

/// See the module's head. The parts are read as its own fields.
pub struct Source {
    pub(super) parts: Arc<Parts>,
    pub(super) peers: Peers,
    pub(super) groups: Groups,
    pub(super) rates: Arc<Rates>,
    pub(super) topic_rates: Arc<TopicRates>,
    pub(super) losses: Losses,
    pub(super) isr_history: IsrHistory,
    pub(super) ring: Ring,
    /// Where long looks are taken.
    pub(super) aside: Aside,
    kept: Mutex<HashMap<&'static str, Arc<Turn>>>,
}

/// The last answer of one name. Held by whoever makes the next one: the others wait for that.
type Turn = tokio::sync::Mutex<Option<Kept>>;

struct Kept {
    version: u64,
    built: Instant,
    body: Bytes,
}

impl Deref for Source {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Source {
    /// Of a registered broker.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            parts: Arc::new(parts),
            peers: Peers::default(),
            groups: Groups::default(),
            rates: Arc::default(),
            topic_rates: Arc::default(),
            losses: Losses::default(),
            isr_history: IsrHistory::default(),
            ring: Ring::default(),
            aside: Aside::default(),
            kept: Mutex::default(),
        })
    }

    /// The answer that was given within the last second, if nothing has changed in the cluster; else a new one, made once for all who wait for
    /// it.
    pub(super) async fn kept(
        &self,
        name: &'static str,
        build: impl Future<Output = Result<serde_json::Value, Refusal>>,
    ) -> Result<Bytes, Refusal> {
        let turn = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.entry(name).or_default().clone()
        };
        let mut turn = turn.lock().await;
        let version = *self.node.view.changes().borrow();
        if let Some(kept) = turn.as_ref()
            && kept.version == version
            && kept.built.elapsed() < KEPT_FOR
        {
            return Ok(kept.body.clone());
        }
        let body = Bytes::from(format!("{}\n", build.await?));
        *turn = Some(Kept { version, built: Instant::now(), body: body.clone() });
        Ok(body)
    }
}
