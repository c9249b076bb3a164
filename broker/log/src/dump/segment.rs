//! Dumps a `.log` file: its batches, and their records if wanted.

use std::io;

use barnabas_types::{EpochStart, LeaderEpoch, Offset};

use super::item::{Batch, FileEnd, Item, Wrong};
use super::{Input, Options, Out, records};
use crate::batch::{BatchError, BatchHeader};
use crate::walk::{SCAN_CHUNK_BYTES, Step, Walk};

/// Runs of leader epochs that are remembered of a file: more than any real one has.
const EPOCHS_MAX: usize = 10_000;

pub(super) fn dump(input: &Input<'_>, options: Options, out: &mut Out<'_>) -> io::Result<FileEnd> {
    let base = input.base().unwrap_or(0);
    let mut end = FileEnd::default();
    let mut walk = Walk::new(&input.file, input.size_bytes, 0, SCAN_CHUNK_BYTES);
    loop {
        let (position, header) = match shrunk(walk.next())? {
            Some(Step::Batch(position, header)) => (position, header),
            Some(Step::Bad(position, error)) => {
                ends_badly(input, out, &end, position, error, base)?;
                return Ok(end);
            }
            Some(Step::End) => return Ok(end),
            None => {
                out.incomplete(end.whole_bytes, 0, end.last_offset);
                return Ok(end);
            }
        };
        let before = end.last_offset;
        if let Err(wrong) = check(&header, base, &end) {
            out.damage(position, before, wrong);
            // Its length may be as wrong as the rest: going on from there would only invent more damage.
            return Ok(end);
        }
        let Some(computed) = shrunk(walk.crc(position, &header))? else {
            out.incomplete(position, 0, before);
            return Ok(end);
        };
        let batch = Batch { position, header, crc_ok: computed == header.crc };
        out.content(&Item::Batch(batch));
        if !batch.crc_ok {
            out.damage(position, before, BatchError::Crc { stored: header.crc, computed }.into());
        } else if let Err(wrong) = sound(&header, &end) {
            out.damage(position, before, wrong);
        }
        if options.deep {
            records::dump(&input.file, &batch, before, out)?;
        }
        note(&mut end, &header, position);
    }
}

/// A file that has become shorter while it was read (a follower's may) ends here.
fn shrunk<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes that are no whole batch: the end that a broker is writing, or damage.
fn ends_badly(
    input: &Input<'_>,
    out: &mut Out<'_>,
    end: &FileEnd,
    position: u64,
    error: BatchError,
    base: i64,
) -> io::Result<()> {
    let left = input.size_bytes - position;
    let mut head = [0; crate::batch::HEADER_BYTES];
    let there = usize::try_from(left).unwrap_or(usize::MAX).min(head.len());
    let may_go_on = error == BatchError::Truncated
        && input.is_growing()?
        && match super::read_up_to(&input.file, &mut head[..there], position)? {
            // Too little to tell what it is to become.
            read if read < head.len() => true,
            _ => BatchHeader::parse(&head).is_ok_and(|header| check(&header, base, end).is_ok()),
        };
    if may_go_on {
        out.incomplete(position, left, end.last_offset);
    } else {
        out.damage(position, end.last_offset, error.into());
    }
    Ok(())
}

/// What must hold for a batch to be the next one of this segment.
fn check(header: &BatchHeader, base: i64, end: &FileEnd) -> Result<(), Wrong> {
    header.check_stored()?;
    let found = header.base_offset;
    if found < base {
        return Err(Wrong::BelowBase { found, base });
    }
    let expected = end.last_offset.map_or(base, |last| last + 1);
    if found < expected || header.last_offset() - base > i64::from(i32::MAX) {
        return Err(BatchError::OffsetOrder { found, expected }.into());
    }
    Ok(())
}

/// What must hold besides; a batch that breaks it has a length that is right nevertheless.
fn sound(header: &BatchHeader, end: &FileEnd) -> Result<(), Wrong> {
    let found = header.partition_leader_epoch;
    if let Some(before) = end.epochs.last().map(|run| run.epoch.0).filter(|b| found < *b) {
        return Err(BatchError::EpochOrder { found, before }.into());
    }
    let count = header.record_count;
    if count < 0 || i64::from(count) > i64::from(header.last_offset_delta) + 1 {
        let last_offset_delta = header.last_offset_delta;
        return Err(BatchError::Count { count, last_offset_delta }.into());
    }
    if header.codec() > crate::batch::CODEC_LAST {
        return Err(BatchError::Codec(header.codec()).into());
    }
    Ok(())
}

fn note(end: &mut FileEnd, header: &BatchHeader, position: u64) {
    let expected = end.last_offset.map_or(header.base_offset, |last| last + 1);
    end.missing_offsets += (header.base_offset - expected).unsigned_abs();
    end.first_offset = end.first_offset.or(Some(header.base_offset));
    end.last_offset = Some(header.last_offset());
    end.entries += 1;
    end.records += u64::from(header.record_count.max(0).unsigned_abs());
    end.whole_bytes = position + header.size() as u64;
    let epoch = LeaderEpoch(header.partition_leader_epoch);
    if end.epochs.last().is_none_or(|run| run.epoch != epoch) && end.epochs.len() < EPOCHS_MAX {
        end.epochs.push(EpochStart { epoch, start_offset: Offset(header.base_offset) });
    }
}
