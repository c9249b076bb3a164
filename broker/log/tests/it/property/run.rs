//! Performs the steps on a log, and keeps the list of batches that it must hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_log::testing::{BatchBuilder, Failing, Forgetting, Kind, TempDir};
use barnabas_log::{Log, LogDir, LogError, LossCause, Unhurried, compact, stamp};
use barnabas_types::{LeaderEpoch, Offset};

use super::{CONFIG, Place, Stage, Step};
use crate::keyed::{Pair, all_records};
use crate::world::{ID, batches, tp};

#[derive(Clone, PartialEq, Eq, Debug)]
struct Batch {
    base: i64,
    end: i64,
    epoch: i32,
    bytes: Vec<u8>,
}

/// What the log must hold.
#[derive(Clone, Default)]
struct Model {
    start: i64,
    /// The log start that a crash leaves at least.
    durable_start: i64,
    /// All since the last beginning, also those below the start.
    batches: Vec<Batch>,
    end: i64,
    /// What was ever claimed to be flushed, truncations aside.
    flushed: i64,
    epoch: i32,
}

impl Model {
    fn from(&self, start: i64) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |b| b.end > start)
    }

    fn keep_below(&mut self, end: i64) {
        self.batches.retain(|b| b.end <= end);
        self.end = self.batches.last().map_or(self.start, |b| b.end).max(self.start);
        self.flushed = self.flushed.min(self.end);
    }

    fn begin_at(&mut self, start: i64) {
        *self = Self {
            start,
            durable_start: start,
            end: start,
            flushed: start,
            batches: Vec::new(),
            epoch: self.epoch,
        };
    }
}

/// What a loss of power may leave.
struct MayBe {
    /// The log start, least and greatest.
    starts: (i64, i64),
    /// Or a log that was begun anew here.
    empty_at: Option<i64>,
    batches: Vec<Batch>,
    /// What must be there.
    flushed: i64,
    /// Segments may have been compacted.
    compacted: bool,
}

fn split(bytes: &[u8]) -> Vec<Batch> {
    let mut rest = bytes;
    let mut found = Vec::new();
    for header in batches(bytes) {
        let (batch, after) = rest.split_at(header.size());
        rest = after;
        found.push(Batch {
            base: header.base_offset,
            end: header.next_offset(),
            epoch: header.partition_leader_epoch,
            bytes: batch.to_vec(),
        });
    }
    found
}

fn records(batches: &[Batch], from: i64, to: i64) -> BTreeMap<i64, Pair> {
    let bytes: Vec<u8> = batches.iter().flat_map(|b| b.bytes.clone()).collect();
    let mut all = all_records(&bytes).split_off(&from);
    all.split_off(&to);
    all
}

pub(super) struct Run {
    temp: TempDir,
    forgetting: Arc<Forgetting>,
    failing: Arc<Failing>,
    open: Option<(LogDir, Log)>,
    model: Model,
}

impl Run {
    pub(super) fn new(lies: bool) -> Self {
        let temp = TempDir::in_memory("property");
        let forgetting = Forgetting::new(temp.path());
        if lies {
            forgetting.lie();
        }
        let failing = Failing::before(forgetting.clone());
        let model = Model { epoch: 1, ..Model::default() };
        let mut run = Self { temp, forgetting, failing, open: None, model };
        run.start();
        run
    }

