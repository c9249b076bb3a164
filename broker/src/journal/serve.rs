//! Gives other brokers the entries that they lack, and keeps those waiting who lack none.

use std::sync::Arc;
use std::time::Duration;

use barnabas_proto::v1;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::Journal;
use super::book::SERIES_MAX;
use super::entry::Mark;

/// Entries of one answer, in bytes; one that is larger goes alone.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest that an answer waits for something to tell.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);

impl Journal {
    /// Answers another broker. Without anything new the answer waits for this broker's own next entry; what came from others
    /// goes along then, or when the wait is over, since they tell it themselves.
    ///
    /// # Errors
    /// The request is not one that a broker makes.
    pub(crate) async fn read(
        self: &Arc<Self>,
        request: &v1::ReadJournalRequest,
    ) -> Result<v1::ReadJournalResponse, Status> {
        if request.after.len() > SERIES_MAX {
            return Err(Status::invalid_argument(format!(
                "at most {SERIES_MAX} series of a journal may be named, not {}",
                request.after.len()
            )));
        }
        let marks: Vec<Mark> = request.after.iter().filter_map(Mark::read).collect();
        let until = Instant::now() + WAIT_MAX.min(Duration::from_millis(request.wait_ms.into()));
        let mut changed = self.watch();
        let mut found = self.lacking(&marks);
        while found.is_empty() {
            let over = timeout_at(until, changed.changed()).await.is_err();
            if over || self.has_own_after(&marks) {
                found = self.lacking(&marks);
            }
            if over {
                break;
            }
        }
        Ok(v1::ReadJournalResponse { entries: found })
    }

    fn lacking(&self, marks: &[Mark]) -> Vec<v1::JournalEntry> {
        let found = {
            let state = &mut *self.lock();
            let Some(book) = &mut state.book else { return Vec::new() };
            marks.iter().for_each(|mark| book.heard(*mark));
            let found = book.after(marks, ANSWER_BYTES_MAX, state.answered);
            state.answered =
                found.last().map(|entry| (entry.kind, entry.origin)).or(state.answered);
            found
        };
        found.iter().map(super::Kept::message).collect()
    }

    fn has_own_after(&self, marks: &[Mark]) -> bool {
        self.lock().book.as_ref().is_some_and(|book| book.has_own_after(marks))
    }
}
