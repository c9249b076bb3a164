//! For tests of this and other crates: small batches, temporary directories, disks that forget or refuse. Not used by the
//! product.

mod failing;
mod forgetting;
mod random;

pub use failing::{Failing, Kind};
pub use forgetting::Forgetting;
pub use random::Random;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::batch::{HEADER_BYTES, LENGTH_END, crc_of};

/// An uncompressed batch with these values, no keys, timestamp 0, base offset 0.
#[must_use]
pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    values.iter().fold(BatchBuilder::new(), |b, value| b.record(value)).build()
}

/// Builds one uncompressed batch, right or deliberately wrong.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    attributes: i16,
    timestamps: Vec<i64>,
    values: Vec<Vec<u8>>,
    producer: (i64, i16, i32),
    record_count: Option<i32>,
    last_offset_delta: Option<i32>,
    next_timestamp: i64,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// No record yet, timestamp 0.
    #[must_use]
    pub fn new() -> Self {
        Self {
            attributes: 0,
            timestamps: Vec::new(),
            values: Vec::new(),
            producer: (-1, -1, -1),
            record_count: None,
            last_offset_delta: None,
            next_timestamp: 0,
        }
    }

    /// Timestamp, ms, of the records added from now on.
    #[must_use]
    pub fn timestamp(mut self, timestamp_ms: i64) -> Self {
        self.next_timestamp = timestamp_ms;
        self
    }

    /// Adds a record without key.
    #[must_use]
    pub fn record(mut self, value: &[u8]) -> Self {
        self.timestamps.push(self.next_timestamp);
        self.values.push(value.to_vec());
        self
    }

    /// Sets the attributes (codec, timestamp type, flags) as they are.
    #[must_use]
    pub fn attributes(mut self, attributes: i16) -> Self {
        self.attributes = attributes;
        self
    }

    /// Producer id, epoch and base sequence.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Claims another record count.
    #[must_use]
    pub fn record_count(mut self, count: i32) -> Self {
        self.record_count = Some(count);
        self
    }

    /// Claims another record count with a last offset delta that fits it.
    #[must_use]
    pub fn counts(mut self, count: i32) -> Self {
        self.record_count = Some(count);
        self.last_offset_delta = Some(count.saturating_sub(1));
        self
    }

    /// The bytes, with base offset 0 and leader epoch -1 as producers send them.
    ///
    /// # Panics
    /// If the batch were larger than 2 GiB.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let base_timestamp = self.timestamps.first().copied().unwrap_or(-1);
        let max_timestamp = self.timestamps.iter().copied().max().unwrap_or(-1);
        let count = i32::try_from(self.values.len()).expect("fewer than 2^31 records");
        let mut out = vec![0; HEADER_BYTES];
        for (delta, (value, timestamp)) in (0_i64..).zip(self.values.iter().zip(&self.timestamps)) {
            let mut record = vec![0];
            put_varint(&mut record, timestamp - base_timestamp);
            put_varint(&mut record, delta);
            put_varint(&mut record, -1);
            put_varint(&mut record, i64::try_from(value.len()).expect("a small value"));
            record.extend_from_slice(value);
            put_varint(&mut record, 0);
            put_varint(&mut out, i64::try_from(record.len()).expect("a small record"));
            out.extend_from_slice(&record);
        }
        let length = i32::try_from(out.len() - LENGTH_END).expect("a batch below 2 GiB");
        out[8..12].copy_from_slice(&length.to_be_bytes());
        out[12..16].copy_from_slice(&(-1_i32).to_be_bytes());
        out[16] = 2;
        out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.unwrap_or(count - 1).to_be_bytes());
        out[27..35].copy_from_slice(&base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer.0.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer.1.to_be_bytes());
        out[53..57].copy_from_slice(&self.producer.2.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.unwrap_or(count).to_be_bytes());
        let crc = crc_of(&out);
        out[17..21].copy_from_slice(&crc.to_be_bytes());
        out
    }
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A directory of its own under the system's temporary one, removed when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes one; `name` shows up in its path.
    ///
    /// # Panics
    /// If the directory cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// As [`TempDir::new`], in memory where the system has a place for that: for many small files whose syncs mean nothing.
    ///
    /// # Panics
    /// If the directory cannot be made.
    #[must_use]
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory, name) } else { Self::new(name) }
    }

    fn below(parent: &Path, name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("barnabas-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn folder(&self) -> crate::disk::Folder {
        crate::disk::Folder { path: self.0.clone(), disk: crate::disk::Disk::real() }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