    fn start(&mut self) {
        let dir = LogDir::lock_on(self.failing.disk(), self.temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let marks = [dir.high_watermark_of(&tp("t")), dir.recovery_point_of(&tp("t"))];
        let reached = marks.into_iter().flatten().max().unwrap_or_default();
        let log = dir.open(&tp("t"), ID, CONFIG).unwrap();
        let lost = log.log_end() < reached;
        assert_eq!(log.recovery().tail_lost, lost, "{reached} {:?}", log.recovery());
        assert!(!lost || dir.is_tail_lost());
        self.open = Some((dir, log));
    }

    fn log(&self) -> &Log {
        &self.open.as_ref().unwrap().1
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.open.as_mut().unwrap().1
    }

    fn dir(&self) -> &LogDir {
        &self.open.as_ref().unwrap().0
    }

    /// The offset at a place.
    fn at(&self, place: Place) -> i64 {
        let (start, end) = (self.model.start, self.model.end);
        start + (end - start) * i64::from(place) / 255
    }

    /// Batches of records with these sizes, as they are appended next. Few keys, so that compaction finds something.
    fn build(&self, sizes: &[Vec<u8>]) -> Vec<u8> {
        let batch = |sizes: &Vec<u8>| {
            let record = |builder: BatchBuilder, size: &u8| {
                builder.keyed(&[size % 7], Some(&vec![*size; usize::from(*size)]))
            };
            sizes.iter().fold(BatchBuilder::new().timestamp(1000), record).build()
        };
        let mut all: Vec<u8> = sizes.iter().flat_map(batch).collect();
        stamp(&mut all, Offset(self.model.end), LeaderEpoch(self.model.epoch)).unwrap();
        all
    }

    fn try_append(&mut self, sizes: &[Vec<u8>], follows: bool) -> Result<(), LogError> {
        let mut records = self.build(sizes);
        let (end, epoch) = (Offset(self.model.end), LeaderEpoch(self.model.epoch));
        let appended = if follows {
            self.log_mut().append_as_follower(&records)
        } else {
            self.log_mut().append(&mut records, end, epoch)
        }?;
        let added = split(&records);
        self.model.end = added.last().unwrap().end;
        self.model.batches.extend(added);
        assert_eq!(appended.log_end, Offset(self.model.end));
        Ok(())
    }

    fn append_to_full_disk(&mut self, sizes: &[Vec<u8>], follows: bool, room: u16) {
        self.failing.room(Some(usize::from(room)));
        let result = self.try_append(sizes, follows);
        self.failing.room(None);
        if let Err(error) = result {
            assert!(matches!(error, LogError::Full(_)), "{error}");
            assert!(!self.log().is_fenced(), "a full disk fences nothing");
        }
    }

    fn append_to_broken_disk(&mut self, sizes: &[Vec<u8>], after_bytes: u16) {
        self.failing.tear(Kind::Write, ".log", 0, usize::from(after_bytes));
        let error = self.try_append(sizes, false).unwrap_err();
        self.failing.relent();
        assert!(matches!(error, LogError::Io { .. }), "{error}");
        assert!(self.log().is_fenced());
        self.reopen();
        self.model.epoch += 1;
    }

    /// The log is dropped and opened again by the same process.
    fn reopen(&mut self) {
        let (dir, log) = self.open.take().unwrap();
        drop(log);
        let log = dir.open(&tp("t"), ID, CONFIG).unwrap();
        self.open = Some((dir, log));
    }

    fn failed_flush(&mut self, skip: u8) {
        self.failing.fail(Kind::SyncData, "", usize::from(skip));
        let result = self.log_mut().flush();
        self.failing.relent();
        // What lies below the log start is deleted, flushed or not.
        let flushed = self.log().flushed().max(self.log().log_start());
        let end = self.log().log_end();
        match result {
            Ok(to) => self.model.flushed = to.0,
            Err(_) => {
                let loss = self.log().unflushed(LossCause::FailedSync);
                let range = loss.map(|l| (l.from, l.to));
                assert_eq!(range, (flushed < end).then_some((flushed, Some(end))));
                self.reopen();
                self.model.keep_below(flushed.0);
                assert_eq!(self.log().log_end(), Offset(self.model.end));
                self.model.epoch += 1;
            }
        }
    }

    fn delete(&mut self, to: i64, stage: Stage) -> Result<(), LogError> {
        let moves = to > self.model.start;
        assert_eq!(self.log_mut().advance_log_start(Offset(to)), moves);
        self.model.start = to;
        if stage >= Stage::Durable {
            self.dir().write_log_starts()?;
            self.model.durable_start = to;
        }
        if stage >= Stage::Detached {
            let detached = self.log_mut().detach_below_start();
            if stage >= Stage::Removed {
                let bytes = detached.bytes();
                assert_eq!(detached.remove()?, bytes);
            }
        }
        Ok(())
    }

    fn retain(&mut self) -> Result<(), LogError> {
        let Some(plan) = self.log().retention_plan() else { return Ok(()) };
        let Some(point) = plan.point(0, self.log().flushed())? else { return Ok(()) };
        let size = self.log().size_bytes();
        let Some(to) = self.log_mut().settle_retention(&plan, point)? else { return Ok(()) };
        self.delete(to.0, Stage::Removed)?;
        assert!(self.log().size_bytes() < size);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LogError> {
        // What lies below the log start may be compacted or not: a crash must not bring it back here.
        self.dir().write_log_starts()?;
        self.model.durable_start = self.model.start;
        let log = self.log_mut();
        let committed = log.flushed();
        let Some(plan) = log.compaction_plan(committed) else { return Ok(()) };
        let Some(round) = plan.due(2000)? else { return Ok(()) };
        compact(round, &mut |work| work(log), 1 << 16, &mut Unhurried)?;
        let found = self.content();
        assert_eq!(self.log().log_end(), Offset(self.model.end), "no offset is used again");
        self.assert_compacted(&self.model.batches, &found, self.model.end);
        let untouched = |batches: &[Batch]| -> Vec<Batch> {
            batches.iter().filter(|b| b.base >= committed.0).cloned().collect()
        };
        assert_eq!(untouched(&found), untouched(&self.model.batches));
        self.model.batches = found;
        Ok(())
    }

    /// Of what lies below `end`, `after` has the last record of each key, and none that was not there before.
    fn assert_compacted(&self, before: &[Batch], after: &[Batch], end: i64) {
        let start = self.log().log_start().0;
        let (before, after) = (records(before, start, end), records(after, start, end));
        assert!(after.iter().all(|(offset, pair)| before.get(offset) == Some(pair)));
        let mut last: BTreeMap<&[u8], i64> = BTreeMap::new();
        for (offset, (key, _)) in &before {
            last.insert(key, *offset);
        }
        assert!(last.values().all(|offset| after.contains_key(offset)), "of each key the last");
    }

    fn read(&self, from: Place, to: Place, max_bytes: u16) {
        let (from, to) = (self.at(from), self.at(to));
        let (from, to) = (from.min(to), from.max(to));
        let range = self.log().read(Offset(from), Offset(to), usize::from(max_bytes)).unwrap();
        let mut wanted = self.model.from(from).peekable();
        let Some(first) = wanted.peek().filter(|b| b.end <= to) else {
            assert!(range.is_none());
            return;
        };
        let least = first.bytes.len();
        let range = range.unwrap();
        let mut bytes = Vec::new();
        range.read_into(&mut bytes).unwrap();
        let rest: Vec<u8> = wanted.flat_map(|b| &b.bytes).copied().take(bytes.len()).collect();
        assert!(bytes.len() >= least && bytes == rest);
        assert!(bytes.len() == least || bytes.len() <= usize::from(max_bytes));
    }

    fn stop(&mut self, clean: bool) -> Result<(), LogError> {
        let Some((dir, mut log)) = self.open.take() else { return Ok(()) };
        if clean {
            log.close()?;
            assert!(dir.close(true)?);
            self.model.flushed = self.model.end;
            self.model.durable_start = self.model.start;
        }
        Ok(())
    }

    fn restart(&mut self, clean: bool) -> Result<(), LogError> {
        self.stop(clean)?;
        self.start();
        assert_eq!(self.log().recovery().losses, [], "a crash of the process loses nothing");
        assert!(!clean || self.log().recovery().scanned_bytes == 0);
        // The log start is what was durable, or what was meant last.
        let start = self.log().log_start().0;
        let (least, most) = (self.model.durable_start, self.model.start);
        assert!((least..=most).contains(&start), "log start {start} is not in {least}..={most}");
        (self.model.start, self.model.durable_start) = (start, start);
        self.model.epoch += 1;
        Ok(())
    }

    fn power_cut(&mut self, seed: u64, may_be: &MayBe) {
        self.open = None;
        self.forgetting.power_cut(seed);
        self.start();
        let (start, end) = (self.log().log_start().0, self.log().log_end().0);
        let found = self.content();
        let begun_anew = may_be.empty_at == Some(start) && start == end;
        if !begun_anew {
            self.judge(may_be, &found);
        }
        self.model.begin_at(start);
        (self.model.batches, self.model.end) = (found, end);
        self.model.flushed = self.log().flushed().0;
        self.model.epoch += 1;
    }

    fn judge(&self, may_be: &MayBe, found: &[Batch]) {
        let (start, end) = (self.log().log_start().0, self.log().log_end().0);
        let starts = may_be.starts;
        let in_range = (starts.0..=starts.1).contains(&start);
        assert!(in_range || may_be.empty_at == Some(start), "log start {start}: {starts:?}");
        let all: Vec<Batch> = may_be.batches.iter().filter(|b| b.end > start).cloned().collect();
        let least = may_be.flushed.max(start);
        assert!(end >= least.min(all.last().map_or(start, |b| b.end)), "flushed {least}, {end}");
        if may_be.compacted {
            return self.assert_compacted(&all, found, end);
        }
        let prefix = found.len() <= all.len() && found.iter().zip(&all).all(|(a, b)| a == b);
        assert!(prefix, "no prefix of what was appended: {found:?} of {all:?}");
        let must = all.iter().filter(|b| b.end <= may_be.flushed);
        for (number, batch) in must.enumerate() {
            assert_eq!(found.get(number), Some(batch), "what was flushed is there");
        }
    }

    /// What a loss of power now may leave.
    fn may_be(&self) -> MayBe {
        let Model { start, durable_start, batches, flushed, .. } = self.model.clone();
        let starts = (durable_start, start);
        MayBe { starts, empty_at: None, batches, flushed, compacted: false }
    }

    fn power_cut_during(&mut self, step: Step, after_changes: u8, seed: u64) {
        let mut may_be = self.may_be();
        match &step {
            Step::Append { batches: sizes, new_epoch, .. } => {
                self.model.epoch += i32::from(*new_epoch);
                may_be.batches.extend(split(&self.build(sizes)));
                self.model.epoch -= i32::from(*new_epoch);
            }
            Step::Truncate(place) => may_be.flushed = may_be.flushed.min(self.kept_end(*place)),
            Step::Reset { to, beyond } => {
                may_be.empty_at = Some(self.reset_point(*to, *beyond));
                may_be.flushed = 0;
            }
            Step::Delete { to, .. } => may_be.starts.1 = may_be.starts.1.max(self.at(*to)),
            Step::Retain => may_be.starts.1 = self.model.end,
            Step::Compact => may_be.compacted = true,
            Step::Flush | Step::AssignEpoch | Step::WriteRecoveryPoints => {}
            Step::WriteHighWatermark | Step::Close => {}
            // Those bring trouble of their own.
            _ => return,
        }
        self.failing.stop_after(usize::from(after_changes));
        let done = match step {
            Step::Close => self.stop(true),
            step => self.apply_one(step),
        };
        self.failing.relent();
        if done.is_ok() {
            may_be = self.may_be();
        }
        self.power_cut(seed, &may_be);
    }

    /// Where the log ends after a truncation.
    fn kept_end(&self, place: Place) -> i64 {
        let mut model = self.model.clone();
        model.keep_below(self.at(place));
        model.end
    }

    fn reset_point(&self, to: Place, beyond: bool) -> i64 {
        if beyond { self.model.end + i64::from(to) } else { self.at(to) }
    }

    /// All batches from the log start on.
    fn content(&self) -> Vec<Batch> {
        let mut found = Vec::new();
        let (mut next, end) = (self.log().log_start(), self.log().log_end());
        while let Some(range) = self.log().read(next, end, 700).unwrap() {
            let mut bytes = Vec::new();
            range.read_into(&mut bytes).unwrap();
            found.extend(split(&bytes));
            next = range.end;
        }
        assert_eq!(next, end);
        found
    }

    pub(super) fn apply(&mut self, step: Step) {
        match step {
            Step::PowerCut { seed } => self.power_cut(seed, &self.may_be()),
            Step::PowerCutDuring { step, after_changes, seed } => {
                self.power_cut_during(*step, after_changes, seed);
            }
            step => self.apply_one(step).unwrap(),
        }
        self.check();
    }

    fn apply_one(&mut self, step: Step) -> Result<(), LogError> {
        match step {
            Step::Append { batches, follows, new_epoch } => {
                self.model.epoch += i32::from(new_epoch);
                self.try_append(&batches, follows)?;
            }
            Step::AppendToFullDisk { batches, follows, room } => {
                self.append_to_full_disk(&batches, follows, room);
            }
            Step::AppendToBrokenDisk { batches, after_bytes } => {
                self.append_to_broken_disk(&batches, after_bytes);
            }
            Step::AssignEpoch => {
                self.model.epoch += 1;
                let (epoch, end) = (LeaderEpoch(self.model.epoch), Offset(self.model.end));
                self.log_mut().assign_epoch(epoch, end)?;
            }
            Step::Read { from, to, max_bytes } => self.read(from, to, max_bytes),
            Step::Flush => {
                let flushed = self.log_mut().flush()?;
                assert_eq!(flushed, Offset(self.model.end));
                self.model.flushed = flushed.0;
            }
            Step::FailedFlush { skip } => self.failed_flush(skip),
            Step::WriteRecoveryPoints => self.dir().write_recovery_points()?,
            Step::WriteHighWatermark => {
                let marks = BTreeMap::from([(tp("t"), self.log().log_end())]);
                self.dir().write_high_watermarks(&marks)?;
            }
            Step::Truncate(place) => {
                let (to, before) = (self.at(place), self.model.end);
                let coming = self.log().would_truncate(Offset(to))?;
                let loss = self.log_mut().truncate_to(Offset(to))?;
                assert_eq!(coming, loss);
                self.model.keep_below(to);
                let range = loss.map(|l| (l.from.0, l.to.map(|to| to.0)));
                let end = self.model.end;
                assert_eq!(range, (end < before).then_some((end, Some(before))));
                self.model.epoch += 1;
            }
            Step::Reset { to, beyond } => {
                let to = self.reset_point(to, beyond);
                let coming = self.log().would_reset();
                assert_eq!(coming, self.log_mut().reset_to(Offset(to))?);
                self.model.begin_at(to);
                self.model.epoch += 1;
            }
            Step::Delete { to, stage } => self.delete(self.at(to), stage)?,
            Step::Retain => self.retain()?,
            Step::Compact => self.compact()?,
            Step::Close => self.restart(true)?,
            Step::Crash => self.restart(false)?,
            Step::PowerCut { .. } | Step::PowerCutDuring { .. } => {}
        }
        Ok(())
    }

    fn check(&self) {
        let log = self.log();
        assert_eq!(log.log_start(), Offset(self.model.start));
        assert_eq!(log.log_end(), Offset(self.model.end));
        assert!(log.flushed() <= log.log_end());
        let found = self.content();
        let wanted: Vec<Batch> = self.model.from(self.model.start).cloned().collect();
        assert!(found == wanted, "the log holds {found:?} and not {wanted:?}");
        for batch in found {
            let at = Offset(batch.base).max(log.log_start());
            assert_eq!(log.epochs().epoch_at(at), Some(LeaderEpoch(batch.epoch)));
        }
    }
}
