//! How far the copies of replicas that are being added are: their leaders know, and are asked side by side.

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_client::BrokerControlClient;
use barnabas_types::{BrokerId, ClusterImage};
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

/// How long a leader may take; it measures for half a second.
const LEADER_PATIENCE: Duration = Duration::from_secs(3);
/// Most partitions that one leader is asked about; the rest is listed without.
const PARTITIONS_A_LEADER_MAX: usize = 1000;

/// Adds what the leaders say. A leader that cannot be reached says nothing.
pub(super) async fn ask_leaders(image: &ClusterImage, listed: &mut [v1::PartitionReassignment]) {
    let mut of_leader: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (place, one) in listed.iter().enumerate() {
        let Some(partition) = one.partition.as_ref() else { continue };
        let leader = partition.state.as_ref().map_or(-1, |state| state.leader);
        let asked = of_leader.entry(leader).or_default();
        if !partition.adding_replicas.is_empty() && asked.len() < PARTITIONS_A_LEADER_MAX {
            asked.push(place);
        }
    }
    let mut asking = JoinSet::new();
    for (leader, places) in of_leader {
        let Some(broker) = image.brokers.get(&BrokerId(leader)) else { continue };
        if places.is_empty() {
            continue;
        }
        let partitions = places.iter().map(|place| v1::FollowedPartition {
            topic: listed[*place].topic.clone(),
            partition: listed[*place].partition.as_ref().map_or(-1, |p| p.index),
        });
        let request = v1::DescribeFollowersRequest { partitions: partitions.collect() };
        let address = broker.control_address.clone();
        asking.spawn(async move {
            let told = tokio::time::timeout(LEADER_PATIENCE, followers(&address, request)).await;
            (places, told.ok().flatten())
        });
    }
    while let Some(told) = asking.join_next().await {
        let Ok((places, Some(told))) = told else { continue };
        for (place, partition) in places.into_iter().zip(told.partitions) {
            let adding = listed[place].partition.as_ref().map(|p| p.adding_replicas.clone());
            let adding = adding.unwrap_or_default();
            let wanted = partition.followers.into_iter().filter(|f| adding.contains(&f.broker_id));
            listed[place].progress = wanted.collect();
        }
    }
}

async fn followers(
    address: &str,
    request: v1::DescribeFollowersRequest,
) -> Option<v1::DescribeFollowersResponse> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    let channel = endpoint.connect_timeout(LEADER_PATIENCE).connect().await.ok()?;
    let mut client = BrokerControlClient::new(channel);
    Some(client.describe_followers(request).await.ok()?.into_inner())
}
