//! Compaction: what stays and what goes.

use std::collections::BTreeMap;
use std::fs;

use barnabas_log::testing::{BatchBuilder, Random, TempDir};
use barnabas_log::{Disk, Ended, Log, LogConfig, LogDir, Unhurried, compact};
use barnabas_types::{CleanupPolicy, LeaderEpoch, Offset, Ratio};

use crate::keyed::{COMPACTED, Keyed, Pair, all_records, filled, headers, leftovers};
use crate::world::{ID, read_all, segment_files, tp};

fn pair(key: &str, value: Option<&str>) -> Pair {
    (key.as_bytes().to_vec(), value.map(|v| v.as_bytes().to_vec()))
}

#[test]
fn the_last_record_of_each_key_stays_at_its_offset() {
    let mut keyed = filled("compaction", COMPACTED, 120, 10);
    let (segments, size) = (keyed.log().segment_count(), keyed.log().size_bytes());
    let done = keyed.compact().unwrap();
    let active = segment_files(keyed.log().directory()).pop().unwrap();
    let active: i64 = active.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(done.ended, Ended::UpTo(Offset(active)));
    assert_eq!(keyed.dir().cleaned_up_to(&tp("t")), Some(Offset(active)));
    assert_eq!(keyed.log().segment_count(), segments, "full ones have room for themselves only");
    assert!(keyed.log().size_bytes() < size / 4);
    assert!(done.removed_records > 0 && done.records > done.removed_records);
    keyed.check();
    keyed.check_reads();
    assert!(leftovers(keyed.log().directory()).is_empty());
    let below = read_all(keyed.log(), Offset(0), 1 << 20);
    let below = all_records(&below).into_iter().filter(|(offset, _)| *offset < active);
    let mut of_key: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    below.for_each(|(_, (key, _))| *of_key.entry(key).or_default() += 1);
    assert!(of_key.values().all(|count| *count == 1), "{of_key:?}");
    assert!(keyed.compact().is_none(), "nothing is dirty any more");
    // What is left of them is made into few by the next round.
    let mut random = Random(8);
    for _ in 0..20 {
        keyed.append_some(&mut random, 10);
    }
    keyed.flush_all();
    keyed.compact().unwrap();
    assert!(keyed.log().segment_count() < segments / 2);
    keyed.check();
    keyed.check_reads();
}

