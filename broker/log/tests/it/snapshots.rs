//! Producer snapshots: the table of idempotent producers survives stops, cuts and damage of its own files.

use std::fs;
use std::path::{Path, PathBuf};

use barnabas_log::testing::{BatchBuilder, Failing, Forgetting, Kind, TempDir};
use barnabas_log::{Admission, BatchHeader, Log, LogConfig, LogDir, ProducerBatch, stamp};
use barnabas_types::{LeaderEpoch, Offset};

use crate::world::{
    ID, TINY, World, append as append_plain, copy_dir, read_all, segment_files, tp,
};

fn batch(id: i64, epoch: i16, sequence: i32, records: usize) -> Vec<u8> {
    let builder = (0..records).fold(BatchBuilder::new().timestamp(1000), |b, _| b.record(&[1; 60]));
    builder.producer(id, epoch, sequence).build()
}

fn append(log: &mut Log, id: i64, epoch: i16, sequence: i32, records: usize) {
    let mut batch = batch(id, epoch, sequence, records);
    assert_eq!(admit(log, &batch), Admission::New);
    log.append(&mut batch, log.log_end(), LeaderEpoch(1)).unwrap();
}

fn admit(log: &Log, batch: &[u8]) -> Admission {
    log.admit(&BatchHeader::parse(batch).unwrap()).unwrap()
}

fn rows(log: &Log) -> Vec<ProducerBatch> {
    log.producer_batches().collect()
}

/// Three producers in turn, batches of one and two records, plain ones between; the third changes its epoch.
fn fill(log: &mut Log) {
    for round in 0..7 {
        append(log, 1, 0, round, 1);
        append(log, 2, 3, round * 2, 2);
        append_plain(log, 1, 20, 1);
        append(log, 3, i16::from(round > 3), if round > 3 { round - 4 } else { round }, 1);
    }
    assert!(log.segment_count() > 5);
}

fn snapshots(partition: &Path) -> Vec<(i64, PathBuf)> {
    let mut found: Vec<(i64, PathBuf)> = fs::read_dir(partition)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "snapshot"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), path))
        .collect();
    found.sort();
    found
}

fn bases(partition: &Path) -> Vec<i64> {
    segment_files(partition)
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

fn stop(world: &World, log: &mut Log, dir: &barnabas_log::LogDir) {
    log.close().unwrap();
    assert!(dir.close(true).unwrap(), "{}", world.path().display());
}

#[test]
fn each_segment_has_one_and_a_close_adds_one_at_the_end() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    fill(&mut log);
    let offsets = |world: &World| -> Vec<i64> {
        snapshots(&world.partition()).into_iter().map(|(at, _)| at).collect()
    };
    assert_eq!(offsets(&world), bases(&world.partition())[1..]);
    let end = log.log_end().0;
    stop(&world, &mut log, &dir);
    drop((log, dir));
    assert_eq!(offsets(&world), [&bases(&world.partition())[1..], &[end]].concat());
    // The next close leaves the file as it is, or replaces it once the log has grown.
    let (dir, mut log) = world.start();
    stop(&world, &mut log, &dir);
    drop((log, dir));
    assert_eq!(offsets(&world).last(), Some(&end));
    let (dir, mut log) = world.start();
    append(&mut log, 1, 0, 7, 1);
    stop(&world, &mut log, &dir);
    assert_eq!(offsets(&world), [&bases(&world.partition())[1..], &[end + 1]].concat());
}

#[test]
fn a_log_without_a_record_has_none() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    stop(&world, &mut log, &dir);
    assert_eq!(snapshots(&world.partition()), []);
}

#[test]
fn the_table_is_the_same_after_a_clean_stop_a_kill_and_a_kill_after_a_clean_stop() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    fill(&mut log);
    let before = rows(&log);
    assert_eq!(before.len(), 5 + 5 + 3);
    drop((log, dir));
    let (dir, mut log) = world.start();
    assert_eq!(rows(&log), before, "after a kill");
    stop(&world, &mut log, &dir);
    drop((log, dir));
    let (dir, mut log) = world.start();
    assert_eq!(rows(&log), before, "after a clean stop");
    append(&mut log, 2, 3, 14, 2);
    let before = rows(&log);
    drop((log, dir));
    let (_dir, log) = world.start();
    assert_eq!(
        rows(&log),
        before,
        "after a kill, with the snapshot of the clean stop below the end"
    );
}

