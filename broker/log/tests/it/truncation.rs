//! Cutting the end at every offset, beginning anew, and what a follower's append refuses.

use std::fs;

use barnabas_log::testing::{TempDir, batch};
use barnabas_log::{BatchError, LogError, stamp};
use barnabas_types::{LeaderEpoch, Offset};

use crate::world::{TINY, World, append, assert_whole, batches, copy_dir, read_all, segment_files};

#[test]
fn r15_truncation_to_every_offset_across_segments_and_epochs() {
    let world = World::new("truncate", TINY);
    let (dir, mut log) = world.start();
    for i in 0..14 {
        append(&mut log, 1 + i % 3, 20, i32::try_from(i / 4).unwrap());
    }
    let before = batches(&read_all(&log, Offset(0), 1 << 20));
    let end = log.log_end().0;
    drop((log, dir));
    for cut in 0..=end {
        let copy = World { temp: TempDir::new("truncated"), config: TINY };
        copy_dir(world.path(), copy.path());
        let (dir, mut log) = copy.start();
        let expected =
            before.iter().find(|h| h.last_offset() >= cut).map_or(end, |h| h.base_offset);
        let coming = log.would_truncate(Offset(cut)).unwrap();
        let loss = log.truncate_to(Offset(cut)).unwrap();
        assert_eq!(coming, loss, "it is told before");
        assert_eq!(log.log_end(), Offset(expected));
        assert_eq!(
            loss.map(|l| (l.from, l.to)),
            (cut < end).then_some((Offset(expected), Some(Offset(end))))
        );
        assert_whole(&log);
        let kept: Vec<_> = before.iter().filter(|h| h.base_offset < expected).copied().collect();
        assert_eq!(batches(&read_all(&log, Offset(0), 1 << 20)), kept);
        for header in &kept {
            let epoch = LeaderEpoch(header.partition_leader_epoch);
            assert_eq!(log.epochs().epoch_at(Offset(header.base_offset)), Some(epoch));
        }
        assert_eq!(
            log.epochs().latest().map(|e| e.0),
            kept.last().map(|h| h.partition_leader_epoch)
        );
        // It goes on, also after a restart.
        append(&mut log, 2, 20, 50);
        let bytes = read_all(&log, Offset(0), 1 << 20);
        drop((log, dir));
        let (_dir, log) = copy.start();
        assert_eq!(read_all(&log, Offset(0), 1 << 20), bytes, "cut at {cut}");
        assert_eq!(log.epochs().latest(), Some(LeaderEpoch(50)));
    }
}

