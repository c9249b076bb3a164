//! The journal: what happened in the cluster that somebody may ask about later, each entry durable on every broker.
//!
//! A broker writes its own entries to a file of its own and fetches those of the others (`pull.rs`), each to a file of its own too.
//! It needs no leader, no ISR and no controller: it is for the times when those are in trouble. What an entry must be to be shown
//! or given to others is durable. One thread writes; `Journal::add` never waits for it.

mod book;
mod entry;
mod files;
mod pull;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barnabas_proto::v1;
use barnabas_types::Sanitised;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

pub use entry::{Entry, Kind, Origin};
pub(crate) use pull::run as pull;

use book::Book;
use entry::{Kept, Mark, read_message, text_of};

use crate::clock::unix_ms;
use crate::storage::Storage;

/// Own entries that wait to be written. Beyond it losses are counted, and their number is an entry.
const QUEUE_MAX: usize = 4096;
/// Answers of other brokers that wait to be written; each broker that is asked has one on its way.
const INCOMING_MAX: usize = 256;
/// Entries that a reader takes while it holds up the others.
const READ_AT_ONCE_MAX: usize = 512;
/// Text that is written at once.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// How long a write that failed (a full disk) waits for the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// How long the last entries may take when the broker stops.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// The journal of a broker. Takes entries from any thread.
#[derive(Debug)]
pub struct Journal {
    state: Mutex<State>,
    wake: Condvar,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until the files are read.
    book: Option<Book>,
    queue: VecDeque<Queued>,
    /// Own losses that found no room.
    overflown: u64,
    /// The last series that an answer to another broker had something of.
    answered: Option<(Kind, Origin)>,
    incoming: VecDeque<Incoming>,
    stopped: bool,
    /// Own entries that are durable, of this run.
    written: u64,
    /// Own entries that were taken.
    taken: u64,
    /// A write was refused, or waited for in vain, and nothing of its own was written since.
    stuck: bool,
}

/// An entry that has no number yet.
#[derive(Clone, Debug)]
struct Queued {
    kind: Kind,
    time_ms: i64,
    body: Arc<str>,
    class: Option<Arc<str>>,
}

