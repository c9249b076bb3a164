//! What is wrong with one broker: its process, its registration, its directories, its listener, its links.

use barnabas_proto::v1;
use barnabas_types::BrokerId;

use super::steps;
use crate::explain::cause::{Cause, Kind, Severity, Step, lasted, listed, named, quoted};
use crate::explain::facts::{Facts, Listener, Reached, State};

/// Everything that is wrong with a broker itself; what it is worth to its partitions is `severity`.
#[must_use]
pub fn broker(facts: &Facts, id: BrokerId, severity: Severity) -> Vec<Cause> {
    let mut causes = Vec::new();
    causes.extend(process(facts, id, severity));
    if let Some(health) = facts.health(id) {
        causes.extend(directories(facts, id));
        causes.extend(recovering(id, health, severity));
        let links = health.links.iter();
        causes.extend(
            links.filter_map(|l| link(facts, id, BrokerId(l.leader_id), Severity::Degraded)),
        );
    }
    causes.extend(listener(facts, id, Severity::Degraded));
    causes.extend(draining(facts, id));
    causes
}

/// Why a broker does not take part: it is gone, fenced, or says nothing.
pub(super) fn process(facts: &Facts, id: BrokerId, severity: Severity) -> Option<Cause> {
    let told = facts.unanswered(id);
    Some(match facts.state(id) {
        State::Up(_) | State::NotAsked => return None,
        State::Down => {
            let departed = facts.ages.departed(id);
            let gone = match departed {
                Some(departed) => {
                    let (ms, _) = departed.since.age_ms(facts.now);
                    let host = &departed.broker.host;
                    format!("broker {id} at {host} has not been registered for {}", lasted(ms))
                }
                None => format!("broker {id} is not registered"),
            };
            let still = stands_still(facts, id);
            let text = match still {
                true => {
                    format!("broker {id} is not registered, and what has its port says nothing")
                }
                false => format!("broker {id} is down"),
            };
            let cause = Cause::new(Kind::BrokerDown, severity, &[id], text)
                .fact(gone)
                .facts(told)
                .aged(departed.map(|departed| departed.since.age_ms(facts.now)));
            match still {
                true => cause
                    .stays_until("its process goes on; its replicas then catch up")
                    .steps(steps::wake(facts, id)),
                false => cause
                    .stays_until("its process is started again; its replicas then catch up")
                    .step(steps::start(facts, id)),
            }
        }
        State::Starting => {
            let text = format!("broker {id} is starting, and is not registered yet");
            let again = Step::new(format!("barnabas explain broker {id}"), "nothing");
            Cause::new(Kind::Recovering, severity, &[id], text)
                .facts(told)
                .heals("its registration; it then reads its logs, if its last stop was not clean")
                .step(again.when("again: it goes on; if not, its own log says why"))
        }
        State::Fenced(health) => {
            let zookeeper = match (health.zookeeper_connected, health.zookeeper_away_ms) {
                (true, _) => format!("broker {id} has its connection to ZooKeeper"),
                (false, Some(ms)) => {
                    format!("broker {id} has had no connection to ZooKeeper for {}", lasted(ms))
                }
                (false, None) => format!("broker {id} has no connection to ZooKeeper"),
            };
            let text = format!("broker {id} runs, but is not registered: no ISR takes it");
            let age = facts.ages.departed(id).map(|gone| gone.since.age_ms(facts.now));
            Cause::new(Kind::BrokerFenced, severity, &[id], text)
                .fact(format!("broker {id} answers, status {:?}", health.status))
                .fact(zookeeper)
                .aged(age)
                .heals("a new registration, as soon as it reaches ZooKeeper")
                .step(steps::reach_zookeeper(facts, id))
        }
        State::Suspected => {
            let text = format!("broker {id} is registered, but its process is gone");
            Cause::new(Kind::BrokerSuspected, severity, &[id], text)
                .facts(told)
                .facts(facts.image.suspected.contains(&id).then(|| {
                    let refused = facts.brokers.get(&id).map(|found| &found.listener);
                    match refused {
                        Some(Listener::Refused) => {
                            format!("broker {id}: its Kafka port refuses connections too")
                        }
                        _ => format!("the controller suspects broker {id}: its ports refused it"),
                    }
                }))
                .stays_until("its process is started again; its replicas then catch up")
                .step(steps::start(facts, id))
        }
        State::Silent => {
            let text = format!("broker {id} is registered and does not answer");
            let mut cause = Cause::new(Kind::BrokerSilent, severity, &[id], text).facts(told);
            match facts.brokers.get(&id).map(|found| &found.listener) {
                Some(Listener::Answers) => {
                    cause = cause.fact(format!("broker {id}: its Kafka listener answers"));
                }
                Some(Listener::Unreachable(why)) => {
                    cause = cause.fact(format!("broker {id}: its Kafka listener: {why}"));
                }
                Some(Listener::Refused | Listener::NotTried) | None => {}
            }
            cause
                .stays_until("it answers again: its process goes on, or its host is reached again")
                .steps(steps::wake(facts, id))
        }
    })
}

