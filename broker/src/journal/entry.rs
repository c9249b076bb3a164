//! What the journal consists of: an entry, its kind, who made it; its form as a line of a file and between brokers.

use std::fmt;
use std::sync::Arc;

use barnabas_proto::v1;
use barnabas_types::{BrokerId, DirectoryId};
use serde_json::Value;

use super::Place;

/// Largest body of an entry, as JSON text.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// Largest sequence: what JSON's readers hold exactly.
const SEQUENCE_MAX: u64 = (1 << 53) - 1;

/// What an entry tells of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Records that a log dropped, or may have lost.
    Loss,
    /// A change of leaders or of the controller, and how long it took.
    Failover,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Loss, Self::Failover];

    /// Its name between brokers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Failover => "failover",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Who made an entry: a broker as long as it has its log directories. Wiped, or without one of them, it is another one, and counts
/// from 1 again: the missing one may hold numbers that others have seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// Which broker.
    pub broker: BrokerId,
    /// Its log directories that were online at the start, by a name that is the id of a single one.
    pub directory: DirectoryId,
}

impl Origin {
    /// Reads what [`fmt::Display`] writes: `3-` and the directory's 22 characters; `None` if it is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (broker, directory) = text.split_once('-')?;
        let origin = Self {
            broker: BrokerId(broker.parse().ok()?),
            directory: DirectoryId::parse(directory)?,
        };
        (origin.broker.0 >= 0 && origin.to_string() == text).then_some(origin)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.broker, self.directory)
    }
}

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Who made it.
    pub origin: Origin,
    /// Its number among the origin's entries of this kind, from 1, rising; some may be missing.
    pub sequence: u64,
    /// When it was made, in milliseconds since 1970, by the origin's clock.
    pub time_ms: i64,
    /// What it tells of.
    pub kind: Kind,
    /// A JSON object.
    pub body: Value,
}

/// An entry as it is kept: its body is text, which takes a fraction of the memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) origin: Origin,
    pub(super) sequence: u64,
    pub(super) time_ms: i64,
    pub(super) kind: Kind,
    /// A JSON object on one line.
    pub(super) body: Arc<str>,
    /// The body's `class`, if it has one.
    pub(super) class: Option<Arc<str>>,
}

impl Kept {
    /// What is counted for it against the bounds of memory.
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + size_of::<Self>() + size_of::<Place>()
    }

    /// Its line in a file, with the end of the line.
    pub(super) fn line(&self) -> String {
        let Self { origin, sequence, time_ms, body, .. } = self;
        format!(
            "{{\"origin\":\"{origin}\",\"sequence\":{sequence},\"time_ms\":{time_ms},\"body\":{body}}}\n"
        )
    }

    pub(super) fn entry(&self) -> Entry {
        Entry {
            origin: self.origin,
            sequence: self.sequence,
            time_ms: self.time_ms,
            kind: self.kind,
            // It was written by serde_json.
            body: serde_json::from_str(&self.body).unwrap_or_default(),
        }
    }

    pub(super) fn message(&self) -> v1::JournalEntry {
        v1::JournalEntry {
            kind: self.kind.name().to_owned(),
            origin: self.origin.to_string(),
            sequence: self.sequence,
            time_ms: self.time_ms,
            body: self.body.to_string(),
        }
    }
}

/// A body as text, and its class; `None` if it is no object or too large.
pub(super) fn text_of(body: &Value) -> Option<(Arc<str>, Option<Arc<str>>)> {
    let class = body.as_object()?.get("class").and_then(Value::as_str).map(Arc::from);
    let text = body.to_string();
    (text.len() <= BODY_BYTES_MAX).then(|| (Arc::from(text), class))
}

/// An entry from another broker, which may say anything.
pub(super) fn read_message(message: &v1::JournalEntry) -> Result<Kept, &'static str> {
    let kind = Kind::of(&message.kind).ok_or("its kind is not known here")?;
    let origin = Origin::parse(&message.origin).ok_or("its origin is no broker and directory")?;
    if !(1..=SEQUENCE_MAX).contains(&message.sequence) {
        return Err("its sequence is out of range");
    }
    if message.body.len() > BODY_BYTES_MAX {
        return Err("it is too large");
    }
    let body: Value = serde_json::from_str(&message.body).map_err(|_| "its body is not JSON")?;
    let (body, class) = text_of(&body).ok_or("its body is no JSON object of legal size")?;
    let (sequence, time_ms) = (message.sequence, message.time_ms);
    Ok(Kept { origin, sequence, time_ms, kind, body, class })
}

