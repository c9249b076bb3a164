//! The value of a committed offset.

use bytes::{BufMut, Bytes, BytesMut};

use super::DamagedRecord;
use super::bytes::{Reader, Writer};

/// OffsetCommitValue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OffsetCommit {
    pub(crate) offset: i64,
    /// `None`: -1 in the record.
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) metadata: String,
    /// Wall clock, ms.
    pub(crate) commit_timestamp_ms: i64,
    /// Wall clock, ms: only if the client asked for a retention of its own (OffsetCommit 2 to 4).
    pub(crate) expire_timestamp_ms: Option<i64>,
}

impl OffsetCommit {
    /// Reads versions 0 to 4.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let mut reader = Reader::new(bytes);
        let version = reader.i16()?;
        if !(0..=4).contains(&version) {
            return Err(DamagedRecord::Version(version));
        }
        reader.flexible(version >= 4);
        let offset = reader.i64()?;
        let leader_epoch = if version >= 3 { reader.i32()? } else { -1 };
        let metadata = reader.string()?.to_string();
        let commit_timestamp_ms = reader.i64()?;
        let expire_timestamp_ms = if version == 1 { reader.i64()? } else { -1 };
        reader.tags()?;
        Ok(Self {
            offset,
            leader_epoch: (leader_epoch >= 0).then_some(leader_epoch),
            metadata,
            commit_timestamp_ms,
            expire_timestamp_ms: (expire_timestamp_ms != -1).then_some(expire_timestamp_ms),
        })
    }

    /// Version 3, or 1 (without the leader epoch) if there is an expiry: what Kafka 2.1 and later write.
    pub(crate) fn encode(&self) -> Bytes {
        let mut buffer = BytesMut::with_capacity(32 + self.metadata.len());
        buffer.put_i16(if self.expire_timestamp_ms.is_some() { 1 } else { 3 });
        buffer.put_i64(self.offset);
        if self.expire_timestamp_ms.is_none() {
            buffer.put_i32(self.leader_epoch.unwrap_or(-1));
        }
        buffer.put_string(&self.metadata);
        buffer.put_i64(self.commit_timestamp_ms);
        if let Some(expire) = self.expire_timestamp_ms {
            buffer.put_i64(expire);
        }
        buffer.freeze()
    }
}
