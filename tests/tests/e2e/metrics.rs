//! Metrics of a real cluster: everything in the table is served and nothing else, sums over brokers are right, failovers are counted.

use std::collections::BTreeSet;

use barnabas_metrics::{METRICS, Scraped};
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::wait::wait_for;
use barnabas_tests::{Outcome, kcat};

use super::topic;

const RECORDS: usize = 600;
const PARTITIONS: i32 = 6;
/// Has samples only where records were lost.
const MAY_BE_EMPTY: [&str; 1] = ["barnabas_ledger_entries"];

/// The answers of all brokers that run, each checked against the table.
async fn scrape(cluster: &mut Cluster) -> Outcome<Vec<Scraped>> {
    let mut all = Vec::new();
    for broker in cluster.brokers() {
        if broker.runs() {
            all.push(Scraped::read(&broker.metrics().await?)?);
        }
    }
    Ok(all)
}

/// The sum over all brokers, as a dashboard makes it.
fn sum(all: &[Scraped], metric: &str, labels: &[(&str, &str)]) -> f64 {
    all.iter().flat_map(|one| one.values(metric, labels)).sum()
}

/// Waits until a sum over all brokers is so.
async fn until(
    cluster: &mut Cluster,
    metric: &str,
    labels: &[(&str, &str)],
    expected: f64,
) -> Outcome<()> {
    let cluster = tokio::sync::Mutex::new(cluster);
    wait_for(&format!("{metric} {labels:?} is {expected}"), SETTLE_MAX, || async {
        let all = scrape(*cluster.lock().await).await.ok()?;
        (sum(&all, metric, labels) == expected).then_some(())
    })
    .await
}

fn lines() -> Vec<u8> {
    (0..RECORDS).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_served_and_sums_over_brokers_are_right() -> Outcome<()> {
    let config = format!("{}group.initial.rebalance.delay.ms: 0\n", Options::default().config);
    let mut cluster = Cluster::start(Options { config, ..Options::default() }).await?;
    let configs = &[("min.insync.replicas", "2"), ("flush.mode", "sync")];
    let t = NewTopic { name: "t", partitions: PARTITIONS, replication_factor: 3, configs };
    topic(&cluster, t).await?;
    let sent = kcat::run(&cluster.bootstrap(), &["-P", "-t", "t", "-X", "acks=all"], &lines())?;
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let consume = ["-G", "g", "-X", "auto.offset.reset=earliest", "-e", "-q", "t"];
    let read = kcat::run(&cluster.bootstrap(), &consume, b"")?;
    assert_eq!(read.stdout.iter().filter(|byte| **byte == b'\n').count(), RECORDS);

    let of_t: &[(&str, &str)] = &[("topic", "t")];
    let of_g: &[(&str, &str)] = &[("topic", "t"), ("consumergroup", "g")];
    let (records, partitions) = (RECORDS as f64, f64::from(PARTITIONS));
    for (metric, labels, expected) in [
        ("kafka_server_brokertopicmetrics_messagesin_total", of_t, records),
        ("kafka_topic_partition_current_offset", of_t, records),
        ("kafka_topic_partition_oldest_offset", of_t, 0.0),
        ("kafka_log_log_logendoffset", of_t, 3.0 * records),
        ("kafka_topic_partitions", of_t, partitions),
        ("kafka_topic_partition_replicas", of_t, 3.0 * partitions),
        ("kafka_topic_partition_in_sync_replica", of_t, 3.0 * partitions),
        ("kafka_consumergroup_current_offset", of_g, records),
        ("kafka_consumergroup_current_offset_sum", of_g, records),
        ("kafka_consumergroup_lag", of_g, 0.0),
        ("kafka_consumergroup_lag_sum", of_g, 0.0),
        ("kafka_controller_kafkacontroller_activecontrollercount", &[], 1.0),
        ("kafka_brokers", &[], 3.0),
        ("kafka_server_kafkaserver_brokerstate", &[], 9.0),
        ("barnabas_zookeeper_connected", &[], 3.0),
        ("kafka_server_sessionexpirelistener_zookeepersyncconnects_total", &[], 3.0),
        ("kafka_server_replicamanager_underreplicatedpartitions", &[], 0.0),
    ] {
        until(&mut cluster, metric, labels, expected).await?;
    }
    let all = scrape(&mut cluster).await?;
    assert!(sum(&all, "barnabas_zookeeper_request_seconds", &[]) > 0.0);
    assert!(sum(&all, "barnabas_flush_partitions_total", &[]) > 0.0, "acks waited for flushes");
    let read = sum(&all, "kafka_server_brokertopicmetrics_bytesout_total", of_t);
    let written = sum(&all, "kafka_server_brokertopicmetrics_bytesin_total", of_t);
    assert!(read >= written && written > 0.0, "{read} of {written}");
    let copied = sum(&all, "kafka_server_brokertopicmetrics_replicationbytesin_total", of_t);
    assert_eq!(copied, 2.0 * written, "both followers have everything, once");
    let served = |request| {
        sum(&all, "kafka_network_requestmetrics_requests_total", &[("request", request)]) > 0.0
    };
    assert!(["Produce", "FetchConsumer", "FetchFollower", "OffsetCommit"].map(served) == [true; 4]);

    let (controller, _) = cluster.znodes().await?.controller().await?.ok_or("no controller")?;
    let victim = i32::try_from(controller)? % 3 + 1;
    cluster.broker(victim).kill().await?;
    until(&mut cluster, "barnabas_suspicions_total", &[], 1.0).await?;
    let phase: &[(&str, &str)] = &[("phase", "pushed")];
    until(&mut cluster, "barnabas_failovers_total", &[("cause", "suspicion")], 1.0).await?;
    until(&mut cluster, "barnabas_failover_phase_seconds", phase, 2.0).await?;
    until(&mut cluster, "kafka_topic_partition_in_sync_replica", of_t, 2.0 * partitions).await?;
    let all = scrape(&mut cluster).await?;
    assert!(sum(&all, "barnabas_leader_changes_total", &[]) >= 2.0, "a third of the partitions");
    assert!(sum(&all, "kafka_server_replicamanager_isrshrinks_total", &[]) >= 1.0);
    cluster.broker(victim).start()?;
    cluster.until_healed("t", 3).await?;

    let all = scrape(&mut cluster).await?;
    let announced: BTreeSet<&str> =
        all.iter().flat_map(|one| one.metrics.iter().map(String::as_str)).collect();
    let with_samples: BTreeSet<&str> =
        all.iter().flat_map(|one| one.samples.iter().map(|s| s.metric.as_str())).collect();
    for metric in METRICS {
        assert!(announced.contains(metric.name), "{} is in the table and not served", metric.name);
        let empty = !with_samples.contains(metric.name);
        assert!(!empty || MAY_BE_EMPTY.contains(&metric.name), "{} has no sample", metric.name);
    }
    Ok(())
}
