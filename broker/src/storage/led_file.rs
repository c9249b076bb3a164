//! The leaders' notes of a log directory, `barnabas.led`: one file with a place for each partition that was led, so that a note costs
//! one small write and one sync makes many of them durable.
//!
//! Notes lie in the page cache before anything that they speak of is acknowledged: a process that dies leaves them. A thread syncs them
//! soon afterwards for the case that the host crashes. Nothing is mapped into memory: a page of a file system that has shut down
//! would end the process, where an error costs a note.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use barnabas_log::{Disk, DiskFile};
use barnabas_types::Offset;

use super::led_note::{LedNote, MARK_AT, NOTE_BYTES, NoteKey, boot};
use crate::partition::{Aftermath, Flush, Hosted, Outward};

const FILE: &str = "barnabas.led";
/// Most places; partitions beyond have no note. 4 MiB.
const PLACES_MAX: u32 = 65_536;
/// Places by which the file grows: a page.
const PLACES_AT_ONCE: u32 = 64;
/// How long notes gather before a sync that nobody waits for: after a failover a thousand partitions have new leaders at once.
const GATHER: Duration = Duration::from_millis(50);

/// The notes of one log directory.
#[derive(Debug)]
pub struct LedFile {
    shared: Arc<Shared>,
}

/// What an earlier process has noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Before {
    note: LedNote,
    boot: u64,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Open since the first note.
    file: OnceLock<DiskFile>,
    places: Mutex<Places>,
    syncing: Mutex<Syncing>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Places {
    disk: Option<Disk>,
    of: BTreeMap<NoteKey, u32>,
    before: BTreeMap<NoteKey, Before>,
    free: Vec<u32>,
    /// So many there are in the file.
    count: u32,
    /// Nothing is noted any more: the file could not be kept up to date, or not be synced.
    given_up: bool,
}

#[derive(Default)]
struct Syncing {
    /// Something was noted that is not durable.
    wanted: bool,
    /// Who waits for that; each stands here once until it is told, so it is bounded by what this broker hosts.
    waiting: Vec<Arc<Hosted>>,
    /// The name of the file is durable.
    named: bool,
    stopped: bool,
}

