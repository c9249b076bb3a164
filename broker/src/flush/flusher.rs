//! The flush threads of one data directory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use barnabas_log::{Disk, DiskFile, FlushPlan, LogDir, LogError, LogStartCheckpoint};
use barnabas_metrics::Histogram;
use barnabas_types::{Now, Offset};

use super::queue::{Queue, Starts, THREADS, Turn, Work};
use super::timer::Timer;
use crate::partition::{Aftermath, Flush, Hosted, Outward, Urgency};

/// Flushes the partitions of one data directory. Its threads end when it is dropped.
pub struct Flusher {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Queue,
    timer: Timer,
    disk: Disk,
    directory: std::path::PathBuf,
    /// Open since before the first log was: a syncfs reports the failed write-backs since its descriptor was opened, so one
    /// that was opened later would miss some. It may also report one that a sync of a single file has reported already;
    /// the partitions of that group are then fenced although their own bytes may be safe.
    anchor: DiskFile,
    log_starts: LogStartCheckpoint,
    outward: Weak<dyn Outward>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    partitions: AtomicU64,
    groups: AtomicU64,
    failed: AtomicU64,
    took: Histogram,
    sizes: Histogram,
}

/// What a directory's threads have done since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushCounts {
    /// Flushes of single partitions, those within groups included.
    pub partitions: u64,
    /// How many syncfs were done for groups of them.
    pub groups: u64,
    /// Flushes of partitions that failed.
    pub failed: u64,
}

impl Flusher {
    /// Starts the threads. To be called before the first log of the directory is opened.
    ///
    /// # Errors
    /// The directory cannot be opened, or the system gives no more threads.
    pub fn start(log_dir: &LogDir, outward: Weak<dyn Outward>) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            timer: Timer::default(),
            disk: log_dir.disk().clone(),
            directory: log_dir.path().to_owned(),
            anchor: log_dir.disk().open_to_read(log_dir.path())?,
            log_starts: log_dir.log_start_checkpoint(),
            outward,
            counts: Counts::default(),
        });
        // Made first: if a thread cannot be started, those that run are ended by its drop.
        let flusher = Arc::new(Self { shared: shared.clone() });
        for _ in 0..THREADS {
            let shared = shared.clone();
            thread::Builder::new().name("flush".to_owned()).spawn(move || shared.work())?;
        }
        thread::Builder::new().name("flush-timer".to_owned()).spawn(move || shared.watch())?;
        Ok(flusher)
    }

    /// Flushes the partition soon. It asks again when it has more.
    pub(crate) fn add(&self, hosted: &Arc<Hosted>, urgency: Urgency) {
        self.shared.queue.add(hosted, urgency);
    }

    /// Looks at the partition at that time ([`Hosted::flush_timer`]).
    pub(crate) fn look_at(&self, at: Now, hosted: &Arc<Hosted>) {
        self.shared.timer.add(at, hosted);
    }

    /// Makes durable that the partition's log begins at `to`, then tells it and lets go of the segments below.
    pub(crate) fn write_start(&self, hosted: &Arc<Hosted>, to: Offset) {
        self.shared.queue.add_start(hosted, to);
    }

    /// What goes on beyond its partitions; `None`: the broker has ended.
    pub(crate) fn outward(&self) -> Option<Arc<dyn Outward>> {
        self.shared.outward.upgrade()
    }

    /// What was done since the start.
    #[must_use]
    pub fn counts(&self) -> FlushCounts {
        let Counts { partitions, groups, failed, .. } = &self.shared.counts;
        FlushCounts {
            partitions: partitions.load(Ordering::Relaxed),
            groups: groups.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
        }
    }
}

impl Flusher {
    /// How long syncs took, in microseconds, and how many partitions each made durable.
    #[must_use]
    pub fn histograms(&self) -> (barnabas_metrics::Counts, barnabas_metrics::Counts) {
        (self.shared.counts.took.counts(), self.shared.counts.sizes.counts())
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.queue.stop();
        self.shared.timer.stop();
    }
}

impl Shared {
    fn work(&self) {
        while let Some((work, turn)) = self.queue.take() {
            self.guarded(|outward| match work {
                Work::One(hosted) => self.one(&hosted, turn, outward),
                Work::Group(group) => self.group(&group, turn, outward),
                Work::Starts(starts) => self.write_starts(starts, outward),
            });
        }
    }

    fn watch(&self) {
        let now = || self.outward.upgrade().map(|outward| outward.now());
        while let Some((at, hosted)) = self.timer.take(now) {
            self.guarded(|outward| {
                let mut after = Aftermath::default();
                hosted.flush_timer(outward.now(), at, &mut after);
                after.settle(&hosted, outward, &mut Flush::default());
            });
        }
    }

