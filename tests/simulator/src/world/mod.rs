//! The world: three to five brokers, an ensemble, a network, clients and a hand that breaks things, all on one virtual clock.

mod agent;
mod candidacy;
mod clients;
mod disk_trouble;
mod draining;
mod fetching;
mod flush_mode;
mod follow_ups;
mod inspect;
mod log_start;
mod moves;
mod operations;
mod planted;
mod pushing;
mod replicas;
mod script;
mod sessions;
mod suspicion;
mod term;
mod writes;

use std::collections::BTreeMap;

pub use follow_ups::Before;
pub use script::Told;

use barnabas_controller_core::{Candidate, SessionId};
use barnabas_types::{
    BrokerId, ControllerEpoch, DirectoryId, LeaderEpoch, Now, PartitionEpoch, TopicPartition,
};

use crate::checkers::{self, Checkers, Violation};
use crate::coverage::{Coverage, Reached};
use crate::disk::Disk;
use crate::happening::{Happening, Input, Ix};
use crate::mutation::Mutation;
use crate::prng::Prng;
use crate::process::{Process, is_message};
use crate::queue::Queue;
use crate::store::Store;
use crate::swarm::Swarm;
use crate::trace::Trace;

/// Brokers in most worlds; the others have more, so that replicas can move.
pub const BROKERS: usize = 3;

/// How long the world may take to become well again, in virtual milliseconds.
const LIVENESS_MS_MAX: u64 = 12_000;

/// How long the last records of the liveness phase may take before they are sent again.
const LAST_WORDS_MS: u64 = 1_000;

/// Events after which a run is given up as endless.
const EVENTS_MAX: u64 = 400_000;

/// What a run is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed that decides everything.
    pub seed: u64,
    /// Events of the fault phase, at least.
    pub events: u64,
    /// The planted bug.
    pub mutation: Option<Mutation>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The first broken invariant.
    pub violation: Option<Violation>,
    /// What was reached.
    pub coverage: Coverage,
    /// Virtual time at the end, in milliseconds.
    pub virtual_ms: u64,
}

/// Everything.
pub struct World {
    pub(crate) options: Options,
    pub(crate) swarm: Swarm,
    pub(crate) queue: Queue<Happening>,
    pub(crate) net: Prng,
    pub(crate) fate: Prng,
    pub(crate) choice: Prng,
    pub(crate) ids: Prng,
    pub(crate) follow: Prng,
    /// The ensemble.
    pub store: Store,
    pub(crate) session_owner: BTreeMap<SessionId, Ix>,
    pub(crate) session_generation: BTreeMap<SessionId, u64>,
    /// The brokers' processes.
    pub processes: Vec<Process>,
    /// The brokers' disks.
    pub disks: Vec<Disk>,
    /// Whether the ensemble can be reached.
    pub(crate) store_link: Vec<bool>,
    /// Whether messages from `[from]` to `[to]` pass.
    pub(crate) link: Vec<Vec<bool>>,
    /// How far each host's clock has jumped ahead; it never goes back, since the cores are given a monotonic one.
    pub(crate) clock_ahead_ms: Vec<u64>,
    /// Earliest arrival of a broker's next request at the ensemble, and of the next answer: both in order.
    pub(crate) store_order: Vec<(u64, u64)>,
    pub(crate) correlations: u64,
    pub(crate) values: u64,
    /// Leader epochs of unclean elections that an operator asked for.
    pub(crate) demanded: std::collections::BTreeSet<(TopicPartition, i64, LeaderEpoch)>,
    /// The partition epochs that operators were shown before they asked for unclean elections (R39).
    pub(crate) shown: std::collections::BTreeSet<(TopicPartition, PartitionEpoch)>,
    pub(crate) names_used: BTreeMap<barnabas_types::TopicName, u64>,
    /// Replicas that the present event may have changed.
    pub(crate) touched: Vec<(Ix, TopicPartition)>,
    /// HW and truncations at the last comparison of logs.
    pub(crate) compared: BTreeMap<(Ix, TopicPartition), (i64, u64)>,
    pub(crate) checkers: Checkers,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    /// Under which controller each move that is under way began.
    pub(crate) move_began: BTreeMap<TopicPartition, ControllerEpoch>,
    /// The broker that a planted bug takes for gone in the present step.
    pub(crate) suspecting: Option<BrokerId>,
    /// The fault phase is over.
    pub(crate) healed: bool,
    pub(crate) judged_well: bool,
    pub(crate) deadline_ms: u64,
    /// How many acknowledgements there must be after the last records of the liveness phase, and when those were sent.
    pub(crate) last_words: Option<(u64, u64)>,
    /// What producers were told, if a script wants to know.
    pub(crate) answers: Option<Vec<Told>>,
}

