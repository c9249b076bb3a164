//! Dumps Kafka's small text files: checkpoints and properties.

use std::io;

use barnabas_types::{
    DirectoryId, EpochStart, LeaderEpoch, Offset, TopicId, TopicName, TopicPartition,
};

use super::item::{FileEnd, Item, Wrong};
use super::{Input, Out, read_up_to};

/// No text file that is longer is read: far more than a hundred thousand partitions come to.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// What a properties file must have: a key and what its value must be.
pub(super) type Required = &'static [(&'static str, fn(&str) -> bool)];

/// Of `meta.properties`; the broker's id is checked apart, since it has two names.
pub(super) const META: Required = &[
    ("version", |v| v == "0" || v == "1"),
    ("cluster.id", |v| !v.is_empty()),
    ("broker.id", |v| v.parse::<i32>().is_ok_and(|id| id >= 0)),
];

/// Of `partition.metadata`.
pub(super) const PARTITION: Required =
    &[("version", |v| v == "0"), ("topic_id", |v| TopicId::parse(v).is_some())];

/// The text of a file; damage, and `None`, if it is none.
fn text(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<Option<String>> {
    if input.size_bytes <= TEXT_BYTES_MAX {
        let mut bytes = vec![0; usize::try_from(input.size_bytes).unwrap_or(0)];
        let read = read_up_to(&input.file, &mut bytes, 0)?;
        bytes.truncate(read);
        if let Ok(text) = String::from_utf8(bytes) {
            return Ok(Some(text));
        }
    }
    out.damage(0, None, Wrong::NoText(TEXT_BYTES_MAX));
    Ok(None)
}

/// The lines with their numbers (from 1) and positions.
fn lines(text: &str) -> impl Iterator<Item = (usize, u64, &str)> {
    let mut position = 0;
    text.split_inclusive('\n').enumerate().map(move |(number, line)| {
        let begin = position;
        position += line.len() as u64;
        (number + 1, begin, line.trim())
    })
}

/// Goes through a checkpoint: version 0, a count, so many lines. `each` says what is wrong with a line.
fn checkpoint(
    input: &Input<'_>,
    out: &mut Out<'_>,
    mut each: impl FnMut(&mut Out<'_>, &str) -> Result<(), &'static str>,
) -> io::Result<FileEnd> {
    let mut end = FileEnd::default();
    let Some(text) = text(input, out)? else { return Ok(end) };
    let mut expected = None;
    let mut last = (1, 0);
    for (line, position, content) in lines(&text) {
        last = (line + 1, position);
        let result = match line {
            1 if content == "0" => Ok(()),
            1 => Err("expected the version, 0"),
            2 => {
                expected = content.parse::<u64>().ok();
                expected.map(|_| ()).ok_or("expected the number of the lines that follow")
            }
            _ if content.is_empty() => Ok(()),
            _ => {
                end.entries += 1;
                each(out, content)
            }
        };
        if let Err(reason) = result {
            out.damage(position, None, Wrong::Line { line, reason });
            return Ok(end);
        }
        end.whole_bytes = position + content.len() as u64;
    }
    if expected != Some(end.entries) {
        let reason = "the number of lines is not the one in the second line";
        out.damage(input.size_bytes, None, Wrong::Line { line: last.0, reason });
    }
    Ok(end)
}

pub(super) fn dump_epochs(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<FileEnd> {
    let mut before: Option<EpochStart> = None;
    let mut epochs = Vec::new();
    let mut end = checkpoint(input, out, |out, line| {
        let parse = || {
            let (epoch, start) = line.split_once(' ')?;
            let start = start.parse().ok().filter(|o: &i64| *o >= 0)?;
            Some(EpochStart {
                epoch: LeaderEpoch(epoch.parse().ok()?),
                start_offset: Offset(start),
            })
        };
        let entry = parse().ok_or("expected an epoch and its first offset")?;
        out.content(&Item::Epoch(entry));
        let up = |b: EpochStart| entry.epoch > b.epoch && entry.start_offset > b.start_offset;
        if !before.is_none_or(up) {
            return Err("epochs and offsets must go up");
        }
        before = Some(entry);
        epochs.push(entry);
        Ok(())
    })?;
    end.epochs = epochs;
    Ok(end)
}

pub(super) fn dump_offsets(input: &Input<'_>, out: &mut Out<'_>) -> io::Result<FileEnd> {
    checkpoint(input, out, |out, line| {
        let parse = || {
            let mut words = line.split_ascii_whitespace();
            let topic = TopicName::new(words.next()?).ok()?;
            let partition = words.next()?.parse().ok().filter(|p| *p >= 0)?;
            let offset = words.next()?.parse().ok().filter(|o: &i64| *o >= 0)?;
            let end = words.next().is_none();
            end.then_some((TopicPartition { topic, partition }, Offset(offset)))
        };
        let (partition, offset) = parse().ok_or("expected a topic, a partition and an offset")?;
        out.content(&Item::Checkpoint { partition: &partition, offset });
        Ok(())
    })
}

pub(super) fn dump_properties(
    input: &Input<'_>,
    separator: char,
    required: Required,
    out: &mut Out<'_>,
) -> io::Result<FileEnd> {
    let mut end = FileEnd::default();
    let Some(text) = text(input, out)? else { return Ok(end) };
    let mut missing: Vec<_> = required.iter().collect();
    for (line, position, content) in lines(&text) {
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let Some((key, value)) = content.split_once(separator) else {
            let reason = "expected a key and a value";
            out.damage(position, None, Wrong::Line { line, reason });
            return Ok(end);
        };
        let (key, value) = (key.trim(), value.trim());
        out.content(&Item::Property { key, value });
        end.entries += 1;
        end.whole_bytes = position + content.len() as u64;
        // Kafka without ZooKeeper says node.id for broker.id.
        let name = if key == "node.id" { "broker.id" } else { key };
        missing.retain(|(key, legal)| *key != name || !legal(value));
        if key == "directory.id" && DirectoryId::parse(value).is_none() {
            out.damage(position, None, Wrong::Property { key: "directory.id" });
        }
    }
    for (key, _) in missing {
        out.damage(end.whole_bytes, None, Wrong::Property { key });
    }
    Ok(end)
}