/// E3: what is known of a producer needs no record of it.
#[test]
fn e3_a_producer_outlives_its_records() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    fill(&mut log);
    append(&mut log, 9, 0, 0, 1);
    while log.segment_count() < 14 {
        append_plain(&mut log, 1, 100, 1);
    }
    let before = rows(&log);
    stop(&world, &mut log, &dir);
    drop((log, dir));
    // As retention does: the oldest segments go with all their files.
    let all = bases(&world.partition());
    let (gone, kept) = all.split_at(all.len() - 2);
    for base in gone {
        for kind in ["log", "index", "timeindex", "snapshot"] {
            let _ = fs::remove_file(world.partition().join(format!("{base:020}.{kind}")));
        }
    }
    for name in ["after a clean stop", "after a kill"] {
        let (_dir, log) = world.start();
        assert_eq!(log.log_start().0, kept[0]);
        assert_eq!(rows(&log), before, "{name}");
    }
}

/// All of a log is deleted, then it rolls, and a loss of power takes the new snapshot: what is left of it is below its start.
#[test]
fn e3_opening_reads_what_lies_below_the_log_start_before_it_goes() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 1, 0, 0, 1);
    append(&mut log, 2, 3, 0, 2);
    log.flush().unwrap();
    assert!(log.advance_log_start(log.log_end()));
    dir.write_log_starts().unwrap();
    let _ = log.detach_below_start().remove().unwrap();
    let before = rows(&log);
    while log.segment_count() == 1 {
        append_plain(&mut log, 1, 100, 1);
    }
    assert_eq!(rows(&log), before);
    drop((log, dir));
    let (base, lost) = snapshots(&world.partition()).pop().unwrap();
    fs::write(&lost, b"").unwrap();
    // A batch below the start that is damaged may be a producer's last.
    let torn = World::new("snapshots-torn", TINY);
    copy_dir(world.path(), torn.path());
    let oldest = torn.segment(0);
    let mut bytes = fs::read(&oldest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&oldest, bytes).unwrap();

    let (dir, log) = world.start();
    assert_eq!((log.log_start().0, rows(&log)), (base, before.clone()));
    assert_eq!(bases(&world.partition()), [base], "what is below goes nevertheless");
    drop((log, dir));
    let (_dir, log) = world.start();
    assert_eq!(rows(&log), before, "the snapshot was written anew");
    let (_dir, log) = torn.start();
    assert_eq!(rows(&log), [], "better none than an older one");
}

/// Of a segment that goes only the snapshot behind it says what it held, so that is durable before.
#[test]
fn e3_a_snapshot_is_durable_before_the_segments_that_it_tells_of_go() {
    for seed in 0..40 {
        let temp = TempDir::in_memory("snapshots-durable");
        let forgetting = Forgetting::new(temp.path());
        let start = || {
            let dir = LogDir::lock_on(forgetting.disk(), temp.path()).unwrap();
            dir.begin_under("boot-1").unwrap();
            let log = dir.open(&tp("t"), ID, TINY).unwrap();
            (dir, log)
        };
        let (dir, mut log) = start();
        append(&mut log, 1, 0, 0, 1);
        append(&mut log, 2, 3, 0, 2);
        log.flush().unwrap();
        let kept = log.log_end();
        while log.segment_count() == 1 {
            append_plain(&mut log, 1, 100, 1);
        }
        let before = rows(&log);
        // No flush since the roll: the high watermark may be ahead of what is flushed here.
        assert!(log.advance_log_start(kept));
        dir.write_log_starts().unwrap();
        assert!(log.detach_below_start().remove().unwrap() > 0);
        drop((log, dir));
        forgetting.power_cut(seed);
        let (_dir, log) = start();
        assert_eq!(rows(&log), before, "seed {seed}");
    }
}

