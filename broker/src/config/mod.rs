//! Configuration of a broker: a YAML file with the key names of Kafka's `server.properties`, flat or nested, checked as a whole.
//!
//! A key that is not served is refused, not ignored: an operator who sets it must not believe that it works.

mod address;
mod check;
mod connections;
mod error;
mod groups;
mod keys;
mod logs;
mod machine;
#[cfg(test)]
mod mistakes;
mod reference;
pub(crate) mod secret;
mod settings;
mod shown;
mod sources;
mod traps;
mod units;
mod yaml;
mod zookeeper;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use barnabas_controller::Rebalance;
use barnabas_types::topic_config::SETTINGS;
use barnabas_types::{BrokerId, TopicConfig};

use crate::connection::ConnectionLimits;
use crate::logs::LogConfig;
use crate::metrics::Detail;
pub use address::{HostPort, ZooKeeperConnect};
pub use check::{Checked, check};
pub use error::ConfigError;
pub use groups::GroupConfig;
pub use keys::{KEYS, Key, REREAD, find, nearest};
pub use machine::{OPEN_FILES_WISHED, few_files, open_files};
pub use reference::reference;
use settings::Settings;
pub use shown::Shown;
pub use sources::{Source, values};
pub use traps::{Trap, traps};
pub use zookeeper::ZooKeeperAccess;

/// Everything that a broker is told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerConfig {
    /// The file that all of this is read from, by its whole path.
    pub file: PathBuf,
    /// `broker.id`.
    pub broker_id: BrokerId,
    /// `log.dirs`: one or more, none twice.
    pub log_dirs: Vec<PathBuf>,
    /// `zookeeper.connect`.
    pub zookeeper_connect: ZooKeeperConnect,
    /// `zookeeper.session.timeout.ms`.
    pub zookeeper_session_timeout_ms: u64,
    /// `zookeeper.connection.timeout.ms`: how long a start waits for ZooKeeper.
    pub zookeeper_connection_timeout_ms: u64,
    /// Who the broker is to ZooKeeper.
    pub zookeeper_access: ZooKeeperAccess,
    /// `listeners`: where the Kafka protocol is bound.
    pub listener: HostPort,
    /// `advertised.listeners`: what clients and other brokers are told.
    pub advertised_listener: HostPort,
    /// `admin.listener`: where gRPC is bound.
    pub admin_listener: HostPort,
    /// `advertised.admin.listener`: what other brokers are told.
    pub advertised_admin_listener: HostPort,
    /// `http.listener`: where health and the operator's page are served.
    pub http_listener: HostPort,
    /// `http.allowed.hosts`: names under which it is asked, besides those of the listeners.
    pub http_allowed_hosts: Vec<String>,
    /// `http.operator.token.file`: without one nothing is changed through the HTTP port.
    pub http_operator_token_file: Option<PathBuf>,
    /// `metrics.labels`.
    pub metrics_labels: Detail,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_sessions_max: usize,
    /// What holds for topics that do not say: every topic setting has a key here
    /// ([`barnabas_types::topic_config::Setting::broker_key`]).
    pub topic: TopicConfig,
    /// How leaderships go back to preferred replicas, `None` if they do not (`auto.leader.rebalance.enable`).
    pub rebalance: Option<Rebalance>,
    /// `controlled.shutdown.max.wait.ms`, `None` without `controlled.shutdown.enable`.
    pub controlled_shutdown: Option<Duration>,
    /// `failover.suspicion.enable`.
    pub suspicion: bool,
    /// `replica.lag.time.max.ms`.
    pub replica_lag_time_max_ms: u64,
    /// `replica.fetch.wait.max.ms`.
    pub replica_fetch_wait_max_ms: u64,
    /// `replica.fetch.max.bytes`, per partition.
    pub replica_fetch_max_bytes: u32,
    /// `replica.fetch.response.max.bytes`, per response.
    pub replica_fetch_response_max_bytes: u32,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_interval_ms: u64,
    /// `socket.request.max.bytes`.
    pub socket_request_max_bytes: u32,
    /// Connections of the Kafka listener, and their memory.
    pub connections: ConnectionLimits,
    /// What concerns the log directories as a whole.
    pub storage: StorageConfig,
    /// What concerns consumer groups.
    pub groups: GroupConfig,
    /// What concerns the broker's own log.
    pub logs: LogConfig,
    /// Every setting, as administrators are shown it.
    pub shown: Arc<[Shown]>,
}

/// Settings of the log directories and of the threads that work on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageConfig {
    /// `log.dir.reserve.bytes`: with less free space in a directory, its leaders refuse produces.
    pub reserve_bytes: u64,
    /// `num.recovery.threads.per.data.dir`, 1 or more.
    pub recovery_threads: usize,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval_ms: u64,
    /// `log.cleaner.enable`.
    pub cleaner_enable: bool,
    /// `log.cleaner.threads`, 1 or more.
    pub cleaner_threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: bytes of all cleaner threads together.
    pub cleaner_dedupe_buffer_bytes: u64,
    /// `log.cleaner.backoff.ms`: how long a cleaner thread that found nothing to do waits.
    pub cleaner_backoff_ms: u64,
    /// `log.cleaner.io.max.bytes.per.second`: of all cleaner threads together, read and written.
    pub cleaner_io_max_bytes_per_second: u64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: u64,
}

