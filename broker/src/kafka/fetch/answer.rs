//! From what a fetch found to the bytes of its answer.

use barnabas_types::Condition;
use barnabas_wire::{FetchReply, FetchReplyPartition, FetchReplyTopic, Records};
use bytes::Bytes;

use super::super::{error_code, leader_hints};
use super::look::{Found, Topic};
use crate::connection::{Piece, splice};
use crate::node::Node;

/// How the answer is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) version: i16,
    pub(super) correlation_id: i32,
}

impl Form {
    /// An answer that is an error as a whole.
    pub(super) fn error(self, error_code: i16) -> Result<Vec<Piece>, String> {
        finish(&FetchReply { error_code, ..FetchReply::default() }, self, &[])
    }

    /// Reads the ranges (no lock is held any more) and writes the answer. What cannot be read is an error of its partition,
    /// not of the others.
    pub(super) fn write(
        self,
        node: &Node,
        found: &Found,
        session_id: i32,
    ) -> Result<Vec<Piece>, String> {
        // Connections that are owed nothing get answers even then: what they do not read must not be in memory.
        let is_short = node.budget.answers_exceed();
        let read =
            |range| if is_short { Ok(Piece::in_file(range)) } else { Piece::of_range(range) };
        let ranges: Vec<_> = found.ranges.iter().map(read).collect();
        for (hosted, range) in found.owners.iter().zip(&ranges) {
            if let Ok(piece) = range {
                hosted.traffic.consumed(piece.len() as u64);
            }
        }
        let readable = |topic: &Topic, reply: &FetchReplyPartition| {
            let Records::Segment { slot, .. } = reply.records else { return *reply };
            let Some(Err(error)) = ranges.get(slot) else { return *reply };
            // Opened anew meanwhile, it lies on the same disk.
            let told = topic.find(node, reply.index).map(|hosted| hosted.range_unreadable(error));
            let condition = told.unwrap_or(Condition::KafkaStorageError);
            FetchReplyPartition::error(reply.index, error_code(&condition))
        };
        let topics: Vec<FetchReplyTopic<'_>> = found
            .topics
            .iter()
            .map(|(topic, replies)| {
                let partitions = replies.iter().map(|reply| readable(topic, reply)).collect();
                FetchReplyTopic { name: topic.name(), id: topic.id(), partitions }
            })
            .collect();
        let replies = topics.iter().flat_map(|topic| &topic.partitions);
        node.figures.fetches_failed(replies.filter(|reply| reply.error_code != 0).count());
        let nothing = |_| Piece::Bytes(Bytes::new());
        let ranges: Vec<Piece> =
            ranges.into_iter().map(|read| read.unwrap_or_else(nothing)).collect();
        let node_endpoints = leader_hints::endpoints(&node.view, found.hinted());
        let reply =
            FetchReply { throttle_time_ms: 0, error_code: 0, session_id, topics, node_endpoints };
        finish(&reply, self, &ranges)
    }
}

fn finish(reply: &FetchReply<'_>, form: Form, ranges: &[Piece]) -> Result<Vec<Piece>, String> {
    let segments =
        reply.write(form.correlation_id, form.version).map_err(|error| error.to_string())?;
    Ok(splice(segments.parts, ranges))
}
