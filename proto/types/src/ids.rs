//! Ids, epochs and offsets: one newtype for each, so that no two can be exchanged by accident.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number! {
    /// A broker's id (`broker.id`), 0 or greater. "No leader" is `Option::None` inside and -1 in every outside format.
    BrokerId(i32)
}
number! {
    /// czxid of the broker's registration node: names one incarnation of a broker; grows with every registration.
    BrokerEpoch(i64)
}
number! {
    /// Value of `/controller_epoch`: +1 with every election, fixed for the whole term of a controller (KIP-497 words).
    ControllerEpoch(i32)
}
number! {
    /// +1 with every leader choice of a partition, inside one topic incarnation; stamped into every batch (KIP-101).
    LeaderEpoch(i32)
}
number! {
    /// zkVersion of the partition's state node: +1 with every write of leader or ISR (KIP-497).
    PartitionEpoch(i32)
}
number! {
    /// An offset in a partition's log, 0 or greater. Ends (LEO, HW, flushed) are exclusive: the next offset.
    Offset(i64)
}
number! {
    /// Milliseconds of a monotonic clock that the shell (or the simulator) reads; cores never read a clock.
    Now(u64)
}

impl LeaderEpoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Now {
    /// Milliseconds from `earlier` to `self`, 0 if `earlier` is later.
    #[must_use]
    pub fn since_ms(self, earlier: Now) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// 16 random bytes that name one incarnation of a topic (KIP-516); shown as Kafka shows it: 22 characters of URL-safe base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

/// 16 random bytes that name one log directory; a broker that comes with another one has lost its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DirectoryId(pub [u8; 16]);

/// The id in `/cluster/id`: 22 characters of URL-safe base64, written once by whoever starts the cluster first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClusterId(pub String);

macro_rules! base64_id {
    ($name:ident) => {
        impl $name {
            /// Reads the 22 characters; `None` if they are not URL-safe base64 of exactly 16 bytes.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                use base64::Engine as _;
                let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()?;
                bytes.try_into().ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                use base64::Engine as _;
                f.write_str(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}
base64_id!(TopicId);
base64_id!(DirectoryId);

impl ClusterId {
    /// The id made of 16 random bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(TopicId(bytes).to_string())
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({})", self.0)
    }
}

/// One life of a topic name (R27): topic ids are random and have no order; the czxid of the topic node has one.
///
/// Leader and partition epochs restart at a re-creation and are compared only inside one incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Incarnation {
    /// The topic's random id.
    pub topic_id: TopicId,
    /// czxid of `/brokers/topics/T`: grows with each re-creation of the name.
    pub czxid: i64,
}

impl PartialOrd for Incarnation {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Incarnation {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.czxid.cmp(&other.czxid).then(self.topic_id.cmp(&other.topic_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_reads_back_what_it_shows() {
        let id = TopicId([7; 16]);
        assert_eq!(TopicId::parse(&id.to_string()), Some(id));
        assert_eq!(id.to_string().len(), 22);
        assert_eq!(TopicId::parse("short"), None);
    }

    #[test]
    fn r27_incarnations_are_ordered_by_czxid() {
        let old = Incarnation { topic_id: TopicId([9; 16]), czxid: 5 };
        let new = Incarnation { topic_id: TopicId([1; 16]), czxid: 6 };
        assert!(old < new);
    }
}
