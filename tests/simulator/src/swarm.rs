//! The configuration of one run, drawn from its seed: which faults happen and how often. Narrow mixes find what one wide mix hides.

use barnabas_types::{FlushMode, TopicConfig};

use crate::prng::Prng;
use crate::world::BROKERS;

/// Something done to the world on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Ask the controller for a new topic (also of a name that was deleted).
    CreateTopic,
    /// Ask the controller for one partition more.
    AddPartition,
    /// Ask the controller to delete one.
    DeleteTopic,
    /// SIGKILL; the page cache stays.
    CrashProcess,
    /// The host loses power.
    CrashHost,
    /// A follower's host dies and is back at once, while what it sent is still on the way.
    Bounce,
    /// Every host or process at once.
    CrashAll,
    /// SIGSTOP, and SIGCONT later.
    Pause,
    /// The ensemble ends a live broker's session.
    ExpireSession,
    /// Somebody deletes `/controller`.
    DeleteController,
    /// A controller takes some broker for gone, right or wrong.
    SuspectBroker,
    /// A broker takes the controller for gone, right or wrong.
    SuspectController,
    /// Somebody writes a state node again as it is, so that its version is another one than the controller knows.
    TouchState,
    /// A broker loses the ensemble for a while.
    CutStore,
    /// One direction between two brokers fails for a while.
    CutOneWay,
    /// A broker is cut off from the other brokers for a while.
    Isolate,
    /// A host's clock jumps ahead (a suspended machine).
    JumpClock,
    /// Retention on one replica.
    Retention,
    /// A client asks a leader to delete records.
    DeleteRecords,
    /// A broker's disk has no room for a while.
    FillDisk,
    /// A broker's next sync fails.
    FailSync,
    /// SIGTERM.
    Shutdown,
    /// An operator drains a broker, or undrains it.
    Drain,
    /// An operator wants the preferred leader of a partition.
    ElectPreferred,
    /// An operator wants any leader of a partition that has none.
    ElectUnclean,
    /// An operator changes a topic's `flush.mode`.
    SwitchFlushMode,
    /// An operator moves a partition's replicas, also in the middle of a move.
    Reassign,
    /// An operator cancels a move.
    CancelMove,
}

/// One run's mix.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// How many brokers there are: 3, or more where replicas move.
    pub brokers: usize,
    /// Operations and their weights.
    pub operations: Vec<(Operation, u64)>,
    /// Mean time between operations.
    pub operation_interval_ms: u64,
    /// Mean time between produce requests.
    pub produce_interval_ms: u64,
    /// Longest usual delay of a message.
    pub net_delay_ms_max: u64,
    /// Messages that take up to 30 times as long, per 1,000.
    pub net_slow_permille: u64,
    /// Messages lost, per 1,000.
    pub net_drop_permille: u64,
    /// Messages that arrive twice, per 1,000.
    pub net_duplicate_permille: u64,
    /// Longest usual delay to and from the ensemble.
    pub store_delay_ms_max: u64,
    /// Requests whose outcome stays unknown, per 1,000.
    pub store_unknown_permille: u64,
    /// Names of topics in play.
    pub topics: u64,
    /// Partitions of each.
    pub partitions: i32,
    /// Settings of every topic of the run.
    pub config: TopicConfig,
    /// Mean time between flushes of a partition.
    pub flush_interval_ms: u64,
    /// Longest time of a flush.
    pub flush_ms_max: u64,
    /// How long a crashed broker stays down, at most.
    pub down_ms_max: u64,
    /// Most records in a fetch answer.
    pub fetch_records_max: i64,
    /// Session timeout.
    pub session_timeout_ms: u64,
    /// `replica.lag.time.max.ms`.
    pub lag_time_max_ms: u64,
    /// Producers that go on after an acknowledgement, per 1,000 of them.
    pub follow_up_permille: u64,
    /// Controlled shutdowns without a timeout are all that happens: nobody may notice any (AV).
    pub only_shutdowns: bool,
    /// Brokers notice that a process is gone, and suspect it.
    pub suspicion: bool,
}

