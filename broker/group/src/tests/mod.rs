//! Tests of the coordinator, by subject, over one small world.

mod doubts;
mod expiry;
mod faults;
mod joining;
mod offsets;
mod random;
mod records;
mod statics;
mod world;
