//! This broker's followers: one fetcher a leader, each a task with one connection.

mod fetcher;
mod pace;
mod session;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use barnabas_types::{BrokerId, TopicPartition};

use crate::node::Node;
use crate::partition::Hosted;
use fetcher::Fetcher;
pub use fetcher::Link;
pub use pace::Pace;

/// Which partitions follow whom. Partitions change leaders here; fetchers come and go with their partitions.
pub struct Followers {
    node: Weak<Node>,
    data: tokio::runtime::Handle,
    state: Mutex<BTreeMap<BrokerId, Arc<Fetcher>>>,
}

impl Followers {
    /// Nobody follows yet. Fetchers run on `data`.
    #[must_use]
    pub fn new(node: Weak<Node>, data: tokio::runtime::Handle) -> Self {
        Self { node, data, state: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BrokerId, Arc<Fetcher>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `hosted` follows `leader` from now on (also: in a newer epoch).
    pub fn follow(&self, hosted: &Arc<Hosted>, leader: BrokerId) {
        let mut fetchers = self.lock();
        fetchers.retain(|id, fetcher| *id == leader || !fetcher.forget(&hosted.topic_partition));
        let fetcher = fetchers.entry(leader).or_insert_with(|| {
            let fetcher = Arc::new(Fetcher::new(leader));
            self.data.spawn(fetcher::run(fetcher.clone(), self.node.clone()));
            fetcher
        });
        fetcher.add(hosted);
    }

    /// The partition follows nobody.
    pub fn stop(&self, tp: &TopicPartition) {
        self.lock().retain(|_, fetcher| !fetcher.forget(tp));
    }

    /// The leader must hear at once where this partition stands now.
    pub fn name_again(&self, tp: &TopicPartition, leader: BrokerId) {
        let fetcher = self.lock().get(&leader).cloned();
        if let Some(fetcher) = fetcher {
            fetcher.name_again(tp);
        }
    }

    /// The connection to each leader that is followed.
    #[must_use]
    pub fn links(&self) -> Vec<(BrokerId, Link)> {
        self.lock().iter().map(|(leader, fetcher)| (*leader, fetcher.link())).collect()
    }

    /// Nothing is followed any more: the broker is stopping.
    pub fn stop_all(&self) {
        for fetcher in std::mem::take(&mut *self.lock()).into_values() {
            fetcher.stop();
        }
    }

    /// Every session names the old broker epoch: all begin anew.
    pub fn broker_epoch_changed(&self) {
        for fetcher in self.lock().values() {
            fetcher.restart();
        }
    }
}
