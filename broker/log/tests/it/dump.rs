//! The dump: it shows what was written, names damage where it is, and survives whatever the files hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use barnabas_log::dump::{DumpError, Item, Kind, Options, Outcome, dump};
use barnabas_log::testing::BatchBuilder;
use barnabas_log::{Log, LogDir};
use barnabas_types::{BrokerId, ClusterId, LeaderEpoch, Offset};

use crate::world::{ID, TINY, World, append, copy_dir, segment_files};

const DEEP: Options = Options { deep: true };
const SHALLOW: Options = Options { deep: false };

/// What is found, one line an item.
fn found(path: &Path, options: Options) -> (Outcome, Vec<String>) {
    let mut lines = Vec::new();
    let outcome = dump(path, options, &mut |item| lines.push(line(item))).unwrap();
    (outcome, lines)
}

fn line(item: &Item<'_>) -> String {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    match item {
        Item::File { path, kind, .. } => format!("file {} {kind:?}", name(path)),
        Item::Batch(b) => format!(
            "batch {}-{} at {} epoch {} crc {}",
            b.header.base_offset,
            b.header.last_offset(),
            b.position,
            b.header.partition_leader_epoch,
            b.crc_ok
        ),
        Item::Record(r) => {
            format!(
                "record {} at {} value {:?}",
                r.offset,
                r.timestamp_ms,
                r.value.map(|v| v.head.to_vec())
            )
        }
        Item::OffsetEntry(e) => format!("entry {} {} {:?}", e.offset, e.log_position, e.fits),
        Item::TimeEntry(e) => format!("time {} {} {:?}", e.timestamp_ms, e.offset, e.fits),
        Item::Producer(p) => format!("producer {} {}", p.producer_id, p.last_sequence),
        Item::Damage { position, last_good_offset, wrong } => {
            format!("damage {position} {last_good_offset:?} {wrong}")
        }
        Item::Incomplete { position, bytes, last_good_offset } => {
            format!("incomplete {position} {bytes} {last_good_offset:?}")
        }
        Item::FileEnd(end) => format!("end {} {}", end.entries, end.records),
        Item::Partition(p) => format!(
            "partition {} {}-{} segments {} records {} damaged {} incomplete {}",
            p.name, p.first_segment, p.log_end, p.segments, p.records, p.damaged, p.incomplete
        ),
        other => format!("{other:?}"),
    }
}

/// A partition with rolled segments, two epochs, a producer, timestamps; closed.
fn world() -> World {
    let world = World::new("dump", TINY);
    let mut dir = LogDir::lock(world.path()).unwrap();
    dir.bind(BrokerId(1), &ClusterId("c".to_owned())).unwrap();
    dir.begin_under("boot-1").unwrap();
    let mut log = dir.open(&crate::world::tp("t"), ID, world.config).unwrap();
    for n in 0..9 {
        append(&mut log, 1, 60, 1 + i32::from(n > 4));
        with_producer(&mut log, n);
    }
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
    world
}

fn with_producer(log: &mut Log, sequence: i32) {
    let timestamp = 5 + log.log_end().0 * 10;
    let mut batch = BatchBuilder::new()
        .timestamp(timestamp)
        .record(b"first")
        .record(b"second")
        .producer(7, 0, sequence * 2)
        .build();
    let epoch = log.epochs().latest().unwrap_or(LeaderEpoch(1));
    log.append(&mut batch, log.log_end(), epoch).unwrap();
}

