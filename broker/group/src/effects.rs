//! What the coordinator wants done.

use bytes::Bytes;

use crate::answer::Answer;
use crate::event::{Waiter, WriteId};

/// What to do after a step, in any order; the appends among themselves in the order in which they stand here, steps in
/// the order of the steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effects {
    /// Appends to the partition, each as one batch that is acknowledged as acks=all; then step
    /// [`crate::Event::Appended`] exactly once for each. They must reach the log in this order.
    pub appends: Vec<Append>,
    /// Answers. Each waiter is answered exactly once.
    pub answers: Vec<(Waiter, Answer)>,
    /// Lines for the log.
    pub notes: Vec<Note>,
}

impl Effects {
    /// Empties every field and keeps the capacity of the lists.
    pub fn clear(&mut self) {
        self.appends.clear();
        self.answers.clear();
        self.notes.clear();
    }
}

/// One batch to append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    /// Names the write; rises with every append.
    pub write: WriteId,
    /// Records in order, at least one.
    pub records: Vec<OffsetsRecord>,
}

/// One record of `__consumer_offsets`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OffsetsRecord {
    /// Key, in Kafka's format.
    pub key: Bytes,
    /// Value, in Kafka's format; `None` is a tombstone.
    pub value: Option<Bytes>,
}

/// One line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// `true` for what an operator must see.
    pub warn: bool,
    /// The group it speaks of, as the client wrote it (escape it); empty: the partition as a whole.
    pub group: String,
    /// The group's generation, -1 without a group.
    pub generation: i32,
    /// The line. Names from clients in it are quoted and escaped.
    pub text: String,
}
