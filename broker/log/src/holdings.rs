//! What lies in a data directory, told without opening a log: to whom it belongs, and which partitions with which leader epochs.

use std::fs;
use std::path::Path;

use barnabas_types::{LeaderEpoch, TopicId, TopicPartition};

use crate::checkpoint::{read_epochs, read_meta, read_topic_id};
use crate::error::{At as _, LogError};
use crate::log_dir::{META, Meta};

/// What a data directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// To whom it belongs; `None`: to nobody yet.
    pub meta: Option<Meta>,
    /// Its partitions, in order. Stray directories, and those that name no topic id, are none.
    pub partitions: Vec<Holding>,
}

/// One partition of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Which.
    pub partition: TopicPartition,
    /// Of which life of its topic.
    pub topic_id: TopicId,
    /// The newest leader epoch that is noted beside its log, `None` without any. After a crash the log may know a newer one.
    pub last_epoch: Option<LeaderEpoch>,
}

/// Reads what a data directory holds. Nothing is changed or locked: a broker may be running on it.
///
/// # Errors
/// [`LogError::MetaDamaged`], [`LogError::NewerFormat`]; [`LogError::Io`].
pub fn holdings(path: &Path) -> Result<Holdings, LogError> {
    let meta = read_meta(&path.join(META))?;
    let mut partitions = Vec::new();
    for entry in fs::read_dir(path).at("list", path)? {
        let dir = entry.at("list", path)?.path();
        let name = dir.file_name().and_then(|name| name.to_str());
        let Some(partition) = name.and_then(TopicPartition::parse_directory) else { continue };
        // Deleted while we look: it is not there.
        if let Some(topic_id) = read_topic_id(&dir)? {
            let last_epoch = read_epochs(&dir)?.and_then(|epochs| epochs.latest());
            partitions.push(Holding { partition, topic_id, last_epoch });
        }
    }
    partitions.sort_by(|a, b| a.partition.cmp(&b.partition));
    Ok(Holdings { meta, partitions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use crate::{LogConfig, LogDir};
    use barnabas_types::{BrokerId, ClusterId, Offset, TopicName};

    #[test]
    fn what_a_directory_holds_is_told_while_it_is_used() {
        let temp = TempDir::new("holdings");
        assert_eq!(holdings(temp.path()).unwrap(), Holdings { meta: None, partitions: Vec::new() });
        let mut log_dir = LogDir::lock(temp.path()).unwrap();
        log_dir.bind(BrokerId(4), &ClusterId("c".into())).unwrap();
        log_dir.begin_under("boot").unwrap();
        let tp = |partition| TopicPartition { topic: TopicName::new("t-1").unwrap(), partition };
        let id = TopicId([7; 16]);
        let mut led = log_dir.open(&tp(3), id, LogConfig::default()).unwrap();
        led.assign_epoch(LeaderEpoch(5), Offset(0)).unwrap();
        let never = log_dir.open(&tp(0), id, LogConfig::default()).unwrap();
        let stray = log_dir.open(&tp(1), id, LogConfig::default()).unwrap();
        drop(stray);
        log_dir.set_aside(&[tp(1)]).unwrap();
        let found = holdings(temp.path()).unwrap();
        let meta = found.meta.unwrap();
        assert_eq!((meta.broker_id, &*meta.cluster_id.0), (BrokerId(4), "c"));
        let one = |partition, last_epoch| Holding { partition, topic_id: id, last_epoch };
        assert_eq!(found.partitions, [one(tp(0), None), one(tp(3), Some(LeaderEpoch(5)))]);
        drop((led, never));
    }
}
