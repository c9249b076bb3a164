//! Configuration of a broker: a YAML file with the key names of Kafka's `server.properties`, flat or nested, checked as a whole.
//!
//! A key that is not served is refused, not ignored: an operator who sets `log.retention.hours` must not believe that it works.

mod address;
mod keys;
mod yaml;

use std::path::{Path, PathBuf};

use barnabas_types::BrokerId;
use serde_yaml::Value;

pub use address::{HostPort, ZooKeeperConnect};
pub use keys::{KEYS, Key};

/// Everything that a broker is told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerConfig {
    /// `broker.id`.
    pub broker_id: BrokerId,
    /// `log.dirs`: one directory today.
    pub log_dir: PathBuf,
    /// `zookeeper.connect`.
    pub zookeeper_connect: ZooKeeperConnect,
    /// `zookeeper.session.timeout.ms`.
    pub zookeeper_session_timeout_ms: u64,
    /// `zookeeper.connection.timeout.ms`: how long a start waits for ZooKeeper.
    pub zookeeper_connection_timeout_ms: u64,
    /// `listeners`: where the Kafka protocol is bound.
    pub listener: HostPort,
    /// `advertised.listeners`: what clients and other brokers are told.
    pub advertised_listener: HostPort,
    /// `admin.listener`: where gRPC is bound.
    pub admin_listener: HostPort,
    /// `advertised.admin.listener`: what other brokers are told.
    pub advertised_admin_listener: HostPort,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i32,
    /// `min.insync.replicas`, where the topic does not say.
    pub min_insync_replicas: u32,
    /// `unclean.leader.election.enable`, where the topic does not say.
    pub unclean_leader_election_enable: bool,
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
    /// `message.max.bytes`, where the topic does not say.
    pub message_max_bytes: u32,
    /// `log.segment.bytes`, where the topic does not say.
    pub log_segment_bytes: u32,
    /// `socket.request.max.bytes`.
    pub socket_request_max_bytes: u32,
}

/// Why a configuration is refused; each text names the file, the key and what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {file}: {source}; give the path of a YAML file to --config"
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not YAML, or not a list of settings.
    #[error("{file} is not a configuration: {message}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What the parser says.
        message: String,
    },
    /// A key that is not served.
    #[error("{place}: unknown key '{key}'; {remedy}")]
    UnknownKey {
        /// File and line.
        place: String,
        /// The key as written.
        key: String,
        /// The nearest key, or where the list is.
        remedy: String,
    },
    /// The same key twice, flat and nested.
    #[error("{place}: '{key}' is given twice; keep one of them")]
    Twice {
        /// File and line.
        place: String,
        /// The key.
        key: String,
    },
    /// A key that must be given is absent.
    #[error("{file}: '{key}' is missing; add a line `{key}: VALUE`, where VALUE is {form}")]
    Missing {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// What a value looks like.
        form: &'static str,
    },
    /// A value that is none for this key.
    #[error("{place}: '{key}' is '{value}'; expected {form}")]
    BadValue {
        /// File and line.
        place: String,
        /// The key.
        key: &'static str,
        /// The value as written.
        value: String,
        /// What a value looks like.
        form: &'static str,
    },
    /// A value that is well-formed and cannot be served, or keys that contradict each other.
    #[error("{place}: '{key}' is '{value}': {reason}")]
    NotServed {
        /// File and line.
        place: String,
        /// The key.
        key: &'static str,
        /// The value as written.
        value: String,
        /// Why, and what to do.
        reason: String,
    },
}

