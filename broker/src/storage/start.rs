//! How the log directories are taken at a start: locked, bound to broker and cluster, begun; which of them are missing (R6).
//!
//! Every directory holds the ids of all of them (`barnabas.directories`, one a line). An id that is known and not there means
//! that partitions may be gone with it, exactly as if this broker came back with another directory: the tail counts as lost.
//! A directory that was merely added means nothing of the kind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use barnabas_log::{Disk, LogDir, LogError, StartKind, holdings, read_text, replace_durably};
use barnabas_types::{BrokerId, ClusterId, DirectoryId, LeaderEpoch, TopicId, TopicPartition};

use super::{Directory, Home, LedFile, NoteKey, Opening, Storage};

const DIRECTORIES: &str = "barnabas.directories";
/// Names the last restoration of ZooKeeper's data that the broker has taken note of.
const RESTORED: &str = "barnabas.restored";

type Homes = BTreeMap<TopicPartition, Vec<Home>>;

/// Locked directories; nothing is changed in those that were somebody's before.
#[derive(Debug)]
pub struct Locked {
    disk: Disk,
    entries: Vec<Entry>,
}

/// One of `log.dirs`; with trouble it is offline.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    log_dir: Option<LogDir>,
    trouble: Option<LogError>,
}

impl Entry {
    fn usable(&mut self) -> Option<&mut LogDir> {
        self.log_dir.as_mut().filter(|_| self.trouble.is_none())
    }
}

/// To whom the directories are to belong, and how they are used.
#[derive(Clone, Debug)]
pub struct Owner {
    /// This broker.
    pub broker_id: BrokerId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// The cluster has topics: a broker without data may be one that has lost it.
    pub has_topics: bool,
    /// The last restoration of ZooKeeper's data. Since one that is news here nobody knows who was in which ISR, so every broker
    /// takes its tail for lost, and the longest logs lead once all are heard (R8).
    pub restored: Option<String>,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads: usize,
}

/// What a start is told of its directories.
#[derive(Debug)]
pub struct Start {
    /// The directories, ready to open partitions.
    pub storage: Storage,
    /// How they were left, all of them taken together.
    pub kind: StartKind,
    /// Names this broker's data: the id of its first usable directory.
    pub directory_id: DirectoryId,
    /// Names the usable directories together: the id of a single one, or what is made of all ids. While one of them is offline
    /// the name is another one, so what is numbered under a name is never numbered without knowing what all of them hold.
    pub journal_id: DirectoryId,
}

/// What beginning the directories gave.
struct Begun {
    kind: StartKind,
    directory_id: DirectoryId,
    journal_id: DirectoryId,
    homes: Homes,
    /// The ids that every directory is to know.
    record: BTreeSet<DirectoryId>,
    /// See [`Storage::host_crashed`].
    host_crashed: bool,
}

/// What the logs of a broker know: the newest leader epoch of each partition, and in which life of its topic.
pub(crate) type LogEpochs = Vec<(TopicPartition, TopicId, LeaderEpoch)>;

impl Locked {
    /// Locks each directory, and makes those that are not there. One that refuses with an I/O error is offline; the others
    /// serve.
    ///
    /// # Errors
    /// [`LogError::DirectoryInUse`] and [`LogError::MetaDamaged`] of any; the first I/O error if no directory is left.
    pub fn lock(paths: &[PathBuf]) -> Result<Self, LogError> {
        Self::lock_on(Disk::real(), paths)
    }

    /// As [`Locked::lock`], with all changes made through `disk`.
    ///
    /// # Errors
    /// As [`Locked::lock`].
    pub fn lock_on(disk: Disk, paths: &[PathBuf]) -> Result<Self, LogError> {
        let mut locked = Self { disk: disk.clone(), entries: Vec::new() };
        for path in paths {
            let (log_dir, trouble) = match LogDir::lock_on(disk.clone(), path) {
                Ok(log_dir) => (Some(log_dir), None),
                Err(error @ LogError::Io { .. }) => (None, Some(error)),
                Err(error) => {
                    locked.abandon();
                    return Err(error);
                }
            };
            locked.entries.push(Entry { path: path.clone(), log_dir, trouble });
        }
        match locked.first_trouble_if_all() {
            Some(error) => Err(error),
            None => Ok(locked),
        }
    }

    /// The cluster that the directories name, if any was bound before.
    #[must_use]
    pub fn cluster_id(&self) -> Option<ClusterId> {
        let metas = self.entries.iter().filter_map(|entry| entry.log_dir.as_ref()?.meta());
        metas.map(|meta| meta.cluster_id.clone()).next()
    }

    /// Whether the broker has served since this restoration of ZooKeeper's data.
    #[must_use]
    pub fn knows_of(&self, restored: Option<&str>) -> bool {
        let log_dirs = self.entries.iter().filter_map(|entry| entry.log_dir.as_ref());
        log_dirs.filter(|log_dir| !log_dir.is_new()).all(|log_dir| knows_of(log_dir, restored))
    }

