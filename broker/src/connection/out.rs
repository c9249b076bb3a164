//! The answers of one connection: a slot per request, sent in order, written by whoever finishes them.
//!
//! `Out` is a leaf lock: nothing else is locked while it is held. A slot is reserved before its request is handled;
//! slots may be completed in any order from any thread, and only the head run of completed slots is sent. Whoever
//! completes a slot also tries to send; when the socket is full, the connection's own task is woken and goes on. Its lock is
//! held while it sends, which waits for nothing: the socket takes what it has room for, and ranges of files were in the page
//! cache when the answer was made.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use barnabas_wire::ApiKey;
use bytes::{Buf as _, Bytes};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::budget::Budget;
use super::piece::Piece;
use crate::metrics::Requests;

/// Most segments handed to one vectored write.
const SEGMENTS_PER_WRITE_MAX: usize = 64;

/// Names one reserved answer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u64);

/// Answers of one connection.
#[derive(Debug)]
pub struct Out {
    wake: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once closed: whoever still waits with this answer in hand must not keep the socket open.
    stream: Option<Arc<TcpStream>>,
    /// Slot number of `slots[0]`.
    head: u64,
    /// Reserved answers in order; `None` = not finished.
    slots: VecDeque<Option<Vec<Piece>>>,
    /// What is finished and the socket has not taken yet, in order.
    unsent: VecDeque<Piece>,
    unsent_bytes: usize,
    /// Bytes of finished answers that wait for an earlier one.
    held_bytes: usize,
    /// What of the two is in memory, counted in `budget`.
    memory_bytes: usize,
    budget: Option<Arc<Budget>>,
    /// The connection's task does not read because too much is in flight: wake it when there is room again.
    paused: bool,
    /// It does not read until nothing is owed on this connection: wake it then.
    wakes_when_clear: bool,
    /// No further request may begin before this slot is finished.
    barrier: Option<Slot>,
    /// Of each of `slots`: what was asked, and when; taken once it is answered.
    asked: VecDeque<Option<(ApiKey, Instant)>>,
    requests: Option<Arc<Requests>>,
}

/// Requests in flight on one connection; beyond it the socket is not read.
const IN_FLIGHT_MAX: usize = 16;
/// Answer bytes, finished and not sent, on one connection; beyond it the socket is not read.
const UNSENT_BYTES_MAX: usize = 8 << 20;

impl State {
    fn has_room(&self) -> bool {
        self.slots.len() < IN_FLIGHT_MAX
            && self.unsent_bytes + self.held_bytes < UNSENT_BYTES_MAX
            && self.barrier.is_none_or(|slot| self.is_finished(slot))
    }

    fn is_finished(&self, slot: Slot) -> bool {
        let index = slot.0.checked_sub(self.head).and_then(|i| usize::try_from(i).ok());
        index.is_none_or(|index| self.slots.get(index).is_none_or(Option::is_some))
    }

    /// An answer is owed or not wholly sent.
    fn is_busy(&self) -> bool {
        !self.slots.is_empty() || !self.unsent.is_empty()
    }

    fn close(&mut self) {
        self.stream = None;
        self.slots = VecDeque::new();
        self.asked = VecDeque::new();
        self.unsent = VecDeque::new();
        (self.unsent_bytes, self.held_bytes) = (0, 0);
        self.less_memory(self.memory_bytes);
    }

    fn more_memory(&mut self, bytes: usize) {
        self.memory_bytes += bytes;
        if let Some(budget) = &self.budget {
            budget.answers_grew(bytes);
        }
    }

    fn less_memory(&mut self, bytes: usize) {
        self.memory_bytes -= bytes;
        if let Some(budget) = &self.budget {
            budget.answers_shrank(bytes);
        }
    }