/// It has no session any more, but something has its port and says nothing: most likely its process, so that no other can be started.
fn stands_still(facts: &Facts, id: BrokerId) -> bool {
    let reached = facts.brokers.get(&id).map(|found| &found.reached);
    matches!(facts.state(id), State::Down) && reached == Some(&Reached::Silent { connected: true })
}

/// A cause that wants brokers started, where it wants those that stand still to go on.
pub(super) fn woken(facts: &Facts, mut cause: Cause) -> Cause {
    let still: Vec<BrokerId> =
        cause.brokers.iter().copied().filter(|id| stands_still(facts, *id)).collect();
    if still.len() == cause.brokers.len() {
        cause.healing = format!("the process of {} goes on", named(&still));
    } else if !still.is_empty() {
        cause.healing =
            format!("the process of {} goes on, and the others are started again", named(&still));
    }
    let starts = |id: &BrokerId| steps::start(facts, *id);
    let of_next = std::mem::take(&mut cause.next);
    for step in of_next {
        let same = |id: &&BrokerId| {
            let start = starts(id);
            step.command == start.command && step.place == start.place
        };
        match still.iter().find(same) {
            Some(id) => cause.next.extend(steps::wake(facts, *id)),
            None => cause.next.push(step),
        }
    }
    cause
}

/// How bad it is for the partitions that a broker leads that it does so; `None`: nothing is known against it.
#[must_use]
pub fn leads(facts: &Facts, id: BrokerId) -> Option<Severity> {
    match facts.state(id) {
        State::NotAsked => None,
        State::Up(_) if listener(facts, id, Severity::Offline).is_some() => Some(Severity::Offline),
        State::Up(health) => is_full(health).then_some(Severity::WritesRefused),
        _ => Some(Severity::Offline),
    }
}

/// No directory has room.
pub(super) fn is_full(health: &v1::BrokerHealth) -> bool {
    let mut directories = health.directories.iter();
    !health.directories.is_empty() && directories.all(|d| d.room == "exhausted")
}

fn directories(facts: &Facts, id: BrokerId) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(health) = facts.health(id) else { return causes };
    for directory in &health.directories {
        if directory.offline_reason.is_some() {
            let all = health.directories.iter().all(|d| d.offline_reason.is_some());
            let severity = if all { Severity::WritesRefused } else { Severity::Degraded };
            causes.push(failed_directory(facts, id, directory, severity));
        } else if directory.room == "exhausted" {
            causes.push(full_disk(facts, id, directory, Severity::WritesRefused));
        } else if directory.room == "low" {
            causes.push(full_disk(facts, id, directory, Severity::Notice));
        }
    }
    causes
}