impl BrokerConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| ConfigError::Unreadable { file: file.to_owned(), source })?;
        let config = Self::parse(file, &text)?;
        match machine::refused(file, &config).into_iter().next() {
            Some(error) => Err(error),
            None => Ok(config),
        }
    }

    /// Checks the text of a file; `file` is only named in errors.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::of(&Settings::read(file, text)?)
    }

    fn of(s: &Settings) -> Result<Self, ConfigError> {
        let listener = s.plaintext("listeners")?;
        let admin_listener = s.address("admin.listener")?;
        let bytes = 1_073_741_824;
        let hour = 3_600_000;
        let topic = topic_defaults(s)?;
        let config = Self {
            file: std::path::absolute(&s.file).unwrap_or_else(|_| s.file.clone()),
            broker_id: BrokerId(s.number("broker.id", 0, i32::MAX.into())?),
            log_dirs: s.directories("log.dirs")?,
            zookeeper_connect: s.zookeeper()?,
            zookeeper_session_timeout_ms: s.number("zookeeper.session.timeout.ms", 200, hour)?,
            zookeeper_connection_timeout_ms: s.number(
                "zookeeper.connection.timeout.ms",
                200,
                hour,
            )?,
            zookeeper_access: ZooKeeperAccess::read(s)?,
            advertised_listener: s.advertised("advertised.listeners", "listeners", &listener)?,
            advertised_admin_listener: s.advertised(
                "advertised.admin.listener",
                "admin.listener",
                &admin_listener,
            )?,
            http_listener: s.address("http.listener")?,
            http_allowed_hosts: host_names(s)?,
            http_operator_token_file: s.text("http.operator.token.file")?.map(PathBuf::from),
            metrics_labels: Detail::parse(&s.required("metrics.labels")?)
                .ok_or_else(|| s.bad("metrics.labels"))?,
            rack: s.text("broker.rack")?,
            num_partitions: s.number("num.partitions", 1, 100_000)?,
            default_replication_factor: s.number("default.replication.factor", 1, 1_000)?,
            auto_create_topics: s.switch("auto.create.topics.enable")?,
            fetch_sessions_max: s.number(
                "max.incremental.fetch.session.cache.slots",
                0,
                100_000,
            )?,
            shown: shown::shown(s, &topic)?.into(),
            topic,
            rebalance: rebalance(s)?,
            controlled_shutdown: controlled_shutdown(s)?,
            suspicion: s.switch("failover.suspicion.enable")?,
            replica_lag_time_max_ms: s.number("replica.lag.time.max.ms", 100, hour)?,
            replica_fetch_wait_max_ms: s.number("replica.fetch.wait.max.ms", 1, 60_000)?,
            replica_fetch_max_bytes: s.number("replica.fetch.max.bytes", 1024, bytes)?,
            replica_fetch_response_max_bytes: s.number(
                "replica.fetch.response.max.bytes",
                1024,
                bytes,
            )?,
            high_watermark_checkpoint_interval_ms: s.number(
                "replica.high.watermark.checkpoint.interval.ms",
                100,
                hour,
            )?,
            socket_request_max_bytes: s.number("socket.request.max.bytes", 1024, bytes)?,
            connections: connections::limits(s)?,
            storage: storage(s)?,
            groups: GroupConfig::read(s)?,
            logs: logs::read(s)?,
            listener,
            admin_listener,
        };
        check_binds(s, &config)?;
        check_times(s, &config)?;
        Ok(config)
    }
}

/// A list of names without ports.
fn host_names(s: &Settings) -> Result<Vec<String>, ConfigError> {
    const KEY: &str = "http.allowed.hosts";
    let given = s.raw(KEY)?.unwrap_or_default();
    let names = given.split(',').map(str::trim).filter(|name| !name.is_empty());
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let one = |name: &str| match name.chars().all(legal) {
        true => Ok(name.to_owned()),
        false => Err(s.bad(KEY)),
    };
    names.map(one).collect()
}

fn rebalance(s: &Settings) -> Result<Option<Rebalance>, ConfigError> {
    let every: u64 = s.number("leader.imbalance.check.interval.seconds", 1, 86_400)?;
    let imbalance_percentage = s.number("leader.imbalance.per.broker.percentage", 0, 100)?;
    let rebalance = Rebalance { every: Duration::from_secs(every), imbalance_percentage };
    Ok(s.switch("auto.leader.rebalance.enable")?.then_some(rebalance))
}

