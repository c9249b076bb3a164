//! Tests of the log directories: how a start takes them, where partitions go.

use std::fs;
use std::path::{Path, PathBuf};

use barnabas_log::testing::{BatchBuilder, TempDir};
use barnabas_log::{Log, LogConfig, LogError};
use barnabas_types::{BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition};

use super::*;
use crate::testing::{owner, tp};

const TOPIC: TopicId = TopicId([7; 16]);
const OTHER: TopicId = TopicId([8; 16]);

fn paths(temp: &TempDir, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| temp.path().join(name)).collect()
}

/// The cluster has topics: a broker without data may be one that has lost it.
fn in_use() -> Owner {
    Owner { has_topics: true, ..owner() }
}

fn start(paths: &[PathBuf], owner: &Owner) -> Start {
    let start = Locked::lock(paths).unwrap().start_under(owner, Some("boot-1")).unwrap();
    start.storage.remember_directories();
    start
}

fn wanted(partition: TopicPartition, topic_id: TopicId) -> Wanted {
    Wanted { partition, topic_id, config: LogConfig::default(), is_new: false }
}

fn open(storage: &Storage, partition: TopicPartition) -> Result<Opened, OpenError> {
    storage.open_all(&[wanted(partition, TOPIC)]).remove(0)
}

/// A directory that can neither be made nor locked.
fn unusable(path: &Path) {
    fs::write(path, b"a file in the way").unwrap();
}

fn stop(start: Start, logs: Vec<Log>) {
    for mut log in logs {
        log.close().unwrap();
    }
    assert!(start.storage.close(true).is_empty());
}

#[test]
fn new_partitions_go_where_the_fewest_are_and_are_found_again() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    let first = start(&two, &owner());
    let all: Vec<_> = (0..6).map(|index| tp("t", index)).collect();
    let opened: Vec<_> = first
        .storage
        .open_all(&all.iter().map(|tp| wanted(tp.clone(), TOPIC)).collect::<Vec<_>>())
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let places: Vec<_> = opened.iter().map(|(_, directory)| directory.index()).collect();
    assert_eq!(places, [0, 1, 0, 1, 0, 1]);
    assert_eq!(first.storage.opening().progress(), None, "it is over");
    stop(first, opened.into_iter().map(|(log, _)| log).collect());

    let again = start(&two, &in_use());
    assert!(again.kind.clean && !again.kind.tail_lost);
    assert_eq!(again.storage.partitions(), all);
    for (index, place) in (0..6).zip(places) {
        assert_eq!(open(&again.storage, tp("t", index)).unwrap().1.index(), place);
    }
    again.storage.delete_all(&[tp("t", 0), tp("t", 1)]).unwrap();
    assert!(!two[0].join("t-0").exists() && !two[1].join("t-1").exists());
    assert_eq!(again.storage.partitions().len(), 4);
}

#[test]
fn the_journal_has_another_name_while_a_directory_is_offline() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    let begun = |paths: &[PathBuf]| {
        let begun = start(paths, &owner());
        let ids = (begun.journal_id, begun.directory_id);
        stop(begun, Vec::new());
        ids
    };
    let (both, first) = begun(&two);
    let without = |gone: &Path| {
        let aside = temp.path().join("aside");
        fs::rename(gone, &aside).unwrap();
        unusable(gone);
        let found = begun(&two);
        fs::remove_file(gone).unwrap();
        fs::rename(aside, gone).unwrap();
        found
    };
    assert_eq!(without(&two[1]), (first, first), "one directory has its own id");
    let (second, id) = without(&two[0]);
    assert_eq!(second, id);
    assert!(both != first && both != second && first != second);
    assert_eq!(begun(&two).0, both, "what it has numbered is all there again");
}

#[test]
fn r6_a_directory_that_is_gone_means_a_lost_tail_and_one_that_was_added_does_not() {
    let temp = TempDir::new("dirs");
    let three = paths(&temp, &["a", "b", "c"]);
    assert!(
        start(&three[..1], &in_use()).kind.tail_lost,
        "everything is new, and there are topics"
    );
    fs::remove_dir_all(&three[0]).unwrap();
    assert!(!start(&three[..1], &owner()).kind.tail_lost, "everything is new");
    assert!(!start(&three, &in_use()).kind.tail_lost, "two were added");
    assert!(!start(&three, &in_use()).kind.tail_lost);
    fs::remove_dir_all(&three[1]).unwrap();
    let replaced = start(&three, &in_use());
    assert!(replaced.kind.tail_lost, "one came back empty");
    drop(replaced);
    let later = start(&three, &in_use());
    assert!(later.kind.tail_lost, "R7: the mark stays until it is cleared");
    later.storage.clear_tail_lost().unwrap();
    drop(later);
    assert!(!start(&three, &in_use()).kind.tail_lost);
    assert!(start(&three[1..], &in_use()).kind.tail_lost, "one was taken out of the list");
}

#[test]
fn r6_a_directory_that_cannot_be_locked_is_offline_and_may_hold_what_is_nowhere_else() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    unusable(&two[1]);
    let begun = start(&two, &in_use());
    assert!(begun.kind.tail_lost);
    assert!(begun.storage.directories()[1].offline_reason().unwrap().contains("/b"));
    let refused = open(&begun.storage, tp("t", 0)).unwrap_err().to_string();
    assert!(refused.contains("may hold it") && refused.contains("/b"), "{refused}");
    assert!(!two[0].join("t-0").exists());
    let young = Wanted { is_new: true, ..wanted(tp("t", 0), TOPIC) };
    assert_eq!(begun.storage.open_all(&[young]).remove(0).unwrap().1.index(), 0);
    assert!(open(&begun.storage, tp("t", 0)).is_ok(), "it is there now");
    drop(begun);

    unusable(&temp.path().join("c"));
    let error = Locked::lock(&paths(&temp, &["b", "c"])).unwrap_err();
    assert!(matches!(error, LogError::Io { .. }), "{error}");
}

