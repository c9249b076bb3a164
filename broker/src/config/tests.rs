//! Tests of the configuration reader: what is accepted, and the sentence for each thing that is not.

use super::*;

const LEAST: &str = "broker.id: 1\nlog.dirs: /d\nzookeeper.connect: 127.0.0.1:2181\n";

fn parse(text: &str) -> Result<BrokerConfig, String> {
    BrokerConfig::parse(Path::new("b.yaml"), text).map_err(|error| error.to_string())
}

fn refused(more: &str, expected: &[&str]) {
    let message = parse(&format!("{LEAST}{more}\n")).unwrap_err();
    for part in expected {
        assert!(message.contains(part), "{more:?} says {message:?}, not {part:?}");
    }
    assert!(!message.contains('\n'), "one sentence: {message:?}");
}

#[test]
fn defaults_are_kafkas_and_loopback() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.broker_id, BrokerId(1));
    assert_eq!(config.listener.to_string(), "127.0.0.1:9092");
    assert_eq!(config.advertised_listener, config.listener);
    assert_eq!(config.admin_listener.to_string(), "127.0.0.1:9192");
    assert_eq!(config.zookeeper_session_timeout_ms, 18_000);
    assert_eq!(config.replica_lag_time_max_ms, 30_000);
    assert_eq!(config.http_listener.to_string(), "127.0.0.1:9292");
    assert_eq!(config.topic, TopicConfig::default());
    assert_eq!(config.groups, GroupConfig::default());
    assert_eq!(config.log_dirs, [Path::new("/d")]);
    assert_eq!(config.rack, None);
}

#[test]
fn nested_is_the_same_as_flat() {
    let nested = "broker: {id: 1}\nlog:\n  dirs: [/d]\nzookeeper:\n  connect: 127.0.0.1:2181\n";
    assert_eq!(parse(nested), parse(LEAST));
}

