//! What a power cut would keep: a journal beside the data that the power-cut tool reads once the process is dead.
//!
//! The directory holds `journal`, a text with one entry a line, and `kept/`, named by the number of the entry that they belong to:
//! other names of files that were unlinked or replaced, and bytes that were cut off or overwritten. An entry is appended by one
//! `write`, so it outlives SIGKILL. Files and directories are inode numbers; an inode whose last name goes is kept alive in `kept/`
//! until the directory is synced, so that its number is not used again before.
//!
//! | entry | meaning |
//! |---|---|
//! | `O n INO SIZE` | first seen as an existing file of that size |
//! | `C n DIR INO NAME`, `D n DIR INO NAME` | file, directory created |
//! | `U n DIR INO NAME`, `X n DIR INO NAME` | file unlinked, directory removed |
//! | `R n DIR TO_DIR INO OVER OLD/NEW` | renamed, over the inode OVER (0: none) |
//! | `T n INO FROM TO` | cut from a size to a smaller one |
//! | `W n INO AT LEN` | overwritten; without kept bytes by the same ones |
//! | `S n SINCE INO LEN` | file synced with success: that length, and every entry below SINCE of this file |
//! | `N n SINCE DIR` | directory synced: every name in it that changed below SINCE |
//! | `A n SINCE` | file system synced: every name that changed below SINCE (its files have `S` entries) |
//! | `E n INO SIZE` | a sync of the file failed: nothing that it should have covered counts as durable until it is written again |
//!
//! An entry follows the call that it tells of, and the length of a sync is taken before it: whatever the process could rely on is
//! noted, and never more than that.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::sys;

/// Most bytes of one truncated or overwritten range that are kept; a longer one counts as durably gone.
const KEPT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The journal's descriptor is moved out of the way of those that a program counts.
const DESCRIPTOR_MIN: c_int = 700;

#[derive(Default)]
struct State {
    /// Each file that was touched.
    files: HashMap<u64, Touched>,
    /// What is kept until a file (by its inode) or a directory (by its) is synced.
    kept: Vec<Kept>,
}

struct Touched {
    size: u64,
    /// Number of the entry to come when it was changed last; 0 once a sync has covered that.
    changed: u64,
}

struct Kept {
    number: u64,
    until_synced: u64,
    path: CString,
}

pub(crate) struct Journal {
    directory: String,
    fd: c_int,
    next: AtomicU64,
    state: Mutex<State>,
}

