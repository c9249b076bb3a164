//! The cluster: who is registered, whether that is where they are, their clocks, the cluster's id, and topics that bear no loss.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barnabas_broker::config::{BrokerConfig, HostPort};
use barnabas_proto::v1::{
    Broker, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicsRequest, Topic,
};
use tonic::Response;

use super::super::ask::ask;
use super::super::cluster::gone;
use super::super::dial::connect;
use super::super::topic::counted;
use super::super::{Asking, CliError, when};
use super::{Finding, Level, machine};

/// Longest wait for a connection.
const DIAL_MAX: Duration = Duration::from_secs(3);
/// Clocks are told in whole seconds: less than this apart they may be the same.
const CLOCK_APART_MS: i64 = 2_000;
/// The topic of the groups' offsets.
const OFFSETS: &str = "__consumer_offsets";

pub(super) fn look(asking: &Asking, config: Option<&BrokerConfig>, found: &mut Vec<Finding>) {
    let (known, _) = match described(asking) {
        Ok(known) => known,
        Err(error) => {
            // Its sentence says what to do.
            let finding =
                Finding { level: Level::Bad, ..Finding::ok("cluster", error.to_string()) };
            found.push(finding);
            return;
        }
    };
    found.push(health(&known));
    found.push(members(&known));
    // That nobody is at the addresses of one that is gone says nothing against them.
    let live = known.brokers.iter().filter(|broker| !known.suspected.contains(&broker.id));
    for broker in live {
        addresses(broker, &known.brokers, found);
        found.push(clock(asking, broker));
    }
    found.extend(config.and_then(|config| identity(config, &known)));
    let request = DescribeTopicsRequest { names: Vec::new() };
    match ask(asking, |mut client| async move { client.describe_topics(request).await }) {
        Ok(topics) => {
            found.push(internal(&topics.topics, known.brokers.len()));
            found.push(bearing(&topics.topics));
        }
        Err(error) => {
            found.push(Finding::bad("topics", error.to_string(), "see that broker's log"))
        }
    }
}

type Described = (DescribeClusterResponse, Option<i64>);

/// What a broker knows, and its clock: milliseconds since 1970, in whole seconds.
fn described(asking: &Asking) -> Result<Described, CliError> {
    ask(asking, |mut client| async move {
        let answer = client.describe_cluster(DescribeClusterRequest {}).await?;
        let date = answer.metadata().get("date").and_then(|date| date.to_str().ok());
        let date = date.and_then(http_date);
        Ok(Response::new((answer.into_inner(), date)))
    })
}

