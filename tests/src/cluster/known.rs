//! Waiting until brokers, or topics, are known to everybody: a registration alone may be that of a process that is dead, and what
//! ZooKeeper has the brokers hear of only later.

use super::{Cluster, SETTLE_MAX};
use crate::Outcome;
use crate::admin::Admin;
use crate::client::Client;
use crate::wait::wait_for;
use crate::znodes::Znodes;

impl Cluster {
    /// Waits until exactly these brokers are registered, and every broker whose process runs answers and has been told of exactly
    /// these registrations by the controller that is in office. A process that has just started is told of none before its own.
    ///
    /// # Errors
    /// They are not within the deadline; the text says what is missing.
    pub async fn until_known(&mut self, znodes: &Znodes, ids: &[i32]) -> Outcome<()> {
        let mut admins = Vec::new();
        for broker in self.brokers() {
            if broker.runs() {
                admins.push(broker.config().admin_listener.to_string());
            }
        }
        let what = format!("brokers {ids:?} are known, no other");
        let known = wait_for(&what, SETTLE_MAX, || async {
            unknown(znodes, ids, &admins).await.is_ok_and(|missing| missing.is_none()).then_some(())
        });
        match known.await {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; {:?}", unknown(znodes, ids, &admins).await).into()),
        }
    }

    /// Waits until every partition of a new topic, from 0 to `partitions` (exclusive), is served by the leader that a broker names.
    /// Needs brokers that take connections.
    ///
    /// # Errors
    /// One is not served within the deadline.
    pub async fn until_served(&self, topic: &str, partitions: i32) -> Outcome<()> {
        let bootstrap = self.bootstrap();
        for partition in 0..partitions {
            wait_for(&format!("{topic}-{partition} is served"), SETTLE_MAX, || async {
                let leader = Client::of_leader(&bootstrap, 0, topic, partition).await;
                leader.ok()?.end_offset(topic, partition).await.ok()
            })
            .await?;
        }
        Ok(())
    }
}

/// What is not known yet; `None` if nothing is missing.
async fn unknown(znodes: &Znodes, ids: &[i32], admins: &[String]) -> Outcome<Option<String>> {
    let mut registered = Vec::new();
    for id in znodes.brokers().await? {
        let node = znodes.read(&format!("/brokers/ids/{id}")).await?;
        registered.extend(node.map(|node| (id, node.czxid)));
    }
    if !registered.iter().map(|(id, _)| *id).eq(ids.iter().map(|id| i64::from(*id))) {
        return Ok(Some(format!("registered are {registered:?}")));
    }
    let (controller, epoch) = znodes.controller().await?.ok_or("there is no controller")?;
    for address in admins {
        let told = Admin::connect(address).await?.cluster().await?;
        let mut brokers: Vec<(i64, i64)> =
            told.brokers.iter().map(|broker| (i64::from(broker.id), broker.epoch)).collect();
        brokers.sort_unstable();
        let by = (i64::from(told.controller_id), i64::from(told.controller_epoch));
        if by != (controller, epoch) || brokers != registered {
            return Ok(Some(format!(
                "registered are {registered:?}, in office is {:?}; {address} was told {brokers:?} by {by:?}",
                (controller, epoch)
            )));
        }
    }
    Ok(None)
}
