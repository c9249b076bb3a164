//! What flushing costs: `cargo bench -p barnabas-broker --bench flush`. Each line is one JSON object.
//!
//! Real files under `$BARNABAS_BENCH_DIR` (default: `target/flush-bench`), so that the answer is the disk's; everything that is
//! compared runs in turns in one run, and the figure to look at is the ratio. Replicas are used in this process, without
//! clients' sockets; only the followers fetch over loopback.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use barnabas_broker::config::GroupConfig;
use barnabas_broker::connection::{Out, listen};
use barnabas_broker::node::{Node, Options, Parts};
use barnabas_broker::partition::{Aftermath, Flush, Hosted, Outward, PendingProduce};
use barnabas_broker::storage::{Locked, Owner, Storage, Wanted};
use barnabas_broker::view::View;
use barnabas_controller::{ControllerClient, ControllerHandle, Membership};
use barnabas_log::LogConfig;
use barnabas_log::testing::BatchBuilder;
use barnabas_replica::{LogState, Replica, ReplicaOptions, StatePush};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, BrokerImage, ClusterDelta, ClusterId, ControllerEpoch, FlushMode,
    Incarnation, LeaderEpoch, Partition, PartitionEpoch, PartitionState, TopicConfig, TopicId,
    TopicName, TopicPartition,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
/// Latencies are compared in short turns: the machine may be busy with other things now and then.
const SLICES: usize = 60;
const SLICE: Duration = Duration::from_millis(100);
const PRODUCERS: usize = 64;
/// Bytes of a record in sync mode.
const RECORD_BYTES: usize = 4000;
const LIFE: Incarnation = Incarnation { topic_id: TopicId([7; 16]), czxid: 70 };

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = std::env::var_os("BARNABAS_BENCH_DIR")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("flush-bench"), PathBuf::from);
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let cells: [(&str, Cell); 4] = [
        ("sync_one_producer", sync_one_producer),
        ("sync_group_commit", sync_group_commit),
        ("sync_three_replicas", sync_three_replicas),
        ("async_limits", async_limits),
    ];
    for (name, cell) in cells {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            let _ = std::fs::remove_dir_all(&directory);
            std::fs::create_dir_all(&directory).expect("the directory can be made");
            println!(
                "{}",
                json!({ "bench": name, "figures": cell(&Bench { runtime: &runtime, directory: &directory }) })
            );
        }
    }
    let _ = std::fs::remove_dir_all(&directory);
}

type Cell = fn(&Bench<'_>) -> Value;

struct Bench<'a> {
    runtime: &'a Runtime,
    directory: &'a Path,
}

/// One producer, acks=1, one in flight, against a thread that writes and syncs the same bytes itself.
fn sync_one_producer(bench: &Bench<'_>) -> Value {
    let world = World::new(bench, 1, 1, sync());
    let batch = records(1, RECORD_BYTES);
    let mut raw = Raw::new(bench.directory);
    let mut producer = world.producer(0, &batch);
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..SLICES {
        plain.extend(raw.run(&batch, SLICE));
        ours.extend(producer.run(Acks::Leader, SLICE));
    }
    let (plain, ours) = (percentiles(&mut plain), percentiles(&mut ours));
    json!({
        "raw_us": plain, "broker_us": ours, "p50_ratio": ours[0] / plain[0], "p50_ratio_goal_max": 1.3,
    })
}

