//! KIP-98: what the log remembers of idempotent producers, whatever happens to it.

use std::fs;

use barnabas_log::testing::BatchBuilder;
use barnabas_log::{Admission, BatchHeader, Log, stamp};
use barnabas_types::{Condition, LeaderEpoch, Offset};

use crate::world::{TINY, World};

/// A batch of `records` records of producer 7.
fn batch(sequence: i32, records: usize) -> Vec<u8> {
    let record = [1; 60];
    let builder = (0..records).fold(BatchBuilder::new(), |b, _| b.record(&record));
    builder.producer(7, 0, sequence).build()
}

fn admit(log: &Log, batch: &[u8]) -> Result<Admission, Condition> {
    log.admit(&BatchHeader::parse(batch).unwrap())
}

fn append(log: &mut Log, sequence: i32, records: usize, epoch: i32) {
    let mut batch = batch(sequence, records);
    assert_eq!(admit(log, &batch), Ok(Admission::New));
    log.append(&mut batch, log.log_end(), LeaderEpoch(epoch)).unwrap();
}

fn repeated(base: i64, end: i64) -> Result<Admission, Condition> {
    Ok(Admission::Duplicate { base: Offset(base), end: Offset(end) })
}

#[test]
fn a_repeated_batch_is_recognised_after_a_clean_and_an_unclean_stop() {
    let world = World::new("producers", TINY);
    let (dir, mut log) = world.start();
    for sequence in 0..8 {
        append(&mut log, sequence, 1, 1);
    }
    assert!(log.segment_count() > 1);
    let check = |log: &Log| {
        assert_eq!(admit(log, &batch(7, 1)), repeated(7, 8));
        assert_eq!(admit(log, &batch(3, 1)), repeated(3, 4), "across segments");
        assert_eq!(admit(log, &batch(8, 1)), Ok(Admission::New));
    };
    check(&log);
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
    drop((log, dir));
    let (dir, log) = world.start();
    check(&log);
    drop((log, dir));
    let (_dir, log) = world.start();
    check(&log);
}

#[test]
fn r15_a_truncation_forgets_what_it_cuts_and_no_more() {
    let world = World::new("producers", TINY);
    let (_dir, mut log) = world.start();
    for sequence in 0..6 {
        append(&mut log, sequence, 1, 1);
    }
    log.truncate_to(Offset(3)).unwrap();
    assert_eq!(admit(&log, &batch(2, 1)), repeated(2, 3));
    assert_eq!(admit(&log, &batch(3, 1)), Ok(Admission::New), "to be written once more");
    let gap = Condition::OutOfOrderSequenceNumber { found: 5, expected: 3 };
    assert_eq!(admit(&log, &batch(5, 1)), Err(gap));
    log.reset_to(Offset(100)).unwrap();
    assert_eq!(admit(&log, &batch(2, 1)), Ok(Admission::New), "an unknown producer");
}

#[test]
fn a_follower_knows_what_its_leader_wrote() {
    let world = World::new("producers", TINY);
    let (_dir, mut log) = world.start();
    let mut records = [batch(0, 2), batch(2, 1)].concat();
    stamp(&mut records, Offset(0), LeaderEpoch(4)).unwrap();
    log.append_as_follower(&records).unwrap();
    assert_eq!(admit(&log, &batch(0, 2)), repeated(0, 2));
    assert_eq!(admit(&log, &batch(2, 1)), repeated(2, 3));
    append(&mut log, 3, 1, 5);
}

#[test]
fn d1_a_batch_whose_write_failed_is_not_taken_for_one_in_the_log() {
    let world = World::new("producers", TINY);
    let (_dir, mut log) = world.start();
    append(&mut log, 0, 1, 1);
    // The roll that the second batch needs cannot create its file: a directory is in the way.
    fs::create_dir(world.partition().join("00000000000000000002.log")).unwrap();
    let mut records = [batch(1, 1), batch(2, 4)].concat();
    stamp(&mut records, Offset(1), LeaderEpoch(1)).unwrap();
    assert!(log.append_as_follower(&records).is_err());
    assert!(log.is_fenced());
    assert_eq!(log.log_end(), Offset(1));
    assert_eq!(admit(&log, &batch(0, 1)), repeated(0, 1));
    assert_eq!(admit(&log, &batch(1, 1)), Ok(Admission::New));
}
