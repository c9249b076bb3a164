//! The fetcher of one leader: keeps a connection to it while there are partitions to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use barnabas_types::{BrokerId, TopicPartition};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::session;
use crate::node::Node;
use crate::partition::Hosted;

/// First and longest wait between two dials.
const REDIAL_MS: (u64, u64) = (20, 1000);
/// How long a dial may take.
const DIAL_DEADLINE: Duration = Duration::from_secs(2);

/// The partitions that follow one leader.
pub(super) struct Fetcher {
    /// Whom.
    pub(super) leader: BrokerId,
    pub(super) wake: Notify,
    work: Mutex<Work>,
    link: Mutex<Link>,
}

/// The connection to a leader, for whoever asks why a follower is behind.
#[derive(Clone, Debug)]
pub struct Link {
    /// The leader answers over it.
    pub connected: bool,
    /// Since when it does, or does not.
    pub since: Instant,
    /// When the last answer came; at first, when the fetcher began.
    pub answered_at: Instant,
    /// What ended the last connection, or prevents one; empty if nothing has.
    pub failure: String,
}

/// What the session must look at.
#[derive(Default)]
pub(super) struct Work {
    pub(super) partitions: BTreeMap<TopicPartition, Arc<Hosted>>,
    /// Added, moved to a new epoch or flushed since the last request.
    pub(super) changed: BTreeSet<TopicPartition>,
    /// Taken away since the last request.
    pub(super) forgotten: BTreeSet<TopicPartition>,
    /// The session must begin anew.
    pub(super) restart: bool,
    stopped: bool,
}

impl Fetcher {
    pub(super) fn new(leader: BrokerId) -> Self {
        let now = Instant::now();
        let link = Link { connected: false, since: now, answered_at: now, failure: String::new() };
        let (work, link) = (Mutex::default(), Mutex::new(link));
        Self { leader, wake: Notify::new(), work, link }
    }

    /// The connection, as it is now.
    pub(super) fn link(&self) -> Link {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The leader has answered.
    pub(super) fn answered(&self, now: Instant) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.answered_at = now;
        if !link.connected {
            link.connected = true;
            link.since = now;
            link.failure.clear();
        }
    }

    fn disconnected(&self, now: Instant, failure: String) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.connected {
            link.connected = false;
            link.since = now;
        }
        link.failure = failure;
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, hosted: &Arc<Hosted>) {
        let mut work = self.work();
        let tp = hosted.topic_partition.clone();
        work.forgotten.remove(&tp);
        work.partitions.insert(tp.clone(), hosted.clone());
        work.changed.insert(tp);
        drop(work);
        self.wake.notify_one();
    }

    /// Names a partition in the next request, which is sent at once.
    pub(super) fn name_again(&self, tp: &TopicPartition) {
        let mut work = self.work();
        let news = work.partitions.contains_key(tp) && work.changed.insert(tp.clone());
        drop(work);
        if news {
            self.wake.notify_one();
        }
    }

    /// Takes a partition away. `true`: it was the last one, the fetcher ends and must be dropped by its owner.
    pub(super) fn forget(&self, tp: &TopicPartition) -> bool {
        let mut work = self.work();
        if work.partitions.remove(tp).is_none() {
            return false;
        }
        work.changed.remove(tp);
        work.forgotten.insert(tp.clone());
        work.stopped = work.partitions.is_empty();
        let stopped = work.stopped;
        drop(work);
        self.wake.notify_one();
        stopped
    }

    /// Ends the fetcher: the broker is stopping.
    pub(super) fn stop(&self) {
        let mut work = self.work();
        work.partitions.clear();
        work.stopped = true;
        drop(work);
        self.wake.notify_one();
    }

    pub(super) fn restart(&self) {
        self.work().restart = true;
        self.wake.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.work().stopped
    }

    /// A new session begins: everything is to be introduced.
    pub(super) fn begin(&self) {
        let mut work = self.work();
        work.restart = false;
        work.forgotten.clear();
        work.changed = work.partitions.keys().cloned().collect();
    }
}

/// Dials, fetches, dials again, until the fetcher is stopped or the broker is gone.
pub(super) async fn run(fetcher: Arc<Fetcher>, node: Weak<Node>) {
    let mut wait_ms = REDIAL_MS.0;
    while !fetcher.is_stopped() {
        let Some(node) = node.upgrade() else { return };
        let address =
            node.view.image().brokers.get(&fetcher.leader).map(|b| (b.host.clone(), b.port));
        let dialled = match address {
            Some((host, port)) => {
                let dial = TcpStream::connect((host.as_str(), port));
                match tokio::time::timeout(DIAL_DEADLINE, dial).await {
                    Ok(Ok(stream)) => Ok(stream),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("no connection within {} s", DIAL_DEADLINE.as_secs())),
                }
            }
            None => Err("the leader is not registered".to_owned()),
        };
        if let Err(failure) = &dialled {
            fetcher.disconnected(Instant::now(), failure.clone());
        }
        if let Ok(stream) = dialled {
            fetcher.begin();
            let began = Instant::now();
            let ended = session::run(&fetcher, &node, stream).await;
            if ended.is_ok() || began.elapsed() >= Duration::from_millis(REDIAL_MS.1) {
                // It worked: what ended it is news, not one more failure.
                wait_ms = REDIAL_MS.0;
            }
            if let Err(error) = ended {
                fetcher.disconnected(Instant::now(), error.to_string());
                tracing::info!(target: "state_change", leader = %fetcher.leader, %error, "the fetch session ended");
            }
        }
        drop(node);
        if fetcher.is_stopped() {
            return;
        }
        // Waiting for either: the leader's state may change before the back-off is over.
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), fetcher.wake.notified()).await;
        wait_ms = (wait_ms * 2).min(REDIAL_MS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_tells_since_when_it_works_or_does_not_and_why() {
        let fetcher = Fetcher::new(BrokerId(1));
        let began = fetcher.link().since;
        let at = |s: u64| began + Duration::from_secs(s);
        assert!(!fetcher.link().connected && fetcher.link().failure.is_empty());
        fetcher.disconnected(at(1), "refused".to_owned());
        assert_eq!((fetcher.link().since, &*fetcher.link().failure), (began, "refused"));
        fetcher.answered(at(2));
        fetcher.answered(at(3));
        let link = fetcher.link();
        assert!(link.connected && link.failure.is_empty());
        assert_eq!((link.since, link.answered_at), (at(2), at(3)));
        fetcher.disconnected(at(4), "closed".to_owned());
        fetcher.disconnected(at(5), "refused".to_owned());
        let link = fetcher.link();
        assert_eq!((link.connected, &*link.failure), (false, "refused"));
        assert_eq!((link.since, link.answered_at), (at(4), at(3)));
    }
}
