//! The table of configuration keys: what is served today, in Kafka's names, and nothing else.

use std::sync::LazyLock;

use barnabas_types::TopicConfig;
use barnabas_types::broker_settings::OwnSetting;
use barnabas_types::topic_config::{SETTINGS, Setting};

/// Keys of the broker's file that are read again on SIGHUP.
pub const REREAD: &[&str] = &["logging.level"];

/// One key that a configuration file may hold.
#[derive(Clone, Debug)]
pub struct Key {
    /// Kafka's name; a nested file writes the dots as levels.
    pub name: &'static str,
    /// What a value looks like, in words that fit after "expected".
    pub form: String,
    /// The value in force when the key is absent; empty if the key must be given or has no default.
    pub default: String,
    /// What it does, one clause.
    pub meaning: &'static str,
}

impl Key {
    /// Whether a YAML list stands for its comma-separated text.
    pub(super) fn takes_a_list(&self) -> bool {
        const LISTS: [&str; 4] =
            ["zookeeper.connect", "log.cleanup.policy", "listeners", "advertised.listeners"];
        self.form.starts_with("a list")
            || self.form.starts_with("one or more")
            || LISTS.contains(&self.name)
    }

    /// What its number counts: "ms", "seconds", "minutes", "hours", "bytes", "percent"; `None` for other values.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let is_number = ["a whole number", "milliseconds", "bytes"]
            .iter()
            .any(|form| self.form.starts_with(form));
        let last = self.name.rsplit('.').next().unwrap_or_default();
        match last {
            _ if !is_number => None,
            "ms" | "seconds" | "minutes" | "hours" => {
                ["ms", "seconds", "minutes", "hours"].into_iter().find(|unit| *unit == last)
            }
            "percentage" => Some("percent"),
            "second" => Some("bytes a second"),
            "bytes" => Some("bytes"),
            _ if self.form.starts_with("bytes") => Some("bytes"),
            _ => None,
        }
    }

    /// How it is changed: in words that fit after "changed".
    #[must_use]
    pub fn changed(&self) -> &'static str {
        if OwnSetting::find(self.name).is_some() {
            "while brokers run, for all of them or for one"
        } else if Setting::of_broker(self.name).is_some() {
            "while brokers run, for all of them"
        } else if REREAD.contains(&self.name) {
            "in the file, read again on SIGHUP"
        } else {
            "in the file, read at the start"
        }
    }

    /// What a topic calls it, if topics have it too.
    #[must_use]
    pub fn topics_name(&self) -> Option<&'static str> {
        Setting::of_broker(self.name).map(|setting| setting.key)
    }
}

/// Every key, in the order in which the documentation lists them: those of the broker, then those that stand for the topics
/// that do not say ([`SETTINGS`]).
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let own = BROKER.iter().chain(COARSER).map(|(name, form, default, meaning)| Key {
        name,
        form: (*form).to_owned(),
        default: (*default).to_owned(),
        meaning,
    });
    let of_topics = SETTINGS.iter().map(|setting| Key {
        name: setting.broker_key,
        form: setting.form(),
        default: setting.value(&TopicConfig::default()),
        meaning: setting.meaning,
    });
    own.chain(of_topics).collect()
});

/// Name, form, default, meaning.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// Kafka's coarser words for times of topics.
const COARSER: &[Row] = &[
    (
        "log.retention.minutes",
        "a whole number from -1 to 2147483647",
        "",
        "log.retention.ms in minutes, where that is not given",
    ),
    (
        "log.retention.hours",
        "a whole number from -1 to 2147483647",
        "",
        "log.retention.ms in hours, where neither it nor the minutes are given",
    ),
    (
        "log.roll.hours",
        "a whole number from 1 to 2147483647",
        "",
        "log.roll.ms in hours, where that is not given",
    ),
];