impl std::fmt::Debug for Syncing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncing").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl LedFile {
    /// Reads the notes in a log directory. Those of partitions that are not there any more give up their places.
    pub(crate) fn read(directory: &Path, there: &BTreeSet<NoteKey>) -> Self {
        let path = directory.join(FILE);
        let mut bytes = Vec::new();
        let longest = u64::from(PLACES_MAX) * NOTE_BYTES as u64;
        // What cannot be read says nothing, and is written over.
        let _ = File::open(&path).and_then(|file| file.take(longest).read_to_end(&mut bytes));
        let mut places = Places::default();
        for (place, chunk) in (0..).zip(bytes.as_chunks::<NOTE_BYTES>().0) {
            places.count = place + 1;
            match LedNote::decode(chunk) {
                Some((key, note, boot)) if there.contains(&key) => {
                    places.of.insert(key, place);
                    places.before.insert(key, Before { note, boot });
                }
                _ => places.free.push(place),
            }
        }
        // The lowest first.
        places.free.reverse();
        let shared = Shared {
            path,
            file: OnceLock::new(),
            places: Mutex::new(places),
            syncing: Mutex::default(),
            wake: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Takes notes from now on, and makes them durable.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(super) fn start(&self, disk: &Disk, outward: Weak<dyn Outward>) -> io::Result<()> {
        let shared = self.shared.clone();
        let work = move || shared.sync_all(&outward);
        thread::Builder::new().name("led-notes".to_owned()).spawn(work)?;
        self.shared.places().disk = Some(disk.clone());
        Ok(())
    }

    /// What the process before has noted under the present boot of the host.
    #[must_use]
    pub fn of_process(&self, key: NoteKey) -> Option<LedNote> {
        let before = self.shared.places().before.get(&key).copied()?;
        (before.boot == boot() && before.boot != 0).then_some(before.note)
    }

    /// What was durable of the notes when the host crashed. Of its `committed` nothing is to be believed.
    #[must_use]
    pub fn of_crash(&self, key: NoteKey) -> Option<LedNote> {
        let before = self.shared.places().before.get(&key).copied()?;
        Some(LedNote { committed: None, ..before.note })
    }

    /// Notes it. It outlives the process when this returns, and the host soon ([`LedFile::tell_synced`]).
    ///
    /// # Errors
    /// From the operating system, or there is no place, or it was given up: the note before stands, if there is one.
    pub fn note(&self, key: NoteKey, note: &LedNote) -> io::Result<()> {
        let place = self.shared.place(key)?;
        let file = self.shared.file.get().ok_or_else(no_notes)?;
        file.write_all_at(&note.encode(key, boot()), at(place))?;
        let mut syncing = self.shared.syncing();
        let began = !std::mem::replace(&mut syncing.wanted, true);
        drop(syncing);
        if began {
            self.shared.wake.notify_all();
        }
        Ok(())
    }

    /// Notes that everything below `to` is committed, before that is told: one write of 8 bytes. There is a note.
    ///
    /// # Errors
    /// From the operating system.
    pub fn committed(&self, key: NoteKey, to: Offset) -> io::Result<()> {
        let place = self.shared.places().of.get(&key).copied();
        let (Some(place), Some(file)) = (place, self.shared.file.get()) else {
            return Err(no_notes());
        };
        file.write_all_at(&to.0.to_le_bytes(), at(place) + MARK_AT)
    }

    /// Tells `hosted` once what was noted until now is durable (`Hosted::note_synced`).
    pub fn tell_synced(&self, hosted: Arc<Hosted>) {
        let mut syncing = self.shared.syncing();
        syncing.wanted = true;
        syncing.waiting.push(hosted);
        drop(syncing);
        self.shared.wake.notify_all();
    }

    /// The replica is gone from here, and so is its note.
    pub(super) fn forget(&self, key: NoteKey) {
        let mut places = self.shared.places();
        places.before.remove(&key);
        let Some(place) = places.of.remove(&key) else { return };
        // One that stays says nothing of another life of the topic, and goes with the next start.
        if let Some(file) = self.shared.file.get()
            && file.write_all_at(&[0; NOTE_BYTES], at(place)).is_ok()
        {
            places.free.push(place);
        }
    }

    /// What is noted cannot be kept true: it is removed, so that the next process is told nothing, and nothing more is noted.
    pub fn give_up(&self, error: &io::Error) {
        self.shared.give_up(error);
    }
}

impl Drop for LedFile {
    fn drop(&mut self) {
        self.shared.syncing().stopped = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn syncing(&self) -> MutexGuard<'_, Syncing> {
        self.syncing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a partition, one that is free, or a new one. Opens the file with the first.
    fn place(&self, key: NoteKey) -> io::Result<u32> {
        let mut places = self.places();
        let Some(disk) = places.disk.as_ref().filter(|_| !places.given_up) else {
            return Err(no_notes());
        };
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file = disk.open_or_create(&self.path)?;
                self.file.get_or_init(|| file)
            }
        };
        if let Some(place) = places.of.get(&key) {
            return Ok(*place);
        }
        let place = match places.free.pop() {
            Some(place) => place,
            None if places.count < PLACES_MAX => {
                // Real blocks: what is written into them later asks for no room.
                let page = [0; NOTE_BYTES * PLACES_AT_ONCE as usize];
                let first = places.count;
                file.write_all_at(&page, at(first))?;
                places.count += PLACES_AT_ONCE;
                places.free.extend((first + 1..first + PLACES_AT_ONCE).rev());
                first
            }
            None => return Err(io::Error::other("there are too many notes")),
        };
        places.of.insert(key, place);
        Ok(place)
    }

    fn give_up(&self, error: &io::Error) {
        let mut places = self.places();
        if std::mem::replace(&mut places.given_up, true) {
            return;
        }
        let removed = places.disk.as_ref().map(|disk| disk.remove_file(&self.path));
        drop(places);
        let path = self.path.display();
        match removed {
            Some(Err(stays)) => {
                tracing::error!(%path, %error, %stays, "leaders cannot note what they acknowledge, and the notes cannot be removed; remove them before the broker starts again");
            }
            _ => {
                tracing::error!(%path, %error, "leaders cannot note what they acknowledge; after the next start the ledger does not know it");
            }
        }
    }

    fn sync_all(&self, outward: &Weak<dyn Outward>) {
        loop {
            let mut syncing = self.syncing();
            while !syncing.wanted && !syncing.stopped {
                syncing = self.wake.wait(syncing).unwrap_or_else(PoisonError::into_inner);
            }
            let gathers = |syncing: &mut Syncing| syncing.waiting.is_empty() && !syncing.stopped;
            let waited = self.wake.wait_timeout_while(syncing, GATHER, gathers);
            syncing = waited.unwrap_or_else(PoisonError::into_inner).0;
            if syncing.stopped {
                return;
            }
            syncing.wanted = false;
            let (waiting, named) = (std::mem::take(&mut syncing.waiting), syncing.named);
            drop(syncing);
            let synced = self.sync(named);
            match &synced {
                Ok(()) => self.syncing().named = true,
                // Whether it is durable cannot be found out any more.
                Err(error) => self.give_up(error),
            }
            let Some(outward) = outward.upgrade() else { return };
            for hosted in waiting {
                let mut after = Aftermath::default();
                hosted.note_synced(outward.now(), synced.as_ref().err(), &mut after);
                after.settle(&hosted, &*outward, &mut Flush::default());
            }
        }
    }

    fn sync(&self, named: bool) -> io::Result<()> {
        let file = self.file.get().ok_or_else(no_notes)?;
        file.sync_data()?;
        let disk = self.places().disk.clone();
        match (disk, self.path.parent()) {
            (Some(disk), Some(directory)) if !named => disk.sync_dir(directory),
            _ => Ok(()),
        }
    }
}

