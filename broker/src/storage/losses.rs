//! Loss records: whatever a log dropped, or had to stop counting on, as JSON lines in one durable file of the broker.
//!
//! `barnabas.losses.jsonl` in the first log directory that takes it; above 16 MiB it becomes
//! `barnabas.losses.jsonl.1`, and what was that before is gone. One object a line:
//!
//! | field | what |
//! |---|---|
//! | `time_ms` | when it was noticed, milliseconds since 1970 |
//! | `topic`, `partition`, `topic_id` | whose records |
//! | `from` | first offset, inclusive |
//! | `to` | end, exclusive; null: the bytes do not tell |
//! | `at_least_to` | what is below is gone for sure, exclusive |
//! | `bytes` | of segment files; 0 if they were missing already |
//! | `last_epoch` | newest leader epoch among the records, null if unknown |
//! | `leader_epoch` | that of the replica when it was noticed, null before it knew one |
//! | `high_watermark` | that of the replica at that moment, exclusive; null if unknown |
//! | `class` | `committed`: some of it was below the high watermark of this replica; `uncommitted`: none was, so that this replica knows of no acks=all among it; null if unknown |
//! | `cause` | `damaged`, `missing`, `truncated`, `reset`, `failed_sync`, `host_crash` and `unclean_election` (whether anything is gone is not known) |
//! | `detail` | in words, where there is more to say |
//!
//! A record says what *this replica* lost. Whether the cluster did is another matter: others may have the records.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barnabas_log::{Disk, DiskFile, Loss, LossCause};
use barnabas_types::{Incarnation, LeaderEpoch, Offset, TopicPartition};
use serde_json::json;

use super::Storage;
use crate::clock::unix_ms;

/// Name of the file.
pub const LOSSES: &str = "barnabas.losses.jsonl";
/// A file that has grown beyond this is rotated.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Records that wait to be written. Beyond it they are only logged, and their number is written.
const QUEUE_MAX: usize = 4096;
/// How long a write that failed (a full disk) waits for the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// How long the last records may take when the broker stops.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// What a replica lost, and what it knew at that moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Whose records.
    pub partition: TopicPartition,
    /// Of which life of the topic.
    pub incarnation: Incarnation,
    /// What is gone and why.
    pub loss: Loss,
    /// The replica's leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The replica's high watermark, exclusive.
    pub high_watermark: Option<Offset>,
}

impl Lost {
    fn class(&self) -> Option<&'static str> {
        if self.loss.cause == LossCause::UncleanElection {
            return None; // of what others had
        }
        let mark = self.high_watermark?;
        Some(if self.loss.from < mark { "committed" } else { "uncommitted" })
    }

    /// One line with its end.
    fn line(&self, time_ms: i64) -> String {
        let loss = &self.loss;
        let line = json!({
            "time_ms": time_ms,
            "topic": self.partition.topic.as_str(),
            "partition": self.partition.partition,
            "topic_id": self.incarnation.topic_id.to_string(),
            "from": loss.from.0,
            "to": loss.to.map(|to| to.0),
            "at_least_to": loss.at_least_to.0,
            "bytes": loss.bytes,
            "last_epoch": loss.last_epoch.map(|epoch| epoch.0),
            "leader_epoch": self.leader_epoch.map(|epoch| epoch.0),
            "high_watermark": self.high_watermark.map(|mark| mark.0),
            "class": self.class(),
            "cause": cause(&loss.cause),
            "detail": detail(&loss.cause),
        });
        format!("{line}\n")
    }

    fn log(&self) {
        let (topic, partition) = (&self.partition.topic, self.partition.partition);
        let loss = &self.loss;
        let said = match loss.cause {
            LossCause::HostCrash => "the host crashed: this replica may have lost records",
            LossCause::UncleanElection => {
                "this replica leads without having been in the ISR: records may be lost"
            }
            _ => "this replica lost records",
        };
        tracing::warn!(
            target: "state_change", %topic, partition,
            leader_epoch = self.leader_epoch.map_or(-1, |epoch| epoch.0),
            last_epoch = loss.last_epoch.map_or(-1, |epoch| epoch.0),
            from = %loss.from, to = loss.to.map_or(-1, |to| to.0), at_least_to = %loss.at_least_to,
            bytes = loss.bytes, cause = cause(&loss.cause), class = self.class().unwrap_or("unknown"),
            detail = detail(&loss.cause).unwrap_or_default(), "{said}"
        );
    }
}

