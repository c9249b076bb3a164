//! Partitions hosted by this broker: the replica core and its log behind one mutex, and who waits on them.

mod aftermath;
mod flusher;
mod hosted;
mod inner;
mod table;
#[cfg(test)]
mod tests;
mod waiting;

pub use aftermath::{Aftermath, Flush, Outward};
pub use flusher::{Flusher, flush_now};
pub use hosted::{AppendResult, Hosted};
pub use table::PartitionTable;
pub use waiting::{EncodeProduce, FollowerSession, ParkedFetch, PendingProduce, ProduceResult};
