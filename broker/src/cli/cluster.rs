//! `barnabas cluster describe`, and what it shows of a broker.

use barnabas_broker::explain::cause::named;
use barnabas_proto::v1::{Broker, DescribeClusterRequest, DescribeClusterResponse};
use barnabas_types::BrokerId;
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
    ["id", "epoch", "host", "port", "admin", "rack", "tail_lost", "state"];

impl ClusterVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        let Self::Describe { asking } = self;
        let cluster = cluster(&asking)?;
        let brokers = brokers(&cluster);
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
            if let Some(gone) = gone(&cluster) {
                say!("gone        {gone}");
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

/// Whom the cluster misses, in words; `None`: nobody.
pub(super) fn gone(cluster: &DescribeClusterResponse) -> Option<String> {
    let of = |ids: &[i32]| named(&ids.iter().map(|id| BrokerId(*id)).collect::<Vec<_>>());
    let is = |ids: &[i32]| if ids.len() == 1 { "is" } else { "are" };
    let told = |ids: &[i32], how: &str| {
        (!ids.is_empty()).then(|| format!("{} {} {how}", of(ids), is(ids)))
    };
    let suspected = "still registered, but gone: nobody listens there any more";
    let all = [told(&cluster.missing, "not registered"), told(&cluster.suspected, suspected)];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The registered brokers, as they are shown.
pub(super) fn brokers(cluster: &DescribeClusterResponse) -> Vec<Value> {
    let one = |of: &Broker| {
        let state = match cluster.suspected.contains(&of.id) {
            true => "suspected",
            false if of.draining => "draining",
            false => "registered",
        };
        let mut shown = broker(of);
        shown["state"] = state.into();
        shown
    };
    cluster.brokers.iter().map(one).collect()
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
        "suspected_brokers": cluster.suspected,
        "missing_brokers": cluster.missing,
        "answered_by": cluster.answered_by,
        "zookeeper_connected": cluster.zookeeper_connected,
    })
}

fn broker(broker: &Broker) -> Value {
    json!({
        "id": broker.id, "epoch": broker.epoch, "host": broker.host, "port": broker.port,
        "admin": broker.control_address, "rack": broker.rack, "tail_lost": broker.tail_lost,
        "draining": broker.draining,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_the_cluster_misses_is_told_by_name() {
        let of = |id, draining| Broker { id, draining, ..Broker::default() };
        let mut cluster = DescribeClusterResponse {
            brokers: vec![of(1, false), of(2, true), of(4, false)],
            ..Default::default()
        };
        assert_eq!(gone(&cluster), None);
        (cluster.missing, cluster.suspected) = (vec![3, 5], vec![4]);
        assert_eq!(
            gone(&cluster).unwrap(),
            "brokers 3 and 5 are not registered; broker 4 is still registered, but gone: nobody listens there any more"
        );
        let states: Vec<Value> = brokers(&cluster).iter().map(|b| b["state"].clone()).collect();
        assert_eq!(states, ["registered", "draining", "suspected"]);
    }
}
