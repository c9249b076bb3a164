//! Disk trouble: full disks, failed writes, failed syncs, lost tails, and stops in the middle of a recovery.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use barnabas_log::testing::{Failing, Forgetting, Kind, TempDir, batch};
use barnabas_log::{BatchHeader, FlushStep, Log, LogConfig, LogDir, LogError, LossCause};
use barnabas_types::{Condition, LeaderEpoch, Offset};

use crate::world::{ID, TINY, World, append, assert_whole, read_all, tp};

fn start_on(world: &World, failing: &Arc<Failing>) -> (LogDir, Log) {
    let dir = LogDir::lock_on(failing.disk(), world.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    let log = dir.open(&tp("t"), ID, world.config).unwrap();
    (dir, log)
}

#[test]
fn a_full_disk_refuses_appends_says_so_and_everything_else_goes_on() {
    let world = World::new("full", TINY);
    let failing = Failing::new();
    let (dir, mut log) = start_on(&world, &failing);
    for _ in 0..6 {
        append(&mut log, 1, 60, 1);
    }
    let segments = log.segment_count();
    let before = read_all(&log, Offset(0), 1 << 20);
    let large: Vec<u8> = (0..4).flat_map(|_| batch(&[&[7; 150]])).collect();
    // At every point at which room may run out: in a batch, in an index, in the next segment, at its creation.
    for room in (0..=large.len()).step_by(3) {
        failing.room(Some(room));
        let error = log.append(&mut large.clone(), Offset(6), LeaderEpoch(1)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, LogError::Full(_)) && text.contains("full"), "{text}");
        assert_eq!(error.condition(), Condition::LogDirFull);
        assert!(error.condition().is_retriable());
        assert!(!log.is_fenced());
        assert_eq!((log.log_end(), log.segment_count()), (Offset(6), segments), "room for {room}");
        assert!(read_all(&log, Offset(0), 700) == before, "reads go on");
    }
    // Deletions go on, and so do flushes.
    failing.room(Some(0));
    assert!(log.append(&mut batch(&[b"x"]), Offset(6), LeaderEpoch(1)).is_err());
    assert!(matches!(log.assign_epoch(LeaderEpoch(2), Offset(6)), Err(LogError::Full(_))));
    assert_eq!(log.epochs().latest(), Some(LeaderEpoch(1)));
    assert_eq!(log.flush().unwrap(), Offset(6));
    assert!(log.advance_log_start(Offset(3)));
    log.detach_below_start().remove().unwrap();
    // Nothing happens, or all of it.
    assert!(matches!(log.truncate_to(Offset(5)), Err(LogError::Full(_))));
    assert!(matches!(log.reset_to(Offset(9)), Err(LogError::Full(_))));
    assert!(!log.is_fenced());
    failing.room(None);
    let mut large = large;
    log.append(&mut large, Offset(6), LeaderEpoch(1)).unwrap();
    assert_whole_from(&log, 3);
    dir.write_log_starts().unwrap();
    drop((log, dir));
    let (_dir, log) = start_on(&world, &failing);
    assert_eq!((log.log_end(), log.recovery().losses.len()), (Offset(10), 0));
    assert_whole_from(&log, 3);
}

fn assert_whole_from(log: &Log, start: i64) {
    assert_eq!(log.log_start(), Offset(start));
    assert_whole(log);
}

#[test]
fn a_followers_epochs_that_did_not_come_to_be_are_forgotten() {
    let world = World::new("full-epochs", TINY);
    let failing = Failing::new();
    let (dir, mut log) = start_on(&world, &failing);
    append(&mut log, 1, 10, 1);
    let records: Vec<u8> = [(1, 2), (2, 3)]
        .into_iter()
        .flat_map(|(base, epoch)| {
            let mut records = batch(&[&[1; 40]]);
            barnabas_log::stamp(&mut records, Offset(base), LeaderEpoch(epoch)).unwrap();
            records
        })
        .collect();
    // The epochs are written, the batches are not.
    failing.room(Some(150));
    assert!(matches!(log.append_as_follower(&records), Err(LogError::Full(_))));
    assert!(log.epochs().start_of(LeaderEpoch(3)).is_none());
    failing.room(None);
    // The file is put right before the log goes on: else epoch 3 would be found at offset 2 after a clean stop.
    for _ in 0..3 {
        append(&mut log, 1, 10, 2);
    }
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
    drop(dir);
    let (_dir, log) = start_on(&world, &failing);
    assert_eq!(log.epochs().epoch_at(Offset(3)), Some(LeaderEpoch(2)));
}

