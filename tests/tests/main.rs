//! End-to-end tests: real ZooKeeper, real broker processes, real clients. One binary, so that it is linked once.
//!
//! All are in the module `e2e`, so that `--skip e2e::` leaves them out where ZooKeeper or kcat is missing.

mod e2e;
