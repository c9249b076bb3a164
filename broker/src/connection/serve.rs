//! One connection, one task: read, check, append, answer. No channel, no further task on this path.
//!
//! After readiness the socket is drained (bounded), every whole frame is handled, then everything finished is sent once:
//! sending after each frame costs 1.4 times the CPU.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barnabas_wire::{FrameError, FrameLimits, Peek, Request, peek, split};
use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::out::Out;
use super::replica_session::ReplicaSession;
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
const IDLE_BUFFER_BYTES_MAX: usize = 16 << 10;

struct Connection {
    node: Arc<Node>,
    stream: Arc<TcpStream>,
    out: Arc<Out>,
    limits: FrameLimits,
    buffer: BytesMut,
    fetches: Vec<WaitingFetch>,
    produces: Vec<ProduceWait>,
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
}

/// Serves one connection until it ends or `stop` becomes true.
pub(super) async fn serve(
    node: Arc<Node>,
    stream: TcpStream,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let stream = Arc::new(stream);
    let out = Arc::new(Out::new(stream.clone()));
    let limits = FrameLimits {
        produce_bytes_max: node.options.socket_request_max_bytes,
        ..FrameLimits::default()
    };
    let mut connection = Connection {
        node,
        stream,
        out,
        limits,
        buffer: BytesMut::new(),
        fetches: Vec::new(),
        produces: Vec::new(),
        session: None,
    };
    let ended = tokio::select! {
        ended = connection.run() => ended,
        _ = stop.wait_for(|stop| *stop) => Ended::ByPeer,
    };
    match &ended {
        Ended::ByPeer | Ended::Io(_) => {
            tracing::debug!(target: "request", %peer, %ended, "connection ended")
        }
        Ended::Frame(_) | Ended::Handler(_) => {
            tracing::warn!(target: "request", %peer, %ended, "connection closed");
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
            let deadline = self.deadline();
            let may_read = self.out.may_take();
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
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
            }
        }
    }

    /// Drains the socket into the buffer: the rest of the frame under way and a little more, never all that is declared.
    fn read(&mut self) -> Result<(), Ended> {
        for _ in 0..READS_PER_WAKE_MAX {
            let missing = match peek(&self.buffer, &self.limits)? {
                Peek::NeedMore { at_least } => at_least.saturating_sub(self.buffer.len()),
                Peek::Frame { len, .. } => len.saturating_sub(self.buffer.len()),
            };
            let wanted = (missing + LOOK_AHEAD_BYTES).min(GROWTH_STEP_BYTES);
            self.buffer.reserve(wanted);
            let room = self.buffer.capacity() - self.buffer.len();
            match self.stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return Err(Ended::ByPeer),
                Ok(read) if read < room => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if missing == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn handle_frames(&mut self) -> Result<(), Ended> {
        let mut flush = Flush::default();
        while self.out.may_take() {
            let Peek::Frame { len, .. } = peek(&self.buffer, &self.limits)? else { break };
            if self.buffer.len() < len {
                break;
            }
            let frame = split(self.buffer.split_to(len).freeze())?;
            let request = Request::decode(&frame)?;
            self.handle(&frame, request, &mut flush).map_err(Ended::Handler)?;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > IDLE_BUFFER_BYTES_MAX {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    fn handle(
        &mut self,
        frame: &barnabas_wire::RequestFrame,
        request: Request,
        flush: &mut Flush,
    ) -> Result<(), String> {
        let slot = self.out.reserve();
        let context = RequestContext {
            node: &self.node,
            out: &self.out,
            slot,
            version: frame.version,
            correlation_id: frame.correlation_id,
        };
        if let Request::ReplicaFetch(fetch) = request {
            let session = self.session.get_or_insert_with(|| ReplicaSession::new(self.out.clone()));
            return session.request(&self.node, fetch, slot, frame.correlation_id, flush);
        }
        match kafka::handle(&context, request, flush)? {
            Handled::Answered(answer) => self.out.complete(slot, answer),
            Handled::Later => {}
            Handled::Produce(wait) => self.produces.push(wait),
            Handled::Fetch(fetch) => self.fetches.push(fetch),
        }
        Ok(())
    }

    /// Answers fetches that are due or late, produces that are late, and the follower's session.
    fn end_waits(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let mut index = 0;
        while index < self.fetches.len() {
            let late = self.fetches[index].deadline <= now;
            if (late || self.fetches[index].parked.is_fired())
                && let Some(answer) = self.fetches[index].answer(&self.node, late)?
            {
                let fetch = self.fetches.swap_remove(index);
                fetch.parked.cancel();
                self.out.complete(fetch.slot, answer);
            } else {
                index += 1;
            }
        }
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
        let fetches = self.fetches.iter().map(|fetch| fetch.deadline);
        let produces = self
            .produces
            .iter()
            .flat_map(|wait| wait.flush_deadlines.iter().map(|(at, _)| *at).chain([wait.deadline]));
        let session = self.session.iter().filter_map(ReplicaSession::deadline);
        fetches.chain(produces).chain(session).min()
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