#[test]
fn a_directory_of_somebody_else_ends_the_start_and_nothing_new_is_left() {
    let temp = TempDir::new("dirs");
    let (mine, new) = (paths(&temp, &["a"]), paths(&temp, &["b", "a"]));
    let held = start(&mine, &owner());
    assert!(matches!(Locked::lock(&new), Err(LogError::DirectoryInUse(path)) if path == mine[0]));
    assert!(!new[0].exists());
    drop(held);
    let other = Owner { broker_id: BrokerId(2), ..owner() };
    let error = Locked::lock(&new).unwrap().start(&other).unwrap_err();
    assert!(matches!(error, LogError::MetaMismatch { key: "broker.id", .. }), "{error}");
    assert!(!new[0].exists());
    fs::create_dir(&new[0]).unwrap();
    fs::copy(mine[0].join("meta.properties"), new[0].join("meta.properties")).unwrap();
    let error = Locked::lock(&new).unwrap().start(&owner()).unwrap_err().to_string();
    assert!(error.contains("another log directory of this broker"), "{error}");
}

#[test]
fn a_start_that_came_to_nothing_leaves_clean_what_was_clean_and_nothing_new() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    let first = start(&two[..1], &owner());
    let (log, _) = open(&first.storage, tp("t", 0)).unwrap();
    stop(first, vec![log]);
    let to_nothing = Locked::lock(&two).unwrap().start_under(&owner(), Some("boot-1")).unwrap();
    to_nothing.storage.abandon();
    assert!(!two[1].exists());
    let again = start(&two[..1], &in_use());
    assert!(again.kind.clean && !again.kind.tail_lost);
}

#[test]
fn r28_strays_are_set_aside_in_every_directory_and_a_double_is_refused() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    for (path, topic_id) in [(&two[..1], OTHER), (&two[1..], TOPIC)] {
        let one = start(path, &owner());
        drop(one.storage.open_all(&[wanted(tp("t", 0), topic_id)]));
    }
    let begun = start(&two, &owner());
    assert_eq!(open(&begun.storage, tp("t", 0)).unwrap().1.index(), 1);
    assert!(!two[0].join("t-0").exists());
    let names = fs::read_dir(&two[0]).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().ends_with("-stray")));
    drop(begun);

    fs::create_dir(two[0].join("t-0")).unwrap();
    fs::copy(two[1].join("t-0/partition.metadata"), two[0].join("t-0/partition.metadata")).unwrap();
    let begun = start(&two, &owner());
    let refused = open(&begun.storage, tp("t", 0)).unwrap_err().to_string();
    assert!(refused.contains("/a") && refused.contains("/b"), "{refused}");
    assert!(two[0].join("t-0").exists() && two[1].join("t-0").exists());
}

#[test]
fn the_clean_marker_goes_only_where_every_log_was_closed_well() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    let begun = start(&two, &owner());
    let (mut one, _) = open(&begun.storage, tp("t", 0)).unwrap();
    let (mut other, _) = open(&begun.storage, tp("t", 1)).unwrap();
    let mut batch = BatchBuilder::new().record(b"value").build();
    other.append(&mut batch, Offset(0), LeaderEpoch(1)).unwrap();
    other.fence();
    one.close().unwrap();
    assert!(other.close().is_err());
    assert!(begun.storage.close(true).is_empty());
    assert!(two[0].join(".kafka_cleanshutdown").exists());
    assert!(!two[1].join(".kafka_cleanshutdown").exists());
}

#[test]
fn a_stop_ends_opening_at_once() {
    let temp = TempDir::new("dirs");
    let begun = start(&paths(&temp, &["a"]), &owner());
    begun.storage.opening().stop();
    assert!(matches!(open(&begun.storage, tp("t", 0)), Err(OpenError::Stopping)));
    assert!(!temp.path().join("a/t-0").exists());
}

#[test]
fn a_restoration_that_is_news_means_a_lost_tail_once() {
    let temp = TempDir::new("dirs");
    let two = paths(&temp, &["a", "b"]);
    let restored = |name: &str| Owner { restored: Some(name.to_owned()), ..in_use() };
    let kept = start(&two, &owner());
    let (log, _) = open(&kept.storage, tp("t", 0)).unwrap();
    stop(kept, vec![log]);
    assert!(Locked::lock(&two).unwrap().knows_of(None));
    assert!(!Locked::lock(&two).unwrap().knows_of(Some("1")));
    // A start that comes to nothing has taken no note.
    let begun = Locked::lock(&two).unwrap().start_under(&restored("1"), Some("boot-1")).unwrap();
    assert!(begun.kind.tail_lost && !begun.storage.host_crashed());
    begun.storage.abandon();
    assert!(!Locked::lock(&two).unwrap().knows_of(Some("1")));
    let begun = start(&two, &restored("1"));
    assert!(begun.kind.tail_lost && begun.kind.clean);
    for directory in begun.storage.directories() {
        directory.usable().unwrap().clear_tail_lost().unwrap();
    }
    stop(begun, Vec::new());
    let again = start(&two, &restored("1"));
    assert!(!again.kind.tail_lost, "once");
    stop(again, Vec::new());
    // Taken back to a time before: nobody knows who was in which ISR.
    let back = start(&two, &in_use());
    assert!(back.kind.tail_lost);
    for directory in back.storage.directories() {
        directory.usable().unwrap().clear_tail_lost().unwrap();
    }
    stop(back, Vec::new());
    assert!(!start(&two, &in_use()).kind.tail_lost);
}
