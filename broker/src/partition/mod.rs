//! Partitions hosted by this broker: the replica core and its log behind one mutex, and who waits on them.

mod aftermath;
mod by_time;
mod cleanup;
mod epoch_end;
mod figures;
mod flushing;
mod hosted;
mod inner;
mod leadership;
mod log_start;
#[cfg(test)]
mod log_start_tests;
mod noting;
#[cfg(test)]
mod noting_tests;
mod own_records;
mod reading;
mod ready;
mod standing;
mod table;
#[cfg(test)]
mod tests;
mod waiting;
mod warming;

pub use aftermath::{Aftermath, FailureKind, Flush, LogFailure, Outward};
pub use by_time::{ByTime, FoundByTime};
pub use epoch_end::EpochEnd;
pub use figures::Figures;
pub use flushing::Urgency;
pub use hosted::{AppendResult, Copied, Hosted};
pub use leadership::FirstServed;
pub use log_start::{DeleteResult, Deletion};
pub use reading::{ConsumerRead, ReadSlice, Readable};
pub use ready::Ready;
pub use table::{CarriedByTopic, PartitionTable};
pub use waiting::{EncodeProduce, FollowerSession, ParkedFetch, PendingProduce, ProduceResult};
pub use warming::{COLD_LOOKS_MAX, Warming};
