//! The log through its public face: what it holds after appends, reads, truncations, crashes and restarts.

mod compaction;
mod compaction_trouble;
mod directory;
mod dump;
mod flushing;
mod keyed;
mod log_start;
mod producer_steps;
mod producers;
mod property;
mod reading;
mod recovery;
mod side_files;
mod snapshots;
mod times;
mod trouble;
mod truncation;
mod world;
