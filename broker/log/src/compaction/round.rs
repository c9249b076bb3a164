//! A round of compaction, outside the log's lock but for the moments of the swaps.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use barnabas_types::Offset;

use crate::batch::{BatchError, BatchHeader};
use crate::error::{At as _, LogError};
use crate::log::Log;
use crate::records::{Records, record_bytes};
use crate::segment::path_of;

use super::filter::{Filter, Kept, is_opaque};
use super::offset_map::OffsetMap;
use super::output::{Output, discard};
use super::pace::Pace;
use super::reader::BatchReader;
use super::swap::GROUP_SEGMENTS_MAX;
use super::{CompactionPlan, Round, Source};

/// What a round came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// How it ended.
    pub ended: Ended,
    /// Bytes of segments that were read, twice for dirty ones.
    pub read_bytes: u64,
    /// Bytes of the segments that took their place.
    pub written_bytes: u64,
    /// Records that were looked at, and how many of them went.
    pub records: u64,
    /// See `records`.
    pub removed_records: u64,
    /// Batches that were kept because their records cannot be read.
    pub unreadable_batches: u64,
}

/// How a round ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Compacted up to this offset, exclusive, which is noted as the first dirty one.
    UpTo(Offset),
    /// The [`Pace`] said so. What was swapped before stays.
    Stopped,
    /// The log was cut, begun anew, closed or deleted, or its segments went. What was swapped before stays.
    Overtaken,
}

/// Why a round does not go on.
enum Stop {
    Stopped,
    Overtaken,
    Error(LogError),
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Self {
        Self::Error(error)
    }
}

/// Something that gives access to a log under its lock, for the time of a call.
pub type WithLog<'a> = dyn FnMut(&mut dyn FnMut(&mut Log)) + 'a;

/// Compacts. `with_log` takes the log's lock for the time of one call; what is done under it is a few renames at most.
/// `map_bytes_max`: `log.cleaner.dedupe.buffer.size`; what does not fit in it is left for the next round. Beside it a round
/// holds one batch, decompressed at most [`crate::RECORDS_BYTES_MAX`], and buffers of some MiB.
///
/// # Errors
/// [`LogError::Io`], [`LogError::Full`], [`LogError::Damaged`]: what was swapped before stays, the rest is as before. If a
/// swap failed half way, the log is fenced.
pub fn compact(
    round: Round,
    with_log: &mut WithLog<'_>,
    map_bytes_max: usize,
    pace: &mut dyn Pace,
) -> Result<Compacted, LogError> {
    let Round { plan, now_ms, .. } = round;
    let mut work = Work { plan: &plan, pace, read_bytes: 0, written_bytes: 0 };
    let mut filter = None;
    let result = work.run(now_ms, map_bytes_max, with_log, &mut filter);
    let ended = match result {
        Ok(end) => Ended::UpTo(Offset(end)),
        Err(Stop::Stopped) => Ended::Stopped,
        Err(Stop::Overtaken) => Ended::Overtaken,
        // Files that go away or shrink under a reader are no failure if their log did.
        Err(Stop::Error(error)) => {
            let mut present = false;
            with_log(&mut |log| present = plan.is_of(log) && plan.is_all_of(log));
            let fenced = matches!(error, LogError::Fenced);
            if present || !(fenced || is_of_the_past(&error)) {
                return Err(error.or_shortage());
            }
            Ended::Overtaken
        }
    };
    let counts = filter.map(|filter| filter.counts).unwrap_or_default();
    Ok(Compacted {
        ended,
        read_bytes: work.read_bytes,
        written_bytes: work.written_bytes,
        records: counts.records,
        removed_records: counts.removed,
        unreadable_batches: counts.unreadable,
    })
}

/// Errors that a reader of a segment meets that was cut or removed.
fn is_of_the_past(error: &LogError) -> bool {
    match error {
        LogError::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
        }
        LogError::Damaged { .. } => true,
        _ => false,
    }
}