/// `Tue, 01 Dec 2026 12:42:52 GMT`.
fn http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    when::parse(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

fn health(known: &DescribeClusterResponse) -> Finding {
    const CHECK: &str = "cluster";
    let brokers = counted(i64::try_from(known.brokers.len()).unwrap_or(i64::MAX), "broker");
    let advice = "run `barnabas explain cluster`";
    if known.controller_id < 0 {
        return Finding::bad(CHECK, "no controller is known", advice);
    }
    if !known.zookeeper_connected {
        let text = format!("broker {} has no connection to ZooKeeper", known.answered_by);
        return Finding::bad(CHECK, text, advice);
    }
    let text = format!(
        "{brokers}, {} offline, {} under min.insync.replicas, {} under-replicated",
        counted(i64::from(known.offline_partitions), "partition"),
        known.under_min_isr_partitions,
        known.under_replicated_partitions
    );
    if known.offline_partitions + known.under_min_isr_partitions > 0 {
        Finding::bad(CHECK, text, advice)
    } else if known.under_replicated_partitions + known.failed_replicas > 0 {
        Finding::warn(CHECK, text, advice)
    } else {
        Finding::ok(CHECK, text)
    }
}

/// Who is missing: brokers that have replicas and are not registered, and those that are registered and gone.
fn members(known: &DescribeClusterResponse) -> Finding {
    const CHECK: &str = "brokers";
    let registered = counted(i64::try_from(known.brokers.len()).unwrap_or(i64::MAX), "broker");
    let missing = known.missing.iter().chain(&known.suspected).next();
    let (Some(first), Some(gone)) = (missing, gone(known)) else {
        return Finding::ok(CHECK, format!("{registered}, and nobody is missing"));
    };
    let advice = format!("start it again; `barnabas explain broker {first}` tells how");
    Finding::bad(CHECK, gone, advice)
}

/// Both addresses that a broker has registered, dialled from here.
fn addresses(broker: &Broker, all: &[Broker], found: &mut Vec<Finding>) {
    const CHECK: &str = "advertised";
    let id = broker.id;
    let port = u16::try_from(broker.port).unwrap_or_default();
    let kafka = Some(HostPort { host: broker.host.clone(), port });
    let admin = HostPort::parse(&broker.control_address);
    let mut refused = Vec::new();
    for (key, address) in [("advertised.listeners", kafka), ("advertised.admin.listener", admin)] {
        let Some(address) = address else {
            let text =
                format!("broker {id} has registered no address: '{}'", broker.control_address);
            found.push(Finding::bad(CHECK, text, format!("correct {key}")));
            continue;
        };
        let is_far = all.iter().any(|other| {
            other.id != id && !HostPort { host: other.host.clone(), port: 1 }.is_loopback()
        });
        if address.is_loopback() && is_far {
            let text = format!("broker {id} tells others {address}, which is their own machine");
            found.push(Finding::bad(
                CHECK,
                text,
                format!("give {key} an address that others can dial"),
            ));
            continue;
        }
        found.push(match dial(&address) {
            Ok(time) => Finding::ok(
                CHECK,
                format!("broker {id} is there at {address} ({:.1} ms)", time.as_secs_f64() * 1e3),
            ),
            Err(why) => {
                refused.push((key, address, why));
                continue;
            }
        });
    }
    // Who is nowhere at all is gone, rather than badly advertised.
    if let [(_, kafka, why), (_, admin, _)] = &refused[..] {
        let text = format!(
            "broker {id} is registered, and nobody is there: neither at {kafka} nor at {admin} ({why})"
        );
        let advice = format!(
            "start it again if it is gone (`barnabas explain broker {id}`); if it runs, correct what it advertises"
        );
        found.push(Finding::bad("brokers", text, advice));
        return;
    }
    for (key, address, why) in refused {
        let text =
            format!("broker {id} advertises {address}, and from here it is not there ({why})");
        let advice =
            format!("correct {key}, the name server or the firewall; clients here fail likewise");
        found.push(Finding::bad(CHECK, text, advice));
    }
}

fn dial(address: &HostPort) -> Result<Duration, String> {
    let began = Instant::now();
    connect(address, DIAL_MAX).map(|_| began.elapsed())
}

fn clock(asking: &Asking, broker: &Broker) -> Finding {
    const CHECK: &str = "clock";
    let id = broker.id;
    let asking = Asking { admin: broker.control_address.clone(), json: asking.json };
    let before = now_ms();
    let theirs = match described(&asking) {
        Ok((_, theirs)) => theirs,
        Err(error) => return Finding::skipped(CHECK, format!("broker {id}: {error}")),
    };
    match theirs {
        None => Finding::skipped(CHECK, format!("broker {id} does not tell its time")),
        Some(theirs) => judged(id, before, theirs, now_ms()),
    }
}

/// Their time is that of some moment between two of ours, cut to a whole second.
fn judged(id: i32, before: i64, theirs: i64, after: i64) -> Finding {
    const CHECK: &str = "clock";
    let ahead = theirs - after;
    let behind = before - (theirs + 999);
    let apart = ahead.max(behind);
    if apart > CLOCK_APART_MS {
        let word = if ahead > behind { "ahead of" } else { "behind" };
        Finding::warn(
            CHECK,
            format!("broker {id} is {} s {word} this machine", apart / 1_000),
            "keep the clocks with NTP: retention, lookups by time and message.timestamp.after.max.ms follow them",
        )
    } else {
        Finding::ok(
            CHECK,
            format!("broker {id} and this machine agree within {} s", CLOCK_APART_MS / 1_000),
        )
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Whether the log directories of the file are of the cluster that answers.
fn identity(config: &BrokerConfig, known: &DescribeClusterResponse) -> Option<Finding> {
    const CHECK: &str = "cluster id";
    let mut ids =
        config.log_dirs.iter().filter_map(|path| Some((path, machine::cluster_of(path)?)));
    let (mut seen, id) = (false, &known.cluster_id);
    if let Some((path, other)) = ids.find(|(_, found)| {
        seen = true;
        found != id
    }) {
        return Some(Finding::bad(
            CHECK,
            format!("{} is of cluster {other}, and {id} answers", path.display()),
            "correct zookeeper.connect or log.dirs, or --admin",
        ));
    }
    seen.then(|| Finding::ok(CHECK, format!("the log directories are of cluster {id}")))
}

fn factor(topic: &Topic) -> usize {
    topic.partitions.iter().map(|p| p.assigned_replicas.len()).min().unwrap_or(0)
}

fn internal(topics: &[Topic], brokers: usize) -> Finding {
    const CHECK: &str = "internal topics";
    let Some(offsets) = topics.iter().find(|topic| topic.name == OFFSETS) else {
        return Finding::ok(
            CHECK,
            format!("{OFFSETS} is not there yet: no group has asked for it"),
        );
    };
    let factor = factor(offsets);
    let text = format!("{OFFSETS} has replication factor {factor}");
    if factor < 3 && factor < brokers {
        let wished = brokers.min(3);
        let advice = format!(
            "run `barnabas topic set-replicas {OFFSETS} --replication-factor {wished} --wait`"
        );
        Finding::warn(CHECK, text, advice)
    } else {
        Finding::ok(CHECK, text)
    }
}

/// Topics of which no broker can be restarted.
fn bearing(topics: &[Topic]) -> Finding {
    const CHECK: &str = "topics";
    let rigid = |topic: &&Topic| {
        let least = topic.config.as_ref().map_or(1, |config| config.min_insync_replicas);
        factor(topic) <= usize::try_from(least.max(1)).unwrap_or(usize::MAX)
    };
    let found: Vec<&str> = topics.iter().filter(rigid).map(|topic| topic.name.as_str()).collect();
    let number = |n: usize| counted(i64::try_from(n).unwrap_or(i64::MAX), "topic");
    match found.first() {
        None => {
            Finding::ok(CHECK, format!("{}, each bears the loss of a broker", number(topics.len())))
        }
        Some(first) => Finding::warn(
            CHECK,
            format!(
                "{} of {} can spare no replica at acks=all, '{first}' first",
                number(found.len()),
                topics.len()
            ),
            "raise the replication factor above min.insync.replicas (`barnabas topic set-replicas`)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use barnabas_proto::v1::{Partition, TopicConfig};

    use super::*;

    #[test]
    fn clocks_are_apart_only_where_no_rounding_explains_it() {
        assert_eq!(
            http_date("Tue, 01 Dec 2026 12:42:52 GMT"),
            when::parse("2026-12-01T12:42:52Z").ok()
        );
        assert_eq!(http_date("yesterday"), None);
        let level = |before, theirs, after| judged(1, before, theirs, after).level;
        assert_eq!(level(10_999, 10_000, 11_000), Level::Ok);
        assert_eq!(level(10_000, 12_000, 10_010), Level::Ok);
        assert_eq!(level(10_000, 13_000, 10_010), Level::Warn);
        assert_eq!(level(20_000, 10_000, 20_010), Level::Warn);
        assert!(judged(1, 20_000, 10_000, 20_010).text.contains("behind"));
    }

    fn topic(name: &str, replicas: usize, least: u32) -> Topic {
        let assigned_replicas = (1..=i32::try_from(replicas).unwrap()).collect();
        let config = TopicConfig { min_insync_replicas: least, ..TopicConfig::default() };
        Topic {
            name: name.to_owned(),
            config: Some(config),
            partitions: vec![Partition { assigned_replicas, ..Partition::default() }],
            ..Topic::default()
        }
    }

    #[test]
    fn topics_that_spare_no_replica_are_named() {
        assert_eq!(bearing(&[topic("a", 3, 2)]).level, Level::Ok);
        let found = bearing(&[topic("a", 3, 2), topic("b", 2, 2), topic("c", 1, 1)]);
        assert!(found.level == Level::Warn && found.text.contains("'b'"), "{found:?}");
        assert_eq!(internal(&[topic(OFFSETS, 1, 1)], 3).level, Level::Warn);
        assert_eq!(internal(&[topic(OFFSETS, 1, 1)], 1).level, Level::Ok);
        assert_eq!(internal(&[topic(OFFSETS, 3, 2)], 5).level, Level::Ok);
    }

    #[test]
    fn whoever_is_missing_is_named() {
        let mut known = DescribeClusterResponse {
            brokers: vec![Broker { id: 1, ..Broker::default() }],
            ..Default::default()
        };
        assert_eq!(members(&known).level, Level::Ok);
        known.missing = vec![3];
        let found = members(&known);
        assert!(
            found.level == Level::Bad && found.text == "broker 3 is not registered",
            "{found:?}"
        );
        assert!(found.advice.unwrap().contains("explain broker 3"));
        (known.missing, known.suspected) = (Vec::new(), vec![1]);
        assert!(members(&known).text.contains("broker 1 is still registered, but gone"));
    }

    #[test]
    fn a_broker_that_is_not_where_it_says_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let nobody = {
            let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            closed.local_addr().unwrap()
        };
        let broker = Broker {
            id: 1,
            host: "127.0.0.1".to_owned(),
            port: here.port().into(),
            control_address: nobody.to_string(),
            ..Broker::default()
        };
        let mut found = Vec::new();
        let gone = Broker { port: nobody.port().into(), ..broker.clone() };
        addresses(&gone, std::slice::from_ref(&gone), &mut found);
        assert_eq!((found.len(), found[0].check), (1, "brokers"), "{found:?}");
        assert!(found[0].text.contains("nobody is there"), "{found:?}");
        found.clear();
        addresses(&broker, std::slice::from_ref(&broker), &mut found);
        let levels: Vec<Level> = found.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Ok, Level::Bad], "{found:?}");
        // Another one lives elsewhere: loopback is no address for it.
        let far = Broker { id: 2, host: "10.0.0.2".to_owned(), ..Broker::default() };
        found.clear();
        addresses(&broker, &[broker.clone(), far], &mut found);
        assert!(found.iter().all(|finding| finding.level == Level::Bad), "{found:?}");
    }
}
