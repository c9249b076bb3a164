//! Explorations: every interleaving under a row, breadth first, until nothing new is left or an invariant breaks.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::action::Action;
use crate::mutation::Planted;
use crate::properties::{self, is_lost};
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::row::Row;
use crate::world::World;

/// What breaks a search for lost records.
const LOST: &str = "an acknowledged record is lost";

/// The protocol as a model: which invariants are asked about.
#[derive(Clone, Debug)]
struct Exploration {
    protocol: Protocol,
    /// Only whether acknowledged records stay, unclean elections or not.
    loss_only: bool,
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.protocol.first()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.protocol.actions(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        self.protocol.next(world, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if self.loss_only {
            return vec![Property::always(LOST, |_, w| !is_lost(w))];
        }
        macro_rules! invariants {
            ($($index:literal)*) => {
                vec![$(Property::always(properties::ALL[$index].0, |m: &Self, w| {
                    properties::ALL[$index].1(&m.protocol, w)
                }),)*]
            };
        }
        let mut all = invariants!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17);
        let only = self.protocol.row.only.map(|index| properties::ALL[index].0);
        all.retain(|p| only.is_none_or(|name| p.name == name));
        all.push(Property::always("is looked at", |m: &Self, w| {
            m.protocol.look(w);
            true
        }));
        all
    }
}

/// What came of an exploration.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Distinct worlds.
    pub worlds: usize,
    /// Actions that were tried and changed something, most of them towards worlds that were known.
    pub steps: usize,
    /// Longest shortest way to one.
    pub depth: usize,
    /// What was come across.
    pub reached: Vec<&'static str>,
    /// The broken invariants, each with the way there; the ways are short, not always the shortest.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    /// How long it took.
    pub took: Duration,
}

impl Finding {
    /// Whether this was come across.
    #[must_use]
    pub fn has(&self, reached: Reached) -> bool {
        self.reached.contains(&reached.words())
    }

    /// Whether every invariant holds in every world within the bounds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Explores everything under a row, until it is exhausted or an invariant breaks.
#[must_use]
pub fn explore(row: Row, threads: usize) -> Finding {
    run(Exploration { protocol: Protocol::new(row), loss_only: false }, threads, None)
}

/// Looks for a planted bug in its row.
///
/// # Errors
/// It is not found; or the row breaks without it too, within as many steps, so that a bug that is found there proves nothing.
pub fn find(planted: &Planted, threads: usize) -> Result<Finding, String> {
    let &(bug, name, words) = planted;
    let sound = Row::read(words)?;
    let found = explore(Row { mutation: Some(bug), ..sound }, threads);
    if found.holds() {
        return Err(format!("'{name}' is not found in {} worlds of {words}", found.worlds));
    }
    let model = Exploration { protocol: Protocol::new(sound), loss_only: false };
    let without = run(model, threads, Some(found.steps));
    match without.broken.first() {
        Some((invariant, way)) => {
            Err(format!("{words}: '{invariant}' breaks without '{name}' too: {way:?}"))
        }
        None => Ok(found),
    }
}

/// Looks for a lost record under a row.
#[must_use]
pub fn find_loss(row: Row, threads: usize) -> Finding {
    run(Exploration { protocol: Protocol::new(row), loss_only: true }, threads, None)
}

/// Ends after about `steps_max`, if that is given.
fn run(model: Exploration, threads: usize, steps_max: Option<usize>) -> Finding {
    let begun = Instant::now();
    let protocol = model.protocol.clone();
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = match steps_max {
        Some(steps) => checker.target_state_count(steps),
        None => checker,
    };
    let checker = checker.spawn_bfs().join();
    let broken = checker.discoveries().into_iter();
    let mut broken: Vec<_> = broken.map(|(name, path)| (name, path.into_actions())).collect();
    broken.sort_by_key(|(_, way)| way.len());
    Finding {
        worlds: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        reached: protocol.coverage().words(),
        broken,
        took: begun.elapsed(),
    }
}