    /// One partition's broken invariant must not end the thread that serves the others.
    fn guarded(&self, work: impl FnOnce(&dyn Outward)) {
        let Some(outward) = self.outward.upgrade() else { return };
        if catch_unwind(AssertUnwindSafe(|| work(&*outward))).is_err() {
            tracing::error!(target: "state_change", directory = %self.directory.display(), "a flush was not finished; its partition acknowledges nothing in sync mode until the broker restarts");
        }
    }

    fn one(&self, hosted: &Arc<Hosted>, turn: Turn<'_>, outward: &dyn Outward) {
        let mut after = Aftermath::default();
        if let Some(plan) = hosted.begin_flush(outward.now(), &mut after) {
            let begun = Instant::now();
            let result = plan.run();
            self.synced(begun, 1);
            self.end(hosted, &plan, result, outward, &mut after);
        }
        drop(turn);
        after.settle(hosted, outward, &mut Flush::default());
    }

    fn group(&self, group: &[Arc<Hosted>], turn: Turn<'_>, outward: &dyn Outward) {
        let mut begun = Vec::with_capacity(group.len());
        for hosted in group {
            let mut after = Aftermath::default();
            let plan = hosted.begin_flush(outward.now(), &mut after);
            begun.push((hosted, plan, after));
        }
        // It covers names as well as data.
        let at = Instant::now();
        let synced = self.disk.sync_filesystem(&self.anchor);
        self.synced(at, begun.iter().filter(|(_, plan, _)| plan.is_some()).count());
        self.counts.groups.fetch_add(1, Ordering::Relaxed);
        for (hosted, plan, after) in &mut begun {
            if let Some(plan) = plan {
                let result = synced.as_ref().copied().map_err(|error| self.same(error));
                self.end(hosted, plan, result, outward, after);
            }
        }
        // The next group syncs while this one is answered.
        drop(turn);
        for (hosted, _, after) in begun {
            after.settle(hosted, outward, &mut Flush::default());
        }
    }

    fn synced(&self, begun: Instant, partitions: usize) {
        let Counts { took, sizes, .. } = &self.counts;
        took.observe(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        sizes.observe(partitions as u64);
    }

    /// One checkpoint for all that were ordered; those that come meanwhile are in the next one.
    fn write_starts(&self, starts: Starts, outward: &dyn Outward) {
        let written = self.log_starts.write();
        match &written {
            Err(error) if error.shortage().is_some() => {
                tracing::warn!(directory = %self.directory.display(), %error, "the log starts cannot be written; tried again");
                return self.queue.starts_done(starts);
            }
            _ => self.queue.starts_done(Starts::new()),
        }
        for (hosted, to) in starts.into_values() {
            let mut after = Aftermath::default();
            match &written {
                Ok(()) => hosted.log_start_durable(outward.now(), to, &mut after),
                Err(error) => {
                    hosted.log_start_failed(outward.now(), &self.same_log(error), &mut after);
                }
            }
            after.settle(&hosted, outward, &mut Flush::default());
            if written.is_ok() {
                self.remove_below_start(&hosted);
            }
        }
    }

    fn remove_below_start(&self, hosted: &Hosted) {
        let detached = hosted.detach_below_start();
        if detached.is_empty() {
            return;
        }
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let leader_epoch = hosted.leader_epoch();
        match detached.remove() {
            Ok(bytes) => {
                tracing::debug!(%topic, partition, %leader_epoch, bytes, "segments removed")
            }
            Err(error) => {
                tracing::warn!(%topic, partition, %leader_epoch, %error, "segments below the log start cannot be removed; the next opening tries again");
            }
        }
    }

    /// The error of a write for many partitions, for one of them.
    fn same_log(&self, error: &LogError) -> LogError {
        let source = match error {
            LogError::Io { source, .. } => same(source),
            other => io::Error::other(other.to_string()),
        };
        LogError::Io { what: "write the log starts of", path: self.directory.clone(), source }
    }

    /// The error of a group's sync, for one of its partitions.
    fn same(&self, error: &io::Error) -> LogError {
        let (path, source) = (self.directory.clone(), same(error));
        LogError::Io { what: "sync the file system of", path, source }
    }

    fn end(
        &self,
        hosted: &Hosted,
        plan: &FlushPlan,
        result: Result<(), LogError>,
        outward: &dyn Outward,
        after: &mut Aftermath,
    ) {
        let Counts { partitions, failed, .. } = &self.counts;
        partitions.fetch_add(1, Ordering::Relaxed);
        failed.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
        hosted.end_flush(outward.now(), plan, result, after);
    }
}

fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
