//! How much room a log directory has: looked at once a second, and counted down in between by what is appended, so that the
//! reserve is there when it is needed. Before a disk is full in earnest, which every append would find out for itself,
//! produces are refused and the rest is kept for followers, checkpoints and deletions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use barnabas_log::LogError;
use barnabas_types::Now;
use tokio::sync::Notify;

use super::Directory;

/// Longest time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two looks, however often an append finds no room.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// How often a shortage of file descriptors is told at most.
const TOLD_INTERVAL_MS: u64 = 10_000;
/// Nothing is known yet.
const UNKNOWN: u64 = u64::MAX;

/// How much room there is in a directory's file system, measured by `log.dir.reserve.bytes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Room {
    /// Twice the reserve or more.
    Enough = 0,
    /// Less than twice the reserve: somebody should see to it.
    Low = 1,
    /// Less than the reserve, or nothing: leaders refuse produces; followers, retention and deletions go on.
    Exhausted = 2,
}

impl Room {
    /// In one word, as it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::Low => "low",
            Self::Exhausted => "exhausted",
        }
    }

    fn of(free_bytes: u64, reserve_bytes: u64) -> Self {
        if free_bytes < reserve_bytes.max(1) {
            Self::Exhausted
        } else if free_bytes < reserve_bytes.saturating_mul(2) {
            Self::Low
        } else {
            Self::Enough
        }
    }
}

/// What is known of a directory's room.
#[derive(Debug)]
pub(super) struct Space {
    /// At the last look.
    free_bytes: AtomicU64,
    total_bytes: AtomicU64,
    reserve_bytes: AtomicU64,
    /// Appended since that look began. What retention and others change is known at the next one.
    appended_bytes: AtomicU64,
    /// An append has found no room since the last look.
    was_full: AtomicBool,
    /// The room that was told last.
    told: AtomicU8,
    /// Somebody wants to know more exactly.
    look: Notify,
    /// When a shortage of file descriptors was told last, and 0.
    descriptors_told_ms: AtomicU64,
}

impl Default for Space {
    fn default() -> Self {
        let unknown = || AtomicU64::new(UNKNOWN);
        Self {
            free_bytes: unknown(),
            total_bytes: unknown(),
            reserve_bytes: AtomicU64::new(0),
            appended_bytes: AtomicU64::new(0),
            was_full: AtomicBool::new(false),
            told: AtomicU8::new(Room::Enough as u8),
            look: Notify::new(),
            descriptors_told_ms: AtomicU64::new(0),
        }
    }
}

impl Space {
    fn free_bytes(&self) -> Option<u64> {
        let free = self.free_bytes.load(Ordering::Relaxed);
        let left = free.saturating_sub(self.appended_bytes.load(Ordering::Relaxed));
        (free != UNKNOWN).then_some(left)
    }

    fn room(&self) -> Room {
        if self.was_full.load(Ordering::Relaxed) {
            return Room::Exhausted;
        }
        let reserve_bytes = self.reserve_bytes.load(Ordering::Relaxed);
        self.free_bytes().map_or(Room::Enough, |free| Room::of(free, reserve_bytes))
    }

    /// Takes note of a look, before which so much had been appended.
    fn looked(&self, (free_bytes, total_bytes): (u64, u64), reserve_bytes: u64, appended: u64) {
        self.reserve_bytes.store(reserve_bytes, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        // What came while it looked may be in both: then there is more room than is believed, until the next look.
        self.appended_bytes.fetch_sub(appended, Ordering::Relaxed);
        self.was_full.store(false, Ordering::Relaxed);
    }
}

impl Directory {
    /// How much room there is, by the last look and what was appended since.
    #[must_use]
    pub fn room(&self) -> Room {
        self.space.room()
    }

    /// Whether leaders here refuse produces for want of room.
    #[must_use]
    pub fn refuses_produces(&self) -> bool {
        self.room() == Room::Exhausted
    }

    /// Bytes that are free, by the last look and what was appended since; `None` before the first.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.space.free_bytes()
    }

    /// Bytes of its file system, as of the last look; `None` before it.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        Some(self.space.total_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }

    /// So many bytes were appended to a log here. Where that leaves no room, somebody looks at once whether it is so.
    pub(crate) fn appended(&self, bytes: u64) {
        let before = self.room();
        self.space.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before != Room::Exhausted && self.room() == Room::Exhausted {
            self.space.look.notify_one();
        }
    }

    /// A log here was short of something ([`LogError::shortage`]): of room, and then there is none until somebody has looked,
    /// which is done at once, or of file descriptors.
    pub(crate) fn was_short(&self, now: Now, error: &LogError) {
        if matches!(error, LogError::Full(_)) {
            if !self.space.was_full.swap(true, Ordering::Relaxed) {
                self.space.look.notify_one();
            }
            return;
        }
        let (told, now_ms) = (&self.space.descriptors_told_ms, now.0.max(1));
        let last_ms = told.load(Ordering::Relaxed);
        if last_ms == 0 || now_ms.saturating_sub(last_ms) >= TOLD_INTERVAL_MS {
            told.store(now_ms, Ordering::Relaxed);
            tracing::warn!(directory = %self.path().display(), %error, "a log waits for a file descriptor");
        }
    }

