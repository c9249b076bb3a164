//! Producer snapshots: the table as a file, in Kafka's format (version 1), so that Kafka and its tools read it too.
//!
//! ```text
//! version  i16 = 1
//! crc      u32    CRC-32C of everything after it
//! count    i32
//! rows     count × { producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
//!                    coordinator epoch i32, first offset of the open transaction i64 }          all big-endian
//! ```
//!
//! Kafka writes one row for a producer, its last batch, and so forgets four of the five when it is started again. The rows of
//! one producer may stand together here, oldest first: Kafka's own reader takes the last of them, so the file means to it what
//! it always did, and to this log nothing is lost.

use crate::batch::{BatchHeader, crc_of_bytes};

const VERSION: i16 = 1;
const CRC_AT: usize = 2;
const COVERED_FROM: usize = 6;
const ROWS_AT: usize = 10;
const ROW_BYTES: usize = 46;
/// No snapshot that is larger is read: far more than the producers of a partition come to.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;

/// One row of a snapshot: a batch of a producer, one of its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerBatch {
    /// The producer's id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Sequence of the batch's last record; -1 if no batch of the producer is known.
    pub last_sequence: i32,
    /// Offset of the batch's last record, inclusive; -1 if no batch of the producer is known.
    pub last_offset: i64,
    /// Offset of the last record relative to the first.
    pub offset_delta: i32,
    /// Greatest timestamp of the producer's last batch, ms; -1 if it has none.
    pub timestamp_ms: i64,
    /// Epoch of the transaction coordinator that wrote last; -1 without transactions.
    pub coordinator_epoch: i32,
    /// First offset of the producer's open transaction; -1 if there is none.
    pub current_txn_first_offset: i64,
}

/// Why bytes are no producer snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file ends before its last row does, or goes on after it.
    #[error("{found} bytes, but its count asks for {expected}")]
    Size {
        /// Bytes that there are.
        found: u64,
        /// Bytes that a whole file would have.
        expected: u64,
    },
    /// Not version 1.
    #[error("version {0} is not 1")]
    Version(i16),
    /// The CRC-32C does not fit the bytes.
    #[error("CRC is {stored:#010x}, its bytes have {computed:#010x}")]
    Crc {
        /// What the file says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A row makes no sense: a negative id or sequence, a batch that begins below 0.
    #[error("row {row} at byte {position} makes no sense")]
    Row {
        /// Its number, from 0.
        row: usize,
        /// Where it begins.
        position: u64,
    },
}

