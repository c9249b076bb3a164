//! The data directory: lock, identity, marker, lost tail, stray and deleted directories, checkpoints.

use std::collections::BTreeMap;
use std::fs;

use barnabas_log::testing::{Failing, TempDir};
use barnabas_log::{LogDir, LogError};
use barnabas_types::{BrokerId, ClusterId, Offset, TopicId};

use crate::world::{ID, TINY, World, append, copy_dir, tp};

#[test]
fn a_used_directory_is_refused_with_its_path_and_the_remedy() {
    let temp = TempDir::new("lock");
    let path = temp.path().join("deep/er");
    let first = LogDir::lock(&path).unwrap();
    let error = LogDir::lock(&path).unwrap_err();
    assert!(matches!(error, LogError::DirectoryInUse(_)));
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("log.dirs"), "{text}");
    drop(first);
    LogDir::lock(&path).unwrap();
}

#[test]
fn a_directory_stays_with_its_broker_and_cluster() {
    let temp = TempDir::new("bind");
    let cluster = ClusterId::from_bytes([1; 16]);
    let id = {
        let mut dir = LogDir::lock(temp.path()).unwrap();
        assert_eq!(dir.meta(), None);
        dir.bind(BrokerId(3), &cluster).unwrap()
    };
    let mut dir = LogDir::lock(temp.path()).unwrap();
    assert_eq!(dir.bind(BrokerId(3), &cluster).unwrap(), id);
    assert_eq!(dir.meta().unwrap().directory_id, Some(id));
    let other = dir.bind(BrokerId(4), &cluster).unwrap_err().to_string();
    for part in ["meta.properties", "broker.id", "'3'", "'4'", "log.dirs"] {
        assert!(other.contains(part), "{other}");
    }
    let other = ClusterId::from_bytes([2; 16]);
    assert!(matches!(
        dir.bind(BrokerId(3), &other),
        Err(LogError::MetaMismatch { key: "cluster.id", .. })
    ));
    drop(dir);
    let second = TempDir::new("bind");
    assert_ne!(LogDir::lock(second.path()).unwrap().bind(BrokerId(3), &cluster).unwrap(), id);
    fs::write(temp.path().join("meta.properties"), "version=1\nbroker.id=x\n").unwrap();
    assert!(matches!(LogDir::lock(temp.path()), Err(LogError::MetaDamaged { .. })));
    let newer = "version=2\nbroker.id=1\ncluster.id=c\n";
    std::fs::write(temp.path().join("meta.properties"), newer).unwrap();
    let refused = LogDir::lock(temp.path()).unwrap_err();
    assert!(matches!(&refused, LogError::NewerFormat { version, .. } if version == "2"));
    assert!(refused.to_string().contains("newer one"), "{refused}");
}

#[test]
fn d2_the_clean_marker_is_consumed_and_written_only_over_whole_logs() {
    let world = World::new("marker", TINY);
    let marker = world.path().join(".kafka_cleanshutdown");
    let begin = || {
        let dir = LogDir::lock(world.path()).unwrap();
        let kind = dir.begin_under("boot-1").unwrap();
        assert!(!marker.exists(), "consumed before anything is opened");
        (dir, kind.clean)
    };
    let (dir, clean) = begin();
    assert!(!clean);
    let mut log = dir.open(&tp("t"), ID, TINY).unwrap();
    append(&mut log, 1, 10, 1);
    assert!(!dir.close(true).unwrap(), "a log is open");
    drop(log);
    assert!(!dir.close(true).unwrap(), "a log was dropped, not closed");
    drop(dir);
    let (dir, clean) = begin();
    assert!(!clean);
    assert!(
        !dir.close(true).unwrap(),
        "the log of before was never opened: nobody knows it is whole"
    );
    let mut log = dir.open(&tp("t"), ID, TINY).unwrap();
    assert_eq!(log.flushed(), Offset(0));
    log.close().unwrap();
    assert!(!dir.close(false).unwrap());
    assert!(dir.close(true).unwrap() && marker.exists());
    drop(dir);
    // Killed while loading: the next start is unclean, whatever it opened.
    let (dir, clean) = begin();
    assert!(clean);
    let log = dir.open(&tp("t"), ID, TINY).unwrap();
    assert_eq!((log.flushed(), log.recovery().scanned_bytes), (Offset(1), 0));
    drop((log, dir));
    let (_dir, clean) = begin();
    assert!(!clean);
}