impl BrokerConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| ConfigError::Unreadable { file: file.to_owned(), source })?;
        Self::parse(file, &text)
    }

    /// Checks the text of a file; `file` is only named in errors.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let s = Settings::read(file, text)?;
        let listener = s.plaintext("listeners")?;
        let admin_listener = s.address("admin.listener")?;
        let bytes = 1_073_741_824;
        let hour = 3_600_000;
        let config = Self {
            broker_id: BrokerId(s.number("broker.id", 0, i32::MAX.into())?),
            log_dir: s.one_directory()?,
            zookeeper_connect: s.zookeeper()?,
            zookeeper_session_timeout_ms: s.number("zookeeper.session.timeout.ms", 200, hour)?,
            zookeeper_connection_timeout_ms: s.number(
                "zookeeper.connection.timeout.ms",
                200,
                hour,
            )?,
            advertised_listener: s.advertised("advertised.listeners", "listeners", &listener)?,
            advertised_admin_listener: s.advertised(
                "advertised.admin.listener",
                "admin.listener",
                &admin_listener,
            )?,
            rack: s.text("broker.rack")?,
            num_partitions: s.number("num.partitions", 1, 100_000)?,
            default_replication_factor: s.number("default.replication.factor", 1, 1_000)?,
            min_insync_replicas: s.number("min.insync.replicas", 1, 1_000)?,
            unclean_leader_election_enable: s.switch("unclean.leader.election.enable")?,
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
            message_max_bytes: s.number("message.max.bytes", 1024, bytes)?,
            log_segment_bytes: s.number("log.segment.bytes", 1_048_576, i32::MAX.into())?,
            socket_request_max_bytes: s.number("socket.request.max.bytes", 1024, bytes)?,
            listener,
            admin_listener,
        };
        s.check_binds(&config)?;
        s.check_times(&config)?;
        Ok(config)
    }
}

/// The settings of one file, each key known and given once.
struct Settings {
    file: PathBuf,
    entries: Vec<yaml::Entry>,
}

impl Settings {
    fn read(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let entries = yaml::entries(text)
            .map_err(|message| ConfigError::Syntax { file: file.to_owned(), message })?;
        let settings = Self { file: file.to_owned(), entries };
        for (i, entry) in settings.entries.iter().enumerate() {
            if keys::find(&entry.key).is_none() {
                let remedy = match keys::nearest(&entry.key) {
                    Some(nearest) => format!("did you mean '{nearest}'?"),
                    None => "it is not served by this version; remove it (README lists the keys)"
                        .to_owned(),
                };
                let key = entry.key.chars().filter(|c| !c.is_control()).take(120).collect();
                return Err(ConfigError::UnknownKey { place: settings.place(entry), key, remedy });
            }
            if settings.entries[..i].iter().any(|earlier| earlier.key == entry.key) {
                let key = entry.key.clone();
                return Err(ConfigError::Twice { place: settings.place(entry), key });
            }
        }
        Ok(settings)
    }

    fn place(&self, entry: &yaml::Entry) -> String {
        match entry.line {
            Some(line) => format!("{}, line {line}", self.file.display()),
            None => self.file.display().to_string(),
        }
    }

    /// The entry of a key; an empty value (`key:`) counts as absent.
    fn entry(&self, key: &'static str) -> Option<&yaml::Entry> {
        self.entries.iter().find(|entry| entry.key == key && entry.value != Value::Null)
    }