impl ProducerBatch {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.last_sequence.to_be_bytes());
        out.extend_from_slice(&self.last_offset.to_be_bytes());
        out.extend_from_slice(&self.offset_delta.to_be_bytes());
        out.extend_from_slice(&self.timestamp_ms.to_be_bytes());
        out.extend_from_slice(&self.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&self.current_txn_first_offset.to_be_bytes());
    }

    fn get(bytes: &[u8; ROW_BYTES]) -> Self {
        Self {
            producer_id: i64::from_be_bytes(part(bytes, 0)),
            producer_epoch: i16::from_be_bytes(part(bytes, 8)),
            last_sequence: i32::from_be_bytes(part(bytes, 10)),
            last_offset: i64::from_be_bytes(part(bytes, 14)),
            offset_delta: i32::from_be_bytes(part(bytes, 22)),
            timestamp_ms: i64::from_be_bytes(part(bytes, 26)),
            coordinator_epoch: i32::from_be_bytes(part(bytes, 34)),
            current_txn_first_offset: i64::from_be_bytes(part(bytes, 38)),
        }
    }

    fn makes_sense(&self) -> bool {
        self.producer_id >= 0
            && self.offset_delta >= 0
            && (self.last_offset < 0 || self.last_offset >= i64::from(self.offset_delta))
            && self.last_offset < i64::MAX
            && self.last_sequence >= -1
    }

    /// Sequence of the batch's first record; -1 if no batch of the producer is known.
    #[must_use]
    pub fn first_sequence(&self) -> i32 {
        if self.last_sequence < 0 {
            return -1;
        }
        let sequences = i64::from(i32::MAX) + 1;
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        i32::try_from(first.rem_euclid(sequences)).unwrap_or(-1)
    }

    /// Whether the batch that the log holds where the row says is its producer's. (Compaction may have taken records from it.)
    pub(crate) fn is_of(&self, header: &BatchHeader) -> bool {
        header.producer_id == self.producer_id && header.producer_epoch == self.producer_epoch
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The file's content for these rows.
pub(crate) fn encode(rows: impl Iterator<Item = ProducerBatch>) -> Vec<u8> {
    let mut out = vec![0; ROWS_AT];
    let mut count = 0_i32;
    for row in rows {
        row.put(&mut out);
        count += 1;
    }
    out[..CRC_AT].copy_from_slice(&VERSION.to_be_bytes());
    out[COVERED_FROM..ROWS_AT].copy_from_slice(&count.to_be_bytes());
    let crc = crc_of_bytes(&out[COVERED_FROM..]);
    out[CRC_AT..COVERED_FROM].copy_from_slice(&crc.to_be_bytes());
    out
}

/// The rows of a file, in its order.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<ProducerBatch>, SnapshotError> {
    let found = bytes.len() as u64;
    let Some((head, rows)) = bytes.split_first_chunk::<ROWS_AT>() else {
        return Err(SnapshotError::Size { found, expected: ROWS_AT as u64 });
    };
    let version = i16::from_be_bytes(part(head, 0));
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let count = i32::from_be_bytes(part(head, COVERED_FROM));
    let expected = ROWS_AT as u64 + u64::from(count.max(0).unsigned_abs()) * ROW_BYTES as u64;
    if count < 0 || found != expected {
        return Err(SnapshotError::Size { found, expected });
    }
    let stored = u32::from_be_bytes(part(head, CRC_AT));
    let computed = crc_of_bytes(&bytes[COVERED_FROM..]);
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    let (chunks, _) = rows.as_chunks::<ROW_BYTES>();
    let mut out = Vec::with_capacity(chunks.len());
    for (row, bytes) in chunks.iter().enumerate() {
        let batch = ProducerBatch::get(bytes);
        if !batch.makes_sense() {
            return Err(SnapshotError::Row { row, position: (ROWS_AT + row * ROW_BYTES) as u64 });
        }
        out.push(batch);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, last_sequence: i32, last_offset: i64) -> ProducerBatch {
        ProducerBatch {
            producer_id: id,
            producer_epoch: 3,
            last_sequence,
            last_offset,
            offset_delta: 4,
            timestamp_ms: 1_700_000_000_000,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        }
    }

    #[test]
    fn the_format_is_kafkas_byte_for_byte() {
        let bytes = encode([row(7, 9, 21)].into_iter());
        let body = "00000001 0000000000000007 0003 00000009 0000000000000015 00000004 \
                    0000018bcfe56800 ffffffff ffffffffffffffff";
        let hex: String = bytes[6..].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, body.replace(' ', ""));
        assert_eq!(&bytes[..2], [0, 1]);
        assert_eq!(bytes[2..6], crc_of_bytes(&bytes[6..]).to_be_bytes());
        assert_eq!(encode(std::iter::empty()).len(), 10);
    }

    #[test]
    fn what_is_written_is_read() {
        let rows = [row(1, 4, 4), row(1, 9, 9), row(2, -1, -1), row(i64::MAX, i32::MAX, 5)];
        assert_eq!(decode(&encode(rows.iter().copied())).unwrap(), rows);
    }

    #[test]
    fn damage_is_named() {
        let good = encode([row(1, 4, 4), row(2, 9, 9)].into_iter());
        for end in 0..good.len() {
            assert!(matches!(decode(&good[..end]), Err(SnapshotError::Size { .. })), "{end}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        assert!(matches!(decode(&vec![0; good.len()]), Err(SnapshotError::Version(0))));
        for bad in [
            ProducerBatch { producer_id: -1, ..row(1, 4, 4) },
            ProducerBatch { offset_delta: -1, ..row(1, 4, 4) },
            ProducerBatch { offset_delta: 5, ..row(1, 4, 4) },
            ProducerBatch { last_offset: i64::MAX, ..row(1, 4, 4) },
        ] {
            let found = decode(&encode([row(1, 4, 4), bad].into_iter()));
            assert_eq!(found, Err(SnapshotError::Row { row: 1, position: 56 }));
        }
    }
}
