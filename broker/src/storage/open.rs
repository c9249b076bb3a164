//! Opening logs: where a partition lies or is to lie, several logs at a time, how far it has come, stopped on request.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use barnabas_log::{Log, LogConfig, LogError};
use barnabas_types::{TopicId, TopicPartition};

use super::{Directory, Home, Room, Storage};

/// A log that is to be opened, or made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which partition.
    pub partition: TopicPartition,
    /// Of which life of its topic.
    pub topic_id: TopicId,
    /// Its settings.
    pub config: LogConfig,
    /// The topic is younger than this process: no directory that is offline can hold the partition.
    pub is_new: bool,
}

/// Why a log was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log or its directory refuses.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The directory that holds the partition is offline.
    #[error("its log directory {}, is offline: {reason}", directory.display())]
    Offline {
        /// The directory.
        directory: PathBuf,
        /// What took it out of use.
        reason: String,
    },
    /// Not found, and a directory that is offline may hold it.
    #[error(
        "it is in no log directory that is online, but {} is offline and may hold it; bring that back and restart \
         the broker, or take it out of log.dirs and restart (the replica then begins empty)",
        .0.display()
    )]
    MayBeOffline(PathBuf),
    /// Two directories hold it.
    #[error(
        "both {} and {} hold this partition; stop the broker, move one of them away (keep the one whose files are newer), \
         and start it again",
        .0.display(), .1.display()
    )]
    Twice(PathBuf, PathBuf),
    /// No directory can take a new partition.
    #[error("no log directory is online")]
    NoDirectory,
    /// The broker is stopping.
    #[error("the broker is stopping")]
    Stopping,
}

/// How far the opening under way has come: "n of m".
#[derive(Debug, Default)]
pub struct Opening {
    wanted: AtomicUsize,
    done: AtomicUsize,
    stop: AtomicBool,
    settled: AtomicBool,
}

impl Opening {
    /// Logs that are to be opened and those that are, since the last time that nothing was to be; `None` while nothing is.
    #[must_use]
    pub fn progress(&self) -> Option<(usize, usize)> {
        let (wanted, done) =
            (self.wanted.load(Ordering::Acquire), self.done.load(Ordering::Acquire));
        (wanted > 0).then_some((done.min(wanted), wanted))
    }

    /// The controller's first state was applied: what it names is open, or cannot be opened.
    pub fn settled(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// Whether [`Opening::settled`] was called.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// No log is opened from now on.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether [`Opening::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// How far the opening of what was on disk at the start has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Partitions that are open, or could not be opened.
    pub opened: u64,
    /// All that were there.
    pub of: u64,
    /// Bytes that are scanned.
    pub scanned_bytes: u64,
    /// Those of the logs that were begun; it grows with each that has to be scanned.
    pub bytes_to_scan: u64,
}

/// An opened log and where it lies.
pub type Opened = (Log, Arc<Directory>);

impl Storage {
    /// How far the opening of what was on disk at the start has come.
    #[must_use]
    pub fn recovered(&self) -> Recovered {
        let mut sum = Recovered::default();
        for log_dir in self.directories.iter().filter_map(|directory| directory.log_dir()) {
            let progress = log_dir.progress();
            sum.opened += progress.partitions_done();
            sum.of += progress.partitions_total();
            sum.scanned_bytes += progress.bytes_done();
            sum.bytes_to_scan += progress.bytes_total();
        }
        sum
    }

