//! After any stop the log is a prefix of what was appended, ends after a whole batch, and goes on from there.

use std::fs::{self, OpenOptions};

use barnabas_log::{BatchError, LogConfig, LossCause};
use barnabas_types::{LeaderEpoch, Offset};

use crate::world::{TINY, World, append, assert_whole, batches, read_all, segment_files};

fn cut_file(path: &std::path::Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

#[test]
fn i11_recovery_at_every_cut_ends_after_the_last_whole_batch() {
    let config = LogConfig { segment_bytes: 10_000, ..TINY };
    let world = World::new("cut", config);
    let (dir, mut log) = world.start();
    for (records, epoch) in [(1, 1), (3, 1), (2, 2), (1, 5)] {
        append(&mut log, records, 20, epoch);
    }
    let whole = read_all(&log, Offset(0), 1 << 20);
    let headers = batches(&whole);
    drop((log, dir));
    for length in 0..=whole.len() {
        fs::write(world.segment(0), &whole[..length]).unwrap();
        let (_dir, mut log) = world.start();
        let mut kept = 0;
        let mut end = 0;
        for header in &headers {
            if kept + header.size() > length {
                break;
            }
            kept += header.size();
            end = header.next_offset();
        }
        assert_eq!(log.log_end(), Offset(end), "cut at {length}");
        assert_eq!(log.recovery().cut().map_or(0, |c| c.bytes), (length - kept) as u64);
        let last = headers.iter().rev().find(|h| h.next_offset() <= end);
        let epoch = log.epochs().epoch_at(Offset(end - 1)).map(|e| e.0);
        assert_eq!(epoch, last.map(|h| h.partition_leader_epoch));
        append(&mut log, 2, 7, 9);
        assert_eq!(log.log_end(), Offset(end + 2));
        assert_whole(&log);
        assert_eq!(log.epochs().epoch_at(Offset(end)), Some(LeaderEpoch(9)));
    }
}

#[test]
fn i11_any_flipped_byte_above_the_recovery_point_cuts_there() {
    let config = LogConfig { segment_bytes: 10_000, ..TINY };
    let world = World::new("flip", config);
    let (dir, mut log) = world.start();
    for epoch in [1, 1, 2] {
        append(&mut log, 2, 20, epoch);
    }
    let whole = read_all(&log, Offset(0), 1 << 20);
    let headers = batches(&whole);
    drop((log, dir));
    // Leader epochs and base offsets lie outside the CRC: a flip there is seen where it makes them decrease, of base offsets
    // also if the next batch is still in its old place.
    let last = whole.len() - headers[0].size();
    let guarded = |at: usize| {
        let field = at % headers[0].size();
        !((12..16).contains(&field) || (at >= last && field < 8))
    };
    for at in (0..whole.len()).filter(|at| guarded(*at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(world.segment(0), &bytes).unwrap();
        let (_dir, log) = world.start();
        let damaged = at / headers[0].size();
        assert_eq!(log.log_end(), Offset(headers[damaged].base_offset), "flipped at {at}");
        assert_whole(&log);
    }
}

#[test]
fn d7_a_batch_that_does_not_go_on_is_cut_with_all_later_segments() {
    let world = World::new("overlap", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..12 {
        append(&mut log, 2, 20, 1);
    }
    assert!(log.segment_count() > 3);
    drop((log, dir));
    // The second batch of the second segment repeats the base offset of the first.
    let path = world.segment(1);
    let mut bytes = fs::read(&path).unwrap();
    let first = batches(&bytes)[0];
    let second = first.size();
    bytes[second..second + 8].copy_from_slice(&first.base_offset.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let (_dir, log) = world.start();
    let cut = log.recovery().cut().unwrap();
    assert_eq!(cut.from, Offset(first.next_offset()));
    assert!(matches!(cut.cause, LossCause::Damaged(BatchError::OffsetOrder { .. })));
    assert_eq!(log.log_end(), cut.from);
    assert_eq!(segment_files(&world.partition()).len(), 2);
    assert_whole(&log);
}

#[test]
fn i11_a_lost_segment_drops_those_after_it() {
    let world = World::new("hole", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..12 {
        append(&mut log, 2, 20, 1);
    }
    drop((log, dir));
    let lost = world.segment(1);
    let first_lost: i64 = lost.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    fs::remove_file(lost).unwrap();
    let (_dir, log) = world.start();
    assert_eq!(log.log_end(), Offset(first_lost));
    assert_whole(&log);
}

#[test]
fn d2_garbage_after_a_clean_stop_is_cut_too() {
    let world = World::new("garbage", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..5 {
        append(&mut log, 1, 30, 1);
    }
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
    drop(dir);
    let path = segment_files(&world.partition()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let good = bytes.len();
    bytes.extend_from_slice(&[0xAB; 70]);
    fs::write(&path, bytes).unwrap();
    let (_dir, log) = world.start();
    assert_eq!(log.log_end(), Offset(5));
    assert_eq!(fs::metadata(&path).unwrap().len(), good as u64);
    assert_whole(&log);
}

#[test]
fn missing_epochs_are_rebuilt_from_the_batches() {
    let world = World::new("epochs", TINY);
    let (dir, mut log) = world.start();
    for i in 0..10 {
        append(&mut log, 1, 20, i / 3 * 2);
    }
    let epochs = log.epochs().clone();
    drop((log, dir));
    fs::remove_file(world.partition().join("leader-epoch-checkpoint")).unwrap();
    let (_dir, log) = world.start();
    assert_eq!(log.epochs(), &epochs);
}

#[test]
fn d9_what_lies_below_the_recovery_point_is_not_scanned() {
    let config = LogConfig { segment_bytes: 4000, ..TINY };
    let world = World::new("bounded", config);
    let (dir, mut log) = world.start();
    for _ in 0..200 {
        append(&mut log, 1, 50, 1);
    }
    log.flush().unwrap();
    dir.write_recovery_points().unwrap();
    append(&mut log, 1, 50, 1);
    let size = log.size_bytes();
    drop((log, dir));
    let (_dir, log) = world.start();
    assert_eq!(log.log_end(), Offset(201));
    assert!(log.recovery().scanned_bytes * 4 < size, "{:?} of {size}", log.recovery());
    assert_whole(&log);
}

#[test]
fn a_stale_epoch_checkpoint_cut_is_not_undone() {
    let world = World::new("cutfile", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..6 {
        append(&mut log, 1, 20, 1);
    }
    append(&mut log, 1, 20, 4);
    drop((log, dir));
    // The last batch, the only one of epoch 4, is torn.
    let last = segment_files(&world.partition()).pop().unwrap();
    cut_file(&last, fs::metadata(&last).unwrap().len() - 1);
    let (_dir, mut log) = world.start();
    assert_eq!(log.log_end(), Offset(6));
    assert_eq!(
        log.epochs().end_offset_for(LeaderEpoch(1), log.log_end()),
        Some((LeaderEpoch(1), Offset(6)))
    );
    append(&mut log, 1, 20, 5);
    assert_eq!(log.epochs().epoch_at(Offset(6)), Some(LeaderEpoch(5)));
}

/// What a disk leaves that lied about its syncs: names of segments, and of all but the first one nothing in them.
#[test]
fn i12_a_log_ends_where_its_last_batch_ends_whatever_its_segments_are_called() {
    for (name, stop) in [("points-lost", 0), ("flushed", 1), ("clean", 2)] {
        for kept in [0, 1, 2] {
            let world = World::new(&format!("hollow-{name}-{kept}"), TINY);
            let (dir, mut log) = world.start();
            for _ in 0..12 {
                append(&mut log, 2, 20, 1);
            }
            let end = log.log_end();
            let first = batches(&read_all(&log, Offset(0), 1 << 20))[0];
            match stop {
                0 => drop(log),
                1 => {
                    log.flush().unwrap();
                    dir.write_recovery_points().unwrap();
                    drop(log);
                }
                _ => {
                    log.close().unwrap();
                    assert!(dir.close(true).unwrap());
                }
            }
            drop(dir);
            if stop == 0 {
                fs::remove_file(world.path().join("recovery-point-offset-checkpoint")).ok();
            }
            let files = segment_files(&world.partition());
            assert!(files.len() > 3);
            cut_file(&files[0], (kept * first.size()) as u64);
            files[1..files.len() - 1].iter().for_each(|file| fs::remove_file(file).unwrap());
            let last = files.last().unwrap();
            // In one case something is left that is no batch.
            fs::write(last, if kept == 2 { &[0xAB; 70][..] } else { &[] }).unwrap();
            let named: i64 = last.file_stem().unwrap().to_str().unwrap().parse().unwrap();

            let (_dir, mut log) = world.start();
            assert_eq!(log.log_end(), Offset(2 * kept as i64), "{name}, {kept} kept");
            assert_whole(&log);
            let losses = &log.recovery().losses;
            assert_eq!(losses.len(), 1, "{name}, {kept} kept: {losses:?}");
            assert_eq!(losses[0].from, log.log_end());
            assert!(losses[0].at_least_to >= Offset(named), "{name}, {kept} kept: {losses:?}");
            if stop > 0 {
                assert!(log.recovery().tail_lost && losses[0].at_least_to == end);
            }
            append(&mut log, 3, 20, 2);
            assert_whole(&log);
            assert_eq!(log.epochs().epoch_at(Offset(2 * kept as i64)), Some(LeaderEpoch(2)));
        }
    }
}