fn files(world: &World, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(world.partition())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn a_segment_is_shown_batch_by_batch_and_record_by_record() {
    let world = world();
    let (outcome, lines) = found(&world.segment(0), SHALLOW);
    assert_eq!(outcome, Outcome::default());
    assert_eq!(lines[0], "file 00000000000000000000.log Log");
    assert_eq!(lines[1], "batch 0-0 at 0 epoch 1 crc true");
    assert!(lines[2].starts_with("batch 1-2 at "), "{lines:?}");
    let (_, lines) = found(&world.segment(0), DEEP);
    assert_eq!(lines[4], "record 1 at 15 value Some([102, 105, 114, 115, 116])");
    assert_eq!(lines[5], "record 2 at 15 value Some([115, 101, 99, 111, 110, 100])");
}

#[test]
fn everything_that_is_written_is_found_whole() {
    let world = world();
    for options in [SHALLOW, DEEP] {
        let (outcome, lines) = found(&world.partition(), options);
        assert_eq!(outcome, Outcome::default(), "{lines:#?}");
        let segments = segment_files(&world.partition()).len();
        let last =
            format!("partition t-0 0-27 segments {segments} records 27 damaged 0 incomplete 0");
        assert_eq!(lines.last(), Some(&last));
        let count = |begin: &str| lines.iter().filter(|l| l.starts_with(begin)).count();
        if options.deep {
            assert_eq!(count("batch "), 18);
            assert_eq!(count("record "), 27);
            assert_eq!(count("Epoch"), 2);
            assert!(count("entry ") > 3 && count("time ") > 3 && count("producer ") > 5);
            assert!(lines.iter().all(|line| !line.ends_with("Some(false)")), "{lines:#?}");
        } else {
            assert_eq!(count("batch ") + count("entry ") + count("producer "), 0);
        }
    }
    let (outcome, lines) = found(world.path(), SHALLOW);
    assert_eq!(outcome, Outcome::default(), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("Checkpoint")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("\"cluster.id\"")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("partition t-0 0-27 ")));
}

#[test]
fn paths_that_are_no_log_are_refused() {
    let world = world();
    let fails = |path: &Path| dump(path, SHALLOW, &mut |_| ()).unwrap_err();
    assert!(matches!(fails(&world.path().join("nowhere")), DumpError::Io { .. }));
    assert!(matches!(fails(&world.path().join(".lock")), DumpError::UnknownFile(_)));
    let empty = world.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(fails(&empty), DumpError::UnknownDirectory(_)));
    let data = empty.join("broker-1");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("meta.properties"), "version=0\n").unwrap();
    assert!(matches!(fails(&empty), DumpError::UnknownDirectory(_)), "no partition 1 of 'broker'");
}

#[test]
fn damage_in_a_segment_is_named_with_its_byte_and_the_last_good_offset() {
    let world = world();
    let (first, last) = (world.segment(0), segment_files(&world.partition()).pop().unwrap());
    let bytes = fs::read(&first).unwrap();
    // The second batch begins behind the first, whose length is in its header.
    let second =
        12 + usize::try_from(i32::from_be_bytes(bytes[8..12].try_into().unwrap())).unwrap();
    let damage = |position: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[position] = value;
        fs::write(&first, bytes).unwrap();
        let (outcome, lines) = found(&first, DEEP);
        assert_eq!(outcome.damaged, 1, "{lines:#?}");
        lines.into_iter().find(|line| line.starts_with("damage")).unwrap()
    };
    let at = |rest: &str| format!("damage {second} Some(0) {rest}");
    assert!(damage(second + 70, 0xEE).starts_with(&at("record batch CRC is")));
    assert_eq!(damage(second + 16, 1), at("record batch magic 1 is not 2"));
    assert_eq!(
        damage(second + 8, 0x80),
        at(&format!("record batch length {} is impossible", {
            let mut length: [u8; 4] = bytes[second + 8..second + 12].try_into().unwrap();
            length[0] = 0x80;
            i32::from_be_bytes(length)
        }))
    );
    assert_eq!(damage(second + 7, 0), at("batch base offset 0 does not go on at 1"));
    assert_eq!(damage(second + 15, 0), at("batch leader epoch 0 is below 1"));
    fs::write(&first, &bytes[..bytes.len() - 1]).unwrap();
    let (outcome, lines) = found(&first, SHALLOW);
    assert_eq!(
        (outcome.damaged, outcome.incomplete),
        (1, 0),
        "sealed segments end whole: {lines:?}"
    );
    fs::write(&first, &bytes).unwrap();

    let bytes = fs::read(&last).unwrap();
    fs::write(&last, &bytes[..bytes.len() - 1]).unwrap();
    let (outcome, lines) = found(&last, SHALLOW);
    assert_eq!((outcome.damaged, outcome.incomplete), (0, 1), "{lines:#?}");
    let (outcome, _) = found(world.path(), SHALLOW);
    assert_eq!(outcome.incomplete, 1);
    fs::write(&last, [&bytes[..], &[0; 100]].concat()).unwrap();
    let (outcome, lines) = found(&last, SHALLOW);
    assert_eq!((outcome.damaged, outcome.incomplete), (1, 0), "zeros are no batch: {lines:#?}");
    fs::write(&last, [&bytes[..], &bytes[..40]].concat()).unwrap();
    let (outcome, lines) = found(&last, SHALLOW);
    assert_eq!((outcome.damaged, outcome.incomplete), (0, 1), "{lines:#?}");
    // A length that reaches beyond the end, in a batch that cannot be the next one.
    fs::write(&last, [&bytes[..], &bytes[..80]].concat()).unwrap();
    let (outcome, lines) = found(&last, SHALLOW);
    assert_eq!((outcome.damaged, outcome.incomplete), (1, 0), "{lines:#?}");
}

