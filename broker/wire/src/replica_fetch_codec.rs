//! The bytes of the replica fetch: big-endian, lengths before contents, nothing optional, no byte left over.
//!
//! Every count is checked against the bytes that remain before anything is reserved, so memory stays within a small
//! multiple of the frame.

use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterId, Incarnation, LeaderEpoch, Offset, TopicId, TopicName,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::api::ApiKey;
use crate::frame::FrameError;
use crate::replica_fetch::{
    IntroducedPartition, PARTITION_INDEX_MAX, PartitionPosition, PositionEcho, RecordSlot,
    ReplicaFetchOutcome, ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchResponse,
};
use crate::reply::{ReplyError, patch_size};
use crate::segments::{SegmentWriter, Segments};

const REQUEST: &str = "ReplicaFetchRequest";
const RESPONSE: &str = "ReplicaFetchResponse";

/// Cluster ids are 22 characters; a foreign one is shown as it is up to this length.
const CLUSTER_ID_BYTES_MAX: usize = 64;
/// index, name length, one character, partition, topic id, czxid.
const INTRODUCED_BYTES_MIN: usize = 4 + 1 + 1 + 4 + 16 + 8;
/// index, leader epoch, last epoch, LEO, flushed, log start.
const POSITION_BYTES: usize = 4 + 4 + 4 + 8 + 8 + 8;
/// index, kind, czxid, leader epoch, last epoch, LEO, and the shortest outcome (an error code).
const NEWS_BYTES_MIN: usize = 4 + 1 + 8 + 4 + 4 + 8 + 2;
/// The same with the longest outcome, without its records: HW, log start, length.
const NEWS_BYTES_MAX: usize = 4 + 1 + 8 + 4 + 4 + 8 + 8 + 8 + 4;

const KIND_RECORDS: u8 = 0;
const KIND_DIVERGING: u8 = 1;
const KIND_RESET: u8 = 2;
const KIND_REFUSED: u8 = 3;

impl ReplicaFetchRequest {
    /// The whole frame, header included.
    ///
    /// # Errors
    /// [`ReplyError::FieldTooLong`] for a cluster id or client id that does not fit; [`ReplyError::FrameTooLong`].
    pub fn encode(&self, correlation_id: i32, client_id: &str) -> Result<Bytes, ReplyError> {
        let mut out = BytesMut::with_capacity(self.encoded_bytes() + client_id.len());
        out.put_i32(0);
        out.put_i16(ApiKey::ReplicaFetch.number());
        out.put_i16(0);
        out.put_i32(correlation_id);
        put_short_text(&mut out, "client id", client_id, 32_767, 2)?;
        put_short_text(&mut out, "cluster id", &self.cluster_id.0, CLUSTER_ID_BYTES_MAX, 1)?;
        out.put_i32(self.follower.0);
        out.put_i64(self.broker_epoch.0);
        out.put_i32(self.max_wait_ms);
        out.put_i32(self.min_bytes);
        out.put_i32(self.max_bytes);
        out.put_i32(self.partition_max_bytes);
        out.put_u8(u8::from(self.full));
        out.put_u8(u8::from(self.overtakes));
        put_count(&mut out, REQUEST, "forgotten", self.forgotten.len())?;
        for index in &self.forgotten {
            out.put_u32(*index);
        }
        put_count(&mut out, REQUEST, "introduced", self.introduced.len())?;
        for introduced in &self.introduced {
            out.put_u32(introduced.index);
            put_short_text(&mut out, "topic", introduced.topic.as_str(), TopicName::LENGTH_MAX, 1)?;
            out.put_i32(introduced.partition);
            out.put_slice(&introduced.incarnation.topic_id.0);
            out.put_i64(introduced.incarnation.czxid);
        }
        put_count(&mut out, REQUEST, "positions", self.positions.len())?;
        for position in &self.positions {
            out.put_u32(position.index);
            put_epochs(&mut out, position.leader_epoch, position.last_epoch);
            out.put_i64(position.log_end.0);
            out.put_i64(position.flushed.0);
            out.put_i64(position.log_start.0);
        }
        patch_size(&mut out, REQUEST)?;
        Ok(out.freeze())
    }

