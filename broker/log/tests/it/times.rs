//! Time: offsets by timestamp, segments rolled by age, retention by age and size.

use std::fs::File;
use std::time::{Duration, UNIX_EPOCH};

use barnabas_log::testing::BatchBuilder;
use barnabas_log::{Log, LogConfig, LogError};
use barnabas_types::{CleanupPolicy, LeaderEpoch, Offset};

use crate::world::{TINY, World, assert_whole, segment_files};

fn by_time(log: &Log, timestamp: i64) -> Option<(Offset, i64)> {
    let mut from = Offset(0);
    while let Some(lookup) = log.offset_for_timestamp(timestamp, from).unwrap() {
        if let Some(found) = lookup.resolve().unwrap() {
            return Some(found);
        }
        assert!(lookup.next() > from);
        from = lookup.next();
    }
    None
}

fn latest(log: &Log) -> Option<(Offset, i64)> {
    log.max_timestamp_offset().unwrap().and_then(|lookup| lookup.resolve().unwrap())
}

/// Appends one batch with a record for each time.
fn append(log: &mut Log, times: &[i64], codec: i16) {
    let mut builder = BatchBuilder::new().codec(codec);
    for time in times {
        builder = builder.timestamp(*time).record(&[0; 12]);
    }
    log.append(&mut builder.build(), log.log_end(), LeaderEpoch(1)).unwrap();
}

#[test]
fn d10_offsets_by_time_are_exact_in_every_codec() {
    let world = World::new("time", TINY);
    let (dir, mut log) = world.start();
    // Times go up by 5 for each record, but every fourth batch is far back.
    let mut records = Vec::new();
    for batch in 0..30_i64 {
        let mut times = Vec::new();
        for record in 0..3 {
            let offset = batch * 3 + record;
            let time = if batch % 4 == 3 { offset } else { 1000 + offset * 5 };
            records.push((offset, time));
            times.push(time);
        }
        append(&mut log, &times, i16::try_from(batch % 5).unwrap());
    }
    let check = |log: &Log| {
        for asked in (0..1500).step_by(7).chain([1000, 1005, 1445]) {
            let expected = records.iter().find(|(_, time)| *time >= asked);
            let expected = expected.map(|(o, t)| (Offset(*o), *t));
            assert_eq!(by_time(log, asked), expected, "at {asked}");
        }
        let last = records.iter().rev().max_by_key(|(_, time)| *time).unwrap();
        assert_eq!(latest(log), Some((Offset(last.0), last.1)));
    };
    check(&log);
    log.close().unwrap();
    dir.close(true).unwrap();
    drop(dir);
    let (dir, log) = world.start();
    check(&log);
    drop((log, dir));
    let (_dir, log) = world.start();
    check(&log);
}

#[test]
fn time_of_an_empty_log_and_of_records_that_cannot_be_read() {
    let world = World::new("time", TINY);
    let (_dir, mut log) = world.start();
    assert_eq!((by_time(&log, 0), latest(&log)), (None, None));
    let garbage = BatchBuilder::new().attributes(3).timestamp(50).record(b"x");
    let mut garbage = garbage.timestamp(90).record(b"y").build();
    log.append(&mut garbage, Offset(0), LeaderEpoch(0)).unwrap();
    assert_eq!(by_time(&log, 60), Some((Offset(0), 90)), "the batch stands for its records");
    assert_eq!(by_time(&log, 91), None);
    assert_eq!(latest(&log), Some((Offset(0), 90)));
}

#[test]
fn a_header_that_promises_more_than_its_records_hides_nothing() {
    let world = World::new("time", TINY);
    let (_dir, mut log) = world.start();
    let mut lying = BatchBuilder::new().timestamp(5).record(b"x").build();
    lying[35..43].copy_from_slice(&1000_i64.to_be_bytes());
    log.append(&mut lying, Offset(0), LeaderEpoch(1)).unwrap();
    append(&mut log, &[500, 600], 0);
    assert_eq!(by_time(&log, 550), Some((Offset(2), 600)));
}

