//! The log start: deletions, what they remove, and logs that begin inside a batch or jump over offsets.

use std::fs;

use barnabas_log::testing::{TempDir, batch};
use barnabas_log::{LogConfig, LogError, stamp};
use barnabas_types::{LeaderEpoch, Offset};

use crate::world::{TINY, World, append, batches, copy_dir, read_all, segment_files, tp};

#[test]
fn r32_the_log_start_moves_up_only_and_stays() {
    let world = World::new("start", TINY);
    let (dir, mut log) = world.start();
    for i in 0..8 {
        append(&mut log, 2, 30, i / 3);
    }
    let segments = log.segment_count();
    for wrong in [0, 17, i64::MAX] {
        assert!(!log.advance_log_start(Offset(wrong)));
    }
    assert!(log.advance_log_start(Offset(7)));
    assert!(!log.advance_log_start(Offset(6)));
    assert!(matches!(
        log.read(Offset(6), Offset(16), 1),
        Err(LogError::OffsetOutOfRange { start: Offset(7), .. })
    ));
    assert!(matches!(log.truncate_to(Offset(6)), Err(LogError::OffsetOutOfRange { .. })));
    // The record lies in the middle of a batch, which is served whole.
    let mut bytes = Vec::new();
    log.read(Offset(7), Offset(16), 1).unwrap().unwrap().read_into(&mut bytes).unwrap();
    assert_eq!(batches(&bytes)[0].base_offset, 6);
    dir.write_log_starts().unwrap();
    let text = fs::read_to_string(world.path().join("log-start-offset-checkpoint")).unwrap();
    assert_eq!(text.trim_end(), "0\n1\nt 0 7");
    let detached = log.detach_below_start();
    let size = log.size_bytes();
    assert!(!detached.is_empty() && detached.bytes() > 0);
    assert_eq!(log.segment_count() + detached.bytes() as usize / 200, segments);
    let freed = detached.bytes();
    assert_eq!(detached.remove().unwrap(), freed);
    assert_eq!(log.size_bytes(), size);
    assert_eq!(segment_files(&world.partition()).len(), log.segment_count());
    assert_eq!(log.epochs().epoch_at(Offset(7)), Some(LeaderEpoch(1)));
    assert_eq!(log.epochs().start_of(LeaderEpoch(0)), None);
    drop((log, dir));
    let (_dir, log) = world.start();
    assert_eq!((log.log_start(), log.log_end()), (Offset(7), Offset(16)));
    assert_eq!(log.epochs().start_of(LeaderEpoch(1)), Some(Offset(7)));
}

