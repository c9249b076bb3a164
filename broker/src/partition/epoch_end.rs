//! Where leader epochs end, for clients (KIP-101, KIP-320), and the roll call before an epoch is said to be unknown.

use barnabas_replica::Event;
use barnabas_types::{Condition, LeaderEpoch, Now, Offset};
use tokio::sync::futures::Notified;

use super::aftermath::Aftermath;
use super::hosted::Hosted;
use super::inner::Input;

/// What a leader says of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EpochEnd {
    /// The largest epoch not above it, and its exclusive end; `None` if there is none.
    Known(Option<(LeaderEpoch, Offset)>),
    /// A successor may know it. Ask again with this roll call once it is answered.
    Doubted(u64),
}

impl Hosted {
    /// OffsetForLeaderEpoch. `call`: the roll call that was made for this request; one is made if it is needed and there was none.
    ///
    /// # Errors
    /// Not the leader, wrong epoch.
    pub fn end_offset_for_epoch(
        &self,
        now: Now,
        current_leader_epoch: Option<LeaderEpoch>,
        asked: LeaderEpoch,
        call: Option<u64>,
        after: &mut Aftermath,
    ) -> Result<EpochEnd, Condition> {
        let mut inner = self.lock();
        let end = inner.replica.end_offset_for_epoch(current_leader_epoch, asked)?;
        if !inner.replica.doubts_epoch(asked, call) {
            return Ok(EpochEnd::Known(end));
        }
        let call = call.unwrap_or_else(|| {
            inner.step(self, now, Event::RollCall, Input::None, after);
            inner.replica.roll_call()
        });
        Ok(EpochEnd::Doubted(call))
    }

    /// Where an epoch ends in this replica's own log, whatever its role.
    #[must_use]
    pub fn own_end_offset_for_epoch(&self, asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.lock().replica.own_end_offset_for_epoch(asked)
    }

    /// Ends once a roll call has been answered, or the role has changed, after this was called.
    pub fn roll_called(&self) -> Notified<'_> {
        self.roll_called.notified()
    }
}
