//! DescribeProducers (key 61), version 0: KIP-664. The idempotent producers that a partition's leader remembers.

use std::collections::BTreeSet;

use barnabas_wire::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use barnabas_wire::messages::{DescribeProducersRequest, DescribeProducersResponse, StrBytes};

use super::{RequestContext, error_code, find};
use crate::node::Node;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut response = DescribeProducersResponse::default();
    // Each partition once: a small request that repeats one with many producers must not have a huge answer.
    let mut seen = BTreeSet::new();
    for topic in &request.topics {
        let mut entry = TopicResponse::default();
        entry.name = topic.name.clone();
        let name = topic.name.as_str();
        let once = topic.partition_indexes.iter().filter(|index| seen.insert((name, **index)));
        entry.partitions = once.map(|index| partition(context.node, name, *index)).collect();
        response.topics.push(entry);
    }
    response
}

fn partition(node: &Node, topic: &str, index: i32) -> PartitionResponse {
    let mut entry = PartitionResponse::default();
    entry.partition_index = index;
    match find(node, topic, index).and_then(|hosted| hosted.producers()) {
        Ok(batches) => {
            for batch in batches {
                // Of each producer the batches come oldest first; its last one is told.
                if entry.active_producers.last().is_some_and(|p| p.producer_id == batch.producer_id)
                {
                    entry.active_producers.pop();
                }
                let mut producer = ProducerState::default();
                producer.producer_id = batch.producer_id;
                producer.producer_epoch = i32::from(batch.producer_epoch);
                producer.last_sequence = batch.last_sequence;
                producer.last_timestamp = batch.timestamp_ms;
                producer.coordinator_epoch = batch.coordinator_epoch;
                producer.current_txn_start_offset = batch.current_txn_first_offset;
                entry.active_producers.push(producer);
            }
        }
        Err(condition) => {
            entry.error_code = error_code(&condition);
            entry.error_message = Some(StrBytes::from(condition.to_string()));
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use barnabas_types::Acks;
    use barnabas_wire::reply;

    use super::*;
    use crate::testing::{Disk, node, produce, push, state, tp};

    #[tokio::test]
    async fn the_leader_tells_the_last_batch_of_each_producer() {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1]));
        for n in 0..3 {
            produce(&node, &hosted, Acks::Leader, n, None);
        }
        let told = partition(&node, "t", 0);
        assert_eq!((told.error_code, told.active_producers.len()), (0, 1));
        let producer = &told.active_producers[0];
        assert_eq!((producer.producer_id, producer.last_sequence), (7, 2));
        assert_eq!((producer.coordinator_epoch, producer.current_txn_start_offset), (-1, -1));
        state(&node, &hosted, push(2, 2, &[1, 2]));
        let codes = [("t", 0, 6), ("t", 1, 3), ("absent", 0, 3)];
        let mut response = DescribeProducersResponse::default();
        for (topic, index, code) in codes {
            let mut entry = TopicResponse::default();
            entry.partitions.push(partition(&node, topic, index));
            assert_eq!(entry.partitions[0].error_code, code);
            response.topics.push(entry);
        }
        reply(1, 0, &response).unwrap_or_else(|error| panic!("{error}"));
    }
}