    /// The socket took so many bytes.
    fn taken(&mut self, mut bytes: usize) {
        self.unsent_bytes -= bytes;
        while bytes > 0 {
            let Some(front) = self.unsent.front_mut() else { return };
            let whole = front.len() <= bytes;
            let part = front.len().min(bytes);
            bytes -= part;
            let in_memory = match front {
                Piece::Bytes(rest) => {
                    rest.advance(part);
                    part
                }
                Piece::File(range) => {
                    range.position += part as u64;
                    range.len -= part;
                    0
                }
            };
            if whole {
                self.unsent.pop_front();
            }
            self.less_memory(in_memory);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.close();
    }
}

impl Out {
    /// The answers of the connection `stream`.
    #[must_use]
    pub fn new(stream: Arc<TcpStream>) -> Self {
        Self::counted(stream, None, None)
    }

    /// As [`Out::new`]; what the answers hold in memory is counted in `budget`, and how long they took in `requests`.
    #[must_use]
    pub fn counted(
        stream: Arc<TcpStream>,
        budget: Option<Arc<Budget>>,
        requests: Option<Arc<Requests>>,
    ) -> Self {
        let state = State {
            stream: Some(stream),
            head: 0,
            slots: VecDeque::new(),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            held_bytes: 0,
            memory_bytes: 0,
            budget,
            paused: false,
            wakes_when_clear: false,
            barrier: None,
            asked: VecDeque::new(),
            requests,
        };
        Self { wake: Notify::new(), state: Mutex::new(state) }
    }

