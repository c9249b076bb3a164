//! Reads the groups of a partition out of its log.

use std::sync::Arc;

use barnabas_group::{Groups, Replayed};
use barnabas_log::{Batch, BatchError, Batches, Records, Wait, record_bytes};
use barnabas_types::{Condition, Offset, Sanitised, TopicPartition};
use tokio::sync::Notify;

use super::coordinator::Life;
use crate::partition::{ConsumerRead, FollowerSession, Hosted};

/// Most bytes that one read of a load takes; a single batch may be larger.
const READ_BYTES_MAX: usize = 1 << 20;

/// Wakes the load when there is news of the partition.
struct News(Notify);

impl FollowerSession for News {
    fn news(&self, _: u32, _: bool) {
        self.0.notify_one();
    }
}

/// What a load has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Loaded {
    /// Records taken.
    pub(super) records: u64,
    /// Records of formats that are not known here.
    pub(super) skipped: u64,
    /// Records and batches that make no sense.
    pub(super) damaged: u64,
    /// Up to which offset, exclusive.
    pub(super) end: Offset,
}

/// Waits until everything that is in the log now is committed: nothing of it can be taken back then. When `leader_epoch` begins
/// that is what others wrote before; when a coordinator begins anew within its epoch, also what itself has written and may
/// have been told to nobody yet. `false`: the epoch is over.
pub(super) async fn until_committed(hosted: &Arc<Hosted>, life: &Life) -> bool {
    let news = Arc::new(News(Notify::new()));
    let session: Arc<dyn FollowerSession> = news.clone();
    let attached = hosted.attach(&session, 0);
    let mut wanted = None;
    let committed = loop {
        match hosted.consumer_view(Some(life.leader_epoch)) {
            Ok(view) if view.high_watermark >= *wanted.get_or_insert(view.log_end) => break true,
            Ok(_) | Err(Condition::OffsetNotAvailable) if attached && !life.is_over() => {}
            Ok(_) | Err(_) => break false,
        }
        tokio::select! {
            () = news.0.notified() => {}
            () = life.over() => {}
        }
    };
    hosted.detach(&session);
    committed
}

/// Reads the log from its start to the high watermark. Blocks. `None`: the epoch ended meanwhile, or the log cannot be read.
pub(super) fn load(hosted: &Arc<Hosted>, life: &Life, groups: &mut Groups) -> Option<Loaded> {
    let mut loading = Loading { hosted, life, groups, loaded: Loaded::default() };
    let mut from = Offset(0);
    let mut bytes = Vec::new();
    while !life.is_over() {
        let read = ConsumerRead {
            current_leader_epoch: Some(life.leader_epoch),
            ..ConsumerRead::at(from, READ_BYTES_MAX)
        };
        let slice = match hosted.read_for_consumer(&read, None, Wait::ForDisk) {
            Ok(slice) => slice,
            // The log begins later, or has begun to.
            Err(Condition::OffsetOutOfRange { start, .. }) if start > from => {
                from = start;
                continue;
            }
            Err(condition) => return loading.given_up(&condition),
        };
        loading.loaded.end = slice.view.high_watermark;
        let Some(range) = slice.range else { return Some(loading.loaded) };
        bytes.clear();
        if let Err(error) = range.read_into(&mut bytes) {
            return loading.given_up(&hosted.range_unreadable(&error));
        }
        loading.replay(&bytes);
        from = range.end;
    }
    None
}

struct Loading<'a> {
    hosted: &'a Hosted,
    life: &'a Life,
    groups: &'a mut Groups,
    loaded: Loaded,
}

impl Loading<'_> {
    fn replay(&mut self, bytes: &[u8]) {
        for batch in Batches::new(bytes) {
            if let Err(error) = batch.and_then(|batch| self.replay_batch(&batch)) {
                self.damaged(&error);
            }
        }
    }

    fn replay_batch(&mut self, batch: &Batch<'_>) -> Result<(), BatchError> {
        batch.check_crc()?;
        if batch.header.is_control() {
            return Ok(());
        }
        let records = record_bytes(batch.bytes, &batch.header)?;
        for record in Records::new(&records, &batch.header) {
            let record = record?;
            match self.groups.replay(record.key.unwrap_or_default(), record.value) {
                Replayed::Applied => self.loaded.records += 1,
                Replayed::Skipped { .. } => self.loaded.skipped += 1,
                Replayed::Damaged { error, .. } => self.damaged(&error),
            }
        }
        Ok(())
    }

    fn damaged(&mut self, reason: &dyn std::fmt::Display) {
        self.loaded.damaged += 1;
        let TopicPartition { topic, partition } = &self.hosted.topic_partition;
        let leader_epoch = self.life.leader_epoch;
        tracing::error!(target: "group", %topic, partition, %leader_epoch, reason = %Sanitised::sentence(reason), "a record of the offsets topic makes no sense and is skipped");
    }

    fn given_up(&self, reason: &dyn std::fmt::Display) -> Option<Loaded> {
        let TopicPartition { topic, partition } = &self.hosted.topic_partition;
        let leader_epoch = self.life.leader_epoch;
        tracing::warn!(target: "group", %topic, partition, %leader_epoch, reason = %Sanitised::sentence(reason), "the groups of a partition cannot be read");
        None
    }
}
