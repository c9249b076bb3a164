//! One data directory: lock, identity, clean-shutdown marker, lost-tail mark, checkpoints, and the partitions in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barnabas_types::{BrokerId, ClusterId, DirectoryId, Offset, TopicId, TopicPartition};

use crate::checkpoint::{mend_topic_id, read_meta, read_topic_id, write_meta, write_topic_id};
use crate::config::LogConfig;
use crate::directories::STRAY;
use crate::disk::{Disk, Folder};
use crate::error::{At as _, LogError};
use crate::files::{read_text, remove_if_there, replace_durably, sync_dir};
use crate::log::Log;
use crate::progress::RecoveryProgress;
use crate::shared::{RECOVERY_POINTS, Shared, TAIL_LOST};

const LOCK: &str = ".lock";
pub(crate) const META: &str = "meta.properties";
const CLEAN: &str = ".kafka_cleanshutdown";
const BOOT_ID: &str = "barnabas.boot_id";
/// What `meta.properties` says: to whom the directory belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// `broker.id`.
    pub broker_id: BrokerId,
    /// `cluster.id`.
    pub cluster_id: ClusterId,
    /// `directory.id`; absent in directories of older Kafka versions until [`LogDir::bind`] adds it.
    pub directory_id: Option<DirectoryId>,
}

/// How the directory was left by the process before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartKind {
    /// Every log was flushed and closed.
    pub clean: bool,
    /// The host may have lost unflushed bytes (R6): unclean and another boot id, or an earlier such mark that was not
    /// cleared yet (R7).
    pub tail_lost: bool,
}

/// One data directory (`log.dirs` names some), locked for the life of this value. Usable from several threads, also to open
/// partitions in parallel.
///
/// Order of a start: [`LogDir::lock`], [`LogDir::bind`], [`LogDir::begin`], then [`LogDir::open`]. Of a stop:
/// [`Log::close`] for each log, then [`LogDir::close`].
#[derive(Debug)]
pub struct LogDir {
    pub(crate) shared: Arc<Shared>,
    meta: Option<Meta>,
    /// It had no `meta.properties` when it was locked.
    is_new: bool,
    _lock: File,
}

impl LogDir {
    /// Makes the directory if need be and locks it.
    ///
    /// # Errors
    /// [`LogError::DirectoryInUse`] if a living process has it; [`LogError::MetaDamaged`]; [`LogError::NewerFormat`];
    /// [`LogError::Io`].
    pub fn lock(path: &Path) -> Result<Self, LogError> {
        Self::lock_on(Disk::real(), path)
    }

    /// As [`LogDir::lock`], with all changes made through `disk`.
    ///
    /// # Errors
    /// As [`LogDir::lock`].
    pub fn lock_on(disk: Disk, path: &Path) -> Result<Self, LogError> {
        fs::create_dir_all(path).at("create directory", path)?;
        let lock_path = path.join(LOCK);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .at("open", &lock_path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LogError::DirectoryInUse(path.to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(error).at("lock", &lock_path),
        }
        let shared = Arc::new(Shared::read(disk, path)?);
        let meta = read_meta(&path.join(META))?;
        Ok(Self { shared, is_new: meta.is_none(), meta, _lock: file })
    }

    /// Whether it belonged to nobody when it was locked: whatever its broker had before is not here (R6).
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Takes back what a start that came to nothing has left in a new directory, and lets go of it. A directory that was
    /// somebody's before stays as it is.
    pub fn abandon(self) {
        if !self.is_new {
            return;
        }
        // Best effort: what stays is a few bytes that the next start overwrites.
        for name in [META, BOOT_ID, TAIL_LOST, RECOVERY_POINTS, LOCK] {
            let _ = remove_if_there(self.disk(), &self.path().join(name));
        }
        // Only an empty directory goes.
        let _ = fs::remove_dir(self.path());
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    /// How its files are changed.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// To whom it belongs; `None` before the first [`LogDir::bind`].
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// Binds a new directory to a broker and cluster (with a fresh random directory id), or checks that it is theirs.
    ///
    /// # Errors
    /// [`LogError::MetaMismatch`] if it belongs to another broker or cluster; [`LogError::Io`].
    pub fn bind(
        &mut self,
        broker_id: BrokerId,
        cluster_id: &ClusterId,
    ) -> Result<DirectoryId, LogError> {
        let file = self.path().join(META);
        if let Some(meta) = &self.meta {
            let differs = |key, found: String, expected: String| {
                if found == expected {
                    Ok(())
                } else {
                    Err(LogError::MetaMismatch { file: file.clone(), key, found, expected })
                }
            };
            differs("broker.id", meta.broker_id.to_string(), broker_id.to_string())?;
            differs("cluster.id", meta.cluster_id.to_string(), cluster_id.to_string())?;
            if let Some(id) = meta.directory_id {
                return Ok(id);
            }
        }
        let directory_id = DirectoryId(random_id(&file)?);
        let meta =
            Meta { broker_id, cluster_id: cluster_id.clone(), directory_id: Some(directory_id) };
        write_meta(self.disk(), &file, &meta)?;
        self.meta = Some(meta);
        Ok(directory_id)
    }

    /// Begins a run, before any log is opened: consumes the clean-shutdown marker durably, so that a crash while loading is
    /// seen as one; decides whether the tail may be lost and makes that durable (R6, R7); removes directories whose deletion
    /// or creation was interrupted, and stray ones after [`STRAY_KEPT`](crate::STRAY_KEPT).
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn begin(&self) -> Result<StartKind, LogError> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        self.begin_under(read_text(path)?.unwrap_or_default().trim())
    }

    /// As [`LogDir::begin`], with the boot id of the host given: for tests, and for hosts that have no `/proc`. An empty one
    /// differs from every other.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn begin_under(&self, boot_id: &str) -> Result<StartKind, LogError> {
        let path = self.path();
        let marker = path.join(CLEAN);
        let clean = marker.exists();
        if clean {
            remove_if_there(self.disk(), &marker)?;
            sync_dir(self.disk(), path)?;
        }
        let partitions: BTreeSet<_> =
            self.partitions()?.into_iter().map(|(partition, _)| partition).collect();
        let boot_path = path.join(BOOT_ID);
        let before = read_text(&boot_path)?.unwrap_or_default();
        let same_boot = !boot_id.is_empty() && before.trim() == boot_id;
        if !clean && !same_boot && !partitions.is_empty() {
            self.mark_tail_lost()?;
        }
        if !same_boot {
            replace_durably(self.disk(), &boot_path, format!("{boot_id}\n").as_bytes())?;
        }
        self.shared.progress.begin(partitions.len());
        self.shared.begin(partitions, clean)?;
        self.sweep()?;
        Ok(StartKind { clean, tail_lost: self.is_tail_lost() })
    }

