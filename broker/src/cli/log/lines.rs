//! What a dump finds, as lines for people.

use std::path::{Path, PathBuf};

use barnabas_log::ProducerBatch;
use barnabas_log::dump::{Batch, FileEnd, Item, Kind, Partition, Record, Shown};

use super::super::ask::printable;

/// Turns items into lines; remembers which file they belong to.
pub(super) struct Lines {
    /// What is in the files is shown too, so each is announced.
    contents: bool,
    file: PathBuf,
    kind: Option<Kind>,
    batch: Option<Batch>,
}

impl Lines {
    pub(super) fn new(contents: bool) -> Self {
        Self { contents, file: PathBuf::new(), kind: None, batch: None }
    }

    pub(super) fn of(&mut self, item: &Item<'_>) -> Option<String> {
        Some(match item {
            Item::File { path, kind, .. } => {
                self.file = (*path).to_owned();
                self.kind = Some(*kind);
                return self.contents.then(|| format!("Dumping {}", self.shown()));
            }
            Item::Batch(batch) => {
                self.batch = Some(*batch);
                line_of_batch(batch)
            }
            Item::Record(record) => self.record(record),
            Item::Unshown(why) => format!("| records not shown: {why}"),
            Item::OffsetEntry(entry) => format!(
                "offset: {} position: {}{}",
                entry.offset,
                entry.log_position,
                fits(entry.fits)
            ),
            Item::TimeEntry(entry) => format!(
                "timestamp: {} offset: {}{}",
                entry.timestamp_ms,
                entry.offset,
                fits(entry.fits)
            ),
            Item::Producer(row) => producer(row),
            Item::AbortedTransaction {
                producer_id,
                first_offset,
                last_offset,
                last_stable_offset,
            } => format!(
                "version: 0 producerId: {producer_id} firstOffset: {first_offset} \
                 lastOffset: {last_offset} lastStableOffset: {last_stable_offset}"
            ),
            Item::Epoch(entry) => {
                format!("epoch: {} startOffset: {}", entry.epoch, entry.start_offset)
            }
            Item::Checkpoint { partition, offset } => {
                format!(
                    "topic: {} partition: {} offset: {offset}",
                    partition.topic, partition.partition
                )
            }
            Item::Property { key, value } => format!("{}: {}", printable(key), printable(value)),
            Item::Preallocated { position, bytes } => {
                format!("from byte {position} on {bytes} zero bytes, set aside for entries to come")
            }
            Item::Incomplete { position, bytes, last_good_offset } => format!(
                "incomplete (being written?) {}: {bytes} bytes from byte {position} on are not whole{}",
                self.shown(),
                last_good(*last_good_offset)
            ),
            Item::Damage { position, last_good_offset, wrong } => format!(
                "DAMAGED {} at byte {position}: {wrong}{}",
                self.shown(),
                last_good(*last_good_offset)
            ),
            Item::FileEnd(end) => format!("{}: {}", self.shown(), self.summary(end)),
            Item::Other(path) => format!("{}: not shown", shown_path(path)),
            Item::Partition(partition) => line_of_partition(partition),
            _ => return None,
        })
    }

    fn shown(&self) -> String {
        shown_path(&self.file)
    }

    fn record(&self, record: &Record<'_>) -> String {
        let kind = self.batch.map_or("CreateTime", |batch| timestamp_type(&batch));
        let size = |bytes: Option<Shown<'_>>| {
            bytes.map_or_else(|| "-1".to_owned(), |b| b.size_bytes.to_string())
        };
        let mut line = format!(
            "| offset: {} {kind}: {} keySize: {} valueSize: {}",
            record.offset,
            record.timestamp_ms,
            size(record.key),
            size(record.value)
        );
        if let Some(sequence) = self.batch.and_then(|batch| sequence(&batch, record.offset)) {
            line.push_str(&format!(" sequence: {sequence}"));
        }
        let headers: Vec<String> = record
            .headers
            .iter()
            .map(|(name, value)| match value {
                Some(value) => format!("{}={}", text(name), text(value)),
                None => text(name),
            })
            .collect();
        let more = record.header_count as usize - record.headers.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        line.push_str(&format!(" headers: [{}{more}]", headers.join(", ")));
        if let Some(key) = &record.key {
            line.push_str(&format!(" key: {}", text(key)));
        }
        if let Some(value) = &record.value {
            line.push_str(&format!(" payload: {}", text(value)));
        }
        line
    }

    fn summary(&self, end: &FileEnd) -> String {
        let (entries, records) = (end.entries, end.records);
        match (self.kind, end.first_offset, end.last_offset) {
            (Some(Kind::Log), Some(first), Some(last)) => {
                let missing = match end.missing_offsets {
                    0 => String::new(),
                    missing => format!(", {missing} offsets between them without a batch"),
                };
                format!(
                    "{entries} batches, {records} records, offsets {first} to {last}{missing}, {} bytes",
                    end.whole_bytes
                )
            }
            (Some(Kind::Log), ..) => "no batch".to_owned(),
            (Some(Kind::Snapshot), ..) => format!("{entries} producer batches"),
            (Some(Kind::LeaderEpochs), ..) => format!("{entries} epochs"),
            (Some(Kind::OffsetCheckpoint), ..) => format!("{entries} partitions"),
            (Some(Kind::MetaProperties | Kind::PartitionMetadata), ..) => {
                format!("{entries} properties")
            }
            _ => format!("{entries} entries"),
        }
    }
}