const BROKER: &[Row] = &[
    (
        "broker.id",
        "a whole number from 0 to 2147483647",
        "",
        "id of this broker, unique in the cluster; must be given",
    ),
    (
        "log.dirs",
        "one or more directories",
        "",
        "where the logs of the partitions are; each best on a disk of its own; must be given",
    ),
    (
        "zookeeper.connect",
        "host:port[,host:port]...[/chroot]",
        "",
        "the ZooKeeper servers; must be given; a chroot has to exist",
    ),
    (
        "zookeeper.session.timeout.ms",
        "milliseconds from 200 to 3600000",
        "18000",
        "silence after which ZooKeeper declares the broker dead",
    ),
    (
        "zookeeper.connection.timeout.ms",
        "milliseconds from 200 to 3600000",
        "18000",
        "how long a start waits for ZooKeeper before it gives up",
    ),
    (
        "zookeeper.credentials.file",
        "a file of lines user:password",
        "",
        "who this broker is to ZooKeeper; nobody but the file's owner may read it",
    ),
    (
        "zookeeper.auth.scheme",
        "digest or sasl",
        "digest",
        "how the credentials are presented: digest tells the password, sasl (DIGEST-MD5) proves it to a server that knows the user",
    ),
    (
        "zookeeper.set.acl",
        "true or false",
        "true",
        "whether the nodes that this broker makes belong to its credentials; without credentials they are anybody's",
    ),
    (
        "listeners",
        "PLAINTEXT://host:port",
        "PLAINTEXT://127.0.0.1:9092",
        "where Kafka clients and other brokers are served",
    ),
    (
        "advertised.listeners",
        "PLAINTEXT://host:port",
        "",
        "the address that clients are told; the listener itself if absent",
    ),
    (
        "admin.listener",
        "host:port",
        "127.0.0.1:9192",
        "where gRPC (administration and control) is served",
    ),
    (
        "advertised.admin.listener",
        "host:port",
        "",
        "the gRPC address that other brokers are told; the listener itself if absent",
    ),
    (
        "http.listener",
        "host:port",
        "127.0.0.1:9292",
        "where health (/health/live, /health/ready), metrics (/metrics) and the operator's page (/) are served",
    ),
    (
        "http.allowed.hosts",
        "a list of host names",
        "",
        "names by which http.listener may be asked besides its addresses, localhost and the listeners' hosts; others are refused",
    ),
    (
        "http.operator.token.file",
        "a file",
        "",
        "file with the token that operators type into the page, which can then change the cluster; without it the page is read only",
    ),
    (
        "security.allow.insecure",
        "a list of PLAINTEXT, GRPC and HTTP",
        "",
        "listeners without authentication that may bind beyond loopback",
    ),
    (
        "metrics.labels",
        "partition, topic or none",
        "partition",
        "finest label of what /metrics serves; topic: sums of topics, none: neither topics nor groups",
    ),
    (
        "logging.level",
        "a list of a level (off, error, warn, info, debug or trace) and of target=level",
        "info",
        "least important lines of the log, of all targets and of single ones, for instance [info, request=debug]; `barnabas broker log-level` shows the targets and changes levels until the next start",
    ),
    (
        "logging.format",
        "text or json",
        "text",
        "form of the log's lines, on stdout; json: an object a line",
    ),
    ("broker.rack", "a name", "", "rack of this broker; replicas are spread over racks"),
    (
        "num.partitions",
        "a whole number from 1 to 100000",
        "1",
        "partitions of a new topic that does not say how many",
    ),
    (
        "default.replication.factor",
        "a whole number from 1 to 1000",
        "1",
        "replicas of a new topic that does not say how many",
    ),
    (
        "auto.leader.rebalance.enable",
        "true or false",
        "true",
        "whether leaderships go back to the preferred replicas by themselves",
    ),
    (
        "leader.imbalance.check.interval.seconds",
        "a whole number from 1 to 86400",
        "300",
        "how often the controller looks for leaderships to give back",
    ),
    (
        "leader.imbalance.per.broker.percentage",
        "a whole number from 0 to 100",
        "10",
        "share of the leaderships that a broker is preferred for and lacks, above which it gets them back",
    ),
    (
        "controlled.shutdown.enable",
        "true or false",
        "true",
        "whether a stop waits until others lead the partitions of this broker",
    ),
    (
        "controlled.shutdown.max.wait.ms",
        "milliseconds from 1 to 3600000",
        "15000",
        "how long it waits; a second signal ends the wait",
    ),
    (
        "failover.suspicion.enable",
        "true or false",
        "true",
        "whether a broker or controller whose ports refuse connections is replaced before its ZooKeeper session has ended",
    ),
    (
        "auto.create.topics.enable",
        "true or false",
        "true",
        "whether a topic that a client asks for, and allows to be created, is created",
    ),
    (
        "max.incremental.fetch.session.cache.slots",
        "a whole number from 0 to 100000",
        "1000",
        "fetch sessions of consumers, which make idle partitions cost nothing; 0: none",
    ),
    (
        "replica.lag.time.max.ms",
        "milliseconds from 100 to 3600000",
        "30000",
        "time since a follower was last caught up after which it leaves the ISR",
    ),
    (
        "replica.fetch.wait.max.ms",
        "milliseconds from 1 to 60000",
        "500",
        "longest wait of a follower's fetch for new records",
    ),
    (
        "replica.fetch.max.bytes",
        "bytes from 1024 to 1073741824",
        "1048576",
        "most bytes of one partition in a follower's fetch",
    ),
    (
        "replica.fetch.response.max.bytes",
        "bytes from 1024 to 1073741824",
        "10485760",
        "most bytes of all partitions in a follower's fetch",
    ),
    (
        "replica.high.watermark.checkpoint.interval.ms",
        "milliseconds from 100 to 3600000",
        "5000",
        "how often the high watermarks are written to disk",
    ),
    (
        "socket.request.max.bytes",
        "bytes from 1024 to 1073741824",
        "104857600",
        "largest request taken from a socket",
    ),
    (
        "queued.max.request.bytes",
        "bytes from 1048576 to 1099511627776",
        "268435456",
        "most memory for requests of clients under way, and as much for answers that they have not read; at least socket.request.max.bytes",
    ),
    (
        "max.connections",
        "a whole number from 1 to 10000000",
        "10000",
        "most connections of clients; followers come beside them. Never more than half of the files that the process may open",
    ),
    (
        "max.connections.per.ip",
        "a whole number from 1 to 2147483647",
        "2147483647",
        "most connections of clients from one address",
    ),
    (
        "max.connections.per.ip.overrides",
        "a list of address:number",
        "",
        "the same for single addresses, for instance 10.0.0.7:500,[::1]:20",
    ),
    (
        "connections.max.idle.ms",
        "milliseconds from 100 to 2147483647",
        "600000",
        "silence after which a client's connection is closed, unless it waits for an answer",
    ),
    (
        "log.dir.reserve.bytes",
        "bytes from 0 to 9223372036854775807",
        "67108864",
        "free space of a log directory below which its leaders refuse produces; below twice as much a warning is logged",
    ),
    (
        "num.recovery.threads.per.data.dir",
        "a whole number from 1 to 64",
        "2",
        "threads that open the logs of one directory",
    ),
    (
        "log.retention.check.interval.ms",
        "milliseconds from 1 to 86400000",
        "300000",
        "how often old segments are looked for",
    ),
    ("log.cleaner.enable", "true or false", "true", "whether compacted topics are compacted here"),
    ("log.cleaner.threads", "a whole number from 1 to 16", "1", "threads that compact"),
    (
        "log.cleaner.dedupe.buffer.size",
        "bytes from 1048576 to 9223372036854775807",
        "134217728",
        "most memory for the keys of the logs under compaction, of all threads together",
    ),
    (
        "log.cleaner.backoff.ms",
        "milliseconds from 1 to 86400000",
        "15000",
        "how long a thread that found nothing to compact waits",
    ),
    (
        "log.cleaner.io.max.bytes.per.second",
        "bytes from 1024 to 9223372036854775807",
        "9223372036854775807",
        "most bytes that compaction reads and writes in a second, of all threads together",
    ),
    (
        "producer.id.expiration.ms",
        "milliseconds from 1 to 9223372036854775807",
        "86400000",
        "how long the sequences of an idempotent producer that writes no more are remembered",
    ),
    (
        "group.initial.rebalance.delay.ms",
        "milliseconds from 0 to 3600000",
        "3000",
        "how long the first member of a group waits for others before partitions are assigned",
    ),
    (
        "group.min.session.timeout.ms",
        "milliseconds from 1 to 2147483647",
        "6000",
        "least session timeout that a group's member may ask for",
    ),
    (
        "group.max.session.timeout.ms",
        "milliseconds from 1 to 2147483647",
        "1800000",
        "greatest session timeout that a group's member may ask for",
    ),
    (
        "group.max.size",
        "a whole number from 1 to 2147483647",
        "2147483647",
        "most members of one group",
    ),
    (
        "offset.metadata.max.bytes",
        "bytes from 0 to 2147483647",
        "4096",
        "largest text that a committed offset may carry",
    ),
    (
        "offsets.commit.timeout.ms",
        "milliseconds from 1 to 3600000",
        "5000",
        "how long a commit waits until the ISR has it",
    ),
    (
        "offsets.retention.minutes",
        "a whole number from 1 to 2147483647",
        "10080",
        "how long the offsets of a group without members are kept",
    ),
    (
        "offsets.retention.check.interval.ms",
        "milliseconds from 1 to 86400000",
        "600000",
        "how often expired offsets are looked for",
    ),
    (
        "offsets.topic.num.partitions",
        "a whole number from 1 to 1000",
        "50",
        "partitions of the topic that holds the groups' offsets; read when it is created, with the first group",
    ),
    (
        "offsets.topic.replication.factor",
        "a whole number from 1 to 1000",
        "3",
        "its replicas; with fewer live brokers it is not created, and groups wait",
    ),
    ("offsets.topic.segment.bytes", "bytes from 14 to 2147483647", "104857600", "its segment size"),
];

