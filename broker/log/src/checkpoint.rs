//! Kafka's small text files: offset checkpoints, leader epochs, partition metadata, `meta.properties`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use barnabas_types::{
    BrokerId, ClusterId, DirectoryId, EpochStart, LeaderEpoch, LeaderEpochs, Offset, TopicId,
    TopicName, TopicPartition,
};

use crate::disk::{Disk, Folder};
use crate::error::{At as _, LogError};
use crate::files::{read_text, replace, replace_durably, replace_synced};
use crate::log_dir::Meta;
use crate::sealed::{blank_fits, comment_fits, seal_blank, seal_comment};

/// Lines of a checkpoint (`0`, count, entries); `None` unless version, count and checksum are right.
fn entries(text: &str) -> Option<Vec<&str>> {
    if !blank_fits(text) {
        return None;
    }
    let mut lines = text.lines();
    if lines.next()?.trim() != "0" {
        return None;
    }
    let count: usize = lines.next()?.trim().parse().ok()?;
    let rest: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    (rest.len() == count).then_some(rest)
}

/// What an offset checkpoint says.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    pub(crate) offsets: BTreeMap<TopicPartition, Offset>,
    /// The file is there and makes no sense.
    pub(crate) damaged: bool,
}

/// Reads an offset checkpoint. A missing or damaged file says nothing: without a recovery point a log is scanned from its
/// beginning, a high watermark is found again from the leader, and the log start is that of the first segment.
pub(crate) fn read_offsets(path: &Path) -> Result<Offsets, LogError> {
    if !path.exists() {
        return Ok(Offsets::default());
    }
    let text = read_text(path)?.unwrap_or_default();
    let parse = |line: &str| -> Option<(TopicPartition, Offset)> {
        let mut words = line.split_ascii_whitespace();
        let topic = TopicName::new(words.next()?).ok()?;
        let partition = words.next()?.parse().ok().filter(|p| *p >= 0)?;
        let offset: i64 = words.next()?.parse().ok().filter(|o| *o >= 0)?;
        words.next().is_none().then_some((TopicPartition { topic, partition }, Offset(offset)))
    };
    let offsets = entries(&text).and_then(|lines| lines.into_iter().map(parse).collect());
    let damaged = offsets.is_none();
    Ok(Offsets { offsets: offsets.unwrap_or_default(), damaged })
}

/// Replaces an offset checkpoint durably.
pub(crate) fn write_offsets(
    disk: &Disk,
    path: &Path,
    offsets: &BTreeMap<TopicPartition, Offset>,
) -> Result<(), LogError> {
    let mut text = format!("0\n{}\n", offsets.len());
    for (tp, offset) in offsets {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {} {offset}", tp.topic, tp.partition);
    }
    if !offsets.is_empty() {
        seal_blank(&mut text);
    }
    replace_durably(disk, path, text.as_bytes())
}

/// Where a partition's leader epochs lie.
pub(crate) fn epochs_path(dir: &Path) -> PathBuf {
    dir.join("leader-epoch-checkpoint")
}

/// Reads the leader epochs; `None` if the file is missing or does not make sense (then they are rebuilt from the batches).
pub(crate) fn read_epochs(dir: &Path) -> Result<Option<LeaderEpochs>, LogError> {
    let Some(text) = read_text(&epochs_path(dir))? else { return Ok(None) };
    let parse = |line: &str| -> Option<EpochStart> {
        let (epoch, start) = line.trim_end().split_once(' ')?;
        let epoch = LeaderEpoch(epoch.parse().ok()?);
        Some(EpochStart { epoch, start_offset: Offset(start.parse().ok().filter(|o| *o >= 0)?) })
    };
    let starts: Option<Vec<EpochStart>> =
        entries(&text).and_then(|lines| lines.into_iter().map(parse).collect());
    let in_order = |s: &[EpochStart]| {
        s.windows(2).all(|w| w[0].epoch < w[1].epoch && w[0].start_offset < w[1].start_offset)
    };
    Ok(starts.filter(|s| in_order(s)).map(|s| s.into_iter().collect()))
}

/// Replaces the leader epochs. Whole after a crash of the process; made durable with the next flush, before a flushed offset
/// is claimed (a host crash before that loses nothing: epochs above the recovery point are read from the batches).
pub(crate) fn write_epochs(dir: &Folder, epochs: &LeaderEpochs) -> Result<(), LogError> {
    let mut text = format!("0\n{}\n", epochs.entries().len());
    for entry in epochs.entries() {
        let _ = writeln!(text, "{} {}", entry.epoch, entry.start_offset);
    }
    if !epochs.entries().is_empty() {
        seal_blank(&mut text);
    }
    replace(&dir.disk, &epochs_path(dir), text.as_bytes())
}

const PARTITION_METADATA: &str = "partition.metadata";

/// A copy of it: without a topic id nobody may look at the records of the directory (R28), so one damaged file would cost
/// them all.
const PARTITION_METADATA_COPY: &str = "barnabas.partition.metadata";

/// The topic id that a partition's directory names, from `partition.metadata` or, if that is missing or damaged, from its
/// copy; `None` if neither makes sense.
pub(crate) fn read_topic_id(dir: &Path) -> Result<Option<TopicId>, LogError> {
    match topic_id_in(&dir.join(PARTITION_METADATA))? {
        Some(topic_id) => Ok(Some(topic_id)),
        None => topic_id_in(&dir.join(PARTITION_METADATA_COPY)),
    }
}

fn topic_id_in(path: &Path) -> Result<Option<TopicId>, LogError> {
    let text = read_text(path)?.filter(|text| comment_fits(text));
    Ok(text.and_then(|text| {
        let properties = properties(&text, ':');
        if properties.get("version") != Some(&"0") {
            return None;
        }
        TopicId::parse(properties.get("topic_id")?)
    }))
}

