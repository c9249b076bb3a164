//! Dumps a partition's directory, file by file, or a data directory, partition by partition.

use std::path::{Path, PathBuf};

use barnabas_types::{EpochStart, LeaderEpochs, Offset, TopicPartition};

use super::item::{FileEnd, Item, Kind, Partition, Wrong};
use super::{DumpError, Options, Out, base_of, dump_file, io_error};
use crate::checkpoint::{read_offsets, read_topic_id};

/// What lies in a directory.
#[derive(Default)]
struct Listing {
    /// Files with a number in their name, by number and kind.
    numbered: Vec<(i64, Kind, PathBuf)>,
    /// The other files that a dump understands, by name.
    named: Vec<(PathBuf, Kind)>,
    directories: Vec<PathBuf>,
    other: Vec<PathBuf>,
}

impl Listing {
    fn of(dir: &Path) -> Result<Self, DumpError> {
        let mut listing = Self::default();
        let failed = |source| io_error(dir, source);
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                listing.directories.push(path);
                continue;
            }
            match (Kind::of(&path), base_of(&path)) {
                (Some(kind), Some(base)) => listing.numbered.push((base, kind, path)),
                (Some(kind), None) => listing.named.push((path, kind)),
                (None, _) if is_marker(&path) => {}
                (None, _) => listing.other.push(path),
            }
        }
        listing.numbered.sort();
        listing.named.sort();
        listing.directories.sort();
        listing.other.sort();
        Ok(listing)
    }

    fn has(&self, wanted: Kind) -> bool {
        self.named.iter().any(|(_, kind)| *kind == wanted)
    }

    fn is_partition(&self) -> bool {
        !self.numbered.is_empty() || self.has(Kind::PartitionMetadata)
    }
}

/// Files of which nothing is to be said: the lock, and this program's own small ones but for the mark of a lost tail.
fn is_marker(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == ".lock" || name.starts_with("barnabas.") && name != "barnabas.tail_lost"
}