impl Journal {
    /// Goes on with the journal in a directory, or begins it. An earlier process may have left files below the roots that are
    /// not synced: a sync of the file system covers them too.
    pub(crate) fn open(directory: &str, roots: &[Vec<u8>]) -> Option<Self> {
        let kept = CString::new(format!("{directory}/kept")).ok()?;
        let path = CString::new(format!("{directory}/journal")).ok()?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: C strings; that the directory exists already is fine.
        let fd = unsafe {
            sys::mkdirat(libc::AT_FDCWD, kept.as_ptr(), 0o755);
            let fd = sys::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o644);
            let moved = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
            if moved >= 0 {
                sys::close(fd);
            }
            moved.max(fd)
        };
        // Numbers go on above those of an earlier process: fewer entries than bytes.
        let size = sys::stat_fd(fd)?.st_size;
        let journal = Self {
            directory: directory.to_owned(),
            fd,
            next: AtomicU64::new(u64::try_from(size).ok()? + 1),
            state: Mutex::new(State::default()),
        };
        if size > 0 {
            let roots = roots.iter().map(|root| PathBuf::from(OsStr::from_bytes(root)));
            journal.take_over(roots.collect());
        }
        Some(journal)
    }

    fn take_over(&self, mut directories: Vec<PathBuf>) {
        while let Some(directory) = directories.pop() {
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let Ok(found) = entry.metadata() else { continue };
                if found.is_dir() {
                    directories.push(entry.path());
                } else if found.is_file() {
                    self.seen(found.ino(), found.len());
                    self.with(|state| {
                        let changed = self.since();
                        let touched = Touched { size: found.len(), changed };
                        state.files.insert(found.ino(), touched)
                    });
                }
            }
        }
    }

    /// The number that the next entry gets: what a sync that begins now will cover.
    pub(crate) fn since(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    fn append(&self, line: &str) {
        // SAFETY: a buffer of the length given.
        unsafe { sys::write(self.fd, line.as_ptr().cast(), line.len()) };
    }

    fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn kept_path(&self, number: u64) -> Option<CString> {
        CString::new(format!("{}/kept/{number}", self.directory)).ok()
    }

    fn keep(&self, number: u64, until_synced: u64, path: CString) {
        self.with(|state| state.kept.push(Kept { number, until_synced, path }));
    }

    /// Forgets what was kept for entries below `since`.
    fn release(&self, since: u64, synced: impl Fn(u64) -> bool) {
        let gone: Vec<Kept> = self.with(|state| {
            let covered = |kept: &mut Kept| kept.number < since && synced(kept.until_synced);
            state.kept.extract_if(.., covered).collect()
        });
        for kept in gone {
            // SAFETY: a C string.
            unsafe { sys::unlinkat(libc::AT_FDCWD, kept.path.as_ptr(), 0) };
        }
    }

    /// A file that is about to be changed: its size now, noted if it was not seen before.
    pub(crate) fn seen(&self, ino: u64, size: u64) {
        if self.with(|state| !state.files.contains_key(&ino)) {
            self.append(&format!("O {} {ino} {size}\n", self.number()));
            self.with(|state| {
                state.files.entry(ino).or_insert(Touched { size, changed: 0 });
            });
        }
    }

    /// Bytes were written from `at` on; `before` are those that stood there.
    pub(crate) fn written(&self, ino: u64, at: u64, len: u64, before: Option<Vec<u8>>, same: bool) {
        let changed = self.since();
        let size = self.with(|state| {
            let file = state.files.entry(ino).or_insert(Touched { size: 0, changed });
            let size = file.size;
            *file = Touched { size: size.max(at + len), changed };
            size
        });
        if at < size {
            let number = self.number();
            if !same && let (Some(before), Some(path)) = (before, self.kept_path(number)) {
                sys::write_file(&path, &before);
                self.keep(number, ino, path);
            }
            self.append(&format!("W {number} {ino} {at} {len}\n"));
        }
    }

    /// The file has another size; `cut` are the bytes that went.
    pub(crate) fn resized(&self, ino: u64, from: u64, to: u64, cut: Option<Vec<u8>>) {
        let changed = self.since();
        self.with(|state| state.files.insert(ino, Touched { size: to, changed }));
        if to < from {
            let number = self.number();
            if let (Some(cut), Some(path)) = (cut, self.kept_path(number)) {
                sys::write_file(&path, &cut);
                self.keep(number, ino, path);
            }
            self.append(&format!("T {number} {ino} {from} {to}\n"));
        }
    }

    /// How many of the bytes that go are worth keeping.
    pub(crate) fn kept_len(len: u64) -> Option<usize> {
        (len > 0 && len <= KEPT_BYTES_MAX).then(|| usize::try_from(len).ok())?
    }

    pub(crate) fn created(&self, directory: bool, parent: u64, ino: u64, name: &str) {
        let kind = if directory { 'D' } else { 'C' };
        if !directory {
            let changed = self.since();
            self.with(|state| state.files.insert(ino, Touched { size: 0, changed }));
        }
        self.append(&format!("{kind} {} {parent} {ino} {name}\n", self.number()));
    }

    /// Another name for what a name stands for, before it goes. Told to [`Journal::unlinked`] or [`Journal::renamed`].
    pub(crate) fn spare(&self, path: &[u8]) -> Option<(u64, CString)> {
        let number = self.number();
        let spare = self.kept_path(number)?;
        sys::link(&CString::new(path).ok()?, &spare).then_some((number, spare))
    }

    /// The spare name of a name that did not go after all.
    pub(crate) fn discard(&self, spare: Option<(u64, CString)>) {
        if let Some((_, path)) = spare {
            // SAFETY: a C string.
            unsafe { sys::unlinkat(libc::AT_FDCWD, path.as_ptr(), 0) };
        }
    }

    pub(crate) fn unlinked(
        &self,
        parent: u64,
        ino: u64,
        name: &str,
        spare: Option<(u64, CString)>,
    ) {
        let number = spare.as_ref().map_or_else(|| self.number(), |(number, _)| *number);
        if let Some((number, path)) = spare {
            self.keep(number, parent, path);
        }
        self.append(&format!("U {number} {parent} {ino} {name}\n"));
    }

    pub(crate) fn removed(&self, parent: u64, ino: u64, name: &str) {
        self.append(&format!("X {} {parent} {ino} {name}\n", self.number()));
    }

    pub(crate) fn renamed(
        &self,
        (from_dir, to_dir): (u64, u64),
        (ino, over): (u64, u64),
        (from, to): (&str, &str),
        spare: Option<(u64, CString)>,
    ) {
        let number = spare.as_ref().map_or_else(|| self.number(), |(number, _)| *number);
        if let Some((number, path)) = spare {
            self.keep(number, to_dir, path);
        }
        self.append(&format!("R {number} {from_dir} {to_dir} {ino} {over} {from}/{to}\n"));
    }

    pub(crate) fn file_synced(&self, since: u64, ino: u64, len: u64) {
        self.append(&format!("S {} {since} {ino} {len}\n", self.number()));
        self.with(|state| {
            if let Some(file) = state.files.get_mut(&ino)
                && file.changed < since
            {
                file.changed = 0;
            }
        });
        self.release(since, |until| until == ino);
    }

    pub(crate) fn directory_synced(&self, since: u64, ino: u64) {
        self.append(&format!("N {} {since} {ino}\n", self.number()));
        self.release(since, |until| until == ino);
    }

    pub(crate) fn sync_failed(&self, ino: u64, size: u64) {
        self.append(&format!("E {} {ino} {size}\n", self.number()));
    }

    /// Sizes of all files that may not be synced, before a sync of the file system.
    pub(crate) fn dirty(&self) -> Vec<(u64, u64)> {
        self.with(|state| {
            let dirty = state.files.iter().filter(|(_, file)| file.changed > 0);
            dirty.map(|(ino, file)| (*ino, file.size)).collect()
        })
    }

    pub(crate) fn all_synced(&self, since: u64, dirty: &[(u64, u64)]) {
        for (ino, len) in dirty {
            self.file_synced(since, *ino, *len);
        }
        self.append(&format!("A {} {since}\n", self.number()));
        self.release(since, |_| true);
    }
}
