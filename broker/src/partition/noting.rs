//! What a leader notes before it acknowledges, and the successes that wait until a note is durable.
//!
//! After a crash of the host the note that the disk has may be any of its leader epoch, so the first of an epoch names the kind of
//! acknowledgement that its first record asks for, and a further kind is acknowledged once a note that names it is durable. So a note never
//! says less than what was acknowledged, and nobody waits but for the first records of a second kind.

use std::io;
use std::sync::Arc;

use barnabas_log::LogError;
use barnabas_types::{Condition, Now, Offset};

use super::aftermath::Aftermath;
use super::hosted::Hosted;
use super::inner::{Inner, Waiter};
use super::waiting::{PendingProduce, ProduceResult};
use crate::storage::{AckKind, AckKinds, Led, LedNote, NoteKey};

/// What a partition's mutex guards of it.
#[derive(Default)]
pub(super) struct Noting {
    /// As it lies in the file.
    noted: Option<LedNote>,
    /// Kinds that a note of this leader epoch has got since its first, and that are not durable.
    late: AckKinds,
    /// Asked to be told of a sync; again since then.
    asked: bool,
    again: bool,
    /// Successes of late kinds; bounded by the requests in flight.
    held: Vec<(Arc<PendingProduce>, usize, ProduceResult)>,
    /// Why a note of this leader epoch says less than what is asked for: it cannot lead on in it.
    broken: Option<io::Error>,
}

/// Whether a kind of acknowledgement may be given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noted {
    Yes,
    /// Once the note is durable.
    Later,
    /// The note cannot be written, and the one that is there says less: the replica is fenced with the end of the step.
    No,
}

impl Noting {
    /// An earlier process has noted it.
    pub(super) fn found(&mut self, note: LedNote) {
        self.noted = Some(note);
    }

    /// Nobody is left waiting.
    pub(super) fn refuse_held(&mut self, after: &mut Aftermath) {
        for (pending, index, _) in self.held.drain(..) {
            after.finished.push((pending, index, Err(Condition::KafkaStorageError)));
        }
    }
}

impl Inner {
    /// Something was appended as the leader that asks for this kind of acknowledgement (`None`: for none).
    pub(super) fn note_appended(
        &mut self,
        hosted: &Hosted,
        kind: Option<AckKind>,
        after: &mut Aftermath,
    ) {
        self.note_led(hosted, kind, after);
    }

    /// The core has answered a producer: it is told, as soon as what that is noted.
    pub(super) fn answer(
        &mut self,
        hosted: &Hosted,
        waiter: Waiter,
        result: Result<Offset, Condition>,
        after: &mut Aftermath,
    ) {
        let (kind, log_start) = (waiter.kind(), self.replica.log_start());
        let Waiter { pending, index, acks_one } = waiter;
        let base = match result {
            Ok(base) => base,
            Err(condition) => return after.finished.push((pending, index, Err(condition))),
        };
        let noted = self.note_led(hosted, Some(kind), after);
        if kind == AckKind::All {
            self.note_committed(hosted);
        }
        if let Some(led) = &mut self.led {
            led.unasked = false;
            if acks_one > 0 {
                led.acked(Offset(base.0.saturating_add(acks_one)));
            }
        }
        match noted {
            Noted::Yes => after.finished.push((pending, index, Ok((base, log_start)))),
            Noted::Later => self.noting.held.push((pending, index, Ok((base, log_start)))),
            Noted::No => after.finished.push((pending, index, Err(Condition::KafkaStorageError))),
        }
    }

    /// Notes what this replica leads, and that it may acknowledge so. Nearly always that is there already.
    fn note_led(&mut self, hosted: &Hosted, kind: Option<AckKind>, after: &mut Aftermath) -> Noted {
        let Some(Led { from, epoch, .. }) = self.led else { return Noted::Yes };
        let before = self.noting.noted.filter(|noted| noted.from == from);
        let of_epoch = before.is_some_and(|noted| noted.epoch == epoch);
        let kinds = before.map(|noted| noted.kinds).unwrap_or_default().and(kind);
        if of_epoch && before.is_some_and(|noted| noted.kinds == kinds) {
            let is_late = kind.is_some_and(|kind| self.noting.late.has(kind));
            return if is_late { Noted::Later } else { Noted::Yes };
        }
        let present = self.replica.high_watermark();
        let committed = match before {
            Some(noted) => noted.committed.map(|committed| committed.max(present)),
            None => Some(present),
        };
        let note = LedNote { epoch, from, kinds, committed };
        match hosted.directory.led().note(hosted.note_key(), &note) {
            Ok(()) if of_epoch => {
                let noting = &mut self.noting;
                noting.noted = Some(note);
                noting.late = noting.late.and(kind);
                noting.again = noting.asked;
                after.note_sync |= !std::mem::replace(&mut noting.asked, true);
                Noted::Later
            }
            Ok(()) => {
                self.noting.noted = Some(note);
                self.noting.late = AckKinds::default();
                Noted::Yes
            }
            Err(error) if of_epoch => {
                self.noting.broken = Some(error);
                Noted::No
            }
            // That of an older epoch says nothing of this one. It is tried again with the next append.
            Err(_) => {
                self.noting.noted = None;
                Noted::Yes
            }
        }
    }

    /// A leadership that cannot note what it acknowledges ends here: in the next one nothing is noted yet.
    pub(super) fn end_without_note(&mut self, hosted: &Hosted, now: Now, after: &mut Aftermath) {
        if let Some(error) = self.noting.broken.take() {
            self.failed(hosted, now, None, &unnoted(hosted, &error), after);
        }
    }

    /// Everything below the high watermark may be acknowledged at acks=all now.
    fn note_committed(&mut self, hosted: &Hosted) {
        let to = self.replica.high_watermark();
        let Some(note) = &mut self.noting.noted else { return };
        if note.committed.is_none_or(|committed| committed >= to) {
            return;
        }
        let (notes, key) = (hosted.directory.led(), hosted.note_key());
        match notes.committed(key, to) {
            Ok(()) => note.committed = Some(to),
            Err(error) => {
                note.committed = None;
                if notes.note(key, note).is_err() {
                    notes.give_up(&error);
                }
            }
        }
    }
}

impl Hosted {
    pub(super) fn note_key(&self) -> NoteKey {
        let (topic_id, partition) = (self.incarnation.topic_id, self.topic_partition.partition);
        NoteKey { topic_id, partition }
    }

    /// What was noted when [`crate::storage::LedFile::tell_synced`] was called is durable, or never will be.
    pub(crate) fn note_synced(&self, now: Now, failed: Option<&io::Error>, after: &mut Aftermath) {
        let mut inner = self.lock();
        let noting = &mut inner.noting;
        if let Some(error) = failed {
            noting.asked = false;
            // What the disk has of it may say less than what would be acknowledged from now on.
            noting.refuse_held(after);
            inner.failed(self, now, None, &unnoted(self, error), after);
        } else if std::mem::take(&mut noting.again) {
            after.note_sync = true;
        } else {
            noting.asked = false;
            noting.late = AckKinds::default();
            after.finished.append(&mut noting.held);
        }
    }
}

fn unnoted(hosted: &Hosted, error: &io::Error) -> LogError {
    let source =
        error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
    let path = hosted.directory.path().to_owned();
    LogError::Io { what: "keep the leaders' notes of", path, source }
}
