//! The shim's journal, read back: what is durable of each file, and which changes may be undone. `shim/src/journal.rs` defines it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Fault, Outcome};

/// A journal with everything that syncs have covered taken out.
pub(super) struct Journal {
    directory: PathBuf,
    /// By inode.
    pub(super) files: HashMap<u64, FileState>,
    /// In the order of their numbers.
    pub(super) names: Vec<NameChange>,
}

/// What is known of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileState {
    /// Bytes from the start that are on the disk.
    pub(super) durable: u64,
    /// Changes below that since, in order.
    pub(super) changes: Vec<DataChange>,
    /// What a failed sync should have covered, from (inclusive) and to (exclusive): it does not get to the disk unless written again.
    failed: Option<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct DataChange {
    pub(super) number: u64,
    pub(super) what: Data,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Data {
    Cut { to: u64 },
    Overwritten { at: u64 },
}

impl Data {
    /// Where the bytes that were kept belong.
    pub(super) fn at(&self) -> u64 {
        match self {
            Self::Cut { to } => *to,
            Self::Overwritten { at } => *at,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct NameChange {
    pub(super) number: u64,
    /// Inode of the directory whose sync makes it durable.
    pub(super) directory: u64,
    /// In that directory; of a rename the new one.
    pub(super) name: String,
    pub(super) what: Name,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    Created { ino: u64 },
    DirectoryCreated { ino: u64 },
    Unlinked,
    DirectoryRemoved { ino: u64 },
    Renamed { ino: u64, from_directory: u64, from: String },
}

impl FileState {
    fn synced(&mut self, since: u64, len: u64) {
        for change in self.changes.extract_if(.., |change| change.number < since) {
            if let Data::Cut { to } = change.what {
                self.durable = self.durable.min(to);
            }
        }
        let reached = self.failed.map_or(len, |(from, _)| len.min(from));
        self.durable = self.durable.max(reached);
    }

    fn cut(&mut self, number: u64, to: u64) {
        self.failed = self.failed.map(|(from, end)| (from, end.min(to))).filter(|(a, b)| a < b);
        self.changes.push(DataChange { number, what: Data::Cut { to } });
    }

    fn overwritten(&mut self, number: u64, at: u64, len: u64) {
        // Written again from its start on, piece by piece.
        self.failed = self
            .failed
            .map(|(from, end)| if at <= from { (from.max(at + len), end) } else { (from, end) })
            .filter(|(a, b)| a < b);
        self.changes.push(DataChange { number, what: Data::Overwritten { at } });
    }

    fn sync_failed(&mut self, size: u64) {
        let (from, to) = self.failed.unwrap_or((self.durable, size));
        self.failed = Some((from.min(self.durable), to.max(size))).filter(|(a, b)| a < b);
    }
}

impl Journal {
    pub(super) fn read(directory: &Path) -> Outcome<Self> {
        let text = match fs::read(directory.join("journal")) {
            Ok(bytes) => String::from_utf8(bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        let mut journal =
            Self { directory: directory.to_owned(), files: HashMap::new(), names: Vec::new() };
        for line in text.lines() {
            journal
                .entry(line)
                .ok_or_else(|| Fault::from(format!("not an entry of the journal: '{line}'")))?;
        }
        journal.names.sort_by_key(|change| change.number);
        Ok(journal)
    }

    fn entry(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(7, ' ');
        let kind = words.next()?;
        let name_at = match kind {
            "C" | "D" | "U" | "X" => 3,
            "R" => 5,
            _ => 6,
        };
        let mut numbers = Vec::new();
        let mut rest = line.get(2..)?;
        while numbers.len() < name_at && !rest.is_empty() {
            let (number, after) = rest.split_once(' ').unwrap_or((rest, ""));
            numbers.push(number.parse::<u64>().ok()?);
            rest = after;
        }
        let name = |directory, number, name: &str, what| NameChange {
            number,
            directory,
            name: name.to_owned(),
            what,
        };
        match (kind, numbers.as_slice()) {
            ("O", &[_, ino, size]) => {
                let first = FileState { durable: size, ..FileState::default() };
                self.files.entry(ino).or_insert(first);
            }
            ("C", &[number, directory, ino]) => {
                self.files.insert(ino, FileState::default());
                self.names.push(name(directory, number, rest, Name::Created { ino }));
            }
            ("D", &[number, directory, ino]) => {
                self.names.push(name(directory, number, rest, Name::DirectoryCreated { ino }));
            }
            ("U", &[number, directory, _]) => {
                self.names.push(name(directory, number, rest, Name::Unlinked));
            }
            ("X", &[number, directory, ino]) => {
                self.names.push(name(directory, number, rest, Name::DirectoryRemoved { ino }));
            }
            ("R", &[number, from_directory, directory, ino, _]) => {
                let (from, to) = rest.split_once('/')?;
                let what = Name::Renamed { ino, from_directory, from: from.to_owned() };
                self.names.push(name(directory, number, to, what));
            }
            ("T", &[number, ino, _, to]) => self.files.entry(ino).or_default().cut(number, to),
            ("W", &[number, ino, at, len]) => {
                self.files.entry(ino).or_default().overwritten(number, at, len);
            }
            ("S", &[_, since, ino, len]) => self.files.entry(ino).or_default().synced(since, len),
            ("E", &[_, ino, size]) => self.files.entry(ino).or_default().sync_failed(size),
            ("N", &[_, since, synced]) => {
                self.names.retain(|n| n.directory != synced || n.number >= since);
            }
            ("A", &[_, since]) => self.names.retain(|n| n.number >= since),
            _ => return None,
        }
        Some(())
    }

    fn kept(&self, number: u64) -> PathBuf {
        self.directory.join("kept").join(number.to_string())
    }

    /// Gives a file that lost its name this one; whether there was one.
    pub(super) fn take_kept(&self, number: u64, path: &Path) -> io::Result<bool> {
        match fs::rename(self.kept(number), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// The bytes that stood where an entry changed a file.
    pub(super) fn kept_bytes(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.kept(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Begins anew.
    pub(super) fn clear(&self) -> io::Result<()> {
        for name in ["journal", "kept"] {
            let path = self.directory.join(name);
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            } else if path.exists() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(lines: &[&str]) -> Journal {
        let mut journal =
            Journal { directory: PathBuf::new(), files: HashMap::new(), names: Vec::new() };
        for line in lines {
            journal.entry(line).unwrap();
        }
        journal
    }

    #[test]
    fn a_sync_covers_what_came_before_it_and_nothing_else() {
        let journal = replay(&["C 1 2 7 a b", "C 2 2 8 c", "S 3 2 7 100", "N 5 2 2", "W 6 7 50 9"]);
        assert_eq!(journal.files[&7].durable, 100);
        assert_eq!(journal.files[&8].durable, 0);
        assert_eq!(journal.names.len(), 1, "the second creation came after the sync began");
        assert_eq!(journal.files[&7].changes.len(), 1);
        assert_eq!(replay(&["C 1 2 7 a b"]).names[0].name, "a b");
        assert!(replay(&["C 1 2 7 a", "A 3 2"]).names.is_empty());
    }

    #[test]
    fn a_cut_counts_once_it_is_synced() {
        let journal = replay(&["O 1 7 900", "T 2 7 900 300"]);
        assert_eq!(journal.files[&7].durable, 900);
        let journal = replay(&["O 1 7 900", "T 2 7 900 300", "S 3 3 7 300"]);
        assert_eq!(journal.files[&7], FileState { durable: 300, ..FileState::default() });
    }

    #[test]
    fn after_a_failed_sync_a_second_one_proves_nothing() {
        let failed = ["O 1 7 100", "E 2 7 300"];
        let again = |more: &[&str]| replay(&[&failed[..], more].concat()).files[&7].durable;
        assert_eq!(again(&["S 3 3 7 300"]), 100);
        assert_eq!(again(&["W 3 7 100 50", "W 4 7 150 150", "S 5 5 7 300"]), 300);
        assert_eq!(again(&["W 3 7 150 150", "S 5 5 7 300"]), 100);
        assert_eq!(again(&["T 3 7 300 100", "S 5 5 7 250"]), 250);
    }
}
