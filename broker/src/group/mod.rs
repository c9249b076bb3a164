//! Consumer groups: which partitions of the offsets topic this broker coordinates, and one task for each, which owns the
//! groups of that partition. What a group may do is decided in `barnabas-group`, never here.
//!
//! A coordinator lives from the moment at which this broker leads the partition in some leader epoch until it does not any
//! more, or leads in another one. It reads the partition up to what that epoch began with, answers "loading" meanwhile, and
//! writes only while the epoch lasts: a late load, a late write or a late end of an older epoch changes nothing.

mod coordinator;
mod coordinators;
mod load;
mod offsets_topic;
mod signals;
mod task;
#[cfg(test)]
mod tests;
mod writes;

pub use coordinator::{Coordinator, GroupWait, Reply};
pub use coordinators::Coordinators;
pub(crate) use offsets_topic::{OFFSETS_TOPIC, ensure, of as offsets_topic, partition_of};
