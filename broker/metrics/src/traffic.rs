//! What a partition has carried: counters that its append and read paths touch, one relaxed addition each.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one partition (or of requests that found none).
#[derive(Debug, Default)]
pub struct Traffic {
    messages_in: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    replication_bytes_in: AtomicU64,
    replication_bytes_out: AtomicU64,
    produce_requests: AtomicU64,
    failed_produce_requests: AtomicU64,
}

/// What was carried so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Records appended for producers.
    pub messages_in: u64,
    /// Their bytes, as stored.
    pub bytes_in: u64,
    /// Bytes of records answered to consumers.
    pub bytes_out: u64,
    /// Bytes of records appended as a follower.
    pub replication_bytes_in: u64,
    /// Bytes of records answered to followers.
    pub replication_bytes_out: u64,
    /// Produces.
    pub produce_requests: u64,
    /// Those that ended with an error.
    pub failed_produce_requests: u64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Traffic {
    /// Records of a producer were appended.
    pub fn produced(&self, messages: u64, bytes: u64) {
        add(&self.messages_in, messages);
        add(&self.bytes_in, bytes);
    }

    /// Records of the leader were appended.
    pub fn copied_in(&self, bytes: u64) {
        add(&self.replication_bytes_in, bytes);
    }

    /// Records go to a follower.
    pub fn copied_out(&self, bytes: u64) {
        add(&self.replication_bytes_out, bytes);
    }

    /// Records go to a consumer.
    pub fn consumed(&self, bytes: u64) {
        add(&self.bytes_out, bytes);
    }

    /// A produce is asked for.
    pub fn produce_asked(&self) {
        add(&self.produce_requests, 1);
    }

    /// A produce ends with an error.
    pub fn produce_failed(&self) {
        add(&self.failed_produce_requests, 1);
    }

    /// What there is.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Carried {
            messages_in: read(&self.messages_in),
            bytes_in: read(&self.bytes_in),
            bytes_out: read(&self.bytes_out),
            replication_bytes_in: read(&self.replication_bytes_in),
            replication_bytes_out: read(&self.replication_bytes_out),
            produce_requests: read(&self.produce_requests),
            failed_produce_requests: read(&self.failed_produce_requests),
        }
    }
}

impl AddAssign for Carried {
    fn add_assign(&mut self, other: Self) {
        self.messages_in += other.messages_in;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.replication_bytes_in += other.replication_bytes_in;
        self.replication_bytes_out += other.replication_bytes_out;
        self.produce_requests += other.produce_requests;
        self.failed_produce_requests += other.failed_produce_requests;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_its_own() {
        let traffic = Traffic::default();
        traffic.produced(1, 20);
        traffic.copied_in(300);
        traffic.copied_out(4_000);
        traffic.consumed(50_000);
        traffic.produce_asked();
        traffic.produce_asked();
        traffic.produce_failed();
        let mut twice = traffic.carried();
        twice += traffic.carried();
        let expected = Carried {
            messages_in: 2,
            bytes_in: 40,
            bytes_out: 100_000,
            replication_bytes_in: 600,
            replication_bytes_out: 8_000,
            produce_requests: 4,
            failed_produce_requests: 2,
        };
        assert_eq!(twice, expected);
    }
}