impl CompactionPlan {
    /// Whether the log is still the one that was planned for.
    fn is_of(&self, log: &Log) -> bool {
        !log.is_fenced() && log.truncations == self.truncations
    }

    /// Segments that become one each, up to the one that `end` lies in or behind.
    fn groups(&self, end: i64) -> Vec<&[Source]> {
        let config = &self.config;
        let index_bytes = |s: &Source| 8 * (s.size / u64::from(config.index_interval_bytes.max(1)));
        let count = self.sources.partition_point(|s| s.base < end);
        let sources = &self.sources[..count];
        let mut groups = Vec::new();
        let mut first = 0;
        let (mut size, mut index) = (0, 0);
        for (number, source) in sources.iter().enumerate() {
            let fits = size + source.size <= u64::from(config.segment_bytes)
                && index + index_bytes(source) <= u64::from(config.segment_index_bytes)
                && source.end - sources[first].base <= i64::from(i32::MAX)
                && number - first < GROUP_SEGMENTS_MAX
                && !path_of(&self.dir, source.base, "txnindex").exists();
            if number > first && !fits {
                groups.push(&sources[first..number]);
                (first, size, index) = (number, 0, 0);
            }
            size += source.size;
            index += index_bytes(source);
        }
        if first < count {
            groups.push(&sources[first..]);
        }
        groups
    }

    /// Whether no segment went below a log start.
    fn is_all_of(&self, log: &Log) -> bool {
        let first = log.segments.first().map_or(i64::MAX, |s| s.base);
        self.sources.first().is_none_or(|source| source.base >= first)
    }

    fn open(&self, source: &Source) -> Result<(File, PathBuf), LogError> {
        let path = path_of(&self.dir, source.base, "log");
        let file = File::open(&path).at("open", &path)?;
        Ok((file, path))
    }
}

fn damaged(file: PathBuf, position: u64, error: BatchError) -> LogError {
    let reason = match error {
        BatchError::Crc { .. } => "the CRC of the batch is wrong",
        _ => "no whole batch",
    };
    LogError::Damaged { file, position, reason }
}

struct Work<'a> {
    plan: &'a CompactionPlan,
    pace: &'a mut dyn Pace,
    read_bytes: u64,
    written_bytes: u64,
}

