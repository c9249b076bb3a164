//! The log directories of a broker: which partition lies where, how they were left, and what is wrong with them.

mod class;
mod cleaner;
mod cleanup;
mod directory;
mod led_file;
mod led_note;
mod losses;
mod open;
mod readers;
mod space;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use barnabas_log::{Disk, LogError};
use barnabas_types::{DirectoryId, Offset, TopicId, TopicPartition};

use crate::flush::Flusher;
use crate::journal::Journal;
use crate::partition::Outward;

pub use class::{Class, Led, Part};
pub use cleanup::Cleanup;
pub use directory::Directory;
pub use led_file::LedFile;
pub use led_note::{AckKind, AckKinds, LedNote, NoteKey};
pub use losses::Lost;
pub use open::{OpenError, Opened, Opening, Recovered, Wanted};
pub use space::Room;
pub use start::{Locked, Owner, Start};

/// All log directories of this broker, those that are offline too. Shared by whoever works on them.
#[derive(Debug)]
pub struct Storage {
    directories: Vec<Arc<Directory>>,
    /// Where the partitions on disk are: in one directory each, unless somebody copied files about.
    homes: Mutex<BTreeMap<TopicPartition, Vec<Home>>>,
    /// How far opening has come.
    opening: Opening,
    /// `num.recovery.threads.per.data.dir`.
    threads: usize,
    disk: Disk,
    /// Ids of all directories, those that are offline too.
    record: BTreeSet<DirectoryId>,
    /// The last restoration of ZooKeeper's data.
    restored: Option<String>,
    host_crashed: bool,
}

/// The flush threads of each directory, in their order; none for one that is offline.
pub type Flushers = Vec<Option<Arc<Flusher>>>;

/// One directory of a partition on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Home {
    /// Index among the directories.
    directory: usize,
    /// What its `partition.metadata` says.
    topic_id: TopicId,
}

impl Storage {
    /// Every directory, in the order of `log.dirs`.
    #[must_use]
    pub fn directories(&self) -> &[Arc<Directory>] {
        &self.directories
    }

    /// How far the opening of logs has come.
    #[must_use]
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Starts the flush threads of each directory. One that cannot be opened for it is offline from then on.
    #[must_use]
    pub fn start_flushers(&self, outward: &Weak<dyn Outward>) -> Flushers {
        let start = |directory: &Arc<Directory>| {
            let log_dir = directory.usable()?;
            let noting = directory.led().start(log_dir.disk(), outward.clone());
            match noting.and_then(|()| Flusher::start(log_dir, outward.clone())) {
                Ok(flusher) => Some(flusher),
                Err(error) => {
                    directory.fail(format!("its flush threads cannot be started: {error}"));
                    None
                }
            }
        };
        self.directories.iter().map(start).collect()
    }