#[test]
fn records_that_make_no_sense_behind_a_right_crc_are_named() {
    let world = World::new("dump", TINY);
    let (_dir, mut log) = world.start();
    let mut batch = BatchBuilder::new().record(b"abc").record(b"def").record_count(1).build();
    log.append(&mut batch, log.log_end(), LeaderEpoch(1)).unwrap();
    let (outcome, lines) = found(&world.segment(0), DEEP);
    assert_eq!(outcome.damaged, 1);
    assert_eq!(lines[3], "damage 71 None bytes follow the last record of the batch", "{lines:#?}");
    let (outcome, _) = found(&world.segment(0), SHALLOW);
    assert_eq!(outcome.damaged, 0, "only the records show it");
}

#[test]
fn compressed_records_are_shown_and_those_that_do_not_decompress_are_damage() {
    let world = World::new("dump", TINY);
    let (_dir, mut log) = world.start();
    for codec in 0..5 {
        let mut batch = BatchBuilder::new().codec(codec).record(b"abc").build();
        log.append(&mut batch, log.log_end(), LeaderEpoch(1)).unwrap();
    }
    // Codec 4 (zstd) over bytes that are no zstd frame.
    let mut batch = BatchBuilder::new().record(b"abc").attributes(4).build();
    log.append(&mut batch, log.log_end(), LeaderEpoch(1)).unwrap();
    let lines: Vec<String> = segment_files(&world.partition())
        .iter()
        .flat_map(|path| found(path, DEEP).1)
        .filter(|line| line.starts_with("record") || line.starts_with("damage"))
        .collect();
    for (offset, line) in lines.iter().enumerate().take(5) {
        assert_eq!(*line, format!("record {offset} at 0 value Some([97, 98, 99])"));
    }
    assert!(lines[5].starts_with("damage"), "{lines:#?}");
    assert_eq!(lines.len(), 6);
}

