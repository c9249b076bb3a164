//! What a dump finds, piece by piece.

use std::path::Path;

use barnabas_types::{EpochStart, Offset, TopicId, TopicPartition};

use crate::batch::{BatchError, BatchHeader};
use crate::producers::{ProducerBatch, SnapshotError};

/// Which file of a data directory it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// `N.log`: record batches.
    Log,
    /// `N.index`: offsets to positions.
    OffsetIndex,
    /// `N.timeindex`: timestamps to offsets.
    TimeIndex,
    /// `N.txnindex`: aborted transactions.
    TransactionIndex,
    /// `N.snapshot`: producers.
    Snapshot,
    /// `leader-epoch-checkpoint`.
    LeaderEpochs,
    /// `…-offset-checkpoint`.
    OffsetCheckpoint,
    /// `meta.properties`.
    MetaProperties,
    /// `partition.metadata`.
    PartitionMetadata,
}

impl Kind {
    /// By its name; `None` if no file of a data directory is named so.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let numbered = || super::base_of(path).is_some();
        match path.file_name()?.to_str()? {
            "leader-epoch-checkpoint" => Some(Self::LeaderEpochs),
            "meta.properties" => Some(Self::MetaProperties),
            "partition.metadata" => Some(Self::PartitionMetadata),
            name if name.ends_with("-offset-checkpoint") => Some(Self::OffsetCheckpoint),
            name if numbered() => match name.rsplit_once('.')?.1 {
                "log" => Some(Self::Log),
                "index" => Some(Self::OffsetIndex),
                "timeindex" => Some(Self::TimeIndex),
                "txnindex" => Some(Self::TransactionIndex),
                "snapshot" => Some(Self::Snapshot),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Something that was found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A file begins.
    File {
        /// Which one.
        path: &'a Path,
        /// What it is.
        kind: Kind,
        /// Its size.
        size_bytes: u64,
    },
    /// A record batch.
    Batch(Batch),
    /// A record of the batch before.
    Record(Record<'a>),
    /// The records of the batch before are not shown.
    Unshown(Unshown),
    /// An entry of an `.index`.
    OffsetEntry(OffsetEntry),
    /// An entry of a `.timeindex`.
    TimeEntry(TimeEntry),
    /// A row of a `.snapshot`.
    Producer(ProducerBatch),
    /// An entry of a `.txnindex`.
    AbortedTransaction {
        /// The producer's id.
        producer_id: i64,
        /// First offset of the transaction.
        first_offset: i64,
        /// Offset of its end marker.
        last_offset: i64,
        /// The last stable offset when it ended.
        last_stable_offset: i64,
    },
    /// A line of a `leader-epoch-checkpoint`.
    Epoch(EpochStart),
    /// A line of an offset checkpoint.
    Checkpoint {
        /// Of which partition.
        partition: &'a TopicPartition,
        /// Its offset.
        offset: Offset,
    },
    /// A line of a properties file.
    Property {
        /// Left of the sign.
        key: &'a str,
        /// Right of it.
        value: &'a str,
    },
    /// The rest of a file holds zeros only: set aside for entries to come.
    Preallocated {
        /// Where it begins.
        position: u64,
        /// How long it is.
        bytes: u64,
    },
    /// The last batch or entry ends beyond the file's end: a broker may be writing it, or has died while it did. A start
    /// cuts it off; nothing below is touched.
    Incomplete {
        /// Where it begins.
        position: u64,
        /// Bytes of it that are there.
        bytes: u64,
        /// The last offset before it; `None` if there is none.
        last_good_offset: Option<i64>,
    },
    /// Something is wrong.
    Damage {
        /// Byte of the file.
        position: u64,
        /// The last offset before it that is whole; `None` if there is none, or the file has no offsets.
        last_good_offset: Option<i64>,
        /// What it is.
        wrong: Wrong,
    },
    /// A file ends.
    FileEnd(&'a FileEnd),
    /// A file or directory that is no part of a partition or that a dump has nothing to say of.
    Other(&'a Path),
    /// A partition ends.
    Partition(&'a Partition),
}

/// A record batch and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// First byte in the file.
    pub position: u64,
    /// Its fields as stored.
    pub header: BatchHeader,
    /// Whether the CRC fits the bytes.
    pub crc_ok: bool,
}

impl Batch {
    /// `none`, `gzip`, `snappy`, `lz4`, `zstd`, or `unknown`.
    #[must_use]
    pub fn codec(&self) -> &'static str {
        let names = ["none", "gzip", "snappy", "lz4", "zstd"];
        usize::try_from(self.header.codec()).ok().and_then(|i| names.get(i)).unwrap_or(&"unknown")
    }

    /// Part of a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.header.attributes & crate::batch::TRANSACTIONAL != 0
    }

    /// Written by a broker about a transaction, not by a producer.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.header.attributes & crate::batch::CONTROL != 0
    }

    /// Sequence of the last record; -1 without a producer id.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        if self.header.base_sequence < 0 || self.header.last_offset_delta < 0 {
            return -1;
        }
        crate::producers::after(self.header.base_sequence, self.header.last_offset_delta)
    }
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, ms; -1 if it has none.
    pub timestamp_ms: i64,
    /// Its key, if it has one.
    pub key: Option<Shown<'a>>,
    /// Its value, if it has one.
    pub value: Option<Shown<'a>>,
    /// Its first headers; a value may be absent.
    pub headers: &'a [(Shown<'a>, Option<Shown<'a>>)],
    /// How many headers it has.
    pub header_count: u32,
}

