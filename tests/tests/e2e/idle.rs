//! What an idle broker costs.

use std::time::{Duration, Instant};

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, usage};

use super::{interval, topic};

const RSS_BYTES_MAX: u64 = 40 * 1024 * 1024;
const WINDOW: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_100_idle_partitions_is_small_and_quiet() -> Outcome<()> {
    // Kafka's own times: the harness's short ones would measure the harness.
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 6_000,
        config: String::new(),
        ..Options::default()
    })
    .await?;
    topic(
        &cluster,
        NewTopic { name: "idle", partitions: 100, replication_factor: 3, configs: &[] },
    )
    .await?;
    let pids: Vec<_> = cluster.brokers().map(|broker| broker.pid()).collect::<Outcome<_>>()?;
    interval(Duration::from_secs(2)).await?;
    let before: Vec<_> = pids.iter().map(|pid| usage(*pid)).collect::<Outcome<_>>()?;
    let started = Instant::now();
    interval(WINDOW).await?;
    let after: Vec<_> = pids.iter().map(|pid| usage(*pid)).collect::<Outcome<_>>()?;
    let passed = started.elapsed();
    for (broker, (before, after)) in before.iter().zip(&after).enumerate() {
        let share = (after.1 - before.1).as_secs_f64() / passed.as_secs_f64();
        println!("broker {}: {} bytes, {:.2} % of a core", broker + 1, after.0, share * 100.0);
        assert!(after.0 < RSS_BYTES_MAX, "broker {}: {} bytes resident", broker + 1, after.0);
        assert!(share < 0.01, "broker {}: {:.2} % of a core", broker + 1, share * 100.0);
    }
    Ok(())
}
