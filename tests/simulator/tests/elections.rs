//! Elections on the real candidates and controllers: simultaneous starts, and a controller that is stopped past its session.

use barnabas_simulator::{BROKERS, Operation, Options, Reached, Swarm, Trace, World};

const PATIENCE_MS: u64 = 5_000;

fn quiet(seed: u64) -> World {
    let options = Options { seed, events: 500, mutation: None };
    World::with_swarm(options, Swarm::quiet(), Trace::keep(200))
}

fn holds(world: &World) {
    if let Some(violation) = world.violation() {
        let lines = world.trace_lines().join("\n");
        panic!("{}: {}\n{lines}", violation.invariant, violation.text);
    }
}

/// Exactly one controller, and all three registered.
fn is_elected(world: &World) -> bool {
    world.controller().is_some() && world.store.registrations.len() == BROKERS
}

fn await_elected(world: &mut World) {
    let until = world.now_ms() + PATIENCE_MS;
    let elected = world.run_until(until, is_elected);
    holds(world);
    assert!(elected, "no controller within {PATIENCE_MS} ms");
}

#[test]
fn a_hundred_simultaneous_starts_elect_one_controller_each() {
    let mut world = quiet(3);
    await_elected(&mut world);
    assert_eq!(world.store.controller_epoch.0.0, 1);
    let mut winners = [0; BROKERS];
    for start in 2..=100 {
        for b in 0..BROKERS {
            world.crash(b, false);
        }
        await_elected(&mut world);
        assert_eq!(world.store.controller_epoch.0.0, start, "each start elects exactly once");
        winners[world.controller().unwrap()] += 1;
    }
    assert!(winners.iter().all(|wins| *wins > 0), "each broker wins now and then: {winners:?}");
}

#[test]
fn a_controller_stopped_past_its_session_is_refused_when_it_wakes() {
    let mut refused = 0;
    for seed in 0..40 {
        let mut world = quiet(seed);
        world.begin_clients();
        await_elected(&mut world);
        let busy = |w: &World| w.store.topics.len() == 2;
        assert!(world.run_until(world.now_ms() + PATIENCE_MS, busy));
        let stopped = world.controller().unwrap();
        let epoch = world.store.controller_epoch.0;
        // Something to write and to push: a broker dies just before the controller is stopped.
        world.crash((stopped + 1) % BROKERS, false);
        let until = world.now_ms() + 100 + seed % 12;
        world.run_until(until, |_| false);
        world.pause(stopped, 400, true);
        let deposed = |w: &World| w.store.controller_epoch.0 > epoch;
        assert!(world.run_until(world.now_ms() + 390, deposed), "seed {seed}: nobody took over");
        let until = world.now_ms() + 700;
        world.run_until(until, |_| false);
        holds(&world);
        // I9 and I10 were checked at every write and push; now all must come to rest with one controller.
        world.heal();
        let until = world.now_ms() + PATIENCE_MS;
        assert!(world.run_until(until, World::is_well), "seed {seed}: not well");
        holds(&world);
        refused += world.coverage().count(Reached::PushRefused);
    }
    assert!(refused > 0, "no late push was ever refused: the scenario shows nothing");
}

#[test]
fn a_deleted_controller_node_ends_in_one_controller_and_fenced_writes() {
    let mut fenced = 0;
    for seed in 0..60 {
        let mut world = quiet(seed);
        world.begin_clients();
        await_elected(&mut world);
        assert!(world.run_until(world.now_ms() + PATIENCE_MS, |w| w.store.topics.len() == 2));
        let old = world.controller().unwrap();
        // It has something to write, and does not hear that its node is gone until others have taken over.
        world.crash((old + 1) % BROKERS, false);
        let until = world.now_ms() + 100 + seed % 10;
        world.run_until(until, |_| false);
        world.pause(old, 60, true);
        world.perform_operation(Operation::DeleteController);
        let until = world.now_ms() + 400;
        world.run_until(until, |_| false);
        holds(&world);
        world.heal();
        assert!(world.run_until(world.now_ms() + PATIENCE_MS, World::is_well), "seed {seed}");
        holds(&world);
        fenced += world.coverage().count(Reached::FencedWrite);
    }
    assert!(fenced > 0, "no write was ever fenced: the scenario shows nothing");
}