/// Commits a second of one producer, of 64 on one partition, and of 64 on 64 partitions.
fn sync_group_commit(bench: &Bench<'_>) -> Value {
    let world = World::new(bench, 1, PRODUCERS, sync());
    let batch = records(1, RECORD_BYTES);
    let mut cells: BTreeMap<&str, Vec<(f64, f64, f64)>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, producers, partitions) in [
            ("one", 1, 1),
            ("on_one", PRODUCERS, 1),
            ("on_eight", PRODUCERS, 8),
            ("on_64", PRODUCERS, PRODUCERS),
        ] {
            let (syncs, cpu) = (world.syncs(), cpu_us());
            let mut latencies = world.together(producers, partitions, &batch, Acks::Leader);
            let commits = latencies.len() as f64;
            let cell = (
                commits / ROUND.as_secs_f64(),
                commits / (world.syncs() - syncs),
                (cpu_us() - cpu) / commits,
            );
            cells.entry(name).or_default().push(cell);
            if name != "one" {
                cells.entry(p50_name(name)).or_default().push((
                    percentiles(&mut latencies)[0],
                    0.0,
                    0.0,
                ));
            }
        }
    }
    let of = |name: &str, pick: fn(&(f64, f64, f64)) -> f64| {
        median(cells[name].iter().map(pick).collect())
    };
    let rate = |name: &str| of(name, |c| c.0);
    let mut figures = json!({
        "group_ratio": rate("on_one") / rate("one"), "group_ratio_goal_min": 15,
        "partitions_ratio": rate("on_64") / rate("on_one"), "partitions_ratio_goal_min": 0.5,
    });
    for name in ["one", "on_one", "on_eight", "on_64"] {
        figures[name] = json!({
            "commits_per_s": rate(name), "commits_per_sync": of(name, |c| c.1), "cpu_us_per_commit": of(name, |c| c.2),
            "p50_us": if name == "one" { Value::Null } else { json!(rate(p50_name(name))) },
        });
    }
    figures
}

fn p50_name(name: &str) -> &'static str {
    match name {
        "on_one" => "p50_on_one",
        "on_eight" => "p50_on_eight",
        _ => "p50_on_64",
    }
}

/// One producer, acks=all, a leader and two followers in sync mode; against one raw write and sync. All on one disk.
fn sync_three_replicas(bench: &Bench<'_>) -> Value {
    let batch = records(1, RECORD_BYTES);
    let mut raw = Raw::new(bench.directory);
    let worlds = [FlushMode::Sync, FlushMode::Async].map(|mode| {
        let config =
            TopicConfig { flush_mode: mode, min_insync_replicas: 2, ..TopicConfig::default() };
        World::new(
            &Bench { directory: &bench.directory.join(format!("{mode:?}")), ..*bench },
            3,
            8,
            config,
        )
    });
    let (mut plain, mut ours) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut producers = worlds.each_ref().map(|world| world.producer(0, &batch));
    for _ in 0..SLICES {
        plain.extend(raw.run(&batch, SLICE));
        for (producer, latencies) in producers.iter_mut().zip(&mut ours) {
            latencies.extend(producer.run(Acks::All, SLICE));
        }
    }
    let together = (0..ROUNDS).map(|_| {
        let commits = worlds[0].together(PRODUCERS, 8, &batch, Acks::All).len();
        commits as f64 / ROUND.as_secs_f64()
    });
    let together = together.collect();
    let [mut sync, mut asynchronous] = ours;
    let plain = percentiles(&mut plain);
    let (sync, asynchronous) = (percentiles(&mut sync), percentiles(&mut asynchronous));
    json!({
        "raw_us": plain, "sync_us": sync, "async_us": asynchronous, "sync_p50_to_raw": sync[0] / plain[0],
        "sync_less_async_to_raw": (sync[0] - asynchronous[0]) / plain[0],
        "commits_per_s_64_on_8": median(together),
    })
}

