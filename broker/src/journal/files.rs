//! The journal's files: JSON lines, one file for a series, in the first log directory that takes them.
//!
//! `barnabas.losses.jsonl` and `barnabas.failovers.jsonl` hold the broker's own entries, `barnabas.losses.ORIGIN.jsonl` those of
//! another one. Above 16 MiB a file becomes `….jsonl.1`, and what was that before is gone. One object a line: `origin` (broker id,
//! `-`, directory id), `sequence` (from 1, rising), `time_ms` (since 1970), `body` (an object; `storage/losses.rs` says what a
//! loss has). Lines of an earlier version are a loss's body alone; they are numbered as they are read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use barnabas_log::{Disk, DiskFile};

use super::book::Book;
use super::entry::{Kept, Kind, Line, Origin, read_line, text_of};
use crate::storage::Storage;

/// A file that has grown beyond this is rotated.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;
/// A file above this was not written by a journal, and is not read.
const READ_BYTES_MAX: u64 = 2 * FILE_BYTES_MAX;
/// Less than any entry has as a line.
const LINE_BYTES_MIN: u64 = 64;
/// What a file is called once it was full.
const ROTATED: &str = ".1";
const EXTENSION: &str = ".jsonl";

/// Which series a file's name says: of which kind, and whose; `None`: this broker's own.
type Named = (Kind, Option<Origin>);

fn stem(kind: Kind) -> &'static str {
    match kind {
        Kind::Loss => "barnabas.losses",
        Kind::Failover => "barnabas.failovers",
    }
}

/// The file of a series; `of` is `None` for the broker's own.
pub(super) fn name(kind: Kind, of: Option<Origin>) -> String {
    match of {
        Some(origin) => format!("{}.{origin}{EXTENSION}", stem(kind)),
        None => format!("{}{EXTENSION}", stem(kind)),
    }
}

/// What a file's name says: its kind, whose entries, whether it was rotated; `None` if it is no file of a journal.
fn read_name(name: &str) -> Option<(Kind, Option<Origin>, bool)> {
    let (name, rotated) = match name.strip_suffix(ROTATED) {
        Some(name) => (name, true),
        None => (name, false),
    };
    let name = name.strip_suffix(EXTENSION)?;
    Kind::ALL.into_iter().find_map(|kind| match name.strip_prefix(stem(kind))? {
        "" => Some((kind, None, rotated)),
        rest => Some((kind, Some(Origin::parse(rest.strip_prefix('.')?)?), rotated)),
    })
}

/// Everything that the files of all directories hold. What cannot be read is logged and left out.
pub(super) fn load(storage: &Storage, me: Origin) -> Book {
    let mut files: BTreeMap<Named, Vec<(bool, PathBuf)>> = BTreeMap::new();
    for log_dir in storage.directories().iter().filter_map(|directory| directory.usable()) {
        let listed = match fs::read_dir(log_dir.path()) {
            Ok(listed) => listed,
            Err(error) => {
                unread(log_dir.path(), &error);
                continue;
            }
        };
        for path in listed.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(read_name);
            if let Some((kind, origin, rotated)) = name {
                files.entry((kind, origin)).or_default().push((!rotated, path));
            }
        }
    }
    let mut book = Book::new(me);
    for ((kind, of), mut of_series) in files {
        of_series.sort();
        let (mut old, mut entries, mut lost) = (Vec::new(), Vec::new(), 0);
        let rotated = of_series.iter().any(|(is_present, _)| !is_present);
        for (_, path) in of_series {
            let (found, of_file) = lines(kind, &path, me);
            lost += of_file;
            for line in found {
                match line {
                    Line::Old(time_ms, body) => old.push((time_ms, body)),
                    Line::Entry(entry) => entries.push(entry),
                }
            }
        }
        // In several directories, if one was full or offline for a time.
        entries.sort_by_key(|entry| (entry.origin, entry.sequence));
        number(kind, me, old, &entries).into_iter().chain(entries).for_each(|entry| {
            if rotated {
                book.rotated(kind, entry.origin);
            }
            book.insert(entry);
        });
        if of.is_none() {
            book.damaged(kind, lost);
        }
    }
    book
}

/// Gives records without numbers the numbers before the first that is given, so that they are the same at the next start.
fn number(
    kind: Kind,
    me: Origin,
    old: Vec<(i64, serde_json::Value)>,
    entries: &[Kept],
) -> Vec<Kept> {
    let first = entries.iter().find(|entry| entry.origin == me).map(|entry| entry.sequence);
    let count = old.len() as u64;
    let before = first.unwrap_or(count + 1).saturating_sub(count + 1);
    let numbered = old.into_iter().zip(before + 1..).filter_map(|((time_ms, body), sequence)| {
        let (body, class) = text_of(&body)?;
        Some(Kept { origin: me, sequence, time_ms, kind, body, class })
    });
    numbered.collect()
}

