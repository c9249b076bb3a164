//! The Fetch response, versions 4 to 17, with places for record ranges instead of record bytes.
//!
//! Written by hand because the generated encoder copies all records; byte-identical with it (tested at every version).

use barnabas_types::{BrokerId, LeaderEpoch, Offset, TopicId};
use bytes::{BufMut, BytesMut};

use crate::api::ApiKey;
use crate::lengths::Lengths;
use crate::reply::ReplyError;
use crate::segments::{SegmentWriter, Segments};

const MESSAGE: &str = "FetchResponse";

/// Bytes to reserve for a partition without its records; the longest form (version 12, both tagged fields) is 71.
const PARTITION_BYTES: usize = 72;
/// First version that names topics by their ids (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// First version that tells where the leaders of the hints are (KIP-951).
const NODE_ENDPOINTS_VERSION: i16 = 16;

/// A Fetch response without its record bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchReply<'a> {
    /// How long the client was throttled, in ms.
    pub throttle_time_ms: i32,
    /// Error of the whole request (left out below version 7, which has no place for it).
    pub error_code: i16,
    /// The fetch session that this answer belongs to (KIP-227); 0: none. Left out below version 7.
    pub session_id: i32,
    /// In the order of the request; of an incremental fetch, what changed.
    pub topics: Vec<FetchReplyTopic<'a>>,
    /// Where the brokers of `current_leader` are, each once (KIP-951). Left out below version 16.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a [`FetchReply`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchReplyTopic<'a> {
    /// As the client wrote it. Left out from version 13 on.
    pub name: &'a str,
    /// As the client wrote it. Left out below version 13.
    pub id: TopicId,
    /// In the order of the request.
    pub partitions: Vec<FetchReplyPartition>,
}

/// Where a broker is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeEndpoint {
    /// Which broker.
    pub broker: BrokerId,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: i32,
    /// Its rack, if it has one.
    pub rack: Option<String>,
}

/// One partition of a [`FetchReply`]. There are no aborted transactions (null) and no preferred read replica (-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchReplyPartition {
    /// The partition.
    pub index: i32,
    /// Kafka's error code, 0 for none.
    pub error_code: i16,
    /// HW, exclusive; -1 if unknown.
    pub high_watermark: i64,
    /// Without transactions equal to the HW.
    pub last_stable_offset: i64,
    /// First offset, inclusive; -1 if unknown. Left out below version 5.
    pub log_start_offset: i64,
    /// Where the records come from.
    pub records: Records,
    /// Who leads, for errors that send the client elsewhere (KIP-951). Left out below version 12.
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
    /// Largest epoch known here that is not above the fetcher's last, and its exclusive end (KIP-595). Left out below
    /// version 12.
    pub diverging_epoch: Option<(LeaderEpoch, Offset)>,
}

impl FetchReplyPartition {
    /// A partition that is answered with an error: nothing known, no records.
    #[must_use]
    pub fn error(index: i32, error_code: i16) -> Self {
        Self {
            index,
            error_code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            records: Records::Empty,
            current_leader: None,
            diverging_epoch: None,
        }
    }
}

/// Records of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Records {
    /// None: written as an empty field, not as null.
    Empty,
    /// `len` bytes of the range that the caller calls `slot`; a length of 0 is [`Records::Empty`].
    Segment {
        /// The caller's name for the range.
        slot: usize,
        /// Bytes.
        len: usize,
    },
}

impl Records {
    fn slot_and_len(self) -> (usize, usize) {
        match self {
            Records::Empty => (0, 0),
            Records::Segment { slot, len } => (slot, len),
        }
    }
}

