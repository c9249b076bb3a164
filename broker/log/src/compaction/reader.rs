//! Reads a sealed segment from its beginning, batch by batch, whole ones with a right CRC.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::batch::{Batch, BatchError, BatchHeader, HEADER_BYTES};

/// Bytes read at once; a larger batch is read as a whole.
const CHUNK_BYTES: usize = 1 << 20;

pub(super) struct BatchReader<'a> {
    file: &'a File,
    /// Bytes of batches in it.
    size: u64,
    /// Position of the next batch.
    position: u64,
    /// What was read ahead, and where it begins.
    buffer: Vec<u8>,
    buffer_from: u64,
}

impl<'a> BatchReader<'a> {
    pub(super) fn new(file: &'a File, size: u64) -> Self {
        Self { file, size, position: 0, buffer: Vec::new(), buffer_from: 0 }
    }

    /// The bytes `[position, position + need)`.
    fn bytes(&mut self, need: usize) -> io::Result<&[u8]> {
        let from = usize::try_from(self.position - self.buffer_from).unwrap_or(usize::MAX);
        if from.saturating_add(need) > self.buffer.len() {
            let left = usize::try_from(self.size - self.position).unwrap_or(usize::MAX);
            self.buffer.resize(need.max(left.min(CHUNK_BYTES)), 0);
            self.buffer_from = self.position;
            self.file.read_exact_at(&mut self.buffer, self.position)?;
        }
        let from = usize::try_from(self.position - self.buffer_from).unwrap_or(0);
        Ok(&self.buffer[from..from + need])
    }

    /// Position of the batch that comes next, or the end.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` at the end. The inner error: there is no whole batch, and the reader stays where it is.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<Batch<'_>, BatchError>>> {
        let left = self.size - self.position;
        if left == 0 {
            return Ok(None);
        }
        let head = HEADER_BYTES.min(usize::try_from(left).unwrap_or(HEADER_BYTES));
        let header = match BatchHeader::parse(self.bytes(head)?) {
            Ok(header) if header.size() as u64 <= left => header,
            Ok(_) => return Ok(Some(Err(BatchError::Truncated))),
            Err(error) => return Ok(Some(Err(error))),
        };
        let before = self.position;
        self.bytes(header.size())?;
        self.position += header.size() as u64;
        let from = usize::try_from(before - self.buffer_from).unwrap_or(0);
        let batch = Batch { header, bytes: &self.buffer[from..from + header.size()] };
        if let Err(error) = batch.check_crc() {
            return Ok(Some(Err(error)));
        }
        Ok(Some(Ok(batch)))
    }
}