/// Records a second with `flush.messages` = 10,000 and `flush.ms` = 1,000 against none.
fn async_limits(bench: &Bench<'_>) -> Value {
    let limits = TopicConfig { flush_messages: 10_000, flush_ms: 1_000, ..TopicConfig::default() };
    let worlds = [TopicConfig::default(), limits].map(|config| {
        let name = format!("{}", config.flush_messages);
        World::new(&Bench { directory: &bench.directory.join(name), ..*bench }, 1, 2, config)
    });
    let mut figures = json!({ "ratio_goal_min": 0.95 });
    for per_batch in [1, 10] {
        let batch = records(per_batch, 100);
        let mut rates = [Vec::new(), Vec::new()];
        let flushes = worlds[1].syncs();
        for _ in 0..ROUNDS {
            for (world, rates) in worlds.iter().zip(&mut rates) {
                let done = world.together(2, 2, &batch, Acks::Leader).len() * per_batch;
                rates.push(done as f64 / ROUND.as_secs_f64());
            }
        }
        let flushes = (worlds[1].syncs() - flushes) / (ROUNDS as f64 * ROUND.as_secs_f64());
        let [none, limited] = rates.map(median);
        figures[format!("records_of_100_bytes_{per_batch}_a_batch")] = json!({
            "no_flush_per_s": none, "limited_per_s": limited, "ratio": limited / none, "flushes_per_s": flushes,
        });
    }
    figures
}

/// What a program without a broker does: write, sync, again.
struct Raw {
    file: File,
    at: u64,
}

impl Raw {
    fn new(directory: &Path) -> Self {
        Self { file: File::create(directory.join("raw")).expect("a file"), at: 0 }
    }

    fn run(&mut self, batch: &[u8], time: Duration) -> Vec<Duration> {
        let until = Instant::now() + time;
        let mut latencies = Vec::new();
        loop {
            let began = Instant::now();
            if began >= until {
                return latencies;
            }
            self.file.write_all_at(batch, self.at).expect("a write");
            self.file.sync_data().expect("a sync");
            latencies.push(began.elapsed());
            self.at += batch.len() as u64;
        }
    }
}

/// Brokers 1 to `brokers`; 1 leads every partition.
struct World {
    nodes: Vec<Arc<Node>>,
    /// Of the leader.
    hosted: Vec<Arc<Hosted>>,
    storages: Vec<Arc<Storage>>,
    flushers: Vec<Arc<barnabas_broker::flush::Flusher>>,
    out: Arc<Out>,
    _client: TcpStream,
    _stop: watch::Sender<bool>,
}

impl World {
    fn new(bench: &Bench<'_>, brokers: i32, partitions: usize, config: TopicConfig) -> Self {
        bench.runtime.block_on(Self::start(bench.directory, brokers, partitions, config))
    }

    async fn start(directory: &Path, brokers: i32, partitions: usize, config: TopicConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("a bound port").port();
        let image = |id: i32| BrokerImage {
            epoch: BrokerEpoch(100 + i64::from(id)),
            host: "127.0.0.1".into(),
            port,
            control_address: String::new(),
            rack: None,
            tail_lost: false,
            draining: false,
        };
        let ids: Vec<BrokerId> = (1..=brokers).map(BrokerId).collect();
        let images: BTreeMap<_, _> = ids.iter().map(|id| (*id, image(id.0))).collect();
        let client = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        let (server, _) = listener.accept().await.expect("a connection");
        let (stop, stopped) = watch::channel(false);
        let mut world = Self {
            nodes: Vec::new(),
            hosted: Vec::new(),
            storages: Vec::new(),
            flushers: Vec::new(),
            out: Arc::new(Out::new(Arc::new(server))),
            _client: client,
            _stop: stop,
        };
        for id in &ids {
            let node = node(*id, images[id].epoch);
            let brokers = Some(images.clone());
            let delta = ClusterDelta { full: true, brokers, ..ClusterDelta::default() };
            node.view.apply((BrokerId(9), ControllerEpoch(1)), &delta);
            world.nodes.push(node);
        }
        tokio::spawn(listen(world.nodes[0].clone(), listener, stopped));
        for (at, id) in ids.iter().enumerate() {
            let locked = Locked::lock(&[directory.join(format!("broker-{id}"))]).expect("a lock");
            let owner = Owner {
                broker_id: *id,
                cluster_id: ClusterId("bench".into()),
                has_topics: false,
                restored: None,
                recovery_threads: 1,
            };
            let storage = Arc::new(locked.start(&owner).expect("a start").storage);
            let outward: Weak<dyn Outward> = Arc::downgrade(&world.nodes[at]) as _;
            let flusher = storage.start_flushers(&outward).remove(0).expect("flush threads");
            for index in 0..partitions {
                let hosted = open(&storage, &flusher, *id, index, config);
                lead(&world.nodes[at], &hosted, &images, config);
                if at == 0 {
                    world.hosted.push(hosted);
                }
            }
            world.storages.push(storage);
            world.flushers.push(flusher);
        }
        world
    }