/// The id of a broker.
#[must_use]
pub fn id_of(ix: Ix) -> BrokerId {
    BrokerId(ix as i32 + 1)
}

/// The index of a broker.
#[must_use]
pub fn ix_of(id: BrokerId) -> Ix {
    usize::try_from(id.0 - 1).unwrap_or(0)
}

impl World {
    /// A world in which nothing has happened yet.
    #[must_use]
    pub fn new(options: Options, trace: Trace) -> Self {
        let seed = options.seed;
        let swarm = Swarm::draw(&mut Prng::stream(seed, 1));
        Self::with_swarm(options, swarm, trace)
    }

    /// The same with a given mix, for scenarios.
    #[must_use]
    pub fn with_swarm(options: Options, swarm: Swarm, trace: Trace) -> Self {
        let seed = options.seed;
        let mut ids = Prng::stream(seed, 5);
        let brokers = swarm.brokers;
        let disks: Vec<Disk> =
            (0..brokers).map(|_| Disk::new(DirectoryId(ids.bytes16()))).collect();
        let processes = disks
            .iter()
            .enumerate()
            .map(|(b, disk)| Process::new(0, Candidate::new(id_of(b), disk.directory_id)))
            .collect();
        let mut store = Store::default();
        store.mutation = options.mutation;
        store.statics = swarm.config;
        let mut world = Self {
            options,
            swarm,
            queue: Queue::default(),
            net: Prng::stream(seed, 2),
            fate: Prng::stream(seed, 3),
            choice: Prng::stream(seed, 4),
            follow: Prng::stream(seed, 6),
            ids,
            store,
            session_owner: BTreeMap::new(),
            session_generation: BTreeMap::new(),
            processes,
            disks,
            store_link: vec![true; brokers],
            link: vec![vec![true; brokers]; brokers],
            clock_ahead_ms: vec![0; brokers],
            store_order: vec![(0, 0); brokers],
            correlations: 0,
            values: 0,
            demanded: std::collections::BTreeSet::new(),
            shown: std::collections::BTreeSet::new(),
            names_used: BTreeMap::new(),
            touched: Vec::new(),
            compared: BTreeMap::new(),
            checkers: Checkers::default(),
            coverage: Coverage::default(),
            trace,
            move_began: BTreeMap::new(),
            suspecting: None,
            healed: false,
            judged_well: false,
            deadline_ms: u64::MAX,
            last_words: None,
            answers: None,
        };
        for broker in 0..brokers {
            let delay = world.choice.range(0, 60);
            world.queue.after(delay, Happening::Restart { broker });
        }
        world
    }

    /// Runs the fault phase, then the liveness phase, until all is well or something is broken.
    #[must_use]
    pub fn run(mut self) -> (Outcome, Trace) {
        self.run_in_place();
        self.finish()
    }

    /// The same, for whoever wants to look at the world afterwards.
    pub fn run_in_place(&mut self) {
        self.begin_clients();
        while self.checkers.violation.is_none() && !self.judged_well {
            if !self.healed && self.coverage.events >= self.options.events {
                self.heal();
            }
            if !self.advance() {
                break;
            }
        }
    }

    /// Operator and producers begin.
    pub fn begin_clients(&mut self) {
        self.queue.after(120, Happening::Operate);
        self.queue.after(150, Happening::Produce);
    }