    /// Opens logs, each directory's on threads of its own; returns the results in the order of `wanted`. Blocks until all are
    /// done or [`Opening::stop`] is called.
    pub fn open_all(&self, wanted: &[Wanted]) -> Vec<Result<Opened, OpenError>> {
        let mut counts = self.counts();
        let places: Vec<_> = wanted.iter().map(|wanted| self.place(wanted, &mut counts)).collect();
        let mut results: Vec<Option<Result<Opened, OpenError>>> = Vec::new();
        let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.directories.len()];
        for (index, place) in places.into_iter().enumerate() {
            results.push(match place {
                Ok(directory) => {
                    queues[directory].push_back(index);
                    None
                }
                Err(error) => Some(Err(error)),
            });
        }
        self.opening.done.store(0, Ordering::Release);
        self.opening.wanted.store(queues.iter().map(VecDeque::len).sum(), Ordering::Release);
        let results = Mutex::new(results);
        let each = |directory: &Arc<Directory>, index: usize| {
            let result = self.open_one(directory, &wanted[index]);
            self.opening.done.fetch_add(1, Ordering::AcqRel);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
        };
        self.on_threads(queues, &each);
        self.opening.wanted.store(0, Ordering::Release);
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| result.unwrap_or(Err(OpenError::Stopping))).collect()
    }

    /// Works on what is queued for each directory, with `num.recovery.threads.per.data.dir` threads for each.
    pub fn on_threads<T: Send>(
        &self,
        queues: Vec<VecDeque<T>>,
        work: &(impl Fn(&Arc<Directory>, T) + Sync),
    ) {
        let busy: Vec<_> = self
            .directories
            .iter()
            .zip(queues)
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(directory, queue)| (directory, queue.len(), Mutex::new(queue)))
            .collect();
        let drain = |directory: &Arc<Directory>, queue: &Mutex<VecDeque<T>>| {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(next) = next else { return };
                work(directory, next);
            }
        };
        if let [(directory, 1, queue)] = busy.as_slice() {
            return drain(directory, queue);
        }
        thread::scope(|scope| {
            for (directory, len, queue) in &busy {
                for _ in 0..self.threads.min(*len) {
                    scope.spawn(|| drain(directory, queue));
                }
            }
        });
    }

    /// The directory in which a partition lies, or is to lie: that with the fewest partitions, as in Kafka, among those with
    /// room. Directories of its name with another topic id are renamed away (R28).
    fn place(&self, wanted: &Wanted, counts: &mut [usize]) -> Result<usize, OpenError> {
        let mut homes = self.homes();
        let known = homes.get(&wanted.partition).cloned().unwrap_or_default();
        let (right, stray): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|home| home.topic_id == wanted.topic_id);
        for home in &stray {
            if let Some(log_dir) = self.directories[home.directory].usable() {
                log_dir.set_aside(std::slice::from_ref(&wanted.partition))?;
            }
        }
        let place = match right.as_slice() {
            [] => {
                let place = self.place_for_new(wanted, counts)?;
                counts[place] += 1;
                place
            }
            [home] => home.directory,
            [one, other, ..] => {
                let path = |home: &Home| self.directories[home.directory].path().to_owned();
                return Err(OpenError::Twice(path(one), path(other)));
            }
        };
        let directory = &self.directories[place];
        if let Some(reason) = directory.offline_reason() {
            let (directory, reason) = (directory.path().to_owned(), reason.to_owned());
            return Err(OpenError::Offline { directory, reason });
        }
        let home = Home { directory: place, topic_id: wanted.topic_id };
        homes.insert(wanted.partition.clone(), vec![home]);
        Ok(place)
    }

    /// Partitions in each directory.
    fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.directories.len()];
        for home in self.homes().values().flatten() {
            counts[home.directory] += 1;
        }
        counts
    }

    fn place_for_new(&self, wanted: &Wanted, counts: &[usize]) -> Result<usize, OpenError> {
        // One that failed while the broker ran has told what it holds.
        let unread = self.directories.iter().find(|directory| directory.was_never_read());
        if let Some(directory) = unread.filter(|_| !wanted.is_new) {
            return Err(OpenError::MayBeOffline(directory.path().to_owned()));
        }
        let usable = self.directories.iter().filter(|directory| directory.usable().is_some());
        usable
            .min_by_key(|directory| {
                (directory.room() == Room::Exhausted, counts[directory.index()])
            })
            .map(|directory| directory.index())
            .ok_or(OpenError::NoDirectory)
    }

    fn open_one(&self, directory: &Arc<Directory>, wanted: &Wanted) -> Result<Opened, OpenError> {
        if self.opening.is_stopped() {
            return Err(OpenError::Stopping);
        }
        let Some(log_dir) = directory.usable() else { return Err(OpenError::NoDirectory) };
        match log_dir.open(&wanted.partition, wanted.topic_id, wanted.config) {
            Ok(log) => Ok((log, directory.clone())),
            Err(error) => {
                if !log_dir.path().join(wanted.partition.to_string()).exists() {
                    // It was to be made there and was not: the next attempt may choose another place.
                    self.homes().remove(&wanted.partition);
                }
                Err(error.into())
            }
        }
    }
}