fn cause(cause: &LossCause) -> &'static str {
    match cause {
        LossCause::Damaged(_) => "damaged",
        LossCause::Missing => "missing",
        LossCause::Truncated => "truncated",
        LossCause::Reset => "reset",
        LossCause::FailedSync => "failed_sync",
        LossCause::HostCrash => "host_crash",
        LossCause::UncleanElection => "unclean_election",
        _ => "other",
    }
}

fn detail(cause: &LossCause) -> Option<String> {
    match cause {
        LossCause::Damaged(error) => Some(error.to_string()),
        LossCause::UncleanElection => Some(
            "no ISR member could lead: what they acknowledged from here on may be lost".to_owned(),
        ),
        LossCause::HostCrash => {
            Some("what was appended after the last flush may be gone without a trace".to_owned())
        }
        _ => None,
    }
}

/// Takes records from any thread without blocking; one thread writes them.
#[derive(Debug, Default)]
pub struct Losses {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// Records that found no room.
    overflown: u64,
    stopped: bool,
    written: u64,
}

impl Losses {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record: it is logged now and written soon.
    pub fn add(&self, lost: &Lost) {
        lost.log();
        let line = lost.line(unix_ms());
        let mut state = self.lock();
        if state.lines.len() < QUEUE_MAX {
            state.lines.push_back(line);
        } else {
            state.overflown += 1;
        }
        drop(state);
        self.wake.notify_all();
    }

