//! The ZooKeeper servers that a broker's file names, by their four-letter words: who leads, versions, bounds of sessions.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use barnabas_broker::config::{BrokerConfig, HostPort};

use super::super::dial::connect;
use super::Finding;

/// Longest wait for a connection, and for an answer.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
const CHECK: &str = "zookeeper";

/// What a server says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Server {
    mode: String,
    version: String,
    /// Of `conf`; empty if it does not say.
    conf: BTreeMap<String, u64>,
}

pub(super) fn look(config: &BrokerConfig, found: &mut Vec<Finding>) {
    let mut modes = Vec::new();
    let mut settings = None;
    for address in &config.zookeeper_connect.servers {
        let server = match word(address, "srvr") {
            Ok(answer) => Server {
                conf: word(address, "conf").map(|answer| conf(&answer)).unwrap_or_default(),
                ..server(&answer)
            },
            Err(why) => {
                found.push(Finding::bad(
                    CHECK,
                    format!("{address} does not answer ({why})"),
                    "start it, or correct zookeeper.connect",
                ));
                continue;
            }
        };
        found.push(one(address, &server));
        modes.push(server.mode.clone());
        if !server.conf.is_empty() {
            settings = Some(server.conf);
        }
    }
    let servers = config.zookeeper_connect.servers.len();
    found.extend(ensemble(servers, &modes));
    match settings {
        Some(settings) => found.extend(bounds(&settings, config.zookeeper_session_timeout_ms)),
        None if modes.is_empty() => {}
        None => found.push(Finding::skipped(
            "zookeeper settings",
            "no server tells them; add conf to 4lw.commands.whitelist. A broker's log says at its start if its session timeout was changed",
        )),
    }
}

fn word(address: &HostPort, word: &str) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = connect(address, WAIT_MAX)?;
    stream.set_read_timeout(Some(WAIT_MAX)).map_err(text)?;
    stream.write_all(word.as_bytes()).map_err(text)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(text)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn server(srvr: &str) -> Server {
    let after = |start: &str| {
        let line = srvr.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_default().trim().to_owned()
    };
    let version = after("Zookeeper version:");
    let version = version.split(['-', ',']).next().unwrap_or_default().to_owned();
    Server { mode: after("Mode:"), version, conf: BTreeMap::new() }
}

/// The numbers among `key=value` lines.
fn conf(answer: &str) -> BTreeMap<String, u64> {
    let lines = answer.lines().filter_map(|line| line.split_once('='));
    lines
        .filter_map(|(key, value)| Some((key.trim().to_owned(), value.trim().parse().ok()?)))
        .collect()
}

fn one(address: &HostPort, server: &Server) -> Finding {
    if server.mode.is_empty() {
        return Finding::bad(
            CHECK,
            format!("{address} is not serving: it is in no quorum, or srvr is not allowed"),
            "start the other members, or add srvr to 4lw.commands.whitelist",
        );
    }
    let text = format!("{address} is {}, version {}", server.mode, server.version);
    let mut parts = server.version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) < (3, 6) => {
            Finding::bad(CHECK, text, "3.6 or newer is needed")
        }
        _ => Finding::ok(CHECK, text),
    }
}

fn ensemble(servers: usize, modes: &[String]) -> Option<Finding> {
    let is = |wanted: &str| modes.iter().filter(|mode| *mode == wanted).count();
    let (alone, leaders) = (is("standalone"), is("leader"));
    if alone > 0 && servers > 1 {
        return Some(Finding::bad(
            CHECK,
            format!(
                "{alone} of {servers} servers stand alone: they are no ensemble, and hold different clusters"
            ),
            "give each of them the same server.N lines",
        ));
    }
    if alone > 0 {
        return Some(Finding::warn(
            CHECK,
            "one server alone: while it is away nobody is elected",
            "run three for anything that matters",
        ));
    }
    if servers > 1 && modes.len() == servers && leaders != 1 {
        return Some(Finding::bad(
            CHECK,
            format!("{leaders} of {servers} servers lead"),
            "name the members of one ensemble, all of them, in zookeeper.connect",
        ));
    }
    None
}

