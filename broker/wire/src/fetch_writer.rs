//! The Fetch response, versions 4 to 12, with places for record ranges instead of record bytes.
//!
//! Written by hand because the generated encoder copies all records; byte-identical with it (tested at every version).

use barnabas_types::{BrokerId, LeaderEpoch, Offset};
use bytes::{BufMut, BytesMut};

use crate::api::ApiKey;
use crate::reply::ReplyError;
use crate::segments::{SegmentWriter, Segments};

const MESSAGE: &str = "FetchResponse";

/// Bytes to reserve for a partition without its records; the longest form (version 12, both tagged fields) is 71.
const PARTITION_BYTES: usize = 72;

/// A Fetch response without its record bytes. The session id is 0: every answer is a full one (KIP-227).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchReply<'a> {
    /// How long the client was throttled, in ms.
    pub throttle_time_ms: i32,
    /// Error of the whole request (left out below version 7, which has no place for it).
    pub error_code: i16,
    /// In the order of the request.
    pub topics: Vec<FetchReplyTopic<'a>>,
}

/// One topic of a [`FetchReply`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchReplyTopic<'a> {
    /// As the client wrote it.
    pub name: &'a str,
    /// In the order of the request.
    pub partitions: Vec<FetchReplyPartition>,
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

/// How lengths are written in one version.
#[derive(Clone, Copy)]
struct Lengths {
    flexible: bool,
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
        let lengths = Lengths { flexible: api.is_flexible(version) };
        let mut out = SegmentWriter::new(self.capacity());
        let buffer = &mut out.buffer;
        buffer.put_i32(correlation_id);
        lengths.no_tags(buffer);
        buffer.put_i32(self.throttle_time_ms);
        if version >= 7 {
            buffer.put_i16(self.error_code);
            buffer.put_i32(0);
        }
        lengths.array(buffer, "topics", self.topics.len())?;
        for topic in &self.topics {
            lengths.string(&mut out.buffer, topic.name)?;
            lengths.array(&mut out.buffer, "partitions", topic.partitions.len())?;
            for partition in &topic.partitions {
                partition.write(&mut out, version, lengths)?;
            }
            lengths.no_tags(&mut out.buffer);
        }
        lengths.no_tags(&mut out.buffer);
        out.finish(MESSAGE)
    }

    fn capacity(&self) -> usize {
        let topics = self.topics.iter();
        32 + topics.map(|t| 16 + t.name.len() + PARTITION_BYTES * t.partitions.len()).sum::<usize>()
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

impl Lengths {
    fn no_tags(self, buffer: &mut BytesMut) {
        if self.flexible {
            buffer.put_u8(0);
        }
    }

    fn null_array(self, buffer: &mut BytesMut) {
        if self.flexible {
            buffer.put_u8(0);
        } else {
            buffer.put_i32(-1);
        }
    }

    fn array(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        length: usize,
    ) -> Result<(), ReplyError> {
        self.length(buffer, field, length)
    }

    /// A four-byte length, or one more than it as an unsigned varint.
    fn length(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        length: usize,
    ) -> Result<(), ReplyError> {
        let max = i32::MAX as usize - 1;
        let too_long = ReplyError::FieldTooLong { message: MESSAGE, field, length, max };
        let value = i32::try_from(length).ok().filter(|v| *v < i32::MAX).ok_or(too_long)?;
        if self.flexible {
            put_unsigned_varint(buffer, value.unsigned_abs() + 1);
        } else {
            buffer.put_i32(value);
        }
        Ok(())
    }

    fn string(self, buffer: &mut BytesMut, text: &str) -> Result<(), ReplyError> {
        let too_long = |_| ReplyError::FieldTooLong {
            message: MESSAGE,
            field: "topic",
            length: text.len(),
            max: 32_767,
        };
        let length = i16::try_from(text.len()).map_err(too_long)?;
        if self.flexible {
            put_unsigned_varint(buffer, u32::from(length.unsigned_abs()) + 1);
        } else {
            buffer.put_i16(length);
        }
        buffer.put_slice(text.as_bytes());
        Ok(())
    }
}

fn put_unsigned_varint(buffer: &mut BytesMut, mut value: u32) {
    while value > 0x7f {
        buffer.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    buffer.put_u8(value as u8);
}
