//! Walks the batches of a segment file by their headers, reading it in chunks.

use std::fs::File;
use std::io;

use crate::batch::{BatchError, BatchHeader, CRC_FROM, CrcStream, HEADER_BYTES};
use crate::cached::Wait;

/// Chunk for short walks from an index entry: covers the default index interval.
pub(crate) const LOOKUP_CHUNK_BYTES: usize = 8 * 1024;
/// Chunk for scans that check CRCs.
pub(crate) const SCAN_CHUNK_BYTES: usize = 256 * 1024;

/// What lies at the walk's position.
#[derive(Debug)]
pub(crate) enum Step {
    /// A batch that lies wholly in the file (its CRC is not checked yet).
    Batch(u64, BatchHeader),
    /// No batch, or not the whole of one.
    Bad(u64, BatchError),
    /// The end.
    End,
}

/// A walk over `[position, size)` of a file.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    file: &'a File,
    size: u64,
    position: u64,
    buffer: Vec<u8>,
    buffer_from: u64,
    chunk_bytes: usize,
    wait: Wait,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(file: &'a File, size: u64, position: u64, chunk_bytes: usize) -> Self {
        Self {
            file,
            size,
            position,
            buffer: Vec::new(),
            buffer_from: position,
            chunk_bytes,
            wait: Wait::ForDisk,
        }
    }

    /// The same, which waits for the disk as it is told.
    pub(crate) fn waiting(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// The bytes `[from, from + need)`, through the buffer; `need` is at most the chunk and they lie below `size`.
    fn bytes(&mut self, from: u64, need: usize) -> io::Result<&[u8]> {
        let inside = from >= self.buffer_from
            && from + need as u64 <= self.buffer_from + self.buffer.len() as u64;
        if !inside {
            let left = usize::try_from(self.size - from).unwrap_or(usize::MAX);
            self.buffer.resize(left.min(self.chunk_bytes), 0);
            self.buffer_from = from;
            if let Err(error) = self.wait.read_exact_at(self.file, &mut self.buffer, from) {
                self.buffer.clear();
                return Err(error);
            }
        }
        let at = usize::try_from(from - self.buffer_from).unwrap_or(0);
        Ok(&self.buffer[at..at + need])
    }

    /// The next batch. After `Bad` the walk stays where it is.
    pub(crate) fn next(&mut self) -> io::Result<Step> {
        let position = self.position;
        if position >= self.size {
            return Ok(Step::End);
        }
        let need = HEADER_BYTES.min(usize::try_from(self.size - position).unwrap_or(HEADER_BYTES));
        match BatchHeader::parse(self.bytes(position, need)?) {
            Ok(header) if header.size() as u64 <= self.size - position => {
                self.position += header.size() as u64;
                Ok(Step::Batch(position, header))
            }
            Ok(_) => Ok(Step::Bad(position, BatchError::Truncated)),
            Err(error) => Ok(Step::Bad(position, error)),
        }
    }

    /// The CRC of a batch that this walk returned; in pieces, so that memory does not depend on the batch's size.
    pub(crate) fn crc(&mut self, position: u64, header: &BatchHeader) -> io::Result<u32> {
        let end = position + header.size() as u64;
        let mut from = position + CRC_FROM as u64;
        let mut crc = CrcStream::new();
        while from < end {
            let left = usize::try_from(end - from).unwrap_or(usize::MAX);
            let piece = left.min(self.chunk_bytes);
            crc.update(self.bytes(from, piece)?);
            from += piece as u64;
        }
        Ok(crc.finish())
    }
}