fn at(place: u32) -> u64 {
    u64::from(place) * NOTE_BYTES as u64
}

fn no_notes() -> io::Error {
    io::Error::other("nothing is noted here")
}

#[cfg(test)]
mod tests {
    use barnabas_log::Op;
    use barnabas_log::testing::TempDir;
    use barnabas_types::{LeaderEpoch, TopicId};
    use rustix::io::Errno;

    use super::super::led_note::AckKinds;
    use super::*;
    use crate::testing::{Refusals, node};

    fn key(partition: i32) -> NoteKey {
        NoteKey { topic_id: TopicId([7; 16]), partition }
    }

    fn note(epoch: i32) -> LedNote {
        let (from, kinds) = (Offset(3), AckKinds { one: true, all: true });
        LedNote { epoch: LeaderEpoch(epoch), from, kinds, committed: Some(Offset(4)) }
    }

    fn started(temp: &TempDir, there: &[NoteKey], disk: &Disk) -> LedFile {
        let file = LedFile::read(temp.path(), &there.iter().copied().collect());
        let outward: Weak<dyn Outward> = Arc::downgrade(&node()) as _;
        file.start(disk, outward).unwrap();
        file
    }

    #[tokio::test]
    async fn the_next_process_finds_each_note_and_the_committed_offset() {
        let temp = TempDir::new("led");
        let file = started(&temp, &[], &Disk::real());
        assert_eq!(file.of_process(key(0)), None);
        let many = i32::try_from(PLACES_AT_ONCE).unwrap() + 3;
        for partition in 0..many {
            file.note(key(partition), &note(partition)).unwrap();
        }
        file.note(key(2), &note(1_000)).unwrap();
        file.committed(key(1), Offset(99)).unwrap();
        file.forget(key(0));
        let there: Vec<NoteKey> = (0..many).filter(|p| *p != 5).map(key).collect();
        let next = started(&temp, &there, &Disk::real());
        assert_eq!(next.of_process(key(0)), None, "its replica is gone");
        let marked = LedNote { committed: Some(Offset(99)), ..note(1) };
        assert_eq!(next.of_process(key(1)), Some(marked));
        assert_eq!(next.of_process(key(2)), Some(note(1_000)));
        assert_eq!(next.of_process(key(5)), None, "its replica went while nobody ran");
        assert_eq!(next.of_process(key(many - 1)), Some(note(many - 1)));
        let crashed = LedNote { committed: None, ..note(1) };
        assert_eq!(next.of_crash(key(1)), Some(crashed), "nobody has synced how far it came");
        // The places that are free are taken again.
        let before = std::fs::metadata(temp.path().join(FILE)).unwrap().len();
        next.note(key(700), &note(7)).unwrap();
        next.note(key(701), &note(8)).unwrap();
        assert_eq!(std::fs::metadata(temp.path().join(FILE)).unwrap().len(), before);
        let last = LedFile::read(temp.path(), &[key(700), key(1)].into_iter().collect());
        assert_eq!(
            (last.of_process(key(700)), last.of_process(key(1))),
            (Some(note(7)), Some(marked))
        );
    }

    #[tokio::test]
    async fn what_cannot_be_kept_true_is_removed() {
        let temp = TempDir::new("led");
        let (refusals, disk) = Refusals::disk();
        let file = started(&temp, &[], &disk);
        file.note(key(0), &note(1)).unwrap();
        refusals.set(|op| matches!(op, Op::Write { .. }).then_some(Errno::NOSPC));
        let error = file.committed(key(0), Offset(5)).unwrap_err();
        file.give_up(&error);
        refusals.lift();
        assert!(file.note(key(0), &note(2)).is_err(), "for good");
        let next = LedFile::read(temp.path(), &[key(0)].into_iter().collect());
        assert_eq!(next.of_process(key(0)), None);
    }
}
