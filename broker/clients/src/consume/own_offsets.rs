//! Offsets kept by the consumer itself, in step with its result: a result is in the output file exactly once, whatever happens.
//!
//! The file says how long the output is and which offset comes next. It is replaced after the output was synced, so that after any
//! crash it speaks of an output that is there; what lies behind that length is the work of a run that did not get so far, and is cut.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    topic: String,
    /// Length of the output file that belongs to these offsets.
    output_bytes: u64,
    /// Next offset of each partition, exclusive end of what is in the output.
    offsets: BTreeMap<i32, i64>,
}

/// An output file, and the offsets that belong to it.
#[derive(Debug)]
pub(super) struct OwnOffsets {
    path: PathBuf,
    output: File,
    stored: Stored,
}

impl OwnOffsets {
    /// Opens both, and cuts what the output has beyond the offsets.
    ///
    /// # Errors
    /// They cannot be read or belong to another topic, or the output is shorter than the offsets say.
    pub(super) fn open(path: &Path, output: &Path, topic: &str) -> io::Result<Self> {
        let refused = |text: String| Err(io::Error::other(text));
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(output)?;
        // A second consumer with the same files would undo this one's work. Before the offsets are read: what another one
        // still adds to the output would be cut.
        if file.try_lock().is_err() {
            return refused(format!("{} is in use by another process", output.display()));
        }
        let stored = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Stored { topic: topic.to_owned(), ..Stored::default() }
            }
            Err(error) => return Err(error),
            Ok(bytes) => serde_json::from_slice::<Stored>(&bytes)?,
        };
        if stored.topic != topic {
            return refused(format!(
                "{} is of topic '{}'; name another file",
                path.display(),
                stored.topic
            ));
        }
        let len = file.metadata()?.len();
        if len < stored.output_bytes {
            return refused(format!(
                "{} has {len} bytes, and {} says that there are {}; it is not the output that belongs to these offsets",
                output.display(),
                path.display(),
                stored.output_bytes
            ));
        }
        file.set_len(stored.output_bytes)?;
        file.seek(SeekFrom::Start(stored.output_bytes))?;
        Ok(Self { path: path.to_owned(), output: file, stored })
    }

    /// The next offset of each partition.
    pub(super) fn offsets(&self) -> &BTreeMap<i32, i64> {
        &self.stored.offsets
    }

    /// Adds a result and moves the offsets: both or, after a crash in between, neither.
    ///
    /// # Errors
    /// One cannot be written; the next open cuts what was.
    pub(super) fn store(&mut self, result: &[u8], offsets: &BTreeMap<i32, i64>) -> io::Result<()> {
        self.output.write_all(result)?;
        self.output.sync_data()?;
        let mut stored = self.stored.clone();
        stored.output_bytes += result.len() as u64;
        stored.offsets.extend(offsets);
        files::replace(&self.path, &serde_json::to_vec(&stored)?)?;
        self.stored = stored;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn place(name: &str) -> (PathBuf, PathBuf) {
        let directory =
            std::env::temp_dir().join(format!("barnabas-own-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        (directory.join("offsets"), directory.join("output"))
    }

    #[test]
    fn what_was_written_without_its_offsets_is_cut() {
        let (path, output) = place("cut");
        let mut own = OwnOffsets::open(&path, &output, "t").unwrap();
        own.store(b"a\nb\n", &BTreeMap::from([(0, 2)])).unwrap();
        // A crash after the result and before the offsets.
        own.output.write_all(b"c\n").unwrap();
        drop(own);
        assert_eq!(fs::read(&output).unwrap(), b"a\nb\nc\n");
        let mut own = OwnOffsets::open(&path, &output, "t").unwrap();
        assert_eq!(own.offsets(), &BTreeMap::from([(0, 2)]));
        own.store(b"c\n", &BTreeMap::from([(0, 3), (1, 7)])).unwrap();
        drop(own);
        assert_eq!(fs::read(&output).unwrap(), b"a\nb\nc\n");
        assert_eq!(
            OwnOffsets::open(&path, &output, "t").unwrap().offsets(),
            &BTreeMap::from([(0, 3), (1, 7)])
        );
    }

    #[test]
    fn offsets_without_their_output_are_refused() {
        let (path, output) = place("refused");
        let mut own = OwnOffsets::open(&path, &output, "t").unwrap();
        own.store(b"a\n", &BTreeMap::from([(0, 1)])).unwrap();
        let error = OwnOffsets::open(&path, &output, "t").unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
        let error = OwnOffsets::open(&path, &output, "u").unwrap_err();
        assert!(error.to_string().contains("in use"), "its offsets may change: {error}");
        drop(own);
        let error = OwnOffsets::open(&path, &output, "u").unwrap_err();
        assert!(error.to_string().contains("'t'"), "{error}");
        fs::write(&output, b"").unwrap();
        let error = OwnOffsets::open(&path, &output, "t").unwrap_err();
        assert!(error.to_string().contains("has 0 bytes"), "{error}");
        fs::write(&path, b"{\"topic\": \"t\"}").unwrap();
        assert!(OwnOffsets::open(&path, &output, "t").is_err());
    }
}
