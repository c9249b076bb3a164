//! The shell around the controller core: the election, one task that feeds the core and performs its effects in order, the admin service.

pub mod translate;
pub mod zookeeper;
