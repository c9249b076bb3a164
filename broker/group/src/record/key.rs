//! Keys: what a record is about.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::DamagedRecord;
use super::bytes::{Reader, Writer};

/// A record's key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// Versions 0 and 1: the offset of a partition that a group committed.
    Offset { group: Arc<str>, topic: Arc<str>, partition: i32 },
    /// Version 2: a group's last generation.
    Group { group: Arc<str> },
    /// Written by a later Kafka, or by another kind of group (KIP-848, KIP-932).
    Unknown { version: i16 },
}

impl Key {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let mut reader = Reader::new(bytes);
        match reader.i16()? {
            0 | 1 => Ok(Self::Offset {
                group: reader.string()?,
                topic: reader.string()?,
                partition: reader.i32()?,
            }),
            2 => Ok(Self::Group { group: reader.string()? }),
            version => Ok(Self::Unknown { version }),
        }
    }

    pub(crate) fn offset(group: &str, topic: &str, partition: i32) -> Bytes {
        let mut buffer = BytesMut::with_capacity(10 + group.len() + topic.len());
        buffer.put_i16(1);
        buffer.put_string(group);
        buffer.put_string(topic);
        buffer.put_i32(partition);
        buffer.freeze()
    }

    pub(crate) fn group(group: &str) -> Bytes {
        let mut buffer = BytesMut::with_capacity(4 + group.len());
        buffer.put_i16(2);
        buffer.put_string(group);
        buffer.freeze()
    }
}
