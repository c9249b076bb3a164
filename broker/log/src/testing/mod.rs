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
use crate::codec::Codec;
use crate::records::put_varint;

/// An uncompressed batch with these values, no keys, timestamp 0, base offset 0.
#[must_use]
pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    values.iter().fold(BatchBuilder::new(), |b, value| b.record(value)).build()
}

/// A key or a value.
type Field = Option<Vec<u8>>;

/// Builds one batch, right or deliberately wrong.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    attributes: i16,
    codec: i16,
    timestamps: Vec<i64>,
    records: Vec<(Field, Field)>,
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
            codec: 0,
            timestamps: Vec::new(),
            records: Vec::new(),
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
        self.records.push((None, Some(value.to_vec())));
        self
    }

    /// Adds a record with a key; a tombstone if it has no value.
    #[must_use]
    pub fn keyed(mut self, key: &[u8], value: Option<&[u8]>) -> Self {
        self.timestamps.push(self.next_timestamp);
        self.records.push((Some(key.to_vec()), value.map(<[u8]>::to_vec)));
        self
    }

    /// Compresses the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    #[must_use]
    pub fn codec(mut self, codec: i16) -> Self {
        self.codec = codec;
        self
    }

    /// Sets the attributes (timestamp type, flags, a codec that need not be the right one) as they are.
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
        let count = i32::try_from(self.records.len()).expect("fewer than 2^31 records");
        let mut records = Vec::new();
        for (delta, (record, timestamp)) in (0_i64..).zip(self.records.iter().zip(&self.timestamps))
        {
            let (key, value) = record;
            let mut record = vec![0];
            put_varint(&mut record, timestamp.wrapping_sub(base_timestamp));
            put_varint(&mut record, delta);
            for field in [key, value] {
                let length = field.as_ref().map_or(Ok(-1), |f| i64::try_from(f.len()));
                put_varint(&mut record, length.expect("a small record"));
                record.extend_from_slice(field.as_deref().unwrap_or_default());
            }
            put_varint(&mut record, 0);
            put_varint(&mut records, i64::try_from(record.len()).expect("a small record"));
            records.extend_from_slice(&record);
        }
        let mut out = vec![0; HEADER_BYTES];
        let codec = Codec::of(self.codec).expect("a known codec");
        codec.compress(&records, &mut out).expect("compression in memory");
        let attributes = self.attributes | self.codec;
        let length = i32::try_from(out.len() - LENGTH_END).expect("a batch below 2 GiB");
        out[8..12].copy_from_slice(&length.to_be_bytes());
        out[12..16].copy_from_slice(&(-1_i32).to_be_bytes());
        out[16] = 2;
        out[21..23].copy_from_slice(&attributes.to_be_bytes());
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
