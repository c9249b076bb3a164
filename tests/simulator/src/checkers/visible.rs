//! I4 the high watermark never goes back as consumers see it, and what they may read is remembered for V.

use barnabas_types::{LeaderEpoch, Offset};

use super::{Checkers, Life, Promise};
use crate::disk::Directory;

impl Checkers {
    /// A leader would show this HW to a consumer now. Consumers know epochs (KIP-320): one that has met a newer leader
    /// never listens to an older one again.
    pub fn shown(
        &mut self,
        life: &Life,
        broker: usize,
        epoch: LeaderEpoch,
        high_watermark: Offset,
        directory: &Directory,
    ) {
        let Some(history) = self.histories.get_mut(life) else { return };
        if history.is_before_loss(epoch) {
            return;
        }
        let known = history.shown.get(&epoch).copied();
        if known == Some(high_watermark) {
            return;
        }
        let before = history.shown.range(..=epoch).map(|(_, hw)| *hw).max();
        if before.is_some_and(|before| high_watermark < before) {
            let text = format!(
                "{} broker {} epoch {epoch}: shows HW {high_watermark} after {}",
                life.0,
                broker + 1,
                before.unwrap_or_default()
            );
            return self.broken("I4", text);
        }
        history.shown.insert(epoch, high_watermark);
        let end = usize::try_from(high_watermark.0).unwrap_or(0);
        let mut broken = None;
        while history.visible.len() < end {
            let offset = history.visible.len();
            let Some(record) = directory.records.get(offset) else {
                broken = Some(format!(
                    "offset {offset} is below the HW {high_watermark} and not in the log"
                ));
                break;
            };
            // Nobody says how long ago the high watermark passed it: only a topic that was never async protects it.
            let flushed = (history.async_times == 0).then_some(0);
            let promise = Promise { record: *record, made_in: epoch, flushed };
            if let Some((later, log)) = &history.newest_leader
                && *later > epoch
                && !log.get(offset).is_some_and(|r| r.agrees(record))
            {
                if !history.excused(&promise, *later) {
                    broken = Some(format!(
                        "shows offset {offset}, while the leader of epoch {later} began without it"
                    ));
                }
                break;
            }
            history.visible.push(promise);
        }
        if let Some(text) = broken {
            self.broken("V", format!("{} broker {} epoch {epoch}: {text}", life.0, broker + 1));
        }
    }
}
