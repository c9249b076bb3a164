//! DescribeLogDirs (key 35), versions 1 to 4: KIP-113, KIP-827 (room of the volume, from 4). Sizes are those of the segment
//! files; the lag is how far the log's end is behind what this replica knows to be committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_types::Condition;
use barnabas_wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use barnabas_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, StrBytes};

use super::{RequestContext, error_code};
use crate::node::Node;
use crate::partition::Hosted;
use crate::storage::Directory;

/// First version that tells of the volume.
const VOLUME_VERSION: i16 = 4;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let node = context.node;
    let mut of_directory: BTreeMap<usize, Vec<Arc<Hosted>>> = BTreeMap::new();
    for hosted in wanted(node, request) {
        of_directory.entry(hosted.directory.index()).or_default().push(hosted);
    }
    let mut response = DescribeLogDirsResponse::default();
    for directory in &node.directories {
        let here = of_directory.remove(&directory.index()).unwrap_or_default();
        response.results.push(described(context.version, directory, here));
    }
    response
}

/// The replicas here that the request names, each once, in the order of their names.
fn wanted(node: &Node, request: &DescribeLogDirsRequest) -> Vec<Arc<Hosted>> {
    let mut found = match &request.topics {
        None => node.partitions.all(),
        Some(topics) => {
            let named: BTreeSet<(&str, i32)> = topics
                .iter()
                .flat_map(|asked| asked.partitions.iter().map(|p| (asked.topic.as_str(), *p)))
                .collect();
            named.iter().filter_map(|(topic, p)| node.partitions.get(topic, *p)).collect()
        }
    };
    found.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
    found
}

fn described(version: i16, directory: &Directory, here: Vec<Arc<Hosted>>) -> DescribeLogDirsResult {
    let mut result = DescribeLogDirsResult::default();
    result.log_dir = StrBytes::from(directory.path().to_string_lossy().as_ref());
    if directory.usable().is_none() {
        result.error_code = error_code(&Condition::KafkaStorageError);
        return result;
    }
    if version >= VOLUME_VERSION
        && let Some((usable, total)) = directory.free_bytes().zip(directory.total_bytes())
    {
        result.usable_bytes = i64::try_from(usable).unwrap_or(i64::MAX);
        result.total_bytes = i64::try_from(total).unwrap_or(i64::MAX);
    }
    for hosted in here {
        let (size_bytes, lag) = hosted.size_and_lag();
        let mut partition = DescribeLogDirsPartition::default();
        partition.partition_index = hosted.topic_partition.partition;
        partition.partition_size = i64::try_from(size_bytes).unwrap_or(i64::MAX);
        partition.offset_lag = lag;
        let name = hosted.topic_partition.topic.as_str();
        match result.topics.last_mut() {
            Some(last) if last.name.as_str() == name => last.partitions.push(partition),
            _ => {
                let mut topic = DescribeLogDirsTopic::default();
                topic.name = name.into();
                topic.partitions.push(partition);
                result.topics.push(topic);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use barnabas_types::Acks;
    use barnabas_wire::messages::describe_log_dirs_request::DescribableLogDirTopic;
    use barnabas_wire::reply;

    use super::*;
    use crate::testing::{Disk, batch, node, produce, push, state, tp};

    /// Partition, size, lag.
    type Shown = Vec<(i32, i64, i64)>;

    fn topics(result: &DescribeLogDirsResult) -> Vec<(String, Shown)> {
        let of = |topic: &DescribeLogDirsTopic| {
            let all = topic.partitions.iter();
            let all = all.map(|p| (p.partition_index, p.partition_size, p.offset_lag)).collect();
            (topic.name.as_str().to_owned(), all)
        };
        result.topics.iter().map(of).collect()
    }

    #[tokio::test]
    async fn sizes_are_told_of_what_is_asked_for_and_is_here() {
        let (node, disk) = (node(), Disk::new());
        for (topic, partition) in [("t", 1), ("s", 0), ("t", 0)] {
            let hosted = disk.host(&node, tp(topic, partition));
            state(&node, &hosted, push(1, 1, &[1]));
            if partition == 1 {
                produce(&node, &hosted, Acks::Leader, 0, None);
            }
        }
        let bytes = batch(0).len() as i64;
        let directory = disk.storage.directories()[0].clone();
        for version in 1..=4 {
            let all = wanted(&node, &{
                let mut request = DescribeLogDirsRequest::default();
                request.topics = None;
                request
            });
            let result = described(version, &directory, all);
            let expected = [
                ("s".to_owned(), vec![(0, 0, 0)]),
                ("t".to_owned(), vec![(0, 0, 0), (1, bytes, 0)]),
            ];
            assert_eq!(topics(&result), expected);
            assert_eq!((result.error_code, result.total_bytes), (0, -1), "nobody has looked yet");
            let mut response = DescribeLogDirsResponse::default();
            response.results.push(result);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut asked = DescribableLogDirTopic::default();
        asked.topic = "t".into();
        asked.partitions = vec![1, 7, 1];
        let mut request = DescribeLogDirsRequest::default();
        request.topics = Some(vec![asked]);
        disk.storage.directories().iter().for_each(|directory| directory.look_at_space(0));
        let result = described(4, &directory, wanted(&node, &request));
        assert_eq!(topics(&result), [("t".to_owned(), vec![(1, bytes, 0)])]);
        assert!(result.total_bytes > 0 && result.usable_bytes <= result.total_bytes);
        assert_eq!(described(3, &directory, Vec::new()).total_bytes, -1, "no place for it");
    }

    #[tokio::test]
    async fn an_offline_directory_is_an_error_of_its_own() {
        let disk = Disk::new();
        let directory = disk.storage.directories()[0].clone();
        directory.fail("pulled out".into());
        let result = described(4, &directory, Vec::new());
        assert_eq!((result.error_code, result.topics.len()), (56, 0));
    }
}
