//! A power cut after the fact: brings a data directory, whose process is dead, into a state that a loss of power may leave.
//!
//! The shim's journal says what was durable. Beyond that anything may be: a file ends anywhere between its durable and its present
//! length, torn at sectors, with zeros in between; bytes that were overwritten or cut off may be back; and names that their
//! directory did not sync (creations, renames, deletions) may be undone, the latest first within each directory.

mod journal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::prng::Prng;
use journal::{Data, FileState, Journal, Name, NameChange};

const SECTOR_BYTES: u64 = 512;
/// Sectors before the end of a file that may be missing though later ones are there.
const TORN_SECTORS_MAX: u64 = 32;
/// Where a broker notes under which boot of the host it ran.
const BOOT_ID: &str = "barnabas.boot_id";

/// What a power cut took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// Files that are shorter, torn or otherwise changed.
    pub files: u64,
    /// Bytes that are gone from their ends.
    pub bytes: u64,
    /// Sectors that hold zeros.
    pub torn_sectors: u64,
    /// Changes of names that were undone.
    pub names: u64,
}

impl Loss {
    /// Adds up two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            torn_sectors: self.torn_sectors + other.torn_sectors,
            names: self.names + other.names,
        }
    }
}

/// Cuts the power of the directories that share a journal, and begins the journal anew: what is there afterwards is on the disk.
/// The host counts as rebooted: the boot id that the broker noted is another one.
///
/// # Errors
/// A file cannot be read or changed, or the journal is not understood.
pub fn cut(roots: &[PathBuf], journal_dir: &Path, seed: u64) -> Outcome<Loss> {
    let journal = Journal::read(journal_dir)?;
    let mut prng = Prng::new(seed);
    let mut loss = Loss::default();
    let mut tree = Tree::walk(roots)?;
    for change in lost_names(&journal, &mut prng) {
        loss.names += u64::from(tree.undo(change, &journal)?);
    }
    // By path, so that the same seed takes the same of the same files.
    for (path, ino) in Tree::walk(roots)?.files {
        if let Some(state) = journal.files.get(&ino) {
            loss = loss.plus(cut_file(&path, state, &journal, &mut prng)?);
        }
    }
    for root in roots {
        let boot_id = root.join(BOOT_ID);
        if boot_id.exists() {
            fs::write(boot_id, format!("power-cut-{seed:016x}\n"))?;
        }
    }
    journal.clear()?;
    Ok(loss)
}

/// The changes of names that did not reach the disk, latest first.
fn lost_names<'a>(journal: &'a Journal, prng: &mut Prng) -> Vec<&'a NameChange> {
    let mut by_directory: BTreeMap<u64, Vec<&NameChange>> = BTreeMap::new();
    for change in &journal.names {
        by_directory.entry(change.directory).or_default().push(change);
    }
    let mut lost = Vec::new();
    for changes in by_directory.into_values() {
        let kept = prng.up_to(changes.len() as u64);
        lost.extend(changes.into_iter().skip(usize::try_from(kept).unwrap_or(0)));
    }
    lost.sort_by_key(|change| std::cmp::Reverse(change.number));
    lost
}

/// What is below the roots now, by inode.
struct Tree {
    directories: HashMap<u64, PathBuf>,
    files: BTreeSet<(PathBuf, u64)>,
}

impl Tree {
    fn walk(roots: &[PathBuf]) -> Outcome<Self> {
        let mut tree = Self { directories: HashMap::new(), files: BTreeSet::new() };
        let mut open: Vec<PathBuf> = roots.to_vec();
        while let Some(directory) = open.pop() {
            tree.directories.insert(fs::metadata(&directory)?.ino(), directory.clone());
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() {
                    tree.files.insert((entry.path(), entry.ino()));
                }
            }
        }
        Ok(tree)
    }

    /// Whether there was something to undo.
    fn undo(&mut self, change: &NameChange, journal: &Journal) -> Outcome<bool> {
        let Some(directory) = self.directories.get(&change.directory) else { return Ok(false) };
        let path = directory.join(&change.name);
        let stands_for = |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.ino());
        match &change.what {
            Name::Created { ino } if stands_for(&path) == Some(*ino) => fs::remove_file(&path)?,
            Name::DirectoryCreated { ino } if stands_for(&path) == Some(*ino) => {
                fs::remove_dir_all(&path)?;
                self.directories.remove(ino);
            }
            Name::Unlinked if stands_for(&path).is_none() => {
                return Ok(journal.take_kept(change.number, &path)?);
            }
            Name::DirectoryRemoved { ino } if stands_for(&path).is_none() => {
                fs::create_dir(&path)?;
                self.directories.insert(*ino, path);
            }
            Name::Renamed { ino, from_directory, from } if stands_for(&path) == Some(*ino) => {
                let Some(from_directory) = self.directories.get(from_directory) else {
                    return Ok(false);
                };
                let from = from_directory.join(from);
                if stands_for(&from).is_some() {
                    return Ok(false);
                }
                fs::rename(&path, &from)?;
                if let Some(moved) = self.directories.get_mut(ino) {
                    *moved = from;
                }
                journal.take_kept(change.number, &path)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn cut_file(path: &Path, state: &FileState, journal: &Journal, prng: &mut Prng) -> Outcome<Loss> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut loss = Loss::default();
    let kept = usize::try_from(prng.up_to(state.changes.len() as u64))?;
    for change in state.changes[kept..].iter().rev() {
        let Some(bytes) = journal.kept_bytes(change.number)? else { continue };
        if let Data::Cut { to } = change.what {
            file.set_len(to)?;
        }
        file.write_all_at(&bytes, change.what.at())?;
        loss.files = 1;
    }
    let len = file.metadata()?.len();
    let cuts = state.changes[..kept].iter().filter_map(|change| match change.what {
        Data::Cut { to } => Some(to),
        Data::Overwritten { .. } => None,
    });
    let durable = cuts.fold(state.durable, u64::min).min(len);
    if durable == len {
        return Ok(loss);
    }
    let end = durable + prng.up_to(len - durable);
    if end < len {
        file.set_len(end)?;
        loss.files = 1;
        loss.bytes = len - end;
    }
    if prng.one_in(2) {
        let last = end / SECTOR_BYTES;
        for sector in last.saturating_sub(TORN_SECTORS_MAX)..=last {
            let from = (sector * SECTOR_BYTES).max(durable);
            let to = ((sector + 1) * SECTOR_BYTES).min(end);
            if from < to && prng.one_in(2) {
                file.write_all_at(&vec![0; usize::try_from(to - from)?], from)?;
                loss.files = 1;
                loss.torn_sectors += 1;
            }
        }
    }
    Ok(loss)
}