/// A shortage of descriptors is no fault of the disk: what needs a file is refused, and nothing else is.
#[test]
fn without_a_file_descriptor_appends_are_refused_and_flushes_wait_and_the_log_is_whole() {
    let world = World::new("descriptors", TINY);
    let failing = Failing::new();
    let (dir, mut log) = start_on(&world, &failing);
    for _ in 0..4 {
        append(&mut log, 1, 60, 1);
    }
    log.flush().unwrap();
    assert!(!log.roll_if_due(0).unwrap());
    failing.descriptors(Some(0));
    // Within the segment there is room; then the next one is due.
    let (mut last, mut taken) = (log.segment_count(), 0);
    let error = loop {
        let end = log.log_end();
        match log.append(&mut batch(&[&[1; 60]]), end, LeaderEpoch(1)) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10);
    };
    let text = error.to_string();
    assert!(matches!(error, LogError::NoDescriptor(_)) && text.contains("descriptor"), "{text}");
    assert_eq!(error.condition(), Condition::NoDescriptorLeft);
    assert!(error.condition().is_retriable() && !log.is_fenced());
    let end = log.log_end();
    assert_eq!((log.segment_count(), end), (last, Offset(4 + taken)));
    for refused in [
        log.assign_epoch(LeaderEpoch(2), end).unwrap_err(),
        log.flush_plan().unwrap_err(),
        log.truncate_to(Offset(1)).unwrap_err(),
        log.reset_to(Offset(100)).unwrap_err(),
        log.roll_if_due(i64::MAX).unwrap_err(),
    ] {
        assert!(matches!(refused, LogError::NoDescriptor(_)), "{refused}");
        assert!(!log.is_fenced(), "{refused}");
    }
    failing.descriptors(None);
    assert_whole(&log);
    append(&mut log, 1, 60, 2);
    assert!(log.segment_count() > last);
    assert_eq!(log.flush().unwrap(), log.log_end());
    // That the directory cannot be opened is no failed sync (R38).
    last = log.segment_count();
    while log.segment_count() == last {
        append(&mut log, 1, 60, 2);
    }
    let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
    failing.descriptors(Some(0));
    let result = plan.run();
    assert_eq!(log.flush_done(&plan, result).unwrap(), log.log_end());
    failing.descriptors(None);
    assert_whole(&log);
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
}

/// Clients send one batch a request ([`barnabas_log::validate_produce`]), which lies in one segment. Whoever appends several at once
/// is answered for all: with a part of them written nothing is acknowledged, and nothing is written behind that part before the
/// log was opened again.
#[test]
fn without_a_file_descriptor_within_several_batches_none_counts_and_the_log_is_whole_when_opened_again()
 {
    let world = World::new("descriptors", TINY);
    let failing = Failing::new();
    let (dir, mut log) = start_on(&world, &failing);
    append(&mut log, 1, 60, 1);
    failing.descriptors(Some(0));
    let mut several: Vec<u8> = (0..8).flat_map(|_| batch(&[&[1; 60]])).collect();
    let error = log.append(&mut several, Offset(1), LeaderEpoch(1)).unwrap_err();
    assert_eq!(error.condition(), Condition::KafkaStorageError, "{error}");
    failing.descriptors(None);
    let again = log.append(&mut several, Offset(1), LeaderEpoch(1));
    assert!(matches!(again, Err(LogError::Fenced)) && log.is_fenced());
    drop((log, dir));
    let (_dir, mut log) = start_on(&world, &failing);
    let end = log.log_end();
    assert!(end > Offset(1) && end < Offset(9), "the batches before the roll, whole: {end}");
    assert_whole(&log);
    log.append(&mut several, end, LeaderEpoch(1)).unwrap();
    assert_whole(&log);
}

