//! Every file beside the batches, damaged in every way, after a clean stop and without one: the directory opens, serves the
//! right bytes, and drops nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{Log, LogDir};
use barnabas_types::{BrokerId, ClusterId, LeaderEpoch, Offset};

use crate::world::{ID, TINY, World, append, assert_whole, batches, copy_dir, read_all, tp};

const DAMAGES: [&str; 6] = ["empty", "half", "zeros", "first bit", "last bit", "missing"];

fn damage(path: &Path, kind: &str) {
    let mut content = fs::read(path).unwrap();
    match kind {
        "empty" => content.clear(),
        "half" => content.truncate(content.len() / 2),
        "zeros" => content.fill(0),
        "first bit" => content.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        "last bit" => content.iter_mut().last().into_iter().for_each(|byte| *byte ^= 4),
        _ => return fs::remove_file(path).unwrap(),
    }
    fs::write(path, content).unwrap();
}

/// All files below a directory but the batches and the lock.
fn side_files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(side_files(&path));
        } else if path.extension().is_none_or(|e| e != "log") && !path.ends_with(".lock") {
            found.push(path.strip_prefix(root).unwrap().to_owned());
        }
    }
    if root.ends_with("t-0") {
        found.iter_mut().for_each(|path| *path = Path::new("t-0").join(&path));
    }
    found.sort();
    found
}

fn bind(dir: &mut LogDir) {
    dir.bind(BrokerId(1), &ClusterId("cluster".to_owned())).unwrap();
}

/// A log of several segments and epochs, with deleted records, flushed in part.
fn prepare(world: &World, clean: bool) -> (Vec<u8>, Offset) {
    let (mut dir, mut log) = world.start();
    bind(&mut dir);
    for i in 0..14 {
        append(&mut log, 2, 20, i / 3);
    }
    assert!(log.advance_log_start(Offset(9)));
    dir.write_log_starts().unwrap();
    log.detach_below_start().remove().unwrap();
    log.flush().unwrap();
    dir.write_recovery_points().unwrap();
    for i in 0..4 {
        let mut batch = BatchBuilder::new().record(&[1; 30]).producer(5, 0, i).build();
        let end = log.log_end();
        log.append(&mut batch, end, LeaderEpoch(7)).unwrap();
    }
    dir.write_high_watermarks(&BTreeMap::from([(tp("t"), log.log_end())])).unwrap();
    let whole = (read_all(&log, log.log_start(), 1 << 20), log.log_end());
    if clean {
        log.close().unwrap();
        assert!(dir.close(true).unwrap());
    }
    whole
}

fn check(log: &Log, whole: &(Vec<u8>, Offset), what: &str) {
    assert_eq!(log.recovery().losses, [], "{what}");
    assert_eq!(log.log_end(), whole.1, "{what}");
    assert!(log.log_start() <= Offset(9), "{what}");
    assert!(read_all(log, Offset(9), 1 << 20) == whole.0, "{what}");
    // Each offset by itself: here the indexes are followed.
    for offset in 9..whole.1.0 {
        let mut found = Vec::new();
        let range = log.read(Offset(offset), whole.1, 1).unwrap().unwrap();
        range.read_into(&mut found).unwrap();
        let header = batches(&found)[0];
        assert!(header.base_offset <= offset && offset <= header.last_offset(), "{what}");
        let epoch = log.epochs().epoch_at(Offset(header.base_offset.max(log.log_start().0)));
        assert_eq!(epoch, Some(LeaderEpoch(header.partition_leader_epoch)), "{what}");
    }
}

#[test]
fn every_side_file_in_every_state_costs_nothing_that_was_acknowledged() {
    for clean in [true, false] {
        let world = World::new("side", TINY);
        let whole = prepare(&world, clean);
        let files = side_files(world.path());
        let names: Vec<_> = files.iter().map(|f| f.to_str().unwrap()).collect();
        for name in [
            "t-0/leader-epoch-checkpoint",
            "t-0/partition.metadata",
            "t-0/barnabas.partition.metadata",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "log-start-offset-checkpoint",
            "barnabas.boot_id",
            "meta.properties",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        for kind in ["index", "timeindex", "snapshot"] {
            assert!(names.iter().any(|name| name.ends_with(kind)), "{kind}");
        }
        assert_eq!(names.contains(&".kafka_cleanshutdown"), clean);
        for file in &files {
            for kind in DAMAGES {
                let what = format!("clean {clean}, {}: {kind}", file.display());
                let copy = World { temp: TempDir::in_memory("side"), config: TINY };
                copy_dir(world.path(), copy.path());
                damage(&copy.path().join(file), kind);
                if file.ends_with("meta.properties") && kind != "missing" {
                    // To whom the directory belongs is not guessed. (A missing file says: a new directory.)
                    let Ok(mut dir) = LogDir::lock(copy.path()) else { continue };
                    let bound = dir.bind(BrokerId(1), &ClusterId("cluster".to_owned()));
                    assert!(kind.ends_with("bit") || bound.is_err(), "{what}");
                    if bound.is_err() {
                        continue;
                    }
                }
                let (dir, mut log) = copy.start();
                check(&log, &whole, &what);
                // It goes on, also after another restart.
                append(&mut log, 1, 10, 9);
                log.flush().unwrap();
                drop((log, dir));
                let (_dir, log) = copy.start();
                assert_eq!(log.log_end(), Offset(whole.1.0 + 1), "{what}");
                assert_eq!(log.recovery().losses, [], "{what}");
                assert_whole(&log);
            }
        }
    }
}

#[test]
fn r28_a_directory_whose_topic_id_is_lost_twice_is_set_aside_and_kept_for_a_week() {
    let world = World::new("twice", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 2, 10, 1);
    drop((log, dir));
    for name in ["partition.metadata", "barnabas.partition.metadata"] {
        fs::write(world.partition().join(name), "").unwrap();
    }
    let (dir, log) = world.start();
    assert_eq!(log.log_end(), Offset(0), "bytes of nobody knows which topic are never served");
    let stray = world.path().join("t-0.unknown-stray");
    drop((log, dir));
    drop(world.start());
    assert!(stray.join("00000000000000000000.log").is_file());
    let mark = fs::File::options().write(true).open(stray.join("barnabas.stray")).unwrap();
    let old = std::time::SystemTime::now() - barnabas_log::STRAY_KEPT;
    mark.set_modified(old).unwrap();
    drop(world.start());
    assert!(!stray.exists());
}

#[test]
fn half_made_directories_are_swept() {
    let world = World::new("half", TINY);
    drop(world.start());
    let half = world.path().join("u-3");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("partition.metadata.tmp"), "version: 0\n").unwrap();
    let with_records = world.path().join("v-0");
    fs::create_dir(&with_records).unwrap();
    fs::write(with_records.join("00000000000000000000.log"), "").unwrap();
    let (dir, _log) = world.start();
    assert!(!half.exists() && with_records.is_dir());
    assert_eq!(dir.partitions().unwrap(), [(tp("t"), ID)]);
}

#[test]
fn damaged_checkpoints_are_named() {
    let world = World::new("named", TINY);
    let _ = prepare(&world, true);
    assert!(LogDir::lock(world.path()).unwrap().damaged_checkpoints().is_empty());
    let path = world.path().join("log-start-offset-checkpoint");
    let text = fs::read_to_string(&path).unwrap();
    // One digit: still a legal checkpoint but for its checksum.
    fs::write(&path, text.replace("t 0 9", "t 0 8")).unwrap();
    assert_eq!(LogDir::lock(world.path()).unwrap().damaged_checkpoints(), [path]);
}
