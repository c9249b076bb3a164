//! Everything is as it was before the faults: all registered, one controller known to all, every replica in sync.

use std::time::Duration;

use crate::cluster::{Cluster, SETTLE_MAX};
use crate::wait::next_look;
use crate::znodes::Znodes;
use crate::{Fault, Outcome};

/// How long one look may take before ZooKeeper is connected to anew: the witness's client waits ever longer to reconnect.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Waits until every running broker is registered, all know the same controller, and every partition of the topic has a leader
/// and all its replicas in its ISR. Restarts nothing.
///
/// # Errors
/// A broker ended, or the deadline passed; the text says what is missing.
pub async fn until_healed(cluster: &mut Cluster, topic: &str) -> Outcome<()> {
    let started = std::time::Instant::now();
    let mut znodes = cluster.znodes().await?;
    loop {
        for broker in cluster.brokers() {
            broker.refuse_ended()?;
        }
        let mut stale = false;
        let missing = match tokio::time::timeout(LOOK_MAX, missing(cluster, &znodes, topic)).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(missing))) => missing,
            Ok(Err(error)) => {
                stale = true;
                error.to_string()
            }
            Err(_) => {
                stale = true;
                "no answer".to_owned()
            }
        };
        if started.elapsed() > SETTLE_MAX {
            let logs: Vec<String> = cluster.brokers().map(|b| b.last_log_line()).collect();
            let seconds = SETTLE_MAX.as_secs();
            return Err(Fault::from(format!(
                "{topic} has not healed within {seconds} s: {missing}; last log lines: {logs:#?}"
            )));
        }
        if stale && let Ok(Ok(now)) = tokio::time::timeout(LOOK_MAX, cluster.znodes()).await {
            znodes = now;
        }
        next_look().await;
    }
}

/// What is not as it should be; `None` if everything is.
async fn missing(cluster: &mut Cluster, znodes: &Znodes, topic: &str) -> Outcome<Option<String>> {
    let mut running: Vec<i64> = Vec::new();
    for broker in cluster.brokers() {
        if broker.runs() {
            running.push(i64::from(broker.id()));
        }
    }
    let mut registered = znodes.brokers().await?;
    registered.sort_unstable();
    if registered != running {
        return Ok(Some(format!("registered are {registered:?}, running {running:?}")));
    }
    let Some((controller, epoch)) = znodes.controller().await? else {
        return Ok(Some("there is no controller".to_owned()));
    };
    for broker in cluster.brokers() {
        let known = broker.admin().await?.cluster().await?;
        let known_as = (i64::from(known.controller_id), i64::from(known.controller_epoch));
        if known_as != (controller, epoch) || known.brokers.len() != running.len() {
            return Ok(Some(format!(
                "broker {} knows controller and epoch {known_as:?} and {} brokers; ZooKeeper {:?} and {}",
                broker.id(),
                known.brokers.len(),
                (controller, epoch),
                running.len()
            )));
        }
    }
    let assigned = znodes.assignment(topic).await?;
    let states = znodes.partitions(topic).await?;
    for (index, replicas) in &assigned {
        let Some(state) = states.get(index) else {
            return Ok(Some(format!("partition {index} has no state")));
        };
        let mut isr = state.isr.clone();
        isr.sort_unstable();
        let mut all = replicas.clone();
        all.sort_unstable();
        if state.leader < 0 || isr != all {
            return Ok(Some(format!("partition {index} of {all:?}: {state:?}")));
        }
    }
    Ok((assigned.is_empty()).then(|| "it has no partitions".to_owned()))
}
