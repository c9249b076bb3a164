//! The answers of one connection: a slot per request, sent in order, written by whoever finishes them.
//!
//! `Out` is a leaf lock: nothing else is locked while it is held. A slot is reserved before its request is handled;
//! slots may be completed in any order from any thread, and only the head run of completed slots is sent. Whoever
//! completes a slot also tries to send; when the socket is full, the connection's own task is woken and goes on.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::budget::Budget;
use super::piece::Piece;

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
        Self::counted(stream, None)
    }

    /// As [`Out::new`]; what the answers hold in memory is counted in `budget`.
    #[must_use]
    pub fn counted(stream: Arc<TcpStream>, budget: Option<Arc<Budget>>) -> Self {
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
        let mut state = self.lock();
        let slot = state.head + state.slots.len() as u64;
        state.slots.push_back(None);
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
    async fn an_owner_that_waits_until_nothing_is_owed_is_woken_by_whoever_sends_the_last_answer() {
        let (server, _client) = pair().await;
        let out = Arc::new(Out::new(server));
        assert!(!out.is_busy_until_woken());
        let slots = [out.reserve(), out.reserve()];
        assert!(out.is_busy_until_woken());
        let is_woken = || async {
            tokio::select! {
                biased;
                () = out.woken() => true,
                () = std::future::ready(()) => false,
            }
        };
        for (slot, wakes) in slots.into_iter().zip([false, true]) {
            out.complete(slot, vec![Bytes::from_static(b"a")]);
            out.flush();
            assert_eq!(is_woken().await, wakes);
        }
    }

    #[tokio::test]
    async fn behind_a_barrier_no_request_is_taken_until_its_answer_is_there() {
        let (server, _client) = pair().await;
        let out = Arc::new(Out::new(server));
        let (earlier, change) = (out.reserve(), out.reserve());
        out.finish_before_more(change);
        assert!(!out.may_take());
        out.complete(earlier, vec![Bytes::from_static(b"a")]);
        out.flush();
        assert!(!out.may_take(), "the change itself is still under way");
        let other = out.clone();
        tokio::join!(out.woken(), async move {
            other.complete(change, vec![Bytes::from_static(b"b")]);
            other.flush();
        });
        assert!(out.may_take());
        let next = out.reserve();
        assert!(out.may_take(), "request {next:?} is no change: it holds nobody up");
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

    #[tokio::test]
    async fn the_owner_does_not_wake_itself_while_the_socket_is_full() {
        let (server, _client) = pair().await;
        let out = Out::new(server);
        let slot = out.reserve();
        out.complete(slot, vec![Bytes::from(vec![7u8; 32 << 20])]);
        out.flush_own();
        assert!(out.unsent_bytes() > 0);
        let woken = tokio::select! {
            biased;
            () = out.woken() => true,
            () = std::future::ready(()) => false,
        };
        assert!(!woken, "it would run in circles until the peer reads");
    }

    #[tokio::test]
    async fn answers_that_wait_for_an_earlier_one_count_as_unsent() {
        let (server, _client) = pair().await;
        let out = Out::new(server);
        let (_first, second) = (out.reserve(), out.reserve());
        out.complete(second, vec![Bytes::from(vec![7u8; UNSENT_BYTES_MAX])]);
        out.flush_own();
        assert_eq!(out.unsent_bytes(), 0, "nothing can be sent yet");
        assert!(!out.may_take());
    }

    /// A file with these many bytes.
    fn range(bytes: usize) -> (Arc<barnabas_log::DiskFile>, barnabas_log::testing::TempDir) {
        let temp = barnabas_log::testing::TempDir::new("out");
        let disk = barnabas_log::Disk::real();
        let file = disk.create(&temp.path().join("file")).unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        (Arc::new(file), temp)
    }

    fn file_piece(file: &Arc<barnabas_log::DiskFile>, position: u64, len: usize) -> Piece {
        Piece::File(crate::connection::piece::FileRange { file: file.clone(), position, len })
    }

    #[tokio::test]
    async fn ranges_of_files_are_sent_in_their_places_whatever_the_socket_takes_at_once() {
        const BYTES: usize = 24 << 20;
        let (server, mut client) = pair().await;
        let budget = Arc::new(Budget::new(1 << 20));
        let out = Arc::new(Out::counted(server.clone(), Some(budget.clone())));
        let (file, _temp) = range(BYTES);
        let slot = out.reserve();
        let (head, tail) = (Bytes::from_static(b"head"), Bytes::from_static(b"tail"));
        let ranges = [file_piece(&file, 0, BYTES), file_piece(&file, 7, 9)];
        let [whole, part] = ranges;
        let answer = vec![Piece::Bytes(head), whole, Piece::Bytes(tail), part];
        out.complete_pieces(slot, answer);
        assert_eq!(budget.answer_bytes(), 8, "files cost no memory");
        out.flush();
        let reader = tokio::spawn(async move {
            let mut all = vec![0; BYTES + 17];
            client.read_exact(&mut all).await.unwrap();
            all
        });
        while out.unsent_bytes() > 0 {
            out.woken().await;
            server.writable().await.unwrap();
            out.flush();
        }
        let all = reader.await.unwrap();
        let content = |from: usize, len: usize| (from..from + len).map(|at| (at % 251) as u8);
        assert!(all[..4] == *b"head" && all[4 + BYTES..8 + BYTES] == *b"tail");
        assert!(all[4..4 + BYTES].iter().copied().eq(content(0, BYTES)));
        assert!(all[8 + BYTES..].iter().copied().eq(content(7, 9)));
        assert_eq!((budget.answer_bytes(), Arc::strong_count(&file)), (0, 1));
    }

    #[tokio::test]
    async fn a_file_that_ends_too_early_closes_the_connection() {
        let (server, mut client) = pair().await;
        let out = Out::new(server);
        let (file, _temp) = range(100);
        let slot = out.reserve();
        out.complete_pieces(slot, vec![file_piece(&file, 0, 200)]);
        file.set_len(60).unwrap();
        out.flush();
        assert!(out.is_closed());
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len(), 60, "the peer sees that it is incomplete");
    }

    #[tokio::test]
    async fn what_is_not_sent_when_the_connection_ends_is_given_back() {
        let budget = Arc::new(Budget::new(1 << 20));
        for close in [true, false] {
            let (server, _client) = pair().await;
            let out = Out::counted(server, Some(budget.clone()));
            let slots = [out.reserve(), out.reserve(), out.reserve()];
            out.complete(slots[0], vec![Bytes::from(vec![0; 16 << 20])]);
            out.complete(slots[2], vec![Bytes::from(vec![0; 1 << 20])]);
            out.flush();
            assert!(budget.answer_bytes() > 1 << 20);
            if close {
                out.close();
                assert_eq!(budget.answer_bytes(), 0);
            }
            drop(out);
            assert_eq!(budget.answer_bytes(), 0);
        }
    }

    #[tokio::test]
    async fn a_closed_connection_lets_go_of_its_socket_whoever_still_waits() {
        let (server, mut client) = pair().await;
        let out = Out::new(server);
        let slot = out.reserve();
        out.close();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "the peer sees the end");
        out.complete(slot, vec![Bytes::from_static(b"late")]);
        out.flush();
        assert!(out.is_closed() && out.unsent_bytes() == 0);
    }
}
