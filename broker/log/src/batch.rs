//! Record batches (v2) as they travel and lie on disk: the 61-byte header, the CRC, the checks. Records stay opaque.

use barnabas_types::Condition;
use crc_fast::{CrcAlgorithm, Digest};

use crate::codec::Codec;

/// Bytes of a batch before its first record.
pub const HEADER_BYTES: usize = 61;
/// Bytes before those that the length field counts.
pub(crate) const LENGTH_END: usize = 12;
/// First byte that the CRC covers: base offset and leader epoch lie before it, so stamping keeps it right.
pub(crate) const CRC_FROM: usize = 21;
/// Least bytes of a record: length, attributes, timestamp and offset deltas, key and value length, header count.
const RECORD_BYTES_MIN: usize = 7;
/// The only magic taken (Kafka 0.11 and later).
pub(crate) const MAGIC: i8 = 2;

pub(crate) const CODEC_MASK: i16 = 0x07;
pub(crate) const CODEC_LAST: i16 = 4;
pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
pub(crate) const TRANSACTIONAL: i16 = 0x10;
pub(crate) const CONTROL: i16 = 0x20;
/// The base timestamp is the time until which the batch's tombstones stay (KIP-534); deltas count from it as ever.
pub(crate) const DELETE_HORIZON: i16 = 0x40;

/// Why bytes are no legal batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// There is no batch at all.
    #[error("no record batch")]
    Empty,
    /// More than one batch for a partition (Kafka's rule since produce version 3; sequences count on it, KIP-98).
    #[error("exactly one record batch a partition is allowed")]
    Several,
    /// The bytes end inside a batch.
    #[error("a record batch is cut off, or bytes follow the last one")]
    Truncated,
    /// The length field cannot be.
    #[error("record batch length {0} is impossible")]
    Length(i32),
    /// Not magic 2.
    #[error("record batch magic {0} is not 2")]
    Magic(i8),
    /// The CRC-32C does not fit the bytes.
    #[error("record batch CRC is {stored:#010x}, its bytes have {computed:#010x}")]
    Crc {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Above `max.message.bytes`.
    #[error("record batch of {size_bytes} bytes is too large")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// Record count and offsets do not fit each other, or the bytes cannot hold so many records.
    #[error("record count {count} does not fit last offset delta {last_offset_delta}")]
    Count {
        /// Record count of the header.
        count: i32,
        /// Last offset delta of the header.
        last_offset_delta: i32,
    },
    /// Not a codec of batch v2.
    #[error("compression codec {0} is unknown")]
    Codec(i16),
    /// A control batch from a producer.
    #[error("producers may not write control batches")]
    Control,
    /// A transactional batch: transactions are not served.
    #[error("transactional batches are not taken")]
    Transactional,
    /// A producer id without a sequence.
    #[error(
        "a batch with a producer id needs a base sequence and a producer epoch of 0 or greater"
    )]
    Sequence,
    /// A producer's timestamp that the topic does not allow (KIP-937), ms; the bounds are inclusive.
    #[error(
        "timestamp {found} is outside [{least}, {most}], which message.timestamp.before.max.ms and \
         message.timestamp.after.max.ms allow now"
    )]
    Timestamp {
        /// The timestamp.
        found: i64,
        /// The oldest that is allowed.
        least: i64,
        /// The newest that is allowed.
        most: i64,
    },
    /// A batch that claims the broker's own stamps.
    #[error("producers may not set the log append time, nor a delete horizon")]
    Stamped,
    /// A record without a key in a compacted topic.
    #[error("a compacted topic takes no record without a key")]
    NoKey,
    /// Compressed records that cannot be decompressed.
    #[error("the records cannot be decompressed ({0:?})")]
    Compression(Codec),
    /// Compressed records of more than [`crate::RECORDS_BYTES_MAX`].
    #[error(
        "the records come to more than {} bytes when they are decompressed",
        crate::RECORDS_BYTES_MAX
    )]
    RecordsTooLarge,
    /// Records that make no sense.
    #[error("the records make no sense: {0}")]
    Records(&'static str),
    /// The offsets of stored or fetched batches do not go on from each other.
    #[error("batch base offset {found} does not go on at {expected}")]
    OffsetOrder {
        /// Base offset of the batch.
        found: i64,
        /// Where the one before it ends.
        expected: i64,
    },
    /// Leader epochs of stored or fetched batches decrease.
    #[error("batch leader epoch {found} is below {before}")]
    EpochOrder {
        /// Epoch of the batch.
        found: i32,
        /// Epoch of the one before it.
        before: i32,
    },
}

