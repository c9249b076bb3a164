//! How far into its source a producer has been acknowledged without a gap, so that the next one begins there.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;

/// The longest run of records, from the first on, that have been acknowledged.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    /// Records acknowledged without a gap; exclusive: the index of the first that is not.
    done: u64,
    /// Acknowledged behind a gap. Bounded by the library's buffer: what is acknowledged was in it.
    ahead: BTreeSet<u64>,
}

impl Prefix {
    pub(super) fn from(done: u64) -> Self {
        Self { done, ahead: BTreeSet::new() }
    }

    pub(super) fn acknowledged(&mut self, index: u64) {
        if index >= self.done {
            self.ahead.insert(index);
        }
        while self.ahead.remove(&self.done) {
            self.done += 1;
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    topic: String,
    acknowledged: u64,
}

/// The file in which the prefix is kept.
#[derive(Debug)]
pub(super) struct ResumeFile {
    path: PathBuf,
    topic: String,
    stored: u64,
}

impl ResumeFile {
    /// Reads how far an earlier run came; a file that is not there means not at all.
    pub(super) fn open(path: &Path, topic: &str) -> io::Result<Self> {
        let stored = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
            Ok(bytes) => {
                let stored: Stored = serde_json::from_slice(&bytes)?;
                if stored.topic != topic {
                    return Err(io::Error::other(format!(
                        "it is of topic '{}'; name another file",
                        stored.topic
                    )));
                }
                stored.acknowledged
            }
        };
        Ok(Self { path: path.to_owned(), topic: topic.to_owned(), stored })
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.stored
    }

    /// Writes it if it has changed.
    pub(super) fn store(&mut self, prefix: &Prefix) -> io::Result<()> {
        if prefix.done() == self.stored {
            return Ok(());
        }
        let stored = Stored { topic: self.topic.clone(), acknowledged: prefix.done() };
        files::replace(&self.path, &serde_json::to_vec(&stored)?)?;
        self.stored = prefix.done();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_waits_for_the_gap_to_close() {
        let mut prefix = Prefix::from(10);
        prefix.acknowledged(11);
        prefix.acknowledged(13);
        assert_eq!(prefix.done(), 10);
        prefix.acknowledged(10);
        assert_eq!(prefix.done(), 12);
        prefix.acknowledged(12);
        prefix.acknowledged(3);
        assert_eq!(
            (prefix.done(), prefix.ahead.len()),
            (14, 0),
            "what was done before changes nothing"
        );
    }

    #[test]
    fn the_file_belongs_to_one_topic() {
        let path = std::env::temp_dir().join(format!("barnabas-resume-{}", std::process::id()));
        let mut file = ResumeFile::open(&path, "t").unwrap();
        assert_eq!(file.acknowledged(), 0);
        file.store(&Prefix::from(7)).unwrap();
        assert_eq!(ResumeFile::open(&path, "t").unwrap().acknowledged(), 7);
        assert!(ResumeFile::open(&path, "u").unwrap_err().to_string().contains("'t'"));
        std::fs::write(&path, b"{}").unwrap();
        assert!(ResumeFile::open(&path, "t").is_err(), "what is not understood is not taken for 0");
        std::fs::remove_file(&path).unwrap();
    }
}