/// The disk is full at the moment of a roll, and retention takes what lies before it.
#[test]
fn e3_segments_without_a_snapshot_behind_them_stay() {
    // For how many changes there is no room: for the rolls alone, at retention too, up to a later roll.
    for lasting in ["the roll", "retention", "the next roll"] {
        let world = World::new("snapshots-full", TINY);
        let failing = Failing::new();
        let start = || {
            let dir = LogDir::lock_on(failing.disk(), world.path()).unwrap();
            dir.begin_under("boot-1").unwrap();
            let log = dir.open(&tp("t"), ID, TINY).unwrap();
            (dir, log)
        };
        let roll = |log: &mut Log| {
            let before = log.segment_count();
            while log.segment_count() == before {
                append_plain(log, 1, 100, 1);
            }
            Offset(*bases(&world.partition()).last().unwrap())
        };
        let (dir, mut log) = start();
        append(&mut log, 1, 0, 0, 1);
        append(&mut log, 2, 3, 0, 2);
        failing.fail(Kind::Create, ".snapshot", 0);
        let mut begin = roll(&mut log);
        assert_eq!(snapshots(&world.partition()), [], "{lasting}");
        let mut gone = 1;
        if lasting == "retention" {
            failing.fail(Kind::Create, ".snapshot", 0);
            gone = 0;
        } else if lasting == "the next roll" {
            failing.fail(Kind::Create, ".snapshot", 0);
            begin = roll(&mut log);
            gone = 2;
        }
        let before = rows(&log);
        assert!(log.advance_log_start(begin));
        dir.write_log_starts().unwrap();
        let segments = log.segment_count();
        let _ = log.detach_below_start().remove().unwrap();
        assert_eq!(segments - log.segment_count(), gone, "{lasting}");
        drop((log, dir));
        let (dir, mut log) = start();
        assert_eq!(rows(&log), before, "{lasting}");
        assert_eq!(bases(&world.partition()), [begin.0], "an opening reads it, and then it goes");
        append_plain(&mut log, 1, 100, 1);
        drop((log, dir));
        assert_eq!(rows(&start().1), before, "{lasting}");
    }
}

#[test]
fn a_follower_has_the_table_of_its_leader() {
    let (leader, follower) = (World::new("leader", TINY), World::new("follower", TINY));
    let (_dir, mut log) = leader.start();
    fill(&mut log);
    let (dir, mut other) = follower.start();
    while other.log_end() < log.log_end() {
        let all = read_all(&log, other.log_end(), 700);
        let header = BatchHeader::parse(&all).unwrap();
        other.append_as_follower(&all[..header.size()]).unwrap();
    }
    assert_eq!(rows(&other), rows(&log));
    drop((other, dir));
    let (_dir, other) = follower.start();
    assert_eq!(rows(&other), rows(&log), "after a kill of the follower");
}

/// Every kind of damage, after a clean and an unclean stop: the table is whole, what was doubtful is gone.
#[test]
fn a_damaged_snapshot_is_removed_and_others_and_the_batches_stand_in() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("empty", |path| fs::write(path, b"").unwrap()),
        ("half", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("zeros", |path| fs::write(path, vec![0; fs::read(path).unwrap().len()]).unwrap()),
        ("bit flipped", |path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            fs::write(path, bytes).unwrap();
        }),
        ("longer", |path| {
            fs::write(path, [fs::read(path).unwrap(), vec![0; 46]].concat()).unwrap()
        }),
        ("random", |path| fs::write(path, [0xA5; 500]).unwrap()),
    ];
    let template = World::new("snapshots", TINY);
    let (dir, mut log) = template.start();
    fill(&mut log);
    let before = rows(&log);
    stop(&template, &mut log, &dir);
    drop((log, dir));
    for (name, damage) in damages {
        for clean in [true, false] {
            for newest in [1, 2, usize::MAX] {
                let world = World::new("snapshots-damaged", TINY);
                copy_dir(template.path(), world.path());
                if !clean {
                    fs::remove_file(world.path().join(".kafka_cleanshutdown")).unwrap();
                }
                let damaged: Vec<_> =
                    snapshots(&world.partition()).into_iter().rev().take(newest).collect();
                damaged.iter().for_each(|(_, path)| damage(path));
                let (_dir, log) = world.start();
                assert_eq!(rows(&log), before, "{name}, clean {clean}, {newest} of them");
                let end = log.log_end().0;
                assert!(snapshots(&world.partition()).iter().all(|(at, _)| *at != end), "{name}");
            }
        }
    }
}

/// One that is whole but tells of other batches: its end lies above the log's, in a batch, or its last row is not there.
#[test]
fn a_snapshot_of_another_log_is_not_taken() {
    let other = World::new("snapshots-other", TINY);
    let (dir, mut log) = other.start();
    for sequence in 0..20 {
        append(&mut log, 77, 0, sequence, 1);
    }
    stop(&other, &mut log, &dir);
    let foreign = snapshots(&other.partition()).pop().unwrap().1;
    drop((log, dir));

    let world = World::new("snapshots", LogConfig::default());
    let (dir, mut log) = world.start();
    for sequence in 0..7 {
        append(&mut log, 1, 0, sequence * 3, 3);
    }
    let before = rows(&log);
    drop((log, dir));
    for at in [5, 18, 20, 21, 22, 1000] {
        let path = world.partition().join(format!("{at:020}.snapshot"));
        fs::copy(&foreign, &path).unwrap();
        let (_dir, log) = world.start();
        assert_eq!(log.log_end(), Offset(21));
        assert_eq!(rows(&log), before, "{at}");
        assert!(!path.exists(), "{at}");
    }
}

