//! What an answer is made of: bytes in memory, and ranges of files that go from the page cache to the socket.

use std::io;
use std::sync::Arc;

use barnabas_log::{DiskFile, ReadRange};
use barnabas_wire::Segment;
use bytes::Bytes;

/// Shorter ranges are copied: one vectored write with what surrounds them is cheaper than a `sendfile` of their own.
const SENDFILE_BYTES_MIN: usize = 16 << 10;

/// One piece of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// These bytes.
    Bytes(Bytes),
    /// Bytes of a file, which nobody holds in memory.
    File(FileRange),
}

/// Bytes of a segment file. They cannot change under it: a segment file is only appended to, a cut one is not written to
/// again, and a deleted or replaced one lives on as long as it is held. What can happen is that they are cut off; then the
/// file ends before them, and the connection is closed.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub(super) file: Arc<DiskFile>,
    /// First byte.
    pub(super) position: u64,
    /// Bytes.
    pub(super) len: usize,
}

impl Piece {
    /// A range of records: read now if it is short, sent from its file if it is long.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_range(range: &ReadRange) -> io::Result<Self> {
        if range.len < SENDFILE_BYTES_MIN {
            let mut bytes = Vec::new();
            range.read_into(&mut bytes)?;
            return Ok(Self::Bytes(bytes.into()));
        }
        Ok(Self::in_file(range))
    }

    /// A range of records that is sent from its file, however short it is: nobody holds it in memory until then.
    #[must_use]
    pub fn in_file(range: &ReadRange) -> Self {
        let file = Arc::clone(&range.file);
        Self::File(FileRange { file, position: range.position, len: range.len })
    }

    /// Bytes to send.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(range) => range.len,
        }
    }

    /// What will be sent.
    #[cfg(test)]
    pub(crate) fn read(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::File(range) => {
                use std::os::unix::fs::FileExt as _;
                let mut bytes = vec![0; range.len];
                range.file.read_exact_at(&mut bytes, range.position).unwrap();
                bytes
            }
        }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it holds in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(_) => 0,
        }
    }
}

/// Puts the record ranges into their places.
pub(crate) fn splice(parts: Vec<Segment>, ranges: &[Piece]) -> Vec<Piece> {
    parts
        .into_iter()
        .filter_map(|part| match part {
            Segment::Bytes(bytes) => Some(Piece::Bytes(bytes)),
            Segment::Records { slot, .. } => ranges.get(slot).cloned(),
        })
        .collect()
}