#[test]
fn index_entries_are_compared_with_the_log() {
    let world = world();
    for kind in ["index", "timeindex"] {
        let path =
            files(&world, kind).into_iter().find(|p| fs::metadata(p).unwrap().len() > 0).unwrap();
        let bytes = fs::read(&path).unwrap();
        let size = if kind == "index" { 8 } else { 12 };
        // The low byte of the first entry's position or timestamp.
        let mut bad = bytes.clone();
        bad[7] ^= 1;
        fs::write(&path, &bad).unwrap();
        let (outcome, lines) = found(&path, SHALLOW);
        assert!(outcome.damaged >= 1, "{kind}: {lines:#?}");
        assert!(lines.iter().any(|l| l.starts_with("damage 0 ")), "{kind}: {lines:#?}");
        // Twice the same entry.
        fs::write(&path, [&bytes[..size], &bytes[..size]].concat()).unwrap();
        let (outcome, lines) = found(&path, SHALLOW);
        assert_eq!(outcome.damaged, 1, "{kind}: {lines:#?}");
        assert!(
            lines.contains(&format!(
                "damage {size} None the entry does not lie above the one before"
            ))
        );
        // A part of an entry; zeros that were set aside.
        fs::write(&path, &bytes[..size - 1]).unwrap();
        let (outcome, _) = found(&path, SHALLOW);
        assert_eq!(outcome.damaged, 1, "{kind}");
        fs::write(&path, [&bytes[..], &vec![0; 50 * size]].concat()).unwrap();
        let (outcome, lines) = found(&path, SHALLOW);
        assert_eq!(outcome, Outcome::default(), "{kind}: {lines:#?}");
        assert!(lines.iter().any(|l| l.starts_with("Preallocated")));
        fs::write(&path, &bytes).unwrap();
        // Without its log nothing can be compared.
        let alone = world.path().join(path.file_name().unwrap());
        fs::write(&alone, &bad).unwrap();
        let (outcome, lines) = found(&alone, SHALLOW);
        assert_eq!(outcome.damaged, 0, "{lines:#?}");
        assert!(lines[1].ends_with("None"));
    }
}

#[test]
fn damage_of_the_other_files_is_named() {
    let world = world();
    let snapshot = files(&world, "snapshot").pop().unwrap();
    let text = |name: &str| world.path().join(name);
    let epochs = world.partition().join("leader-epoch-checkpoint");
    let metadata = world.partition().join("partition.metadata");
    let marks = text("recovery-point-offset-checkpoint");
    let meta = text("meta.properties");
    let index = world.partition().join("00000000000000000000.txnindex");
    let entry = |first: i64, last: i64| {
        let numbers = [9, first, last, last + 1].map(i64::to_be_bytes).concat();
        [&[0, 0][..], &numbers].concat()
    };
    fs::write(&index, [entry(0, 3), entry(4, 9)].concat()).unwrap();
    for (path, kind) in [
        (&snapshot, Kind::Snapshot),
        (&epochs, Kind::LeaderEpochs),
        (&metadata, Kind::PartitionMetadata),
        (&marks, Kind::OffsetCheckpoint),
        (&meta, Kind::MetaProperties),
        (&index, Kind::TransactionIndex),
    ] {
        let (outcome, lines) = found(path, SHALLOW);
        assert_eq!(outcome, Outcome::default(), "{lines:#?}");
        assert!(lines[0].ends_with(&format!("{kind:?}")), "{lines:#?}");
        assert!(lines.len() > 2, "{lines:#?}");
    }
    let damages: [(&Path, &[u8], &str); 14] = [
        (&snapshot, b"", "damage 0 None producer snapshot: 0 bytes, but its count asks for 10"),
        (&snapshot, &[0; 56], "damage 0 None producer snapshot: version 0 is not 1"),
        (
            &epochs,
            b"",
            "damage 0 None line 1: the number of lines is not the one in the second line",
        ),
        (&epochs, b"1\n0\n", "damage 0 None line 1: expected the version, 0"),
        (&epochs, b"0\nx\n", "damage 2 None line 2: expected the number of the lines that follow"),
        (&epochs, b"0\n1\n3 x\n", "damage 4 None line 3: expected an epoch and its first offset"),
        (&epochs, b"0\n2\n3 5\n3 6\n", "damage 8 None line 4: epochs and offsets must go up"),
        (
            &epochs,
            b"0\n2\n3 5\n",
            "damage 8 None line 4: the number of lines is not the one in the second line",
        ),
        (
            &marks,
            b"0\n1\nt -1 4\n",
            "damage 4 None line 3: expected a topic, a partition and an offset",
        ),
        (&marks, b"\xff\xfe", "damage 0 None it is no text, or longer than 67108864 bytes"),
        (&metadata, b"version: 0\n", "damage 10 None topic_id is missing or has no legal value"),
        (&metadata, b"version 0\n", "damage 0 None line 1: expected a key and a value"),
        (
            &meta,
            b"version=1\ncluster.id=c\nbroker.id=x\n",
            "damage 34 None broker.id is missing or has no legal value",
        ),
        (&index, &[0; 20], "damage 0 None the file ends inside an entry"),
    ];
    for (path, bytes, expected) in damages {
        fs::write(path, bytes).unwrap();
        let (outcome, lines) = found(path, SHALLOW);
        assert_eq!(outcome.damaged, 1, "{lines:#?}");
        assert!(lines.iter().any(|line| line == expected), "{expected}\n{lines:#?}");
    }
    fs::write(&index, [entry(4, 9), entry(0, 3)].concat()).unwrap();
    let (outcome, _) = found(&index, SHALLOW);
    assert_eq!(outcome.damaged, 1);
}

