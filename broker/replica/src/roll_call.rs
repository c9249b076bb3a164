//! The roll call: a leader asks its maximal ISR whether it still led when a request came, before it says what only a leader knows.
//!
//! A leader that was deposed and has not heard of it lacks what its successor has acknowledged. Three answers of it would do
//! harm: that a producer's sequence is missing (`gaps`), that a consumer's offset is above the log end, and that no epoch is as new
//! as the one of the last record that it has read. On the latter two clients reset their position, and skip records or read them
//! twice.
//!
//! Whoever deposed it in a clean election, and was the first that served anybody, was a member of its maximal ISR, and takes
//! no part in its epoch any more from before it served. A member that fetches in this epoch after it has heard the call had
//! not done so when the request came. Once all have, nobody can have read anything before the request that is not in this
//! log, but for what was lost. A leader that is the maximal ISR by itself needs no witness: nobody else can be elected.
//!
//! A call stands for the requests that came before it, and for no later one: after it was answered, a successor may be
//! elected whose records the next consumer has read, also one that asks for the same offset. So nothing is remembered of an
//! answered call, and the epoch that a consumer knows does not stand for one: it may go on from an offset that another
//! member of its group has committed under the successor. Nor is the call bound to a leadership: what is heard and fetched in a
//! later one says the same of the time before the request.

use barnabas_types::LeaderEpoch;

use crate::effects::Effects;
use crate::leader::Leader;
use crate::replica::{Replica, RoleState};

impl Leader {
    /// The last roll call that every member of the maximal ISR has answered; without another member, every call is.
    pub(crate) fn answered_call(&self) -> u64 {
        let members = self.followers.iter().filter(|f| f.in_maximal_isr());
        members.map(|f| f.heard).min().unwrap_or(u64::MAX)
    }
}

impl Replica {
    /// Number of the last roll call, 0 if there was none. It never goes down in the life of a replica.
    #[must_use]
    pub fn roll_call(&self) -> u64 {
        self.roll_call
    }

    /// Whether a consumer that asks for what is above the log end must not be told so yet, for this replica may be deposed.
    /// `call`: the roll call that was made after its request had come, if one was ([`crate::Event::RollCall`]). `false` for who
    /// does not lead: there is something else to be told then.
    #[must_use]
    pub fn doubts_end(&self, call: Option<u64>) -> bool {
        let RoleState::Leader(leader) = &self.role else { return false };
        call.unwrap_or(u64::MAX) > leader.answered_call()
    }

    /// As [`Replica::doubts_end`], for a client that asks where `asked` ends: an epoch newer than the one in which this replica leads
    /// is one of a successor, if there is any. Of others it knows all.
    #[must_use]
    pub fn doubts_epoch(&self, asked: LeaderEpoch, call: Option<u64>) -> bool {
        self.leader_epoch().is_some_and(|present| asked > present) && self.doubts_end(call)
    }

    pub(crate) fn on_roll_call(&mut self, effects: &mut Effects) {
        if let RoleState::Leader(_) = &self.role {
            self.call_roll(effects);
        }
    }

    pub(crate) fn call_roll(&mut self, effects: &mut Effects) {
        self.roll_call += 1;
        effects.roll_call = true;
    }

    /// How many of the roll calls are answered; 0 for who does not lead.
    pub(crate) fn answered_calls(&self) -> u64 {
        match &self.role {
            RoleState::Leader(leader) => leader.answered_call().min(self.roll_call),
            _ => 0,
        }
    }
}
