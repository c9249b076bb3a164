//! What clients see of a failover: brokers are killed one after the other, and a librdkafka producer at acks=all, with the settings that
//! users have, notes the longest silence between two acknowledgements of a partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barnabas_proto::convert::failover_json;
use barnabas_proto::v1::Failover;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use serde_json::{Value, json};

use crate::admin::{Admin, NewTopic};
use crate::cluster::{Cluster, Options, SETTLE_MAX};
use crate::wait::wait_for;
use crate::znodes::Znodes;
use crate::{Outcome, kcat};

/// Partitions to which the producer sends; the others are led, and moved, like these.
const WATCHED: i32 = 12;
/// Between two records of a partition: the resolution of what is measured.
const SEND_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for what is on its way at the end.
const FLUSH_MAX: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often a leader that is no controller is killed.
    pub leaders: usize,
    /// How often the controller is, which leads, too.
    pub controllers: usize,
    /// Partitions of the topic, replication factor 3.
    pub partitions: i32,
    /// `zookeeper.session.timeout.ms`.
    pub session_timeout_ms: u32,
    /// `failover.suspicion.enable`.
    pub suspicion: bool,
}

/// What was acknowledged.
#[derive(Default)]
struct Seen {
    last: BTreeMap<i32, Instant>,
    /// Longest silence of each partition since it was last asked.
    silence: BTreeMap<i32, Duration>,
    /// Number of the record that was acknowledged at each offset.
    acked: BTreeMap<(i32, i64), usize>,
    failed: u64,
}

#[derive(Clone, Default)]
struct Deliveries(Arc<Mutex<Seen>>);

impl Deliveries {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let now = Instant::now();
        let mut seen = self.seen();
        let Ok(message) = result else {
            seen.failed += 1;
            return;
        };
        let partition = message.partition();
        seen.acked.insert((partition, message.offset()), number);
        if let Some(before) = seen.last.insert(partition, now) {
            let silence = seen.silence.entry(partition).or_default();
            *silence = now.duration_since(before).max(*silence);
        }
    }
}

/// A producer at work on the watched partitions.
struct Load {
    deliveries: Deliveries,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<()>>,
}

impl Load {
    fn start(bootstrap: &str, topic: &'static str) -> Outcome<Self> {
        let deliveries = Deliveries::default();
        let producer: ThreadedProducer<Deliveries> = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("log_level", "0")
            .create_with_context(deliveries.clone())?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                for partition in 0..WATCHED {
                    let payload = number.to_string();
                    let record = BaseRecord::<str, str, usize>::with_opaque_to(topic, number);
                    let sent = producer.send(record.partition(partition).payload(&payload));
                    sent.map_err(|(error, _)| error)?;
                    number += 1;
                }
                std::thread::park_timeout(SEND_EVERY);
            }
            Ok(producer.flush(FLUSH_MAX)?)
        });
        Ok(Self { deliveries, stop, thread })
    }

    /// Waits until every partition has been acknowledged something that came after `since`.
    async fn until_all_acknowledged(&self, since: Instant) -> Outcome<()> {
        wait_for("every partition is acknowledged again", SETTLE_MAX, || async {
            let seen = self.deliveries.seen();
            let later = |partition| seen.last.get(&partition).is_some_and(|at| *at > since);
            (0..WATCHED).all(later).then_some(())
        })
        .await
    }

    fn finish(self) -> Outcome<Deliveries> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the producer panicked")??;
        Ok(self.deliveries)
    }
}

/// Runs it; `say` gets one JSON object a failover, and one a figure.
///
/// # Errors
/// A cluster that does not form or heal, or an acknowledged record that is lost.
pub async fn run(plan: Plan, say: &mut impl FnMut(&Value)) -> Outcome<()> {
    let config = format!(
        "leader.imbalance.check.interval.seconds: 1\nleader.imbalance.per.broker.percentage: 0\n\
         failover.suspicion.enable: {}\n",
        plan.suspicion
    );
    let session_timeout_ms = plan.session_timeout_ms;
    let mut cluster =
        Cluster::start(Options { session_timeout_ms, config, ..Options::default() }).await?;
    let topic = "t";
    let new = NewTopic {
        name: topic,
        partitions: plan.partitions.max(WATCHED),
        replication_factor: 3,
        configs: &[("min.insync.replicas", "2")],
    };
    cluster.admin().await?.create_topic(new).await?;
    cluster.until_healed(topic, 3).await?;
    let znodes = cluster.znodes().await?;
    let load = Load::start(&cluster.bootstrap(), topic)?;
    for (kind, rounds) in [("leader", plan.leaders), ("controller and leader", plan.controllers)] {
        let mut outages = Vec::new();
        for round in 0..rounds {
            until_preferred(&znodes, topic).await?;
            load.until_all_acknowledged(Instant::now()).await?;
            let (controller, _) = znodes.controller().await?.ok_or("no controller")?;
            let controller = i32::try_from(controller)?;
            let other = (controller + i32::try_from(round % 2)?) % 3 + 1;
            let killed = if kind == "leader" { other } else { controller };
            load.deliveries.seen().silence.clear();
            let led = watched_with_preferred(&znodes, topic, killed).await?;
            let known = recorded(&cluster).await?;
            cluster.broker(killed).kill().await?;
            until_led_by_others(&znodes, topic, killed).await?;
            load.until_all_acknowledged(Instant::now()).await?;
            let longest = load.deliveries.seen().silence.values().max().copied();
            let outage_ms = longest.unwrap_or_default().as_millis();
            let record = until_recorded(&cluster, (killed, led), &known).await?;
            say(&json!({
                "killed": kind, "round": round, "broker": killed, "outage_ms": outage_ms,
                "recorded_ms": record["acked_ms"], "pushed_ms": record["pushed_ms"], "failover": record["id"],
            }));
            outages.push(outage_ms);
            cluster.broker(killed).start()?;
            cluster.until_healed(topic, 3).await?;
        }
        say(&figure(kind, &mut outages));
    }
    let deliveries = load.finish()?;
    let (acknowledged, lost) = lost(&cluster.bootstrap(), topic, &deliveries.seen().acked)?;
    let failed = deliveries.seen().failed;
    say(&json!({"acknowledged": acknowledged, "failed": failed, "lost": lost}));
    if lost == 0 { Ok(()) } else { Err(format!("{lost} acknowledged records are lost").into()) }
}