fn bounds(conf: &BTreeMap<String, u64>, session: u64) -> Vec<Finding> {
    const CHECK: &str = "zookeeper settings";
    let get = |key: &str| conf.get(key).copied();
    let tick = get("tickTime").unwrap_or(2_000);
    let least = get("minSessionTimeout").unwrap_or(2 * tick);
    let most = get("maxSessionTimeout").unwrap_or(20 * tick);
    let mut found = Vec::new();
    if session < least || session > most {
        found.push(Finding::warn(
            CHECK,
            format!("sessions last {least} to {most} ms, and zookeeper.session.timeout.ms asks for {session}"),
            "it is cut to that without a word: set it within, or change minSessionTimeout or maxSessionTimeout",
        ));
    }
    if let Some(sync) = get("syncLimit").map(|ticks| ticks * tick).filter(|sync| sync * 2 > session)
    {
        found.push(Finding::warn(
            CHECK,
            format!("syncLimit is {sync} ms of a session of {session}: when ZooKeeper's leader hangs, brokers lose their sessions"),
            "make syncLimit times tickTime less than half of the session timeout",
        ));
    }
    if let Some(most) = get("maxClientCnxns").filter(|most| (1..=60).contains(most)) {
        found.push(Finding::warn(
            CHECK,
            format!("{most} connections from one address at most (maxClientCnxns)"),
            "raise it, or set it to 0, where brokers and tools come from one address",
        ));
    }
    if found.is_empty() {
        let text = format!("sessions last {least} to {most} ms, {session} is asked for");
        found.push(Finding::ok(CHECK, text));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Level;

    #[test]
    fn servers_are_read_and_judged() {
        let read = server("Zookeeper version: 3.8.0-abc, built on x\nLatency\nMode: follower\n");
        assert_eq!((read.mode.as_str(), read.version.as_str()), ("follower", "3.8.0"));
        let address = HostPort::parse("zk:2181").unwrap();
        assert_eq!(one(&address, &read).level, Level::Ok);
        let old = Server { version: "3.4.14".into(), mode: "leader".into(), ..Server::default() };
        assert_eq!(one(&address, &old).level, Level::Bad);
        let outside = server("This ZooKeeper instance is not currently serving requests\n");
        assert_eq!(one(&address, &outside).level, Level::Bad);
        let of = |servers, modes: &[&str]| {
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            ensemble(servers, &modes).map(|finding| finding.level)
        };
        assert_eq!(of(3, &["follower", "leader", "follower"]), None);
        assert_eq!(of(3, &["follower", "follower"]), None, "the one that is away leads");
        assert_eq!(of(2, &["follower", "follower"]), Some(Level::Bad));
        assert_eq!(of(3, &["standalone", "leader", "follower"]), Some(Level::Bad));
        assert_eq!(of(1, &["standalone"]), Some(Level::Warn));
    }

    #[test]
    fn bounds_of_sessions_are_compared() {
        let conf = |text: &str| bounds(&conf(text), 18_000);
        let good = "tickTime=2000\nminSessionTimeout=4000\nmaxSessionTimeout=60000\nsyncLimit=2\nmaxClientCnxns=0\ndataDir=/x";
        assert_eq!(conf(good)[0].level, Level::Ok);
        for (bad, part) in [
            ("maxSessionTimeout=10000", "without a word"),
            ("minSessionTimeout=20000", "without a word"),
            ("syncLimit=5", "syncLimit"),
            ("maxClientCnxns=60", "maxClientCnxns"),
        ] {
            let found = conf(&format!("{good}\n{bad}"));
            let said = format!("{}{}", found[0].text, found[0].advice.clone().unwrap_or_default());
            assert!(found[0].level == Level::Warn && said.contains(part), "{bad}: {said}");
        }
    }
}