#[test]
fn r6_r7_the_lost_tail_mark() {
    let world = World::new("lost", TINY);
    let begin = |boot: &str| {
        let dir = LogDir::lock(world.path()).unwrap();
        let kind = dir.begin_under(boot).unwrap();
        (dir, kind.tail_lost)
    };
    assert!(!begin("a").1, "a new directory has nothing to lose");
    assert!(!begin("b").1, "nor has one without a log");
    let (dir, _) = begin("b");
    dir.open(&tp("t"), ID, TINY).unwrap().close().unwrap();
    drop(dir);
    assert!(!begin("b").1, "a crash of the process keeps the page cache");
    let (dir, lost) = begin("c");
    assert!(lost, "a crash of the host does not");
    drop(dir);
    let (dir, lost) = begin("c");
    assert!(lost, "another restart does not clear it");
    dir.open(&tp("t"), ID, TINY).unwrap().close().unwrap();
    assert!(dir.close(true).unwrap());
    drop(dir);
    let (dir, lost) = begin("c");
    assert!(lost, "nor does a clean one");
    dir.clear_tail_lost().unwrap();
    dir.open(&tp("t"), ID, TINY).unwrap().close().unwrap();
    assert!(dir.close(true).unwrap());
    drop(dir);
    assert!(!begin("d").1, "a clean stop survives the host");
    let (dir, lost) = begin("");
    assert!(lost, "an unknown boot id proves nothing");
    dir.clear_tail_lost().unwrap();
    dir.mark_tail_lost().unwrap();
    drop(dir);
    assert!(begin("").1);
}

