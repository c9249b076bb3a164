//! Putting a compacted segment in the place of those that it was made of, so that a crash at any point leaves the old ones or
//! the new one. Kafka's names and order:
//!
//! 1. `.cleaned` files are written and made durable. Until then a crash leaves the old segments; `.cleaned` goes at open.
//! 2. `BASE.log.cleaned` is renamed to `BASE.log.swap`: from here on the new segment counts.
//! 3. The files of the old segments except the first are renamed to `.deleted`; the new indexes replace those of the first.
//! 4. `BASE.log.swap` is renamed to `BASE.log`, which takes the place of the first.
//! 5. The directory is synced, and the `.deleted` files go.
//!
//! An open that finds a `.swap` does 3 and 4 again. Steps 2 to 4 are renames under the log's lock, bounded by
//! [`GROUP_SEGMENTS_MAX`] segments; names of one directory reach the disk in their order. Readers of the old segments have
//! their files open and go on.

use std::fs;
use std::io;
use std::path::Path;

use crate::disk::Folder;
use crate::error::{At as _, LogError};
use crate::files::{remove_if_there, sync_dir};
use crate::log::Log;
use crate::segment::{Segment, path_of, remove_segment};
use crate::walk::{LOOKUP_CHUNK_BYTES, Step, Walk};

use super::Source;
use super::output::{CLEANED, Cleaned};

/// Most segments that are made into one at a time: what is renamed under the log's lock.
pub(super) const GROUP_SEGMENTS_MAX: usize = 16;

/// Files that go with a segment that is replaced. (One with a `.txnindex` is never replaced by another's.)
const REPLACED: [&str; 4] = ["log", "index", "timeindex", "snapshot"];
const SWAP: &str = "log.swap";

/// Files of replaced segments that are still there.
#[derive(Debug)]
#[must_use = "the files go with Replaced::remove"]
pub(super) struct Replaced {
    bases: Vec<i64>,
}

impl Log {
    /// Puts a compacted segment in the place of those that it was made of. `None` if one of them is not there any more.
    ///
    /// Renames files under the caller's lock; an error after the first rename fences the log (an open makes it whole).
    pub(super) fn swap_in(
        &mut self,
        sources: &[Source],
        cleaned: &Cleaned,
    ) -> Result<Option<Replaced>, LogError> {
        self.ready()?;
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else { return Ok(None) };
        let Ok(at) = self.segments.binary_search_by_key(&first.base, |s| s.base) else {
            return Ok(None);
        };
        // The last of all is active.
        let sealed = &self.segments[at..self.segments.len() - 1];
        let same = |s: &Segment, of: &Source| (s.base, s.end, s.size) == (of.base, of.end, of.size);
        let all =
            sealed.len() >= sources.len() && sealed.iter().zip(sources).all(|(s, of)| same(s, of));
        if !all || last.end > self.flushed {
            return Ok(None);
        }
        let dir = self.dir.clone();
        rename(&dir, cleaned.base, CLEANED[0], SWAP)?;
        let replaced = Replaced { bases: sources[1..].iter().map(|s| s.base).collect() };
        take_places(&dir, &replaced.bases, cleaned.base).inspect_err(|_| self.fenced = true)?;
        let segment = Segment::new(cleaned.base, last.end, cleaned.size);
        let _ = segment.max_timestamp.set(cleaned.max_timestamp);
        self.segments.splice(at..at + sources.len(), [segment]);
        Ok(Some(replaced))
    }
}

/// Steps 3 and 4.
fn take_places(dir: &Folder, old: &[i64], base: i64) -> Result<(), LogError> {
    for &old in old {
        for kind in REPLACED {
            let path = path_of(dir, old, kind);
            match dir.disk.rename(&path, &path_of(dir, old, &format!("{kind}.deleted"))) {
                // Not every segment has a snapshot, and side files may be missing.
                Err(error) if error.kind() == io::ErrorKind::NotFound && kind != "log" => {}
                result => result.at("rename", &path)?,
            }
        }
    }
    rename(dir, base, CLEANED[1], "index")?;
    rename(dir, base, CLEANED[2], "timeindex")?;
    rename(dir, base, SWAP, "log")
}

fn rename(dir: &Folder, base: i64, from: &str, to: &str) -> Result<(), LogError> {
    let path = path_of(dir, base, from);
    dir.disk.rename(&path, &path_of(dir, base, to)).at("rename", &path)
}

impl Replaced {
    /// Makes the swap durable and removes the old files; without the log's lock. That the partition was deleted meanwhile is
    /// fine.
    pub(super) fn remove(self, dir: &Folder) -> Result<(), LogError> {
        match sync_dir(&dir.disk, dir) {
            Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            result => result?,
        }
        for base in self.bases {
            for kind in REPLACED {
                remove_if_there(&dir.disk, &path_of(dir, base, &format!("{kind}.deleted")))?;
            }
        }
        Ok(())
    }
}

/// At open, before the segments are listed: ends the swaps that were begun, and removes what belongs to none. Returns whether
/// names changed; they are durable then.
pub(crate) fn finish_swaps(dir: &Folder) -> Result<bool, LogError> {
    let (mut bases, mut swaps, mut leftovers) = (Vec::new(), Vec::new(), Vec::new());
    for entry in fs::read_dir(&dir.path).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        let name = entry.file_name();
        let Some((stem, kind)) = name.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        let numbered = stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit());
        let Some(base) = stem.parse::<i64>().ok().filter(|_| numbered) else { continue };
        if kind == "log" {
            bases.push(base);
        } else if kind == SWAP {
            swaps.push(base);
        } else if [".cleaned", ".swap", ".deleted"].iter().any(|end| kind.ends_with(end)) {
            // Kafka also swaps index files; they are made anew.
            leftovers.push(entry.path());
        }
    }
    for &base in &swaps {
        let end = end_of(&path_of(dir, base, SWAP))?;
        for &old in bases.iter().filter(|old| **old > base && **old < end) {
            remove_segment(dir, old)?;
        }
        for kind in ["index", "timeindex"] {
            remove_if_there(&dir.disk, &path_of(dir, base, kind))?;
        }
        rename(dir, base, SWAP, "log")?;
    }
    for path in &leftovers {
        remove_if_there(&dir.disk, path)?;
    }
    let changed = !swaps.is_empty() || !leftovers.is_empty();
    if changed {
        sync_dir(&dir.disk, dir)?;
    }
    Ok(changed)
}

/// The offset after the last batch of a segment file.
fn end_of(path: &Path) -> Result<i64, LogError> {
    let file = fs::File::open(path).at("open", path)?;
    let size = file.metadata().at("read", path)?.len();
    let mut walk = Walk::new(&file, size, 0, LOOKUP_CHUNK_BYTES);
    let mut end = 0;
    while let Step::Batch(_, header) = walk.next().at("read", path)? {
        end = header.next_offset();
    }
    Ok(end)
}
