//! Makes the events of this broker: looks at what has changed, not oftener than each kind allows, and only while somebody reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use barnabas_controller::ClusterView as _;
use barnabas_proto::v1;
use barnabas_types::{ClusterImage, Standing, TopicPartition};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::api;
use super::super::source::Source;
use crate::clock::unix_ms;
use crate::journal::Kind;

/// Between two looks; nothing comes oftener.
const LOOK_EVERY: Duration = Duration::from_millis(33);
/// Between two looks for readers while there is none.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two events of one kind.
const SECOND: Duration = Duration::from_secs(1);
const PARTITIONS_EVERY: Duration = Duration::from_millis(250);
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// How often a failover that runs is told though nothing of it has changed.
const RUNNING_EVERY: Duration = Duration::from_millis(100);
/// Partitions that are named in one event.
const CHANGED_MAX: usize = 500;
/// Changed partitions that are remembered between two events; beyond it only their number counts.
const REMEMBERED_MAX: usize = 20_000;
/// Events are made for so long after the last stream has ended: whoever comes back gets what he missed.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Something that may be done again only after a while.
struct Gate {
    every: Duration,
    last: Option<Instant>,
}

impl Gate {
    const fn new(every: Duration) -> Self {
        Self { every, last: None }
    }

    fn is_open(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.duration_since(last) >= self.every)
    }

    /// Whether it is open; it is closed then.
    fn pass(&mut self, now: Instant) -> bool {
        let open = self.is_open(now);
        if open {
            self.last = Some(now);
        }
        open
    }
}

/// Of each kind, what was told last.
struct Feed {
    source: Arc<Source>,
    /// The image of the last look.
    image: Arc<ClusterImage>,
    version: u64,
    changed: BTreeSet<TopicPartition>,
    changed_more: usize,
    cluster: Gate,
    brokers: Gate,
    partitions: Gate,
    offsets: Gate,
    groups: Gate,
    ledger: Gate,
    beat: Gate,
    running: Gate,
    /// `counts` and `problems` without their ages.
    told_cluster: Option<(Value, Vec<String>)>,
    told_brokers: BTreeMap<i64, Value>,
    told_failovers: BTreeMap<String, v1::Failover>,
    failovers_version: Option<u64>,
    ends: u64,
    losses: Option<usize>,
    marks: Vec<(crate::journal::Origin, u64)>,
    settings_changed: bool,
}