    /// An upper bound of the frame's length without the client id, in bytes: for splitting a long introduction over
    /// several requests.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let names: usize = self.introduced.iter().map(|i| i.topic.as_str().len()).sum();
        128 + 4 * self.forgotten.len()
            + INTRODUCED_BYTES_MIN * self.introduced.len()
            + names
            + POSITION_BYTES * self.positions.len()
    }

    /// Reads the body of a frame (what [`crate::split`] left of it).
    ///
    /// # Errors
    /// [`FrameError::Malformed`] if anything is out of bounds, not legal, or left over.
    pub fn decode(body: Bytes) -> Result<Self, FrameError> {
        let mut input = Input::new(&body, REQUEST);
        let request = Self {
            cluster_id: ClusterId(input.short_text("cluster id", CLUSTER_ID_BYTES_MAX)?.to_owned()),
            follower: BrokerId(input.non_negative_i32("follower")?),
            broker_epoch: BrokerEpoch(input.i64("broker epoch")?),
            max_wait_ms: input.non_negative_i32("max wait")?,
            min_bytes: input.non_negative_i32("min bytes")?,
            max_bytes: input.non_negative_i32("max bytes")?,
            partition_max_bytes: input.non_negative_i32("partition max bytes")?,
            full: input.bool("full")?,
            overtakes: input.bool("overtakes")?,
            forgotten: input.list("forgotten", 4, Input::index)?,
            introduced: input.list("introduced", INTRODUCED_BYTES_MIN, introduced)?,
            positions: input.list("positions", POSITION_BYTES, position)?,
        };
        input.finish()?;
        Ok(request)
    }
}

fn introduced(input: &mut Input<'_>) -> Result<IntroducedPartition, FrameError> {
    let index = input.index()?;
    let at = input.at;
    let topic = TopicName::new(input.short_text("topic", TopicName::LENGTH_MAX)?)
        .map_err(|_| input.malformed_at("topic", at))?;
    let partition = input.non_negative_i32("partition")?;
    let topic_id = TopicId(input.array("topic id")?);
    let czxid = input.i64("czxid")?;
    Ok(IntroducedPartition {
        index,
        topic,
        partition,
        incarnation: Incarnation { topic_id, czxid },
    })
}

fn position(input: &mut Input<'_>) -> Result<PartitionPosition, FrameError> {
    Ok(PartitionPosition {
        index: input.index()?,
        leader_epoch: LeaderEpoch(input.non_negative_i32("leader epoch")?),
        last_epoch: input.optional_epoch()?,
        log_end: input.offset("log end")?,
        flushed: input.offset("flushed")?,
        log_start: input.offset("log start")?,
    })
}

impl ReplicaFetchResponse<RecordSlot> {
    /// The whole frame in segments, with places for the records.
    ///
    /// # Errors
    /// [`ReplyError`] if a record set or the frame has 2 GiB or more.
    pub fn encode(&self, correlation_id: i32) -> Result<Segments, ReplyError> {
        let mut out = SegmentWriter::new(16 + NEWS_BYTES_MAX * self.partitions.len());
        out.buffer.put_i32(correlation_id);
        out.buffer.put_i16(self.error_code);
        put_count(&mut out.buffer, RESPONSE, "partitions", self.partitions.len())?;
        for partition in &self.partitions {
            put_news(&mut out, partition)?;
        }
        out.finish(RESPONSE)
    }
}