    fn syncs(&self) -> f64 {
        self.flushers[0].counts().partitions as f64
    }

    fn producer(&self, partition: usize, batch: &[u8]) -> Producer {
        Producer {
            node: self.nodes[0].clone(),
            hosted: self.hosted[partition].clone(),
            out: self.out.clone(),
            batch: batch.to_vec(),
            scratch: Vec::new(),
        }
    }

    /// So many producers at once, dealt over the partitions, for one round: the latencies of all commits.
    fn together(
        &self,
        producers: usize,
        partitions: usize,
        batch: &[u8],
        acks: Acks,
    ) -> Vec<Duration> {
        thread::scope(|scope| {
            let running: Vec<_> = (0..producers)
                .map(|n| {
                    let mut producer = self.producer(n % partitions, batch);
                    scope.spawn(move || producer.run(acks, ROUND))
                })
                .collect();
            running.into_iter().flat_map(|run| run.join().expect("a producer")).collect()
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.followers.stop_all();
        }
        for hosted in &self.hosted {
            hosted.retire();
        }
    }
}

struct Producer {
    node: Arc<Node>,
    hosted: Arc<Hosted>,
    out: Arc<Out>,
    batch: Vec<u8>,
    scratch: Vec<u8>,
}

impl Producer {
    fn run(&mut self, acks: Acks, time: Duration) -> Vec<Duration> {
        let until = Instant::now() + time;
        let mut latencies = Vec::new();
        loop {
            let began = Instant::now();
            if began >= until {
                return latencies;
            }
            self.produce(acks);
            latencies.push(began.elapsed());
        }
    }