/// A follower's records go on into the next segment more often than not.
#[test]
fn without_a_file_descriptor_a_follower_takes_what_goes_before_the_next_segment() {
    let (leader, world) = (World::new("leader", TINY), World::new("descriptors", TINY));
    let (_leader_dir, mut log) = leader.start();
    for epoch in [1, 1, 2, 3, 3] {
        append(&mut log, 1, 60, epoch);
    }
    let all = read_all(&log, Offset(0), 1 << 20);
    let failing = Failing::new();
    let (dir, mut other) = start_on(&world, &failing);
    let first = BatchHeader::parse(&all).unwrap().size();
    other.append_as_follower(&all[..first]).unwrap();
    failing.descriptors(Some(0));
    let error = other.append_as_follower(&all[first..]).unwrap_err();
    assert!(matches!(error, LogError::NoDescriptor(_)), "{error}");
    assert_eq!((other.log_end(), other.is_fenced()), (Offset(1), false));
    // One for the epochs, which are noted before the records.
    failing.descriptors(Some(1));
    let appended = other.append_as_follower(&all[first..]).unwrap();
    let end = other.log_end();
    assert!(end > Offset(1) && end < log.log_end(), "{end}");
    assert_eq!(appended.log_end, end);
    assert!(appended.epochs.iter().all(|(_, start)| *start < end), "{:?}", appended.epochs);
    assert!(other.epochs().entries().iter().all(|entry| entry.start_offset <= end));
    failing.descriptors(None);
    let rest = read_all(&log, end, 1 << 20);
    other.append_as_follower(&rest).unwrap();
    assert_eq!(read_all(&other, Offset(0), 1 << 20), all);
    assert_eq!(other.epochs(), log.epochs());
    other.close().unwrap();
    assert!(dir.close(true).unwrap());
}

#[test]
fn d1_a_short_write_then_an_error_leaves_no_half_batch_and_no_second_use_of_an_offset() {
    for after_bytes in [1, 60, 61, 100, 130, 200] {
        let world = World::new("short", LogConfig { segment_bytes: 1000, ..TINY });
        let failing = Failing::new();
        let (dir, mut log) = start_on(&world, &failing);
        append(&mut log, 2, 20, 1);
        let before = read_all(&log, Offset(0), 1 << 20);
        failing.tear(Kind::Write, ".log", 0, after_bytes);
        // What is left cannot be cut off either.
        failing.fail(Kind::SetLen, ".log", 0);
        let mut two = [batch(&[&[1; 40]]), batch(&[&[2; 40]])].concat();
        let error = log.append(&mut two, Offset(2), LeaderEpoch(1)).unwrap_err();
        assert!(matches!(error, LogError::Io { .. }), "{error}");
        assert_eq!(log.log_end(), Offset(2));
        let again = log.append(&mut batch(&[b"x"]), Offset(2), LeaderEpoch(1));
        assert!(matches!(again, Err(LogError::Fenced)));
        drop(log);
        let mut log = dir.open(&tp("t"), ID, world.config).unwrap();
        assert_eq!(read_all(&log, Offset(0), 1 << 20)[..before.len()], before);
        append(&mut log, 1, 10, 2);
        assert_whole(&log);
    }
}