fn put_news(
    out: &mut SegmentWriter,
    partition: &ReplicaFetchPartition<RecordSlot>,
) -> Result<(), ReplyError> {
    let buffer = &mut out.buffer;
    buffer.put_u32(partition.index);
    buffer.put_u8(match partition.outcome {
        ReplicaFetchOutcome::Records { .. } => KIND_RECORDS,
        ReplicaFetchOutcome::Diverging { .. } => KIND_DIVERGING,
        ReplicaFetchOutcome::Reset { .. } => KIND_RESET,
        ReplicaFetchOutcome::Refused { .. } => KIND_REFUSED,
    });
    buffer.put_i64(partition.echo.czxid);
    put_epochs(buffer, partition.echo.leader_epoch, partition.echo.last_epoch);
    buffer.put_i64(partition.echo.log_end.0);
    match partition.outcome {
        ReplicaFetchOutcome::Records { high_watermark, log_start, records } => {
            buffer.put_i64(high_watermark.0);
            buffer.put_i64(log_start.0);
            put_count(buffer, RESPONSE, "records", records.len)?;
            out.records(records.slot, records.len);
        }
        ReplicaFetchOutcome::Diverging { epoch, end } => {
            buffer.put_i32(epoch.0);
            buffer.put_i64(end.0);
        }
        ReplicaFetchOutcome::Reset { log_start } => buffer.put_i64(log_start.0),
        ReplicaFetchOutcome::Refused { error_code } => buffer.put_i16(error_code),
    }
    Ok(())
}

impl ReplicaFetchResponse<Bytes> {
    /// Reads a whole frame (as measured by [`crate::response_len`]); the records are slices of it. Returns the
    /// correlation id too.
    ///
    /// # Errors
    /// [`FrameError::Malformed`] if anything is out of bounds, not legal, or left over.
    pub fn decode(frame: &Bytes) -> Result<(i32, Self), FrameError> {
        let mut input = Input::new(frame, RESPONSE);
        let size = input.non_negative_i32("size")?;
        if usize::try_from(size).ok() != Some(frame.len() - 4) {
            return Err(input.malformed_at("size", 0));
        }
        let correlation_id = i32::from_be_bytes(input.array("correlation id")?);
        let error_code = i16::from_be_bytes(input.array("error code")?);
        let partitions = input.list("partitions", NEWS_BYTES_MIN, |input| news(input, frame))?;
        input.finish()?;
        Ok((correlation_id, Self { error_code, partitions }))
    }
}

fn news(input: &mut Input<'_>, frame: &Bytes) -> Result<ReplicaFetchPartition<Bytes>, FrameError> {
    let index = input.index()?;
    let kind_at = input.at;
    let [kind] = input.array("kind")?;
    let echo = PositionEcho {
        czxid: input.i64("czxid")?,
        leader_epoch: LeaderEpoch(input.non_negative_i32("leader epoch")?),
        last_epoch: input.optional_epoch()?,
        log_end: input.offset("log end")?,
    };
    let outcome = match kind {
        KIND_RECORDS => ReplicaFetchOutcome::Records {
            high_watermark: input.offset("high watermark")?,
            log_start: input.offset("log start")?,
            records: {
                let len = input.count("records", 1)?;
                let from = input.at;
                input.take("records", len)?;
                frame.slice(from..from + len)
            },
        },
        KIND_DIVERGING => ReplicaFetchOutcome::Diverging {
            epoch: LeaderEpoch(input.non_negative_i32("diverging epoch")?),
            end: input.offset("diverging end")?,
        },
        KIND_RESET => ReplicaFetchOutcome::Reset { log_start: input.offset("log start")? },
        KIND_REFUSED => ReplicaFetchOutcome::Refused {
            error_code: i16::from_be_bytes(input.array("error code")?),
        },
        _ => return Err(input.malformed_at("kind", kind_at)),
    };
    Ok(ReplicaFetchPartition { index, echo, outcome })
}

fn put_epochs(out: &mut BytesMut, leader_epoch: LeaderEpoch, last_epoch: Option<LeaderEpoch>) {
    out.put_i32(leader_epoch.0);
    out.put_i32(last_epoch.map_or(-1, |epoch| epoch.0));
}

