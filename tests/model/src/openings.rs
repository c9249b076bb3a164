//! Where a row begins: after what every search in it would have to play first.
//!
//! Whatever an opening does is an action of the model, so its last world is one that the first would lead to.

use crate::action::Action;
use crate::node::brokers_in;
use crate::protocol::Protocol;
use crate::row::Begun;
use crate::world::{BROKERS, Spent, World};

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
            let leader = usize::from(w.node.leader.unwrap_or_default());
            w = self.play(w, Action::Produce(leader), true);
            w = self.play(w, Action::Lag(leader), false);
        }
        w
    }

    /// An action, and all that follows without anything going wrong; whoever is being added `fetches`, or nobody does.
    fn play(&self, w: World, action: Action, fetches: bool) -> World {
        let mut unbound = self.clone();
        unbound.row.proposals = u8::MAX;
        unbound.row.suspicions = u8::MAX;
        let mut w = unbound.next(&w, action).unwrap_or(w);
        let follows = |w: &World| follow_ups(w, fetches).iter().find_map(|a| unbound.next(w, *a));
        for _ in 0..STEPS_MAX {
            let Some(next) = follows(&w) else { break };
            w = next;
        }
        let Spent { moves, switches, .. } = w.spent;
        w.spent = Spent { moves, switches, ..Spent::default() };
        self.settle(&mut w);
        w
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
