//! What a dump finds, as JSON: one object an item, `type` says which.

use barnabas_log::ProducerBatch;
use barnabas_log::dump::{Batch, FileEnd, Item, Kind, Partition, Record, Shown};
use serde_json::{Value, json};

use super::lines::{hex, utf8};

pub(super) fn of(item: &Item<'_>) -> Value {
    match item {
        Item::File { path, kind, size_bytes } => json!({
            "type": "file", "path": path.to_string_lossy(), "kind": name(*kind), "size_bytes": size_bytes,
        }),
        Item::Batch(found) => batch(found),
        Item::Record(found) => record(found),
        Item::Unshown(why) => json!({"type": "records_not_shown", "reason": why.to_string()}),
        Item::OffsetEntry(entry) => json!({
            "type": "offset_entry", "position": entry.position, "offset": entry.offset,
            "log_position": entry.log_position, "fits": entry.fits,
        }),
        Item::TimeEntry(entry) => json!({
            "type": "time_entry", "position": entry.position, "timestamp_ms": entry.timestamp_ms,
            "offset": entry.offset, "fits": entry.fits,
        }),
        Item::Producer(row) => producer(row),
        Item::AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset } => {
            json!({
                "type": "aborted_transaction", "producer_id": producer_id, "first_offset": first_offset,
                "last_offset": last_offset, "last_stable_offset": last_stable_offset,
            })
        }
        Item::Epoch(entry) => json!({
            "type": "epoch", "leader_epoch": entry.epoch.0, "start_offset": entry.start_offset.0,
        }),
        Item::Checkpoint { partition, offset } => json!({
            "type": "checkpoint", "topic": partition.topic.to_string(), "partition": partition.partition,
            "offset": offset.0,
        }),
        Item::Property { key, value } => json!({"type": "property", "key": key, "value": value}),
        Item::Preallocated { position, bytes } => {
            json!({"type": "preallocated", "position": position, "bytes": bytes})
        }
        Item::Incomplete { position, bytes, last_good_offset } => json!({
            "type": "incomplete", "position": position, "bytes": bytes, "last_good_offset": last_good_offset,
        }),
        Item::Damage { position, last_good_offset, wrong } => json!({
            "type": "damage", "position": position, "last_good_offset": last_good_offset,
            "reason": wrong.to_string(),
        }),
        Item::FileEnd(end) => file_end(end),
        Item::Other(path) => json!({"type": "other", "path": path.to_string_lossy()}),
        Item::Partition(found) => partition(found),
        _ => Value::Null,
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Log => "log",
        Kind::OffsetIndex => "index",
        Kind::TimeIndex => "timeindex",
        Kind::TransactionIndex => "txnindex",
        Kind::Snapshot => "snapshot",
        Kind::LeaderEpochs => "leader-epoch-checkpoint",
        Kind::OffsetCheckpoint => "offset-checkpoint",
        Kind::MetaProperties => "meta.properties",
        Kind::PartitionMetadata => "partition.metadata",
        _ => "unknown",
    }
}

fn batch(batch: &Batch) -> Value {
    let header = &batch.header;
    json!({
        "type": "batch", "position": batch.position, "size_bytes": header.size(),
        "base_offset": header.base_offset, "last_offset": header.last_offset(),
        "count": header.record_count, "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id, "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence, "last_sequence": batch.last_sequence(),
        "base_timestamp_ms": header.base_timestamp, "max_timestamp_ms": header.max_timestamp,
        "log_append_time": header.is_log_append_time(), "transactional": batch.is_transactional(),
        "control": batch.is_control(), "codec": batch.codec(), "crc": header.crc, "crc_ok": batch.crc_ok,
    })
}

fn record(record: &Record<'_>) -> Value {
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|(name, value)| json!({"key": bytes(name), "value": value.as_ref().map(bytes)}))
        .collect();
    json!({
        "type": "record", "offset": record.offset, "timestamp_ms": record.timestamp_ms,
        "key": record.key.as_ref().map(bytes), "value": record.value.as_ref().map(bytes),
        "headers": headers, "header_count": record.header_count,
    })
}

/// `size_bytes`, and the first bytes as `text` or, if they are none, as `hex`.
fn bytes(shown: &Shown<'_>) -> Value {
    match utf8(shown) {
        Some(text) => json!({"size_bytes": shown.size_bytes, "text": text}),
        None => json!({"size_bytes": shown.size_bytes, "hex": hex(shown.head)}),
    }
}

fn producer(row: &ProducerBatch) -> Value {
    json!({
        "type": "producer", "producer_id": row.producer_id, "producer_epoch": row.producer_epoch,
        "first_sequence": row.first_sequence(), "last_sequence": row.last_sequence,
        "last_offset": row.last_offset, "offset_delta": row.offset_delta, "timestamp_ms": row.timestamp_ms,
        "coordinator_epoch": row.coordinator_epoch,
        "current_txn_first_offset": row.current_txn_first_offset,
    })
}

fn file_end(end: &FileEnd) -> Value {
    json!({
        "type": "file_end", "whole_bytes": end.whole_bytes, "entries": end.entries, "records": end.records,
        "first_offset": end.first_offset, "last_offset": end.last_offset,
        "missing_offsets": end.missing_offsets,
    })
}

fn partition(partition: &Partition) -> Value {
    json!({
        "type": "partition", "name": partition.name,
        "topic_id": partition.topic_id.map(|id| id.to_string()), "segments": partition.segments,
        "first_segment": partition.first_segment, "log_end": partition.log_end,
        "batches": partition.batches, "records": partition.records, "size_bytes": partition.size_bytes,
        "last_epoch": partition.last_epoch, "damaged": partition.damaged, "incomplete": partition.incomplete,
    })
}
