//! Where a row begins: after what every search in it would have to play first.
//!
//! Whatever an opening does is an action of the model, so its last world is one that the first would lead to.

use crate::action::Action;
use crate::node::brokers_in;
use crate::protocol::Protocol;
use crate::row::Begun;
use crate::world::{BROKERS, Ix, Spent, World};

/// Actions that an opening takes; more than any has needed.
const STEPS_MAX: usize = 100;

impl Protocol {
    /// The world after the row's openings. What they use up does not count against the row's bounds, but for records and
    /// wishes.
    pub(crate) fn opened(&self, mut w: World) -> World {
        if self.row.forked {
            w = self.fork(w);
        }
        if self.row.begun != Begun::Nothing {
            w = self.begin(w);
        }
        w
    }

    /// The first leader takes a record that nobody else has; another ISR member is elected in its place, and it follows.
    fn fork(&self, mut w: World) -> World {
        let first = usize::from(w.node.leader.unwrap_or_default());
        let all = [
            Action::Produce(first),
            Action::Suspect(first),
            Action::Observe { term: 0, broker: first },
        ];
        for action in all {
            w = self.play(w, action, false);
        }
        assert!(w.node.leader != Some(first as u8), "another ISR member leads: {w}");
        w
    }

    /// The first wish of the operator, and everybody knows of it.
    fn begin(&self, mut w: World) -> World {
        let switches = self.row.switches > 0;
        let wish = if switches { Action::SwitchToSync } else { Action::Reassign(self.row.target) };
        w = self.play(w, wish, self.row.begun >= Begun::Joined);
        if self.row.begun == Begun::Left {
            w = self.leave_again(w);
        }
        w
    }

    /// The newcomer falls behind a new record, catches up before its leader hears that it has left the ISR, and so is counted.
    fn leave_again(&self, mut w: World) -> World {
        let leader = usize::from(w.node.leader.unwrap_or_default());
        let newcomer = w.node.assigned.adding.trailing_zeros() as Ix;
        let fetch = Action::Fetch { follower: newcomer, lost: false };
        for action in [Action::Produce(leader), Action::Lag(leader), fetch, fetch] {
            w = self.once(w, action);
        }
        w = self.play(w, fetch, false);
        let left = w.node.isr[newcomer] == 0 && w.history.acked == 1;
        assert!(left, "the newcomer was in the ISR when the record was acknowledged: {w}");
        w
    }

    /// An action, and all that follows without anything going wrong; whoever is being added `fetches`, or nobody does.
    fn play(&self, w: World, action: Action, fetches: bool) -> World {
        let mut w = self.once(w, action);
        for _ in 0..STEPS_MAX {
            let due = follow_ups(&w, fetches);
            let Some(next) = due.into_iter().find_map(|a| self.unbound().next(&w, a)) else {
                break;
            };
            w = next;
        }
        let Spent { moves, switches, .. } = w.spent;
        w.spent = Spent { moves, switches, ..Spent::default() };
        self.settle(&mut w);
        w
    }

    /// One action; what has no effect changes nothing.
    fn once(&self, w: World, action: Action) -> World {
        self.unbound().next(&w, action).unwrap_or(w)
    }

    fn unbound(&self) -> Self {
        let mut unbound = self.clone();
        unbound.row.proposals = u8::MAX;
        unbound
    }
}

fn follow_ups(w: &World, fetches: bool) -> Vec<Action> {
    let mut due: Vec<Action> = w.pushes.iter().map(|push| Action::Push(*push)).collect();
    due.extend((0..BROKERS).map(|broker| Action::Acknowledge { term: 0, broker }));
    if fetches {
        let adding = brokers_in(w.node.assigned.adding);
        due.extend(adding.map(|follower| Action::Fetch { follower, lost: false }));
    }
    let sent = w.proposals.iter();
    due.extend(sent.map(|p| Action::Alter { term: 0, proposal: *p, heard: true }));
    // Last: whatever is not answered might be sent for ever.
    due.extend((0..BROKERS).map(Action::Send));
    due
}