/// How far somebody has a series of entries, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) kind: Kind,
    pub(super) origin: Origin,
    pub(super) sequence: u64,
}

impl Mark {
    pub(super) fn message(&self) -> v1::JournalMark {
        v1::JournalMark {
            kind: self.kind.name().to_owned(),
            origin: self.origin.to_string(),
            sequence: self.sequence,
        }
    }

    /// Series and sequence of an entry on the wire; `None` if they make no sense here.
    pub(super) fn of_message(entry: &v1::JournalEntry) -> Option<(Kind, Origin, u64)> {
        Some((Kind::of(&entry.kind)?, Origin::parse(&entry.origin)?, entry.sequence))
    }

    /// `None` for a series that this broker cannot have, such as one of a kind that it does not know.
    pub(super) fn read(message: &v1::JournalMark) -> Option<Self> {
        let (kind, origin) = (Kind::of(&message.kind)?, Origin::parse(&message.origin)?);
        Some(Self { kind, origin, sequence: message.sequence })
    }
}

/// A line of a file of this broker or (`origin`) of another one's entries.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// An entry.
    Entry(Kept),
    /// A record of an earlier version, without a number: when it was made, and all of it.
    Old(i64, Value),
}

/// Reads one line; `None` if it is damaged.
pub(super) fn read_line(kind: Kind, line: &[u8]) -> Option<Line> {
    let mut line: Value = serde_json::from_slice(line).ok()?;
    let time_ms = line["time_ms"].as_i64()?;
    let Some(body) = line.get_mut("body").map(Value::take) else {
        return line.is_object().then_some(Line::Old(time_ms, line));
    };
    let sequence = line["sequence"].as_u64().filter(|n| (1..=SEQUENCE_MAX).contains(n))?;
    let origin = Origin::parse(line["origin"].as_str()?)?;
    let (body, class) = text_of(&body)?;
    Some(Line::Entry(Kept { origin, sequence, time_ms, kind, body, class }))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn origin(broker: i32) -> Origin {
        let byte = u8::try_from(broker).unwrap();
        Origin { broker: BrokerId(broker), directory: DirectoryId([byte; 16]) }
    }

    pub(crate) fn kept(broker: i32, sequence: u64) -> Kept {
        let (body, class) = text_of(&json!({ "class": "acks=1", "n": sequence })).unwrap();
        let time_ms = 1_000 + i64::try_from(sequence).unwrap();
        Kept { origin: origin(broker), sequence, time_ms, kind: Kind::Loss, body, class }
    }

    #[test]
    fn an_entry_is_the_same_as_a_line_and_as_a_message() {
        let entry = kept(3, 7);
        let line = entry.line();
        assert!(line.ends_with("}\n") && line.lines().count() == 1);
        assert_eq!(
            read_line(Kind::Loss, line.trim_end().as_bytes()),
            Some(Line::Entry(entry.clone()))
        );
        assert_eq!(read_message(&entry.message()), Ok(entry.clone()));
        assert_eq!(entry.entry().body, json!({ "class": "acks=1", "n": 7 }));
        let old = br#"{"time_ms":5,"topic":"t","from":1}"#;
        let Some(Line::Old(5, body)) = read_line(Kind::Loss, old) else { panic!("not read") };
        assert_eq!(body["topic"], "t");
        for damaged in ["", "{", "[]", "{}", "7", r#"{"time_ms":5,"sequence":0,"body":{}}"#] {
            assert_eq!(read_line(Kind::Loss, damaged.as_bytes()), None, "{damaged}");
        }
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let good = kept(3, 7).message();
        let bad = |change: &dyn Fn(&mut v1::JournalEntry)| {
            let mut message = good.clone();
            change(&mut message);
            assert!(read_message(&message).is_err(), "{message:?}");
        };
        bad(&|m| m.kind = "gossip".to_owned());
        bad(&|m| m.origin = "../../etc".to_owned());
        bad(&|m| m.origin = "3".to_owned());
        bad(&|m| m.origin = format!("03-{}", origin(3).directory));
        bad(&|m| m.origin = format!("-3-{}", origin(3).directory));
        bad(&|m| m.sequence = 0);
        bad(&|m| m.sequence = u64::MAX);
        bad(&|m| m.body = "[1]".to_owned());
        bad(&|m| m.body = "{".to_owned());
        bad(&|m| m.body = format!("{{\"a\":\"{}\"}}", "x".repeat(BODY_BYTES_MAX)));
        assert_eq!(Origin::parse(&origin(12).to_string()), Some(origin(12)));
    }
}