    /// One batch, as a connection's task does it; the answer wakes this thread instead of a socket's reader.
    fn produce(&mut self, acks: Acks) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.batch);
        let rules = self.hosted.produce_rules();
        let summary =
            barnabas_log::validate_produce(&self.scratch, &rules, 0).expect("a right batch");
        let done = Arc::new(Done { flag: AtomicBool::new(false), thread: thread::current() });
        let told = done.clone();
        let slot = self.out.reserve();
        let encode = move |results: &[Option<barnabas_broker::partition::ProduceResult>]| {
            assert!(matches!(results, [Some(Ok(_))]), "{results:?}");
            told.flag.store(true, Ordering::Release);
            told.thread.unpark();
            Vec::new()
        };
        let pending = Arc::new(PendingProduce::new(self.out.clone(), slot, 1, Box::new(encode)));
        let mut after = Aftermath::default();
        let waits = Some((pending, 0));
        self.hosted.produce(
            self.node.now(),
            acks,
            summary.offsets,
            &mut self.scratch,
            waits,
            &mut after,
        );
        after.settle(&self.hosted, &*self.node, &mut Flush::default());
        while !done.flag.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

struct Done {
    flag: AtomicBool,
    thread: Thread,
}

fn sync() -> TopicConfig {
    TopicConfig { flush_mode: FlushMode::Sync, ..TopicConfig::default() }
}

fn node(me: BrokerId, epoch: BrokerEpoch) -> Arc<Node> {
    let cluster_id = ClusterId("bench".into());
    let view = Arc::new(View::new(me, cluster_id.clone(), Vec::new().into()));
    let membership = Membership { broker_epoch: Some(epoch), ..Membership::default() };
    let membership = watch::channel(membership).1;
    let handle = ControllerHandle::absent();
    let controller = ControllerClient::new(handle, membership.clone(), view.clone());
    let options = Options {
        replica_lag_time_max_ms: 10_000,
        replica_fetch_wait_max_ms: 500,
        replica_fetch_max_bytes: 1 << 20,
        replica_fetch_response_max_bytes: 10 << 20,
        auto_create_topics: false,
        fetch_sessions_max: 0,
        socket_request_max_bytes: 10 << 20,
        connections: barnabas_broker::connection::ConnectionLimits {
            max: 1,
            per_ip_max: 1,
            per_ip_overrides: Default::default(),
            idle_max: Duration::from_secs(600),
            queued_max_bytes: 1 << 20,
        },
        min_insync_replicas: 1,
        groups: GroupConfig::default(),
        session_timeout_ms: 6_000,
        shown: Vec::new().into(),
        config_file: Default::default(),
        zookeeper_servers: String::new(),
    };
    let runtime = tokio::runtime::Handle::current();
    let (control, data) = (runtime.clone(), runtime);
    let directories = Vec::new();
    Node::new(Parts {
        me,
        cluster_id,
        options,
        view,
        directories,
        membership,
        controller,
        control,
        data,
    })
}

fn open(
    storage: &Storage,
    flusher: &Arc<barnabas_broker::flush::Flusher>,
    me: BrokerId,
    index: usize,
    config: TopicConfig,
) -> Arc<Hosted> {
    let partition = TopicPartition {
        topic: TopicName::new("t").expect("a name"),
        partition: i32::try_from(index).expect("a small index"),
    };
    let wanted = Wanted {
        partition: partition.clone(),
        topic_id: LIFE.topic_id,
        config: LogConfig::from(&config),
        is_new: true,
    };
    let opened = storage.open_all(&[wanted]).remove(0);
    let Ok((log, directory)) = opened else { panic!("the log cannot be opened") };
    let state = LogState {
        log_start: log.log_start(),
        log_end: log.log_end(),
        flushed: log.flushed(),
        high_watermark: log.log_start(),
        epochs: log.epochs().clone(),
    };
    let replica = Replica::new(me, state, ReplicaOptions { lag_time_max_ms: 10_000 });
    Arc::new(Hosted::new(partition, LIFE, replica, log, (directory, flusher.clone())))
}

/// Pushes that broker 1 leads and all are in the ISR.
fn lead(
    node: &Arc<Node>,
    hosted: &Arc<Hosted>,
    brokers: &BTreeMap<BrokerId, BrokerImage>,
    config: TopicConfig,
) {
    let epoch = brokers[&node.me].epoch;
    let mut after = Aftermath::default();
    hosted.registered(node.now(), epoch, &mut after);
    hosted.configure(node.now(), &config, &mut after);
    let push = StatePush {
        controller_epoch: ControllerEpoch(1),
        broker_epoch: epoch,
        incarnation: LIFE,
        partition: Partition {
            assigned_replicas: brokers.keys().copied().collect(),
            moving: Default::default(),
            state: PartitionState {
                leader: Some(BrokerId(1)),
                leader_epoch: LeaderEpoch(1),
                partition_epoch: PartitionEpoch(1),
                controller_epoch: ControllerEpoch(1),
                isr: brokers.iter().map(|(id, broker)| (*id, broker.epoch)).collect(),
            },
        },
        min_insync_replicas: config.min_insync_replicas,
        flush_mode: config.flush_mode,
    };
    hosted.state(node.now(), push, &mut after);
    node.partitions.insert(hosted.clone());
    after.settle(hosted, &**node, &mut Flush::default());
}

/// One batch.
fn records(count: usize, bytes: usize) -> Vec<u8> {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let fill = SEED.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
    let value = vec![fill; bytes];
    (0..count).fold(BatchBuilder::new(), |batch, _| batch.record(&value)).build()
}

/// p50 and p99 in µs.
fn percentiles(latencies: &mut [Duration]) -> [f64; 2] {
    latencies.sort();
    [50, 99].map(|p| latencies[(latencies.len() - 1) * p / 100].as_secs_f64() * 1e6)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of this process so far, in µs.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap_or(0.0);
    (ticks(11) + ticks(12)) * 10_000.0
}
