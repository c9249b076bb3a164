//! The answers of one connection: a slot per request, sent in order, written by whoever finishes them.
//!
//! `Out` is a leaf lock: nothing else is locked while it is held. A slot is reserved before its request is handled;
//! slots may be completed in any order from any thread, and only the head run of completed slots is sent. Whoever
//! completes a slot also tries to send; when the socket is full, the connection's own task is woken and goes on.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Most segments handed to one vectored write.
const SEGMENTS_PER_WRITE_MAX: usize = 64;

/// Names one reserved answer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u64);

/// Answers of one connection.
#[derive(Debug)]
pub struct Out {
    stream: Arc<TcpStream>,
    wake: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Slot number of `slots[0]`.
    head: u64,
    /// Reserved answers in order; `None` = not finished.
    slots: VecDeque<Option<Vec<Bytes>>>,
    /// Finished bytes that the socket has not taken yet, in order.
    unsent: VecDeque<Bytes>,
    unsent_bytes: usize,
    /// The connection's task does not read because too much is in flight: wake it when there is room again.
    paused: bool,
    closed: bool,
}

/// Requests in flight on one connection; beyond it the socket is not read.
const IN_FLIGHT_MAX: usize = 16;
/// Unsent answer bytes on one connection; beyond it the socket is not read.
const UNSENT_BYTES_MAX: usize = 8 << 20;

impl State {
    fn has_room(&self) -> bool {
        self.slots.len() < IN_FLIGHT_MAX && self.unsent_bytes < UNSENT_BYTES_MAX
    }
}

impl Out {
    /// The answers of the connection `stream`.
    #[must_use]
    pub fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, wake: Notify::new(), state: Mutex::new(State::default()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the next answer.
    pub fn reserve(&self) -> Slot {
        let mut state = self.lock();
        let slot = state.head + state.slots.len() as u64;
        state.slots.push_back(None);
        Slot(slot)
    }

    /// Finishes an answer (no bytes: a request without an answer, acks=0). Sends nothing; see [`Out::flush`].
    pub fn complete(&self, slot: Slot, answer: Vec<Bytes>) {
        let mut state = self.lock();
        let index = slot.0.checked_sub(state.head).and_then(|i| usize::try_from(i).ok());
        if let Some(place) = index.and_then(|i| state.slots.get_mut(i)) {
            *place = Some(answer);
        }
    }

    /// Sends what is finished and next in order, as far as the socket takes it without waiting.
    pub fn flush(&self) {
        let mut state = self.lock();
        while let Some(Some(_)) = state.slots.front() {
            if let Some(Some(answer)) = state.slots.pop_front() {
                state.head += 1;
                for bytes in answer {
                    state.unsent_bytes += bytes.len();
                    if !bytes.is_empty() {
                        state.unsent.push_back(bytes);
                    }
                }
            }
        }
        if state.closed {
            return;
        }
        let sent = send(&self.stream, &mut state);
        if state.paused && state.has_room() {
            state.paused = false;
            self.wake.notify_one();
        }
        match sent {
            Ok(true) => {}
            Ok(false) => self.wake.notify_one(),
            Err(_) => {
                state.closed = true;
                self.wake.notify_one();
            }
        }
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

    /// Bytes that the socket has not taken yet.
    pub fn unsent_bytes(&self) -> usize {
        self.lock().unsent_bytes
    }

    /// No more sends: the peer is gone or the connection is being closed.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.unsent.clear();
        state.unsent_bytes = 0;
    }

    /// Whether a send failed or the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

/// Sends until empty (`true`) or until the socket is full (`false`).
fn send(stream: &TcpStream, state: &mut State) -> io::Result<bool> {
    while !state.unsent.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            state.unsent.iter().take(SEGMENTS_PER_WRITE_MAX).map(|b| IoSlice::new(b)).collect();
        let mut written = match stream.try_write_vectored(&slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        state.unsent_bytes -= written;
        while written > 0 {
            let Some(front) = state.unsent.front_mut() else { break };
            if front.len() <= written {
                written -= front.len();
                state.unsent.pop_front();
            } else {
                front.advance(written);
                written = 0;
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    async fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (Arc::new(server), client)
    }

    #[tokio::test]
    async fn answers_leave_in_the_order_of_their_requests() {
        let (server, mut client) = pair().await;
        let out = Out::new(server);
        let (a, b, c) = (out.reserve(), out.reserve(), out.reserve());
        out.complete(c, vec![Bytes::from_static(b"c")]);
        out.complete(b, vec![]);
        out.flush();
        out.complete(a, vec![Bytes::from_static(b"a")]);
        out.flush();
        let mut got = [0; 2];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ac");
    }

    #[tokio::test]
    async fn a_paused_owner_is_woken_when_somebody_else_makes_room() {
        let (server, _client) = pair().await;
        let out = Arc::new(Out::new(server));
        let slots: Vec<Slot> = (0..IN_FLIGHT_MAX).map(|_| out.reserve()).collect();
        assert!(!out.may_take());
        let other = out.clone();
        let (waiting, finished) = tokio::join!(out.woken(), async move {
            other.complete(slots[0], vec![Bytes::from_static(b"a")]);
            other.flush();
        });
        assert_eq!((waiting, finished), ((), ()));
        assert!(out.may_take());
    }

    #[tokio::test]
    async fn a_full_socket_wakes_the_owner_and_loses_nothing() {
        let (server, mut client) = pair().await;
        let out = Arc::new(Out::new(server.clone()));
        let slot = out.reserve();
        let big = Bytes::from(vec![7u8; 32 << 20]);
        out.complete(slot, vec![big.clone()]);
        out.flush();
        assert!(out.unsent_bytes() > 0);
        let reader = tokio::spawn(async move {
            let mut all = vec![0; 32 << 20];
            client.read_exact(&mut all).await.unwrap();
            all
        });
        while out.unsent_bytes() > 0 {
            out.woken().await;
            server.writable().await.unwrap();
            out.flush();
        }
        assert_eq!(reader.await.unwrap(), big);
    }
}