    /// The client's address as Kafka shows it (`/127.0.0.1`); empty if it is gone.
    pub fn peer_host(&self) -> String {
        let stream = self.lock().stream.clone();
        let peer = stream.and_then(|stream| stream.peer_addr().ok());
        peer.map_or_else(String::new, |peer| format!("/{}", peer.ip()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the next answer.
    pub fn reserve(&self) -> Slot {
        self.reserve_next(None)
    }

    /// [`Out::reserve`] for a request that came just now; how long it takes is counted.
    pub fn reserve_for(&self, key: ApiKey) -> Slot {
        self.reserve_next(Some((key, Instant::now())))
    }

    fn reserve_next(&self, asked: Option<(ApiKey, Instant)>) -> Slot {
        let mut state = self.lock();
        let slot = state.head + state.slots.len() as u64;
        state.slots.push_back(None);
        state.asked.push_back(asked);
        Slot(slot)
    }

    /// No further request is taken before this answer is finished: its request changes what the next one may read.
    pub(super) fn finish_before_more(&self, slot: Slot) {
        self.lock().barrier = Some(slot);
    }

    /// Finishes an answer (no bytes: a request without an answer, acks=0). Sends nothing; see [`Out::flush`].
    pub fn complete(&self, slot: Slot, answer: Vec<Bytes>) {
        self.complete_pieces(slot, answer.into_iter().map(Piece::Bytes).collect());
    }

    /// [`Out::complete`] with an answer that is partly in files.
    pub fn complete_pieces(&self, slot: Slot, answer: Vec<Piece>) {
        let mut state = self.lock();
        if state.stream.is_none() {
            return;
        }
        let index = slot.0.checked_sub(state.head).and_then(|i| usize::try_from(i).ok());
        if let Some(place @ None) = index.and_then(|i| state.slots.get_mut(i)) {
            let bytes: usize = answer.iter().map(Piece::len).sum();
            let in_memory = answer.iter().map(Piece::memory_bytes).sum();
            *place = Some(answer);
            state.held_bytes += bytes;
            state.more_memory(in_memory);
            let asked = index.and_then(|i| state.asked.get_mut(i)).and_then(Option::take);
            if let (Some((key, at)), Some(requests)) = (asked, &state.requests) {
                requests.answered(key, at.elapsed());
            }
        }
    }

    /// Sends what is finished and next in order, as far as the socket takes it without waiting. If the socket is full or
    /// broken, the connection's task is woken and goes on.
    pub fn flush(&self) {
        if !self.send() {
            self.wake.notify_one();
        }
    }

    /// [`Out::flush`] for the connection's own task, which looks at the rest itself: were it to wake itself, it would spin
    /// for as long as the socket is full.
    pub(super) fn flush_own(&self) {
        self.send();
    }

    /// `false`: the connection's task must go on, because the socket is full or broken.
    fn send(&self) -> bool {
        let mut state = self.lock();
        while let Some(Some(_)) = state.slots.front() {
            if let Some(Some(answer)) = state.slots.pop_front() {
                state.head += 1;
                state.asked.pop_front();
                for piece in answer {
                    state.held_bytes -= piece.len();
                    state.unsent_bytes += piece.len();
                    if !piece.is_empty() {
                        state.unsent.push_back(piece);
                    }
                }
            }
        }
        let Some(stream) = state.stream.clone() else { return true };
        let sent = send(&stream, &mut state);
        if !state.is_busy() {
            // What a burst needed is given back.
            state.slots.shrink_to(IN_FLIGHT_MAX);
            state.asked.shrink_to(IN_FLIGHT_MAX);
            state.unsent.shrink_to(IN_FLIGHT_MAX);
            if std::mem::take(&mut state.wakes_when_clear) {
                self.wake.notify_one();
            }
        }
        if state.paused && state.has_room() {
            state.paused = false;
            self.wake.notify_one();
        }
        sent.unwrap_or_else(|_| {
            state.close();
            false
        })
    }

    /// Wakes the connection's task: something of its own (a parked fetch) is ready.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for [`Out::wake`] or for an unfinished send.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Whether another request may be taken. If not, the owner is woken as soon as one may.
    pub fn may_take(&self) -> bool {
        let mut state = self.lock();
        let room = state.has_room();
        state.paused = !room;
        room
    }

    /// Whether an answer is owed or not wholly sent.
    pub fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// [`Out::is_busy`] for an owner that takes no request until it is not: it is woken then, whoever sends the last answer.
    pub fn is_busy_until_woken(&self) -> bool {
        let mut state = self.lock();
        state.wakes_when_clear = state.is_busy();
        state.wakes_when_clear
    }

    /// Bytes that the socket has not taken yet.
    pub fn unsent_bytes(&self) -> usize {
        self.lock().unsent_bytes
    }

    /// No more sends: the peer is gone or the connection is being closed. Wakes the connection's task, which ends.
    pub fn close(&self) {
        self.lock().close();
        self.wake.notify_one();
    }

    /// Whether a send failed or the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().stream.is_none()
    }
}

/// Sends until empty (`true`) or until the socket is full (`false`).
fn send(stream: &TcpStream, state: &mut State) -> io::Result<bool> {
    while let Some(front) = state.unsent.front() {
        let sent = match front {
            Piece::File(range) => {
                let (mut position, len) = (range.position, range.len);
                stream.try_io(Interest::WRITABLE, || {
                    Ok(sendfile(stream, &*range.file, Some(&mut position), len)?)
                })
            }
            Piece::Bytes(_) => send_bytes(stream, &state.unsent),
        };
        match sent {
            // A socket takes a byte or says that it is full: it is the file that ends, because it was cut.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => state.taken(sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// One vectored write of what is in memory before the next file range.
fn send_bytes(stream: &TcpStream, unsent: &VecDeque<Piece>) -> io::Result<usize> {
    let mut slices: [IoSlice<'_>; SEGMENTS_PER_WRITE_MAX] =
        [IoSlice::new(&[]); SEGMENTS_PER_WRITE_MAX];
    let mut count = 0;
    let in_memory = unsent.iter().map_while(|piece| match piece {
        Piece::Bytes(bytes) => Some(bytes),
        Piece::File(_) => None,
    });
    for (slice, bytes) in slices.iter_mut().zip(in_memory) {
        *slice = IoSlice::new(bytes);
        count += 1;
    }
    let mut flags = SendFlags::NOSIGNAL;
    if count < unsent.len() {
        // A file follows at once: let its header leave with it. (TCP_CORK would cost two more system calls.)
        flags |= SendFlags::MORE;
    }
    stream.try_io(Interest::WRITABLE, || {
        match sendmsg(stream, &slices[..count], &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => Ok(sent),
            Err(Errno::PIPE) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(error.into()),
        }
    })
}

#[cfg(test)]
#[path = "out_tests.rs"]
mod tests;
