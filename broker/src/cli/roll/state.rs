//! How far a roll is, in a file: what is done is not done again after an interruption.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CliError;

/// What the file holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    cluster_id: String,
    pending: Vec<i32>,
    under_way: Option<(i32, i64)>,
}

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;

/// How far a roll is; each change is in the file when it returns.
#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
    cluster_id: String,
    /// Who is not restarted yet.
    pub(super) pending: Vec<i32>,
    /// Whose turn it is, and the broker epoch that it had before.
    pub(super) under_way: Option<(i32, i64)>,
}

impl State {
    /// A new roll; refused while the file tells of another one.
    pub(super) fn begin(
        file: &Path,
        cluster_id: &str,
        pending: Vec<i32>,
    ) -> Result<Self, CliError> {
        if file.exists() {
            return Err(CliError::Refused(format!(
                "{0} tells of a roll that is not finished: go on with --resume, or remove it and begin anew",
                file.display()
            )));
        }
        let cluster_id = cluster_id.to_owned();
        let state = Self { file: file.to_owned(), cluster_id, pending, under_way: None };
        state.store()?;
        Ok(state)
    }

    /// The roll that the file tells of.
    pub(super) fn read(file: &Path, cluster_id: &str) -> Result<Self, CliError> {
        let refuse = |why: String| CliError::Refused(format!("{}: {why}", file.display()));
        let text = fs::read_to_string(file)
            .map_err(|error| refuse(format!("{error}; there is no roll to go on with")))?;
        let stored: Stored = serde_json::from_str(&text)
            .map_err(|error| refuse(format!("it is no state of a roll ({error})")))?;
        if stored.version > VERSION {
            return Err(refuse(format!(
                "version {} was written by a newer barnabas",
                stored.version
            )));
        }
        if stored.cluster_id != cluster_id {
            return Err(refuse(format!(
                "it is of cluster {}, not of {cluster_id}",
                stored.cluster_id
            )));
        }
        let Stored { cluster_id, pending, under_way, .. } = stored;
        Ok(Self { file: file.to_owned(), cluster_id, pending, under_way })
    }

    /// It is the turn of a broker, which has this epoch.
    pub(super) fn goes(&mut self, id: i32, epoch: i64) -> Result<(), CliError> {
        self.under_way = Some((id, epoch));
        self.store()
    }

    /// A broker is back.
    pub(super) fn done(&mut self, id: i32) -> Result<(), CliError> {
        self.under_way = None;
        self.pending.retain(|other| *other != id);
        self.store()
    }

    /// All are.
    pub(super) fn end(self) -> Result<(), CliError> {
        fs::remove_file(&self.file).map_err(|error| self.failed(&error))
    }

    fn store(&self) -> Result<(), CliError> {
        let stored = Stored {
            version: VERSION,
            cluster_id: self.cluster_id.clone(),
            pending: self.pending.clone(),
            under_way: self.under_way,
        };
        let text = serde_json::to_string(&stored).map_err(|error| self.failed(&error))?;
        let new = self.file.with_extension("new");
        let written = fs::File::create(&new).and_then(|mut file| {
            writeln!(file, "{text}")?;
            file.sync_all()?;
            fs::rename(&new, &self.file)
        });
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> CliError {
        CliError::Refused(format!(
            "cannot write {}: {error}; name another place with --state",
            self.file.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_is_gone_on_with_where_it_was() {
        let file = std::env::temp_dir().join(format!("barnabas-roll-{}.json", std::process::id()));
        let _ = fs::remove_file(&file);
        assert!(State::read(&file, "c").is_err());
        let mut state = State::begin(&file, "c", vec![1, 2]).unwrap();
        assert!(State::begin(&file, "c", vec![1]).unwrap_err().to_string().contains("--resume"));
        state.goes(2, 77).unwrap();
        let read = State::read(&file, "c").unwrap();
        assert_eq!((read.pending, read.under_way), (vec![1, 2], Some((2, 77))));
        state.done(2).unwrap();
        let read = State::read(&file, "c").unwrap();
        assert_eq!((read.pending, read.under_way), (vec![1], None));
        assert!(State::read(&file, "d").unwrap_err().to_string().contains("cluster c"));
        state.end().unwrap();
        assert!(!file.exists());
        fs::write(&file, r#"{"version":2,"cluster_id":"c","pending":[],"under_way":null}"#)
            .unwrap();
        assert!(State::read(&file, "c").unwrap_err().to_string().contains("newer"));
        fs::remove_file(&file).unwrap();
    }
}