pub(super) fn dump(dir: &Path, options: Options, out: &mut Out<'_>) -> Result<(), DumpError> {
    let listing = Listing::of(dir)?;
    if listing.is_partition() {
        out.muted = !options.deep;
        dump_partition(dir, &listing, options, &Marks::default(), out)?;
        return Ok(());
    }
    let partitions: Vec<_> =
        listing.directories.iter().filter_map(|dir| of_partition(dir)).collect();
    if partitions.is_empty() && !listing.has(Kind::MetaProperties) {
        return Err(DumpError::UnknownDirectory(dir.to_owned()));
    }
    for (path, kind) in &listing.named {
        dump_file(path, *kind, options, out)?;
    }
    let read = |name: &str| read_offsets(&dir.join(name)).unwrap_or_default().offsets;
    let recovery_points = read("recovery-point-offset-checkpoint");
    let log_starts = read("log-start-offset-checkpoint");
    out.muted = !options.deep;
    for (name, path) in partitions {
        let marks = Marks {
            recovery_point: recovery_points.get(&name).copied(),
            log_start: log_starts.get(&name).copied(),
        };
        match Listing::of(&path)
            .and_then(|listing| dump_partition(&path, &listing, options, &marks, out))
        {
            // Deleted meanwhile.
            Err(DumpError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    let is_partition = |dir: &PathBuf| of_partition(dir).is_some();
    let others = listing.directories.iter().filter(|dir| !is_partition(dir));
    others.chain(&listing.other).for_each(|path| out.always(&Item::Other(path)));
    Ok(())
}

/// The partition that a directory is of by its name. A data directory may have such a name too: `broker-1`.
fn of_partition(dir: &Path) -> Option<(TopicPartition, PathBuf)> {
    if dir.join("meta.properties").exists() {
        return None;
    }
    let name = dir.file_name()?.to_str()?;
    Some((TopicPartition::parse_directory(name)?, dir.to_owned()))
}

/// What the checkpoints of the data directory say of a partition.
#[derive(Default)]
struct Marks {
    recovery_point: Option<Offset>,
    log_start: Option<Offset>,
}

fn dump_partition(
    dir: &Path,
    listing: &Listing,
    options: Options,
    marks: &Marks,
    out: &mut Out<'_>,
) -> Result<(), DumpError> {
    let before = out.outcome;
    let name = dir.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut partition = Partition {
        name,
        topic_id: read_topic_id(dir).unwrap_or_default(),
        segments: 0,
        first_segment: 0,
        log_end: 0,
        batches: 0,
        records: 0,
        size_bytes: 0,
        last_epoch: None,
        damaged: 0,
        incomplete: 0,
    };
    let mut runs: Vec<EpochStart> = Vec::new();
    for (base, kind, path) in &listing.numbered {
        let Some(end) = dump_if_there(path, *kind, options, out)? else { continue };
        if *kind == Kind::Log {
            if partition.segments > 0 && partition.log_end > *base {
                let wrong = Wrong::SegmentsOverlap { end: partition.log_end, next: *base };
                out.damage(0, Some(partition.log_end - 1), wrong);
            }
            add(&mut partition, *base, &end);
            let before = runs.last().map(|run| run.epoch);
            runs.extend(end.epochs.iter().skip_while(|run| Some(run.epoch) == before));
        }
    }
    for (path, kind) in &listing.named {
        let Some(end) = dump_if_there(path, *kind, options, out)? else { continue };
        if *kind == Kind::LeaderEpochs {
            compare(&end.epochs, &runs, out);
        }
    }
    for (checkpoint, mark) in [
        ("recovery-point-offset-checkpoint", marks.recovery_point),
        ("log-start-offset-checkpoint", marks.log_start),
    ] {
        if let Some(offset) = mark.map(|m| m.0).filter(|offset| *offset > partition.log_end) {
            let wrong = Wrong::AboveEnd { checkpoint, offset, end: partition.log_end };
            out.damage(0, Some(partition.log_end - 1).filter(|o| *o >= 0), wrong);
        }
    }
    listing
        .other
        .iter()
        .chain(&listing.directories)
        .for_each(|path| out.always(&Item::Other(path)));
    partition.damaged = out.outcome.damaged - before.damaged;
    partition.incomplete = out.outcome.incomplete - before.incomplete;
    out.always(&Item::Partition(&partition));
    Ok(())
}

/// Retention and truncation take files away from a running broker's directory.
fn dump_if_there(
    path: &Path,
    kind: Kind,
    options: Options,
    out: &mut Out<'_>,
) -> Result<Option<FileEnd>, DumpError> {
    match dump_file(path, kind, options, out) {
        Err(DumpError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        result => result.map(Some),
    }
}

fn add(partition: &mut Partition, base: i64, end: &FileEnd) {
    if partition.segments == 0 {
        partition.first_segment = base;
    }
    partition.segments += 1;
    partition.log_end = end.last_offset.map_or(base, |last| last + 1).max(partition.log_end);
    partition.batches += end.entries;
    partition.records += end.records;
    partition.size_bytes += end.whole_bytes;
    partition.last_epoch = end.epochs.last().map(|run| run.epoch.0).or(partition.last_epoch);
}

/// The epoch of each run of batches must be the one that the checkpoint gives to its first offset.
fn compare(checkpoint: &[EpochStart], runs: &[EpochStart], out: &mut Out<'_>) {
    let epochs: LeaderEpochs = checkpoint.iter().copied().collect();
    // Retention and deleted records take old epochs away; a batch across the log's start stays.
    let from = checkpoint.first().map_or(Offset(0), |first| first.start_offset);
    for run in runs.iter().filter(|run| run.start_offset >= from) {
        if epochs.epoch_at(run.start_offset) != Some(run.epoch) {
            let (epoch, offset) = (run.epoch.0, run.start_offset.0);
            out.damage(0, None, Wrong::Epoch { epoch, offset });
        }
    }
}
