//! The table of configuration keys: what is served today, in Kafka's names, and nothing else.

/// One key that a configuration file may hold.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Kafka's name; a nested file writes the dots as levels.
    pub name: &'static str,
    /// What a value looks like, in words that fit after "expected".
    pub form: &'static str,
    /// The value in force when the key is absent; empty if the key must be given or has no default.
    pub default: &'static str,
    /// What it does, one clause.
    pub meaning: &'static str,
}

macro_rules! keys {
    ($($name:literal, $form:literal, $default:literal, $meaning:literal;)*) => {
        /// Every key, in the order in which the documentation lists them.
        pub const KEYS: &[Key] =
            &[$(Key { name: $name, form: $form, default: $default, meaning: $meaning }),*];
    };
}

keys! {
    "broker.id", "a whole number from 0 to 2147483647", "", "id of this broker, unique in the cluster; must be given";
    "log.dirs", "one directory", "", "where the logs of the partitions are; must be given";
    "zookeeper.connect", "host:port[,host:port]...[/chroot]", "", "the ZooKeeper servers; must be given; a chroot has to exist";
    "zookeeper.session.timeout.ms", "milliseconds from 200 to 3600000", "18000", "silence after which ZooKeeper declares the broker dead";
    "zookeeper.connection.timeout.ms", "milliseconds from 200 to 3600000", "18000", "how long a start waits for ZooKeeper before it gives up";
    "listeners", "PLAINTEXT://host:port", "PLAINTEXT://127.0.0.1:9092", "where Kafka clients and other brokers are served";
    "advertised.listeners", "PLAINTEXT://host:port", "", "the address that clients are told; the listener itself if absent";
    "admin.listener", "host:port", "127.0.0.1:9192", "where gRPC (administration and control) is served";
    "advertised.admin.listener", "host:port", "", "the gRPC address that other brokers are told; the listener itself if absent";
    "security.allow.insecure", "a list of PLAINTEXT and GRPC", "", "listeners without authentication that may bind beyond loopback";
    "broker.rack", "a name", "", "rack of this broker; replicas are spread over racks";
    "num.partitions", "a whole number from 1 to 100000", "1", "partitions of a new topic that does not say how many";
    "default.replication.factor", "a whole number from 1 to 1000", "1", "replicas of a new topic that does not say how many";
    "min.insync.replicas", "a whole number from 1 to 1000", "1", "ISR members that acks=all asks for, where the topic does not say";
    "unclean.leader.election.enable", "true or false", "false", "whether a replica outside the ISR may lead when no member can; loses records";
    "replica.lag.time.max.ms", "milliseconds from 100 to 3600000", "30000", "time since a follower was last caught up after which it leaves the ISR";
    "replica.fetch.wait.max.ms", "milliseconds from 1 to 60000", "500", "longest wait of a follower's fetch for new records";
    "replica.fetch.max.bytes", "bytes from 1024 to 1073741824", "1048576", "most bytes of one partition in a follower's fetch";
    "replica.fetch.response.max.bytes", "bytes from 1024 to 1073741824", "10485760", "most bytes of all partitions in a follower's fetch";
    "replica.high.watermark.checkpoint.interval.ms", "milliseconds from 100 to 3600000", "5000", "how often the high watermarks are written to disk";
    "message.max.bytes", "bytes from 1024 to 1073741824", "1048588", "largest record batch, where the topic does not say";
    "log.segment.bytes", "bytes from 1048576 to 2147483647", "1073741824", "size of a log segment, where the topic does not say";
    "socket.request.max.bytes", "bytes from 1024 to 1073741824", "104857600", "largest request taken from a socket";
}

/// The key of this name, if it is served.
#[must_use]
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The served key that `name` probably meant; `None` if nothing is near.
#[must_use]
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    barnabas_types::nearest(name, KEYS.iter().map(|key| key.name))
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