fn controlled_shutdown(s: &Settings) -> Result<Option<Duration>, ConfigError> {
    let max_wait: u64 = s.number("controlled.shutdown.max.wait.ms", 1, 3_600_000)?;
    Ok(s.switch("controlled.shutdown.enable")?.then_some(Duration::from_millis(max_wait)))
}

fn storage(s: &Settings) -> Result<StorageConfig, ConfigError> {
    let day = 86_400_000;
    Ok(StorageConfig {
        reserve_bytes: s.number("log.dir.reserve.bytes", 0, i64::MAX)?,
        recovery_threads: s.number("num.recovery.threads.per.data.dir", 1, 64)?,
        retention_check_interval_ms: s.number("log.retention.check.interval.ms", 1, day)?,
        cleaner_enable: s.switch("log.cleaner.enable")?,
        cleaner_threads: s.number("log.cleaner.threads", 1, 16)?,
        cleaner_dedupe_buffer_bytes: s.number(
            "log.cleaner.dedupe.buffer.size",
            1_048_576,
            i64::MAX,
        )?,
        cleaner_backoff_ms: s.number("log.cleaner.backoff.ms", 1, day)?,
        cleaner_io_max_bytes_per_second: s.number(
            "log.cleaner.io.max.bytes.per.second",
            1024,
            i64::MAX,
        )?,
        producer_id_expiration_ms: s.number("producer.id.expiration.ms", 1, i64::MAX)?,
    })
}

/// Every topic setting by its broker key, or its default; then Kafka's coarser words for times, of which the finest that is
/// given holds.
fn topic_defaults(s: &Settings) -> Result<TopicConfig, ConfigError> {
    let mut topic = TopicConfig::default();
    for setting in SETTINGS {
        if let Some(value) = s.given(setting.broker_key)? {
            setting.read(&mut topic, &value).map_err(|_| s.bad(setting.broker_key))?;
        }
    }
    let coarser = |to: &mut i64, fine, coarse: &[(&'static str, i64)]| {
        if s.entry(fine).is_some() {
            return Ok(());
        }
        for (key, unit_ms) in coarse {
            if s.entry(key).is_some() {
                let units: i64 =
                    s.number(key, if *key == "log.roll.hours" { 1 } else { -1 }, i32::MAX.into())?;
                *to = if units < 0 { -1 } else { units * unit_ms };
                return Ok(());
            }
        }
        Ok(())
    };
    let (minute, hour) = (60_000, 3_600_000);
    coarser(
        &mut topic.retention_ms,
        "log.retention.ms",
        &[("log.retention.minutes", minute), ("log.retention.hours", hour)],
    )?;
    coarser(&mut topic.segment_ms, "log.roll.ms", &[("log.roll.hours", hour)])?;
    if topic.min_compaction_lag_ms > topic.max_compaction_lag_ms {
        let (key, other) =
            ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms");
        let reason = format!("it must not be more than '{other}', {}", topic.max_compaction_lag_ms);
        return Err(s.contradicts(key, other, topic.min_compaction_lag_ms, &reason));
    }
    Ok(topic)
}

/// Stops a listener without authentication from being bound beyond loopback by accident.
fn check_binds(s: &Settings, config: &BrokerConfig) -> Result<(), ConfigError> {
    const ALLOW: &str = "security.allow.insecure";
    let allowed = s.raw(ALLOW)?.unwrap_or_default();
    let allowed: Vec<&str> =
        allowed.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if allowed.iter().any(|name| !matches!(*name, "PLAINTEXT" | "GRPC" | "HTTP")) {
        return Err(s.bad(ALLOW));
    }
    let change = "anybody who reaches this address could read, write and delete";
    let look = "anybody who reaches this address could see the state of this broker";
    let binds = [
        ("listeners", &config.listener, "PLAINTEXT", change),
        ("admin.listener", &config.admin_listener, "GRPC", change),
        ("http.listener", &config.http_listener, "HTTP", look),
    ];
    for (i, (key, address, name, danger)) in binds.iter().enumerate() {
        if !address.is_loopback() && !allowed.contains(name) {
            let reason = format!(
                "{danger}, for it asks for no authentication; bind 127.0.0.1, or accept that with the line \
                 `{ALLOW}: [{name}]`"
            );
            return Err(s.not_served(key, address, &reason));
        }
        if let Some((other, ..)) = binds[..i].iter().find(|(_, earlier, ..)| earlier == address) {
            let reason = format!("it is the address of '{other}' too; give it a port of its own");
            return Err(s.contradicts(key, other, address, &reason));
        }
    }
    Ok(())
}

/// Times that would make a healthy follower fall out of the ISR for ever.
fn check_times(s: &Settings, config: &BrokerConfig) -> Result<(), ConfigError> {
    if config.replica_fetch_wait_max_ms * 2 > config.replica_lag_time_max_ms {
        let reason = "it must be at most half of 'replica.lag.time.max.ms', or followers that wait for \
                      records would leave the ISR";
        let (key, other) = ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms");
        return Err(s.contradicts(key, other, config.replica_fetch_wait_max_ms, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