/// Writes `partition.metadata` durably, after its copy.
pub(crate) fn write_topic_id(disk: &Disk, dir: &Path, topic_id: TopicId) -> Result<(), LogError> {
    let mut text = format!("version: 0\ntopic_id: {topic_id}\n");
    seal_comment(&mut text);
    // The directory is synced once, with the second.
    replace_synced(disk, &dir.join(PARTITION_METADATA_COPY), text.as_bytes())?;
    replace_durably(disk, &dir.join(PARTITION_METADATA), text.as_bytes())
}

/// Writes both again unless both name this topic id.
pub(crate) fn mend_topic_id(disk: &Disk, dir: &Path, topic_id: TopicId) -> Result<(), LogError> {
    for name in [PARTITION_METADATA, PARTITION_METADATA_COPY] {
        if topic_id_in(&dir.join(name))? != Some(topic_id) {
            return write_topic_id(disk, dir, topic_id);
        }
    }
    Ok(())
}

/// Whether a directory has nothing but (beginnings of) the files that name its topic.
pub(crate) fn holds_no_records(dir: &Path) -> Result<bool, LogError> {
    for entry in std::fs::read_dir(dir).at("list", dir)? {
        let name = entry.at("list", dir)?.file_name();
        let stem = name.to_str().map(|name| name.strip_suffix(".tmp").unwrap_or(name));
        if !stem.is_some_and(|stem| [PARTITION_METADATA, PARTITION_METADATA_COPY].contains(&stem)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn properties(text: &str, separator: char) -> BTreeMap<&str, &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once(separator))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect()
}

/// The newest version of `meta.properties` that is read; it stands for the format of the whole directory.
const META_VERSION_MAX: u32 = 1;

/// Reads `meta.properties`; `None` if there is none.
pub(crate) fn read_meta(path: &Path) -> Result<Option<Meta>, LogError> {
    if !path.exists() {
        return Ok(None);
    }
    let damaged = |reason| LogError::MetaDamaged { file: path.to_owned(), reason };
    let text = read_text(path)?.ok_or_else(|| damaged("it is no text"))?;
    let properties = properties(&text, '=');
    // Kafka's own: 0 with ZooKeeper, 1 without.
    if let Some(version) = properties.get("version")
        && version.parse::<u32>().is_ok_and(|version| version > META_VERSION_MAX)
    {
        let (file, version) = (path.to_owned(), (*version).to_owned());
        return Err(LogError::NewerFormat { file, version, known: META_VERSION_MAX });
    }
    // A directory written by Kafka names the broker `broker.id` (with ZooKeeper) or `node.id`.
    let id = properties.get("broker.id").or_else(|| properties.get("node.id"));
    let broker_id = id.and_then(|v| v.parse().ok()).map(BrokerId);
    let cluster_id = properties.get("cluster.id").map(|v| ClusterId((*v).to_owned()));
    let directory_id = match properties.get("directory.id") {
        Some(text) => {
            Some(DirectoryId::parse(text).ok_or_else(|| damaged("directory.id is no id"))?)
        }
        None => None,
    };
    Ok(Some(Meta {
        broker_id: broker_id.ok_or_else(|| damaged("broker.id is missing or no number"))?,
        cluster_id: cluster_id.ok_or_else(|| damaged("cluster.id is missing"))?,
        directory_id,
    }))
}

/// Writes `meta.properties` durably.
pub(crate) fn write_meta(disk: &Disk, path: &Path, meta: &Meta) -> Result<(), LogError> {
    let mut text =
        format!("#\nversion=1\nbroker.id={}\ncluster.id={}\n", meta.broker_id, meta.cluster_id);
    if let Some(id) = meta.directory_id {
        let _ = writeln!(text, "directory.id={id}");
    }
    replace_durably(disk, path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn leader_epochs_read_back_and_damage_is_noticed() {
        let dir = TempDir::new("epochs");
        assert_eq!(read_epochs(dir.path()).unwrap(), None);
        let epochs: LeaderEpochs = [(1, 0), (4, 30)]
            .map(|(e, o)| EpochStart { epoch: LeaderEpoch(e), start_offset: Offset(o) })
            .into_iter()
            .collect();
        write_epochs(&dir.folder(), &epochs).unwrap();
        let text = fs::read_to_string(epochs_path(dir.path())).unwrap();
        assert_eq!(text.trim_end(), "0\n2\n1 0\n4 30");
        assert_eq!(read_epochs(dir.path()).unwrap(), Some(epochs));
        for bad in ["", "0\n", "0\n2\n1 0\n", "0\n2\n4 30\n1 0\n", "1\n1\n1 0\n", "0\n1\nx y\n"] {
            fs::write(epochs_path(dir.path()), bad).unwrap();
            assert_eq!(read_epochs(dir.path()).unwrap(), None, "{bad:?}");
        }
    }

    #[test]
    fn offsets_are_written_as_kafka_writes_them() {
        let dir = TempDir::new("offsets");
        let path = dir.path().join("replication-offset-checkpoint");
        let tp = TopicPartition { topic: TopicName::new("a-b").unwrap(), partition: 3 };
        write_offsets(&Disk::real(), &path, &BTreeMap::from([(tp.clone(), Offset(12))])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), "0\n1\na-b 3 12");
        let read = read_offsets(&path).unwrap();
        assert_eq!((read.offsets, read.damaged), (BTreeMap::from([(tp, Offset(12))]), false));
        fs::write(&path, "0\n2\na-b 3 12\n").unwrap();
        let read = read_offsets(&path).unwrap();
        assert!(read.offsets.is_empty() && read.damaged);
    }
}
