//! The last events, encoded once for all streams.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::clock::unix_ms;

/// Events that can be replayed.
const EVENTS_MAX: usize = 1_024;
/// Their bytes.
const BYTES_MAX: usize = 8 << 20;

/// A place between two events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Of the next event.
    pub(super) sequence: u64,
    /// Bytes of all events before it.
    pub(super) bytes: u64,
}

/// What comes after a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// This event, and where it ends.
    Event(Bytes, Place),
    /// Nothing yet.
    Nothing,
    /// It is not in the ring any more, or never was: the page has to fetch everything again. Goes on from here.
    Lost(Place),
}

/// See the module's head.
#[derive(Debug)]
pub(in crate::http) struct Ring {
    state: Mutex<State>,
    news: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// With the bytes of all events before each.
    events: VecDeque<(u64, Bytes)>,
    end: Place,
    held: usize,
}

impl Default for Ring {
    /// Sequences begin with the time, so that those of an earlier life of this broker, or of another broker, are never taken for its own.
    fn default() -> Self {
        let sequence = u64::try_from(unix_ms()).unwrap_or(0);
        let end = Place { sequence, bytes: 0 };
        let state = State { events: VecDeque::new(), end, held: 0 };
        Self { state: Mutex::new(state), news: watch::Sender::new(0) }
    }
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more event, in the term of this controller.
    pub(in crate::http) fn push(&self, controller_epoch: i32, event: &str, data: &Value) {
        {
            let mut state = self.lock();
            let sequence = state.end.sequence;
            let text =
                format!("id: {controller_epoch}-{sequence}\nevent: {event}\ndata: {data}\n\n");
            let bytes = Bytes::from(text);
            let before = state.end.bytes;
            state.end = Place { sequence: sequence + 1, bytes: before + bytes.len() as u64 };
            state.held += bytes.len();
            state.events.push_back((before, bytes));
            while state.events.len() > EVENTS_MAX || state.held > BYTES_MAX {
                let Some((_, gone)) = state.events.pop_front() else { break };
                state.held -= gone.len();
            }
        }
        self.news.send_modify(|count| *count += 1);
    }

    /// Told of each event.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Streams that read from it.
    #[cfg(test)]
    pub(in crate::http) fn readers(&self) -> usize {
        self.news.receiver_count()
    }

    /// The place after the last event.
    pub(super) fn end(&self) -> Place {
        self.lock().end
    }

    /// The place after the event with this id, if that can be told: what follows on it is here whole.
    pub(super) fn after(&self, id: &str) -> Option<Place> {
        let sequence = id.rsplit_once('-')?.1.parse::<u64>().ok()?.checked_add(1)?;
        let state = self.lock();
        if sequence == state.end.sequence {
            return Some(state.end);
        }
        let first = state.end.sequence - state.events.len() as u64;
        let index = usize::try_from(sequence.checked_sub(first)?).ok()?;
        let (bytes, _) = state.events.get(index)?;
        Some(Place { sequence, bytes: *bytes })
    }

    /// What comes after a place.
    pub(super) fn next(&self, place: Place) -> Next {
        let state = self.lock();
        if place.sequence >= state.end.sequence {
            return Next::Nothing;
        }
        let first = state.end.sequence - state.events.len() as u64;
        let index = place.sequence.checked_sub(first).and_then(|i| usize::try_from(i).ok());
        match index.and_then(|index| state.events.get(index)) {
            Some((before, event)) => {
                let bytes = before + event.len() as u64;
                Next::Event(event.clone(), Place { sequence: place.sequence + 1, bytes })
            }
            None => Next::Lost(state.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(next: Next) -> (String, Place) {
        match next {
            Next::Event(bytes, place) => (String::from_utf8(bytes.to_vec()).unwrap(), place),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_comes_back_gets_what_he_missed() {
        let ring = Ring::default();
        let begin = ring.end();
        assert_eq!(ring.next(begin), Next::Nothing);
        ring.push(7, "a", &json!({"text": "line\nbreak"}));
        ring.push(7, "b", &json!({}));
        let (first, place) = text(ring.next(begin));
        assert_eq!(
            first,
            format!("id: 7-{}\nevent: a\ndata: {{\"text\":\"line\\nbreak\"}}\n\n", begin.sequence)
        );
        assert!(text(ring.next(place)).0.contains("event: b"));
        assert_eq!(ring.after(&format!("7-{}", begin.sequence)), Some(place));
        assert_eq!(ring.after(&format!("7-{}", begin.sequence + 1)), Some(ring.end()));
        assert_eq!(ring.end().bytes, place.bytes + text(ring.next(place)).0.len() as u64);
        for unknown in ["", "7", "7-x", "7-0", "7-18446744073709551615", "x-y-z"] {
            assert_eq!(ring.after(unknown), None, "{unknown}");
        }
        assert_eq!(ring.after(&format!("7-{}", begin.sequence + 2)), None, "it is not made yet");
    }

    #[test]
    fn what_fell_out_is_lost_and_the_ring_is_bounded() {
        let ring = Ring::default();
        let begin = ring.end();
        for _ in 0..=EVENTS_MAX {
            ring.push(1, "a", &json!({}));
        }
        assert_eq!(ring.next(begin), Next::Lost(ring.end()));
        assert_eq!(ring.lock().events.len(), EVENTS_MAX);
        let large = json!("x".repeat(BYTES_MAX / 3));
        for _ in 0..5 {
            ring.push(1, "a", &large);
        }
        assert!(ring.lock().held <= BYTES_MAX && ring.lock().events.len() < 5);
    }
}