#[test]
fn segments_are_rolled_by_the_times_of_their_records() {
    let config = LogConfig { segment_bytes: 1 << 20, segment_ms: 100, ..TINY };
    let world = World::new("roll", config);
    let (dir, mut log) = world.start();
    for time in [1000, 1050, 1100, 1101, 900, 1202, 1150] {
        append(&mut log, &[time], 0);
    }
    let bases = |log: &Log| {
        segment_files(log.directory())
            .iter()
            .map(|p| p.file_stem().unwrap().to_str().unwrap().parse::<i64>().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(bases(&log), [0, 3, 5]);
    drop((log, dir));
    let (_dir, mut log) = world.start();
    append(&mut log, &[1303], 0);
    assert_eq!(bases(&log), [0, 3, 5, 7], "the first record's time is read back");
    log.configure(LogConfig { segment_ms: i64::MAX, ..config });
    append(&mut log, &[1 << 40], 0);
    assert_eq!(log.segment_count(), 4, "the change holds at once");
    assert_whole(&log);
}

#[test]
fn segments_are_rolled_by_the_clock_when_nobody_writes() {
    let config = LogConfig { segment_bytes: 1 << 20, segment_ms: 100, ..TINY };
    let world = World::new("roll", config);
    let (dir, mut log) = world.start();
    assert!(!log.roll_if_due(0).unwrap(), "an empty segment stays");
    append(&mut log, &[1000], 0);
    assert!(!log.roll_if_due(5000).unwrap());
    assert!(!log.roll_if_due(5100).unwrap());
    assert!(log.roll_if_due(5101).unwrap());
    assert!(!log.roll_if_due(i64::MAX).unwrap(), "the new one is empty");
    append(&mut log, &[1000], 0);
    drop((log, dir));
    let (_dir, mut log) = world.start();
    assert!(!log.roll_if_due(0).unwrap(), "its file is younger than that");
    assert!(log.roll_if_due(i64::MAX).unwrap(), "its age was read back");
    assert_eq!(log.segment_count(), 3);
    log.fence();
    assert!(matches!(log.roll_if_due(0), Err(LogError::Fenced)));
}

/// A log with these times, each in a segment of its own, the last in the active one.
fn log_of(world: &World, times: &[i64]) -> (barnabas_log::LogDir, Log) {
    let (dir, mut log) = world.start();
    for time in times {
        append(&mut log, &[*time], 0);
    }
    assert_eq!(log.segment_count(), times.len());
    (dir, log)
}

const ONE_EACH: LogConfig = LogConfig { segment_bytes: 1, retention_ms: 100, ..TINY };

fn point(log: &Log, now_ms: i64, high_watermark: i64) -> Option<i64> {
    let plan = log.retention_plan().unwrap();
    plan.point(now_ms, Offset(high_watermark)).unwrap().map(|point| point.0)
}

#[test]
fn r32_retention_by_age_goes_up_to_the_high_watermark() {
    let world = World::new("retention", ONE_EACH);
    let (dir, log) = log_of(&world, &[1000, 900, 1100, 1050, 2000]);
    let check = |log: &Log| {
        assert_eq!(point(log, 1100, 5), None, "as old as allowed");
        assert_eq!(point(log, 1101, 5), Some(2));
        assert_eq!(point(log, 1201, 5), Some(4));
        assert_eq!(point(log, 1201, 3), Some(3), "a segment at the high watermark stays");
        assert_eq!(point(log, 1201, 0), None);
        assert_eq!(point(log, 9999, 5), Some(5), "the active one expires too");
    };
    check(&log);
    drop((log, dir));
    let (_dir, mut log) = world.start();
    check(&log);
    log.configure(LogConfig { retention_ms: -1, ..ONE_EACH });
    assert!(log.retention_plan().is_none());
    let cleanup = CleanupPolicy { delete: false, compact: true };
    log.configure(LogConfig { cleanup, ..ONE_EACH });
    assert!(log.retention_plan().is_none(), "a compacted log keeps its old records");
    let cleanup = CleanupPolicy { delete: true, compact: true };
    log.configure(LogConfig { cleanup, ..ONE_EACH });
    assert_eq!(point(&log, 1101, 5), Some(2));
}

#[test]
fn retention_by_size_keeps_at_least_what_was_asked() {
    let config = LogConfig { retention_ms: -1, ..ONE_EACH };
    let world = World::new("retention", config);
    let (_dir, mut log) = log_of(&world, &[1000, 900, 1100, 1050, 2000]);
    let one = i64::try_from(log.size_bytes() / 5).unwrap();
    for (bytes, expected) in
        [(5 * one, None), (4 * one + 1, None), (4 * one, Some(1)), (2 * one, Some(3)), (0, Some(5))]
    {
        log.configure(LogConfig { retention_bytes: bytes, ..config });
        assert_eq!(point(&log, 0, 5), expected, "{bytes}");
    }
    // What goes by age counts as gone.
    log.configure(LogConfig { retention_bytes: 4 * one, retention_ms: 100, ..config });
    assert_eq!(point(&log, 1101, 5), Some(2));
}

#[test]
fn an_expired_active_segment_is_rolled() {
    let world = World::new("retention", ONE_EACH);
    let (_dir, mut log) = log_of(&world, &[1000, 1000]);
    let plan = log.retention_plan().unwrap();
    let to = plan.point(5000, Offset(2)).unwrap().unwrap();
    assert_eq!(log.settle_retention(&plan, to).unwrap(), Some(Offset(2)));
    assert_eq!((log.segment_count(), log.log_end()), (3, Offset(2)));
    // Taken again: it is rolled already.
    assert_eq!(log.settle_retention(&plan, to).unwrap(), Some(Offset(2)));
    assert_eq!(log.segment_count(), 3);
}

#[test]
fn d8_a_plan_knows_what_came_between() {
    let grown = LogConfig { segment_bytes: 1 << 20, ..ONE_EACH };
    let world = World::new("retention", grown);
    let (_dir, mut log) = world.start();
    append(&mut log, &[1000], 0);
    let plan = log.retention_plan().unwrap();
    assert_eq!(plan.point(5000, Offset(1)).unwrap(), Some(Offset(1)));
    append(&mut log, &[5000], 0);
    assert_eq!(log.settle_retention(&plan, Offset(1)).unwrap(), None, "it has a young record now");
    let plan = log.retention_plan().unwrap();
    log.truncate_to(Offset(1)).unwrap();
    assert_eq!(log.settle_retention(&plan, Offset(1)).unwrap(), None, "it was cut");
    let plan = log.retention_plan().unwrap();
    log.fence();
    assert!(log.settle_retention(&plan, Offset(1)).is_err());
    std::fs::remove_dir_all(log.directory()).unwrap();
    assert_eq!(plan.point(5000, Offset(1)).unwrap(), Some(Offset(1)), "its time is known");
}

#[test]
fn d8_a_segment_that_is_gone_ends_the_plan_quietly() {
    let world = World::new("retention", ONE_EACH);
    let (_dir, log) = log_of(&world, &[-1, -1, -1]);
    let plan = log.retention_plan().unwrap();
    std::fs::remove_dir_all(log.directory()).unwrap();
    assert_eq!(plan.point(i64::MAX, Offset(3)).unwrap(), None);
}

#[test]
fn d10_neither_a_date_far_ahead_nor_none_holds_a_segment_for_ever() {
    let config = LogConfig { retention_ms: 100, timestamp_after_max_ms: 50, ..ONE_EACH };
    let world = World::new("retention", config);
    let (dir, mut log) = log_of(&world, &[9_999_999, -1, 1000]);
    log.flush().unwrap();
    for file in segment_files(log.directory()) {
        let written = UNIX_EPOCH + Duration::from_millis(5000);
        File::options().write(true).open(file).unwrap().set_modified(written).unwrap();
    }
    let check = |log: &Log| {
        assert_eq!(point(log, 5150, 3), None, "written at 5000, at most 50 ahead, kept for 100");
        assert_eq!(point(log, 5151, 3), Some(3));
    };
    check(&log);
    drop((log, dir));
    let (_dir, log) = world.start();
    check(&log);
}