#[test]
fn every_key_is_read() {
    let config = parse(
        "broker.id: 7\nlog.dirs: /x\nzookeeper.connect: a:1,b:2/root\nzookeeper.session.timeout.ms: 3000\n\
         zookeeper.connection.timeout.ms: 4000\nzookeeper.credentials.file: /zk\nzookeeper.auth.scheme: sasl\nzookeeper.set.acl: false\nlisteners: PLAINTEXT://0.0.0.0:1\nadvertised.listeners: PLAINTEXT://h:2\n\
         admin.listener: 10.0.0.1:3\nadvertised.admin.listener: h:4\nsecurity.allow.insecure: [PLAINTEXT, GRPC, HTTP]\n\
         metrics.labels: topic\nbroker.rack: r1\nnum.partitions: 3\ndefault.replication.factor: 2\nauto.create.topics.enable: false\nmin.insync.replicas: 2\n\
         unclean.leader.election.enable: true\nreplica.lag.time.max.ms: 2000\nreplica.fetch.wait.max.ms: 100\n\
         replica.fetch.max.bytes: 2048\nreplica.fetch.response.max.bytes: 4096\n\
         replica.high.watermark.checkpoint.interval.ms: 1000\nmessage.max.bytes: 5000\nlog.segment.bytes: 2000000\n\
         socket.request.max.bytes: 6000\nhttp.listener: h:5\nhttp.allowed.hosts: [a.example, b]\nhttp.operator.token.file: /t\nlog.dir.reserve.bytes: 7000\n\
         num.recovery.threads.per.data.dir: 3\nlog.retention.check.interval.ms: 8\nlog.cleaner.enable: false\n\
         log.cleaner.threads: 2\nlog.cleaner.dedupe.buffer.size: 2000000\nlog.cleaner.backoff.ms: 9\n\
         log.cleaner.io.max.bytes.per.second: 10000\nproducer.id.expiration.ms: 11\n\
         auto.leader.rebalance.enable: true\nleader.imbalance.check.interval.seconds: 12\n\
         leader.imbalance.per.broker.percentage: 13\ncontrolled.shutdown.max.wait.ms: 14\nfailover.suspicion.enable: false\n\
         max.connections: 15\nmax.connections.per.ip: 16\nmax.connections.per.ip.overrides: [10.0.0.1:17, \"[::1]:18\"]\n\
         connections.max.idle.ms: 1900\nqueued.max.request.bytes: 2000000\n\
         group.initial.rebalance.delay.ms: 15\ngroup.min.session.timeout.ms: 16\ngroup.max.session.timeout.ms: 17\n\
         group.max.size: 18\noffset.metadata.max.bytes: 19\noffsets.commit.timeout.ms: 20\n\
         offsets.retention.minutes: 21\noffsets.retention.check.interval.ms: 22\noffsets.topic.num.partitions: 23\n\
         offsets.topic.replication.factor: 24\noffsets.topic.segment.bytes: 25\n",
    )
    .unwrap();
    assert_eq!(
        config,
        BrokerConfig {
            file: config.file.clone(),
            broker_id: BrokerId(7),
            log_dirs: vec!["/x".into()],
            zookeeper_connect: ZooKeeperConnect::parse("a:1,b:2/root").unwrap(),
            zookeeper_session_timeout_ms: 3000,
            zookeeper_access: ZooKeeperAccess {
                file: Some("/zk".into()),
                scheme: "sasl".parse().unwrap(),
                set_acl: false,
            },
            zookeeper_connection_timeout_ms: 4000,
            listener: HostPort::parse("0.0.0.0:1").unwrap(),
            advertised_listener: HostPort::parse("h:2").unwrap(),
            admin_listener: HostPort::parse("10.0.0.1:3").unwrap(),
            advertised_admin_listener: HostPort::parse("h:4").unwrap(),
            http_listener: HostPort::parse("h:5").unwrap(),
            http_allowed_hosts: vec!["a.example".into(), "b".into()],
            http_operator_token_file: Some("/t".into()),
            metrics_labels: Detail::Topic,
            rack: Some("r1".into()),
            num_partitions: 3,
            default_replication_factor: 2,
            auto_create_topics: false,
            fetch_sessions_max: 1000,
            topic: TopicConfig {
                min_insync_replicas: 2,
                unclean_leader_election: true,
                max_message_bytes: 5000,
                segment_bytes: 2_000_000,
                ..TopicConfig::default()
            },
            rebalance: Some(Rebalance { every: Duration::from_secs(12), imbalance_percentage: 13 }),
            controlled_shutdown: Some(Duration::from_millis(14)),
            suspicion: false,
            replica_lag_time_max_ms: 2000,
            replica_fetch_wait_max_ms: 100,
            replica_fetch_max_bytes: 2048,
            replica_fetch_response_max_bytes: 4096,
            high_watermark_checkpoint_interval_ms: 1000,
            socket_request_max_bytes: 6000,
            connections: ConnectionLimits {
                max: 15,
                per_ip_max: 16,
                per_ip_overrides: [
                    ([10, 0, 0, 1].into(), 17),
                    (std::net::Ipv6Addr::LOCALHOST.into(), 18),
                ]
                .into(),
                idle_max: Duration::from_millis(1900),
                queued_max_bytes: 2_000_000,
            },
            storage: StorageConfig {
                reserve_bytes: 7000,
                recovery_threads: 3,
                retention_check_interval_ms: 8,
                cleaner_enable: false,
                cleaner_threads: 2,
                cleaner_dedupe_buffer_bytes: 2_000_000,
                cleaner_backoff_ms: 9,
                cleaner_io_max_bytes_per_second: 10_000,
                producer_id_expiration_ms: 11,
            },
            logs: LogConfig::default(),
            groups: GroupConfig {
                initial_rebalance_delay_ms: 15,
                min_session_timeout_ms: 16,
                max_session_timeout_ms: 17,
                max_size: 18,
                offset_metadata_max_bytes: 19,
                commit_timeout_ms: 20,
                offsets_retention_ms: 21 * 60_000,
                retention_check_interval_ms: 22,
                topic_partitions: 23,
                topic_replication_factor: 24,
                topic_segment_bytes: 25,
            },
            shown: config.shown.clone(),
        }
    );
}