/// The beginning of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown<'a> {
    /// How many there are.
    pub size_bytes: usize,
    /// The first of them, 256 at most.
    pub head: &'a [u8],
}

/// Why the records of a batch are not shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unshown {
    /// Compressed with a codec that this program does not know.
    #[error("compressed with {0}, which this program does not decompress")]
    Codec(&'static str),
    /// Too large to be held in memory, compressed or not.
    #[error("more than {0} bytes")]
    Size(u64),
    /// Damaged: see the damage.
    #[error("damaged")]
    Damaged,
}

/// An entry of an `.index`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetEntry {
    /// First byte in the index.
    pub position: u64,
    /// Last offset of the batch that it means.
    pub offset: i64,
    /// Where that batch begins in the `.log`.
    pub log_position: u32,
    /// Whether a batch with this last offset begins there; `None` if there is no `.log`.
    pub fits: Option<bool>,
}

/// An entry of a `.timeindex`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeEntry {
    /// First byte in the index.
    pub position: u64,
    /// Greatest timestamp up to the offset, ms.
    pub timestamp_ms: i64,
    /// An offset of the batch that has it.
    pub offset: i64,
    /// Whether that is so in the `.log`; `None` if there is no `.log`.
    pub fits: Option<bool>,
}

/// What is wrong with a piece of a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// A batch.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// A batch that begins below its segment's base.
    #[error("batch base offset {found} is below the segment's base {base}")]
    BelowBase {
        /// Base offset of the batch.
        found: i64,
        /// The segment's.
        base: i64,
    },
    /// Inside a batch with a right CRC.
    #[error("record {number} of the batch makes no sense")]
    Record {
        /// Its number in the batch, from 0.
        number: u32,
    },
    /// Records end before the batch does.
    #[error("bytes follow the last record of the batch")]
    AfterRecords,
    /// A snapshot.
    #[error("producer snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    /// The file ends inside an entry.
    #[error("the file ends inside an entry")]
    PartialEntry,
    /// Entries do not go up.
    #[error("the entry does not lie above the one before")]
    EntryOrder,
    /// No such batch begins where an index entry points.
    #[error("no batch with last offset {offset} begins at byte {log_position} of the log")]
    NoSuchBatch {
        /// What the entry says.
        offset: i64,
        /// Where it points.
        log_position: u32,
    },
    /// The log has another greatest timestamp there.
    #[error("the greatest timestamp up to offset {offset} is {found} in the log, not {stored}")]
    Timestamp {
        /// The entry's offset.
        offset: i64,
        /// The entry's timestamp.
        stored: i64,
        /// The log's; -1 if it has none or ends before.
        found: i64,
    },
    /// An entry of a transaction index.
    #[error("the entry of an aborted transaction makes no sense")]
    AbortedTransaction,
    /// A text file that is none, or too long.
    #[error("it is no text, or longer than {0} bytes")]
    NoText(u64),
    /// A line of a text file.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is expected there.
        reason: &'static str,
    },
    /// A property is missing or has no legal value.
    #[error("{key} is missing or has no legal value")]
    Property {
        /// Which one.
        key: &'static str,
    },
    /// The epoch checkpoint and the batches disagree.
    #[error(
        "the leader-epoch-checkpoint does not give epoch {epoch} to offset {offset}, its batch does"
    )]
    Epoch {
        /// Epoch of the batch.
        epoch: i32,
        /// Its base offset.
        offset: i64,
    },
    /// A segment ends above the base of the next one.
    #[error("the segment ends at {end}, the next one begins at {next}")]
    SegmentsOverlap {
        /// Offset after the last of the segment.
        end: i64,
        /// Base of the next.
        next: i64,
    },
    /// A checkpoint names an offset that the log has not.
    #[error("{checkpoint} says {offset}, but the log ends at {end}")]
    AboveEnd {
        /// Which one.
        checkpoint: &'static str,
        /// What it says.
        offset: i64,
        /// The log's end.
        end: i64,
    },
}

/// What a file came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileEnd {
    /// Bytes that were understood.
    pub whole_bytes: u64,
    /// Batches, entries, rows or lines.
    pub entries: u64,
    /// Of a `.log`: its records.
    pub records: u64,
    /// Of a `.log`: base offset of its first batch.
    pub first_offset: Option<i64>,
    /// Of a `.log`: last offset, inclusive.
    pub last_offset: Option<i64>,
    /// Of a `.log`: offsets between batches that no batch has (compaction takes them away).
    pub missing_offsets: u64,
    /// Of a `.log`: the first offset of each run of batches with one leader epoch, some thousands at most.
    pub epochs: Vec<EpochStart>,
}

/// What a partition's directory came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Name of the directory.
    pub name: String,
    /// From `partition.metadata`.
    pub topic_id: Option<TopicId>,
    /// How many `.log` files.
    pub segments: u64,
    /// Base of the first segment.
    pub first_segment: i64,
    /// Offset after the last record; the base of the last segment if that is empty.
    pub log_end: i64,
    /// Record batches.
    pub batches: u64,
    /// Records.
    pub records: u64,
    /// Bytes of the `.log` files.
    pub size_bytes: u64,
    /// Newest leader epoch of a batch.
    pub last_epoch: Option<i32>,
    /// Damages in its files.
    pub damaged: u64,
    /// Files that end inside a batch or entry.
    pub incomplete: u64,
}