pub(super) fn failed_directory(
    facts: &Facts,
    id: BrokerId,
    directory: &v1::DirectoryHealth,
    severity: Severity,
) -> Cause {
    let path = &directory.path;
    let text = format!("log directory {path} of broker {id} has failed");
    let reason = directory.offline_reason.as_deref().unwrap_or("not known");
    let all = facts.health(id).map_or(&[][..], |health| &health.directories);
    let online = all.iter().filter(|d| d.offline_reason.is_none()).count();
    Cause::new(Kind::DirectoryFailed, severity, &[id], text)
        .fact(format!("broker {id}: {reason}"))
        .fact(format!("broker {id}: {online} of {} directories are online", all.len()))
        .stays_until("its disk is repaired or replaced and the broker is restarted")
        .step(Step {
            cost: "leaders of its other directories move meanwhile; on an empty disk its replicas are copied from their leaders, and one without a leader may be the only copy of what was acknowledged: repair that disk before you replace it".to_owned(),
            ..steps::restart(facts, id).when(format!("when the disk of {path} is repaired or replaced"))
        })
}

pub(super) fn full_disk(
    facts: &Facts,
    id: BrokerId,
    directory: &v1::DirectoryHealth,
    severity: Severity,
) -> Cause {
    let path = &directory.path;
    let text = match severity {
        Severity::Notice => format!("the disk of {path} of broker {id} is filling up"),
        _ => format!("the disk of {path} of broker {id} is full: it refuses produces"),
    };
    let free = directory.free_bytes.map_or("not known".to_owned(), |free| format!("{free} bytes"));
    Cause::new(Kind::DiskFull, severity, &[id], text)
        .fact(format!(
            "broker {id}: free {free}, log.dir.reserve.bytes {}",
            directory.reserve_bytes
        ))
        .heals("retention, deletions or any other way in which space is freed")
        .step(
            Step::new(format!("df -h {}; du -sh {}/*", quoted(path), quoted(path)), "nothing")
                .at(steps::host(facts, id))
                .when("it tells what takes the room: free some, or make the disk larger"),
        )
}

pub(super) fn recovering(
    id: BrokerId,
    health: &v1::BrokerHealth,
    severity: Severity,
) -> Option<Cause> {
    let progress = health.recovery.as_ref().filter(|_| health.status == "recovering")?;
    let percent = progress.opened.saturating_mul(100).checked_div(progress.of).unwrap_or(100);
    let text = format!("broker {id} is reading its logs again after an unclean stop");
    let cause = Cause::new(Kind::Recovering, severity, &[id], text)
        .fact(format!(
            "broker {id}: {} of {} logs are open ({percent} %)",
            progress.opened, progress.of
        ))
        .fact(format!(
            "broker {id}: {} of {} bytes of the logs begun are read",
            progress.scanned_bytes, progress.bytes_to_scan
        ));
    let again = Step::new(format!("barnabas explain broker {id}"), "nothing");
    Some(cause.heals("the end of the recovery").step(again.when("again: it goes on")))
}

/// The advertised listener, of a broker that is well otherwise.
pub(super) fn listener(facts: &Facts, id: BrokerId, severity: Severity) -> Option<Cause> {
    let State::Up(health) = facts.state(id) else { return None };
    let found = facts.brokers.get(&id)?;
    let why = match &found.listener {
        Listener::Answers | Listener::NotTried => return None,
        Listener::Refused => "refuses connections".to_owned(),
        Listener::Unreachable(why) => why.clone(),
    };
    // Before the first state it takes no client on purpose. If another broker reaches it, the way there is cut, not the listener.
    let reached =
        |link: &v1::LeaderLink| link.connected && link.answered_ms < facts.link_silent_ms();
    let mut others = facts.brokers.keys().filter(|other| **other != id);
    if health.status != "ready" || others.any(|o| facts.link(*o, id).is_some_and(reached)) {
        return None;
    }
    let address = &found.kafka;
    let text =
        format!("clients do not reach broker {id} at {address}, where it tells them to connect");
    Some(
        Cause::new(Kind::ListenerUnreachable, severity, &[id], text)
            .fact(format!("{address}, from broker {}: {why}", facts.me))
            .fact(format!("broker {id} answers at its admin address {}", found.admin))
            .stays_until("advertised.listeners names an address that clients and brokers reach, or the network lets them through")
            .step(Step {
                cost: "its leaders move while it restarts".to_owned(),
                ..steps::restart(facts, id)
                    .when("when advertised.listeners in that file is an address that clients reach")
            }),
    )
}