    fn homes(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Vec<Home>>> {
        // A panic elsewhere leaves a plain map behind, whole.
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What partitions drop is to be written into this journal before it is dropped.
    pub fn tells_losses_to(&self, journal: &Arc<Journal>) {
        self.directories.iter().for_each(|directory| directory.tells_losses_to(journal.clone()));
    }

    /// Whether the directories that are there may lack what their disks never saw: the host crashed, or an earlier lost-tail mark was
    /// found. `false` where only another directory is gone.
    #[must_use]
    pub fn host_crashed(&self) -> bool {
        self.host_crashed
    }

    /// Whether anything of the partition is on a disk.
    #[must_use]
    pub fn has(&self, tp: &TopicPartition) -> bool {
        self.homes().get(tp).is_some_and(|homes| !homes.is_empty())
    }

    /// Whether the partition lies in this directory.
    #[must_use]
    pub fn is_home(&self, tp: &TopicPartition, directory: usize) -> bool {
        self.homes().get(tp).is_some_and(|homes| homes.iter().any(|h| h.directory == directory))
    }

    /// Opens nothing any more, and ends what is being opened soon.
    pub fn stop_opening(&self) {
        self.opening.stop();
        for log_dir in self.directories.iter().filter_map(|directory| directory.log_dir()) {
            log_dir.progress().stop();
        }
    }

    /// Partitions on the disks, in order.
    #[must_use]
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.homes().keys().cloned().collect()
    }

    /// The high watermark that was checkpointed for a partition in its directory, exclusive.
    #[must_use]
    pub fn high_watermark_of(&self, directory: &Directory, tp: &TopicPartition) -> Option<Offset> {
        directory.log_dir()?.high_watermark_of(tp)
    }

    /// Deletes the directories of partitions, wherever they are; their logs must have been dropped.
    ///
    /// # Errors
    /// The first error; the others are deleted nevertheless, and what was renamed is removed at the next start.
    pub fn delete_all(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        let mut result = Ok(());
        for (directory, partitions) in self.directories.iter().zip(self.leave(partitions)) {
            // What lies in one that is offline is swept when it is back.
            if let Some(log_dir) = directory.usable()
                && !partitions.is_empty()
            {
                result = result.and(log_dir.delete_all(&partitions));
            }
        }
        result
    }

    /// They have no home any more, nor a note. Where each was, in the order of the directories.
    fn leave(&self, partitions: &[TopicPartition]) -> Vec<Vec<TopicPartition>> {
        let mut each = vec![Vec::new(); self.directories.len()];
        let mut homes = self.homes();
        for tp in partitions {
            for Home { directory, topic_id } in homes.remove(tp).unwrap_or_default() {
                each[directory].push(tp.clone());
                let key = NoteKey { topic_id, partition: tp.partition };
                self.directories[directory].led().forget(key);
            }
        }
        each
    }

    /// Renames the directories of partitions away as stray, wherever they are: they are kept for a week. Their logs must not be open.
    ///
    /// # Errors
    /// The first error; the others are renamed nevertheless, and the next start tries again.
    pub fn set_aside(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        let mut result = Ok(());
        for (directory, partitions) in self.directories.iter().zip(self.leave(partitions)) {
            // What lies in one that is offline is looked at when it is back.
            if let Some(log_dir) = directory.usable()
                && !partitions.is_empty()
            {
                result = result.and(log_dir.set_aside(&partitions));
            }
        }
        result
    }

    /// Checkpoints high watermarks and recovery points durably, each directory's own; `marks` of `directory` come in the order
    /// of [`Storage::directories`]. Returns what failed.
    pub fn checkpoint(
        &self,
        mut marks: Vec<BTreeMap<TopicPartition, Offset>>,
    ) -> Vec<(Arc<Directory>, LogError)> {
        marks.resize_with(self.directories.len(), BTreeMap::new);
        let mut failed = Vec::new();
        for (directory, marks) in self.directories.iter().zip(marks) {
            let Some(log_dir) = directory.usable() else { continue };
            let written = log_dir
                .write_high_watermarks(&marks)
                .and_then(|()| log_dir.write_recovery_points());
            if let Err(error) = written {
                failed.push((directory.clone(), error));
            }
        }
        failed
    }

    /// Makes the lost-tail mark durable in the first directory that takes it (R38).
    ///
    /// # Errors
    /// None does; the error is that of the last.
    pub fn mark_tail_lost(&self) -> Result<(), LogError> {
        let mut result = Ok(());
        for log_dir in self.directories.iter().filter_map(|directory| directory.usable()) {
            result = log_dir.mark_tail_lost();
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Clears the lost-tail mark everywhere (R7).
    ///
    /// # Errors
    /// One of the directories refuses; the mark then counts as set.
    pub fn clear_tail_lost(&self) -> Result<(), LogError> {
        let mut usable = self.directories.iter().filter_map(|directory| directory.usable());
        usable.try_for_each(barnabas_log::LogDir::clear_tail_lost)
    }

    /// Ends the run in every directory: the clean marker is written where every log was closed well. Returns what failed.
    pub fn close(&self, clean: bool) -> Vec<(Arc<Directory>, LogError)> {
        let mut failed = Vec::new();
        for directory in &self.directories {
            let Some(log_dir) = directory.usable() else { continue };
            if let Err(error) = log_dir.close(clean) {
                failed.push((directory.clone(), error));
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests;
