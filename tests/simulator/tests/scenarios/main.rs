//! Faults that clusters like this one really had, each as a script over the real cores, twenty times with other delays.
//!
//! They are named after the collection that they come from: (a) election and fencing, (b) ISR and leaders, (c) high watermark and
//! divergence, (e) producers. Every invariant is checked after every event, and each script ends with everything mended and the
//! wait until all is well: one controller, full ISR, equal logs, a record taken by every partition.
//!
//! What the cores cannot express is shown by real processes alone: A2 (a second process with a used id), C5's file positions, C8's
//! hand-made requests, E1 and E3 (idempotent producers; the world's records have no sequences).

mod a;
mod b;
mod c;
mod e;

use barnabas_simulator::{BROKERS, Options, Swarm, Told, Trace, World};
use barnabas_types::{Acks, TopicConfig, TopicName, TopicPartition};

/// How often each script runs in a row.
const ROUNDS: u64 = 20;
/// How long anything may take, in virtual milliseconds.
const PATIENCE_MS: u64 = 5_000;

/// A world with an elected controller, all brokers and one topic of three replicas, all in sync.
struct Stage {
    world: World,
    at: TopicPartition,
    seed: u64,
}

/// Nothing goes wrong by itself; `min.insync.replicas` as given.
fn quiet(min_insync_replicas: u32) -> Swarm {
    Swarm {
        topics: 1,
        partitions: 1,
        config: TopicConfig { min_insync_replicas, ..TopicConfig::default() },
        ..Swarm::quiet()
    }
}

/// Runs a script with twenty seeds.
fn rounds(swarm: &Swarm, script: impl Fn(&mut Stage)) {
    for seed in 0..ROUNDS {
        let mut stage = Stage::new(seed, swarm.clone());
        script(&mut stage);
        stage.end();
    }
}

impl Stage {
    fn new(seed: u64, swarm: Swarm) -> Self {
        let options = Options { seed, events: 500, mutation: None };
        let mut world = World::with_swarm(options, swarm, Trace::keep(400));
        world.keep_answers();
        let name = TopicName::new("t").unwrap();
        let at = TopicPartition { topic: name.clone(), partition: 0 };
        let mut stage = Self { world, at, seed };
        stage.until("the controller knows every broker", |w, _| w.is_assembled());
        stage.world.create(&name);
        stage.until("the topic is led and followed", |w, at| {
            let leader = w.leader_of(at);
            leader.is_some_and(|l| w.is_led_by(at, l))
                && w.assigned_to(at).iter().all(|b| w.processes[*b].slots.contains_key(at))
        });
        stage
    }

    /// Waits until this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&World, &TopicPartition) -> bool) {
        let at = self.at.clone();
        let until = self.world.now_ms() + PATIENCE_MS;
        let done = self.world.run_until(until, |w| holds(w, &at));
        self.unbroken();
        let lines = || self.world.trace_lines().join("\n");
        assert!(done, "seed {}: waited in vain until {what}\n{}", self.seed, lines());
    }

    /// Lets this time pass.
    fn elapse(&mut self, ms: u64) {
        let until = self.world.now_ms() + ms;
        // Without an event nothing passes; there is always one, since brokers tick.
        self.world.run_until(until, |_| false);
        self.unbroken();
    }

    fn unbroken(&self) {
        if let Some(violation) = self.world.violation() {
            let lines = self.world.trace_lines().join("\n");
            panic!("seed {}: {}: {}\n{lines}", self.seed, violation.invariant, violation.text);
        }
    }

    fn controller(&self) -> usize {
        self.world.controller().expect("a controller")
    }

    fn leader(&self) -> usize {
        self.world.leader_of(&self.at).expect("a leader")
    }

    /// The two that do not lead; the last one is not the controller.
    fn followers(&self) -> [usize; 2] {
        let leader = self.leader();
        let [first, last] = [(leader + 1) % BROKERS, (leader + 2) % BROKERS];
        if self.world.controller() == Some(last) { [last, first] } else { [first, last] }
    }

    /// Goes on with the partition that the controller leads; the run needs three partitions.
    fn choose_the_controllers(&mut self) {
        let c = self.controller();
        let led = |index: &i32| {
            let at = TopicPartition { partition: *index, ..self.at.clone() };
            self.world.leader_of(&at) == Some(c)
        };
        self.at.partition = (0..3).find(led).expect("leaders are spread evenly");
        self.until("it leads", move |w, at| w.is_led_by(at, c));
    }

    /// One request to a broker; the first of its records.
    fn produce(&mut self, to: usize, acks: Acks) -> u64 {
        let at = self.at.clone();
        self.world.produce_at(to, &at, acks)
    }

    /// What the producer of this record was told.
    fn told(&self, value: u64) -> Option<&Told> {
        self.world.answers().iter().find(|told| told.value == value)
    }

    /// Produces at acks=all to the present leader and waits for the success.
    fn produce_acked(&mut self) {
        let leader = self.leader();
        let value = self.produce(leader, Acks::All);
        let until = self.world.now_ms() + PATIENCE_MS;
        let acked = |w: &World| w.answers().iter().any(|t| t.value == value && t.result.is_ok());
        let done = self.world.run_until(until, acked);
        self.unbroken();
        assert!(done, "seed {}: not acknowledged: {:?}", self.seed, self.told(value));
    }

    fn until_leader_is_not(&mut self, old: usize) -> usize {
        self.until("another leader", |w, at| {
            w.leader_of(at).is_some_and(|l| l != old && w.is_led_by(at, l))
        });
        self.leader()
    }

    fn until_isr(&mut self, members: usize) {
        self.until("the ISR has its size", move |w, at| {
            w.isr_of(at).len() == members && (members < BROKERS || w.is_in_sync(at))
        });
    }

    /// Everything is mended; all becomes well, and serves.
    fn end(&mut self) {
        self.world.heal();
        let until = self.world.now_ms() + 3 * PATIENCE_MS;
        let well = self.world.run_until(until, World::is_well);
        self.unbroken();
        let lines = || self.world.trace_lines().join("\n");
        assert!(well, "seed {}: not well after everything was mended\n{}", self.seed, lines());
    }
}
