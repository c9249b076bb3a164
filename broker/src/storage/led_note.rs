//! What a leader notes beside its log, so that its next process still knows what records had been acknowledged at.
//!
//! A file in the partition's directory, `barnabas.led`: one JSON object with `boot_id`, `epoch` (the last one in which the replica led),
//! `from` (the first offset that it appended), and whether it acknowledged anything at acks=1 (`acks_one`) and at acks=all (`acks_all`).
//! It is written with the first append of a leadership and the first acknowledgement of each kind, before that is sent, and never synced:
//! a process that dies leaves it in the page cache. After a boot of the host it says nothing.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use barnabas_types::{LeaderEpoch, LeaderEpochs, Offset, TopicPartition};
use serde_json::{Value, json};

use super::{Directory, Led};

const FILE: &str = "barnabas.led";
/// A larger file is none of these.
const BYTES_MAX: u64 = 4096;

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedNote {
    /// The last epoch in which the replica led.
    pub epoch: LeaderEpoch,
    /// The first offset that it appended, in this epoch or in those directly before.
    pub from: Offset,
    /// It has acknowledged something at acks=1.
    pub acks_one: bool,
    /// It has acknowledged something at acks=all.
    pub acks_all: bool,
}

impl LedNote {
    /// Writes it. What cannot be written is removed, so that nothing old is taken for the present.
    ///
    /// # Errors
    /// From the operating system.
    pub fn write(&self, directory: &Directory, partition: &TopicPartition) -> io::Result<()> {
        let Some(log_dir) = directory.usable() else {
            return Err(io::Error::other("the log directory is offline"));
        };
        let Self { epoch, from, acks_one, acks_all } = self;
        let text = json!({
            "boot_id": boot_id(), "epoch": epoch.0, "from": from.0, "acks_one": acks_one, "acks_all": acks_all,
        });
        let text = format!("{text}\n");
        let (disk, path) = (log_dir.disk(), path(directory, partition));
        let written = disk.open_or_create(&path).and_then(|file| {
            file.write_all_at(text.as_bytes(), 0)?;
            // It may have been longer.
            file.set_len(text.len() as u64)
        });
        written.inspect_err(|_| drop(disk.remove_file(&path)))
    }

    /// What the process before has noted under the present boot of the host.
    #[must_use]
    pub fn read(directory: &Directory, partition: &TopicPartition) -> Option<Self> {
        let path = path(directory, partition);
        if fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        let noted: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        if boot_id().is_empty() || noted["boot_id"] != boot_id() {
            return None;
        }
        Some(Self {
            epoch: LeaderEpoch(noted["epoch"].as_i64()?.try_into().ok()?),
            from: Offset(noted["from"].as_i64()?),
            acks_one: noted["acks_one"].as_bool()?,
            acks_all: noted["acks_all"].as_bool()?,
        })
    }

    /// What it says of a log that ends at `log_end` and has these epochs. That anything was acknowledged at acks=1 is taken for all that
    /// was appended: an acknowledgement follows its append at once.
    #[must_use]
    pub fn led(&self, log_end: Offset, epochs: &LeaderEpochs) -> Led {
        let next = epochs.entries().iter().find(|entry| entry.epoch > self.epoch);
        let to = next.map_or(log_end, |entry| entry.start_offset.min(log_end));
        let from = self.from.min(to);
        Led {
            from,
            to: Some(to),
            acked_to: if self.acks_one { to } else { from },
            epoch: self.epoch,
            committed_unseen: self.acks_all,
        }
    }
}

fn path(directory: &Directory, partition: &TopicPartition) -> PathBuf {
    directory.path().join(partition.to_string()).join(FILE)
}

/// Under which boot of the host this process runs; empty: not known.
fn boot_id() -> &'static str {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    BOOT_ID.get_or_init(|| {
        let read = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        read.unwrap_or_default().trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use barnabas_log::Op;
    use barnabas_types::EpochStart;
    use rustix::io::Errno;

    use super::*;
    use crate::testing::{Disk, Refusals, node, tp};

    #[tokio::test]
    async fn what_was_noted_is_read_under_the_same_boot_and_never_when_it_is_old() {
        let (refusals, files) = Refusals::disk();
        let (node, disk) = (node(), Disk::on(files));
        let directory = disk.host(&node, tp("t", 0)).directory.clone();
        assert_eq!(LedNote::read(&directory, &tp("t", 0)), None);
        let (epoch, from) = (LeaderEpoch(1_000), Offset(700));
        let mut note = LedNote { epoch, from, acks_one: false, acks_all: true };
        note.write(&directory, &tp("t", 0)).unwrap();
        note.from = Offset(7);
        note.write(&directory, &tp("t", 0)).unwrap();
        assert_eq!(LedNote::read(&directory, &tp("t", 0)), Some(note), "shorter than before");
        let path = path(&directory, &tp("t", 0));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(boot_id(), "another")).unwrap();
        assert_eq!(LedNote::read(&directory, &tp("t", 0)), None, "the host was booted");
        fs::write(&path, &text).unwrap();
        refusals.set(|op| matches!(op, Op::Write { .. }).then_some(Errno::NOSPC));
        assert!(note.write(&directory, &tp("t", 0)).is_err());
        assert_eq!(LedNote::read(&directory, &tp("t", 0)), None, "nothing rather than the old");
    }

    #[test]
    fn a_note_speaks_of_what_its_leader_appended_alone() {
        let start = |epoch, start: i64| EpochStart {
            epoch: LeaderEpoch(epoch),
            start_offset: Offset(start),
        };
        let epochs: LeaderEpochs = [start(4, 0), start(6, 10)].into_iter().collect();
        let (epoch, from) = (LeaderEpoch(4), Offset(3));
        let note = LedNote { epoch, from, acks_one: true, acks_all: false };
        let led = note.led(Offset(20), &epochs);
        assert_eq!((led.from, led.to, led.acked_to), (Offset(3), Some(Offset(10)), Offset(10)));
        let none = LedNote { acks_one: false, ..note }.led(Offset(20), &epochs);
        assert_eq!((none.acked_to, none.committed_unseen), (Offset(3), false));
        let cut = note.led(Offset(2), &epochs);
        assert_eq!((cut.from, cut.to), (Offset(2), Some(Offset(2))), "it was cut since");
    }
}