#[test]
fn only_what_is_sealed_flushed_committed_and_old_enough_is_compacted() {
    let mut keyed = filled("compaction", COMPACTED, 60, 5);
    let ends: Vec<i64> = segment_files(keyed.log().directory())
        .iter()
        .skip(1)
        .map(|p| p.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect();
    assert!(ends.len() > 6);
    // The high watermark lies inside the fourth segment.
    keyed.high_watermark = ends[3] - 1;
    assert_eq!(keyed.compact().unwrap().ended, Ended::UpTo(Offset(ends[2])));
    keyed.check();
    assert!(keyed.compact().is_none());
    // Timestamps go up by one from record to record.
    keyed.high_watermark = keyed.end;
    let young = keyed.now_ms - (keyed.end - ends[4]);
    let min_compaction_lag_ms = keyed.now_ms - young;
    keyed.log_mut().configure(LogConfig { min_compaction_lag_ms, ..COMPACTED });
    assert_eq!(keyed.compact().unwrap().ended, Ended::UpTo(Offset(ends[4])));
    keyed.check();
    keyed.log_mut().configure(COMPACTED);
    assert_eq!(keyed.compact().unwrap().ended, Ended::UpTo(Offset(*ends.last().unwrap())));
    keyed.check();
    // Nothing is flushed: nothing may be touched.
    let mut random = Random(3);
    let flushed = keyed.log().flushed();
    for _ in 0..30 {
        keyed.append_some(&mut random, 5);
    }
    keyed.high_watermark = keyed.end;
    if let Some(done) = keyed.compact() {
        assert!(matches!(done.ended, Ended::UpTo(end) if end <= flushed));
    }
    keyed.check();
}

#[test]
fn a_log_is_due_by_its_dirty_share_or_its_age() {
    let half =
        LogConfig { min_cleanable_dirty_ratio: Ratio::from_millionths(600_000), ..COMPACTED };
    let mut keyed = filled("compaction", half, 60, 1000);
    let share = |keyed: &Keyed| {
        let high_watermark = Offset(keyed.high_watermark);
        let plan = keyed.log().compaction_plan(high_watermark)?;
        plan.due(keyed.now_ms).unwrap().map(|round| round.dirty_share())
    };
    assert_eq!(share(&keyed), Some(1.0));
    keyed.compact().unwrap();
    let mut random = Random(3);
    for _ in 0..30 {
        keyed.append_some(&mut random, 1000);
    }
    keyed.flush_all();
    assert_eq!(share(&keyed), None, "a third is dirty");
    let old = LogConfig { max_compaction_lag_ms: 20, ..half };
    keyed.log_mut().configure(old);
    let overdue = share(&keyed).unwrap();
    assert!(overdue > 0.2 && overdue < 0.5, "{overdue}");
    keyed.log_mut().configure(LogConfig { max_compaction_lag_ms: 1_000_000, ..half });
    assert_eq!(share(&keyed), None);
    let cleanup = CleanupPolicy { delete: true, compact: false };
    keyed.log_mut().configure(LogConfig { cleanup, ..old });
    assert_eq!(share(&keyed), None, "not a compacted topic");
}

#[test]
fn a_tombstone_goes_after_its_time_and_its_key_stays_deleted() {
    let mut keyed = Keyed::new("tombstones", COMPACTED);
    keyed.append(&[pair("a", Some("1")), pair("b", Some("1"))], 0, None);
    keyed.append(&[pair("a", None)], 4, None);
    let fill = |keyed: &mut Keyed| {
        for number in 0..20 {
            let value = "x".repeat(80);
            keyed.append(&[pair(&format!("fill-{number}"), Some(&value))], 0, None);
        }
        keyed.flush_all();
        assert!(matches!(keyed.compact().unwrap().ended, Ended::UpTo(_)));
        keyed.check();
        all_records(&read_all(keyed.log(), Offset(0), 1 << 20))
    };
    let first = fill(&mut keyed);
    assert_eq!(first.get(&0), None);
    assert_eq!(first.get(&2), Some(&pair("a", None)), "it is still to be read");
    keyed.now_ms += 900;
    assert!(fill(&mut keyed).contains_key(&2));
    keyed.now_ms += 200;
    assert!(!fill(&mut keyed).contains_key(&2));
}

#[test]
fn a_small_map_compacts_in_several_rounds() {
    let mut keyed = filled("compaction", COMPACTED, 150, 60);
    let mut rounds = 0;
    let mut before = -1;
    while let Some(done) = keyed.compact_with(24 * 12, &mut Unhurried) {
        let Ended::UpTo(end) = done.unwrap().ended else { panic!("it ends where the map is full") };
        assert!(end.0 > before, "each round makes progress");
        before = end.0;
        rounds += 1;
        keyed.check();
    }
    assert!(rounds > 3, "{rounds}");
}

#[test]
fn small_segments_become_one_and_none_grows_beyond_its_bound() {
    let mut keyed = filled("compaction", COMPACTED, 100, 100_000);
    keyed.log_mut().configure(LogConfig { segment_bytes: 5000, ..COMPACTED });
    let before = all_records(&read_all(keyed.log(), Offset(0), 1 << 20));
    keyed.compact().unwrap();
    let sizes: Vec<u64> = segment_files(keyed.log().directory())
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .collect();
    assert!(sizes.iter().all(|size| *size <= 5000) && sizes[0] > 3000, "{sizes:?}");
    // Tombstones apart all keys are there once: nothing went.
    assert_eq!(all_records(&read_all(keyed.log(), Offset(0), 1 << 20)).len(), before.len());
    keyed.check_reads();
}

#[test]
fn e3_sequences_outlive_the_records_of_their_producer() {
    let mut keyed = Keyed::new("producers", COMPACTED);
    for _ in 0..3 {
        keyed.append(&[pair("a", Some("1")), pair("b", Some("1"))], 3, Some(7));
    }
    let mut random = Random(1);
    for _ in 0..60 {
        let value = "x".repeat(random.below(50));
        keyed.append(&[pair("a", Some(&value)), pair("b", Some(&value))], 0, None);
    }
    keyed.flush_all();
    keyed.compact().unwrap();
    keyed.check();
    let first = headers(&read_all(keyed.log(), Offset(0), 1 << 20))[0];
    assert_eq!((first.producer_id, first.record_count, first.base_offset), (7, 0, 4));
    // Also where nothing but the batches is left to tell.
    let Some((dir, log)) = keyed.open.take() else { unreachable!() };
    let partition = log.directory().to_owned();
    drop((log, dir));
    for entry in fs::read_dir(&partition).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "snapshot") {
            fs::remove_file(path).unwrap();
        }
    }
    keyed.start(Disk::real());
    let known: Vec<_> = keyed.log().producer_batches().collect();
    assert_eq!((known.len(), known[0].last_sequence, known[0].last_offset), (1, 5, 5));
    keyed.append(&[pair("a", Some("2"))], 0, Some(7));
    keyed.check();
}