    /// Records that are durable.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.lock().written
    }

    /// Starts the thread that writes them, into the first directory that takes them.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn start(self: &Arc<Self>, storage: Arc<Storage>) -> io::Result<JoinHandle<()>> {
        let losses = self.clone();
        let work = move || losses.run(&storage);
        thread::Builder::new().name("losses".to_owned()).spawn(work)
    }

    /// Ends the thread once everything is written, or cannot be. Blocks for a moment.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.wake.notify_all();
        while !state.lines.is_empty() {
            let waited = self.wake.wait_timeout(state, STOP_PATIENCE);
            let (woken, late) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if late.timed_out() {
                tracing::error!(records = state.lines.len(), "loss records could not be written");
                return;
            }
        }
    }

    fn run(&self, storage: &Storage) {
        let mut refused = false;
        let mut state = self.lock();
        loop {
            if state.lines.is_empty() {
                if state.stopped {
                    return;
                }
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let count = state.lines.len();
            let mut text: String = state.lines.iter().map(String::as_str).collect();
            let overflown = state.overflown;
            if overflown > 0 {
                let _ = writeln!(
                    text,
                    "{}",
                    json!({ "time_ms": unix_ms(), "cause": "overflow", "records": overflown })
                );
            }
            drop(state);
            let written = write(storage, text.as_bytes());
            state = self.lock();
            match written {
                Ok(()) => {
                    state.lines.drain(..count);
                    state.overflown -= overflown;
                    state.written += count as u64;
                    refused = false;
                    self.wake.notify_all();
                }
                Err(error) => {
                    if !refused {
                        tracing::error!(%error, "loss records cannot be written now; it is tried again and again");
                    }
                    refused = true;
                    if state.stopped {
                        return;
                    }
                    let waited = self.wake.wait_timeout(state, RETRY);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// Appends to the file in the first directory that takes it.
fn write(storage: &Storage, text: &[u8]) -> io::Result<()> {
    let mut result = Err(io::Error::other("no log directory is online"));
    for log_dir in storage.directories().iter().filter_map(|directory| directory.usable()) {
        result = append(log_dir.disk(), &log_dir.path().join(LOSSES), text);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn append(disk: &Disk, path: &Path, text: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut is_new = !path.exists();
    let mut file = disk.open_or_create(path)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        disk.rename(path, &rotated(path))?;
        file = disk.create(path)?;
        is_new = true;
    }
    let end = end_of_last_line(&file)?;
    file.set_len(end)?;
    file.write_all_at(text, end)?;
    file.sync_data()?;
    if is_new { disk.sync_dir(parent) } else { Ok(()) }
}

/// The file that a full one becomes.
fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// A crash, or a disk that got full, may have left half a line.
fn end_of_last_line(file: &DiskFile) -> io::Result<u64> {
    use std::os::unix::fs::FileExt as _;
    const STEP: u64 = 4096;
    let mut end = file.metadata()?.len();
    while end > 0 {
        let from = end.saturating_sub(STEP);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        file.read_exact_at(&mut bytes, from)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use barnabas_log::Op;
    use rustix::io::Errno;
    use serde_json::Value;

    use super::*;
    use crate::testing::{Disk, LIFE, Refusals, tp};

    fn lost(from: i64, cause: LossCause) -> Lost {
        Lost {
            partition: tp("t", 3),
            incarnation: LIFE,
            loss: Loss {
                from: Offset(from),
                to: Some(Offset(20)),
                at_least_to: Offset(20),
                bytes: 700,
                last_epoch: Some(LeaderEpoch(4)),
                cause,
            },
            leader_epoch: Some(LeaderEpoch(5)),
            high_watermark: Some(Offset(10)),
        }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Adds records and waits until they are written.
    fn write_all(storage: &Arc<Storage>, records: &[Lost]) {
        let losses = Arc::new(Losses::default());
        let thread = losses.start(storage.clone()).unwrap();
        records.iter().for_each(|lost| losses.add(lost));
        losses.stop();
        thread.join().unwrap();
        assert_eq!(losses.written(), records.len() as u64);
    }

    #[test]
    fn records_are_lines_that_say_what_is_known() {
        let disk = Disk::new();
        let path = disk.temp.path().join(LOSSES);
        write_all(&disk.storage, &[lost(9, LossCause::Truncated), lost(10, LossCause::FailedSync)]);
        // A crash in the middle of a line.
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"time_ms\":1");
        fs::write(&path, text).unwrap();
        write_all(&disk.storage, &[lost(11, LossCause::Reset)]);
        let found = lines(&path);
        let expected = json!({
            "time_ms": found[0]["time_ms"], "topic": "t", "partition": 3,
            "topic_id": LIFE.topic_id.to_string(), "from": 9, "to": 20, "at_least_to": 20, "bytes": 700,
            "last_epoch": 4, "leader_epoch": 5, "high_watermark": 10, "class": "committed",
            "cause": "truncated", "detail": null,
        });
        assert_eq!(found[0], expected);
        assert_eq!(
            (&found[1]["class"], &found[1]["cause"]),
            (&json!("uncommitted"), &json!("failed_sync"))
        );
        assert_eq!((found.len(), &found[2]["from"]), (3, &json!(11)));
    }

    #[test]
    fn a_directory_that_refuses_gives_way_to_the_next() {
        let (refusals, files) = Refusals::disk();
        let disk = Disk::with_directories(files, &["a", "b"]);
        refusals.set(|op| {
            let in_a = |path: &Path| path.to_str().unwrap().contains("/a/");
            matches!(op, Op::Write { path, .. } if in_a(path)).then_some(Errno::NOSPC)
        });
        write_all(&disk.storage, &[lost(1, LossCause::Missing)]);
        assert!(lines(&disk.temp.path().join("a").join(LOSSES)).is_empty());
        assert_eq!(lines(&disk.temp.path().join("b").join(LOSSES)).len(), 1);
    }

    #[test]
    fn a_full_file_is_rotated_once() {
        let disk = Disk::new();
        let path = disk.temp.path().join(LOSSES);
        let file = fs::File::create(&path).unwrap();
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        write_all(&disk.storage, &[lost(1, LossCause::Missing)]);
        assert_eq!(lines(&path).len(), 1);
        assert_eq!(fs::metadata(rotated(&path)).unwrap().len(), FILE_BYTES_MAX + 1);
    }
}
