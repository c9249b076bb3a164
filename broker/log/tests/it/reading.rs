//! Ranges: on batch boundaries, from the asked offset, never beyond the limit, across segments; offsets by time; the index.

use std::fs;
use std::path::Path;

use barnabas_log::testing::BatchBuilder;
use barnabas_log::{Log, LogConfig, LogError, Looked, ReadRange, Wait};
use barnabas_types::{LeaderEpoch, Offset};
use rustix::fs::{Advice, fadvise, statfs};

use crate::world::{TINY, World, append, batches, read_all, segment_files};

fn varied(log: &mut Log, count: usize) {
    for i in 0..count {
        append(log, 1 + i % 4, 10 + i % 30, 1);
    }
}

fn check_every_range(log: &Log) {
    let all = batches(&read_all(log, log.log_start(), 1 << 20));
    for from in log.log_start().0..=log.log_end().0 {
        for to in [from, from + 1, from + 3, from + 7, log.log_end().0 + 5] {
            for max_bytes in [0, 150, 350, 1 << 20] {
                let range = log.read(Offset(from), Offset(to), max_bytes).unwrap();
                let first = all.iter().find(|h| h.last_offset() >= from);
                let expected = first.filter(|h| h.next_offset() <= to.min(log.log_end().0));
                let Some(first) = expected else {
                    assert!(range.is_none(), "{from}..{to}");
                    continue;
                };
                let range = range.unwrap_or_else(|| panic!("nothing for {from}..{to}"));
                let mut bytes = Vec::new();
                range.read_into(&mut bytes).unwrap();
                let got = batches(&bytes);
                assert_eq!(&got[0], first, "{from}..{to}");
                let last = got[got.len() - 1];
                assert_eq!(range.end, Offset(last.next_offset()));
                assert!(range.end.0 <= to);
                assert!(got.len() == 1 || bytes.len() <= max_bytes);
                // As much as fits: the next batch is above a limit, or in the next segment.
                if let Some(next) = all.iter().find(|h| h.base_offset == range.end.0)
                    && next.next_offset() <= to.min(log.log_end().0)
                    && bytes.len() + next.size() <= max_bytes
                {
                    let after = log.read(range.end, log.log_end(), 1).unwrap().unwrap();
                    assert_eq!(after.position, 0, "{from}..{to} stops at {}", range.end);
                }
            }
        }
    }
}