#[test]
fn a_follower_of_a_compacted_leader_has_an_equal_log() {
    let mut keyed = filled("leader", COMPACTED, 150, 12);
    keyed.compact().unwrap();
    let temp = TempDir::in_memory("follower");
    let dir = LogDir::lock(temp.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    let mut follower = dir.open(&tp("t"), ID, COMPACTED).unwrap();
    let end = keyed.log().log_end();
    while follower.log_end() < end {
        let range = keyed.log().read(follower.log_end(), end, 300).unwrap().unwrap();
        let mut bytes = Vec::new();
        range.read_into(&mut bytes).unwrap();
        follower.append_as_follower(&bytes).unwrap();
    }
    let all = |log: &Log| read_all(log, Offset(0), 1 << 20);
    assert!(all(keyed.log()) == all(&follower));
    drop((follower, dir));
    let dir = LogDir::lock(temp.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    let mut follower = dir.open(&tp("t"), ID, COMPACTED).unwrap();
    assert!(all(keyed.log()) == all(&follower), "an unclean stop changes nothing");
    // It compacts by itself.
    follower.flush().unwrap();
    let round = follower.compaction_plan(end).unwrap().due(keyed.now_ms).unwrap().unwrap();
    compact(round, &mut |work| work(&mut follower), 1 << 20, &mut Unhurried).unwrap();
    assert_eq!(follower.log_end(), end);
}

#[test]
fn compact_and_delete_does_both() {
    let cleanup = CleanupPolicy { delete: true, compact: true };
    let config = LogConfig { cleanup, retention_bytes: 2000, ..COMPACTED };
    let mut keyed = filled("both", config, 150, 1000);
    let size = keyed.log().size_bytes();
    keyed.compact().unwrap();
    assert!(keyed.log().size_bytes() > 2000 + 900);
    let plan = keyed.log().retention_plan().unwrap();
    let point = plan.point(keyed.now_ms, Offset(keyed.high_watermark)).unwrap().unwrap();
    let to = keyed.log_mut().settle_retention(&plan, point).unwrap().unwrap();
    assert!(keyed.log_mut().advance_log_start(to));
    keyed.dir().write_log_starts().unwrap();
    keyed.log_mut().detach_below_start().remove().unwrap();
    keyed.records = keyed.records.split_off(&to.0);
    assert!(keyed.log().size_bytes() < size && keyed.log().log_start() == to);
    keyed.check();
}

#[test]
fn records_without_key_from_before_go_and_what_cannot_be_read_stays() {
    let mut keyed = Keyed::new("mixed", COMPACTED);
    let mut no_key = BatchBuilder::new().record(b"x").keyed(b"k", Some(b"v")).build();
    keyed.log_mut().append(&mut no_key, Offset(0), LeaderEpoch(1)).unwrap();
    let mut garbage = BatchBuilder::new().record(b"x").attributes(1).build();
    keyed.log_mut().append(&mut garbage, Offset(2), LeaderEpoch(1)).unwrap();
    keyed.end = 3;
    let value = "x".repeat(400);
    for _ in 0..4 {
        keyed.append(&[pair("fill", Some(&value))], 0, None);
    }
    keyed.flush_all();
    let done = keyed.compact().unwrap();
    assert_eq!(done.unreadable_batches, 1);
    let bytes = read_all(keyed.log(), Offset(0), 1 << 20);
    let counts: Vec<(i64, i32)> =
        headers(&bytes).iter().map(|h| (h.base_offset, h.record_count)).collect();
    assert_eq!(counts[..2], [(0, 1), (2, 1)]);
}
