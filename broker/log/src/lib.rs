//! Durable ordered batches in Kafka's segment files, with exact recovery and a known flushed offset.
//!
//! [`LogDir`] is one data directory: its lock, identity, clean-shutdown marker, checkpoints and partitions. [`Log`] is one
//! partition in it. Record batches (v2) stay opaque on their way: [`batch`] reads their 61-byte header and checks their CRC.
//! They are opened only where a record must be seen (offsets by time, the checks of a compacted topic, compaction) or a
//! topic wants another codec. The log knows neither leaders nor ISRs; it keeps leader epochs because truncation is decided by
//! them.
//!
//! **What is true on disk.** The `.log` files are the truth; `.index`, `.timeindex` and `leader-epoch-checkpoint` are
//! caches that are verified where they are used and rebuilt when they are missing or do not fit.
//!
//! **Locks.** A `Log` is meant to live behind one mutex. [`Log::read`] only finds where the bytes are and
//! [`Log::flush_plan`] only collects what must be synced: do the read and the sync after releasing the mutex.
//!
//! **Disk.** Whatever this crate changes in the data directory goes through one [`Disk`], where tests refuse, shorten or forget
//! it. Reads are plain. (Only the lock file, and the data directory itself, are made and removed without it.)
//!
//! **Descriptors.** An idle log holds none. A log that was appended to holds one for its active segment and one for each
//! sealed segment that is not flushed yet; reads of sealed segments open the file for the life of the [`ReadRange`].

mod append;
pub mod batch;
mod build;
mod cached;
mod check;
mod checkpoint;
mod codec;
mod compaction;
mod config;
mod directories;
mod disk;
pub mod dump;
mod error;
mod files;
mod flush;
mod holdings;
mod index;
mod log;
mod log_dir;
mod log_start;
mod loss;
mod producers;
mod progress;
mod read;
mod recompress;
mod records;
mod recovery;
mod retention;
mod roll;
mod sealed;
mod segment;
mod shared;
pub mod testing;
mod timestamps;
mod truncate;
mod walk;

pub use append::Appended;
pub use batch::{Batch, BatchError, BatchHeader, Batches};
pub use build::record_batch;
pub use cached::Wait;
pub use check::{
    Fetched, ProduceRules, ProduceSummary, check_fetched, refused_records, stamp,
    stamp_append_time, validate_produce,
};
pub use codec::{Codec, RECORDS_BYTES_MAX};
pub use compaction::{
    Compacted, CompactionPlan, Ended, Pace, Round, StopSignal, Throttle, Unhurried, WithLog,
    compact,
};
pub use config::LogConfig;
pub use directories::STRAY_KEPT;
pub use disk::{Disk, DiskFile, Faults, Op, Verdict};
pub use error::{LogError, Shortage, is_disk_fault};
pub use files::{read_text, replace_durably};
pub use flush::{FlushPlan, FlushStep};
pub use holdings::{Holding, Holdings, holdings};
pub use log::Log;
pub use log_dir::{LogDir, LogStartCheckpoint, Meta, StartKind};
pub use log_start::Detached;
pub use loss::{Loss, LossCause};
pub use producers::{Admission, ProducerBatch, SnapshotError};
pub use progress::RecoveryProgress;
pub use read::{ColdRead, Looked, ReadRange};
pub use recompress::recompressed;
pub use records::{Record, Records, record_bytes};
pub use recovery::Recovery;
pub use retention::RetentionPlan;
pub use timestamps::{LookedByTime, TimeLookup};
