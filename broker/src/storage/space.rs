//! Looks at the room of every log directory and says when it changes: before a disk is full in earnest, which every append
//! would find out for itself, produces are refused and the rest is kept for followers, checkpoints and deletions.

use super::{Directory, Room, Storage};

impl Storage {
    /// Looks at each directory once; says in the log what changed. Blocks on the file systems.
    pub fn look_at_space(&self, reserve_bytes: u64) {
        for directory in self.directories() {
            if directory.usable().is_none() {
                continue;
            }
            match rustix::fs::statvfs(directory.path()) {
                Ok(found) => {
                    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
                    directory.set_total(found.f_blocks.saturating_mul(found.f_frsize));
                    let before = directory.set_free(free_bytes, reserve_bytes);
                    say(directory, before, free_bytes, reserve_bytes);
                }
                Err(error) => {
                    tracing::debug!(directory = %directory.path().display(), %error, "the free space cannot be told");
                }
            }
        }
    }
}

fn say(directory: &Directory, before: Room, free_bytes: u64, reserve_bytes: u64) {
    let (now, path) = (directory.room(), directory.path().display());
    if now == before {
        return;
    }
    match now {
        Room::Enough => {
            tracing::info!(directory = %path, free_bytes, reserve_bytes, "the log directory has room again");
        }
        Room::Low if before == Room::Exhausted => {
            tracing::warn!(directory = %path, free_bytes, reserve_bytes, "the log directory has little room; produces are taken again");
        }
        Room::Low => {
            tracing::warn!(directory = %path, free_bytes, reserve_bytes, "the log directory has little room: below log.dir.reserve.bytes its leaders will refuse produces");
        }
        Room::Exhausted => {
            tracing::error!(directory = %path, free_bytes, reserve_bytes, "the log directory is full but for its reserve: its leaders refuse produces until there is room again");
        }
    }
}
