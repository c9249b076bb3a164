//! DescribeTopicPartitions (key 75), version 0: KIP-966. Topics in the order of their names, page by page: an answer that is
//! full says with a cursor where the next request goes on. Eligible leader replicas are none: an ISR member's own log decides
//! here whether it may lead.

use std::collections::BTreeSet;

use barnabas_types::{ClusterImage, Condition, TopicImage, TopicName};
use barnabas_wire::messages::describe_topic_partitions_request::Cursor as From;
use barnabas_wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use barnabas_wire::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, StrBytes, Uuid,
};

use super::authorized_operations::TOPIC;
use super::{RequestContext, error_code, metadata};

/// Most partitions in one answer, whatever the client asks for (Kafka's `max.request.partition.size.limit`).
const PARTITIONS_MAX: usize = 2000;

/// # Errors
/// A cursor that points nowhere: there is no place for an error in the answer, so the connection closes, as in Kafka.
pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &DescribeTopicPartitionsRequest,
) -> Result<DescribeTopicPartitionsResponse, String> {
    respond(&context.node.view.image(), request)
}

fn respond(
    image: &ClusterImage,
    request: &DescribeTopicPartitionsRequest,
) -> Result<DescribeTopicPartitionsResponse, String> {
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut left = limit.clamp(1, PARTITIONS_MAX);
    let (name_from, index_from) = begin(request.cursor.as_ref())?;
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names(image, request).into_iter().filter(|name| *name >= name_from) {
        if left == 0 {
            response.next_cursor = Some(cursor(name, 0));
            break;
        }
        let named = TopicName::new(name).ok();
        let Some((topic_name, topic)) = named.and_then(|n| image.topics.get_key_value(&n)) else {
            response.topics.push(absent(name));
            // As in Kafka an error takes a place as well: otherwise names without topics would not be bounded.
            left -= 1;
            continue;
        };
        let from = if name == name_from { index_from } else { 0 };
        let mut entry = described(topic_name, topic);
        for (index, _) in topic.partitions.range(from..) {
            if left == 0 {
                response.next_cursor = Some(cursor(name, *index));
                break;
            }
            entry.partitions.push(partition(image, topic_name, topic, *index));
            left -= 1;
        }
        response.topics.push(entry);
        if response.next_cursor.is_some() {
            break;
        }
    }
    Ok(response)
}

/// Where the answer begins: topic and partition, inclusive.
fn begin(cursor: Option<&From>) -> Result<(&str, i32), String> {
    match cursor {
        None => Ok(("", 0)),
        Some(cursor) if cursor.partition_index < 0 => Err(format!(
            "the cursor of DescribeTopicPartitions points to partition {}",
            cursor.partition_index
        )),
        Some(cursor) => Ok((cursor.topic_name.as_str(), cursor.partition_index)),
    }
}

/// What is asked for, each once, in order; everything if nothing is named.
fn names<'a>(
    image: &'a ClusterImage,
    request: &'a DescribeTopicPartitionsRequest,
) -> BTreeSet<&'a str> {
    if request.topics.is_empty() {
        return image.topics.keys().map(TopicName::as_str).collect();
    }
    request.topics.iter().map(|topic| topic.name.as_str()).collect()
}

fn cursor(topic: &str, partition: i32) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.topic_name = topic.into();
    cursor.partition_index = partition;
    cursor
}

fn absent(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let condition = match TopicName::new(name) {
        Ok(_) => Condition::UnknownTopicOrPartition,
        Err(error) => Condition::InvalidTopic(error.to_string()),
    };
    let mut entry = DescribeTopicPartitionsResponseTopic::default();
    entry.error_code = error_code(&condition);
    entry.name = Some(StrBytes::from(name));
    entry
}

fn described(name: &TopicName, topic: &TopicImage) -> DescribeTopicPartitionsResponseTopic {
    let mut entry = DescribeTopicPartitionsResponseTopic::default();
    entry.name = Some(name.as_str().into());
    entry.topic_id = Uuid::from_bytes(topic.incarnation.topic_id.0);
    entry.is_internal = name.is_internal();
    entry.topic_authorized_operations = TOPIC;
    entry
}

