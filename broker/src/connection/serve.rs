//! One connection, one task: read, check, append, answer. No channel, no further task on this path.
//!
//! After readiness the socket is drained (bounded), every whole frame is handled, then everything finished is sent once:
//! sending after each frame costs 1.4 times the CPU.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use barnabas_types::{BrokerId, Sanitised};
use barnabas_wire::{ApiKey, FrameError, FrameLimits, Peek, Request, RequestFrame, peek, split};
use bytes::BytesMut;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::field::display;

use super::budget::{FREE_BYTES_MAX, Reserved};
use super::out::Out;
use super::places::{PROBATION, Place};
use super::replica_session::ReplicaSession;
use crate::group::GroupWait;
use crate::kafka::{self, Handled, ProduceWait, RequestContext, WaitingFetch};
use crate::node::Node;
use crate::partition::{Aftermath, Flush};

/// Reads after one readiness event, for fairness among connections.
const READS_PER_WAKE_MAX: usize = 8;
/// Look-ahead beyond the frame under way.
const LOOK_AHEAD_BYTES: usize = 4 << 10;
/// A declared length allocates no more than this before its bytes come.
const GROWTH_STEP_BYTES: usize = 256 << 10;
/// An empty buffer larger than this is given back.
const IDLE_BUFFER_BYTES_MAX: usize = 1 << 10;
/// A request of which no byte came for so long is given up if others wait for the memory that it holds.
const STALLED_MAX: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });

struct Connection {
    node: Arc<Node>,
    peer: SocketAddr,
    stream: Arc<TcpStream>,
    out: Arc<Out>,
    limits: FrameLimits,
    buffer: BytesMut,
    /// In the order in which connections were accepted.
    number: u64,
    place: Place,
    /// What of the frame under way is reserved in the budget.
    reserved: Option<Reserved>,
    /// Waits for more: the socket is not read meanwhile.
    reserving: Option<Pin<Box<dyn Future<Output = Reserved> + Send>>>,
    /// When the first request, or the next byte of the frame under way, must have come.
    impatience: Option<Instant>,
    fetches: Vec<WaitingFetch>,
    produces: Vec<ProduceWait>,
    groups: Vec<GroupWait>,
    session: Option<ReplicaSession>,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("closed by the peer")]
    ByPeer,
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Handler(String),
    #[error("there are too many connections")]
    NoPlace,
    #[error("its request stopped half way, and others waited for the memory that it held")]
    Stalled,
}

/// Serves one connection, the one of this number, until it ends or `stop` becomes true.
pub(super) async fn serve(
    node: Arc<Node>,
    (number, stream): (u64, TcpStream),
    peer: SocketAddr,
    mut place: Place,
    mut stop: watch::Receiver<bool>,
) {
    let stream = Arc::new(stream);
    let (budget, requests) = (node.budget.clone(), node.figures.requests.clone());
    let out = Arc::new(Out::counted(stream.clone(), Some(budget), Some(requests)));
    place.lives(&out);
    let impatience = place.is_on_probation().then(|| Instant::now() + PROBATION);
    let limits = FrameLimits {
        produce_bytes_max: node.options.socket_request_max_bytes,
        ..FrameLimits::default()
    };
    let mut connection = Connection {
        number,
        node,
        peer,
        stream,
        out,
        limits,
        buffer: BytesMut::new(),
        place,
        reserved: None,
        reserving: None,
        impatience,
        fetches: Vec::new(),
        produces: Vec::new(),
        groups: Vec::new(),
        session: None,
    };
    let ended = tokio::select! {
        ended = connection.run() => ended,
        _ = stop.wait_for(|stop| *stop) => Ended::ByPeer,
    };
    let told = Sanitised::sentence(&ended);
    match &ended {
        Ended::ByPeer | Ended::Io(_) => {
            tracing::debug!(target: "request", %peer, ended = %told, "connection ended")
        }
        // Told by whoever counts them.
        Ended::NoPlace => {}
        Ended::Frame(_) | Ended::Handler(_) | Ended::Stalled => {
            tracing::warn!(target: "request", %peer, ended = %told, "connection closed");
        }
    }
}