/// What a file holds, and how many entries of `me` it may have held behind the last of those: what is damaged may have been several of
/// the shortest ones. Numbers rise in a file, so what is damaged before an entry has none that is still to be given.
fn lines(kind: Kind, path: &Path, me: Origin) -> (Vec<Line>, u64) {
    let entries_in = |bytes: u64| bytes.div_ceil(LINE_BYTES_MIN);
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let read = match size {
        0..=READ_BYTES_MAX => fs::read(path),
        _ => Err(io::Error::other(format!("it has {size} bytes"))),
    };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => {
            unread(path, &error);
            return (Vec::new(), entries_in(size));
        }
    };
    let (mut found, mut damaged, mut lost) = (Vec::new(), 0, 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n");
        match read_line(kind, text.unwrap_or(line)) {
            _ if text.is_some_and(<[u8]>::is_empty) => {}
            Some(line) => {
                if matches!(&line, Line::Entry(entry) if entry.origin == me) {
                    lost = 0;
                }
                found.push(line);
            }
            // Half a line at the end was never durable, so nobody has seen its number.
            None if text.is_none() => damaged += 1,
            None => {
                damaged += 1;
                lost += entries_in(line.len() as u64);
            }
        }
    }
    if damaged > 0 {
        tracing::warn!(path = %path.display(), lines = damaged, "lines of the journal are damaged and left out");
    }
    (found, lost)
}

fn unread(path: &Path, error: &io::Error) {
    tracing::error!(path = %path.display(), %error, "the journal there cannot be read: what it holds is not shown");
}

/// Appends lines to a file of this name, durably, in the first directory that takes it.
///
/// # Errors
/// None does; the error is that of the last.
pub(super) fn append(storage: &Storage, name: &str, text: &[u8]) -> io::Result<()> {
    let mut result = Err(io::Error::other("no log directory is online"));
    for log_dir in storage.directories().iter().filter_map(|directory| directory.usable()) {
        result = append_to(log_dir.disk(), &log_dir.path().join(name), text);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn append_to(disk: &Disk, path: &Path, text: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut is_new = !path.exists();
    let mut file = disk.open_or_create(path)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        disk.rename(path, &rotated(path))?;
        file = disk.create(path)?;
        is_new = true;
    }
    let end = end_of_last_line(&file)?;
    file.set_len(end)?;
    file.write_all_at(text, end)?;
    file.sync_data()?;
    if is_new {
        // Without it the file may be gone after a loss of power, so it is no file yet: the next attempt begins anew.
        disk.sync_dir(parent).inspect_err(|_| drop(disk.remove_file(path)))?;
    }
    Ok(())
}

/// The file that a full one becomes.
fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ROTATED);
    PathBuf::from(name)
}

