//! `barnabas cluster describe`, and what it shows of a broker.

use barnabas_proto::v1::{Broker, DescribeClusterRequest, DescribeClusterResponse};
use clap::Subcommand;
use serde_json::{Value, json};

use super::ask::{ask, printable};
use super::table::{print_json, table};
use super::topic::counted;
use super::{Asking, CliError};

#[derive(Subcommand, Debug)]
pub(super) enum ClusterVerb {
    /// Show the controller and its epoch, the brokers, and how many partitions are not well.
    Describe {
        #[command(flatten)]
        asking: Asking,
    },
}

/// Columns of a list of brokers.
pub(super) const BROKER_COLUMNS: [&str; 8] =
    ["id", "epoch", "host", "port", "admin", "rack", "tail_lost", "draining"];

impl ClusterVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        let Self::Describe { asking } = self;
        let cluster = cluster(&asking)?;
        let brokers: Vec<Value> = cluster.brokers.iter().map(broker).collect();
        if asking.json {
            print_json(&full(&cluster, brokers));
            return Ok(());
        }
        let controller = match cluster.controller_id {
            id if id < 0 => "none".to_owned(),
            id => format!("broker {id}, epoch {}", cluster.controller_epoch),
        };
        say!("cluster     {}", printable(&cluster.cluster_id));
        say!("controller  {controller}");
        if cluster.controller_id < 0 {
            say!("topics      not known: no controller has told this broker of the cluster yet");
        } else {
            let partitions = counted(i64::from(cluster.partitions), "partition");
            say!("topics      {}, {partitions}", cluster.topics);
            say!(
                "unwell      {} offline, {} under-replicated, {} under min.insync.replicas",
                cluster.offline_partitions,
                cluster.under_replicated_partitions,
                cluster.under_min_isr_partitions
            );
            if cluster.failed_replicas > 0 {
                let failed = counted(i64::from(cluster.failed_replicas), "replica");
                say!("failed      {failed} that live brokers cannot serve (see their logs)");
            }
        }
        say!("answered by broker {}\n", cluster.answered_by);
        if !cluster.zookeeper_connected {
            eprintln!(
                "barnabas: broker {} has no connection to ZooKeeper; what it says may be old",
                cluster.answered_by
            );
        }
        say!("{}", table(&BROKER_COLUMNS, &brokers).trim_end());
        Ok(())
    }
}

pub(super) fn cluster(asking: &Asking) -> Result<DescribeClusterResponse, CliError> {
    let request = DescribeClusterRequest {};
    let mut answer =
        ask(asking, |mut client| async move { client.describe_cluster(request).await })?;
    answer.brokers.sort_by_key(|broker| broker.id);
    Ok(answer)
}

fn full(cluster: &DescribeClusterResponse, brokers: Vec<Value>) -> Value {
    json!({
        "cluster_id": cluster.cluster_id,
        "controller": {"id": cluster.controller_id, "epoch": cluster.controller_epoch},
        "brokers": brokers,
        "topics": cluster.topics,
        "partitions": cluster.partitions,
        "offline_partitions": cluster.offline_partitions,
        "under_replicated_partitions": cluster.under_replicated_partitions,
        "under_min_isr_partitions": cluster.under_min_isr_partitions,
        "failed_replicas": cluster.failed_replicas,
        "answered_by": cluster.answered_by,
        "zookeeper_connected": cluster.zookeeper_connected,
    })
}

pub(super) fn broker(broker: &Broker) -> Value {
    json!({
        "id": broker.id, "epoch": broker.epoch, "host": broker.host, "port": broker.port,
        "admin": broker.control_address, "rack": broker.rack, "tail_lost": broker.tail_lost,
        "draining": broker.draining,
    })
}