#[test]
fn what_is_switched_off_is_not_there() {
    let off = "auto.leader.rebalance.enable: false\ncontrolled.shutdown.enable: false\n";
    let config = parse(&format!("{LEAST}{off}")).unwrap();
    assert_eq!((config.rebalance, config.controlled_shutdown), (None, None));
}

#[test]
fn unknown_keys_name_place_and_nearest() {
    refused("broker.idd: 2", &["b.yaml, line 4", "'broker.idd'", "did you mean 'broker.id'?"]);
    refused("zookeeper:\n  conect: a", &["line 5", "'zookeeper.conect'", "'zookeeper.connect'"]);
    refused("quota.window.num: 1", &["line 4", "'quota.window.num'", "not served"]);
    refused("broker: {id: 1}", &["'broker.id' is given twice"]);
}

#[test]
fn bad_values_name_key_value_and_form() {
    refused(
        "num.partitions: many",
        &["line 4", "'num.partitions'", "'many'", "a whole number from 1"],
    );
    refused("num.partitions: 0", &["'0'", "a whole number from 1"]);
    refused("num.partitions: 1.5", &["'1.5'"]);
    refused("min.insync.replicas: -1", &["'-1'"]);
    refused("listeners: 127.0.0.1:9", &["PLAINTEXT://host:port"]);
    refused("listeners: SSL://127.0.0.1:9", &["PLAINTEXT://host:port"]);
    refused("unclean.leader.election.enable: yes please", &["true or false"]);
    refused("message.max.bytes: 99999999999", &["a whole number from 0 to 2147483647"]);
    refused(
        "log.cleanup.policy: often",
        &["line 4", "'often'", "delete, compact, or compact,delete"],
    );
    for overrides in ["10.0.0.1", "10.0.0.1:x", "broker7:3", "::1:5", "10.0.0.1:1:2"] {
        let line = format!("max.connections.per.ip.overrides: \"{overrides}\"");
        refused(&line, &["a list of address:number"]);
    }
    let twice = "max.connections.per.ip.overrides: [10.0.0.1:1, \"[::ffff:10.0.0.1]:2\"]";
    refused(twice, &["named twice"]);
    refused(
        "queued.max.request.bytes: 104857599",
        &["at least 'socket.request.max.bytes', 104857600"],
    );
    refused("log.retention.hours: -2", &["line 4", "'log.retention.hours'", "from -1"]);
    let message = parse("broker.id: x\nlog.dirs: /d\nzookeeper.connect: a").unwrap_err();
    assert!(message.contains("'broker.id' is 'x'"), "{message}");
}

#[test]
fn missing_keys_are_named_with_their_form() {
    for (key, rest) in [
        ("broker.id", "log.dirs: /d\nzookeeper.connect: a\n"),
        ("log.dirs", "broker.id: 1\nzookeeper.connect: a\n"),
        ("zookeeper.connect", "broker.id: 1\nlog.dirs: /d\n"),
        ("log.dirs", "broker.id: 1\nlog.dirs:\nzookeeper.connect: a\n"),
    ] {
        let message = parse(rest).unwrap_err();
        assert!(message.contains(&format!("'{key}' is missing")), "{message}");
    }
}

#[test]
fn what_is_not_served_today_is_refused_with_a_sentence() {
    refused("listeners: PLAINTEXT://a:1,PLAINTEXT://b:2", &["one listener"]);
}

#[test]
fn several_directories_are_taken_and_none_twice() {
    let config =
        |dirs: &str| parse(&format!("broker.id: 1\nzookeeper.connect: a\nlog.dirs: {dirs}"));
    let two = [Path::new("/a"), Path::new("/b")];
    assert_eq!(config("[/a, /b]").unwrap().log_dirs, two);
    assert_eq!(config("/a, /b").unwrap().log_dirs, two);
    for (bad, said) in
        [("[/a, /b, /a]", "/a is named twice"), ("/a,,/b", "one or more directories")]
    {
        let message = config(bad).unwrap_err();
        assert!(message.contains("'log.dirs'") && message.contains(said), "{message}");
    }
}