    /// The broker that acts as controller and owns `/controller`, if there is exactly one that acts.
    #[must_use]
    pub fn controller(&self) -> Option<Ix> {
        let acting: Vec<Ix> =
            (0..self.swarm.brokers).filter(|b| self.processes[*b].acts_as_controller()).collect();
        let [only] = acting[..] else { return None };
        let session = self.processes[only].term.as_ref().map(|t| t.session);
        (self.store.controller.map(|c| c.owner) == session).then_some(only)
    }

    /// Whether the liveness phase has ended well.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.judged_well
    }

    /// The lines of the trace that were kept.
    #[must_use]
    pub fn trace_lines(&self) -> Vec<String> {
        self.trace.lines().map(str::to_owned).collect()
    }

    /// Ends the run.
    #[must_use]
    pub fn finish(mut self) -> (Outcome, Trace) {
        for _ in 0..self.checkers.losses_met {
            self.reach(Reached::LossDetected);
        }
        let outcome = Outcome {
            violation: self.checkers.violation,
            coverage: self.coverage,
            virtual_ms: self.queue.now_ms(),
        };
        (outcome, self.trace)
    }

    /// Takes the next thing off the schedule; `false` if there is none.
    pub fn advance(&mut self) -> bool {
        let Some(happening) = self.queue.pop() else { return false };
        self.coverage.events += 1;
        if self.coverage.events > EVENTS_MAX {
            self.checkers.broken("I12", "the run does not end".to_owned());
        }
        self.deliver(happening);
        self.inspect();
        true
    }

    /// Runs until `done` or the moment `until_ms`. `true` if done.
    pub fn run_until(&mut self, until_ms: u64, done: impl Fn(&World) -> bool) -> bool {
        while self.queue.now_ms() < until_ms && self.checkers.violation.is_none() {
            if done(self) {
                return true;
            }
            if !self.advance() {
                return false;
            }
        }
        done(self)
    }

    /// The broken invariant, if one is.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.checkers.violation.as_ref()
    }

    /// What was reached so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Virtual time in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.queue.now_ms()
    }

    /// A broker's clock: its host's, which may be ahead of the others'.
    pub(crate) fn now_of(&self, b: Ix) -> Now {
        Now(self.queue.now_ms() + self.clock_ahead_ms[b])
    }

    pub(crate) fn reach(&mut self, what: Reached) {
        self.coverage.reach(what);
    }

    pub(crate) fn is_mutated(&self, mutation: Mutation) -> bool {
        self.options.mutation == Some(mutation)
    }

    pub(crate) fn correlation(&mut self) -> u64 {
        self.correlations += 1;
        self.correlations
    }

    /// One line of the trace: time, who, what, with which particulars.
    pub(crate) fn note(&mut self, who: Option<Ix>, what: &str, text: impl FnOnce() -> String) {
        if self.trace.is_on() {
            let who = who.map_or_else(|| "-".to_owned(), |b| format!("b{}", b + 1));
            let line = format!(
                "{:>7} {:>6} {who:<3} {what:<14} {}",
                self.queue.now_ms(),
                self.coverage.events,
                text()
            );
            self.trace.line(line);
        }
    }

    fn deliver(&mut self, happening: Happening) {
        match happening {
            Happening::Input { to, life, from, input } => self.input(to, life, from, input),
            Happening::Store { from, life, session, id, request, answered } => {
                let held = self.processes[from].paused
                    && self.processes[from].holds_sent
                    && self.processes[from].life == life;
                if held {
                    let again = Happening::Store { from, life, session, id, request, answered };
                    self.processes[from].held.push(again);
                } else {
                    self.store_hears(from, life, session, id, request, answered);
                }
            }
            Happening::SessionTimeout { session, generation } => {
                self.session_timeout(session, generation);
            }
            Happening::Produce => self.produce(),
            Happening::Operate => self.operate(),
            Happening::Perform(operation) => self.perform_operation(operation),
            Happening::Restart { broker } => self.start(broker),
            Happening::Continue { broker, life } => self.go_on(broker, life),
            Happening::Bounce { broker, life } => self.bounced(broker, life),
            Happening::MakeRoom { broker } => self.make_room(broker),
            Happening::HealStore { broker } => self.heal_store(broker),
            Happening::HealLink { from, to } => {
                self.link[from][to] = true;
                self.note(Some(from), "heal link", || format!("to b{}", to + 1));
            }
            Happening::Judge => self.judge(),
        }
    }

    fn input(&mut self, to: Ix, life: Option<u32>, from: Option<Ix>, input: Input) {
        let process = &mut self.processes[to];
        if !process.up || life.is_some_and(|life| life != process.life) {
            return;
        }
        if process.paused {
            process.held.push(Happening::Input { to, life, from, input });
            return;
        }
        if let Some(sender) = from
            && is_message(&input)
            && self.processes[sender].paused
            && self.processes[sender].holds_sent
        {
            self.processes[sender].held.push(Happening::Input { to, life, from, input });
            return;
        }
        self.handle(to, from, input);
    }

    fn handle(&mut self, b: Ix, from: Option<Ix>, input: Input) {
        match input {
            Input::StoreAnswer { session, id, answer } => {
                self.store_answered(b, session, id, answer)
            }
            Input::StoreUnknown { session, id } => self.store_unknown(b, session, id),
            Input::Watch(watch) => self.watch_fired(b, watch),
            Input::StoreDown { session } => self.store_down(b, session),
            Input::StoreUp { session } => self.store_up(b, session),
            Input::StoreHalfAway { session, generation } => {
                self.store_half_away(b, session, generation);
            }
            Input::StoreExpired { session } => self.store_expired(b, session),
            Input::TryConnect => self.try_connect(b),
            Input::AwaitedEnough { session } => self.awaited_enough(b, session),
            Input::Tick => self.tick(b),
            Input::Dial { to } => self.dial(b, to),
            Input::Push(update) => self.pushed(b, *update, from),
            Input::PushAck { broker, broker_epoch, term, version, reports } => {
                self.push_acked(b, broker, broker_epoch, term, version, reports);
            }
            Input::PushOverdue { term, broker, broker_epoch, version } => {
                self.push_overdue(b, term, broker, broker_epoch, version);
            }
            Input::Alter { correlation, life, proposal } => {
                self.alter_asked(b, from.unwrap_or(b), life, correlation, *proposal);
            }
            Input::AlterAnswer { partition, correlation, proposal, answer } => {
                self.alter_answered(b, &partition, correlation, &proposal, answer);
            }
            Input::AlterOverdue { partition, incarnation, correlation } => {
                self.alter_overdue(b, &partition, incarnation, correlation);
            }
            Input::Fetch { partition, correlation, life, fetch } => {
                self.fetch_asked(b, from.unwrap_or(b), life, &partition, correlation, fetch);
            }
            Input::Fetched { partition, correlation, roll_call, answer, records } => {
                self.fetch_answered(b, &partition, correlation, roll_call, answer, records);
            }
            Input::FetchNow { partition } => self.fetch_now(b, &partition),
            Input::FetchOverdue { partition, correlation } => {
                self.fetch_overdue(b, &partition, correlation);
            }
            Input::ParkOver { partition, from, correlation } => {
                self.park_over(b, &partition, from, correlation);
            }
            Input::Produce { partition, acks, values } => {
                self.produced(b, &partition, acks, values)
            }
            Input::FollowUp { partition, before } => self.followed_up(b, &partition, before),
            Input::ProduceOverdue { partition, incarnation, waiter } => {
                self.produce_overdue(b, &partition, incarnation, waiter);
            }
            Input::DeleteRecords { partition, to } => self.delete_records(b, &partition, to),
            Input::DeletionOverdue { partition, incarnation, waiter } => {
                self.deletion_overdue(b, &partition, incarnation, waiter);
            }
            Input::WriteStart { partition, incarnation } => {
                self.write_start(b, &partition, incarnation);
            }
            Input::StartWritten { partition, incarnation, to } => {
                self.start_written(b, &partition, incarnation, to);
            }
            Input::Flush { partition, incarnation } => self.flush(b, &partition, incarnation),
            Input::FlushDone { partition, incarnation, to, truncations } => {
                self.flush_done(b, &partition, incarnation, to, truncations);
            }
            Input::RegisterAnew => self.register_anew(b),
            Input::Failed(report) => self.replicas_failed(b, *report),
            Input::CreateTopic { name, id } => self.create_asked(b, name, id),
            Input::DeleteTopic { name } => self.delete_asked(b, name),
            Input::AddPartition { name } => self.partition_asked(b, name),
            Input::SwitchFlushMode { entity, mode } => self.switch_asked(b, entity, mode),
            Input::DrainNow => self.drain_now(b),
            Input::DrainAsk { life, broker_epoch, draining } => {
                self.drain_asked(b, from.unwrap_or(b), life, (broker_epoch, draining));
            }
            Input::DrainAnswer { broker_epoch, draining, may_stop, refused } => {
                self.drain_progressed(b, (broker_epoch, draining), may_stop, refused);
            }
            Input::ShutdownOver => self.shutdown_over(b),
            Input::StopNow => self.stop_now(b),
            Input::Elect { partition, unclean } => self.election_asked(b, partition, unclean),
            Input::Reassign { partition, wish } => self.reassign_asked(b, partition, wish),
            Input::EndMove { partition } => self.end_move(b, partition),
            Input::ConfirmationDue { term, request } => self.confirmation_due(b, term, request),
        }
    }

    /// Sends a message over the network. `life`: only that incarnation of the receiver may get it.
    pub(crate) fn send(&mut self, from: Ix, to: Ix, life: Option<u32>, input: Input) {
        if from == to {
            self.queue.after(0, Happening::Input { to, life, from: None, input });
            return;
        }
        if !self.link[from][to] {
            return;
        }
        let mut copies = 1;
        if !self.healed {
            if self.net.chance(self.swarm.net_drop_permille) {
                self.reach(Reached::Dropped);
                self.note(Some(from), "dropped", || format!("to b{}", to + 1));
                return;
            }
            if self.net.chance(self.swarm.net_duplicate_permille) {
                self.reach(Reached::Duplicated);
                copies = 2;
            }
        }
        for copy in 0..copies {
            let usual = self.net.range(1, self.swarm.net_delay_ms_max);
            let slow = !self.healed && self.net.chance(self.swarm.net_slow_permille);
            let late = copy > 0 || slow;
            let delay = if late { usual * self.net.range(2, 30) } else { usual };
            let input = input.clone();
            self.queue.after(delay, Happening::Input { to, life, from: Some(from), input });
        }
    }

    /// Something that a process will do by itself.
    pub(crate) fn later(&mut self, b: Ix, delay_ms: u64, input: Input) {
        let life = Some(self.processes[b].life);
        self.queue.after(delay_ms, Happening::Input { to: b, life, from: None, input });
    }

    fn say_last_words(&mut self) {
        let asked = self.produce_last_words();
        let acked = self.coverage.count(Reached::AckedAll);
        self.last_words = Some((acked + asked, self.queue.now_ms()));
        self.queue.after(40, Happening::Judge);
    }

    fn judge(&mut self) {
        match checkers::judge(self) {
            None => match self.last_words {
                None => {
                    // One last record for each partition: being well means to serve.
                    self.note(None, "well", String::new);
                    self.say_last_words();
                }
                Some((wanted, _)) if self.coverage.count(Reached::AckedAll) >= wanted => {
                    self.judged_well = true;
                    self.note(None, "well and serving", String::new);
                }
                Some(_) if self.queue.now_ms() >= self.deadline_ms => {
                    self.checkers
                        .broken("I12", "a healed partition does not take records".to_owned());
                }
                // A leader may not have heard of its ISR yet, and have refused: clients try again.
                Some((_, since)) if self.queue.now_ms() >= since + LAST_WORDS_MS => {
                    self.say_last_words();
                }
                Some(_) => self.queue.after(40, Happening::Judge),
            },
            Some(why) if self.queue.now_ms() >= self.deadline_ms => {
                self.checkers.broken(
                    "I12",
                    format!("not well {LIVENESS_MS_MAX} ms after the last fault: {why}"),
                );
            }
            Some(why) => {
                self.note(None, "not well yet", || why);
                self.queue.after(40, Happening::Judge);
            }
        }
    }
}