impl Connection {
    async fn run(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.handle_frames() {
                return ended;
            }
            if let Err(error) = self.end_waits() {
                return Ended::Handler(error);
            }
            self.out.flush_own();
            if self.out.is_closed() {
                return Ended::ByPeer;
            }
            if let Err(ended) = self.judge_patience() {
                return ended;
            }
            self.place.is_active();
            let deadline = self.deadline();
            let crowded = self.is_crowded();
            let gives_way = self.fetches.iter().any(WaitingFetch::gives_way);
            let may_read = self.out.may_take() && self.reserving.is_none() && !crowded;
            let unsent = self.out.unsent_bytes() > 0;
            tokio::select! {
                ready = self.stream.readable(), if may_read => {
                    if let Err(ended) = ready.map_err(Ended::from).and_then(|()| self.read()) {
                        return ended;
                    }
                }
                ready = self.stream.writable(), if unsent => {
                    if let Err(error) = ready {
                        return error.into();
                    }
                }
                () = self.out.woken() => {}
                more = granted(&mut self.reserving), if self.reserving.is_some() => {
                    self.reserving = None;
                    self.keep(more);
                }
                () = self.node.budget.answers_fit(), if crowded => {}
                () = self.node.budget.runs_short(), if gives_way => {}
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
            }
        }
    }

    /// Whether another request must wait until clients have read their answers. Whoever is owed none may go on, so that
    /// slow readers do not stop the others.
    fn is_crowded(&self) -> bool {
        self.session.is_none()
            && self.node.budget.answers_exceed()
            && self.out.is_busy_until_woken()
    }

    /// Gives up a connection that shows no request in time, or whose request stopped half way while memory is short.
    fn judge_patience(&mut self) -> Result<(), Ended> {
        let Some(until) = self.impatience else { return Ok(()) };
        if Instant::now() < until {
            return Ok(());
        }
        if self.place.is_on_probation() {
            self.place.refuse();
            return Err(Ended::NoPlace);
        }
        // While it waits for room itself, nothing can come.
        if self.reserved.is_some() && self.reserving.is_none() && self.node.budget.is_short() {
            return Err(Ended::Stalled);
        }
        self.impatience = self.reserved.is_some().then(|| Instant::now() + STALLED_MAX);
        Ok(())
    }

    /// Drains the socket into the buffer: the rest of the frame under way and a little more, never all that is declared.
    fn read(&mut self) -> Result<(), Ended> {
        for _ in 0..READS_PER_WAKE_MAX {
            let (len, key) = match peek(&self.buffer, &self.limits)? {
                Peek::NeedMore { at_least } => (at_least, None),
                Peek::Frame { len, key, .. } => (len, Some(key)),
            };
            let missing = len.saturating_sub(self.buffer.len());
            let wanted = (missing + LOOK_AHEAD_BYTES).min(GROWTH_STEP_BYTES);
            if let Some(key) = key.filter(|_| len > FREE_BYTES_MAX)
                && !self.may_hold((self.buffer.len() + wanted).min(len), key)
            {
                return Ok(());
            }
            self.buffer.reserve(wanted);
            let room = self.buffer.capacity() - self.buffer.len();
            let mut read = 0;
            let more = self.stream.try_io(Interest::READABLE, || {
                read = self.stream.try_read_buf(&mut self.buffer)?;
                // A short read has emptied the socket. Said here, so that the readiness from before the read ends with it: a
                // connection that waits then does not read once more to be told so. A large frame does: a read may take more
                // than was reserved for it, and the next one reserves that too, whether it finds anything or not.
                let emptied = read > 0 && read < room && self.buffer.len() <= FREE_BYTES_MAX;
                if emptied { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match more {
                Ok(()) if read == 0 => return Err(Ended::ByPeer),
                Ok(()) if read < room => return Ok(()),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if missing == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reserves what of the frame under way the buffer is about to hold; `false`: there is no room yet.
    fn may_hold(&mut self, bytes: usize, key: ApiKey) -> bool {
        let lacks = self.reserved.as_ref().map_or(bytes, |reserved| reserved.lacks(bytes));
        if lacks == 0 {
            self.impatience = Some(Instant::now() + STALLED_MAX);
            return true;
        }
        let (budget, of_follower) = (&self.node.budget, key == ApiKey::ReplicaFetch);
        match budget.try_reserve(lacks, of_follower) {
            Some(more) => {
                self.keep(more);
                true
            }
            None => {
                self.reserving = Some(Box::pin(budget.clone().reserve(lacks, of_follower)));
                false
            }
        }
    }

    fn keep(&mut self, more: Reserved) {
        self.impatience = Some(Instant::now() + STALLED_MAX);
        match &mut self.reserved {
            Some(reserved) => reserved.add(more),
            None => self.reserved = Some(more),
        }
    }

    fn handle_frames(&mut self) -> Result<(), Ended> {
        let mut flush = Flush::default();
        while self.out.may_take() && !self.is_crowded() {
            let Peek::Frame { len, key, .. } = peek(&self.buffer, &self.limits)? else { break };
            if self.place.is_on_probation() && key != ApiKey::ReplicaFetch {
                self.place.refuse();
                return Err(Ended::NoPlace);
            }
            if self.buffer.len() < len {
                break;
            }
            let mut bytes = self.buffer.split_to(len).freeze();
            if let Some(reserved) = self.reserved.take() {
                bytes = reserved.hold(bytes);
            }
            self.impatience = None;
            let frame = split(bytes)?;
            self.tell(&frame, len);
            let request = Request::decode(&frame)?;
            self.handle(&frame, request, &mut flush).map_err(Ended::Handler)?;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > IDLE_BUFFER_BYTES_MAX {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    fn tell(&self, frame: &RequestFrame, bytes: usize) {
        let RequestFrame { key, version, correlation_id, client_id, .. } = frame;
        let client = client_id.as_deref().map(Sanitised::name).map(display);
        tracing::debug!(
            target: "request", peer = %self.peer, client, ?key, version, correlation_id, bytes, "a request"
        );
    }

    /// Produces, fetches and what is answered at once are handled as they come. A request that changes something else is over
    /// before the next one begins, as in Kafka, where a connection has one request at a time: clients rely on it, by sending
    /// DeleteRecords and ListOffsets, or OffsetCommit and OffsetFetch, back to back.
    fn handle(
        &mut self,
        frame: &RequestFrame,
        request: Request,
        flush: &mut Flush,
    ) -> Result<(), String> {
        let slot = self.out.reserve_for(frame.key);
        let context = RequestContext {
            node: &self.node,
            out: &self.out,
            slot,
            version: frame.version,
            correlation_id: frame.correlation_id,
            client_id: frame.client_id.as_deref(),
            frame: &frame.body,
        };
        if let Request::ReplicaFetch(fetch) = request {
            if !self.place.is_followers() {
                self.follows(fetch.follower)?;
            }
            let session = self
                .session
                .get_or_insert_with(|| ReplicaSession::new(self.out.clone(), self.number));
            return session.request(&self.node, fetch, slot, frame.correlation_id, flush);
        }
        match kafka::handle(&context, request, flush)? {
            Handled::Answered(answer) => self.out.complete(slot, answer),
            Handled::Pieces(answer) => self.out.complete_pieces(slot, answer),
            Handled::Later => self.out.finish_before_more(slot),
            Handled::Produce(wait) => self.produces.push(wait),
            Handled::Fetch(mut fetch) => {
                if frame.body.len() > FREE_BYTES_MAX {
                    fetch.holds(frame.body.clone());
                }
                self.fetches.push(*fetch);
            }
            Handled::Group(wait) => {
                // Those wait for other members; were the socket not read meanwhile, nobody would see that the client is gone.
                if !matches!(frame.key, ApiKey::JoinGroup | ApiKey::SyncGroup) {
                    self.out.finish_before_more(slot);
                }
                self.groups.push(wait);
            }
        }
        Ok(())
    }

    /// The client says that it is this follower. That is not proven yet, so only what registered brokers need is spared the
    /// limits of clients.
    fn follows(&mut self, follower: BrokerId) -> Result<(), String> {
        let image = self.node.view.image();
        if image.brokers.contains_key(&follower) {
            self.place.becomes_followers(image.brokers.len());
        }
        if self.place.is_on_probation() {
            self.place.refuse();
            return Err(format!(
                "there is no place for one more connection of follower {follower}"
            ));
        }
        Ok(())
    }

    /// Answers fetches that are due or late, produces that are late, and the follower's session.
    fn end_waits(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let mut index = 0;
        while index < self.fetches.len() {
            if let Some(answer) = self.fetches[index].answer(&self.node, now)? {
                let fetch = self.fetches.swap_remove(index);
                fetch.parked.cancel();
                self.out.complete_pieces(fetch.slot, answer);
            } else {
                index += 1;
            }
        }
        self.groups.retain(|wait| !wait.is_answered());
        let mut flush = Flush::default();
        self.produces.retain_mut(|wait| {
            let ProduceWait { pending, flush_deadlines, .. } = wait;
            flush_deadlines.retain(|(at, hosted)| {
                if *at > now || pending.is_done() {
                    return true;
                }
                let mut after = Aftermath::default();
                hosted.time_out_flush(self.node.now(), pending, &mut after);
                after.settle(hosted, &*self.node, &mut flush);
                false
            });
            if !wait.pending.is_done() && wait.deadline <= now {
                for hosted in &wait.partitions {
                    let mut after = Aftermath::default();
                    hosted.time_out(self.node.now(), &wait.pending, &mut after);
                    after.settle(hosted, &*self.node, &mut flush);
                }
            }
            !wait.pending.is_done()
        });
        match &mut self.session {
            Some(session) => session.answer_if_due(now),
            None => Ok(()),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let fetches = self.fetches.iter().filter_map(WaitingFetch::deadline);
        let produces = self
            .produces
            .iter()
            .flat_map(|wait| wait.flush_deadlines.iter().map(|(at, _)| *at).chain([wait.deadline]));
        let session = self.session.iter().filter_map(ReplicaSession::deadline);
        fetches.chain(produces).chain(session).chain(self.impatience).min()
    }
}

/// What a reservation that is waited for came to.
async fn granted(
    reserving: &mut Option<Pin<Box<dyn Future<Output = Reserved> + Send>>>,
) -> Reserved {
    match reserving {
        Some(reserving) => reserving.await,
        None => std::future::pending().await,
    }
}

/// However the connection ends, a panic included: nobody keeps its place in a partition, or its socket.
impl Drop for Connection {
    fn drop(&mut self) {
        for fetch in &self.fetches {
            fetch.parked.cancel();
        }
        if let Some(session) = &mut self.session {
            session.end();
        }
        self.out.close();
    }
}

/// A wait of this length stands for "as long as the client likes" and keeps arithmetic on deadlines safe.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