    /// Looks at the room; says in the log what changed. Blocks on the file system.
    pub(crate) fn look_at_space(&self, reserve_bytes: u64) {
        if self.usable().is_none() {
            return;
        }
        let appended = self.space.appended_bytes.load(Ordering::Relaxed);
        match rustix::fs::statvfs(self.path()) {
            Ok(found) => {
                let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
                let (free, total) = (bytes(found.f_bavail), bytes(found.f_blocks));
                self.space.looked((free, total), reserve_bytes, appended);
                self.tell(Room::of(free, reserve_bytes), free, reserve_bytes);
            }
            Err(error) => {
                // Then every append finds out for itself.
                self.space.was_full.store(false, Ordering::Relaxed);
                tracing::debug!(directory = %self.path().display(), %error, "the free space cannot be told");
            }
        }
    }

    /// Looks again and again, for ever: once a second, and when an append finds or leaves no room. On threads that may block: a
    /// file system may hang.
    pub async fn watch_space(self: Arc<Self>, reserve_bytes: u64) {
        loop {
            let directory = self.clone();
            let look = move || directory.look_at_space(reserve_bytes);
            if let Err(error) = tokio::task::spawn_blocking(look).await {
                tracing::error!(%error, "the room of a log directory was not looked at");
            }
            tokio::time::sleep(LOOK_INTERVAL_MIN).await;
            tokio::select! {
                () = self.space.look.notified() => {}
                () = tokio::time::sleep(LOOK_INTERVAL - LOOK_INTERVAL_MIN) => {}
            }
        }
    }

    fn tell(&self, now: Room, free_bytes: u64, reserve_bytes: u64) {
        let told = self.space.told.swap(now as u8, Ordering::Relaxed);
        if told == now as u8 {
            return;
        }
        let path = self.path().display();
        match now {
            Room::Enough => {
                tracing::info!(directory = %path, free_bytes, reserve_bytes, "the log directory has room again");
            }
            Room::Low if told == Room::Exhausted as u8 => {
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
}

#[cfg(test)]
mod tests {
    use barnabas_types::Acks;
    use rustix::io::Errno;

    use super::*;
    use crate::testing::{Disk, Refusals, batch, node, produce, push, state, tp};

    #[test]
    fn what_is_appended_between_two_looks_is_counted_down() {
        let space = Space::default();
        assert_eq!((space.room(), space.free_bytes()), (Room::Enough, None));
        space.looked((10_000, 20_000), 1_000, 0);
        assert_eq!((space.room(), space.free_bytes()), (Room::Enough, Some(10_000)));
        space.appended_bytes.fetch_add(8_001, Ordering::Relaxed);
        assert_eq!(space.room(), Room::Low);
        space.appended_bytes.fetch_add(1_000, Ordering::Relaxed);
        assert_eq!((space.room(), space.free_bytes()), (Room::Exhausted, Some(999)));
        // 500 bytes came while somebody looked, who found that retention had let much go.
        space.looked((9_000, 20_000), 1_000, 8_501);
        assert_eq!((space.room(), space.free_bytes()), (Room::Enough, Some(8_500)));
    }

    #[test]
    fn without_a_reserve_a_disk_is_full_when_nothing_is_free() {
        assert_eq!([0, 1].map(|free| Room::of(free, 0)), [Room::Exhausted, Room::Enough]);
        let of_reserve = |free| Room::of(free, 10);
        assert_eq!([9, 10, 19].map(of_reserve), [Room::Exhausted, Room::Low, Room::Low]);
        assert_eq!((of_reserve(20), Room::of(5, u64::MAX)), (Room::Enough, Room::Exhausted));
    }

    /// Whether somebody is asked to look now.
    async fn is_asked(directory: &Directory) -> bool {
        let asked = directory.space.look.notified();
        tokio::time::timeout(Duration::ZERO, asked).await.is_ok()
    }

    #[tokio::test]
    async fn the_reserve_holds_between_two_looks() {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1]));
        let directory = &hosted.directory;
        let bytes = batch(0).len() as u64;
        directory.space.looked((1_000 + 2 * bytes, 1 << 20), 1_000, 0);
        for sequence in 0..2 {
            assert!(!directory.refuses_produces());
            produce(&node, &hosted, Acks::Leader, sequence, None);
        }
        assert_eq!(directory.free_bytes(), Some(1_000));
        assert!(!is_asked(directory).await);
        produce(&node, &hosted, Acks::Leader, 2, None);
        assert_eq!(directory.room(), Room::Exhausted);
        assert!(is_asked(directory).await, "whether it is so");
        produce(&node, &hosted, Acks::Leader, 3, None);
        assert_eq!(hosted.with_log(|log| log.log_end().0), 3, "refused");
        assert!(!is_asked(directory).await, "once");
        directory.space.looked((1 << 20, 1 << 20), 1_000, 3 * bytes);
        produce(&node, &hosted, Acks::Leader, 3, None);
        assert_eq!(hosted.with_log(|log| log.log_end().0), 4);
    }

    #[tokio::test]
    async fn an_append_that_finds_no_room_is_known_at_once() {
        let (refusals, files) = Refusals::disk();
        let (node, disk) = (node(), Disk::on(files));
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1]));
        let directory = &hosted.directory;
        directory.look_at_space(0);
        assert_eq!(directory.room(), Room::Enough);
        refusals.set(|op| matches!(op, barnabas_log::Op::Write { .. }).then_some(Errno::NOSPC));
        produce(&node, &hosted, Acks::Leader, 0, None);
        assert_eq!(directory.room(), Room::Exhausted, "before anybody looks");
        assert!(is_asked(directory).await);
        refusals.lift();
        let watching = tokio::spawn(directory.clone().watch_space(0));
        let looked = async {
            while directory.refuses_produces() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), looked).await.expect("in time");
        watching.abort();
        produce(&node, &hosted, Acks::Leader, 0, None);
        assert_eq!(hosted.with_log(|log| log.log_end().0), 1);
    }
}