/// What another broker has sent.
#[derive(Debug)]
struct Incoming {
    sent: Vec<v1::JournalEntry>,
    tell: oneshot::Sender<io::Result<Taken>>,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Taken {
    new: usize,
    known: usize,
    refused: Option<(usize, &'static str)>,
}

impl State {
    /// Whether something of this broker's own waits to be written.
    fn has_own(&self) -> bool {
        !self.queue.is_empty() || self.overflown > 0
    }
}

/// Where a page of entries begins: after this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// [`Entry::time_ms`].
    pub time_ms: i64,
    /// [`Entry::origin`].
    pub origin: Origin,
    /// [`Entry::sequence`].
    pub sequence: u64,
}

impl Place {
    fn of(entry: &Kept) -> Self {
        Self { time_ms: entry.time_ms, origin: entry.origin, sequence: entry.sequence }
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), changed: watch::Sender::new(0) }
    }
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an entry, which is durable soon, and shown then. `body` is a JSON object of at most 64 KiB. Never blocks.
    pub fn add(&self, kind: Kind, body: Value) {
        let Some((body, class)) = text_of(&body) else {
            tracing::error!(kind = kind.name(), body = %Sanitised::sentence(&body), "no entry of the journal: it is no object, or too large");
            return;
        };
        let mut state = self.lock();
        if state.queue.len() < QUEUE_MAX {
            state.queue.push_back(Queued { kind, time_ms: unix_ms(), body, class });
            state.taken += 1;
        } else if kind == Kind::Loss {
            state.overflown += 1;
        } else {
            drop(state);
            tracing::error!(kind = kind.name(), body = %Sanitised::sentence(&body), "an entry of the journal found no room: too many wait to be written");
            return;
        }
        drop(state);
        self.wake.notify_all();
    }

    /// The newest `n` entries of a kind, of all brokers, in the order of their times.
    #[must_use]
    pub fn last(&self, kind: Kind, n: usize) -> Vec<Entry> {
        let kept = self.lock().book.as_ref().map(|book| book.last(kind, n)).unwrap_or_default();
        kept.iter().map(Kept::entry).collect()
    }

    /// Entries of a kind from a time on (milliseconds since 1970, inclusive) and after a place, that `wanted` wants, in order; at
    /// most `max`. Also whether there are more. Takes its time if there are many: not for a thread that must not block.
    #[must_use]
    pub fn page(
        &self,
        kind: Kind,
        since_ms: i64,
        after: Option<&Place>,
        max: usize,
        wanted: impl Fn(&Entry) -> bool,
    ) -> (Vec<Entry>, bool) {
        let (mut page, mut after) = (Vec::new(), after.copied());
        loop {
            let read = |book: &Book| book.page(kind, since_ms, after.as_ref(), READ_AT_ONCE_MAX);
            let kept = self.lock().book.as_ref().map(read).unwrap_or_default();
            let Some(last) = kept.last() else { return (page, false) };
            after = Some(Place::of(last));
            for entry in kept.iter().map(Kept::entry).filter(&wanted) {
                if page.len() == max {
                    return (page, true);
                }
                page.push(entry);
            }
        }
    }

    /// How many entries of a kind there are, by the `class` in their bodies.
    #[must_use]
    pub fn classes(&self, kind: Kind) -> BTreeMap<String, u64> {
        self.lock().book.as_ref().map(|book| book.classes(kind)).unwrap_or_default()
    }

    /// Entries of a kind that were made and are not here: rotated away before this broker asked, or damaged.
    #[must_use]
    pub fn missing(&self, kind: Kind) -> u64 {
        self.lock().book.as_ref().map_or(0, |book| book.missing(kind))
    }

    /// The newest sequence of a kind from each origin: it changes with each entry of that kind.
    #[must_use]
    pub fn newest(&self, kind: Kind) -> Vec<(Origin, u64)> {
        let marks = self.lock().book.as_ref().map(Book::marks).unwrap_or_default();
        let of_kind = marks.into_iter().filter(|mark| mark.kind == kind);
        of_kind.map(|mark| (mark.origin, mark.sequence)).collect()
    }

    /// A number that rises with each entry that can be shown.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// This broker's own entries that are durable, of this run.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.lock().written
    }

    /// Waits until every entry that was taken so far is durable. `false`: that takes longer than `patience`, the disk refuses it, or
    /// somebody has found so already and nothing was written since. Blocks.
    #[must_use]
    pub fn wait_until_written(&self, patience: Duration) -> bool {
        let state = self.lock();
        let taken = state.taken;
        let waiting = |state: &mut State| state.written < taken && !state.stuck;
        let waited = self.wake.wait_timeout_while(state, patience, waiting);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let written = state.written >= taken;
        state.stuck |= !written;
        written
    }

    /// Starts the thread that reads what there is and writes what comes.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn start(
        self: &Arc<Self>,
        storage: Arc<Storage>,
        me: Origin,
    ) -> io::Result<JoinHandle<()>> {
        let journal = self.clone();
        let work = move || journal.write_all(&storage, me);
        thread::Builder::new().name("journal".to_owned()).spawn(work)
    }

    /// Ends the thread once every own entry is written, or cannot be. Blocks for a moment.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.wake.notify_all();
        while state.has_own() {
            let waited = self.wake.wait_timeout(state, STOP_PATIENCE);
            let (woken, late) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if late.timed_out() {
                tracing::error!(
                    entries = state.queue.len(),
                    "entries of the journal could not be written"
                );
                return;
            }
        }
    }

    fn write_all(&self, storage: &Storage, me: Origin) {
        let book = files::load(storage, me);
        let mut state = self.lock();
        state.book = Some(book);
        self.changed.send_modify(|version| *version += 1);
        let mut refused = false;
        loop {
            if state.has_own() {
                drop(state);
                let written = self.write_own(storage, me);
                state = self.lock();
                match written {
                    Ok(()) => refused = false,
                    Err(error) => {
                        if !refused {
                            tracing::error!(%error, "entries of the journal cannot be written now; it is tried again and again");
                        }
                        refused = true;
                        state.stuck = true;
                        self.wake.notify_all();
                        if state.stopped {
                            return;
                        }
                        let waited = self.wake.wait_timeout(state, RETRY);
                        state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                }
            }
            if let Some(incoming) = state.incoming.pop_front() {
                drop(state);
                let taken = self.write_sent(storage, me, &incoming.sent);
                // Who asked may have gone.
                let _ = incoming.tell.send(taken);
                state = self.lock();
            } else if !state.has_own() {
                if state.stopped {
                    return;
                }
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Writes the first of the own entries, those of one kind.
    fn write_own(&self, storage: &Storage, me: Origin) -> io::Result<()> {
        let (entries, taken, overflown) = {
            let state = self.lock();
            let Some(book) = &state.book else { return Ok(()) };
            // Losses that found no room are told even if none comes after them.
            let kind = state.queue.front().map_or(Kind::Loss, |first| first.kind);
            let mut bytes = 0;
            let batch = state.queue.iter().take_while(|queued| {
                bytes += queued.body.len();
                queued.kind == kind && bytes <= WRITE_BYTES_MAX
            });
            let mut batch: Vec<Queued> = batch.cloned().collect();
            let taken = batch.len();
            let overflown = if kind == Kind::Loss { state.overflown } else { 0 };
            if overflown > 0 {
                batch.extend(overflow(overflown));
            }
            let numbered = batch.into_iter().zip(book.next(kind)..).map(|(queued, sequence)| {
                let Queued { kind, time_ms, body, class } = queued;
                Kept { origin: me, sequence, time_ms, kind, body, class }
            });
            (numbered.collect::<Vec<Kept>>(), taken, overflown)
        };
        self.write(storage, me, &entries)?;
        let mut state = self.lock();
        state.queue.drain(..taken);
        state.overflown -= overflown;
        state.written += taken as u64;
        state.stuck = false;
        drop(state);
        self.wake.notify_all();
        self.shown(entries.len());
        Ok(())
    }

    /// Writes what another broker has sent, as far as it is new.
    fn write_sent(
        &self,
        storage: &Storage,
        me: Origin,
        sent: &[v1::JournalEntry],
    ) -> io::Result<Taken> {
        let (mut read, mut bad) = (Vec::new(), Vec::new());
        for message in sent {
            match read_message(message) {
                Ok(entry) => read.push(entry),
                Err(why) => bad.push(why),
            }
        }
        let mut admission = match &self.lock().book {
            Some(book) => book.admit(read),
            None => return Err(io::Error::other("the journal is not read yet")),
        };
        bad.into_iter().for_each(|why| admission.refuse(why));
        // Those of one series lie together.
        let mut new = admission.new.as_slice();
        while let Some(first) = new.first() {
            let alike = |entry: &&Kept| entry.kind == first.kind && entry.origin == first.origin;
            let (of_series, rest) = new.split_at(new.iter().take_while(alike).count());
            self.write(storage, me, of_series)?;
            self.shown(of_series.len());
            new = rest;
        }
        let (new, known, refused) = (admission.new.len(), admission.known, admission.refused);
        Ok(Taken { new, known, refused })
    }

    /// Makes entries of one series durable, then shows them; the caller tells so.
    fn write(&self, storage: &Storage, me: Origin, entries: &[Kept]) -> io::Result<()> {
        let Some(Kept { kind, origin, .. }) = entries.first() else { return Ok(()) };
        let of = Some(*origin).filter(|origin| *origin != me);
        let text: String = entries.iter().map(Kept::line).collect();
        files::append(storage, &files::name(*kind, of), text.as_bytes())?;
        if let Some(book) = &mut self.lock().book {
            for entry in entries {
                book.insert(entry.clone());
            }
        }
        Ok(())
    }

    fn shown(&self, entries: usize) {
        self.changed.send_modify(|version| *version += entries as u64);
    }

    /// How far this broker has each series; `None` until it knows.
    fn marks(&self) -> Option<Vec<Mark>> {
        self.lock().book.as_ref().map(Book::marks)
    }

    /// Series whose beginnings are missing, and where they begin here.
    fn without_beginning(&self) -> Vec<(Kind, Origin, u64)> {
        self.lock().book.as_ref().map(Book::without_beginning).unwrap_or_default()
    }

    /// Takes what another broker has sent; returns when it is durable.
    async fn take(&self, sent: Vec<v1::JournalEntry>) -> io::Result<Taken> {
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.stopped || state.incoming.len() >= INCOMING_MAX {
                return Err(io::Error::other(
                    "the journal is stopping, or too much waits to be written",
                ));
            }
            state.incoming.push_back(Incoming { sent, tell });
        }
        self.wake.notify_all();
        told.await.unwrap_or_else(|_| Err(io::Error::other("the journal has stopped")))
    }
}

/// What stands for losses that found no room in the queue.
fn overflow(records: u64) -> Option<Queued> {
    let body = json!({
        "cause": "overflow", "records": records, "class": "unknown",
        "detail": format!("{records} more losses came faster than they could be written; the broker's log names them"),
    });
    let (body, class) = text_of(&body)?;
    Some(Queued { kind: Kind::Loss, time_ms: unix_ms(), body, class })
}

#[cfg(test)]
mod tests;
