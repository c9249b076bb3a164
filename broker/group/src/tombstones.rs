//! Deletions, in appends of bounded size.

use std::sync::Arc;

use crate::answer::Answer;
use crate::effects::OffsetsRecord;
use crate::event::Waiter;
use crate::record::Key;
use crate::settings::APPEND_BYTES_MAX;
use crate::turn::Turn;
use crate::writes::{Purpose, Tombstones};

/// What one or more appends delete.
#[derive(Default)]
pub(crate) struct Batches {
    full: Vec<(Tombstones, Vec<OffsetsRecord>)>,
    open: Tombstones,
    records: Vec<OffsetsRecord>,
    bytes: usize,
    retry: bool,
}

impl Batches {
    /// Deletions that nobody asks for again if they fail.
    pub(crate) fn retried() -> Self {
        Self { retry: true, ..Self::default() }
    }

    pub(crate) fn offset(&mut self, group: &Arc<str>, topic: &Arc<str>, partition: i32) {
        self.record(OffsetsRecord { key: Key::offset(group, topic, partition), value: None });
        self.open.offsets.push((group.clone(), topic.clone(), partition));
    }

    /// After the group's offsets.
    pub(crate) fn group(&mut self, group: &Arc<str>) {
        self.record(OffsetsRecord { key: Key::group(group), value: None });
        self.open.groups.push(group.clone());
    }

    fn record(&mut self, record: OffsetsRecord) {
        if self.bytes + record.key.len() > APPEND_BYTES_MAX && !self.records.is_empty() {
            self.full.push((std::mem::take(&mut self.open), std::mem::take(&mut self.records)));
            self.bytes = 0;
        }
        self.bytes += record.key.len();
        self.records.push(record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Orders the appends. The last one answers.
    pub(crate) fn append(mut self, turn: &mut Turn<'_>, answer: Option<(Waiter, Answer)>) {
        if !self.records.is_empty() {
            self.full.push((self.open, self.records));
        }
        if let Some((last, _)) = self.full.last_mut() {
            last.answer = answer;
        }
        for (mut tombstones, records) in self.full {
            tombstones.retry = self.retry;
            turn.append(Purpose::Tombstones(tombstones), records);
        }
    }
}
