//! A frame in pieces: bytes that are ready, and places where ranges of record bytes are to be spliced in.

use bytes::{Bytes, BytesMut};

use crate::reply::ReplyError;

/// One piece of a frame, in the order of sending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Send these.
    Bytes(Bytes),
    /// Send exactly `len` bytes of the record range that the caller called `slot`.
    Records {
        /// The caller's name for the range.
        slot: usize,
        /// Bytes, 1 or more.
        len: usize,
    },
}

/// A whole frame in pieces; its length is known before anything is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segments {
    /// In the order of sending.
    pub parts: Vec<Segment>,
    /// Total bytes, size prefix and records included.
    pub len: usize,
}

impl Segments {
    /// One buffer with everything, for small answers and tests; `None` if a slot has not exactly its bytes.
    #[must_use]
    pub fn join(&self, mut records: impl FnMut(usize) -> Option<Bytes>) -> Option<Bytes> {
        let mut buffer = BytesMut::with_capacity(self.len);
        for part in &self.parts {
            match part {
                Segment::Bytes(bytes) => buffer.extend_from_slice(bytes),
                Segment::Records { slot, len } => {
                    let bytes = records(*slot).filter(|bytes| bytes.len() == *len)?;
                    buffer.extend_from_slice(&bytes);
                }
            }
        }
        Some(buffer.freeze())
    }
}

/// Collects the pieces: everything that is not records goes into one buffer, which is cut at the end.
pub(crate) struct SegmentWriter {
    /// Size prefix (patched at the end) and everything that is not records.
    pub(crate) buffer: BytesMut,
    /// Where to cut: position in the buffer, slot, bytes.
    cuts: Vec<(usize, usize, usize)>,
    records_bytes: usize,
}

impl SegmentWriter {
    /// Begins with an empty size prefix.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(capacity);
        buffer.extend_from_slice(&[0; 4]);
        Self { buffer, cuts: Vec::new(), records_bytes: 0 }
    }

    /// Records go here. Nothing for a length of 0.
    pub(crate) fn records(&mut self, slot: usize, len: usize) {
        if len > 0 {
            self.cuts.push((self.buffer.len(), slot, len));
            self.records_bytes = self.records_bytes.saturating_add(len);
        }
    }

    /// Patches the size and cuts.
    pub(crate) fn finish(mut self, message: &'static str) -> Result<Segments, ReplyError> {
        let len = self.buffer.len().saturating_add(self.records_bytes);
        let size = i32::try_from(len - 4)
            .map_err(|_| ReplyError::FrameTooLong { message, length: len })?;
        self.buffer[..4].copy_from_slice(&size.to_be_bytes());
        let bytes = self.buffer.freeze();
        let mut parts = Vec::with_capacity(2 * self.cuts.len() + 1);
        let mut from = 0;
        for (at, slot, len) in self.cuts {
            if at > from {
                parts.push(Segment::Bytes(bytes.slice(from..at)));
                from = at;
            }
            parts.push(Segment::Records { slot, len });
        }
        if from < bytes.len() {
            parts.push(Segment::Bytes(bytes.slice(from..)));
        }
        Ok(Segments { parts, len })
    }
}
