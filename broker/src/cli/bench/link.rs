//! A blocking connection that sends frames as they are and reads answers.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use barnabas_wire::messages::{MetadataRequest, StrBytes, metadata_request};
use barnabas_wire::{KafkaRequest, RequestResponsePair, decode_response, encode_request};
use bytes::Bytes;

use super::{Driven, refused};
use crate::cli::CliError;

/// Longest wait for a connection or an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const CLIENT_ID: &str = "barnabas-bench";
const METADATA_VERSION: i16 = 5;

/// One connection to one broker.
pub(super) struct Link {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Link {
    pub(super) fn dial(address: &str) -> Result<Self, CliError> {
        let unreachable = |error: std::io::Error| {
            CliError::Unreachable(format!("cannot reach a broker at {address} ({error})"))
        };
        let found = address.to_socket_addrs().map_err(unreachable)?.next();
        let found = found.ok_or_else(|| CliError::Refused(format!("{address} is no address")))?;
        let stream = TcpStream::connect_timeout(&found, ANSWER_MAX).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(unreachable)?;
        Ok(Self { stream, answer: Vec::new() })
    }

    pub(super) fn send(&mut self, frame: &[u8]) -> Result<(), CliError> {
        self.stream.write_all(frame).map_err(refused)
    }

    /// A frame whose end others share.
    pub(super) fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), CliError> {
        let parts = [IoSlice::new(head), IoSlice::new(rest)];
        let sent = self.stream.write_vectored(&parts).map_err(refused)?;
        self.send(head.get(sent..).unwrap_or_default())?;
        self.send(&rest[sent.saturating_sub(head.len())..])
    }

    /// The next answer, from its correlation id on; valid until the one after it.
    pub(super) fn receive(&mut self) -> Result<&[u8], CliError> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).map_err(refused)?;
        let len = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if len > ANSWER_BYTES_MAX {
            return Err(refused(format!("an answer of {len} bytes")));
        }
        self.answer.resize(len, 0);
        self.stream.read_exact(&mut self.answer).map_err(refused)?;
        Ok(&self.answer)
    }

    pub(super) fn ask<Q: KafkaRequest + RequestResponsePair>(
        &mut self,
        version: i16,
        request: &Q,
    ) -> Result<Q::Response, CliError> {
        self.send(&frame(version, request)?)?;
        let answer = self.receive()?;
        decode::<Q>(version, answer)
    }
}

/// A request's frame, to be sent as often as one likes.
pub(super) fn frame<Q: KafkaRequest>(version: i16, request: &Q) -> Result<Bytes, CliError> {
    encode_request(0, CLIENT_ID, version, request).map_err(refused)
}

pub(super) fn decode<Q: RequestResponsePair>(
    version: i16,
    answer: &[u8],
) -> Result<Q::Response, CliError> {
    let mut framed = Vec::with_capacity(answer.len() + 4);
    framed.extend_from_slice(&[0; 4]);
    framed.extend_from_slice(answer);
    decode_response::<Q>(version, framed.into()).map(|(_, body)| body).map_err(refused)
}

/// The address of each partition's leader, in the order of the partitions.
pub(super) fn leaders(driven: &Driven) -> Result<Vec<(i32, String)>, CliError> {
    let mut last = refused("--bootstrap names nobody");
    for address in driven.bootstrap.split(',') {
        match Link::dial(address.trim()).and_then(|mut link| leaders_by(&mut link, &driven.topic)) {
            Ok(leaders) => return Ok(leaders),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn leaders_by(link: &mut Link, topic: &str) -> Result<Vec<(i32, String)>, CliError> {
    let mut of_topic = metadata_request::MetadataRequestTopic::default();
    of_topic.name = Some(StrBytes::from(topic));
    let mut request = MetadataRequest::default();
    request.topics = Some(vec![of_topic]);
    request.allow_auto_topic_creation = false;
    let said = link.ask(METADATA_VERSION, &request)?;
    let found = said.topics.first().filter(|found| found.error_code == 0).ok_or_else(|| {
        refused(format!("there is no topic {topic}; create it with `barnabas topic create`"))
    })?;
    let mut leaders = Vec::new();
    for partition in &found.partitions {
        let leader = said.brokers.iter().find(|b| b.node_id == partition.leader_id);
        let leader = leader.ok_or_else(|| {
            refused(format!("partition {} of {topic} has no leader", partition.partition_index))
        })?;
        let address = format!("{}:{}", leader.host.as_str(), leader.port);
        leaders.push((partition.partition_index, address));
    }
    leaders.sort();
    Ok(leaders)
}