#[test]
fn r28_another_topic_id_is_stray_and_never_opened() {
    let world = World::new("stray", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 2, 10, 1);
    log.flush().unwrap();
    log.close().unwrap();
    dir.write_high_watermarks(&BTreeMap::from([(tp("t"), Offset(2))])).unwrap();
    let new = TopicId([9; 16]);
    let log = dir.open(&tp("t"), new, TINY).unwrap();
    assert_eq!((log.log_end(), log.flushed()), (Offset(0), Offset(0)));
    assert_eq!(dir.high_watermark_of(&tp("t")), None, "the old life's mark is not the new one's");
    assert_eq!(dir.partitions().unwrap(), [(tp("t"), new)]);
    assert!(world.path().join(format!("t-0.{ID}-stray")).is_dir());
    drop(log);
    // A directory that names no topic id is stray as well; a restart keeps both.
    for name in ["partition.metadata", "barnabas.partition.metadata"] {
        fs::write(world.partition().join(name), "").unwrap();
    }
    assert!(dir.partitions().unwrap().is_empty());
    let log = dir.open(&tp("t"), new, TINY).unwrap();
    assert_eq!(log.log_end(), Offset(0));
    drop((log, dir));
    let dir = LogDir::lock(world.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    assert!(world.path().join("t-0.unknown-stray").is_dir());
    assert_eq!(dir.partitions().unwrap(), [(tp("t"), new)]);
}

#[test]
fn deletion_leaves_nothing_also_when_interrupted() {
    let world = World::new("delete", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 2, 10, 1);
    log.flush().unwrap();
    drop(log);
    dir.write_high_watermarks(&BTreeMap::from([(tp("t"), Offset(2)), (tp("u"), Offset(5))]))
        .unwrap();
    dir.delete(&tp("t")).unwrap();
    dir.delete(&tp("t")).unwrap();
    assert!(!world.partition().exists());
    assert_eq!(dir.recovery_point_of(&tp("t")), None);
    assert_eq!(dir.high_watermark_of(&tp("t")), None);
    assert!(dir.close(true).unwrap(), "what is deleted does not stand in the way of a clean stop");
    drop(dir);
    let leftover = world.path().join("t-0.some-delete");
    fs::create_dir_all(&leftover).unwrap();
    fs::write(leftover.join("x.log"), "x").unwrap();
    let dir = LogDir::lock(world.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    assert!(!leftover.exists());
    assert_eq!(dir.high_watermark_of(&tp("u")), Some(Offset(5)));
}

#[test]
fn several_partitions_are_deleted_together_and_one_failure_spares_the_others() {
    let world = World::new("delete-all", TINY);
    let (dir, log) = world.start();
    drop(log);
    for name in ["u", "v", "w"] {
        drop(dir.open(&tp(name), ID, TINY).unwrap());
    }
    dir.write_high_watermarks(&BTreeMap::from([(tp("u"), Offset(3)), (tp("w"), Offset(5))]))
        .unwrap();
    // Not a directory: its topic id cannot be read.
    let bad = world.path().join("v-0").join("partition.metadata");
    fs::remove_file(&bad).unwrap();
    fs::create_dir(&bad).unwrap();
    assert!(dir.delete_all(&[tp("t"), tp("v"), tp("absent"), tp("u")]).is_err());
    assert!(!world.partition().exists() && !world.path().join("u-0").exists());
    assert_eq!(dir.high_watermark_of(&tp("u")), None);
    assert_eq!(dir.high_watermark_of(&tp("w")), Some(Offset(5)));
    assert!(world.path().join("w-0").is_dir());
}

#[test]
fn a_full_disk_keeps_no_deleted_partition_and_its_marks_go_when_there_is_room() {
    let temp = TempDir::new("delete-full");
    let disk = Failing::new();
    let dir = LogDir::lock_on(disk.disk(), temp.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    drop(dir.open(&tp("u"), ID, TINY).unwrap());
    dir.write_high_watermarks(&BTreeMap::from([(tp("u"), Offset(3))])).unwrap();
    disk.room(Some(0));
    assert!(dir.delete(&tp("u")).unwrap_err().shortage().is_some());
    assert!(!temp.path().join("u-0").exists(), "its bytes may be what the disk lacks");
    disk.room(None);
    let marks = || fs::read_to_string(temp.path().join("replication-offset-checkpoint")).unwrap();
    assert!(marks().contains("u 0 3"), "not written yet");
    drop(dir.open(&tp("u"), TopicId([1; 16]), TINY).unwrap());
    assert!(!marks().contains("u 0 3"), "before another life can be taken for this one");
}

#[test]
fn the_longest_topic_name_can_be_deleted() {
    let world = World::new("long", TINY);
    let (dir, log) = world.start();
    drop(log);
    let long = tp(&"x".repeat(249));
    drop(dir.open(&long, ID, TINY).unwrap());
    dir.delete(&long).unwrap();
    drop(dir.open(&long, ID, TINY).unwrap());
    drop(dir.open(&long, TopicId([1; 16]), TINY).unwrap());
    drop(dir.open(&long, ID, TINY).unwrap());
    drop(dir.open(&long, TopicId([1; 16]), TINY).unwrap());
}

#[test]
fn b10_a_checkpoint_never_loses_an_entry() {
    let temp = TempDir::new("hw");
    let write = |marks: &[(&str, i64)]| {
        let dir = LogDir::lock(temp.path()).unwrap();
        let marks = marks.iter().map(|(t, o)| (tp(t), Offset(*o))).collect();
        dir.write_high_watermarks(&marks).unwrap();
    };
    write(&[("a", 4), ("b", 7)]);
    write(&[("b", 9)]);
    write(&[]);
    let dir = LogDir::lock(temp.path()).unwrap();
    assert_eq!(dir.high_watermark_of(&tp("a")), Some(Offset(4)));
    assert_eq!(dir.high_watermark_of(&tp("b")), Some(Offset(9)));
    let text = fs::read_to_string(temp.path().join("replication-offset-checkpoint")).unwrap();
    assert_eq!(text.trim_end(), "0\n2\na 0 4\nb 0 9");
    drop(dir);
    // The same for recovery points of partitions that a run never opens.
    let world = World::new("rp", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 3, 10, 1);
    log.close().unwrap();
    dir.close(false).unwrap();
    drop(dir);
    let dir = LogDir::lock(world.path()).unwrap();
    dir.begin_under("boot-1").unwrap();
    dir.close(false).unwrap();
    assert_eq!(dir.recovery_point_of(&tp("t")), Some(Offset(3)));
}

#[test]
fn d9_a_thousand_partitions_open_clean_and_unclean_and_hold_no_descriptor() {
    let world = World::new("many", TINY);
    let (dir, mut log) = world.start();
    append(&mut log, 1, 10, 1);
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
    drop(dir);
    for i in 0..1000 {
        copy_dir(&world.partition(), &world.path().join(format!("t{i}-0")));
    }
    let descriptors = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let run = |clean: bool| {
        let dir = LogDir::lock(world.path()).unwrap();
        assert_eq!(dir.begin_under("boot-1").unwrap().clean, clean);
        let before = descriptors();
        let names = (0..1000).map(|i| format!("t{i}"));
        let logs: Vec<_> = names.map(|t| dir.open(&tp(&t), ID, TINY).unwrap()).collect();
        // Other tests of this process come and go meanwhile.
        assert!(descriptors() < before + 500, "idle logs hold no descriptor");
        for log in &logs {
            assert_eq!(log.log_end(), Offset(1));
            assert_eq!(log.recovery().scanned_bytes == 0, clean);
        }
    };
    run(true);
    run(false);
}

#[test]
fn a_start_that_came_to_nothing_leaves_a_new_directory_as_it_was_and_an_old_one_alone() {
    let world = World::new("abandoned", TINY);
    let path = world.path().join("new");
    let mut dir = LogDir::lock(&path).unwrap();
    dir.bind(BrokerId(1), &ClusterId("c".into())).unwrap();
    dir.mark_tail_lost().unwrap();
    dir.begin_under("a").unwrap();
    dir.abandon();
    assert!(!path.exists());
    let mut dir = LogDir::lock(&path).unwrap();
    let id = dir.bind(BrokerId(1), &ClusterId("c".into())).unwrap();
    drop(dir);
    let dir = LogDir::lock(&path).unwrap();
    assert!(!dir.is_new());
    dir.abandon();
    assert_eq!(LogDir::lock(&path).unwrap().meta().unwrap().directory_id, Some(id));
}