impl FetchReply<'_> {
    /// The whole frame in segments.
    ///
    /// # Errors
    /// [`ReplyError`] for a version that is not served, a topic name that does not fit, or a frame of 2 GiB or more.
    pub fn write(&self, correlation_id: i32, version: i16) -> Result<Segments, ReplyError> {
        let api = ApiKey::Fetch.api();
        if !api.serves(version) {
            return Err(ReplyError::NotServed { key: api.key.number(), version });
        }
        let lengths = Lengths { message: MESSAGE, flexible: api.is_flexible(version) };
        let mut out = SegmentWriter::new(self.capacity());
        let buffer = &mut out.buffer;
        buffer.put_i32(correlation_id);
        lengths.no_tags(buffer);
        buffer.put_i32(self.throttle_time_ms);
        if version >= 7 {
            buffer.put_i16(self.error_code);
            buffer.put_i32(self.session_id);
        }
        lengths.array(buffer, "topics", self.topics.len())?;
        for topic in &self.topics {
            if version >= TOPIC_ID_VERSION {
                out.buffer.put_slice(&topic.id.0);
            } else {
                lengths.string(&mut out.buffer, "topic", topic.name)?;
            }
            lengths.array(&mut out.buffer, "partitions", topic.partitions.len())?;
            for partition in &topic.partitions {
                partition.write(&mut out, version, lengths)?;
            }
            lengths.no_tags(&mut out.buffer);
        }
        if version >= NODE_ENDPOINTS_VERSION && !self.node_endpoints.is_empty() {
            self.write_endpoints(&mut out.buffer, lengths)?;
        } else {
            lengths.no_tags(&mut out.buffer);
        }
        out.finish(MESSAGE)
    }

    /// Tag 0, the only one.
    fn write_endpoints(&self, buffer: &mut BytesMut, lengths: Lengths) -> Result<(), ReplyError> {
        let mut field = BytesMut::new();
        lengths.array(&mut field, "node endpoints", self.node_endpoints.len())?;
        for node in &self.node_endpoints {
            field.put_i32(node.broker.0);
            lengths.string(&mut field, "host", &node.host)?;
            field.put_i32(node.port);
            lengths.nullable_string(&mut field, "rack", node.rack.as_deref())?;
            field.put_u8(0);
        }
        buffer.put_slice(&[1, 0]);
        lengths.tag_size(buffer, "node endpoints", field.len())?;
        buffer.put_slice(&field);
        Ok(())
    }

    fn capacity(&self) -> usize {
        let topics = self.topics.iter();
        64 + topics.map(|t| 24 + t.name.len() + PARTITION_BYTES * t.partitions.len()).sum::<usize>()
    }
}

impl FetchReplyPartition {
    fn write(
        &self,
        out: &mut SegmentWriter,
        version: i16,
        lengths: Lengths,
    ) -> Result<(), ReplyError> {
        let buffer = &mut out.buffer;
        buffer.put_i32(self.index);
        buffer.put_i16(self.error_code);
        buffer.put_i64(self.high_watermark);
        buffer.put_i64(self.last_stable_offset);
        if version >= 5 {
            buffer.put_i64(self.log_start_offset);
        }
        lengths.null_array(buffer);
        if version >= 11 {
            buffer.put_i32(-1);
        }
        let (slot, len) = self.records.slot_and_len();
        lengths.length(buffer, "records", len)?;
        out.records(slot, len);
        if lengths.flexible {
            self.write_tags(&mut out.buffer);
        }
        Ok(())
    }

    /// Tags 0 (diverging epoch) and 1 (current leader), in this order, each with its size and an empty tag section.
    fn write_tags(&self, buffer: &mut BytesMut) {
        // A value that equals the protocol's default is left out, as every encoder does.
        let diverging = self.diverging_epoch.filter(|(e, o)| (e.0, o.0) != (-1, -1));
        let leader = self.current_leader.filter(|(b, e)| (b.0, e.0) != (-1, -1));
        buffer.put_u8(u8::from(diverging.is_some()) + u8::from(leader.is_some()));
        if let Some((epoch, end)) = diverging {
            buffer.put_slice(&[0, 13]);
            buffer.put_i32(epoch.0);
            buffer.put_i64(end.0);
            buffer.put_u8(0);
        }
        if let Some((broker, epoch)) = leader {
            buffer.put_slice(&[1, 9]);
            buffer.put_i32(broker.0);
            buffer.put_i32(epoch.0);
            buffer.put_u8(0);
        }
    }
}
