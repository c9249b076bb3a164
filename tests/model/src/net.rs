//! Fetches and their answers: in one step, or as messages that arrive late, in any order, or never (R30, R31).

use std::cmp::Ordering;

use barnabas_replica::{
    Event, FetchAnswer, FetchOutcome, FetchPosition, FetchReply, FollowerFetch,
};
use barnabas_simulator::disk::Record;
use barnabas_types::{LeaderEpoch, Offset};

use crate::mutation::Mutation;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::shared::fingerprint_of;
use crate::world::{Ix, World, id_of, ix_of};

/// What a leader answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Said {
    /// At most one record.
    Records {
        /// From the position asked on.
        records: Vec<Record>,
        /// HW of the leader.
        high_watermark: Offset,
        /// Log start of the leader.
        log_start: Offset,
    },
    /// The logs diverge.
    Diverging(LeaderEpoch, Offset),
    /// Begin anew there.
    Reset(Offset),
}

/// A message between a follower and a leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// Who asked.
    pub follower: u8,
    /// Whom.
    pub leader: u8,
    /// What.
    pub asked: FetchPosition,
    /// The answer; `None`: it is the request.
    pub said: Option<Said>,
}

impl Protocol {
    /// A follower's fetch and its answer, which may be lost.
    pub(crate) fn fetch(&self, w: &mut World, f: Ix, lost: bool) -> Option<()> {
        let (leader, asked) = ask(w, f)?;
        if !w.brokers[leader].up() {
            return None;
        }
        let said = self.serve(w, leader, f, asked)?;
        if !lost {
            self.apply(w, f, leader, asked, said);
        }
        Some(())
    }

    /// A follower's request gets into the net.
    pub(crate) fn request(&self, w: &mut World, f: Ix) -> Option<()> {
        let (leader, asked) = ask(w, f)?;
        w.transmit(Message { follower: f as u8, leader: leader as u8, asked, said: None });
        Some(())
    }

    /// A message arrives.
    pub(crate) fn deliver(&self, w: &mut World, index: usize) -> Option<()> {
        let Message { follower, leader, asked, said } = w.messages.remove(index);
        let (f, l) = (usize::from(follower), usize::from(leader));
        match said {
            None => {
                if w.brokers[l].up()
                    && let Some(said) = self.serve(w, l, f, asked)
                {
                    w.transmit(Message { follower, leader, asked, said: Some(said) });
                }
            }
            Some(said) => {
                let (asked, said) = self.misread_answer(w, f, asked, said);
                let here = w.brokers[f].replica.as_ref().and_then(|r| r.fetch_position());
                let stands = |p: FetchPosition| FetchPosition { flushed: asked.flushed, ..p };
                if here.map(stands) != Some(asked) {
                    self.reach(Reached::StaleAnswer);
                }
                self.apply(w, f, l, asked, said);
            }
        }
        Some(())
    }

    /// What a leader answers; `None`: it refuses.
    fn serve(&self, w: &mut World, leader: Ix, f: Ix, asked: FetchPosition) -> Option<Said> {
        let replica = w.brokers[leader].replica.as_ref()?;
        let start = replica.log_start();
        let judged_by_epochs = self.breaks(Mutation::EmptyLogDiverges) && start > Offset(0);
        if judged_by_epochs && asked.last_epoch.is_none() && replica.role().leader().is_none() {
            return Some(Said::Reset(start));
        }
        let position = self.misread_fetch(w, leader, f, asked);
        let fetch = FollowerFetch { follower: id_of(f), position, heard: 0 };
        let reply = self.step_replica(w, leader, Event::FollowerFetch(fetch))?;
        if let Some(said) = self.misreply(w, leader, asked, &reply) {
            return Some(said);
        }
        match reply {
            FetchReply::Grant(grant) => {
                let to = grant.to.min(Offset(grant.from.0 + 1));
                let (records, _) = w.brokers[leader].directory.read(grant.from, to);
                let (high_watermark, log_start) = (grant.high_watermark, grant.log_start);
                Some(Said::Records { records, high_watermark, log_start })
            }
            FetchReply::Diverging { epoch, end } => Some(Said::Diverging(epoch, end)),
            FetchReply::Reset { log_start } => Some(Said::Reset(log_start)),
            FetchReply::Refused(_) => None,
        }
    }

    /// An answer reaches the follower.
    fn apply(&self, w: &mut World, f: Ix, leader: Ix, asked: FetchPosition, said: Said) {
        let mut fetched = Vec::new();
        let outcome = match said {
            Said::Records { records, high_watermark, log_start } => {
                let end = Offset(asked.log_end.0 + records.len() as i64);
                let epochs = records.first().map(|r| (r.epoch, asked.log_end));
                fetched = records;
                let epochs = epochs.into_iter().collect();
                FetchOutcome::Records { end, epochs, high_watermark, log_start }
            }
            Said::Diverging(epoch, end) => FetchOutcome::Diverging { epoch, end },
            Said::Reset(log_start) => {
                if log_start > Offset(0) {
                    self.reach(Reached::FollowerReset);
                }
                FetchOutcome::Reset { log_start }
            }
        };
        let answer = FetchAnswer { leader: id_of(leader), asked, outcome };
        self.step_with(w, f, Event::FetchAnswered(answer), &fetched);
    }

    /// An answer as a follower takes it that compares too little (against R31).
    fn misread_answer(
        &self,
        w: &World,
        f: Ix,
        asked: FetchPosition,
        said: Said,
    ) -> (FetchPosition, Said) {
        let Some(here) = w.brokers[f].replica.as_ref().and_then(|r| r.fetch_position()) else {
            return (asked, said);
        };
        let asked = match self.row.mutation {
            Some(Mutation::AnswerOfAnyLastEpoch) => {
                FetchPosition { last_epoch: here.last_epoch, ..asked }
            }
            Some(Mutation::AnswerOfAnyPosition) => {
                FetchPosition { last_epoch: here.last_epoch, log_end: here.log_end, ..asked }
            }
            _ => asked,
        };
        (asked, said)
    }

    /// An answer that a leader with a planted bug gives instead.
    fn misreply(
        &self,
        w: &World,
        leader: Ix,
        asked: FetchPosition,
        reply: &FetchReply,
    ) -> Option<Said> {
        let replica = w.brokers[leader].replica.as_ref()?;
        let start = replica.log_start();
        match (self.row.mutation?, reply) {
            (Mutation::ResetToLogEnd, FetchReply::Reset { .. }) => {
                Some(Said::Reset(replica.log_end()))
            }
            (Mutation::ResetToHighWatermark, FetchReply::Reset { .. }) => {
                Some(Said::Reset(replica.high_watermark()))
            }
            (Mutation::AboveTheEndResets, FetchReply::Diverging { .. })
                if asked.log_end > replica.log_end() =>
            {
                Some(Said::Reset(start))
            }
            _ => None,
        }
    }
}

/// Whom a follower asks, and for what.
fn ask(w: &World, f: Ix) -> Option<(Ix, FetchPosition)> {
    let follower = w.brokers[f].replica.as_ref()?;
    Some((ix_of(follower.role().leader()?), follower.fetch_position()?))
}

impl World {
    fn transmit(&mut self, message: Message) {
        let order = |m: &Message| fingerprint_of(m);
        let mine = order(&message);
        let at = self.messages.partition_point(|m| order(m).cmp(&mine) == Ordering::Less);
        self.messages.insert(at, message);
    }
}