    /// Makes the lost-tail mark durable: at an unclean start after a host crash, and after a failed sync (R38).
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn mark_tail_lost(&self) -> Result<(), LogError> {
        self.shared.mark_tail_lost()
    }

    /// Clears the lost-tail mark: only once the controller's state shows this broker as ISR member under its own current
    /// broker epoch (R7).
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn clear_tail_lost(&self) -> Result<(), LogError> {
        remove_if_there(self.disk(), &self.path().join(TAIL_LOST))?;
        sync_dir(self.disk(), self.path())
    }

    /// The checkpoints of the directory that made no sense when it was locked: they were taken for empty ones. Worth a
    /// warning: without recovery points logs are scanned whole, without log starts deleted records may be there again.
    #[must_use]
    pub fn damaged_checkpoints(&self) -> &[PathBuf] {
        &self.shared.damaged
    }

    /// Whether the lost-tail mark is set. Opening a log may set it: [`Recovery::tail_lost`](crate::Recovery::tail_lost).
    #[must_use]
    pub fn is_tail_lost(&self) -> bool {
        self.path().join(TAIL_LOST).exists()
    }

    /// How far the opening of this directory's logs has come; it can be stopped there.
    #[must_use]
    pub fn progress(&self) -> &Arc<RecoveryProgress> {
        &self.shared.progress
    }

