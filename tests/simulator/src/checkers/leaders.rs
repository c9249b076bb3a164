//! I1 one leader per epoch, I2 epochs never go back, LM one record per (offset, epoch), T only bytes of this life.

use barnabas_types::{LeaderEpoch, Offset};

use super::{Checkers, Life};
use crate::disk::{Directory, Record};

impl Checkers {
    /// A replica took up the role of leader: one process per epoch.
    pub(super) fn claimed(&mut self, life: &Life, epoch: LeaderEpoch, broker: usize, process: u32) {
        let Some(history) = self.histories.get_mut(life) else { return };
        let holder = *history.claimed.entry(epoch).or_insert((broker, process));
        if holder != (broker, process) {
            let (other, other_life) = holder;
            self.broken(
                "I1",
                format!(
                    "{} leader epoch {epoch}: broker {} (life {process}) leads after broker {} (life {other_life})",
                    life.0,
                    broker + 1,
                    other + 1
                ),
            );
        }
    }

    /// A record reached a log.
    pub fn appended(&mut self, life: &Life, broker: usize, offset: Offset, record: Record) {
        if record.topic_czxid != life.1 {
            self.broken(
                "T",
                format!(
                    "{} on broker {}: a record of another life at {offset}",
                    life.0,
                    broker + 1
                ),
            );
        }
        let Some(history) = self.histories.get_mut(life) else { return };
        let at = usize::try_from(offset.0).unwrap_or(0);
        if history.names.len() <= at {
            history.names.resize(at + 1, Vec::new());
        }
        match history.names[at].iter().find(|r| r.epoch == record.epoch) {
            None => history.names[at].push(record),
            Some(known) if *known == record => {}
            Some(known) => {
                let (first, second) = (known.value, record.value);
                self.broken(
                    "LM",
                    format!(
                        "{} offset {offset} epoch {}: names record {first} and, on broker {}, record {second}",
                        life.0,
                        record.epoch,
                        broker + 1
                    ),
                );
            }
        }
    }

    /// A leader begins: T for the whole log, and epochs in it never go down.
    pub(super) fn whole_log(&mut self, life: &Life, broker: usize, directory: &Directory) {
        let records = || directory.records.iter().filter(|r| !r.is_hole());
        if records().any(|r| r.topic_czxid != life.1) {
            self.broken(
                "T",
                format!("{} on broker {}: leads with bytes of another life", life.0, broker + 1),
            );
        }
        if !records().is_sorted_by_key(|r| r.epoch) {
            self.broken(
                "I2",
                format!("{} on broker {}: epochs go down in the log", life.0, broker + 1),
            );
        }
    }
}
