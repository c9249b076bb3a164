//! Settings that are allowed, and that somebody may regret: each with what it costs and what to do.

use std::fmt;

use super::BrokerConfig;
use super::machine::OPEN_FILES_WISHED;

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    /// The setting.
    pub key: &'static str,
    /// What it costs, and what to do: one sentence.
    pub text: String,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// Below this a session ends in pauses that machines have (a busy disk, a collection of garbage in ZooKeeper).
const SESSION_SHORT_MS: u64 = 2_000;

impl Trap {
    fn new(key: &'static str, text: impl Into<String>) -> Self {
        Self { key, text: text.into() }
    }

    pub(super) fn few_files(limit: u64) -> Self {
        let text = format!(
            "this process may open {limit} files, connections and logs alike; raise the limit to {OPEN_FILES_WISHED} or more \
             (LimitNOFILE= of a systemd unit, `ulimit -n` of a shell)"
        );
        Self::new("max.connections", text)
    }
}

/// What the settings of a broker hold ready.
#[must_use]
pub fn traps(config: &BrokerConfig) -> Vec<Trap> {
    let mut found = Vec::new();
    let factor = i64::from(config.default_replication_factor);
    let least = i64::from(config.topic.min_insync_replicas);
    if least > factor {
        found.push(Trap::new(
            "min.insync.replicas",
            format!(
                "{least} is more than default.replication.factor, {factor}: topics that do not say take nothing at acks=all; \
                 raise that to {}, or lower this",
                least + 1
            ),
        ));
    } else if least == factor && factor > 1 {
        found.push(Trap::new(
            "min.insync.replicas",
            format!(
                "{least} is all of default.replication.factor: topics that do not say take nothing at acks=all while one \
                 broker is down, and no broker can be restarted in order; set it to {}",
                factor - 1
            ),
        ));
    }
    if factor == 1 && config.auto_create_topics {
        found.push(Trap::new(
            "auto.create.topics.enable",
            "topics that clients create have one replica (default.replication.factor 1), and are gone with its disk; raise \
             that to 3, or switch this off",
        ));
    }
    if config.topic.unclean_leader_election {
        found.push(Trap::new(
            "unclean.leader.election.enable",
            "acknowledged records are lost when the ISR of a partition is gone; switch it off, and elect by hand where it \
             must be (`barnabas leader elect --unclean`)",
        ));
    }
    if config.groups.topic_replication_factor == 1 {
        found.push(Trap::new(
            "offsets.topic.replication.factor",
            "the offsets of all groups are gone with one disk; set it to 3",
        ));
    }
    if config.controlled_shutdown.is_none() {
        found.push(Trap::new(
            "controlled.shutdown.enable",
            "a stop is a crash to clients: leaderships move only once the broker is gone; switch it on",
        ));
    }
    addresses(config, &mut found);
    let session = config.zookeeper_session_timeout_ms;
    if session < SESSION_SHORT_MS {
        found.push(Trap::new(
            "zookeeper.session.timeout.ms",
            format!("{session} ms are less than a busy machine can pause for: healthy brokers would be replaced; use 6000 to 18000"),
        ));
    }
    if config.zookeeper_connection_timeout_ms < session {
        found.push(Trap::new(
            "zookeeper.connection.timeout.ms",
            format!("a start gives up before the session timeout, {session} ms, in which an ensemble elects its leader; raise it to that"),
        ));
    }
    found
}

fn addresses(config: &BrokerConfig, found: &mut Vec<Trap>) {
    for (key, listener, advertised) in [
        ("advertised.listeners", &config.listener, &config.advertised_listener),
        ("advertised.admin.listener", &config.admin_listener, &config.advertised_admin_listener),
    ] {
        if advertised.is_loopback() && !listener.is_loopback() {
            found.push(Trap::new(
                key,
                format!(
                    "{advertised} is this machine for whoever dials it: clients and brokers elsewhere will reach themselves; \
                     advertise a name or address that they can dial"
                ),
            ));
        }
    }
    if config.http_operator_token_file.is_some() && !config.http_listener.is_loopback() {
        found.push(Trap::new(
            "http.operator.token.file",
            "the token crosses the network as it is, for http.listener does not encrypt: whoever listens can change the cluster; bind \
             127.0.0.1 and come through ssh or a proxy with TLS",
        ));
    }
    let servers = &config.zookeeper_connect.servers;
    let is_far = |server: &super::HostPort| !server.is_loopback();
    if servers.len() == 1 && servers.iter().all(is_far) {
        found.push(Trap::new(
            "zookeeper.connect",
            "one server is named: a session ends when it is away for long, whatever the ensemble does; name all of its servers",
        ));
    } else if servers.len().is_multiple_of(2) {
        let survived = servers.len() / 2 - 1;
        found.push(Trap::new(
            "zookeeper.connect",
            format!(
                "{} servers survive the loss of {survived}, as one less would: run an odd number, or name all of them",
                servers.len()
            ),
        ));
    }
    if config.zookeeper_connect.servers.iter().enumerate().any(|(i, s)| servers[..i].contains(s)) {
        found.push(Trap::new("zookeeper.connect", "a server is named twice; keep one"));
    }
    if config.zookeeper_access.file.is_none() && servers.iter().any(is_far) {
        found.push(Trap::new(
            "zookeeper.credentials.file",
            "there is none: whoever reaches ZooKeeper can be controller, change settings and delete topics; give brokers credentials, and run \
             `barnabas zookeeper secure`",
        ));
    } else if config.zookeeper_access.file.is_some() && !config.zookeeper_access.set_acl {
        found.push(Trap::new(
            "zookeeper.set.acl",
            "what this broker makes in ZooKeeper is anybody's to change; that is for the time in which brokers without credentials are still \
             running; then take the line out",
        ));
    }
}
