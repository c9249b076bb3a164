//! How far followers have copied the logs that this broker leads, in bytes, and how fast they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use barnabas_proto::v1;

use crate::node::Node;
use crate::partition::Copied;

/// Between the two looks by which the speed is measured.
const MEASURED_FOR: Duration = Duration::from_millis(500);
/// Most partitions of one request that are looked at; the others are answered without followers.
const PARTITIONS_MAX: usize = 1000;

/// Answers in the order of the request.
pub(super) async fn describe(
    node: Arc<Node>,
    request: v1::DescribeFollowersRequest,
) -> v1::DescribeFollowersResponse {
    let partitions = Arc::new(request.partitions);
    let before = look(&node, &partitions).await;
    let began = Instant::now();
    tokio::time::sleep(MEASURED_FOR).await;
    let after = look(&node, &partitions).await;
    let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    let told = after.into_iter().enumerate().map(|(place, followers)| v1::PartitionFollowers {
        followers: followers
            .into_iter()
            .map(|copied| {
                let was = before
                    .get(place)
                    .and_then(|all| all.iter().find(|c| c.broker == copied.broker));
                let gained = was.map_or(0, |was| copied.copied.saturating_sub(was.copied));
                v1::CopyProgress {
                    broker_id: copied.broker.0,
                    heard: copied.heard,
                    bytes_copied: copied.copied,
                    bytes_left: copied.left,
                    bytes_per_second: gained.saturating_mul(1000) / elapsed_ms,
                }
            })
            .collect(),
    });
    v1::DescribeFollowersResponse { partitions: told.collect() }
}

/// On a blocking thread: an index of an old segment may have to be read.
async fn look(node: &Arc<Node>, partitions: &Arc<Vec<v1::FollowedPartition>>) -> Vec<Vec<Copied>> {
    let (node, partitions) = (node.clone(), partitions.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let of = |asked: &v1::FollowedPartition| {
            let hosted = node.partitions.get(&asked.topic, asked.partition);
            hosted.map_or_else(Vec::new, |hosted| hosted.copies())
        };
        let mut all: Vec<Vec<Copied>> = partitions.iter().take(PARTITIONS_MAX).map(of).collect();
        all.resize_with(partitions.len(), Vec::new);
        all
    });
    looked.await.unwrap_or_default()
}
