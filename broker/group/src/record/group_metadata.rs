//! The value of a group: its last generation with members and assignment.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::DamagedRecord;
use super::bytes::{Reader, Writer};

/// GroupMetadataValue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupMetadata {
    /// Empty for a group that never had members.
    pub(crate) protocol_type: Arc<str>,
    pub(crate) generation: i32,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) leader: Option<Arc<str>>,
    /// Wall clock, ms: since when the group is in its state (versions 2 on).
    pub(crate) state_since_ms: Option<i64>,
    pub(crate) members: Vec<MemberMetadata>,
}

/// One member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MemberMetadata {
    pub(crate) member_id: Arc<str>,
    pub(crate) instance_id: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    /// `None`: as the session timeout (version 0).
    pub(crate) rebalance_timeout_ms: Option<i32>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) subscription: Bytes,
    pub(crate) assignment: Bytes,
}

impl GroupMetadata {
    /// Reads versions 0 to 4.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let mut reader = Reader::new(bytes);
        let version = reader.i16()?;
        if !(0..=4).contains(&version) {
            return Err(DamagedRecord::Version(version));
        }
        reader.flexible(version >= 4);
        let protocol_type = reader.string()?;
        let generation = reader.i32()?;
        let protocol = reader.nullable_string()?;
        let leader = reader.nullable_string()?;
        let state_since_ms = if version >= 2 { reader.i64()? } else { -1 };
        let count = reader.count()?;
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(MemberMetadata::decode(&mut reader, version)?);
        }
        reader.tags()?;
        if !members.is_empty() && (protocol.is_none() || protocol_type.is_empty()) {
            return Err(DamagedRecord::Contradiction);
        }
        let state_since_ms = (state_since_ms != -1).then_some(state_since_ms);
        Ok(Self { protocol_type, generation, protocol, leader, state_since_ms, members })
    }

    /// Version 3: what Kafka 2.3 and later write.
    pub(crate) fn encode(&self) -> Bytes {
        let mut buffer = BytesMut::new();
        buffer.put_i16(3);
        buffer.put_string(&self.protocol_type);
        buffer.put_i32(self.generation);
        buffer.put_nullable_string(self.protocol.as_deref());
        buffer.put_nullable_string(self.leader.as_deref());
        buffer.put_i64(self.state_since_ms.unwrap_or(-1));
        buffer.put_i32(i32::try_from(self.members.len()).unwrap_or(i32::MAX));
        for member in &self.members {
            buffer.put_string(&member.member_id);
            buffer.put_nullable_string(member.instance_id.as_deref());
            buffer.put_string(&member.client_id);
            buffer.put_string(&member.client_host);
            buffer.put_i32(member.rebalance_timeout_ms.unwrap_or(-1));
            buffer.put_i32(member.session_timeout_ms);
            buffer.put_length_and_bytes(&member.subscription);
            buffer.put_length_and_bytes(&member.assignment);
        }
        buffer.freeze()
    }
}

impl MemberMetadata {
    fn decode(reader: &mut Reader<'_>, version: i16) -> Result<Self, DamagedRecord> {
        let member_id = reader.string()?;
        let instance_id = if version >= 3 { reader.nullable_string()? } else { None };
        let client_id = reader.string()?;
        let client_host = reader.string()?;
        let rebalance_timeout_ms = if version >= 1 { reader.i32()? } else { -1 };
        let member = Self {
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms: (rebalance_timeout_ms != -1).then_some(rebalance_timeout_ms),
            session_timeout_ms: reader.i32()?,
            subscription: reader.bytes()?,
            assignment: reader.bytes()?,
        };
        reader.tags()?;
        Ok(member)
    }
}
