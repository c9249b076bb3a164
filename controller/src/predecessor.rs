//! The controller that was known last, and the first signs that it is gone: what the timeline of its successor begins with.

use std::time::Instant;

use barnabas_controller_core::CandidateEvent;
use barnabas_types::{BrokerId, ControllerEpoch};

use crate::follow::PushStreams;

/// A controller that another one is elected for, as far as this broker saw it go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    pub(crate) controller: BrokerId,
    /// Its last push stream here ended.
    pub(crate) stream_broke: Option<Instant>,
    /// Its ports refused connections from here.
    pub(crate) suspected: Option<Instant>,
    /// `/controller` was found to be gone.
    pub(crate) gone: Option<Instant>,
    /// Its last push here said that its broker is being emptied: it goes in order.
    pub(crate) draining: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Predecessor(Option<(Lost, ControllerEpoch)>);

impl Predecessor {
    /// Who is controller now: whatever was seen of the one before is settled.
    pub(crate) fn known(&mut self, controller: BrokerId, epoch: ControllerEpoch) {
        if self.0.is_none_or(|(_, known)| known != epoch) {
            let (stream_broke, suspected, gone) = (None, None, None);
            let lost = Lost { controller, stream_broke, suspected, gone, draining: false };
            self.0 = Some((lost, epoch));
        }
    }

    /// Notes when an event first shows that it is gone.
    pub(crate) fn heard(&mut self, event: &CandidateEvent, now: Instant) {
        let Some((lost, _)) = &mut self.0 else { return };
        let sign = match event {
            CandidateEvent::ControllerSuspected { .. } => &mut lost.suspected,
            CandidateEvent::ControllerChanged { .. }
            | CandidateEvent::ControllerRead { node: None, .. } => &mut lost.gone,
            _ => return,
        };
        sign.get_or_insert(now);
    }

    /// It, with the signs that hold: a suspicion that a later stream has refuted does not. `None`: this broker knew of none.
    pub(crate) fn lost(&self, pushes: &PushStreams) -> Option<Lost> {
        let (lost, epoch) = self.0?;
        let stream_broke = pushes.closed_since(epoch);
        let holds = |at: &Instant| stream_broke.is_none_or(|broke| broke <= *at);
        let suspected = lost.suspected.filter(|_| !pushes.is_open(epoch)).filter(holds);
        Some(Lost { stream_broke, suspected, draining: pushes.is_draining(epoch), ..lost })
    }
}

#[cfg(test)]
mod tests {
    use barnabas_controller_core::SessionId;
    use barnabas_types::Now;

    use super::*;

    const EPOCH: ControllerEpoch = ControllerEpoch(4);

    fn suspected() -> CandidateEvent {
        let (session, owner) = (SessionId(1), SessionId(2));
        CandidateEvent::ControllerSuspected { session, owner, now: Now(0) }
    }

    #[test]
    fn signs_are_those_of_the_present_controller_and_of_its_last_stream() {
        let (pushes, mut predecessor) = (PushStreams::default(), Predecessor::default());
        predecessor.heard(&suspected(), Instant::now());
        assert_eq!(predecessor.lost(&pushes), None, "nobody was controller");
        predecessor.known(BrokerId(2), EPOCH);
        let stream = pushes.opened(EPOCH);
        drop(stream);
        predecessor.heard(&suspected(), Instant::now());
        let (other, mut of_other) = (PushStreams::default(), Predecessor::default());
        of_other.known(BrokerId(2), EPOCH);
        of_other.heard(&suspected(), Instant::now());
        let lost = of_other.lost(&other).unwrap();
        assert!(lost.suspected.is_some() && lost.stream_broke.is_none(), "it never had one here");
        let lost = predecessor.lost(&pushes).unwrap();
        assert!(lost.stream_broke.is_some() && lost.stream_broke <= lost.suspected);
        assert_eq!((lost.controller, lost.gone), (BrokerId(2), None));
        // It has a stream again: it lived.
        let stream = pushes.opened(EPOCH);
        predecessor.known(BrokerId(2), EPOCH);
        let changed = CandidateEvent::ControllerChanged { session: SessionId(1) };
        predecessor.heard(&changed, Instant::now());
        let lost = predecessor.lost(&pushes).unwrap();
        assert_eq!((lost.stream_broke, lost.suspected), (None, None));
        assert!(lost.gone.is_some());
        stream.says_draining(true);
        drop(stream);
        let lost = predecessor.lost(&pushes).unwrap();
        assert!(lost.stream_broke.is_some() && lost.suspected.is_none(), "that was before");
        assert!(lost.draining, "it went in order");
        predecessor.known(BrokerId(3), ControllerEpoch(5));
        let lost = predecessor.lost(&pushes).unwrap();
        let nothing = (lost.stream_broke, lost.suspected, lost.gone);
        assert_eq!((lost.controller, nothing), (BrokerId(3), (None, None, None)));
        assert!(!lost.draining, "that was another one");
    }
}