/// A batch as Kafka's dump tool prints it.
fn line_of_batch(batch: &Batch) -> String {
    let header = &batch.header;
    format!(
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} \
         producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} position: {} \
         {}: {} size: {} magic: 2 compresscodec: {} crc: {} isvalid: {}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.base_sequence,
        batch.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.partition_leader_epoch,
        batch.is_transactional(),
        batch.is_control(),
        batch.position,
        timestamp_type(batch),
        header.max_timestamp,
        header.size(),
        batch.codec(),
        header.crc,
        batch.crc_ok
    )
}

fn timestamp_type(batch: &Batch) -> &'static str {
    if batch.header.is_log_append_time() { "LogAppendTime" } else { "CreateTime" }
}

/// Sequence of a record of the batch.
fn sequence(batch: &Batch, offset: i64) -> Option<i64> {
    let first = i64::from(batch.header.base_sequence);
    let delta = offset.checked_sub(batch.header.base_offset)?;
    (first >= 0).then(|| (first + delta) % (i64::from(i32::MAX) + 1))
}

/// A producer's batch as Kafka's dump tool prints it.
fn producer(row: &ProducerBatch) -> String {
    let transaction = match row.current_txn_first_offset {
        first @ 0.. => format!("OptionalLong[{first}]"),
        _ => "OptionalLong.empty".to_owned(),
    };
    let batch = if row.last_offset < 0 {
        String::new()
    } else {
        format!(
            "firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
            row.first_sequence(),
            row.last_sequence,
            row.last_offset,
            row.offset_delta,
            row.timestamp_ms
        )
    };
    format!(
        "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {transaction} \
         lastTimestamp: {} {batch}",
        row.producer_id, row.producer_epoch, row.coordinator_epoch, row.timestamp_ms
    )
}

/// A partition in one line.
fn line_of_partition(partition: &Partition) -> String {
    let id = partition.topic_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let epoch = partition.last_epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
    let mut state = Vec::new();
    match partition.damaged {
        0 => {}
        1 => state.push("DAMAGED in 1 place".to_owned()),
        places => state.push(format!("DAMAGED in {places} places")),
    }
    if partition.incomplete > 0 {
        state.push("the end is incomplete (being written?)".to_owned());
    }
    if state.is_empty() {
        state.push("ok".to_owned());
    }
    format!(
        "partition {}  topic_id: {id}  segments: {}  from: {}  end: {}  batches: {}  records: {}  bytes: {}  epoch: {epoch}  {}",
        printable(&partition.name),
        partition.segments,
        partition.first_segment,
        partition.log_end,
        partition.batches,
        partition.records,
        partition.size_bytes,
        state.join(", ")
    )
}

fn fits(fits: Option<bool>) -> &'static str {
    match fits {
        Some(true) => "",
        Some(false) => " (not so in the log)",
        None => " (there is no log beside it)",
    }
}

fn last_good(offset: Option<i64>) -> String {
    offset.map_or_else(String::new, |offset| format!("; the last good offset is {offset}"))
}

fn shown_path(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// Text with everything that is not printable escaped; other bytes as hexadecimal digits.
pub(super) fn text(bytes: &Shown<'_>) -> String {
    let more = match bytes.size_bytes - bytes.head.len() {
        0 => String::new(),
        more => format!("… (and {more} bytes)"),
    };
    match utf8(bytes) {
        Some(text) => format!("{}{more}", text.escape_debug()),
        None => format!("0x{}{more}", hex(bytes.head)),
    }
}

/// The beginning as text, if it is text: a character that is cut off at the end is left out.
pub(super) fn utf8<'a>(bytes: &Shown<'a>) -> Option<&'a str> {
    let head: &'a [u8] = bytes.head;
    match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        Err(error) => {
            let cut_off = error.error_len().is_none() && bytes.size_bytes > head.len();
            std::str::from_utf8(&head[..error.valid_up_to()]).ok().filter(|_| cut_off)
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> Shown<'_> {
        Shown { size_bytes: bytes.len(), head: bytes }
    }

    #[test]
    fn what_a_record_holds_cannot_reach_the_terminal() {
        assert_eq!(text(&shown(b"a\x1b[2Jb\n")), "a\\u{1b}[2Jb\\n");
        assert_eq!(text(&shown("\u{202e}abc é".as_bytes())), "\\u{202e}abc é");
        assert_eq!(text(&shown(&[0xff, 0x00])), "0xff00");
        let cut = Shown { size_bytes: 300, head: &"éé".as_bytes()[..3] };
        assert_eq!(text(&cut), "é… (and 297 bytes)");
    }
}
