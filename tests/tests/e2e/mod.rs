//! What the end-to-end tests share.

#[path = "../../../broker/wire/tests/wire/damage.rs"]
mod damage;
#[path = "../../../broker/wire/tests/wire/examples.rs"]
mod examples;
#[path = "../../../broker/wire/tests/wire/group_examples.rs"]
mod group_examples;

mod announced;
mod bad_input;
#[cfg(target_os = "linux")]
mod churn;
mod clients;
#[cfg(target_os = "linux")]
mod cold_reads;
#[cfg(target_os = "linux")]
mod commands;
mod compaction;
mod configs;
#[cfg(target_os = "linux")]
mod connections;
mod delete_records;
#[cfg(target_os = "linux")]
mod disk_faults;
mod doctor;
mod elections;
mod ensemble;
#[cfg(target_os = "linux")]
mod explain;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod full_disk;
mod groups;
#[cfg(target_os = "linux")]
mod guide;
mod healing;
mod hostile;
mod idle;
mod kafka_dump;
mod ledger;
#[cfg(target_os = "linux")]
mod ledger_runs;
mod lives;
mod logs;
#[cfg(target_os = "linux")]
mod losses;
mod main_job;
mod metrics;
mod mistakes;
mod operator;
mod page;
mod partitions;
#[cfg(target_os = "linux")]
mod power_cuts;
mod reassign;
#[cfg(target_os = "linux")]
mod recovery;
#[cfg(target_os = "linux")]
mod reference_clients;
mod roll;
mod secured;
#[cfg(target_os = "linux")]
mod shim;
mod shutdown;
#[cfg(target_os = "linux")]
mod soak;
mod thirty_mistakes;
mod timeline;
mod versions;
mod zombie;

use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, SETTLE_MAX};
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::Znodes;

/// Creates a topic and waits until all its replicas are in their ISR.
async fn topic(cluster: &Cluster, topic: NewTopic<'_>) -> Outcome<()> {
    let members = usize::try_from(topic.replication_factor)?;
    let name = topic.name.to_owned();
    cluster.admin().await?.create_topic(topic).await?;
    cluster.until_healed(&name, members).await
}

/// Waits until exactly these brokers are registered. One that was killed stays so for a while, and one that is registered need not be
/// known to the others: whoever asks a broker for something then wants [`Cluster::until_known`].
async fn until_registered(znodes: &Znodes, ids: &[i64]) -> Outcome<()> {
    wait_for(&format!("brokers {ids:?} are registered, no other"), SETTLE_MAX, || async {
        (znodes.brokers().await.ok()? == ids).then_some(())
    })
    .await
}

/// Waits until this time has passed: for measurements over an interval, not for something to happen.
async fn interval(length: Duration) -> Outcome<()> {
    let started = std::time::Instant::now();
    wait_for("an interval", length * 2, || async { (started.elapsed() >= length).then_some(()) })
        .await
}