fn put_count(
    out: &mut BytesMut,
    message: &'static str,
    field: &'static str,
    length: usize,
) -> Result<(), ReplyError> {
    let max = i32::MAX as usize;
    let count = i32::try_from(length).map_err(|_| ReplyError::FieldTooLong {
        message,
        field,
        length,
        max,
    })?;
    out.put_i32(count);
    Ok(())
}

/// A text after its length in `prefix` bytes (1 or 2).
fn put_short_text(
    out: &mut BytesMut,
    field: &'static str,
    text: &str,
    max: usize,
    prefix: usize,
) -> Result<(), ReplyError> {
    let length = text.len();
    if length > max {
        return Err(ReplyError::FieldTooLong { message: REQUEST, field, length, max });
    }
    out.put_uint(length as u64, prefix);
    out.put_slice(text.as_bytes());
    Ok(())
}

/// A cursor that never reads beyond its bytes.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    message: &'static str,
}

impl<'a> Input<'a> {
    fn new(bytes: &'a [u8], message: &'static str) -> Self {
        Self { bytes, at: 0, message }
    }

    fn malformed_at(&self, what: &'static str, offset: usize) -> FrameError {
        FrameError::Malformed { message: self.message, what, offset }
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, what: &'static str, length: usize) -> Result<&'a [u8], FrameError> {
        if length > self.remaining() {
            return Err(self.malformed_at(what, self.at));
        }
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        let at = self.at;
        self.take(what, N)?.try_into().map_err(|_| self.malformed_at(what, at))
    }

    fn i64(&mut self, what: &'static str) -> Result<i64, FrameError> {
        Ok(i64::from_be_bytes(self.array(what)?))
    }

    fn non_negative_i32(&mut self, what: &'static str) -> Result<i32, FrameError> {
        let at = self.at;
        let value = i32::from_be_bytes(self.array(what)?);
        if value < 0 { Err(self.malformed_at(what, at)) } else { Ok(value) }
    }

    fn offset(&mut self, what: &'static str) -> Result<Offset, FrameError> {
        let at = self.at;
        let value = self.i64(what)?;
        if value < 0 { Err(self.malformed_at(what, at)) } else { Ok(Offset(value)) }
    }

    fn optional_epoch(&mut self) -> Result<Option<LeaderEpoch>, FrameError> {
        let at = self.at;
        match i32::from_be_bytes(self.array("last epoch")?) {
            -1 => Ok(None),
            epoch if epoch >= 0 => Ok(Some(LeaderEpoch(epoch))),
            _ => Err(self.malformed_at("last epoch", at)),
        }
    }

    fn index(&mut self) -> Result<u32, FrameError> {
        let at = self.at;
        let index = u32::from_be_bytes(self.array("index")?);
        if index < PARTITION_INDEX_MAX { Ok(index) } else { Err(self.malformed_at("index", at)) }
    }

    fn bool(&mut self, what: &'static str) -> Result<bool, FrameError> {
        let at = self.at;
        match self.array(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err(self.malformed_at(what, at)),
        }
    }

    fn short_text(&mut self, what: &'static str, max: usize) -> Result<&'a str, FrameError> {
        let at = self.at;
        let [length] = self.array(what)?;
        let bytes = self.take(what, usize::from(length))?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.malformed_at(what, at))?;
        if text.len() > max { Err(self.malformed_at(what, at)) } else { Ok(text) }
    }

    /// A count whose elements of at least `element_bytes_min` each are all there.
    fn count(&mut self, what: &'static str, element_bytes_min: usize) -> Result<usize, FrameError> {
        let at = self.at;
        let count = self.non_negative_i32(what)?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.remaining() / element_bytes_min)
            .ok_or_else(|| self.malformed_at(what, at))
    }

    fn list<T>(
        &mut self,
        what: &'static str,
        element_bytes_min: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = self.count(what, element_bytes_min)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    fn finish(self) -> Result<(), FrameError> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(self.malformed_at("what follows the end", self.at))
        }
    }
}
