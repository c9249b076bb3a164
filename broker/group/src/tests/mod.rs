//! Tests of the coordinator, by subject, over one small world.

mod joining;
mod offsets;
mod world;