impl BatchError {
    /// Whether it is a record that is to blame, and not the batch as a whole: see [`crate::refused_records`].
    #[must_use]
    pub fn is_of_records(&self) -> bool {
        matches!(self, Self::NoKey | Self::Timestamp { .. })
    }

    /// The condition that the client is told.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::Truncated => Condition::CorruptMessage("cut off, or bytes follow the last batch"),
            Self::Length(_) => Condition::CorruptMessage("impossible length"),
            Self::Crc { .. } => Condition::CorruptMessage("wrong CRC"),
            Self::TooLarge { size_bytes } => Condition::MessageTooLarge { size_bytes: *size_bytes },
            Self::Empty => Condition::InvalidRecord("no record batch"),
            Self::Several => {
                Condition::InvalidRecord("exactly one record batch a partition is allowed")
            }
            Self::Magic(_) => Condition::InvalidRecord("magic is not 2"),
            Self::Count { .. } => Condition::InvalidRecord("record count does not fit the offsets"),
            Self::Codec(_) => Condition::InvalidRecord("unknown compression codec"),
            Self::Control => Condition::InvalidRecord("producers may not write control batches"),
            Self::Transactional => Condition::InvalidRecord("transactions are not served"),
            Self::Sequence => Condition::InvalidRecord("a producer id needs a sequence"),
            Self::Timestamp { found, least, most } => {
                Condition::InvalidTimestamp { timestamp: *found, least: *least, most: *most }
            }
            Self::Stamped => {
                Condition::InvalidRecord("only brokers set the log append time or a delete horizon")
            }
            Self::NoKey => {
                Condition::InvalidRecord("a compacted topic takes no record without a key")
            }
            Self::Compression(_) => Condition::CorruptMessage("cannot be decompressed"),
            Self::RecordsTooLarge => Condition::InvalidRecord("too large when decompressed"),
            Self::Records(reason) => Condition::InvalidRecord(reason),
            Self::OffsetOrder { .. } => Condition::CorruptMessage("offsets do not go on"),
            Self::EpochOrder { .. } => Condition::CorruptMessage("leader epochs decrease"),
        }
    }
}

/// The fixed part of a batch, all fields as stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes after the length field; see [`BatchHeader::size`].
    pub length: i32,
    /// Leader epoch in which the batch was appended.
    pub partition_leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec (bits 0-2), timestamp type (3), transactional (4), control (5), delete horizon (6).
    pub attributes: i16,
    /// Offset of the last record, relative to the base.
    pub last_offset_delta: i32,
    /// What the records' timestamps are relative to, ms: that of the first record as it was produced, -1 if it has none; the
    /// time until which the tombstones stay if the attributes say so (KIP-534).
    pub base_timestamp: i64,
    /// Greatest timestamp, ms; -1 if there is none.
    pub max_timestamp: i64,
    /// Idempotent producer's id, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// How many records.
    pub record_count: i32,
}

fn field<const N: usize>(head: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&head[at..at + N]);
    out
}