#[test]
fn r16_truncation_lowers_flushed_and_the_recovery_point_durably() {
    let world = World::new("lower", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..8 {
        append(&mut log, 1, 30, 1);
    }
    assert_eq!(log.flush().unwrap(), Offset(8));
    dir.write_recovery_points().unwrap();
    log.truncate_to(Offset(3)).unwrap();
    assert_eq!(log.flushed(), Offset(3));
    for _ in 0..5 {
        append(&mut log, 1, 30, 2);
    }
    drop((log, dir));
    let (dir, log) = world.start();
    assert_eq!((log.flushed(), log.log_end()), (Offset(3), Offset(8)));
    assert_eq!(dir.recovery_point_of(&crate::world::tp("t")), Some(Offset(3)));
}

#[test]
fn truncation_stays_inside_the_log() {
    let world = World::new("inside", TINY);
    let (_dir, mut log) = world.start();
    log.reset_to(Offset(5)).unwrap();
    append(&mut log, 1, 10, 1);
    assert_eq!(log.truncate_to(Offset(99)).unwrap(), None);
    assert!(matches!(log.truncate_to(Offset(4)), Err(LogError::OffsetOutOfRange { .. })));
    log.truncate_to(Offset(5)).unwrap();
    assert_eq!((log.log_start(), log.log_end()), (Offset(5), Offset(5)));
}

#[test]
fn r35_reset_begins_an_empty_log_at_the_given_offset() {
    for start in [0, 4, 7, 100] {
        let world = World::new("reset", TINY);
        let (dir, mut log) = world.start();
        for i in 0..10 {
            append(&mut log, 1, 60, i);
        }
        log.flush().unwrap();
        log.reset_to(Offset(start)).unwrap();
        let expect_empty = |log: &barnabas_log::Log| {
            let all = [log.log_start(), log.log_end(), log.flushed()];
            assert_eq!(all, [Offset(start); 3]);
            assert_eq!(log.epochs().latest(), None);
        };
        expect_empty(&log);
        assert_eq!(segment_files(&world.partition()).len(), 1);
        drop((log, dir));
        let (_dir, mut log) = world.start();
        expect_empty(&log);
        append(&mut log, 2, 60, 20);
        assert_eq!(log.log_end(), Offset(start + 2));
        assert_whole(&log);
    }
}

fn stamped(values: &[&[u8]], base: i64, epoch: i32) -> Vec<u8> {
    let mut records = batch(values);
    stamp(&mut records, Offset(base), LeaderEpoch(epoch)).unwrap();
    records
}

#[test]
fn r31_a_followers_append_goes_on_exactly_at_the_end() {
    let world = World::new("follow", TINY);
    let (_dir, mut log) = world.start();
    let records = [stamped(&[b"a", b"b"], 0, 3), stamped(&[b"c"], 2, 5)].concat();
    let appended = log.append_as_follower(&records).unwrap();
    assert_eq!(appended.log_end, Offset(3));
    assert_eq!(appended.epochs, [(LeaderEpoch(3), Offset(0)), (LeaderEpoch(5), Offset(2))]);
    let refused = |log: &mut barnabas_log::Log, records: &[u8]| {
        let error = log.append_as_follower(records).unwrap_err();
        assert_eq!(log.log_end(), Offset(3));
        assert!(!log.is_fenced());
        error
    };
    let at_end = |e| matches!(e, LogError::NotAtEnd { .. });
    assert!(at_end(refused(&mut log, &stamped(&[b"d"], 2, 5))), "overlap");
    let older = refused(&mut log, &stamped(&[b"d"], 3, 4));
    assert!(matches!(older, LogError::EpochDecreases { .. }));
    let mut damaged = stamped(&[b"d"], 3, 5);
    *damaged.last_mut().unwrap() ^= 1;
    let crc = refused(&mut log, &damaged);
    assert!(matches!(crc, LogError::Batch(BatchError::Crc { .. })));
    assert!(matches!(refused(&mut log, &damaged[..40]), LogError::Batch(BatchError::Truncated)));
    assert_eq!(read_all(&log, Offset(0), 1 << 20), records, "nothing was written");
    log.append_as_follower(&stamped(&[b"d"], 3, 5)).unwrap();
}

#[test]
fn an_epoch_led_without_a_record_gives_way_to_the_elected_log() {
    let world = World::new("giveway", TINY);
    let (_dir, mut log) = world.start();
    log.append_as_follower(&stamped(&[b"a"], 0, 3)).unwrap();
    log.assign_epoch(LeaderEpoch(7), Offset(1)).unwrap();
    log.append_as_follower(&stamped(&[b"b"], 1, 4)).unwrap();
    assert_eq!(log.epochs().epoch_at(Offset(1)), Some(LeaderEpoch(4)));
    assert_eq!(log.epochs().latest(), Some(LeaderEpoch(4)));
}

#[test]
fn the_leader_appends_only_at_the_end_and_in_its_epoch() {
    let world = World::new("lead", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 2, 10, 4);
    let mut records = batch(&[b"x"]);
    for wrong in [0, 1, 3] {
        let error = log.append(&mut records, Offset(wrong), LeaderEpoch(4)).unwrap_err();
        assert!(matches!(error, LogError::NotAtEnd { .. }));
    }
    let error = log.append(&mut records, Offset(2), LeaderEpoch(3)).unwrap_err();
    assert!(matches!(error, LogError::EpochDecreases { .. }));
    // Assigned before the first record, and there after a crash of the process.
    log.assign_epoch(LeaderEpoch(6), Offset(2)).unwrap();
    drop((log, dir));
    let (_dir, log) = world.start();
    assert_eq!(log.epochs().start_of(LeaderEpoch(6)), Some(Offset(2)));
}

#[test]
fn d1_a_failed_write_fences_and_reopening_cuts_to_whole_batches() {
    let world = World::new("fence", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 1, 60, 1);
    append(&mut log, 1, 60, 1);
    // The roll that the third batch needs cannot create its file: a directory is in the way.
    let obstacle = world.partition().join("00000000000000000002.log");
    fs::create_dir(&obstacle).unwrap();
    let mut large = batch(&[&[9; 300]]);
    let error = log.append(&mut large, Offset(2), LeaderEpoch(1)).unwrap_err();
    assert!(matches!(error, LogError::Io { .. }), "{error}");
    assert_eq!(log.log_end(), Offset(2));
    let mut small = batch(&[b"x"]);
    assert!(matches!(log.append(&mut small, Offset(2), LeaderEpoch(1)), Err(LogError::Fenced)));
    assert!(matches!(log.flush(), Err(LogError::Fenced)));
    assert_whole(&log);
    assert!(log.close().is_err());
    assert!(!dir.close(true).unwrap(), "no clean marker over a failed log");
    fs::remove_dir(&obstacle).unwrap();
    let mut log = dir.open(&crate::world::tp("t"), crate::world::ID, TINY).unwrap();
    log.append(&mut large, Offset(2), LeaderEpoch(1)).unwrap();
    assert_whole(&log);
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
}

#[test]
fn a_range_that_was_cut_off_never_shows_other_records() {
    let world = World::new("lent", TINY);
    let (_dir, mut log) = world.start();
    let mut gone = 0;
    for round in 0..40 {
        for _ in 0..7 {
            append(&mut log, 1, 20, round);
        }
        // Every batch in turn, also those that begin a segment.
        let cut = Offset(log.log_end().0 - 1 - i64::from(round) % 7);
        let range = log.read(cut, log.log_end(), usize::MAX).unwrap().unwrap();
        let mut before = Vec::new();
        range.read_into(&mut before).unwrap();
        log.truncate_to(cut).unwrap().unwrap();
        for _ in 0..7 {
            append(&mut log, 1, 20, round);
        }
        let mut after = Vec::new();
        match range.read_into(&mut after) {
            // Its file had lost all its records, and another one has its name now.
            Ok(()) => assert_eq!(after, before, "round {round}"),
            Err(error) => {
                gone += 1;
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
            }
        }
    }
    assert!((1..40).contains(&gone), "both cases came: {gone}");
}