/// The key of this name, if it is served.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The served key that `name` probably meant; `None` if nothing is near.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    // A topic's name for what a broker's file calls otherwise.
    if let Some(setting) = Setting::find(name) {
        return Some(setting.broker_key);
    }
    let nearest = barnabas_types::nearest(name, KEYS.iter().map(|key| key.name))?;
    // Units of time are not told apart: the one that was written comes first, then the finest.
    let Some((stem, "ms" | "seconds" | "minutes" | "hours")) = nearest.rsplit_once('.') else {
        return Some(nearest);
    };
    let mut units = name.rsplit('.').next().into_iter().chain(["ms"]);
    let same = |unit: &str| find(&format!("{stem}.{unit}")).map(|key| key.name);
    units.find_map(same).or(Some(nearest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key_is_found_over_typing_slips() {
        for (typed, meant) in [
            ("broker_id", "broker.id"),
            ("log.dir", "log.dirs"),
            ("Zookeeper.Connect", "zookeeper.connect"),
            ("zookeper.connect", "zookeeper.connect"),
            ("replica.lag.time.ms", "replica.lag.time.max.ms"),
            ("advertised.listener", "advertised.listeners"),
            ("log.retentoin.ms", "log.retention.ms"),
            ("log.retentoin.hours", "log.retention.hours"),
            ("log.retention.days", "log.retention.ms"),
            ("flush.ms", "log.flush.interval.ms"),
            ("log.retention.byte", "log.retention.bytes"),
            ("listners", "listeners"),
        ] {
            assert_eq!(nearest(typed), Some(meant), "{typed}");
        }
        assert_eq!(nearest("quota.window.num"), None);
    }

    #[test]
    fn keys_are_unique() {
        let mut names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }
}