#[test]
fn what_the_files_of_a_partition_say_of_each_other_must_agree() {
    let template = world();
    let changed = |change: &dyn Fn(&World)| {
        let world = World::new("dump", TINY);
        copy_dir(template.path(), world.path());
        change(&world);
        let (outcome, lines) = found(world.path(), SHALLOW);
        assert_eq!(outcome.damaged, 1, "{lines:#?}");
        lines.into_iter().find(|line| line.starts_with("damage")).unwrap()
    };
    let epochs = changed(&|world| {
        let path = world.partition().join("leader-epoch-checkpoint");
        fs::write(path, "0\n1\n1 0\n").unwrap();
    });
    assert!(epochs.contains("does not give epoch 2 to offset 15"), "{epochs}");
    let mark = changed(&|world| {
        let path = world.path().join("recovery-point-offset-checkpoint");
        fs::write(path, "0\n1\nt 0 28\n").unwrap();
    });
    assert!(mark.contains("says 28, but the log ends at 27"), "{mark}");
}

/// A broker writes, rolls, flushes, deletes and takes snapshots while its directory is looked at.
#[test]
fn a_directory_that_is_written_to_is_not_taken_for_damaged() {
    let world = World::new("dump", TINY);
    let (dir, mut log) = world.start();
    with_producer(&mut log, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..3000 {
                with_producer(&mut log, n);
                if n % 50 == 0 {
                    log.flush().unwrap();
                    let to = Offset(log.log_end().0 - 40);
                    log.advance_log_start(to);
                    dir.write_log_starts().unwrap();
                    log.detach_below_start().remove().unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
        let mut looks = 0;
        while !done.load(Ordering::Acquire) {
            let (outcome, lines) = found(&world.partition(), DEEP);
            assert_eq!(outcome.damaged, 0, "{lines:#?}");
            looks += 1;
        }
        assert!(looks > 3);
    });
}

/// Bytes of any kind in files of every kind, from a fixed seed: no panic, and the walk ends.
#[test]
fn hostile_bytes_are_survived() {
    let world = world();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let names: Vec<PathBuf> = fs::read_dir(world.partition())
        .unwrap()
        .chain(fs::read_dir(world.path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| Kind::of(path).is_some())
        .collect();
    assert!(names.len() > 20);
    for path in names {
        let original = fs::read(&path).unwrap();
        for round in 0..60 {
            let mut bytes = original.clone();
            if round % 3 == 0 || bytes.is_empty() {
                bytes = (0..random() % 300).map(|_| random() as u8).collect();
            }
            for _ in 0..round % 5 {
                if let Some(place) =
                    bytes.len().checked_sub(1).map(|max| random() as usize % (max + 1))
                {
                    bytes[place] = [0, 0x7F, 0x80, 0xFF, random() as u8][random() as usize % 5];
                }
            }
            fs::write(&path, &bytes).unwrap();
            let _ = found(&path, DEEP);
        }
        let _ = found(world.path(), DEEP);
        fs::write(&path, &original).unwrap();
    }
    assert_eq!(found(world.path(), DEEP).0, Outcome::default());
}