impl Swarm {
    /// Draws the mix.
    #[must_use]
    pub fn draw(prng: &mut Prng) -> Self {
        use Operation as O;
        let all = [
            (O::CreateTopic, 4),
            (O::DeleteTopic, 1),
            (O::CrashProcess, 6),
            (O::CrashHost, 3),
            (O::Bounce, 3),
            (O::CrashAll, 1),
            (O::Pause, 4),
            (O::ExpireSession, 4),
            (O::DeleteController, 3),
            (O::CutStore, 3),
            (O::CutOneWay, 4),
            (O::Isolate, 2),
        ];
        let mut operations: Vec<(O, u64)> = all
            .into_iter()
            .filter_map(|(op, weight)| {
                let enabled = op == O::CreateTopic || prng.chance(600);
                enabled.then(|| (op, weight * prng.range(1, 4)))
            })
            .collect();
        // Half of the runs are without: they are narrow mixes, too.
        if prng.chance(500) {
            let log = [
                (O::Retention, 3),
                (O::DeleteRecords, 5),
                (O::FillDisk, 2),
                (O::FailSync, 2),
                (O::SwitchFlushMode, 2),
            ];
            for (op, weight) in log {
                if prng.chance(700) {
                    operations.push((op, weight * prng.range(1, 4)));
                }
            }
        }
        if prng.chance(400) {
            let rare = [(O::AddPartition, 3), (O::TouchState, 2), (O::JumpClock, 4)];
            for (op, weight) in rare {
                if prng.chance(700) {
                    operations.push((op, weight * prng.range(1, 3)));
                }
            }
        }
        // A third of the runs drains and elects, too.
        if prng.chance(350) {
            let asked =
                [(O::Shutdown, 4), (O::Drain, 3), (O::ElectPreferred, 3), (O::ElectUnclean, 3)];
            for (op, weight) in asked {
                if prng.chance(700) {
                    operations.push((op, weight * prng.range(1, 4)));
                }
            }
        }
        let only_shutdowns = prng.chance(60);
        if operations.len() == 1 {
            operations.push((O::CrashProcess, 4));
        }
        let quiet = |prng: &mut Prng, max| if prng.chance(400) { 0 } else { prng.range(1, max) };
        let sync = prng.chance(350);
        let mut swarm = Self {
            brokers: BROKERS,
            operations,
            operation_interval_ms: prng.range(20, 150),
            produce_interval_ms: prng.range(3, 25),
            net_delay_ms_max: prng.range(1, 6),
            net_slow_permille: quiet(prng, 60),
            net_drop_permille: quiet(prng, 40),
            net_duplicate_permille: quiet(prng, 60),
            store_delay_ms_max: prng.range(1, 6),
            store_unknown_permille: quiet(prng, 60),
            topics: prng.range(1, 3),
            partitions: prng.range(1, 2) as i32,
            config: TopicConfig {
                min_insync_replicas: prng.range(1, 2) as u32,
                unclean_leader_election: prng.chance(250),
                flush_mode: if sync { FlushMode::Sync } else { FlushMode::Async },
                ..TopicConfig::default()
            },
            flush_interval_ms: if sync { prng.range(2, 12) } else { prng.range(30, 400) },
            flush_ms_max: prng.range(1, 15),
            down_ms_max: prng.range(30, 500),
            fetch_records_max: prng.range(1, 8) as i64,
            session_timeout_ms: prng.range(80, 200),
            lag_time_max_ms: prng.range(80, 240),
            follow_up_permille: 0,
            only_shutdowns: false,
            suspicion: false,
        };
        if only_shutdowns {
            return swarm.of_shutdowns();
        }
        // Last, and in some of the runs only: the others are what they were without moves.
        if prng.chance(350) {
            swarm.brokers += prng.range(0, 2) as usize;
            swarm.operations.push((O::Reassign, prng.range(4, 20)));
            swarm.operations.push((O::CancelMove, prng.range(0, 6)));
        }
        if prng.chance(300) {
            swarm.follow_up_permille = prng.range(100, 1000);
        }
        if prng.chance(500) {
            swarm.suspicion = true;
            swarm.operations.push((O::SuspectBroker, prng.range(0, 12)));
            swarm.operations.push((O::SuspectController, prng.range(0, 6)));
        }
        swarm
    }

    /// The same world without any fault but brokers that are told to stop, and elections.
    fn of_shutdowns(self) -> Self {
        use Operation as O;
        Self {
            operations: vec![(O::CreateTopic, 1), (O::Shutdown, 6), (O::ElectPreferred, 2)],
            net_slow_permille: 0,
            net_drop_permille: 0,
            net_duplicate_permille: 0,
            store_unknown_permille: 0,
            session_timeout_ms: 60_000,
            lag_time_max_ms: 60_000,
            only_shutdowns: true,
            ..self
        }
    }

    /// No fault of itself: for scenarios that name theirs.
    #[must_use]
    pub fn quiet() -> Self {
        Self {
            brokers: BROKERS,
            operations: vec![(Operation::CreateTopic, 1)],
            operation_interval_ms: 50,
            produce_interval_ms: 10,
            net_delay_ms_max: 3,
            net_slow_permille: 0,
            net_drop_permille: 0,
            net_duplicate_permille: 0,
            store_delay_ms_max: 3,
            store_unknown_permille: 0,
            topics: 2,
            partitions: 2,
            config: TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() },
            flush_interval_ms: 50,
            flush_ms_max: 5,
            down_ms_max: 40,
            fetch_records_max: 4,
            session_timeout_ms: 100,
            lag_time_max_ms: 120,
            follow_up_permille: 0,
            only_shutdowns: false,
            suspicion: false,
        }
    }

    /// Draws the next operation.
    pub fn operation(&self, prng: &mut Prng) -> Operation {
        let total: u64 = self.operations.iter().map(|(_, weight)| weight).sum();
        let mut ticket = prng.below(total);
        for (operation, weight) in &self.operations {
            if ticket < *weight {
                return *operation;
            }
            ticket -= weight;
        }
        Operation::CreateTopic
    }
}
