//! Real input: the lines of files as they are, with their duplicates, empty lines and odd bytes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// Lines of real files, in one buffer.
#[derive(Debug, Default)]
pub struct Corpus {
    bytes: Vec<u8>,
    /// End of each line in `bytes`, exclusive, without the line feed.
    ends: Vec<usize>,
    /// How many files were read.
    pub files: usize,
    /// How many times the files were gone through; more than once only if they had too few lines.
    pub rounds: usize,
}

impl Corpus {
    /// Whole files ending in `.rs` below `folder`, in the order of their paths, until there are at least `lines_min` lines.
    /// Files are taken again from the first if there are not enough.
    ///
    /// # Errors
    /// No line was found.
    pub fn of_rust_sources(folder: &Path, lines_min: usize) -> Outcome<Self> {
        let mut paths = Vec::new();
        collect(folder, &mut paths);
        paths.sort();
        let mut corpus = Self::default();
        while corpus.len() < lines_min {
            let before = corpus.len();
            corpus.rounds += 1;
            for path in &paths {
                if corpus.len() >= lines_min {
                    break;
                }
                // A file that vanished meanwhile is not needed.
                if let Ok(text) = fs::read(path) {
                    corpus.add(&text);
                    corpus.files += 1;
                }
            }
            if corpus.len() == before {
                return Err(format!("no lines of *.rs files below {}", folder.display()).into());
            }
        }
        Ok(corpus)
    }

    /// The lines of a text; what follows the last line feed is a line too, if there is anything.
    pub fn add(&mut self, text: &[u8]) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        for line in text.split(|byte| *byte == b'\n') {
            self.bytes.extend_from_slice(line);
            self.ends.push(self.bytes.len());
        }
    }

    /// Number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all lines, without line feeds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// One line, without its line feed.
    ///
    /// # Panics
    /// There is no such line.
    #[must_use]
    pub fn line(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// How many lines hold a byte that is not printable ASCII (tabs not counted).
    #[must_use]
    pub fn odd_lines(&self) -> usize {
        let odd = |byte: &u8| !(byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t'));
        (0..self.len()).filter(|index| self.line(*index).iter().any(odd)).count()
    }
}

/// The share of one partition: every `of`-th line from `index` on. The position in the share is the record's sequence.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// All lines.
    pub corpus: &'a Corpus,
    /// Index of the partition.
    pub index: usize,
    /// Number of partitions.
    pub of: usize,
}

impl<'a> Share<'a> {
    /// Number of lines in the share.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.corpus.len() + self.of - 1 - self.index) / self.of
    }

    /// Whether the share is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The line with this sequence, `None` if the share is shorter.
    #[must_use]
    pub fn line(&self, sequence: usize) -> Option<&'a [u8]> {
        (sequence < self.len()).then(|| self.corpus.line(sequence * self.of + self.index))
    }
}

/// Where cargo keeps the sources of the crates that this project is built from.
#[must_use]
pub fn cargo_registry() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo")
    });
    home.join("registry/src")
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        // Links are not followed: a loop of them would never end.
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_dir() {
            collect(&path, found);
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_empty_ones_and_odd_bytes() {
        let mut corpus = Corpus::default();
        corpus.add(b"a\n\n\xff\x00b\r\n");
        corpus.add(b"no feed");
        let lines: Vec<&[u8]> = (0..corpus.len()).map(|i| corpus.line(i)).collect();
        assert_eq!(lines, [&b"a"[..], b"", b"\xff\x00b\r", b"no feed"]);
        assert_eq!(corpus.odd_lines(), 1);
        let share = Share { corpus: &corpus, index: 1, of: 3 };
        assert_eq!((share.len(), share.line(0), share.line(1)), (1, Some(&b""[..]), None));
    }
}