fn partition(
    image: &ClusterImage,
    name: &TopicName,
    topic: &TopicImage,
    index: i32,
) -> DescribeTopicPartitionsResponsePartition {
    // The same facts as in Metadata, so that two tools never tell two tales.
    let same = topic.partitions.get(&index).map(|p| metadata::partition(image, name, index, p));
    let same = same.unwrap_or_default();
    let mut entry = DescribeTopicPartitionsResponsePartition::default();
    entry.error_code = same.error_code;
    entry.partition_index = index;
    entry.leader_id = same.leader_id;
    entry.leader_epoch = same.leader_epoch;
    entry.replica_nodes = same.replica_nodes;
    entry.isr_nodes = same.isr_nodes;
    entry.eligible_leader_replicas = Some(Vec::new());
    entry.last_known_elr = Some(Vec::new());
    entry.offline_replicas = same.offline_replicas;
    entry
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use barnabas_types::Partition;
    use barnabas_wire::messages::describe_topic_partitions_request::TopicRequest;
    use barnabas_wire::reply;

    use super::*;

    /// "a" has 3 partitions, "b" none, "c" 2.
    fn image() -> ClusterImage {
        let topic = |(name, partitions): (&str, i32)| {
            let partitions = (0..partitions).map(|index| (index, Partition::default()));
            let topic = TopicImage { partitions: partitions.collect(), ..TopicImage::default() };
            (TopicName::new(name).unwrap(), topic)
        };
        let topics: BTreeMap<_, _> = [("a", 3), ("b", 0), ("c", 2)].map(topic).into();
        ClusterImage { topics, ..ClusterImage::default() }
    }

    fn request(names: &[&str], limit: i32) -> DescribeTopicPartitionsRequest {
        let named = |name: &&str| {
            let mut topic = TopicRequest::default();
            topic.name = (*name).into();
            topic
        };
        let mut request = DescribeTopicPartitionsRequest::default();
        request.topics = names.iter().map(named).collect();
        request.response_partition_limit = limit;
        request
    }

    type Page = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

    fn page(request: &DescribeTopicPartitionsRequest) -> Page {
        let response = respond(&image(), request).unwrap();
        reply(1, 0, &response).unwrap_or_else(|error| panic!("{error}"));
        let topics = response.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|p| p.partition_index).collect();
            (topic.name.clone().unwrap().as_str().to_owned(), topic.error_code, partitions)
        });
        let next = response.next_cursor.as_ref();
        let next = next.map(|c| (c.topic_name.as_str().to_owned(), c.partition_index));
        (topics.collect(), next)
    }

    fn follow(request: &mut DescribeTopicPartitionsRequest) -> Vec<Page> {
        let mut pages = Vec::new();
        loop {
            let (topics, next) = page(request);
            pages.push((topics, next.clone()));
            let Some((topic, partition)) = next else { return pages };
            let mut cursor = From::default();
            cursor.topic_name = topic.as_str().into();
            cursor.partition_index = partition;
            request.cursor = Some(cursor);
        }
    }

    #[test]
    fn pages_together_are_the_whole_and_each_is_within_the_limit() {
        let whole = page(&request(&[], 100));
        let topic = |name: &str, indexes: &[i32]| (name.to_owned(), 0, indexes.to_vec());
        assert_eq!(whole.0, [topic("a", &[0, 1, 2]), topic("b", &[]), topic("c", &[0, 1])]);
        assert_eq!(whole.1, None);
        for limit in [-1, 0, 1, 2, 3, 4, 5] {
            let pages = follow(&mut request(&[], limit));
            let mut seen = Vec::new();
            for (topics, _) in &pages {
                let size: usize = topics.iter().map(|(_, _, p)| p.len()).sum();
                assert!(size <= usize::try_from(limit).unwrap_or(0).max(1), "{limit}: {topics:?}");
                let of = |(name, _, p): &(String, i16, Vec<i32>)| {
                    p.iter().map(|index| (name.clone(), *index)).collect::<Vec<_>>()
                };
                seen.extend(topics.iter().flat_map(of));
            }
            let expected = [("a", 0), ("a", 1), ("a", 2), ("c", 0), ("c", 1)];
            assert_eq!(seen, expected.map(|(name, index)| (name.to_owned(), index)), "{limit}");
        }
    }

    #[test]
    fn names_are_described_once_in_order_and_those_without_a_topic_have_their_codes() {
        let (topics, next) = page(&request(&["c", "absent", "c", "no/name"], 100));
        let shown: Vec<_> =
            topics.iter().map(|(name, code, p)| (name.as_str(), *code, p.len())).collect();
        assert_eq!(shown, [("absent", 3, 0), ("c", 0, 2), ("no/name", 17, 0)]);
        assert_eq!(next, None);
    }

    #[test]
    fn a_cursor_to_a_topic_that_is_gone_goes_on_behind_it() {
        let mut asked = request(&[], 100);
        let mut cursor = From::default();
        cursor.topic_name = "aa".into();
        cursor.partition_index = 2;
        asked.cursor = Some(cursor.clone());
        assert_eq!(page(&asked).0.len(), 2, "b and c, from their beginning");
        cursor.partition_index = -1;
        asked.cursor = Some(cursor);
        assert!(respond(&image(), &asked).is_err());
    }
}
