//! Flushing: what must be synced, done outside the log's lock; and writing again what an unclean stop left unflushed (R16).

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use barnabas_types::Offset;

use crate::checkpoint::epochs_path;
use crate::disk::{Disk, DiskFile, Folder};
use crate::error::{At as _, LogError};
use crate::log::Log;
use crate::segment::{Finder, path_of};

/// Bytes that are written again under one hold of the lock.
const REWRITE_STEP_BYTES: u64 = 1024 * 1024;

/// How far the rewriting of unflushed bytes has come (R16).
///
/// After an unclean stop an earlier sync may have failed and left pages that look clean but are not on disk; a sync proves
/// nothing for them. Writing the same bytes in place marks the pages dirty again. Nothing is truncated for it, so that a
/// second crash in between loses nothing that the first one left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rewrite {
    /// Base of the segment that is being rewritten.
    segment: i64,
    /// Next byte in it.
    position: u64,
    /// Segments with a base from here on were written by this process.
    until: i64,
}

/// What to do next to get the log flushed.
#[derive(Debug)]
pub enum FlushStep {
    /// Everything is flushed.
    Nothing,
    /// Some unflushed bytes of before an unclean stop were written again; there are more. Release the lock and ask again.
    Rewriting,
    /// Run this outside the lock, then report it to [`Log::flush_done`].
    Sync(FlushPlan),
}

/// What must be synced so that everything below [`FlushPlan::to`] is durable. At most one is out at a time for each log.
#[derive(Debug)]
#[must_use = "a plan that is not reported to flush_done blocks every later flush of its log"]
pub struct FlushPlan {
    files: Vec<Arc<DiskFile>>,
    /// The directory, if names changed in it.
    names: Option<DiskFile>,
    names_changed: u64,
    dir: Folder,
    to: Offset,
    /// Base of the segment that was active: those before it are wholly covered.
    active: i64,
    truncations: u64,
    /// Offsets of the producer snapshots among the files.
    snapshots: Vec<i64>,
}

impl FlushPlan {
    /// Exclusive end of what is durable once the plan has run.
    #[must_use]
    pub fn to(&self) -> Offset {
        self.to
    }

    /// Files whose data must be synced: for whoever syncs those of several logs together.
    #[must_use]
    pub fn files(&self) -> &[Arc<DiskFile>] {
        &self.files
    }

    /// What they lie on: whoever syncs in another way does it through this.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.dir.disk
    }

    /// Syncs the files one after the other (fdatasync), and the directory if names changed in it.
    ///
    /// # Errors
    /// [`LogError::Io`]. Never run the plan again: the kernel reports a failed write-back once and then forgets it (R38).
    pub fn run(&self) -> Result<(), LogError> {
        for file in &self.files {
            file.sync_data().at("sync a file of", &self.dir)?;
        }
        self.run_names()
    }

    /// Only the directory's part of [`FlushPlan::run`], for whoever synced [`FlushPlan::files`] in another way.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn run_names(&self) -> Result<(), LogError> {
        let synced = self.names.as_ref().map_or(Ok(()), DiskFile::sync_names);
        synced.at("sync directory", &self.dir)
    }
}