    /// What the logs know. What cannot be read is left out: opening it tells.
    #[must_use]
    pub fn log_epochs(&self) -> LogEpochs {
        let found = self.entries.iter().filter_map(|entry| holdings(&entry.path).ok());
        let mut all: LogEpochs = found
            .flat_map(|holdings| holdings.partitions)
            .filter_map(|held| Some((held.partition, held.topic_id, held.last_epoch?)))
            .collect();
        all.sort();
        all
    }

    /// Takes back what a start that came to nothing has left in new directories.
    pub fn abandon(self) {
        for log_dir in self.entries.into_iter().filter_map(|entry| entry.log_dir) {
            log_dir.abandon();
        }
    }

    /// Binds and begins every directory, consumes the clean markers, and makes the lost-tail mark durable if it is due. What
    /// was new is abandoned if the start comes to nothing.
    ///
    /// # Errors
    /// [`LogError::MetaMismatch`] of any directory, [`LogError::MetaDamaged`] if two have one id; the first I/O error if no
    /// directory is left.
    pub fn start(self, owner: &Owner) -> Result<Start, LogError> {
        self.start_under(owner, None)
    }

    /// As [`Locked::start`], with the boot id of the host given: for tests.
    ///
    /// # Errors
    /// As [`Locked::start`].
    pub fn start_under(mut self, owner: &Owner, boot_id: Option<&str>) -> Result<Start, LogError> {
        match self.begin(owner, boot_id) {
            Ok(Begun { kind, directory_id, journal_id, homes, record, host_crashed }) => {
                let directories = self.entries.into_iter().enumerate().map(|(index, entry)| {
                    let reason = entry.trouble.map(|trouble| trouble.to_string());
                    let led = LedFile::read(&entry.path, &there(&homes, index));
                    Arc::new(Directory::new(index, entry.path, entry.log_dir, reason, led))
                });
                let directories = directories.collect();
                let storage = Storage {
                    directories,
                    homes: Mutex::new(homes),
                    opening: Opening::default(),
                    threads: owner.recovery_threads.max(1),
                    disk: self.disk,
                    record,
                    restored: owner.restored.clone(),
                    host_crashed,
                };
                Ok(Start { storage, kind, directory_id, journal_id })
            }
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    fn begin(&mut self, owner: &Owner, boot_id: Option<&str>) -> Result<Begun, LogError> {
        // Before anything is changed in any of them.
        let (mut ids, mut named) = (Vec::new(), Vec::new());
        let all_new = self.entries.iter().all(|e| e.log_dir.as_ref().is_none_or(LogDir::is_new));
        self.each(|log_dir| {
            let id = log_dir.bind(owner.broker_id, &owner.cluster_id)?;
            if ids.contains(&id) {
                let file = log_dir.path().join("meta.properties");
                let reason = "its directory.id is that of another log directory of this broker";
                return Err(LogError::MetaDamaged { file, reason });
            }
            ids.push(id);
            named.push((log_dir.path().to_owned(), id));
            Ok(())
        })?;
        let Some(directory_id) = ids.first().copied() else {
            return Err(self.first_trouble_if_all().unwrap_or(LogError::Fenced));
        };
        let (mut clean, mut tail_lost) = (true, false);
        let mut found = Vec::new();
        let mut known = BTreeSet::new();
        self.each(|log_dir| {
            known.append(&mut read_ids(log_dir.path())?);
            let kind = match boot_id {
                Some(boot_id) => log_dir.begin_under(boot_id),
                None => log_dir.begin(),
            }?;
            clean &= kind.clean || log_dir.is_new();
            tail_lost |= kind.tail_lost;
            found.push((log_dir.path().to_owned(), log_dir.partitions()?));
            Ok(())
        })?;
        let host_crashed = tail_lost;
        let is_missing = |id: &&DirectoryId| !ids.contains(id);
        let offline = self.entries.iter().any(|entry| entry.trouble.is_some());
        let missing = known.iter().any(|id| is_missing(&id)) || offline;
        let mut is_news = false;
        self.each(|log_dir| {
            is_news |= !log_dir.is_new() && !knows_of(log_dir, owner.restored.as_deref());
            Ok(())
        })?;
        if owner.has_topics && (all_new || missing || is_news) && !tail_lost {
            tail_lost = true;
            let mut marked = Err(LogError::Fenced);
            self.each(|log_dir| {
                if marked.is_err() {
                    log_dir.mark_tail_lost()?;
                    marked = Ok(());
                }
                Ok(())
            })?;
            marked?;
        }
        // One that is only offline may come back: its id stays known.
        let kept = known.iter().filter(|id| offline && is_missing(id));
        let record: BTreeSet<DirectoryId> = ids.iter().chain(kept).copied().collect();
        if let Some(error) = self.first_trouble_if_all() {
            return Err(error);
        }
        let mut homes: BTreeMap<_, Vec<Home>> = BTreeMap::new();
        for (path, partitions) in found {
            let Some(directory) = self.entries.iter().position(|e| e.path == path) else {
                continue;
            };
            for (tp, topic_id) in partitions {
                homes.entry(tp).or_default().push(Home { directory, topic_id });
            }
        }
        let kind = StartKind { clean: clean && !offline, tail_lost };
        let usable = self.entries.iter().filter(|entry| entry.trouble.is_none());
        let mut journal_id = DirectoryId([0; 16]);
        for entry in usable {
            let id = named.iter().find(|(path, _)| *path == entry.path).map(|(_, id)| id.0);
            let bytes = journal_id.0.iter_mut().zip(id.unwrap_or_default());
            bytes.for_each(|(byte, other)| *byte ^= other);
        }
        Ok(Begun { kind, directory_id, journal_id, homes, record, host_crashed })
    }

    /// Does something with each usable directory; one that refuses with an I/O error is offline from then on.
    fn each(
        &mut self,
        mut work: impl FnMut(&mut LogDir) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        for entry in &mut self.entries {
            let Some(log_dir) = entry.usable() else { continue };
            match work(log_dir) {
                Ok(()) => {}
                Err(error @ LogError::Io { .. }) => entry.trouble = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Nothing is left: why.
    fn first_trouble_if_all(&mut self) -> Option<LogError> {
        if self.entries.iter().any(|entry| entry.trouble.is_none()) {
            return None;
        }
        self.entries.iter_mut().find_map(|entry| entry.trouble.take())
    }
}

impl Storage {
    /// Writes into every directory which there are: once the broker is registered (before that, a start that comes to
    /// nothing takes back what it made), and before the first partition is opened. One that refuses is offline from then on.
    /// The last restoration of ZooKeeper's data is noted likewise: the lost-tail mark that it asked for is durable by then.
    pub fn remember_directories(&self) {
        for directory in &self.directories {
            let Some(log_dir) = directory.usable() else { continue };
            let noted = write_ids(&self.disk, log_dir.path(), &self.record)
                .and_then(|()| write_restored(&self.disk, log_dir, self.restored.as_deref()));
            if let Err(error) = noted {
                directory.fail(error.to_string());
            }
        }
    }

    /// The start came to nothing before anything was opened: what was clean is clean again, what was new goes.
    pub fn abandon(self) {
        for directory in self.directories {
            let Some(log_dir) = Arc::into_inner(directory).and_then(Directory::into_log_dir) else {
                continue;
            };
            if !log_dir.is_new()
                && let Err(error) = log_dir.close(true)
            {
                tracing::warn!(directory = %log_dir.path().display(), %error, "the clean marker cannot be written; the next start recovers the logs");
            }
            log_dir.abandon();
        }
    }
}

/// The partitions that lie in this directory.
fn there(homes: &Homes, directory: usize) -> BTreeSet<NoteKey> {
    let keys = homes.iter().flat_map(|(tp, homes)| {
        let here = homes.iter().filter(|home| home.directory == directory);
        here.map(|home| NoteKey { topic_id: home.topic_id, partition: tp.partition })
    });
    keys.collect()
}

/// The ids that a directory knows; what is no id is skipped.
fn read_ids(directory: &Path) -> Result<BTreeSet<DirectoryId>, LogError> {
    let text = read_text(&directory.join(DIRECTORIES))?.unwrap_or_default();
    Ok(text.lines().filter_map(|line| DirectoryId::parse(line.trim())).collect())
}

fn write_ids(disk: &Disk, directory: &Path, ids: &BTreeSet<DirectoryId>) -> Result<(), LogError> {
    if read_ids(directory)? == *ids {
        return Ok(());
    }
    let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
    replace_durably(disk, &directory.join(DIRECTORIES), text.as_bytes())
}

fn knows_of(log_dir: &LogDir, restored: Option<&str>) -> bool {
    let noted = read_text(&log_dir.path().join(RESTORED)).ok().flatten();
    // A note of a restoration that ZooKeeper does not know of: it was taken back to a time before that.
    noted.as_deref().map(str::trim).filter(|noted| !noted.is_empty()) == restored
}

fn write_restored(disk: &Disk, log_dir: &LogDir, restored: Option<&str>) -> Result<(), LogError> {
    if knows_of(log_dir, restored) {
        return Ok(());
    }
    // Empty: ZooKeeper knows of none any more.
    let text = restored.map_or_else(String::new, |restored| format!("{restored}\n"));
    replace_durably(disk, &log_dir.path().join(RESTORED), text.as_bytes())
}
