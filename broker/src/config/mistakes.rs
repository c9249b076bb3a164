//! The mistakes that people make in configuration files, each with what the message has to say. Those that only a start finds are
//! in the end-to-end tests.

use std::path::Path;

use super::{BrokerConfig, check, traps};

const LEAST: &str = "broker.id: 1\nlog.dirs: /d\nzookeeper.connect: 127.0.0.1:2181\n";

/// What is added to a file that is right; what is said.
type Mistake = (&'static str, &'static [&'static str]);

const ERRORS: &[Mistake] = &[
    // Not YAML.
    ("log:\n\tsegment.bytes: 1000000", &["line 5", "tab", "spaces"]),
    ("num.partitions:\t2\n\tx: 1", &["line 4", "tab"]),
    ("num.partitions: 2\nnum.partitions: 3", &["line 5", "'num.partitions'", "twice", "line 4"]),
    ("num.partitions=2", &["line 4", "server.properties", "`num.partitions: 2`"]),
    ("num.partitions:2", &["line 4", "space behind the colon", "`num.partitions: 2`"]),
    ("num.partitions: [", &["line "]),
    // Names.
    ("brokr.id: 2", &["line 4", "'brokr.id'", "'broker.id'"]),
    ("flush.ms: 1000", &["'flush.ms'", "'log.flush.interval.ms'"]),
    ("retention.ms: 1000", &["'log.retention.ms'"]),
    ("min.insync.replica: 2", &["'min.insync.replicas'"]),
    ("process.roles: broker", &["'process.roles'", "not served"]),
    ("broker: {id: 2}", &["'broker.id' is given twice"]),
    // Values.
    ("log.flush.interval.ms: 5s", &["'5s'", "milliseconds|whole number", "write 5000"]),
    ("log.segment.bytes: 1GiB", &["'1GiB'", "write 1073741824"]),
    ("log.retention.hours: 7d", &["write 168"]),
    ("num.partitions: [3]", &["'num.partitions'", "no list"]),
    ("broker.rack: [a, b]", &["'broker.rack' is '[a, b]'", "no list"]),
    ("num.partitions: 0", &["'0'", "from 1"]),
    ("auto.create.topics.enable: on", &["'on'", "true or false"]),
    ("log.cleanup.policy: remove", &["'remove'", "delete, compact"]),
    ("default.replication.factor: three", &["'three'", "a whole number"]),
    ("zookeeper.connect: zk://a:2181", &["twice"]),
    ("zookeeper.auth.scheme: x509", &["'x509'", "digest or sasl"]),
    ("logging.level: verbose", &["'verbose'", "off, error, warn, info, debug or trace"]),
    ("logging.level: [info, reqest=debug]", &["did you mean request?", "state_change"]),
    ("logging.format: xml", &["'xml'", "text or json"]),
    // Combinations.
    ("listeners: PLAINTEXT://10.0.0.1:9092", &["security.allow.insecure: [PLAINTEXT]"]),
    (
        "listeners: PLAINTEXT://0.0.0.0:9092\nsecurity.allow.insecure: PLAINTEXT",
        &["add `advertised.listeners` with"],
    ),
    ("advertised.listeners: PLAINTEXT://0.0.0.0:9092", &["cannot dial every address"]),
    ("advertised.listeners: 10.0.0.1:9092", &["'10.0.0.1:9092'", "PLAINTEXT://host:port"]),
    ("listeners: SASL_SSL://127.0.0.1:9092", &["PLAINTEXT://host:port"]),
    ("listeners: [PLAINTEXT://127.0.0.1:1, PLAINTEXT://127.0.0.1:2]", &["one listener"]),
    ("http.listener: 127.0.0.1:9192", &["'admin.listener'", "port of its own"]),
    ("replica.lag.time.max.ms: 600", &["line 4", "half of 'replica.lag.time.max.ms'"]),
    ("zookeeper.set.acl: true", &["'zookeeper.credentials.file'|add `zookeeper.credentials.file`"]),
    ("zookeeper.auth.scheme: sasl", &["add `zookeeper.credentials.file`"]),
    ("group.min.session.timeout.ms: 9000000", &["'group.max.session.timeout.ms'"]),
    ("socket.request.max.bytes: 1073741824", &["'queued.max.request.bytes'", "at least"]),
];

const TRAPS: &[Mistake] = &[
    ("min.insync.replicas: 2", &["min.insync.replicas", "default.replication.factor, 1", "raise"]),
    (
        "min.insync.replicas: 3\ndefault.replication.factor: 3",
        &["no broker can be restarted", "set it to 2"],
    ),
    ("auto.create.topics.enable: true", &["auto.create.topics.enable", "one replica"]),
    ("unclean.leader.election.enable: true", &["acknowledged records are lost"]),
    ("offsets.topic.replication.factor: 1", &["offsets.topic.replication.factor", "set it to 3"]),
    ("controlled.shutdown.enable: false", &["controlled.shutdown.enable"]),
    ("zookeeper.session.timeout.ms: 500", &["zookeeper.session.timeout.ms", "500 ms"]),
    ("zookeeper.connection.timeout.ms: 1000", &["zookeeper.connection.timeout.ms"]),
    (
        "zookeeper.credentials.file: /c\nzookeeper.set.acl: false",
        &["zookeeper.set.acl", "anybody's to change"],
    ),
    (
        "listeners: PLAINTEXT://0.0.0.0:9092\nadvertised.listeners: PLAINTEXT://localhost:9092\nsecurity.allow.insecure: PLAINTEXT",
        &["advertised.listeners", "reach themselves"],
    ),
];

fn has(text: &str, part: &str) -> bool {
    part.split('|').any(|choice| text.contains(choice))
}

#[test]
fn each_mistake_is_refused_alone_with_a_sentence_that_helps() {
    for (more, parts) in ERRORS {
        let text = format!("{LEAST}{more}\n");
        let errors = check(Path::new("b.yaml"), &text).errors;
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{more:?}: {said:#?}");
        for part in *parts {
            assert!(has(&said[0], part), "{more:?} says {:?}, not {part:?}", said[0]);
        }
        assert!(!said[0].contains('\n'), "one line: {said:?}");
        // A start refuses the same.
        let first = BrokerConfig::parse(Path::new("b.yaml"), &text).map_err(|e| e.to_string());
        assert!(first.is_err(), "{more:?}");
    }
}

#[test]
fn each_trap_is_told_and_lets_the_broker_start() {
    for (more, parts) in TRAPS {
        let config = BrokerConfig::parse(Path::new("b.yaml"), &format!("{LEAST}{more}\n")).unwrap();
        let said: Vec<String> = traps(&config).iter().map(ToString::to_string).collect();
        let one = said.iter().any(|text| parts.iter().all(|part| text.contains(part)));
        assert!(one, "{more:?}: {said:#?}");
    }
    let good = "default.replication.factor: 3\nmin.insync.replicas: 2\n";
    let config = BrokerConfig::parse(Path::new("b.yaml"), &format!("{LEAST}{good}")).unwrap();
    assert_eq!(traps(&config), []);
    let zookeeper = |connect: &str| {
        let text = format!(
            "broker.id: 1\nlog.dirs: /d\nzookeeper.connect: {connect}\nzookeeper.credentials.file: /c\n{good}"
        );
        traps(&BrokerConfig::parse(Path::new("b.yaml"), &text).unwrap())
    };
    assert_eq!(zookeeper("a,b,c").len(), 0);
    for (connect, part) in [("a", "one server"), ("a,b", "odd"), ("a,b,a", "twice")] {
        let said = zookeeper(connect);
        assert!(said.len() == 1 && said[0].text.contains(part), "{connect}: {said:?}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_in_the_order_of_its_lines() {
    let text = "broker.id: one\nzookeper.connect: a:0\nlisteners: PLAINTEXT://10.0.0.1:9092\nquota.window.num: 1\n\
                num.partitions: 0\nnum.partitions: 3\nhttp.listener: 127.0.0.1:9192\nreplica.fetch.wait.max.ms: 20000\n";
    let checked = check(Path::new("b.yaml"), text);
    let said: Vec<String> = checked.errors.iter().map(ToString::to_string).collect();
    let expected = [
        "'broker.id' is 'one'",
        "'zookeper.connect'; did you mean|unknown key 'zookeper.connect'",
        "'zookeeper.connect' is 'a:0'",
        "'listeners' is '10.0.0.1:9092'",
        "unknown key 'quota.window.num'",
        "'num.partitions' is '0'",
        "line 6: 'num.partitions' is given twice",
        "'http.listener' is '127.0.0.1:9192'",
        "'replica.fetch.wait.max.ms' is '20000'",
        "'log.dirs' is missing",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, part) in said.iter().zip(expected) {
        assert!(has(said, part), "{said:?} is not about {part:?}");
    }
    assert!(checked.traps.is_empty());
    assert_eq!(checked.keys, 7);
}

#[test]
fn one_directory_under_two_names_is_refused() {
    let folder = std::env::temp_dir().join(format!("barnabas-dirs-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("a")).unwrap();
    std::os::unix::fs::symlink(folder.join("a"), folder.join("link")).unwrap();
    std::fs::write(folder.join("file"), "x").unwrap();
    for (names, part) in [
        (vec!["a", "link"], "same directory"),
        (vec!["a", "b", "a/../a"], "same directory"),
        (vec!["a", "a/b"], "within each other"),
        (vec!["file"], "is a file"),
    ] {
        let dirs: Vec<String> =
            names.iter().map(|name| folder.join(name).display().to_string()).collect();
        let text =
            format!("broker.id: 1\nzookeeper.connect: a,b,c\nlog.dirs: [{}]\n", dirs.join(", "));
        let said: Vec<String> =
            check(Path::new("b.yaml"), &text).errors.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].contains(part), "{names:?}: {said:?}");
        let file = folder.join("b.yaml");
        std::fs::write(&file, &text).unwrap();
        let refused = BrokerConfig::load(&file).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
