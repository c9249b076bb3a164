//! Makes partitions durable on threads of their own, several together where that is cheaper; nobody else waits for a disk.
//!
//! Each data directory has one [`Flusher`]. A partition that has something to flush asks for it once (it knows when, see
//! `partition/flushing.rs`); whatever is appended until its turn comes is flushed with it, and what is appended during its
//! flush gathers for the next one: that is the group commit. Whoever ends a flush also writes the answers.

mod flusher;
mod queue;
mod timer;

pub use flusher::{FlushCounts, Flusher};

#[cfg(test)]
mod tests;
