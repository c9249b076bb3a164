//! Accepts connections of the Kafka listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::serve;
use crate::node::Node;

/// Wait after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Least time between two log lines about that.
const FAILED_EVERY: Duration = Duration::from_secs(10);
/// Accepted in a row before others have their turn.
const ACCEPTS_MAX: usize = 32;
/// Most time between two looks for idle connections.
const IDLE_LOOK_MAX: Duration = Duration::from_secs(10);

/// A silent peer is asked whether it is there after this time, so often, and every so often: one that is gone without a word
/// (a machine without power, a firewall that forgot) is found within two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;
/// A peer that neither acknowledges nor takes a byte for so long, while there are some for it, is gone. Longer than any pause of a
/// client's own (garbage collection), shorter than what would let half-open followers count as slow.
const UNACKNOWLEDGED_MAX_MS: u32 = 120_000;

/// Accepts until `stop` becomes true. Must run on the data runtime: each connection is one task there.
pub async fn listen(node: Arc<Node>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let of_connections = stop.clone();
    tokio::select! {
        () = accept(&node, &listener, &of_connections) => {}
        () = end_idle(&node) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn accept(node: &Arc<Node>, listener: &TcpListener, stop: &watch::Receiver<bool>) {
    let mut in_a_row = 0;
    let mut told: Option<Instant> = None;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => begin(node, stream, peer, stop),
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= FAILED_EVERY) {
                    told = Some(Instant::now());
                    tracing::warn!(target: "request", %error, "a connection could not be accepted{}", remedy(&error));
                }
                // Out of file descriptors, most likely: the same error would come again at once.
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
        in_a_row += 1;
        if in_a_row % ACCEPTS_MAX == 0 {
            tokio::task::yield_now().await;
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => {
            "; this process has opened all the files that it may: raise LimitNOFILE (ulimit -n), or lower max.connections"
        }
        Some(Errno::NFILE) => "; the system has too many open files: raise fs.file-max",
        _ => "",
    }
}

fn begin(node: &Arc<Node>, stream: TcpStream, peer: SocketAddr, stop: &watch::Receiver<bool>) {
    let Some(place) = node.places.take(peer.ip()) else { return };
    if let Err(error) = prepare(&stream) {
        // It was reset while it waited.
        tracing::debug!(target: "request", %peer, %error, "a connection ended before it began");
        return;
    }
    // In the order of accepting, whichever task runs first.
    let number = node.turns.number();
    tokio::spawn(serve::serve(node.clone(), (number, stream), peer, place, stop.clone()));
}

/// What every connection between brokers and with clients needs: no delay, and an end when the peer is gone.
///
/// # Errors
/// From the operating system.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX_MS)?;
    Ok(())
}

/// Ends idle connections, for as long as the listener lives.
async fn end_idle(node: &Arc<Node>) {
    let every = (node.places.idle_max() / 4).clamp(Duration::from_millis(10), IDLE_LOOK_MAX);
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let ended = node.places.end_idle();
        if ended > 0 {
            tracing::info!(target: "request", ended, "connections without a request for connections.max.idle.ms were closed");
        }
    }
}
