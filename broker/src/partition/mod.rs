//! Partitions hosted by this broker: the replica core and its log behind one mutex, and who waits on them.

mod aftermath;
mod flusher;
mod hosted;
mod table;
mod waiting;

pub use aftermath::{Aftermath, Flush, Outward};
pub use flusher::{Flusher, flush_now};
pub use hosted::Hosted;
pub use table::PartitionTable;
pub use waiting::{FollowerSession, ParkedFetch, PendingProduce};
