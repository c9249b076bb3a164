//! What lies in a partition's directory, and the leftovers of interrupted steps that go.

use std::collections::BTreeMap;
use std::fs;

use super::scan::{From, Scanner, seal};
use crate::compaction::finish_swaps;
use crate::disk::Folder;
use crate::error::{At as _, LogError};
use crate::files::remove_if_there;
use crate::segment::{Segment, path_of};

/// The segments of a directory.
pub(super) struct Listed {
    /// Oldest first, with file sizes; each ends where the next begins.
    pub(super) segments: Vec<Segment>,
    /// Whether each has both index files.
    indexed: Vec<bool>,
    /// Offsets of the producer snapshots, in order.
    pub(super) snapshots: Vec<i64>,
    /// Names went from the directory.
    pub(super) removed: bool,
}

#[derive(Default)]
struct Files {
    log: bool,
    indexes: Vec<&'static str>,
}

/// Lists a directory; ends a compaction's swaps before, and removes temporary files and what has no segment (any more).
pub(super) fn list(dir: &Folder) -> Result<Listed, LogError> {
    let removed = finish_swaps(dir)?;
    let mut found: BTreeMap<i64, Files> = BTreeMap::new();
    let mut snapshots = Vec::new();
    for entry in fs::read_dir(&dir.path).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        let name = entry.file_name();
        let Some((stem, kind)) = name.to_str().and_then(|n| n.rsplit_once('.')) else { continue };
        if kind == "tmp" {
            remove_if_there(&dir.disk, &entry.path())?;
        }
        let numbered = stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit());
        let Some(base) = stem.parse::<i64>().ok().filter(|_| numbered) else { continue };
        match kind {
            "log" => found.entry(base).or_default().log = true,
            "index" => found.entry(base).or_default().indexes.push("index"),
            "timeindex" => found.entry(base).or_default().indexes.push("timeindex"),
            "txnindex" => found.entry(base).or_default().indexes.push("txnindex"),
            "snapshot" => snapshots.push(base),
            _ => {}
        }
    }
    snapshots.sort_unstable();
    let mut listed = Listed { segments: Vec::new(), indexed: Vec::new(), snapshots, removed };
    for (base, files) in found {
        if !files.log {
            for kind in files.indexes {
                remove_if_there(&dir.disk, &path_of(dir, base, kind))?;
                listed.removed = true;
            }
            continue;
        }
        let indexed = ["index", "timeindex"].iter().all(|kind| files.indexes.contains(kind));
        let path = path_of(dir, base, "log");
        let size = fs::metadata(&path).at("read", &path)?.len();
        if let Some(before) = listed.segments.last_mut() {
            before.end = base;
        }
        listed.segments.push(Segment::new(base, base, size));
        listed.indexed.push(indexed);
    }
    Ok(listed)
}

impl Listed {
    /// Takes out the segments wholly below the log start: out of the log before, or about to be (R32).
    pub(super) fn take_below(&mut self, log_start: i64) -> Vec<Segment> {
        let below = self.segments.partition_point(|s| s.end <= log_start);
        // The last one's end is not known yet.
        let below = below.min(self.segments.len().saturating_sub(1));
        self.indexed.drain(..below);
        self.segments.drain(..below).collect()
    }

    /// A sealed segment below the scan whose indexes are gone gets new ones; its batches are not checked.
    pub(super) fn rebuild_missing_indexes(
        &mut self,
        scanner: &Scanner<'_>,
        first_scanned: usize,
    ) -> Result<(), LogError> {
        for (segment, indexed) in self.segments.iter_mut().zip(&self.indexed).take(first_scanned) {
            if !indexed {
                scanner.progress.check()?;
                let lenient = Scanner { strict: false, ..*scanner };
                let scanned = lenient.scan_after(segment, From::Beginning, None)?;
                seal(scanner.dir, segment, scanned.tail)?;
            }
        }
        Ok(())
    }
}
