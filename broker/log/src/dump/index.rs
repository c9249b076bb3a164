//! Dumps the files of fixed-size entries: `.index`, `.timeindex`, `.txnindex`, `.snapshot`.

use std::fs::File;
use std::io;

use super::item::{FileEnd, Item, OffsetEntry, TimeEntry, Wrong};
use super::{Input, Out, read_up_to};
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::index::{Entry, OffsetEntry as StoredOffset, TimeEntry as StoredTime};
use crate::producers::SnapshotError;
use crate::producers::snapshot::{self, SNAPSHOT_BYTES_MAX};
use crate::walk::{LOOKUP_CHUNK_BYTES, Step, Walk};

/// Bytes of an index that are read at once: a multiple of both kinds of entries, and of an aborted transaction.
const CHUNK_BYTES: usize = 24 * 17 * 40;

const ABORTED_BYTES: usize = 34;

/// Goes through the entries of a file: `each` gets the position and the bytes of one, and says whether to go on. At zeros
/// where they cannot be an entry, the rest is taken for set aside (Kafka does so with the indexes of an active segment).
fn entries(
    input: &Input<'_>,
    entry_bytes: usize,
    out: &mut Out<'_>,
    end: &mut FileEnd,
    mut each: impl FnMut(&mut Out<'_>, u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES - CHUNK_BYTES % entry_bytes];
    let mut position = 0;
    loop {
        let left = usize::try_from(input.size_bytes - position).unwrap_or(usize::MAX);
        let wanted = left.min(chunk.len());
        let read = read_up_to(&input.file, &mut chunk[..wanted], position)?;
        for bytes in chunk[..read].chunks(entry_bytes) {
            if bytes.len() < entry_bytes {
                return partial(input, out, position, bytes.len());
            }
            let zeros = bytes.iter().all(|b| *b == 0);
            if zeros && position > 0 && only_zeros(input, position)? {
                let bytes = input.size_bytes - position;
                out.content(&Item::Preallocated { position, bytes });
                return Ok(());
            }
            each(out, position, bytes)?;
            end.entries += 1;
            position += entry_bytes as u64;
            end.whole_bytes = position;
        }
        if read < wanted || position >= input.size_bytes {
            return Ok(());
        }
    }
}

fn partial(input: &Input<'_>, out: &mut Out<'_>, position: u64, bytes: usize) -> io::Result<()> {
    if input.is_growing()? {
        out.incomplete(position, bytes as u64, None);
    } else {
        out.damage(position, None, Wrong::PartialEntry);
    }
    Ok(())
}

fn only_zeros(input: &Input<'_>, from: u64) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut position = from;
    while position < input.size_bytes {
        let left = usize::try_from(input.size_bytes - position).unwrap_or(usize::MAX);
        let wanted = left.min(chunk.len());
        let read = read_up_to(&input.file, &mut chunk[..wanted], position)?;
        if chunk[..read].iter().any(|b| *b != 0) {
            return Ok(false);
        }
        if read < wanted {
            break;
        }
        position += read as u64;
    }
    Ok(true)
}

pub(super) fn dump_offsets(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<FileEnd> {
    let base = input.base().unwrap_or(0);
    let log = input.log()?;
    let mut end = FileEnd::default();
    let mut before: Option<StoredOffset> = None;
    entries(input, StoredOffset::BYTES, out, &mut end, |out, position, bytes| {
        let entry = StoredOffset::get(bytes);
        let offset = base.saturating_add(i64::from(entry.offset));
        let fits = match &log {
            Some((log, _)) => Some(batch_begins(log, entry.position)?.is_some_and(|header| {
                header.check_stored().is_ok() && header.last_offset() == offset
            })),
            None => None,
        };
        out.content(&Item::OffsetEntry(OffsetEntry {
            position,
            offset,
            log_position: entry.position,
            fits,
        }));
        let up = |b: StoredOffset| entry.offset > b.offset && entry.position > b.position;
        if !before.is_none_or(up) {
            out.damage(position, None, Wrong::EntryOrder);
        } else if fits == Some(false) {
            out.damage(position, None, Wrong::NoSuchBatch { offset, log_position: entry.position });
        }
        before = Some(entry);
        Ok(())
    })?;
    Ok(end)
}

fn batch_begins(log: &File, position: u32) -> io::Result<Option<BatchHeader>> {
    let mut head = [0; HEADER_BYTES];
    let read = read_up_to(log, &mut head, u64::from(position))?;
    Ok(BatchHeader::parse(&head[..read]).ok())
}

pub(super) fn dump_times(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<FileEnd> {
    let base = input.base().unwrap_or(0);
    let log = input.log()?;
    let mut times = log.as_ref().map(|(file, size)| Times {
        walk: Walk::new(file, *size, 0, LOOKUP_CHUNK_BYTES),
        last_offset: -1,
        greatest: -1,
    });
    let mut end = FileEnd::default();
    let mut before: Option<StoredTime> = None;
    entries(input, StoredTime::BYTES, out, &mut end, |out, position, bytes| {
        let entry = StoredTime::get(bytes);
        let offset = base.saturating_add(i64::from(entry.offset));
        let found = times.as_mut().map(|times| times.up_to(offset)).transpose()?;
        out.content(&Item::TimeEntry(TimeEntry {
            position,
            timestamp_ms: entry.timestamp,
            offset,
            fits: found.map(|found| found == entry.timestamp),
        }));
        let up = |b: StoredTime| entry.timestamp > b.timestamp && entry.offset >= b.offset;
        if !before.is_none_or(up) {
            out.damage(position, None, Wrong::EntryOrder);
        } else if let Some(found) = found.filter(|found| *found != entry.timestamp) {
            out.damage(position, None, Wrong::Timestamp { offset, stored: entry.timestamp, found });
        }
        before = Some(entry);
        Ok(())
    })?;
    Ok(end)
}

/// The greatest timestamp up to a batch, while the offsets asked for go up.
struct Times<'a> {
    walk: Walk<'a>,
    last_offset: i64,
    greatest: i64,
}

impl Times<'_> {
    /// -1 if the log ends before the offset.
    fn up_to(&mut self, offset: i64) -> io::Result<i64> {
        while self.last_offset < offset {
            match self.walk.next() {
                Ok(Step::Batch(_, header)) if header.check_stored().is_ok() => {
                    self.last_offset = self.last_offset.max(header.last_offset());
                    self.greatest = self.greatest.max(header.max_timestamp);
                }
                Ok(_) => return Ok(-1),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(-1),
                Err(error) => return Err(error),
            }
        }
        Ok(self.greatest)
    }
}

pub(super) fn dump_transactions(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<FileEnd> {
    let mut end = FileEnd::default();
    let mut before = -1;
    entries(input, ABORTED_BYTES, out, &mut end, |out, position, bytes| {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            i64::from_be_bytes(field)
        };
        let (producer_id, first_offset, last_offset) = (number(2), number(10), number(18));
        let last_stable_offset = number(26);
        out.content(&Item::AbortedTransaction {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset,
        });
        let sense = bytes[..2] == [0, 0]
            && producer_id >= 0
            && (0..=last_offset).contains(&first_offset)
            && last_offset > before;
        if !sense {
            out.damage(position, None, Wrong::AbortedTransaction);
        }
        before = last_offset;
        Ok(())
    })?;
    Ok(end)
}

pub(super) fn dump_snapshot(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<FileEnd> {
    if input.size_bytes > SNAPSHOT_BYTES_MAX {
        let (found, expected) = (input.size_bytes, SNAPSHOT_BYTES_MAX);
        out.damage(0, None, SnapshotError::Size { found, expected }.into());
        return Ok(FileEnd::default());
    }
    let mut bytes = vec![0; usize::try_from(input.size_bytes).unwrap_or(0)];
    let read = read_up_to(&input.file, &mut bytes, 0)?;
    match snapshot::decode(&bytes[..read]) {
        Ok(rows) => {
            rows.iter().for_each(|row| out.content(&Item::Producer(*row)));
            let entries = rows.len() as u64;
            Ok(FileEnd { whole_bytes: read as u64, entries, ..FileEnd::default() })
        }
        Err(error) => {
            let position = match error {
                SnapshotError::Row { position, .. } => position,
                SnapshotError::Version(_) => 0,
                SnapshotError::Crc { .. } => 2,
                SnapshotError::Size { found, expected } => found.min(expected),
            };
            out.damage(position, None, error.into());
            Ok(FileEnd::default())
        }
    }
}