    /// The value as text, or the key's default; `None` if there is neither.
    fn raw(&self, key: &'static str) -> Result<Option<String>, ConfigError> {
        let spec = keys::find(key);
        match self.entry(key) {
            Some(entry) => match &entry.value {
                Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                    Ok(Some(yaml::shown(&entry.value)))
                }
                // A list is Kafka's comma-separated text.
                Value::Sequence(items) => {
                    Ok(Some(items.iter().map(yaml::shown).collect::<Vec<_>>().join(",")))
                }
                _ => Err(self.bad(key)),
            },
            None => Ok(spec.map(|s| s.default).filter(|d| !d.is_empty()).map(str::to_owned)),
        }
    }

    fn required(&self, key: &'static str) -> Result<String, ConfigError> {
        self.raw(key)?.ok_or_else(|| ConfigError::Missing {
            file: self.file.clone(),
            key,
            form: keys::find(key).map_or("", |spec| spec.form),
        })
    }

    fn bad(&self, key: &'static str) -> ConfigError {
        ConfigError::BadValue {
            place: self.place_of(key),
            key,
            value: self.entry(key).map(|entry| yaml::shown(&entry.value)).unwrap_or_default(),
            form: keys::find(key).map_or("", |spec| spec.form),
        }
    }

    fn not_served(&self, key: &'static str, value: impl ToString, reason: &str) -> ConfigError {
        let place = self.place_of(key);
        ConfigError::NotServed { place, key, value: value.to_string(), reason: reason.to_owned() }
    }

    fn place_of(&self, key: &'static str) -> String {
        self.entry(key).map_or_else(|| self.file.display().to_string(), |entry| self.place(entry))
    }

    /// A whole number in `min..=max`.
    fn number<T: TryFrom<i64>>(
        &self,
        key: &'static str,
        min: i64,
        max: i64,
    ) -> Result<T, ConfigError> {
        let value: i64 = self.required(key)?.parse().map_err(|_| self.bad(key))?;
        if value < min || value > max {
            return Err(self.bad(key));
        }
        T::try_from(value).map_err(|_| self.bad(key))
    }

    fn switch(&self, key: &'static str) -> Result<bool, ConfigError> {
        match self.required(key)?.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.bad(key)),
        }
    }

    fn text(&self, key: &'static str) -> Result<Option<String>, ConfigError> {
        match self.raw(key)? {
            Some(text) if text.is_empty() => Err(self.bad(key)),
            text => Ok(text),
        }
    }

    fn address(&self, key: &'static str) -> Result<HostPort, ConfigError> {
        HostPort::parse(&self.required(key)?).ok_or_else(|| self.bad(key))
    }

    /// One PLAINTEXT listener.
    fn plaintext(&self, key: &'static str) -> Result<HostPort, ConfigError> {
        let text = self.required(key)?;
        if text.contains(',') {
            return Err(self.not_served(key, text, "this version serves one listener; keep one"));
        }
        HostPort::parse_plaintext(&text).ok_or_else(|| self.bad(key))
    }

    /// An advertised address: as given, or that of the listener unless nobody could dial it.
    fn advertised(
        &self,
        key: &'static str,
        of: &'static str,
        listener: &HostPort,
    ) -> Result<HostPort, ConfigError> {
        let Some(text) = self.raw(key)? else {
            if listener.is_wildcard() {
                let reason = format!("every address cannot be advertised; add `{key}`");
                return Err(self.not_served(of, listener, &reason));
            }
            return Ok(listener.clone());
        };
        let parsed = match key {
            "advertised.listeners" => self.plaintext(key)?,
            _ => HostPort::parse(&text).ok_or_else(|| self.bad(key))?,
        };
        if parsed.is_wildcard() {
            let reason = "clients cannot dial every address; give one that they can reach";
            return Err(self.not_served(key, parsed, reason));
        }
        Ok(parsed)
    }

    fn one_directory(&self) -> Result<PathBuf, ConfigError> {
        let text = self.required("log.dirs")?;
        if text.contains(',') {
            let reason = "this version keeps a broker's logs in one directory; keep one";
            return Err(self.not_served("log.dirs", text, reason));
        }
        if text.is_empty() { Err(self.bad("log.dirs")) } else { Ok(PathBuf::from(text)) }
    }

    fn zookeeper(&self) -> Result<ZooKeeperConnect, ConfigError> {
        let key = "zookeeper.connect";
        ZooKeeperConnect::parse(&self.required(key)?).ok_or_else(|| self.bad(key))
    }

    /// Stops a listener without authentication from being bound beyond loopback by accident.
    fn check_binds(&self, config: &BrokerConfig) -> Result<(), ConfigError> {
        const ALLOW: &str = "security.allow.insecure";
        let allowed = self.raw(ALLOW)?.unwrap_or_default();
        let allowed: Vec<&str> =
            allowed.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if allowed.iter().any(|name| !matches!(*name, "PLAINTEXT" | "GRPC")) {
            return Err(self.bad(ALLOW));
        }
        for (key, address, name) in [
            ("listeners", &config.listener, "PLAINTEXT"),
            ("admin.listener", &config.admin_listener, "GRPC"),
        ] {
            if !address.is_loopback() && !allowed.contains(&name) {
                let reason = format!(
                    "anybody who reaches this address could read, write and delete, for it asks for no \
                     authentication; bind 127.0.0.1, or accept that with the line `{ALLOW}: [{name}]`"
                );
                return Err(self.not_served(key, address, &reason));
            }
        }
        if config.listener == config.admin_listener {
            let reason = "it is the address of 'listeners' too; give it a port of its own";
            return Err(self.not_served("admin.listener", &config.admin_listener, reason));
        }
        Ok(())
    }

    /// Times that would make a healthy follower fall out of the ISR for ever.
    fn check_times(&self, config: &BrokerConfig) -> Result<(), ConfigError> {
        if config.replica_fetch_wait_max_ms * 2 > config.replica_lag_time_max_ms {
            let reason = "it must be at most half of 'replica.lag.time.max.ms', or followers that wait for \
                          records would leave the ISR";
            let key = "replica.fetch.wait.max.ms";
            return Err(self.not_served(key, config.replica_fetch_wait_max_ms, reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
