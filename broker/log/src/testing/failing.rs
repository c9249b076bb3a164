//! A disk that refuses: for tests.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, Faults, Op, Verdict};

/// Raw numbers on Linux.
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Which changes a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Files are made (or opened in a way that makes them).
    Create,
    /// Bytes are written.
    Write,
    /// Lengths are set.
    SetLen,
    /// Data of files is synced.
    SyncData,
    /// Directories are synced.
    SyncDir,
    /// Names are changed.
    Rename,
    /// Files are removed.
    Remove,
}

#[derive(Debug)]
struct Rule {
    kind: Kind,
    /// Part of the path.
    path: String,
    /// Matches that are let pass before.
    skip: usize,
    /// Bytes of a write that are written before it fails.
    after_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    /// Bytes that may still be written; `None`: any number.
    room: Option<usize>,
    /// Files that may still be opened; `None`: any number.
    descriptors: Option<usize>,
    /// After so many changes more, every one is refused: a machine that is about to stop.
    left: Option<usize>,
    /// Changes that were made or passed on, by their kinds.
    passed: Vec<Kind>,
}

/// Fails single changes by rules, and runs out of room. What it lets pass may go on to another watcher.
#[derive(Debug, Default)]
pub struct Failing {
    state: Mutex<State>,
    next: Option<Arc<dyn Faults>>,
}

impl Failing {
    /// Refuses nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// As [`Failing::new`]; `next` sees what passes.
    #[must_use]
    pub fn before(next: Arc<dyn Faults>) -> Arc<Self> {
        Arc::new(Self { next: Some(next), ..Self::default() })
    }

    /// The disk to hand to [`crate::LogDir::lock_on`].
    #[must_use]
    pub fn disk(self: &Arc<Self>) -> Disk {
        Disk::with_faults(Arc::<Self>::clone(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next such change of a path that contains `path` fails once with EIO, after `skip` others were let pass.
    pub fn fail(&self, kind: Kind, path: &str, skip: usize) {
        self.tear(kind, path, skip, 0);
    }

    /// As [`Failing::fail`], for a write of which `after_bytes` bytes reach the file.
    pub fn tear(&self, kind: Kind, path: &str, skip: usize, after_bytes: usize) {
        self.state().rules.push(Rule { kind, path: path.to_owned(), skip, after_bytes });
    }

    /// Lets `changes` more pass, then refuses all with EIO, whatever they are.
    pub fn stop_after(&self, changes: usize) {
        self.state().left = Some(changes);
    }

    /// Forgets the rules that were not met, and [`Failing::stop_after`].
    pub fn relent(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.left = None;
    }

    /// From now on so many bytes more can be written, then the disk is full (ENOSPC): no file is made then either. `None`:
    /// there is room again.
    pub fn room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    /// From now on so many files more can be made or opened, then there is no descriptor left (EMFILE). `None`: there are again.
    pub fn descriptors(&self, opens: Option<usize>) {
        self.state().descriptors = opens;
    }

    /// How many changes of a kind were let pass so far.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.state().passed.iter().filter(|passed| **passed == kind).count()
    }
}

fn kind_of(op: &Op<'_>) -> Option<(Kind, String)> {
    let (kind, path) = match op {
        Op::Create { path, .. } => (Kind::Create, path),
        Op::Write { path, .. } => (Kind::Write, path),
        Op::SetLen { path, .. } => (Kind::SetLen, path),
        Op::SyncData(path) | Op::SyncFilesystem(path) => (Kind::SyncData, path),
        Op::SyncDir(path) => (Kind::SyncDir, path),
        Op::Rename { to, .. } => (Kind::Rename, to),
        Op::Remove(path) | Op::RemoveDirAll(path) => (Kind::Remove, path),
        Op::CreateDir(_) | Op::Open(_) => return None,
    };
    Some((kind, path.to_string_lossy().into_owned()))
}

impl State {
    fn judge(&mut self, op: &Op<'_>) -> io::Result<Verdict> {
        if let Some(left) = &mut self.descriptors
            && matches!(op, Op::Open(_) | Op::Create { .. })
        {
            let one_less = left.checked_sub(1);
            *left = one_less.ok_or_else(|| io::Error::from_raw_os_error(EMFILE))?;
        }
        if matches!(op, Op::Open(_)) {
            return Ok(Verdict::Perform);
        }
        match &mut self.left {
            Some(0) => return Err(io::Error::from_raw_os_error(EIO)),
            Some(left) => *left -= 1,
            None => {}
        }
        let length = match op {
            Op::Write { bytes, .. } => bytes.len(),
            _ => 0,
        };
        if let Some((kind, path)) = kind_of(op)
            && let Some(at) =
                self.rules.iter().position(|r| r.kind == kind && path.contains(&r.path))
        {
            let rule = &mut self.rules[at];
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.after_bytes > 0 && rule.after_bytes < length {
                let written = std::mem::take(&mut rule.after_bytes);
                return Ok(Verdict::Shorten(written));
            } else {
                self.rules.remove(at);
                return Err(io::Error::from_raw_os_error(EIO));
            }
        }
        if let Some(room) = &mut self.room {
            let needs = matches!(op, Op::Create { .. } | Op::Write { .. } | Op::CreateDir(_));
            if needs && *room == 0 {
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
            let written = length.min(*room);
            *room -= written;
            if written < length {
                return Ok(Verdict::Shorten(written));
            }
        }
        self.passed.extend(kind_of(op).map(|(kind, _)| kind));
        Ok(Verdict::Perform)
    }
}

impl Faults for Failing {
    fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        match (self.state().judge(op)?, &self.next) {
            (Verdict::Perform, Some(next)) => next.before(op),
            (verdict, _) => Ok(verdict),
        }
    }

    fn after(&self, op: &Op<'_>) {
        if let Some(next) = &self.next {
            next.after(op);
        }
    }
}
