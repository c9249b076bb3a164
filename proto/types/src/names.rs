//! Topic names and partitions, validated before any path or node is built from them.

use std::fmt;
use std::sync::Arc;

/// Kafka's internal topics.
const INTERNAL: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// A legal topic name: 1 to 249 characters of `a-z A-Z 0-9 . _ -`, neither `.` nor `..` (Kafka's rule).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a text is no topic name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "topic name '{shown}' is not legal: use 1 to 249 characters of a-z A-Z 0-9 . _ -, and neither '.' nor '..'"
)]
pub struct InvalidTopicName {
    /// The refused text, cut to 80 characters, control characters replaced.
    pub shown: String,
}

impl TopicName {
    /// Longest legal name, in bytes.
    pub const LENGTH_MAX: usize = 249;

    /// Checks a text.
    ///
    /// # Errors
    /// [`InvalidTopicName`] if it breaks the rule above.
    pub fn new(text: &str) -> Result<Self, InvalidTopicName> {
        let legal = !text.is_empty()
            && text.len() <= Self::LENGTH_MAX
            && text != "."
            && text != ".."
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if legal {
            Ok(Self(text.into()))
        } else {
            let shown =
                text.chars().take(80).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
            Err(InvalidTopicName { shown })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the brokers keep their own state in the topic: clients may read it, and neither write nor delete it.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        INTERNAL.contains(&self.as_str())
    }

    /// The form in which two names collide in metric names: `.` and `_` are the same there (Kafka refuses such pairs).
    #[must_use]
    pub fn collision_key(&self) -> String {
        self.0.replace('.', "_")
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One partition of a topic, by name; shown as `topic-partition`, the name of its directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// Index of the partition, 0 or greater.
    pub partition: i32,
}

impl TopicPartition {
    /// Reads a directory name `topic-partition`; `None` if it is not one.
    #[must_use]
    pub fn parse_directory(name: &str) -> Option<Self> {
        let (topic, partition) = name.rsplit_once('-')?;
        let digits = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
        let canonical = partition == "0" || !partition.starts_with('0');
        if !digits || !canonical {
            return None;
        }
        Some(Self { topic: TopicName::new(topic).ok()?, partition: partition.parse().ok()? })
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_kafka_checks_them() {
        for good in ["a", "orders.v1", "A_b-9", &"x".repeat(249)] {
            assert!(TopicName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a\0", &"x".repeat(250)] {
            assert!(TopicName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn directory_names_read_back() {
        let tp = TopicPartition { topic: TopicName::new("a-1").unwrap(), partition: 12 };
        assert_eq!(TopicPartition::parse_directory(&tp.to_string()), Some(tp));
        for bad in ["a", "a-", "-1", "a-x", "a-01", "a-99999999999"] {
            assert_eq!(TopicPartition::parse_directory(bad), None, "{bad}");
        }
    }
}