/// Makes events until the broker ends. `readers`: how many streams are open.
pub(in crate::http) async fn run(source: Arc<Source>, readers: impl Fn() -> usize + Send) {
    let mut feed = Feed::new(source);
    let mut interval = tokio::time::interval(LOOK_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut changes = feed.source.node.view.changes();
    let mut read = None;
    loop {
        if read.is_some() {
            interval.tick().await;
        } else {
            // The history of the ISRs wants each change; nobody wants anything else.
            let _ = tokio::time::timeout(IDLE_LOOK_EVERY, changes.changed()).await;
        }
        let now = Instant::now();
        feed.note_image();
        if readers() > 0 {
            read = Some(now);
        }
        read = read.filter(|read| now.duration_since(*read) < KEPT_FOR);
        if read.is_some() {
            feed.look(now).await;
        } else {
            feed.forget();
        }
    }
}

impl Feed {
    fn new(source: Arc<Source>) -> Self {
        Self {
            image: Arc::default(),
            version: 0,
            changed: BTreeSet::new(),
            changed_more: 0,
            cluster: Gate::new(SECOND),
            brokers: Gate::new(SECOND),
            partitions: Gate::new(PARTITIONS_EVERY),
            offsets: Gate::new(SECOND),
            groups: Gate::new(SECOND),
            ledger: Gate::new(SECOND),
            beat: Gate::new(BEAT_EVERY),
            running: Gate::new(RUNNING_EVERY),
            told_cluster: None,
            told_brokers: BTreeMap::new(),
            told_failovers: BTreeMap::new(),
            failovers_version: None,
            ends: 0,
            losses: None,
            marks: Vec::new(),
            settings_changed: false,
            source,
        }
    }

    fn push(&self, event: &str, data: &Value) {
        let epoch = self.image.controller.map_or(0, |(_, epoch)| epoch.0);
        self.source.ring.push(epoch, event, data);
    }

    /// Also while nobody reads: the history of the ISRs is made of it.
    fn note_image(&mut self) {
        let version = *self.source.node.view.changes().borrow();
        if version == self.version {
            return;
        }
        let image = self.source.node.view.image();
        let changed = self.source.isr_history.note(unix_ms(), &self.image, &image);
        self.settings_changed |= self.image.broker_settings != image.broker_settings
            || changed.iter().any(|at| {
                let config = |image: &ClusterImage| image.topics.get(&at.topic).map(|t| t.config);
                config(&self.image) != config(&image)
            });
        let room = REMEMBERED_MAX.saturating_sub(self.changed.len());
        self.changed_more += changed.len().saturating_sub(room);
        self.changed.extend(changed.into_iter().take(room));
        (self.version, self.image) = (version, image);
    }

    /// Nobody reads: what was told is not known to whoever comes next.
    fn forget(&mut self) {
        self.changed.clear();
        self.changed_more = 0;
        self.told_cluster = None;
        self.told_brokers.clear();
        self.settings_changed = false;
        self.failovers_version = None;
        self.told_failovers.clear();
        self.losses = None;
    }

    async fn look(&mut self, now: Instant) {
        if self.beat.pass(now) {
            self.push("beat", &json!({ "now_ms": unix_ms() }));
        }
        self.failovers(now);
        if self.image.controller.is_none() {
            return;
        }
        let changed = !self.changed.is_empty() || self.changed_more > 0;
        if changed && self.partitions.pass(now) {
            self.push("partitions", &self.changed_partitions());
            self.changed.clear();
            self.changed_more = 0;
            // At once when counts or problems change.
            self.cluster(now).await;
        }
        if self.cluster.is_open(now) {
            self.cluster(now).await;
        }
        if self.brokers.pass(now) {
            self.brokers().await;
        }
        if self.offsets.pass(now) {
            let ends = self.sum_of_ends();
            if ends != self.ends {
                self.ends = ends;
                self.push("offsets", &json!({}));
                if self.groups.pass(now) {
                    self.push("groups", &json!({}));
                }
            }
        }
        if self.settings_changed && self.groups.is_open(now) {
            self.settings_changed = false;
            self.push("configs", &json!({}));
        }
        if self.ledger.pass(now) {
            let marks = self.source.node.journal.newest(Kind::Loss);
            if self.losses.is_some() && marks != self.marks {
                self.push("ledger", &json!({}));
            }
            (self.losses, self.marks) = (Some(marks.len()), marks);
        }
    }

    async fn cluster(&mut self, now: Instant) {
        let Ok(told) = api::cluster(&self.source).await else { return };
        let problems = told["problems"].as_array().into_iter().flatten();
        let problems = problems.map(|p| format!("{}{}{}", p["severity"], p["what"], p["why"]));
        let essence = (told["counts"].clone(), problems.collect::<Vec<_>>());
        let other = self.told_cluster.as_ref() != Some(&essence);
        if self.cluster.pass(now) || other {
            self.cluster.last = Some(now);
            self.told_cluster = Some(essence);
            self.push("cluster", &told);
        }
    }

    async fn brokers(&mut self) {
        let Ok(mut told) = api::brokers(&self.source).await else { return };
        let Some(all) = told["brokers"].as_array_mut() else { return };
        let mut changed = Vec::new();
        for broker in std::mem::take(all) {
            let id = broker["id"].as_i64().unwrap_or(-1);
            let mut essence = broker.clone();
            essence["told_ms_ago"] = Value::Null;
            essence["state_since_ms"] = Value::Null;
            if self.told_brokers.get(&id) != Some(&essence) {
                self.told_brokers.insert(id, essence);
                changed.push(broker);
            }
        }
        if !changed.is_empty() {
            self.push("brokers", &json!({ "brokers": changed }));
        }
    }

    fn changed_partitions(&self) -> Value {
        let count = self.changed.len() + self.changed_more;
        if count > CHANGED_MAX {
            return json!({ "many": count });
        }
        let changed = self.changed.iter().map(|at| {
            let topic = self.image.topics.get(&at.topic);
            let found = topic.and_then(|topic| Some((topic, topic.partitions.get(&at.partition)?)));
            match found {
                Some((topic, partition)) => json!({
                    "topic": at.topic.as_str(), "partition": at.partition,
                    "state": Standing::of(&self.image, &at.topic, topic, at.partition, partition).name(),
                    "leader": partition.state.leader.map_or(-1, |id| id.0),
                    "leader_epoch": partition.state.leader_epoch.0,
                    "isr": partition.state.isr.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
                }),
                None => json!({
                    "topic": at.topic.as_str(), "partition": at.partition, "state": "deleted",
                    "leader": -1, "leader_epoch": null, "isr": [],
                }),
            }
        });
        json!({ "changed": changed.collect::<Vec<_>>() })
    }

    /// Those that are new or have got further; those that run, again and again.
    fn failovers(&mut self, now: Instant) {
        let version = *self.source.failovers.changes().borrow();
        let changed = self.failovers_version != Some(version);
        let running = self.told_failovers.values().any(|f| api::is_ongoing(f, unix_ms()));
        let again = running && self.running.pass(now);
        if !(changed || again) {
            return;
        }
        let kept = self.source.failovers.kept();
        let first = self.failovers_version.is_none();
        let (now_ms, session_ms) = (unix_ms(), self.source.node.options.session_timeout_ms);
        for failover in &kept {
            let known = self.told_failovers.get(&failover.id);
            if !first && (known != Some(failover) || api::is_ongoing(failover, now_ms)) {
                self.push("failover", &api::failover(failover, now_ms, session_ms));
            }
        }
        self.failovers_version = Some(version);
        self.told_failovers = kept.into_iter().map(|f| (f.id.clone(), f)).collect();
    }

    /// Moves when any record comes to a replica here.
    fn sum_of_ends(&self) -> u64 {
        let all = self.source.node.partitions.all();
        let ends = all.iter().map(|hosted| {
            let end = hosted.try_look(|replica| replica.log_end().0).unwrap_or(0);
            hosted.high_watermark().0.unsigned_abs().wrapping_add(end.unsigned_abs())
        });
        ends.fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_lets_through_one_in_its_time() {
        let mut gate = Gate::new(SECOND);
        let now = Instant::now();
        assert!(gate.pass(now) && !gate.pass(now));
        assert!(!gate.pass(now + Duration::from_millis(999)));
        assert!(gate.pass(now + SECOND));
    }
}