fn draining(facts: &Facts, id: BrokerId) -> Option<Cause> {
    let broker = facts.image.brokers.get(&id).filter(|broker| broker.draining)?;
    let (mut leads, mut member_of, mut first) = (0, 0, None);
    for (name, topic) in &facts.image.topics {
        for (index, partition) in &topic.partitions {
            leads += usize::from(partition.state.leader == Some(id));
            if partition.state.in_isr(id) {
                member_of += 1;
                first.get_or_insert((name, *index, topic, partition));
            }
        }
    }
    let text = match (leads, member_of) {
        (0, 0) => format!("broker {id} is being emptied: it leads nothing and is in no ISR"),
        _ => format!(
            "broker {id} is being emptied, but still leads {leads} partitions and is in the ISR of {member_of}: do not stop it yet"
        ),
    };
    let mut cause = Cause::new(Kind::Draining, Severity::Degraded, &[id], text)
        .fact(format!("the registration of broker {id} at {} says so", broker.host))
        .stays_until("it is undrained, or registers again after a restart");
    if let Some((name, index, topic, partition)) = first {
        cause = cause.fact(format!(
            "for instance {name}:{index}: ISR {} of replicas {}, min.insync.replicas {}",
            listed(&partition.state.isr_ids()),
            listed(&partition.assigned_replicas),
            topic.config.min_insync_replicas
        ));
    }
    Some(
        cause
            .step(
                Step::new(format!("barnabas broker can-stop {id}"), "nothing")
                    .when("it tells whether it may be stopped now"),
            )
            .next(format!("barnabas broker undrain {id}"), "nothing"),
    )
}

pub(super) fn drained_replica(facts: &Facts, id: BrokerId) -> Option<Cause> {
    draining(facts, id)
}

/// The connection over which `follower` fetches from `leader`, if both live and it does not work.
pub(super) fn link(
    facts: &Facts,
    follower: BrokerId,
    leader: BrokerId,
    severity: Severity,
) -> Option<Cause> {
    let link = facts.link(follower, leader)?;
    let leader_lives = matches!(facts.state(leader), State::Up(_));
    let silent = link.connected && link.answered_ms >= facts.link_silent_ms();
    // One that has just begun to dial is not cut yet.
    let broken = !link.connected && (link.since_ms >= 1_000 || !link.failure.is_empty());
    if !leader_lives || !(silent || broken) {
        return None;
    }
    if listener(facts, leader, severity).is_some() {
        // Nobody reaches it: that is the listener's trouble.
        return None;
    }
    let text = format!("broker {follower} cannot fetch from broker {leader}, though both live");
    let how = if silent {
        format!(
            "broker {follower}: its connection to broker {leader} is open, and nothing has come for {}",
            lasted(link.answered_ms)
        )
    } else {
        let failure = if link.failure.is_empty() { "no answer yet" } else { &link.failure };
        format!(
            "broker {follower}: no working connection to broker {leader} for {}: {failure}",
            lasted(link.since_ms)
        )
    };
    let address = facts.brokers.get(&leader).map_or("", |found| found.kafka.as_str());
    let age = if silent { link.answered_ms } else { link.since_ms };
    Some(
        Cause::new(Kind::LinkCut, severity, &[follower, leader], text)
            .fact(how)
            .fact(format!("brokers {follower} and {leader} answer broker {}", facts.me))
            .aged(Some((age, false)))
            .heals("the network between them: the follower dials again at least once a second")
            .step(steps::reach(facts, follower, address)),
    )
}