/// A crash, or a disk that got full, may have left half a line.
fn end_of_last_line(file: &DiskFile) -> io::Result<u64> {
    const STEP: u64 = 4096;
    let mut end = file.metadata()?.len();
    while end > 0 {
        let from = end.saturating_sub(STEP);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        file.read_exact_at(&mut bytes, from)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use barnabas_log::Op;
    use rustix::io::Errno;

    use super::super::entry::tests::{kept, origin};
    use super::*;
    use crate::testing::{Disk, Refusals};

    fn write(storage: &Storage, of: Option<Origin>, entries: &[Kept]) {
        let text: String = entries.iter().map(Kept::line).collect();
        append(storage, &name(Kind::Loss, of), text.as_bytes()).unwrap();
    }

    fn held(storage: &Storage, me: Origin) -> Vec<(i32, u64)> {
        let book = load(storage, me);
        let entries = book.last(Kind::Loss, usize::MAX);
        entries.iter().map(|entry| (entry.origin.broker.0, entry.sequence)).collect()
    }

    #[test]
    fn what_was_written_is_read_again_whoever_made_it() {
        let disk = Disk::new();
        write(&disk.storage, None, &[kept(1, 1), kept(1, 2)]);
        write(&disk.storage, Some(origin(2)), &[kept(2, 1), kept(2, 4)]);
        // A crash in the middle of a line, and a line that was damaged.
        let own = disk.temp.path().join("barnabas.losses.jsonl");
        let mut text = fs::read(&own).unwrap();
        text.extend_from_slice(b"{\"time_ms\":1");
        fs::write(&own, text).unwrap();
        write(&disk.storage, None, &[kept(1, 3)]);
        write(&disk.storage, Some(origin(3)), &[kept(3, 1)]);
        let damaged = disk.temp.path().join(name(Kind::Loss, Some(origin(3))));
        fs::write(&damaged, format!("rubbish\n{}", kept(3, 2).line())).unwrap();
        fs::write(disk.temp.path().join("barnabas.losses.of.nobody.jsonl"), kept(4, 1).line())
            .unwrap();
        let mut found = held(&disk.storage, origin(1));
        found.sort_unstable();
        assert_eq!(found, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 4), (3, 2)]);
    }

    #[test]
    fn records_of_an_earlier_version_come_first_and_keep_their_numbers() {
        let disk = Disk::new();
        let own = disk.temp.path().join("barnabas.losses.jsonl");
        fs::write(&own, "{\"time_ms\":5,\"topic\":\"t\"}\n{\"time_ms\":6,\"topic\":\"u\"}\n")
            .unwrap();
        assert_eq!(held(&disk.storage, origin(1)), [(1, 1), (1, 2)]);
        write(&disk.storage, None, &[kept(1, 3)]);
        assert_eq!(held(&disk.storage, origin(1)), [(1, 1), (1, 2), (1, 3)]);
        let book = load(&disk.storage, origin(1));
        assert_eq!(book.last(Kind::Loss, 9)[1].entry().body["topic"], "u");
    }

    #[test]
    fn a_directory_that_refuses_gives_way_to_the_next_and_both_are_read() {
        let (refusals, files) = Refusals::disk();
        let disk = Disk::with_directories(files, &["a", "b"]);
        write(&disk.storage, None, &[kept(1, 1)]);
        refusals.set(|op| {
            let in_a = |path: &Path| path.to_str().unwrap().contains("/a/");
            matches!(op, Op::Write { path, .. } if in_a(path)).then_some(Errno::NOSPC)
        });
        write(&disk.storage, None, &[kept(1, 2)]);
        refusals.lift();
        write(&disk.storage, None, &[kept(1, 3)]);
        assert!(disk.temp.path().join("b/barnabas.losses.jsonl").exists());
        assert_eq!(held(&disk.storage, origin(1)), [(1, 1), (1, 2), (1, 3)]);
    }

    #[test]
    fn a_file_whose_name_is_not_durable_is_none_and_is_made_again() {
        let (refusals, files) = Refusals::disk();
        let disk = Disk::on(files);
        refusals.set(|op| matches!(op, Op::SyncDir(_)).then_some(Errno::IO));
        let text = kept(1, 1).line();
        let append = || append(&disk.storage, &name(Kind::Loss, None), text.as_bytes());
        assert!(append().is_err() && append().is_err(), "never without its directory's sync");
        refusals.lift();
        append().unwrap();
        assert_eq!(held(&disk.storage, origin(1)), [(1, 1)], "and it is there once");
    }

    #[test]
    fn damaged_own_entries_keep_their_numbers_and_half_a_line_has_none() {
        let disk = Disk::new();
        write(&disk.storage, None, &[kept(1, 1), kept(1, 2), kept(1, 3)]);
        let own = disk.temp.path().join("barnabas.losses.jsonl");
        let text = fs::read_to_string(&own).unwrap();
        fs::write(&own, format!("{text}{{\"half")).unwrap();
        assert_eq!(load(&disk.storage, origin(1)).next(Kind::Loss), 4);
        let last = kept(1, 3).line();
        fs::write(&own, text.replace(&last, &format!("{}\n", "x".repeat(last.len() - 1)))).unwrap();
        let book = load(&disk.storage, origin(1));
        assert!(book.next(Kind::Loss) > 3, "{}", book.next(Kind::Loss));
        assert_eq!(held(&disk.storage, origin(1)), [(1, 1), (1, 2)]);
        // What was written since has a later number, and the next start skips no others.
        let next = book.next(Kind::Loss);
        write(&disk.storage, None, &[kept(1, next)]);
        assert_eq!(load(&disk.storage, origin(1)).next(Kind::Loss), next + 1);
        write(&disk.storage, None, &[kept(3, 99)]);
        fs::write(&own, fs::read_to_string(&own).unwrap().replace("99", "xx")).unwrap();
        assert!(load(&disk.storage, origin(1)).next(Kind::Loss) > next + 1, "whose was that?");
        // Another one's file is its own matter.
        write(&disk.storage, Some(origin(2)), &[kept(2, 1)]);
        assert_eq!(load(&disk.storage, origin(1)).next(Kind::Failover), 1);
    }

    #[test]
    fn a_full_file_is_rotated_once_and_one_that_is_too_large_is_not_read() {
        let disk = Disk::new();
        let path = disk.temp.path().join("barnabas.losses.jsonl");
        write(&disk.storage, None, &[kept(1, 1)]);
        let mut text = fs::read(&path).unwrap();
        text.resize(usize::try_from(FILE_BYTES_MAX).unwrap() + 1, b'\n');
        fs::write(&path, &text).unwrap();
        write(&disk.storage, None, &[kept(1, 2)]);
        assert_eq!(fs::metadata(rotated(&path)).unwrap().len(), FILE_BYTES_MAX + 1);
        assert_eq!(held(&disk.storage, origin(1)), [(1, 1), (1, 2)]);
        fs::File::options()
            .write(true)
            .open(rotated(&path))
            .unwrap()
            .set_len(READ_BYTES_MAX + 1)
            .unwrap();
        assert_eq!(held(&disk.storage, origin(1)), [(1, 2)]);
    }

    #[test]
    fn names_say_whose_entries_they_are() {
        for of in [None, Some(origin(7))] {
            for kind in Kind::ALL {
                let name = name(kind, of);
                assert_eq!(read_name(&name), Some((kind, of, false)));
                assert_eq!(read_name(&format!("{name}.1")), Some((kind, of, true)));
            }
        }
        for other in [
            "",
            "barnabas.losses",
            "barnabas.losses.jsonl.2",
            "barnabas.lossesx.jsonl",
            "meta.properties",
        ] {
            assert_eq!(read_name(other), None, "{other}");
        }
    }
}