impl Log {
    /// Whether anything is to be flushed.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.flushed < self.log_end || self.names_synced < self.names_changed
    }

    /// The next step towards a flushed log. Bounded work: collects handles, or writes at most 1 MiB again (R16).
    ///
    /// # Errors
    /// [`LogError::Fenced`]; [`LogError::FlushInFlight`]; [`LogError::Full`], [`LogError::NoDescriptor`]: to be tried again;
    /// [`LogError::Io`], then the log is fenced.
    pub fn flush_plan(&mut self) -> Result<FlushStep, LogError> {
        self.ready()?;
        if self.flush_in_flight {
            return Err(LogError::FlushInFlight);
        }
        if self.rewrite.is_some() {
            self.rewrite_step().map_err(|error| self.not_flushed(error))?;
            if self.rewrite.is_some() {
                return Ok(FlushStep::Rewriting);
            }
        }
        if !self.needs_flush() {
            return Ok(FlushStep::Nothing);
        }
        match self.settle_epochs() {
            // What is stale lies above the LEO: this flush needs nothing of it.
            Err(error) if error.shortage().is_some() => {}
            other => other?,
        }
        let plan = self.collect().map_err(|error| self.not_flushed(error))?;
        self.flush_in_flight = true;
        Ok(FlushStep::Sync(plan))
    }

    /// Nothing was synced yet, so a shortage leaves everything as it was.
    fn not_flushed(&mut self, error: LogError) -> LogError {
        self.fenced |= error.shortage().is_none();
        error.or_shortage()
    }

    /// Opens whatever is to be synced: a sync that fails is more than one that cannot begin (R38).
    fn collect(&mut self) -> Result<FlushPlan, LogError> {
        self.snapshot_if_due();
        let mut files = Vec::new();
        let open = |path: &Path| self.dir.disk.open_to_read(path).at("open", path);
        let names_changed = self.names_synced < self.names_changed;
        let names = names_changed.then(|| open(&self.dir)).transpose()?;
        for segment in self.segments.iter().filter(|s| s.end > self.flushed) {
            files.push(Arc::clone(segment.kept_file(&self.dir)?));
        }
        for segment in self.segments.iter().filter(|s| s.indexes_unsynced) {
            for kind in ["index", "timeindex"] {
                files.push(Arc::new(open(&path_of(&self.dir, segment.base, kind))?));
            }
        }
        files.extend(self.unsynced_snapshots()?.map(Arc::new));
        let epochs = epochs_path(&self.dir);
        if names_changed && epochs.exists() {
            files.push(Arc::new(open(&epochs)?));
        }
        Ok(FlushPlan {
            files,
            names,
            names_changed: self.names_changed,
            dir: self.dir.clone(),
            to: self.log_end(),
            active: self.active().base,
            truncations: self.truncations,
            snapshots: self.snapshots.unsynced().to_vec(),
        })
    }

    /// Takes the result of a plan. Success moves the flushed offset and the recovery point (not if the log was truncated
    /// since); an error fences the log, and nothing above the flushed offset ever counts as flushed (R38): what that costs at
    /// most is [`Log::unflushed`], and opening the log again ([`crate::LogDir::open`], this one dropped) cuts it off.
    ///
    /// Returns the flushed offset, exclusive.
    ///
    /// # Errors
    /// The plan's own error; [`LogError::Fenced`] if the log was fenced meanwhile.
    pub fn flush_done(
        &mut self,
        plan: &FlushPlan,
        result: Result<(), LogError>,
    ) -> Result<Offset, LogError> {
        self.flush_in_flight = false;
        if let Err(error) = result {
            if !self.retired {
                self.shared.sync_failed(&self.topic_partition, self.flushed());
            }
            self.fenced = true;
            return Err(error);
        }
        self.ready()?;
        if plan.truncations != self.truncations {
            return Ok(self.flushed());
        }
        self.names_synced = self.names_synced.max(plan.names_changed);
        self.flushed = self.flushed.max(plan.to.0);
        for segment in self.segments.iter_mut().take_while(|s| s.base < plan.active) {
            segment.release();
            segment.indexes_unsynced = false;
        }
        self.snapshots.synced(&plan.snapshots);
        self.shared.set_recovery_point(&self.topic_partition, Offset(self.flushed));
        Ok(self.flushed())
    }

    /// Flushes everything, here and now. Not for a thread that serves requests.
    ///
    /// # Errors
    /// As [`Log::flush_plan`] and [`Log::flush_done`].
    pub fn flush(&mut self) -> Result<Offset, LogError> {
        loop {
            match self.flush_plan()? {
                FlushStep::Nothing => return Ok(self.flushed()),
                FlushStep::Rewriting => {}
                FlushStep::Sync(plan) => {
                    let result = plan.run();
                    self.flush_done(&plan, result)?;
                }
            }
        }
    }

    /// At open: where the bytes begin that must be written again.
    pub(crate) fn plan_rewrite(&mut self) -> Result<(), LogError> {
        self.rewrite = None;
        if self.flushed >= self.log_end {
            return Ok(());
        }
        let after = self.segments.partition_point(|s| s.base <= self.flushed);
        let segment = &self.segments[after.saturating_sub(1)];
        let file = segment.any_file(&self.dir)?;
        let tail = (after == self.segments.len()).then_some(&self.tail);
        let finder = Finder::new(&self.dir, segment.extent(), tail, &file);
        let position = finder.batch_of(self.flushed)?.map_or(segment.size, |(at, _)| at);
        self.rewrite = Some(Rewrite { segment: segment.base, position, until: self.log_end });
        Ok(())
    }

    fn rewrite_step(&mut self) -> Result<(), LogError> {
        let Some(at) = self.rewrite else { return Ok(()) };
        let next = self.segments.iter().find(|s| s.base >= at.segment && s.base < at.until);
        let Some(segment) = next else {
            self.rewrite = None;
            return Ok(());
        };
        // The segment itself may be gone through a truncation: then the next one from its beginning.
        let from = if segment.base == at.segment { at.position } else { 0 };
        let until = segment.size.min(from + REWRITE_STEP_BYTES);
        if from < until {
            let file = segment.kept_file(&self.dir)?;
            let path = path_of(&self.dir, segment.base, "log");
            let mut bytes = vec![0; usize::try_from(until - from).unwrap_or(0)];
            file.read_exact_at(&mut bytes, from).at("read", &path)?;
            file.write_all_at(&bytes, from).at("write", &path)?;
        }
        self.rewrite = Some(if until < segment.size {
            Rewrite { segment: segment.base, position: until, ..at }
        } else {
            Rewrite { segment: segment.base + 1, position: 0, ..at }
        });
        Ok(())
    }
}