/// Waits until each watched partition is led by the first of its replicas, so that every broker leads some.
async fn until_preferred(znodes: &Znodes, topic: &str) -> Outcome<()> {
    let assigned = znodes.assignment(topic).await?;
    wait_for("the preferred replicas lead", SETTLE_MAX, || async {
        let states = znodes.partitions(topic).await.ok()?;
        let leads = |p: &i32| assigned[p].first() == Some(&states[p].leader);
        assigned.keys().all(leads).then_some(())
    })
    .await
}

async fn until_led_by_others(znodes: &Znodes, topic: &str, dead: i32) -> Outcome<()> {
    let dead = i64::from(dead);
    wait_for("others lead", SETTLE_MAX, || async {
        let states = znodes.partitions(topic).await.ok()?;
        states.values().all(|s| s.leader >= 0 && s.leader != dead).then_some(())
    })
    .await
}

/// How many of the watched partitions this broker leads while every preferred replica leads.
async fn watched_with_preferred(znodes: &Znodes, topic: &str, broker: i32) -> Outcome<u32> {
    let assigned = znodes.assignment(topic).await?;
    let led = (0..WATCHED).filter(|p| assigned[p].first() == Some(&i64::from(broker)));
    Ok(u32::try_from(led.count())?)
}

/// Ids of the failovers that the cluster has recorded.
async fn recorded(cluster: &Cluster) -> Outcome<BTreeSet<String>> {
    Ok(timeline(cluster).await?.into_iter().flatten().map(|failover| failover.id).collect())
}

/// What each broker tells that answers.
async fn timeline(cluster: &Cluster) -> Outcome<Vec<Vec<Failover>>> {
    let mut told = Vec::new();
    for id in 1..=3 {
        if let Ok(admin) = Admin::connect(&cluster.admin_address(id)).await {
            told.push(admin.timeline(u32::MAX).await?);
        }
    }
    Ok(told)
}

/// The record of a failover of this broker that is not among the `known`, once so many new leaders have acknowledged something,
/// and both other brokers tell so.
async fn until_recorded(
    cluster: &Cluster,
    (broker, led): (i32, u32),
    known: &BTreeSet<String>,
) -> Outcome<Value> {
    wait_for("the failover is recorded to its first acknowledgements", SETTLE_MAX, || async {
        let told = timeline(cluster).await.ok()?;
        let new = |f: &&Failover| f.broker_id == broker && !known.contains(&f.id);
        let whole = |f: &&Failover| new(f) && f.acknowledged >= led;
        let records: Vec<&Failover> = told.iter().filter_map(|of| of.iter().find(whole)).collect();
        match records[..] {
            [one, other] if one == other => Some(failover_json(one)),
            _ => None,
        }
    })
    .await
}

/// Median, 99th percentile (nearest rank) and the greatest, in milliseconds.
fn figure(kind: &str, outages: &mut [u128]) -> Value {
    outages.sort_unstable();
    let rank = |percent: usize| outages.get((outages.len() * percent).div_ceil(100).max(1) - 1);
    json!({
        "figure": "outage seen by a client", "killed": kind, "rounds": outages.len(),
        "p50_ms": rank(50), "p99_ms": rank(99), "most_ms": outages.last(),
    })
}

/// How many were acknowledged, and how many of them are not where they should be.
fn lost(
    bootstrap: &str,
    topic: &str,
    acked: &BTreeMap<(i32, i64), usize>,
) -> Outcome<(usize, usize)> {
    let mut kept = 0;
    for partition in 0..WATCHED {
        let index = partition.to_string();
        let read =
            ["-C", "-t", topic, "-p", &index, "-o", "beginning", "-e", "-q", "-f", "%o %s\\n"];
        let output = kcat::run(bootstrap, &read, b"")?;
        for line in String::from_utf8(output.stdout)?.lines() {
            let (offset, number) = line.split_once(' ').ok_or("kcat printed something else")?;
            let known = acked.get(&(partition, offset.parse()?));
            kept += usize::from(known == Some(&number.parse()?));
        }
    }
    Ok((acked.len(), acked.len() - kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        let mut outages: Vec<u128> = (1..=50).rev().collect();
        let shown = figure("leader", &mut outages);
        assert_eq!((&shown["p50_ms"], &shown["p99_ms"]), (&json!(25), &json!(50)));
        assert_eq!(figure("leader", &mut [])["p50_ms"], Value::Null);
    }
}
