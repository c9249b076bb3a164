//! What brokers wrote of records that their own logs dropped: `barnabas.losses.jsonl`, read from outside.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::Outcome;

/// One record of a loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// When it was noticed.
    pub at: SystemTime,
    /// The partition's topic.
    pub topic: String,
    /// Its index.
    pub partition: i32,
    /// First offset that is gone, inclusive.
    pub from: i64,
    /// End, exclusive; `None` if the bytes do not tell.
    pub to: Option<i64>,
    /// What is below is gone for sure, exclusive.
    pub at_least_to: i64,
    /// In a word.
    pub cause: String,
    /// What they had been acknowledged at.
    pub class: String,
}

impl Loss {
    /// Whether it speaks of this offset: an end that is not known is taken for any.
    #[must_use]
    pub fn names(&self, topic: &str, partition: i32, offset: i64) -> bool {
        self.topic == topic
            && self.partition == partition
            && self.from <= offset
            && self.to.is_none_or(|to| offset < to)
    }
}

/// All records in the log directories of a broker.
///
/// # Errors
/// A file cannot be read, or holds something else.
pub fn of(log_dirs: &[PathBuf]) -> Outcome<Vec<Loss>> {
    let mut found = Vec::new();
    for log_dir in log_dirs {
        for name in ["barnabas.losses.jsonl.1", "barnabas.losses.jsonl"] {
            // A broker that lost nothing has none.
            let Ok(text) = fs::read_to_string(log_dir.join(name)) else { continue };
            for line in text.lines() {
                let value: Value = serde_json::from_str(line)?;
                found.push(parse(&value).ok_or_else(|| format!("not a loss record: {line}"))?);
            }
        }
    }
    Ok(found)
}

fn parse(value: &Value) -> Option<Loss> {
    let body = &value["body"];
    Some(Loss {
        at: UNIX_EPOCH + Duration::from_millis(value["time_ms"].as_u64()?),
        topic: body["topic"].as_str()?.to_owned(),
        partition: body["partition"].as_i64()?.try_into().ok()?,
        from: body["from"].as_i64()?,
        to: body["to"].as_i64(),
        at_least_to: body["at_least_to"].as_i64()?,
        cause: body["cause"].as_str()?.to_owned(),
        class: body["class"].as_str()?.to_owned(),
    })
}
