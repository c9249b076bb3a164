//! One stream of events to one page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::super::source::Source;
use super::ring::{Next, Place};

/// Streams of one broker.
pub(in crate::http) const EVENT_STREAMS_MAX: usize = 64;
/// A reader that is farther behind is cut; it comes again and gets what it missed.
const UNSENT_BYTES_MAX: u64 = 256 << 10;
/// A reader that has taken nothing for so long is cut.
const STALL_MAX: Duration = Duration::from_secs(30);
/// Frames between the ring and the socket.
const FRAMES_MAX: usize = 1;
/// A page that lost its stream comes again after so long.
const RETRY: &str = "retry: 2000\n\n";
const RESYNC: &str = "event: resync\ndata: {}\n\n";

/// What a stream's body is made of.
pub(in crate::http) type Feed = ReceiverStream<Result<Frame<Bytes>, std::convert::Infallible>>;

/// Ends a connection whose reader is too slow: while its socket is full, nothing else does.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Cut(Arc<Notify>);

impl Cut {
    fn now(&self) {
        self.0.notify_one();
    }

    /// Waits for it.
    pub(in crate::http) async fn wanted(&self) {
        self.0.notified().await;
    }
}

/// Begins a stream, after the event `last` if that can be told.
pub(in crate::http) fn open(
    source: &Arc<Source>,
    last: Option<&str>,
    place: OwnedSemaphorePermit,
    cut: Cut,
) -> Feed {
    let (frames, feed) = mpsc::channel(FRAMES_MAX);
    let ring = &source.ring;
    let (from, hello) = match last {
        None => (ring.end(), RETRY.to_owned()),
        Some(id) => match ring.after(id) {
            Some(from) => (from, RETRY.to_owned()),
            None => (ring.end(), format!("{RETRY}{RESYNC}")),
        },
    };
    let source = source.clone();
    tokio::spawn(async move {
        let _place = place;
        pump(&source, frames, from, Bytes::from(hello), &cut).await;
    });
    ReceiverStream::new(feed)
}

type Frames = mpsc::Sender<Result<Frame<Bytes>, std::convert::Infallible>>;

/// Until the reader is gone, or too slow.
async fn pump(source: &Source, frames: Frames, mut from: Place, hello: Bytes, cut: &Cut) {
    let mut news = source.ring.news();
    let mut owed = Some(hello);
    loop {
        let bytes = match owed.take() {
            Some(bytes) => bytes,
            None => match source.ring.next(from) {
                Next::Event(bytes, place) => {
                    from = place;
                    bytes
                }
                Next::Lost(end) => {
                    from = end;
                    Bytes::from_static(RESYNC.as_bytes())
                }
                Next::Nothing => {
                    tokio::select! {
                        changed = news.changed() => if changed.is_err() { return },
                        () = frames.closed() => return,
                    }
                    continue;
                }
            },
        };
        let began = Instant::now();
        loop {
            tokio::select! {
                room = frames.reserve() => match room {
                    Ok(room) => {
                        room.send(Ok(Frame::data(bytes)));
                        break;
                    }
                    Err(_) => return,
                },
                _ = news.changed() => {}
                () = tokio::time::sleep(STALL_MAX) => {}
            }
            let unsent = source.ring.end().bytes.saturating_sub(from.bytes);
            if unsent > UNSENT_BYTES_MAX || began.elapsed() >= STALL_MAX {
                cut.now();
                return;
            }
        }
    }
}