#[test]
fn d8_a_crash_between_the_log_start_and_the_removal_is_settled_at_open() {
    let world = World::new("between", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..8 {
        append(&mut log, 2, 30, 1);
    }
    let before = segment_files(&world.partition()).len();
    assert!(log.advance_log_start(Offset(9)));
    dir.write_log_starts().unwrap();
    drop((log.detach_below_start(), log, dir));
    assert_eq!(segment_files(&world.partition()).len(), before);
    let (_dir, log) = world.start();
    assert_eq!(log.log_start(), Offset(9));
    assert!(segment_files(&world.partition()).len() < before);
    assert_eq!(log.recovery().losses, []);
}

#[test]
fn d8_files_that_are_gone_are_no_error_and_the_active_segment_stays() {
    let world = World::new("gone", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..8 {
        append(&mut log, 2, 30, 1);
    }
    let end = log.log_end();
    assert!(log.advance_log_start(end));
    dir.write_log_starts().unwrap();
    let detached = log.detach_below_start();
    assert_eq!(log.segment_count(), 1);
    drop(log);
    dir.delete(&tp("t")).unwrap();
    detached.remove().unwrap();
    assert_eq!(dir.log_start_of(&tp("t")), None);
}

#[test]
fn r32_a_log_that_lost_all_above_its_start_begins_there() {
    let world = World::new("below", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 5, 30, 1);
    assert!(log.advance_log_start(Offset(3)));
    dir.write_log_starts().unwrap();
    drop((log, dir));
    fs::write(world.segment(0), [0; 100]).unwrap();
    let (_dir, mut log) = world.start();
    assert_eq!((log.log_start(), log.log_end()), (Offset(3), Offset(3)));
    let loss = log.recovery().losses[0];
    assert_eq!((loss.from, loss.bytes), (Offset(3), 100));
    append(&mut log, 1, 10, 2);
    assert_eq!(log.log_end(), Offset(4));
}

/// A five-record batch at `base`.
fn five(base: i64) -> Vec<u8> {
    let mut records = batch(&[b"0", b"1", b"2", b"3", b"4"]);
    stamp(&mut records, Offset(base), LeaderEpoch(4)).unwrap();
    records
}

#[test]
fn r36_an_empty_follower_joins_in_the_middle_of_a_batch() {
    let world = World::new("middle", TINY);
    let (_dir, mut leader) = world.start();
    leader.append_as_follower(&five(0)).unwrap();
    assert!(leader.advance_log_start(Offset(2)));
    let mut answer = Vec::new();
    let range = leader.read(leader.log_start(), leader.log_end(), 1 << 20).unwrap().unwrap();
    range.read_into(&mut answer).unwrap();

    let other = World::new("middle", TINY);
    let (dir, mut follower) = other.start();
    append(&mut follower, 1, 10, 1);
    let loss = follower.reset_to(Offset(2)).unwrap().unwrap();
    assert_eq!(
        (loss.from, loss.to, loss.last_epoch),
        (Offset(0), Some(Offset(1)), Some(LeaderEpoch(1)))
    );
    let appended = follower.append_as_follower(&answer).unwrap();
    assert_eq!(appended.log_end, Offset(5));
    assert_eq!(appended.epochs, [(LeaderEpoch(4), Offset(2))]);
    follower.append_as_follower(&five(5)).unwrap();
    let check = |log: &barnabas_log::Log| {
        assert_eq!((log.log_start(), log.log_end()), (Offset(2), Offset(10)));
        let found = batches(&read_all(log, Offset(2), 1 << 20));
        assert_eq!(found.iter().map(|h| h.base_offset).collect::<Vec<_>>(), [0, 5]);
        assert!(matches!(
            log.read(Offset(1), Offset(10), 1),
            Err(LogError::OffsetOutOfRange { .. })
        ));
        assert_eq!(log.epochs().epoch_at(Offset(2)), Some(LeaderEpoch(4)));
    };
    check(&follower);
    assert!(other.partition().join("00000000000000000000.log").is_file());
    let copy = World { temp: TempDir::new("middle"), config: TINY };
    copy_dir(other.path(), copy.path());
    check(&copy.start().1);
    follower.close().unwrap();
    assert!(dir.close(true).unwrap());
    drop(dir);
    check(&other.start().1);
}

#[test]
fn r36_only_an_empty_log_takes_a_batch_that_begins_below_its_end() {
    let world = World::new("below", TINY);
    let (_dir, mut log) = world.start();
    log.reset_to(Offset(5)).unwrap();
    // It ends at the log start: nothing of it is wanted.
    assert!(matches!(log.append_as_follower(&five(0)), Err(LogError::NotAtEnd { .. })));
    log.append_as_follower(&five(3)).unwrap();
    assert!(matches!(log.append_as_follower(&five(7)), Err(LogError::NotAtEnd { .. })));
    assert_eq!((log.log_start(), log.log_end()), (Offset(5), Offset(8)));
}

#[test]
fn compacted_offsets_are_jumped_over_by_appends_reads_and_recovery() {
    let world = World::new("jumps", LogConfig { segment_bytes: 500, ..TINY });
    let (dir, mut log) = world.start();
    let bases = [0, 9, 14, 40, 45, 200, 205, 210];
    for pair in bases.chunks(2) {
        let records: Vec<u8> = pair.iter().flat_map(|base| five(*base)).collect();
        log.append_as_follower(&records).unwrap();
    }
    assert!(log.segment_count() > 1);
    let check = |log: &barnabas_log::Log| {
        assert_eq!(log.log_end(), Offset(215));
        let all = batches(&read_all(log, Offset(0), 300));
        assert_eq!(all.iter().map(|h| h.base_offset).collect::<Vec<_>>(), bases);
        for offset in 0..215 {
            let mut bytes = Vec::new();
            let range = log.read(Offset(offset), Offset(215), 1).unwrap().unwrap();
            range.read_into(&mut bytes).unwrap();
            let first = batches(&bytes)[0];
            let wanted = bases.iter().find(|base| **base + 5 > offset).unwrap();
            assert_eq!(first.base_offset, *wanted, "read from {offset}");
            assert!(range.end.0 > offset);
        }
        // Nothing whole lies below 30 from 20 on.
        assert!(log.read(Offset(20), Offset(30), 1 << 20).unwrap().is_none());
    };
    check(&log);
    drop((log, dir));
    let (dir, mut log) = world.start();
    assert_eq!(log.recovery().losses, []);
    check(&log);
    // A cut between batches leaves the end of the last one.
    log.truncate_to(Offset(100)).unwrap();
    assert_eq!(log.log_end(), Offset(50));
    drop((log, dir));
    assert_eq!(world.start().1.log_end(), Offset(50));
}

#[test]
fn a_flipped_base_offset_is_told_from_a_jump() {
    let world = World::new("flip", LogConfig { segment_bytes: 10_000, ..TINY });
    let (dir, mut log) = world.start();
    for _ in 0..4 {
        append(&mut log, 1, 20, 1);
    }
    drop((log, dir));
    let path = world.segment(0);
    let mut bytes = fs::read(&path).unwrap();
    let size = batches(&bytes)[0].size();
    bytes[size + 6] = 1;
    fs::write(&path, bytes).unwrap();
    let (_dir, log) = world.start();
    assert_eq!(log.log_end(), Offset(1));
    let loss = *log.recovery().cut().unwrap();
    assert_eq!((loss.from, loss.bytes), (Offset(1), 3 * size as u64));
}