#[test]
fn a_long_value_is_taken_whole_and_a_control_character_is_refused() {
    let long = format!("/{}", "d".repeat(4_000));
    let head = "broker.id: 1\nzookeeper.connect: a\n";
    for text in [format!("{head}log.dirs: {long}"), format!("{head}log.dirs: [{long}, /e]")] {
        assert_eq!(parse(&text).unwrap().log_dirs[0], Path::new(&long));
    }
    refused("broker.rack: \"a\\nb\"", &["broker.rack", "a b"]);
}

#[test]
fn every_topic_setting_has_its_default_here() {
    for setting in SETTINGS {
        let (mut expected, mut value) = (TopicConfig::default(), "1");
        if setting.read(&mut expected, value).is_err() {
            value = ["true", "sync", "LogAppendTime", "compact,delete", "zstd", "100"]
                .into_iter()
                .find(|v| setting.read(&mut expected, v).is_ok())
                .unwrap();
        }
        let config = parse(&format!("{LEAST}{}: {value}\n", setting.broker_key));
        assert_eq!(config.unwrap().topic, expected, "{}", setting.broker_key);
    }
    let lags = "log.cleaner.min.compaction.lag.ms: 3\nlog.cleaner.max.compaction.lag.ms: 2";
    refused(lags, &["'log.cleaner.min.compaction.lag.ms' is '3'", "not be more than"]);
}

#[test]
fn the_finest_word_for_a_time_holds() {
    let retention_ms = |more: &str| parse(&format!("{LEAST}{more}")).unwrap().topic.retention_ms;
    assert_eq!(retention_ms("log.retention.hours: 2"), 7_200_000);
    assert_eq!(retention_ms("log.retention.hours: 2\nlog.retention.minutes: 3"), 180_000);
    assert_eq!(retention_ms("log.retention.minutes: 3\nlog.retention.ms: 4"), 4);
    assert_eq!(retention_ms("log.retention.hours: -1"), -1);
    let segment_ms = parse(&format!("{LEAST}log.roll.hours: 1")).unwrap().topic.segment_ms;
    assert_eq!(segment_ms, 3_600_000);
}

#[test]
fn binds_beyond_loopback_need_the_named_opt_in() {
    let open = "listeners: PLAINTEXT://10.1.2.3:9092";
    refused(open, &["'listeners' is '10.1.2.3:9092'", "`security.allow.insecure: [PLAINTEXT]`"]);
    refused("admin.listener: 10.1.2.3:1", &["`security.allow.insecure: [GRPC]`"]);
    refused(&format!("{open}\nsecurity.allow.insecure: [GRPC]"), &["[PLAINTEXT]"]);
    refused("http.listener: 10.1.2.3:1", &["see the state", "`security.allow.insecure: [HTTP]`"]);
    refused("http.allowed.hosts: \"a, b:9\"", &["line 4", "a list of host names"]);
    refused("security.allow.insecure: ALL", &["a list of PLAINTEXT, GRPC and HTTP"]);
    assert!(parse(&format!("{LEAST}{open}\nsecurity.allow.insecure: [PLAINTEXT]\n")).is_ok());
    let all = "listeners: PLAINTEXT://0.0.0.0:9092\nsecurity.allow.insecure: [PLAINTEXT]";
    refused(all, &["add `advertised.listeners`"]);
}

#[test]
fn contradictions_are_refused() {
    refused("admin.listener: 127.0.0.1:9092", &["port of its own"]);
    refused("http.listener: 127.0.0.1:9192", &["'admin.listener'", "port of its own"]);
    refused("group.min.session.timeout.ms: 9000000", &["'group.max.session.timeout.ms', 1800000"]);
    refused("replica.lag.time.max.ms: 600", &["at most half of 'replica.lag.time.max.ms'"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message = BrokerConfig::load(Path::new("/nowhere/b.yaml")).unwrap_err().to_string();
    assert!(message.contains("/nowhere/b.yaml") && message.contains("--config"), "{message}");
}

#[test]
fn the_readme_lists_every_key_with_its_default() {
    let readme = include_str!("../../../README.md");
    for Key { name, default, .. } in KEYS.iter() {
        let shown = if default.is_empty() { String::new() } else { format!("`{default}`") };
        let row = format!("| `{name}` | {shown} |");
        assert!(readme.contains(&row), "README.md has no row that begins with {row}");
    }
}
