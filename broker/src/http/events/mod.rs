//! Server-sent events: one feed makes them (`feed`), a ring keeps the last ones (`ring`), each stream reads from the ring at its own pace
//! (`stream`), so that a slow reader costs no memory.

mod feed;
mod ring;
mod stream;

pub(super) use feed::run;
pub(super) use ring::Ring;
pub(super) use stream::{Cut, EVENT_STREAMS_MAX, Feed, open};