impl BatchHeader {
    /// Reads the header at the beginning of `bytes`. No allocation, no CRC; the batch itself may end beyond `bytes`.
    ///
    /// # Errors
    /// [`BatchError::Truncated`], [`BatchError::Magic`] or [`BatchError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        // The magic byte has its place in every version, so an old batch is named as such even if it is shorter.
        if let Some(&magic) = bytes.get(16)
            && magic != MAGIC.cast_unsigned()
        {
            return Err(BatchError::Magic(magic.cast_signed()));
        }
        let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(BatchError::Truncated)?;
        let header = Self {
            base_offset: i64::from_be_bytes(field(head, 0)),
            length: i32::from_be_bytes(field(head, 8)),
            partition_leader_epoch: i32::from_be_bytes(field(head, 12)),
            crc: u32::from_be_bytes(field(head, 17)),
            attributes: i16::from_be_bytes(field(head, 21)),
            last_offset_delta: i32::from_be_bytes(field(head, 23)),
            base_timestamp: i64::from_be_bytes(field(head, 27)),
            max_timestamp: i64::from_be_bytes(field(head, 35)),
            producer_id: i64::from_be_bytes(field(head, 43)),
            producer_epoch: i16::from_be_bytes(field(head, 51)),
            base_sequence: i32::from_be_bytes(field(head, 53)),
            record_count: i32::from_be_bytes(field(head, 57)),
        };
        if usize::try_from(header.length).is_ok_and(|n| n + LENGTH_END >= HEADER_BYTES) {
            Ok(header)
        } else {
            Err(BatchError::Length(header.length))
        }
    }

    /// Bytes of the whole batch, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        LENGTH_END + self.length.unsigned_abs() as usize
    }

    /// Offset of the last record, inclusive.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset after the last record.
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    #[must_use]
    pub fn codec(&self) -> i16 {
        self.attributes & CODEC_MASK
    }

    /// Whether all records carry the broker's time (`max_timestamp`) instead of their own.
    #[must_use]
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Until when the batch's tombstones stay, ms (KIP-534); `None` if no compaction has met them yet.
    #[must_use]
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// Whether it holds a transaction's end or the like instead of records for consumers.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Checks what must hold for a batch that lies in a log: offsets in order.
    pub(crate) fn check_stored(&self) -> Result<(), BatchError> {
        if self.base_offset < 0 || self.last_offset_delta < 0 || self.last_offset() == i64::MAX {
            return Err(self.count_error());
        }
        Ok(())
    }

    fn count_error(&self) -> BatchError {
        BatchError::Count { count: self.record_count, last_offset_delta: self.last_offset_delta }
    }

    pub(crate) fn check_produce(&self, max_batch_bytes: usize) -> Result<(), BatchError> {
        if self.size() > max_batch_bytes {
            return Err(BatchError::TooLarge { size_bytes: self.size() });
        }
        if self.attributes & CONTROL != 0 {
            return Err(BatchError::Control);
        }
        if self.attributes & TRANSACTIONAL != 0 {
            return Err(BatchError::Transactional);
        }
        if self.attributes & (LOG_APPEND_TIME | DELETE_HORIZON) != 0 {
            return Err(BatchError::Stamped);
        }
        Codec::of(self.attributes)?;
        if self.last_offset_delta < 0
            || self.record_count.checked_sub(1) != Some(self.last_offset_delta)
        {
            return Err(self.count_error());
        }
        let records_max = (self.size() - HEADER_BYTES) / RECORD_BYTES_MIN;
        if self.codec() == 0 && self.record_count.unsigned_abs() as usize > records_max {
            return Err(self.count_error());
        }
        if self.producer_id >= 0 && (self.base_sequence < 0 || self.producer_epoch < 0) {
            return Err(BatchError::Sequence);
        }
        Ok(())
    }
}

/// The CRC-32C of a whole batch's covered bytes (hardware: PCLMULQDQ, or the SSE4.2 instruction for short ones).
pub(crate) fn crc_of(batch: &[u8]) -> u32 {
    crc_of_bytes(batch.get(CRC_FROM..).unwrap_or_default())
}

/// The CRC-32C of these bytes.
pub(crate) fn crc_of_bytes(bytes: &[u8]) -> u32 {
    // The algorithm gives 32 bits in a u64.
    #[allow(clippy::cast_possible_truncation)]
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc
}

/// The CRC of two pieces, the second of `second_bytes`, from the CRC of each.
pub(crate) fn crc_joined(first: u32, second: u32, second_bytes: usize) -> u32 {
    let bytes = second_bytes as u64;
    #[allow(clippy::cast_possible_truncation)]
    let crc = crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        u64::from(first),
        u64::from(second),
        bytes,
    ) as u32;
    crc
}

/// The same CRC, fed in pieces.
pub(crate) struct CrcStream(Digest);

impl CrcStream {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation)]
        let crc = self.0.finalize() as u32;
        crc
    }
}

/// One whole batch inside a slice.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
}

impl Batch<'_> {
    /// Checks the CRC.
    ///
    /// # Errors
    /// [`BatchError::Crc`].
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let computed = crc_of(self.bytes);
        if computed == self.header.crc {
            Ok(())
        } else {
            Err(BatchError::Crc { stored: self.header.crc, computed })
        }
    }
}

/// Walks the batches of a slice; ends after the first error. No allocation, no CRC.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Batches<'a> {
    /// Batches that lie back to back in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Result<Batch<'a>, BatchError> {
        let header = BatchHeader::parse(self.rest)?;
        let (bytes, rest) =
            self.rest.split_at_checked(header.size()).ok_or(BatchError::Truncated)?;
        self.rest = rest;
        Ok(Batch { header, bytes })
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}