    /// The partitions on disk with the topic ids that their directories name, in order. Directories that are renamed away,
    /// or that name no topic id, are not partitions.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn partitions(&self) -> Result<Vec<(TopicPartition, TopicId)>, LogError> {
        let mut found = Vec::new();
        for (name, dir) in self.directories()? {
            if let Some(partition) = TopicPartition::parse_directory(&name)
                && let Some(topic_id) = read_topic_id(&dir)?
            {
                found.push((partition, topic_id));
            }
        }
        found.sort();
        Ok(found)
    }

    pub(crate) fn directories(&self) -> Result<Vec<(String, PathBuf)>, LogError> {
        let path = self.path();
        let mut found = Vec::new();
        for entry in fs::read_dir(path).at("list", path)? {
            let entry = entry.at("list", path)?;
            let is_dir = entry.file_type().at("read", &entry.path())?.is_dir();
            if let (true, Ok(name)) = (is_dir, entry.file_name().into_string()) {
                found.push((name, entry.path()));
            }
        }
        Ok(found)
    }

    /// Opens the log of a partition, or makes it. A directory of this name with another topic id, or with none, is stray: it
    /// is renamed away first, never opened, read or counted (R28).
    ///
    /// Opening scans what may be damaged; it is meant for a thread that may block. Each partition may be open once.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn open(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
    ) -> Result<Log, LogError> {
        let dir = self.path().join(partition.to_string());
        if dir.exists() {
            let found = read_topic_id(&dir)?;
            if found != Some(topic_id) {
                self.rename_away(partition, found, STRAY)?;
            }
        }
        if !dir.exists() {
            self.shared.forget(std::slice::from_ref(partition))?;
            self.disk().create_dir(&dir).at("create directory", &dir)?;
            write_topic_id(self.disk(), &dir, topic_id)?;
            sync_dir(self.disk(), self.path())?;
        } else {
            mend_topic_id(self.disk(), &dir, topic_id)?;
        }
        self.shared.settle_log_start(partition)?;
        let noted = self.shared.opening(partition);
        let dir = Folder { path: dir, disk: self.disk().clone() };
        let opened = Log::open(Arc::clone(&self.shared), partition.clone(), dir, config, noted);
        self.shared.progress.opened();
        opened
    }

    /// The high watermark that was checkpointed for a partition, exclusive.
    #[must_use]
    pub fn high_watermark_of(&self, partition: &TopicPartition) -> Option<Offset> {
        self.shared.state().high_watermarks.get(partition).copied()
    }

    /// Checkpoints high watermarks durably. Entries of partitions that are not among them stay as they were.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_high_watermarks(
        &self,
        marks: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<(), LogError> {
        let entries = marks.iter().map(|(tp, mark)| (tp.clone(), *mark));
        self.shared.state().high_watermarks.extend(entries);
        self.shared.write_high_watermarks()
    }

    /// The recovery point of a partition, exclusive: the flushed offset that is noted for it.
    #[must_use]
    pub fn recovery_point_of(&self, partition: &TopicPartition) -> Option<Offset> {
        self.shared.state().recovery_points.get(partition).copied()
    }

    /// Checkpoints the recovery points durably. The logs keep them: flushing raises one, truncation lowers it. Those of
    /// partitions that are not open stay as they were.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_recovery_points(&self) -> Result<(), LogError> {
        self.shared.write_recovery_points()
    }

    /// The log start of a partition, inclusive, as noted: by its log if it is open, by the checkpoint before. `None`: its first
    /// segment's.
    #[must_use]
    pub fn log_start_of(&self, partition: &TopicPartition) -> Option<Offset> {
        self.shared.state().log_starts.get(partition).copied()
    }

    /// Checkpoints the log starts durably (`log-start-offset-checkpoint`). The logs note them:
    /// [`Log::advance_log_start`], [`Log::reset_to`].
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_log_starts(&self) -> Result<(), LogError> {
        self.shared.write_log_starts()
    }

    /// What writes the log starts, for whoever has no hold of the directory.
    #[must_use]
    pub fn log_start_checkpoint(&self) -> LogStartCheckpoint {
        LogStartCheckpoint { shared: self.shared.clone() }
    }

    /// Up to where a partition was compacted, exclusive: its first dirty offset.
    #[must_use]
    pub fn cleaned_up_to(&self, partition: &TopicPartition) -> Option<Offset> {
        self.shared.cleaned_up_to(partition)
    }

    /// Checkpoints the first dirty offsets of compacted logs durably (`cleaner-offset-checkpoint`). One that is lost costs
    /// that a part is compacted again.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_cleaner_points(&self) -> Result<(), LogError> {
        self.shared.write_cleaner_points()
    }

    /// Ends a run: writes the recovery points, the log starts and, if wanted and if every log on disk was flushed and closed, the
    /// clean-shutdown marker. Returns whether the marker was written.
    ///
    /// After an unclean start a partition that was never opened is not known to be whole: it keeps the marker away.
    ///
    /// # Errors
    /// [`LogError::Io`]; the next start is an unclean one.
    pub fn close(&self, clean: bool) -> Result<bool, LogError> {
        self.write_recovery_points()?;
        self.write_log_starts()?;
        let clean = clean && self.shared.state().unclean.is_empty();
        if clean {
            // Kafka's form of the marker; -1: no broker epoch.
            replace_durably(
                self.disk(),
                &self.path().join(CLEAN),
                br#"{"version":0,"brokerEpoch":-1}"#,
            )?;
        }
        Ok(clean)
    }
}

/// Writes the log starts of a data directory.
#[derive(Clone, Debug)]
pub struct LogStartCheckpoint {
    shared: Arc<Shared>,
}

impl LogStartCheckpoint {
    /// As [`LogDir::write_log_starts`].
    ///
    /// # Errors
    /// [`LogError::Io`]: the old content stays.
    pub fn write(&self) -> Result<(), LogError> {
        self.shared.write_log_starts()
    }
}

fn random_id(path: &Path) -> Result<[u8; 16], LogError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| io::Error::other(e.to_string()))
        .at("make a random id for", path)?;
    Ok(bytes)
}