#[test]
fn d5_r38_after_a_failed_sync_the_log_is_cut_to_what_was_flushed() {
    for failing_sync in 0..2 {
        let world = World::new("failed-sync", TINY);
        let failing = Failing::new();
        let (dir, mut log) = start_on(&world, &failing);
        for _ in 0..3 {
            append(&mut log, 1, 60, 1);
        }
        log.flush().unwrap();
        for _ in 0..5 {
            append(&mut log, 1, 60, 2);
        }
        let kept = read_all(&log, Offset(0), 1 << 20)[..].to_vec();
        failing.fail(Kind::SyncData, ".log", failing_sync);
        let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
        let result = plan.run();
        assert!(log.flush_done(&plan, result).is_err());
        assert_eq!((log.flushed(), log.log_end()), (Offset(3), Offset(8)));
        let at_stake = log.unflushed(LossCause::FailedSync).unwrap();
        assert_eq!((at_stake.from, at_stake.to), (Offset(3), Some(Offset(8))));
        assert_eq!(at_stake.last_epoch, Some(LeaderEpoch(2)));
        assert!(log.flush().is_err() && log.close().is_err(), "no later success covers them");
        drop((plan, log));
        let mut log = dir.open(&tp("t"), ID, TINY).unwrap();
        assert_eq!((log.flushed(), log.log_end()), (Offset(3), Offset(3)));
        let loss = log.recovery().losses[0];
        assert_eq!((loss.from, loss.to), (at_stake.from, at_stake.to));
        assert_eq!((loss.cause, loss.last_epoch), (LossCause::FailedSync, Some(LeaderEpoch(2))));
        assert_eq!(log.epochs().latest(), Some(LeaderEpoch(1)));
        let bytes = read_all(&log, Offset(0), 1 << 20);
        assert_eq!(bytes, kept[..bytes.len()]);
        // It goes on, and a later opening does not cut again.
        append(&mut log, 1, 10, 3);
        assert_eq!(log.flush().unwrap(), Offset(4));
        append(&mut log, 1, 10, 3);
        log.fence();
        drop(log);
        assert_eq!(dir.open(&tp("t"), ID, TINY).unwrap().log_end(), Offset(5));
    }
}

#[test]
fn r38_a_failed_sync_of_a_retired_log_says_nothing_of_its_successor() {
    let world = World::new("retired", TINY);
    let failing = Failing::new();
    let (dir, mut log) = start_on(&world, &failing);
    append(&mut log, 1, 10, 1);
    let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
    log.fence();
    dir.delete(&tp("t")).unwrap();
    let mut next = dir.open(&tp("t"), ID, TINY).unwrap();
    append(&mut next, 1, 10, 1);
    assert!(log.flush_done(&plan, Err(LogError::Fenced)).is_err());
    drop(next);
    assert_eq!(dir.open(&tp("t"), ID, TINY).unwrap().log_end(), Offset(1));
}

#[test]
fn c7_a_log_below_its_own_high_watermark_has_lost_its_tail_under_the_same_boot_id_too() {
    let world = World::new("tail", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..6 {
        append(&mut log, 1, 60, 1);
    }
    dir.write_high_watermarks(&BTreeMap::from([(tp("t"), Offset(6))])).unwrap();
    drop((log, dir));
    // As a loss of power leaves it: the last segment is gone.
    fs::remove_file(world.segment(1)).unwrap();
    let (dir, log) = world.start();
    assert!(log.recovery().tail_lost && dir.is_tail_lost());
    let loss = log.recovery().losses[0];
    assert_eq!((loss.from, loss.to, loss.at_least_to), (Offset(3), None, Offset(6)));
    assert_eq!((loss.cause, loss.bytes), (LossCause::Missing, 0));
    assert_eq!(dir.high_watermark_of(&tp("t")), Some(Offset(3)));
    drop((log, dir));
    // The mark stays, the loss is told once.
    let dir = LogDir::lock(world.path()).unwrap();
    assert!(dir.begin_under("boot-1").unwrap().tail_lost);
    let log = dir.open(&tp("t"), ID, TINY).unwrap();
    assert_eq!(log.recovery().losses, []);
}

#[test]
fn a_torn_tail_is_reported_as_exactly_as_its_bytes_allow() {
    let world = World::new("torn", LogConfig { segment_bytes: 10_000, ..TINY });
    let (dir, mut log) = world.start();
    for epoch in [1, 1, 2, 3] {
        append(&mut log, 2, 30, epoch);
    }
    drop((log, dir));
    let whole = fs::read(world.segment(0)).unwrap();
    let size = whole.len() / 4;
    let lose = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(world.segment(0), bytes).unwrap();
        let (_dir, log) = world.start();
        let loss = *log.recovery().cut().unwrap();
        assert_eq!((loss.from, log.log_end()), (Offset(2), Offset(2)));
        (loss.to.map(|to| to.0), loss.at_least_to.0, loss.bytes, loss.last_epoch.map(|e| e.0))
    };
    // The second batch is damaged: those after it say how far the log went.
    let all = 3 * size as u64;
    assert_eq!(lose(&|b| b[2 * size - 1] ^= 1), (Some(8), 8, all, Some(3)));
    // Then the last one is torn as well.
    let torn = lose(&|b| {
        b[2 * size - 1] ^= 1;
        b.truncate(4 * size - 1);
    });
    assert_eq!(torn, (None, 6, all - 1, Some(2)));
    // Nothing but zeros.
    assert_eq!(lose(&|b| b[size..].fill(0)), (None, 2, all, None));
}