/// Lets the page cache forget a partition's files.
fn forget(partition: &Path) {
    for entry in fs::read_dir(partition).unwrap() {
        let file = fs::File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

#[test]
fn what_is_not_in_memory_is_told_without_waiting_and_found_once_somebody_has_read_it() {
    const TMPFS: u64 = 0x0102_1994;
    /// So often each offset is looked at until either kind has been seen: the kernel is free to keep a page that it uses just now.
    const PASSES_MAX: usize = 50;
    let world = World::new("cold", TINY);
    let (_dir, mut log) = world.start();
    varied(&mut log, 60);
    assert!(log.segment_count() > 5);
    if statfs(world.path()).unwrap().f_type as u64 == TMPFS {
        // Nothing is ever out of memory there.
        return;
    }
    let look = |from| log.look(Offset(from), log.log_end(), 300, Wait::Never).unwrap();
    let (mut lookups, mut ranges) = (0, 0);
    let offsets = 0..log.log_end().0;
    for (look_no, from) in std::iter::repeat_n(offsets.clone(), PASSES_MAX).flatten().enumerate() {
        if look_no >= offsets.clone().count() && lookups > 0 && ranges > 0 {
            break;
        }
        forget(&world.partition());
        let cold = match look(from) {
            // Of the last batches it is known where they lie.
            Looked::Found(range) => match range.as_ref().and_then(ReadRange::cold) {
                Some(cold) => {
                    ranges += 1;
                    cold
                }
                None => continue,
            },
            Looked::Cold(cold) => {
                lookups += 1;
                cold
            }
        };
        cold.run().unwrap();
        let Looked::Found(Some(found)) = look(from) else { panic!("{from} is still cold") };
        assert!(found.cold().is_none());
        let read = log.read(Offset(from), log.log_end(), 300).unwrap().unwrap();
        assert_eq!((found.position, found.len, found.end), (read.position, read.len, read.end));
    }
    assert!(lookups > 0 && ranges > 0, "{lookups}, {ranges}");
}

#[test]
fn the_bytes_from_an_offset_on_are_those_of_its_batch_and_all_behind_it() {
    let world = World::new("bytes-from", TINY);
    let (_dir, mut log) = world.start();
    varied(&mut log, 40);
    assert!(log.segment_count() > 5);
    let all = batches(&read_all(&log, log.log_start(), 1 << 20));
    for from in log.log_start().0..log.log_end().0 {
        let wanted = all.iter().filter(|h| h.last_offset() >= from).map(|h| h.size() as u64);
        assert_eq!(log.bytes_from(Offset(from)).unwrap(), wanted.sum::<u64>(), "from {from}");
    }
    assert_eq!(log.bytes_from(log.log_end()).unwrap(), 0);
    assert_eq!(log.bytes_from(log.log_start()).unwrap(), log.size_bytes());
    assert!(log.bytes_from(Offset(log.log_end().0 + 1)).is_err());
    assert_eq!(log.unflushed_bytes(), log.size_bytes(), "nothing is flushed yet");
    log.flush().unwrap();
    assert_eq!(log.unflushed_bytes(), 0);
    let before = log.size_bytes();
    append(&mut log, 1, 20, 9);
    assert_eq!(log.unflushed_bytes(), log.size_bytes() - before);
}

#[test]
fn every_range_of_a_log_with_many_segments() {
    let world = World::new("ranges", TINY);
    let (dir, mut log) = world.start();
    varied(&mut log, 40);
    assert!(log.segment_count() > 5);
    check_every_range(&log);
    log.close().unwrap();
    dir.close(true).unwrap();
    drop(dir);
    let (_dir, log) = world.start();
    check_every_range(&log);
}

#[test]
fn every_range_of_one_segment_longer_than_the_remembered_tail() {
    let world = World::new("one", LogConfig { segment_bytes: 1 << 20, ..TINY });
    let (_dir, mut log) = world.start();
    varied(&mut log, 90);
    assert_eq!(log.segment_count(), 1);
    check_every_range(&log);
}

#[test]
fn outside_is_an_error_and_the_end_is_nothing() {
    let world = World::new("outside", TINY);
    let (_dir, mut log) = world.start();
    append(&mut log, 3, 10, 1);
    assert!(log.read(Offset(3), Offset(9), 100).unwrap().is_none());
    assert!(matches!(
        log.read(Offset(4), Offset(9), 100),
        Err(LogError::OffsetOutOfRange { asked: Offset(4), start: Offset(0), end: Offset(3) })
    ));
    log.reset_to(Offset(10)).unwrap();
    assert!(log.read(Offset(9), Offset(9), 100).is_err());
    assert!(log.read(Offset(10), Offset(10), 100).unwrap().is_none());
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let world = World::new("large", TINY);
    let (_dir, mut log) = world.start();
    append(&mut log, 1, 10, 1);
    append(&mut log, 1, 2000, 1);
    append(&mut log, 1, 10, 1);
    assert_eq!(log.segment_count(), 3);
    check_every_range(&log);
}

#[test]
fn one_slice_of_many_batches_spreads_over_segments() {
    let world = World::new("slice", TINY);
    let (_dir, mut log) = world.start();
    let mut records = Vec::new();
    for _ in 0..20 {
        records.extend(BatchBuilder::new().record(&[1; 40]).build());
    }
    let appended = log.append(&mut records, Offset(0), LeaderEpoch(3)).unwrap();
    assert!(appended.rolled);
    assert_eq!(appended.log_end, Offset(20));
    assert_eq!(read_all(&log, Offset(0), 1 << 20), records);
    for file in segment_files(log.directory()) {
        assert!(fs::metadata(file).unwrap().len() <= 400);
    }
}

#[test]
fn index_files_are_kafkas() {
    let world = World::new("index", LogConfig { segment_bytes: 3000, ..TINY });
    let (dir, mut log) = world.start();
    varied(&mut log, 60);
    log.close().unwrap();
    drop(dir);
    let mut entries = 0;
    for path in segment_files(&world.partition()) {
        let base: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let bytes = fs::read(&path).unwrap();
        let headers = batches(&bytes);
        let number = |b: &[u8]| i64::from(u32::from_be_bytes(b.try_into().unwrap()));
        let index = fs::read(path.with_extension("index")).unwrap();
        assert_eq!(index.len() % 8, 0);
        for entry in index.chunks(8) {
            // Kafka's dump tool: the batch at the position must end with the entry's offset.
            let at = usize::try_from(number(&entry[4..])).unwrap();
            assert_eq!(batches(&bytes[at..])[0].last_offset(), base + number(&entry[..4]));
            entries += 1;
        }
        let times = fs::read(path.with_extension("timeindex")).unwrap();
        assert_eq!(times.len() % 12, 0);
        let mut before = -1;
        for entry in times.chunks(12) {
            let time = i64::from_be_bytes(entry[..8].try_into().unwrap());
            let offset = base + number(&entry[8..]);
            let header = headers.iter().find(|h| h.last_offset() == offset).unwrap();
            assert_eq!(header.max_timestamp, time);
            assert!(time > before);
            before = time;
        }
    }
    assert!(entries > 20);
}
