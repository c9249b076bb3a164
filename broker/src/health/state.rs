//! What the broker says of its own health.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use barnabas_types::BrokerId;
use serde_json::{Value, json};

use crate::journal::Kind;
use crate::node::Node;
use crate::storage::Storage;

/// Gathers it when it is asked; there from the first moment of a start.
pub struct Health {
    broker: BrokerId,
    reserve_bytes: u64,
    storage: OnceLock<Arc<Storage>>,
    node: OnceLock<Arc<Node>>,
    stopping: AtomicBool,
}

impl Health {
    /// Of a broker that is starting. `reserve_bytes` is shown with each directory.
    #[must_use]
    pub fn new(broker: BrokerId, reserve_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            broker,
            reserve_bytes,
            storage: OnceLock::new(),
            node: OnceLock::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// The broker is registered.
    pub fn registered(&self, node: &Arc<Node>, storage: &Arc<Storage>) {
        // Called once; a second call would change nothing.
        let _ = self.storage.set(storage.clone());
        let _ = self.node.set(node.clone());
    }

    /// A stop was asked for.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// The process answers.
    #[must_use]
    pub fn live(&self) -> Value {
        json!({ "status": "live", "broker_id": self.broker.0 })
    }

    /// Whether the broker serves its partitions, and what there is to know about it.
    #[must_use]
    pub fn ready(&self) -> (bool, Value) {
        let status = self.status();
        let ready = status == "ready";
        let mut said = json!({ "status": status, "broker_id": self.broker.0 });
        if let Some(node) = self.node.get() {
            let membership = *node.membership.borrow();
            said["broker_epoch"] = json!(membership.broker_epoch.map(|epoch| epoch.0));
            said["zookeeper_connected"] = json!(membership.connected);
            said["controller"] = json!(
                membership.controller.map(|(id, epoch)| json!({ "id": id.0, "epoch": epoch.0 }))
            );
            let (open, partitions) = node.fetch_sessions.size();
            said["fetch_sessions"] = json!({ "open": open, "partitions": partitions });
            said["failed_replicas"] = json!(node.failed.present().len());
            said["connections"] = connections(node);
            said["ledger"] = json!({
                "entries": crate::ledger::classes(&node.journal),
                "missing": node.journal.missing(Kind::Loss),
            });
        }
        if let Some(storage) = self.storage.get() {
            said["recovery"] = recovery(storage);
            said["log_dirs"] = self.directories(storage);
        }
        (ready, said)
    }

    /// In one or a few words; "ready" is the only good one.
    #[must_use]
    pub fn status(&self) -> &'static str {
        let Some(storage) = self.storage.get() else { return "registering" };
        if self.stopping.load(Ordering::Acquire) {
            return "stopping";
        }
        if storage.directories().iter().all(|directory| directory.usable().is_none()) {
            return "every log directory is offline";
        }
        match storage.opening().is_settled() {
            true => "ready",
            false if storage.opening().progress().is_some() => "recovering",
            false => "waiting for the controller",
        }
    }

    /// `log.dir.reserve.bytes`.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    fn directories(&self, storage: &Storage) -> Value {
        let directories = storage.directories().iter().map(|directory| {
            let reason = directory.offline_reason();
            json!({
                "path": directory.path().display().to_string(),
                "state": if reason.is_some() { "offline" } else { "online" },
                "reason": reason,
                "room": directory.room().name(),
                "free_bytes": directory.free_bytes(),
                "reserve_bytes": self.reserve_bytes,
            })
        });
        directories.collect()
    }
}

/// Who is connected, and what of the budget their requests and answers have.
fn connections(node: &Node) -> Value {
    let (counts, budget) = (node.places.counts(), &node.budget);
    json!({
        "clients": counts.clients,
        "followers": counts.followers,
        "max": counts.max,
        "refused": counts.refused,
        "request_bytes": budget.request_bytes(),
        "answer_bytes": budget.answer_bytes(),
        "max_bytes": budget.max_bytes(),
        "waiting": budget.waiting(),
    })
}

/// "n of m": how far the opening of what was on disk at the start has come; null once it is over.
fn recovery(storage: &Storage) -> Value {
    if storage.opening().is_settled() {
        return Value::Null;
    }
    let recovered = storage.recovered();
    let percent = recovered.opened.saturating_mul(100).checked_div(recovered.of);
    json!({
        "opened": recovered.opened,
        "of": recovered.of,
        "percent": percent.unwrap_or(100),
        "scanned_bytes": recovered.scanned_bytes,
        "bytes_to_scan": recovered.bytes_to_scan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Disk, ME, node};

    #[tokio::test]
    async fn readiness_follows_the_first_state_the_directories_and_the_stop() {
        let health = Health::new(ME, 7);
        let status = |health: &Health| {
            let (ready, said) = health.ready();
            assert_eq!(ready, said["status"] == "ready");
            said["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(status(&health), "registering");
        assert_eq!(health.live()["status"], "live");
        let (node, disk) = (node(), Disk::with_directories(Default::default(), &["a", "b"]));
        health.registered(&node, &disk.storage);
        assert_eq!(status(&health), "waiting for the controller");
        let said = health.ready().1;
        assert_eq!(
            (&said["recovery"]["of"], &said["recovery"]["percent"]),
            (&json!(0), &json!(100))
        );
        assert_eq!(said["broker_epoch"], 101);
        assert_eq!(said["connections"]["clients"], 0);
        assert_eq!(said["connections"]["max"], 1_000);
        assert_eq!(said["ledger"], json!({ "entries": {}, "missing": 0 }));
        disk.storage.opening().settled();
        assert_eq!(status(&health), "ready");
        disk.storage.directories()[0].fail("it is broken".to_owned());
        assert_eq!(status(&health), "ready", "the other one serves");
        let said = health.ready().1;
        assert_eq!(said["log_dirs"][0]["reason"], "it is broken");
        assert_eq!(
            (&said["log_dirs"][1]["state"], &said["recovery"]),
            (&json!("online"), &Value::Null)
        );
        disk.storage.directories()[1].fail("it too".to_owned());
        assert_eq!(status(&health), "every log directory is offline");
        health.stopping();
        assert_eq!(status(&health), "stopping");
    }
}
