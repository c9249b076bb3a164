//! What a step may use besides the group that it is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::answer::{Answer, JoinRefused};
use crate::effects::{Append, Effects, Note, OffsetsRecord};
use crate::error::GroupError;
use crate::event::{Moment, Waiter, WriteId};
use crate::group::Group;
use crate::settings::Settings;
use crate::writes::{Purpose, Writes};

/// One step's surroundings.
pub(crate) struct Turn<'a> {
    pub(crate) moment: Moment,
    pub(crate) settings: &'a Settings,
    pub(crate) writes: &'a mut Writes,
    /// Joins and syncs that wait, with their groups.
    pub(crate) waiting: &'a mut BTreeMap<Waiter, Arc<str>>,
    pub(crate) effects: &'a mut Effects,
}

impl Turn<'_> {
    pub(crate) fn append(&mut self, purpose: Purpose, records: Vec<OffsetsRecord>) -> WriteId {
        assert!(!records.is_empty(), "an append without records");
        let write = self.writes.order(purpose);
        self.effects.appends.push(Append { write, records });
        write
    }

    pub(crate) fn answer(&mut self, waiter: Waiter, answer: Answer) {
        self.waiting.remove(&waiter);
        self.effects.answers.push((waiter, answer));
    }

    pub(crate) fn refuse_join(&mut self, waiter: Waiter, error: GroupError, member_id: &Arc<str>) {
        let refused = JoinRefused { error, member_id: member_id.clone() };
        self.answer(waiter, Answer::Join(Err(refused)));
    }

    pub(crate) fn refuse_sync(&mut self, waiter: Waiter, error: GroupError) {
        self.answer(waiter, Answer::Sync(Err(error)));
    }

    pub(crate) fn wait(&mut self, waiter: Waiter, group: &Arc<str>) {
        self.waiting.insert(waiter, group.clone());
    }

    pub(crate) fn note(&mut self, group: &Group, warn: bool, text: String) {
        let (id, generation) = (group.id.to_string(), group.generation);
        self.effects.notes.push(Note { warn, group: id, generation, text });
    }
}