#[test]
fn d9_a_stop_ends_a_recovery_promptly_and_the_next_start_does_it() {
    let world = World::new("stop", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..30 {
        append(&mut log, 2, 20, 1);
    }
    log.flush().unwrap();
    let mut other = dir.open(&tp("u"), ID, TINY).unwrap();
    append(&mut other, 1, 10, 1);
    drop((log, other, dir));
    let dir = LogDir::lock(world.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    let progress = Arc::clone(dir.progress());
    assert_eq!((progress.partitions_total(), progress.partitions_done()), (2, 0));
    let mut other = dir.open(&tp("u"), ID, TINY).unwrap();
    assert_eq!(progress.partitions_done(), 1);
    assert!(progress.bytes_total() > 0 && progress.bytes_done() == progress.bytes_total());
    progress.stop();
    assert!(matches!(dir.open(&tp("t"), ID, TINY), Err(LogError::Stopped)));
    // What was recovered is kept; the marker is not written.
    other.close().unwrap();
    assert!(!dir.close(true).unwrap());
    drop(dir);
    let dir = LogDir::lock(world.path()).unwrap();
    assert!(!dir.begin_under("boot-1").unwrap().clean);
    let other = dir.open(&tp("u"), ID, TINY).unwrap();
    assert_eq!(other.flushed(), Offset(1));
    let log = dir.open(&tp("t"), ID, TINY).unwrap();
    assert_eq!((log.log_end(), log.recovery().losses.len()), (Offset(60), 0));
    assert_whole(&log);
    assert_eq!(dir.progress().bytes_done(), dir.progress().bytes_total());
}

#[test]
fn d4_names_are_synced_before_a_flush_is_claimed_and_not_at_each() {
    let world = World { temp: TempDir::in_memory("names"), config: TINY };
    let forgetting = Forgetting::new(world.path());
    let counting = Failing::before(forgetting.clone());
    let (_dir, mut log) = start_on(&world, &counting);
    let syncs = |log: &mut Log| {
        let before = counting.count(Kind::SyncDir);
        log.flush().unwrap();
        counting.count(Kind::SyncDir) - before
    };
    append(&mut log, 1, 10, 1);
    assert_eq!(syncs(&mut log), 1, "the first segment is new");
    append(&mut log, 1, 10, 1);
    assert_eq!(syncs(&mut log), 0);
    for _ in 0..12 {
        append(&mut log, 1, 60, 1);
    }
    assert!(log.segment_count() > 3);
    assert_eq!(syncs(&mut log), 1, "one for all new segments");
    let end = log.log_end();
    drop((log, _dir));
    for seed in 0..30 {
        forgetting.power_cut(seed);
        assert_eq!(start_on(&world, &counting).1.log_end(), end);
    }
}
