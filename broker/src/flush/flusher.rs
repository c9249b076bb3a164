//! The flush threads of one data directory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use barnabas_log::{Disk, DiskFile, FlushPlan, LogDir, LogError};
use barnabas_types::Now;

use super::queue::{Queue, THREADS, Work};
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
    outward: Weak<dyn Outward>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    partitions: AtomicU64,
    groups: AtomicU64,
    failed: AtomicU64,
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

    /// What was done since the start.
    #[must_use]
    pub fn counts(&self) -> FlushCounts {
        let Counts { partitions, groups, failed } = &self.shared.counts;
        FlushCounts {
            partitions: partitions.load(Ordering::Relaxed),
            groups: groups.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
        }
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
        while let Some(work) = self.queue.take() {
            self.guarded(|outward| match work {
                Work::One(hosted, urgency) => self.one(&hosted, urgency, outward),
                Work::Group(group) => self.group(&group, outward),
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
            tracing::error!(target: "state_change", directory = %self.directory.display(), "a flush was not finished; its partition takes no acknowledged records until the broker restarts");
        }
    }

    fn one(&self, hosted: &Arc<Hosted>, urgency: Urgency, outward: &dyn Outward) {
        let mut after = Aftermath::default();
        if let Some(plan) = hosted.begin_flush(outward.now(), &mut after) {
            let result = plan.run();
            self.end(hosted, &plan, result, outward, &mut after);
        }
        if urgency == Urgency::Background {
            self.queue.background_done();
        }
        after.settle(hosted, outward, &mut Flush::default());
    }

    fn group(&self, group: &[Arc<Hosted>], outward: &dyn Outward) {
        let mut begun = Vec::with_capacity(group.len());
        for hosted in group {
            let mut after = Aftermath::default();
            let plan = hosted.begin_flush(outward.now(), &mut after);
            begun.push((hosted, plan, after));
        }
        // It covers names as well as data.
        let synced = self.disk.sync_filesystem(&self.anchor);
        self.counts.groups.fetch_add(1, Ordering::Relaxed);
        for (hosted, plan, after) in &mut begun {
            if let Some(plan) = plan {
                let result = synced.as_ref().copied().map_err(|error| self.same(error));
                self.end(hosted, plan, result, outward, after);
            }
        }
        self.queue.group_done();
        for (hosted, _, after) in begun {
            after.settle(hosted, outward, &mut Flush::default());
        }
    }

    /// The error of a group's sync, for one of its partitions.
    fn same(&self, error: &io::Error) -> LogError {
        let source =
            error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        LogError::Io { what: "sync the file system of", path: self.directory.clone(), source }
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