impl Work<'_> {
    fn run(
        &mut self,
        now_ms: i64,
        map_bytes_max: usize,
        with_log: &mut WithLog<'_>,
        slot: &mut Option<Filter>,
    ) -> Result<i64, Stop> {
        let (map, end) = self.build_map(map_bytes_max)?;
        let retention_ms = self.plan.config.delete_retention_ms;
        let filter = slot.insert(Filter::new(map, end, now_ms, retention_ms));
        let (plan, dir) = (self.plan, &self.plan.dir);
        for group in plan.groups(end) {
            if let Some(cleaned) = self.clean(group, filter)? {
                let mut swapped = Ok(None);
                with_log(&mut |log| {
                    swapped =
                        if self.plan.is_of(log) { log.swap_in(group, &cleaned) } else { Ok(None) };
                });
                match swapped {
                    Ok(Some(replaced)) => replaced.remove(dir)?,
                    Ok(None) => {
                        discard(dir, cleaned.base);
                        return Err(Stop::Overtaken);
                    }
                    Err(error) => {
                        discard(dir, cleaned.base);
                        return Err(error.into());
                    }
                }
                self.written_bytes += cleaned.size;
            }
        }
        let mut noted = false;
        with_log(&mut |log| {
            noted = plan.is_of(log);
            if noted {
                log.shared.set_cleaned_up_to(&log.topic_partition, Offset(end));
            }
        });
        if noted { Ok(end) } else { Err(Stop::Overtaken) }
    }

    fn spent(&mut self, bytes: u64) -> Result<(), Stop> {
        if self.pace.spent(bytes) { Ok(()) } else { Err(Stop::Stopped) }
    }

    /// The last offset of each key in the dirty part; and up to where that is so, exclusive.
    fn build_map(&mut self, bytes_max: usize) -> Result<(OffsetMap, i64), Stop> {
        let (plan, from) = (self.plan, self.plan.first_dirty);
        let dirty = || plan.sources.iter().filter(|s| s.end > from);
        let keys = dirty().map(|s| s.end - s.base).sum::<i64>().unsigned_abs();
        let mut map = OffsetMap::new(bytes_max, keys);
        let mut end = from;
        for source in dirty() {
            let (file, path) = plan.open(source)?;
            let mut reader = BatchReader::new(&file, source.size);
            loop {
                let position = reader.position();
                let Some(batch) = reader.next().at("read", &path)? else { break };
                let batch = batch.map_err(|e| damaged(path.clone(), position, e))?;
                let header = batch.header;
                if header.next_offset() > from && !is_opaque(&header) {
                    // What cannot be read is left alone, here and in the filter.
                    let bytes = record_bytes(batch.bytes, &header).unwrap_or_default();
                    let sound = Records::new(&bytes, &header).all(|record| record.is_ok());
                    let records = Records::new(&bytes, &header).filter(|_| sound);
                    for record in records.map_while(Result::ok) {
                        let offset = record.offset(&header);
                        if record.key.is_some_and(|key| offset >= from && !map.put(key, offset)) {
                            return Ok((map, offset));
                        }
                    }
                }
                self.read_bytes += header.size() as u64;
                self.spent(header.size() as u64)?;
            }
            end = source.end;
        }
        Ok((map, end))
    }

    /// Writes what is left of a group of segments; `None` if that is the very same.
    fn clean(
        &mut self,
        group: &[Source],
        filter: &mut Filter,
    ) -> Result<Option<super::output::Cleaned>, Stop> {
        let base = group[0].base;
        let result = self.write(group, filter);
        if !matches!(result, Ok(Some(_))) {
            discard(&self.plan.dir, base);
        }
        result
    }

    fn write(
        &mut self,
        group: &[Source],
        filter: &mut Filter,
    ) -> Result<Option<super::output::Cleaned>, Stop> {
        let plan = self.plan;
        let last_of: BTreeMap<i64, i64> = plan.producers.iter().copied().collect();
        let mut output =
            Output::create(&plan.dir, group[0].base, plan.config.index_interval_bytes)?;
        let mut changed = group.len() > 1;
        let last_number = group.iter().rposition(|s| s.size > 0);
        let mut modified: Option<SystemTime> = None;
        for (number, source) in group.iter().enumerate() {
            let (file, path) = plan.open(source)?;
            modified = file.metadata().and_then(|m| m.modified()).ok().max(modified);
            let mut reader = BatchReader::new(&file, source.size);
            loop {
                let position = reader.position();
                let Some(batch) = reader.next().at("read", &path)? else { break };
                let batch = batch.map_err(|e| damaged(path.clone(), position, e))?;
                let header = batch.header;
                let is_last =
                    Some(number) == last_number && position + header.size() as u64 == source.size;
                let of_producer = header.producer_id >= 0
                    && last_of.get(&header.producer_id) == Some(&header.last_offset());
                let before = output.waiting.len();
                match filter.apply(&batch, is_last || of_producer, &mut output.waiting) {
                    Kept::Whole => output.waiting.extend_from_slice(batch.bytes),
                    Kept::Changed | Kept::Nothing => changed = true,
                }
                let written = output.waiting.len() - before;
                if written > 0 {
                    let put = BatchHeader::parse(&output.waiting[before..]);
                    output.note(&put.map_err(|e| damaged(path.clone(), position, e))?)?;
                }
                self.read_bytes += header.size() as u64;
                self.spent((header.size() + written) as u64)?;
            }
        }
        if !changed || output.size() == 0 {
            return Ok(None);
        }
        Ok(Some(output.finish(modified)?))
    }
}