#[test]
fn r15_no_snapshot_outlives_the_batches_that_it_tells_of() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    fill(&mut log);
    stop(&world, &mut log, &dir);
    drop((log, dir));
    let (dir, mut log) = world.start();
    let cut = Offset(log.log_end().0 - 9);
    log.truncate_to(cut).unwrap();
    let end = log.log_end().0;
    assert!(snapshots(&world.partition()).iter().all(|(at, _)| *at <= end));
    // Other batches take their place, up to beyond where the snapshot of the clean stop was.
    for sequence in 0..20 {
        append(&mut log, 50, 0, sequence, 1);
    }
    let after = rows(&log);
    assert!(after.iter().filter(|row| row.producer_id != 50).all(|row| row.last_offset < end));
    drop((log, dir));
    let (_dir, log) = world.start();
    let last = |rows: &[ProducerBatch]| -> Vec<ProducerBatch> {
        [1, 2, 3, 50]
            .iter()
            .filter_map(|id| rows.iter().rfind(|row| row.producer_id == *id).copied())
            .collect()
    };
    assert_eq!(last(&rows(&log)), last(&after));
}

#[test]
fn r15_a_producer_of_whose_last_batches_none_is_left_is_read_again() {
    let world = World::new("snapshots", TINY);
    let (_dir, mut log) = world.start();
    append(&mut log, 1, 0, 0, 4);
    append(&mut log, 2, 0, 0, 1);
    for sequence in 4..20 {
        append(&mut log, 1, 0, sequence, 1);
    }
    append(&mut log, 2, 1, 0, 1);
    log.truncate_to(Offset(6)).unwrap();
    let known: Vec<_> =
        rows(&log).iter().map(|r| (r.producer_id, r.producer_epoch, r.last_sequence)).collect();
    assert_eq!(known, [(1, 0, 3), (1, 0, 4), (2, 0, 0)]);
    assert_eq!(admit(&log, &batch(1, 0, 5, 1)), Admission::New);
    log.reset_to(Offset(100)).unwrap();
    assert_eq!((rows(&log), snapshots(&world.partition())), (vec![], vec![]));
}

#[test]
fn a_sequence_that_wraps_inside_a_batch_is_known_after_a_stop() {
    let world = World::new("snapshots", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 7, 0, i32::MAX - 1, 4);
    stop(&world, &mut log, &dir);
    drop((log, dir));
    let (_dir, log) = world.start();
    let found = admit(&log, &batch(7, 0, i32::MAX - 1, 4));
    assert_eq!(found, Admission::Duplicate { base: Offset(0), end: Offset(4) });
    assert_eq!(admit(&log, &batch(7, 0, 2, 1)), Admission::New);
}

/// D9: what an opening reads depends on what was appended since the last flush, not on the size of the segment.
#[test]
fn d9_a_flush_takes_a_snapshot_now_and_then() {
    let world = World::new("snapshots", LogConfig::default());
    let (dir, mut log) = world.start();
    let mut sequence = 0;
    let mut megabytes = |log: &mut Log, count: i32| {
        for _ in 0..count {
            let mut batch =
                BatchBuilder::new().record(&vec![1; 1 << 20]).producer(7, 0, sequence).build();
            log.append(&mut batch, log.log_end(), LeaderEpoch(1)).unwrap();
            sequence += 1;
        }
        log.flush().unwrap();
    };
    megabytes(&mut log, 20);
    assert_eq!(snapshots(&world.partition()), []);
    megabytes(&mut log, 13);
    let offsets =
        || snapshots(&world.partition()).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(offsets(), [33]);
    megabytes(&mut log, 1);
    megabytes(&mut log, 33);
    assert_eq!(offsets(), [67], "in the place of the one before");
    let before = rows(&log);
    drop((log, dir));
    let (_dir, log) = world.start();
    assert_eq!(rows(&log), before);
    assert_eq!(offsets(), [67]);
}

#[test]
fn an_idle_producer_expires_on_every_replica_and_may_begin_anew() {
    let world = World::new("snapshots", TINY);
    let (_dir, mut log) = world.start();
    let mut records = batch(7, 0, 0, 2);
    stamp(&mut records, Offset(0), LeaderEpoch(1)).unwrap();
    log.append_as_follower(&records).unwrap();
    let day = 86_400_000;
    assert_eq!(log.expire_producers(1000 + day, day), 0, "it has just written");
    assert_eq!(log.expire_producers(999 + day, day), 0);
    assert_eq!(log.expire_producers(1000 + day, day), 1);
    assert_eq!(admit(&log, &batch(7, 0, 40, 1)), Admission::New);
}
