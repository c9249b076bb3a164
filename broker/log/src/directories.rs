//! The directories of partitions: deleting them, setting stray ones aside, and sweeping what interrupted steps left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barnabas_types::{TopicId, TopicPartition};

use crate::checkpoint::{holds_no_records, read_topic_id};
use crate::error::{At as _, LogError};
use crate::files::sync_dir;
use crate::log_dir::LogDir;

pub(crate) const STRAY: &str = "stray";
/// In a stray directory: since when it is one.
const STRAY_MARK: &str = "barnabas.stray";
/// Stray directories are removed at a start so long after they were set aside: an operator's last net.
pub const STRAY_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest file name of the usual file systems.
const NAME_BYTES_MAX: usize = 255;
/// Names tried for a directory that is renamed away.
const RENAME_TRIES_MAX: u32 = 1000;

impl LogDir {
    /// Deletes a partition's directory; see [`LogDir::delete_all`].
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn delete(&self, partition: &TopicPartition) -> Result<(), LogError> {
        self.delete_all(std::slice::from_ref(partition))
    }

    /// Deletes the directories of partitions: renamed first, so that a crash in the middle leaves no half partition. Drop
    /// their [`Log`](crate::Log)s before. That there is no such directory is fine.
    ///
    /// One sync of the directory and one write of each checkpoint for all of them: for a thousand partitions one by one
    /// it would be thousands, while which the broker obeys no other push.
    ///
    /// # Errors
    /// [`LogError::Io`]: the first; the others are deleted nevertheless, and what was renamed is removed at the next start.
    pub fn delete_all(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        let mut renamed = Vec::new();
        let mut result = Ok(());
        for partition in partitions {
            let dir = self.path().join(partition.to_string());
            if dir.exists() {
                let target =
                    read_topic_id(&dir).and_then(|id| self.rename(partition, id, "delete"));
                match target {
                    Ok(target) => renamed.push(target),
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        if !renamed.is_empty() {
            sync_dir(self.disk(), self.path())?;
        }
        let forgotten = self.shared.forget(partitions);
        for dir in renamed {
            result = result.and(self.disk().remove_dir_all(&dir).at("remove", &dir));
        }
        // On a full disk there is room now.
        result.and(if forgotten.is_err() { self.shared.forget(&[]) } else { Ok(()) })
    }

    /// Renames stray directories of these partitions' names away (R28), as [`LogDir::open`] does. That there is none is fine. One sync
    /// and one write of each checkpoint for all of them, as [`LogDir::delete_all`] has it.
    ///
    /// # Errors
    /// [`LogError::Io`]: the first; the others are renamed nevertheless.
    pub fn set_aside(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        let (mut renamed, mut result) = (Vec::new(), Ok(()));
        for partition in partitions {
            let dir = self.path().join(partition.to_string());
            if dir.exists() {
                match read_topic_id(&dir).and_then(|id| self.rename(partition, id, STRAY)) {
                    Ok(_) => renamed.push(partition.clone()),
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        if !renamed.is_empty() {
            sync_dir(self.disk(), self.path())?;
            self.shared.forget(&renamed)?;
        }
        result
    }

    /// Renames a partition's directory to `NAME.ID-SUFFIX` durably.
    pub(crate) fn rename_away(
        &self,
        partition: &TopicPartition,
        topic_id: Option<TopicId>,
        suffix: &str,
    ) -> Result<PathBuf, LogError> {
        let target = self.rename(partition, topic_id, suffix)?;
        sync_dir(self.disk(), self.path())?;
        self.shared.forget(std::slice::from_ref(partition))?;
        Ok(target)
    }

    /// As [`LogDir::rename_away`], without the durable part.
    fn rename(
        &self,
        partition: &TopicPartition,
        topic_id: Option<TopicId>,
        suffix: &str,
    ) -> Result<PathBuf, LogError> {
        let name = partition.to_string();
        let dir = self.path().join(&name);
        let id = topic_id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let mut target = dir.clone();
        for number in 0..RENAME_TRIES_MAX {
            let end = if number == 0 {
                format!(".{id}-{suffix}")
            } else {
                format!(".{id}.{number}-{suffix}")
            };
            // Topic names may be as long as file names: then the name gives way, as in Kafka.
            let kept = name.len().min(NAME_BYTES_MAX - end.len());
            target = self.path().join(format!("{}{end}", &name[..kept]));
            if !target.exists() {
                break;
            }
        }
        self.disk().rename(&dir, &target).at("rename", &dir)?;
        if suffix == STRAY {
            // Its time says since when. If it cannot be made, the next start makes it.
            let _ = self.disk().create(&target.join(STRAY_MARK));
        }
        Ok(target)
    }

    /// Removes what interrupted steps left, and old stray directories.
    pub(crate) fn sweep(&self) -> Result<(), LogError> {
        for (name, dir) in self.directories()? {
            let renamed = name.contains('.');
            let goes = if renamed && name.ends_with("-delete") {
                true
            } else if renamed && name.ends_with("-stray") {
                self.stray_is_old(&dir)?
            } else {
                // It was about to be made; its name was never synced.
                TopicPartition::parse_directory(&name).is_some()
                    && read_topic_id(&dir)?.is_none()
                    && holds_no_records(&dir)?
            };
            if goes {
                self.disk().remove_dir_all(&dir).at("remove", &dir)?;
            }
        }
        Ok(())
    }

    fn stray_is_old(&self, dir: &Path) -> Result<bool, LogError> {
        let mark = dir.join(STRAY_MARK);
        match fs::metadata(&mark).and_then(|mark| mark.modified()) {
            // A clock that was set back makes it young.
            Ok(since) => Ok(since.elapsed().is_ok_and(|age| age >= STRAY_KEPT)),
            Err(_) => {
                self.disk().create(&mark).at("create", &mark)?;
                Ok(false)
            }
        }
    }
}
