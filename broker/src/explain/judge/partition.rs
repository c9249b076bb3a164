//! What is wrong with one partition: why nobody leads it, why it takes no writes, who is missing in its ISR.

use barnabas_types::{BrokerId, Partition, Standing, TopicImage, TopicPartition};

use super::broker::{self, drained_replica, listener, process, recovering, woken};
use super::moving::moving;
use super::{cluster, followers, steps, unclean};
use crate::explain::cause::{
    Candidate, Cause, Kind, Severity, Step, first, lasted, listed, named, shown,
};
use crate::explain::facts::{Facts, State};

/// A partition that exists, with all that is known.
pub(super) struct Look<'a> {
    pub(super) facts: &'a Facts,
    pub(super) at: &'a TopicPartition,
    pub(super) topic: &'a TopicImage,
    pub(super) partition: &'a Partition,
    pub(super) standing: Standing,
    /// How bad it is that a follower is missing.
    pub(super) missing: Severity,
}

/// Everything that is wrong with a partition, in no order yet. A partition that does not exist has no causes, unless files of a
/// deleted topic wait for their brokers.
#[must_use]
pub fn partition(facts: &Facts, at: &TopicPartition) -> Vec<Cause> {
    let topic = facts.image.topics.get(&at.topic);
    let found = topic.and_then(|topic| Some((topic, topic.partitions.get(&at.partition)?)));
    let mut causes = match found {
        Some((topic, partition)) => {
            let standing = Standing::of(&facts.image, &at.topic, topic, at.partition, partition);
            let missing = match standing {
                Standing::UnderMinIsr => Severity::WritesRefused,
                _ => Severity::Degraded,
            };
            Look { facts, at, topic, partition, standing, missing }.causes()
        }
        None => deleted(facts, at),
    };
    for cause in &mut causes {
        if cause.partitions.is_empty() {
            cause.partitions.push(at.clone());
        }
    }
    causes
}

/// One sentence about a partition, which has these causes; `None` if there is no such partition.
#[must_use]
pub fn headline(facts: &Facts, at: &TopicPartition, causes: &[Cause]) -> Option<String> {
    let topic = facts.image.topics.get(&at.topic)?;
    let partition = topic.partitions.get(&at.partition)?;
    let (name, isr) = (shown(at), listed(&partition.state.isr_ids()));
    let of = listed(&partition.assigned_replicas);
    let worst = first(causes).map(|cause| (cause.severity, &cause.summary));
    let standing = Standing::of(&facts.image, &at.topic, topic, at.partition, partition);
    let serves = |leader: &BrokerId| matches!(facts.state(*leader), State::Up(_) | State::NotAsked);
    Some(match partition.state.leader {
        Some(leader) if !serves(&leader) => format!(
            "{name} is offline: broker {leader}, which leads it, does not answer; ISR {isr} of replicas {of}"
        ),
        None => format!("{name} is offline: nobody leads it; ISR {isr} of replicas {of}"),
        Some(leader) if standing == Standing::UnderMinIsr => format!(
            "{name} refuses acks=all: ISR {isr} of replicas {of}, min.insync.replicas {}; broker {leader} leads",
            topic.config.min_insync_replicas
        ),
        Some(leader) => match worst {
            Some((Severity::Offline, why)) => {
                format!(
                    "{name} is offline: {why}; broker {leader} leads, ISR {isr} of replicas {of}"
                )
            }
            Some((Severity::WritesRefused, why)) => {
                // Without ZooKeeper or a controller leaders go on serving.
                let served = causes.iter().filter(|c| c.severity == Severity::WritesRefused);
                let mut kinds = served.map(|cause| cause.kind);
                if kinds.all(|kind| matches!(kind, Kind::ZooKeeperUnreachable | Kind::NoController))
                {
                    format!("{name}: broker {leader} leads, ISR {isr} of replicas {of}, but {why}")
                } else {
                    format!(
                        "{name} takes no writes: {why}; broker {leader} leads, ISR {isr} of replicas {of}"
                    )
                }
            }
            _ if standing == Standing::UnderReplicated => {
                format!(
                    "{name} is under-replicated: ISR {isr} of replicas {of}; broker {leader} leads"
                )
            }
            _ => format!("{name}: broker {leader} leads, ISR {isr} of replicas {of}"),
        },
    })
}

/// Files of a deleted topic go with their brokers' return (R29).
fn deleted(facts: &Facts, at: &TopicPartition) -> Vec<Cause> {
    let Some(gone) = facts.ages.deleted(&at.topic) else { return Vec::new() };
    let replicas = gone.replicas.get(&at.partition).cloned().unwrap_or_default();
    // Whoever was gone before the topic was cannot have been told of it; of others that do not answer nobody knows.
    let missed_it = |id: BrokerId| {
        facts.ages.departed(id).is_some_and(|departed| departed.since.at < gone.since.at)
    };
    let (mut there, mut unknown) = (Vec::new(), Vec::new());
    for id in replicas {
        match facts.state(id) {
            State::Up(_) | State::Fenced(_) if facts.replica(id, at).is_some_and(|r| r.hosted) => {
                there.push(id);
            }
            State::Down | State::Starting | State::Fenced(_) if missed_it(id) => there.push(id),
            State::Down | State::Starting | State::Suspected | State::Silent => unknown.push(id),
            State::Up(_) | State::NotAsked | State::Fenced(_) => {}
        }
    }
    let text = match (&there[..], &unknown[..]) {
        ([], []) => return Vec::new(),
        (there, []) => format!(
            "topic {} is deleted, but its files on broker {} are still there",
            at.topic,
            listed(there)
        ),
        ([], unknown) => format!(
            "topic {} is deleted; its files on broker {}, which does not answer, may still be there",
            at.topic,
            listed(unknown)
        ),
        (there, unknown) => format!(
            "topic {} is deleted, but its files on broker {} are still there, and may be on broker {}, which does not answer",
            at.topic,
            listed(there),
            listed(unknown)
        ),
    };
    let waiting = [there, unknown].concat();
    let age = gone.since.age_ms(facts.now);
    let told = waiting.iter().filter_map(|id| facts.unanswered(*id));
    let cause = Cause::new(Kind::DeletionWaiting, Severity::Notice, &waiting, text)
        .fact(format!("broker {} heard of the deletion {} ago", facts.me, lasted(age.0)))
        .facts(told)
        .aged(Some(age))
        .heals("each broker deletes its files when it is registered and told of the cluster again");
    let cause = waiting.iter().fold(cause, |cause, id| match facts.state(*id) {
        State::Up(_) | State::NotAsked | State::Starting => {
            let again = Step::new(format!("barnabas explain partition {}", shown(at)), "nothing");
            cause.step(again.when("again: it deletes them by itself"))
        }
        State::Fenced(_) => cause.step(steps::reach_zookeeper(facts, *id)),
        State::Silent => cause.steps(steps::wake(facts, *id)),
        State::Down | State::Suspected => cause.step(steps::start(facts, *id)),
    });
    vec![cause]
}

impl Look<'_> {
    fn causes(&self) -> Vec<Cause> {
        let mut causes = match self.partition.state.leader {
            None => self.leaderless(),
            Some(leader) => self.led(leader),
        };
        let worst = cluster::undecided(&causes);
        causes.extend(cluster::coordination(self.facts, worst));
        causes.extend(moving(self));
        causes
    }

    pub(super) fn ages(&self) -> crate::explain::ages::Unwell {
        self.facts.ages.unwell(self.at)
    }

    /// A replica that its broker cannot serve although it lives.
    fn failed(&self, id: BrokerId, severity: Severity) -> Option<Cause> {
        let reported = self.facts.image.brokers.contains_key(&id)
            && !self.facts.image.is_online(id, &self.at.topic, self.at.partition);
        let replica = self.facts.replica(id, self.at);
        let failed = replica.is_some_and(|r| r.failed || r.role == "fenced");
        if !reported && !failed {
            return None;
        }
        let health = self.facts.health(id);
        let directory = health.and_then(|health| {
            let lies_there = |d: &&barnabas_proto::v1::DirectoryHealth| {
                d.offline_reason.is_some()
                    && replica.is_none_or(|r| r.directory.is_empty() || r.directory == d.path)
            };
            health.directories.iter().find(lies_there)
        });
        Some(match directory {
            Some(directory) => broker::failed_directory(self.facts, id, directory, severity),
            None => {
                let text = format!("the log of {} on broker {id} has failed", shown(self.at));
                let why = replica.map_or("", |replica| &replica.failure);
                let why = if why.is_empty() { "its log says why" } else { why };
                Cause::new(Kind::DirectoryFailed, severity, &[id], text)
                    .fact(format!("broker {id}: it cannot serve this replica: {why}"))
                    .stays_until("the broker is restarted, with a disk that works")
                    .step(Step {
                        cost: "its leaders move meanwhile".to_owned(),
                        ..steps::restart(self.facts, id).when("when its disk works")
                    })
            }
        })
    }

    /// Why the broker of a replica does not serve it; `None` if nothing is known against it.
    pub(super) fn trouble(&self, id: BrokerId, severity: Severity) -> Option<Cause> {
        process(self.facts, id, severity)
            .map(|cause| self.of_last_member(id, cause))
            .or_else(|| self.failed(id, severity))
            .or_else(|| recovering(id, self.facts.health(id)?, severity))
    }

    /// Others lead instead of a leader that is gone only if there are others.
    fn of_last_member(&self, id: BrokerId, cause: Cause) -> Cause {
        let serves = |id: &BrokerId| {
            matches!(self.facts.state(*id), State::Up(_) | State::NotAsked)
                && self.facts.image.is_online(*id, &self.at.topic, self.at.partition)
        };
        let isr = self.partition.state.isr_ids();
        if !isr.contains(&id) {
            return cause;
        }
        if isr.iter().any(|other| *other != id && serves(other)) {
            let session = lasted(self.facts.session_timeout_ms);
            if self.partition.state.leader.is_some_and(|leader| leader != id) {
                return cause;
            }
            return match cause.kind {
                Kind::BrokerSuspected => cause.passes(format!(
                    "other ISR members lead: at once if the controller suspects it (failover.suspicion.enable), else when its session ends, within {session}"
                )),
                Kind::BrokerSilent => cause.passes(format!(
                    "if its process stands still or its host is gone, other ISR members lead when its session ends, within {session}"
                )),
                _ => cause,
            };
        }
        let nobody = format!("no other ISR member of {} can lead", shown(self.at));
        match cause.kind {
            Kind::BrokerSuspected => {
                cause.stays_until(format!("its process is started again: {nobody}"))
            }
            Kind::BrokerSilent => cause.stays_until(format!("it answers again: {nobody}")),
            _ => cause,
        }
    }

    fn leaderless(&self) -> Vec<Cause> {
        let isr = self.partition.state.isr_ids();
        let others: Vec<BrokerId> = self
            .partition
            .assigned_replicas
            .iter()
            .copied()
            .filter(|id| !isr.contains(id))
            .collect();
        // One that is fenced runs, and leads again when it has registered.
        let dead = |id: &BrokerId| matches!(self.facts.state(*id), State::Down | State::Suspected);
        let fenced = isr.iter().any(|id| matches!(self.facts.state(*id), State::Fenced(_)));
        let age = self.ages().offline.map(|since| since.age_ms(self.facts.now));
        let mut causes: Vec<Cause> = Vec::new();
        if !isr.is_empty() && isr.iter().all(dead) {
            let candidates = unclean::candidates(self, &others);
            causes.push(woken(self.facts, self.isr_dead(&isr, candidates).aged(age)));
        } else {
            causes.extend(isr.iter().filter_map(|id| {
                let waits_for_it = !(fenced && dead(id));
                let severity = if waits_for_it { Severity::Offline } else { Severity::Degraded };
                self.trouble(*id, severity)
            }));
            causes.extend(self.tail_lost(&isr).map(|cause| cause.aged(age)));
        }
        if causes.is_empty() {
            let text = format!("{} is waiting for an election", shown(self.at));
            causes.push(
                Cause::new(Kind::Electing, Severity::Offline, &isr, text)
                    .fact(format!("ISR {}: nothing is known against its members", listed(&isr)))
                    .aged(age)
                    .heals("the controller, as soon as it has heard of its members")
                    .next(format!("barnabas explain partition {}", shown(self.at)), "nothing"),
            );
        }
        causes.extend(others.iter().filter_map(|id| self.trouble(*id, Severity::Degraded)));
        causes
    }

    /// The last ISR member is there, but may have lost its tail (R6): all replicas must report before the longest log leads (R8).
    fn tail_lost(&self, isr: &[BrokerId]) -> Option<Cause> {
        let lost = |id: &BrokerId| self.facts.image.brokers.get(id).is_some_and(|b| b.tail_lost);
        let losers: Vec<BrokerId> = isr.iter().copied().filter(lost).collect();
        if losers.is_empty() {
            return None;
        }
        let assigned = &self.partition.assigned_replicas;
        let reports = |id: &BrokerId| {
            self.facts.image.brokers.contains_key(id) && self.facts.log(*id, self.at).is_some()
        };
        let missing: Vec<BrokerId> = assigned.iter().copied().filter(|id| !reports(id)).collect();
        let text = format!(
            "broker {}, the last of the ISR, may have lost the end of its log; the longest log leads when all replicas are back",
            listed(&losers)
        );
        let mut cause = Cause::new(Kind::TailLost, Severity::Offline, &losers, text);
        for id in assigned {
            if let Some(replica) = self.facts.log(*id, self.at) {
                let (end, epoch) = (replica.log_end, replica.last_epoch);
                cause =
                    cause.fact(format!("broker {id}: its log ends at {end}, last epoch {epoch}"));
            }
        }
        cause = cause.facts(missing.iter().filter_map(|id| self.facts.unanswered(*id)));
        cause = if missing.is_empty() {
            let again =
                Step::new(format!("barnabas explain partition {}", shown(self.at)), "nothing");
            cause
                .heals("the controller, as soon as every replica has reported to it")
                .step(again.when("again: the longest log leads within seconds"))
        } else {
            let troubles = missing.iter().map(|id| self.trouble(*id, Severity::Offline));
            let comes = troubles.flatten().all(|trouble| trouble.heals_by_itself);
            let back = listed(&missing);
            match comes {
                true => cause.heals(format!(
                    "the return of broker {back}; nothing is lost that one of them has"
                )),
                false => cause.stays_until(format!(
                    "broker {back} is back; nothing is lost that one of them has"
                )),
            }
        };
        for id in &missing {
            let trouble = self.trouble(*id, Severity::Offline);
            match trouble.and_then(|trouble| trouble.next.into_iter().next()) {
                Some(step) => cause.next.push(step),
                None => cause = cause.next(format!("barnabas explain broker {id}"), "nothing"),
            }
        }
        let candidates = unclean::candidates(self, assigned);
        Some(unclean::with_prices(self, cause, candidates, &missing))
    }

    fn isr_dead(&self, isr: &[BrokerId], candidates: Vec<Candidate>) -> Cause {
        let name = shown(self.at);
        let (kind, text) = if candidates.is_empty() {
            let text = format!("all ISR members of {name} are dead ({})", named(isr));
            (Kind::AllReplicasDead, text)
        } else {
            let alive: Vec<BrokerId> = candidates.iter().map(|c| c.broker).collect();
            let text = format!(
                "all ISR members of {name} are dead ({}); out of sync, but alive: {}",
                named(isr),
                named(&alive)
            );
            (Kind::OnlyOutOfSyncAlive, text)
        };
        let mut cause = Cause::new(kind, Severity::Offline, isr, text);
        for id in isr {
            cause = cause.facts(
                process(self.facts, *id, Severity::Offline).into_iter().flat_map(|c| c.evidence),
            );
        }
        cause = cause.facts(candidates.iter().flat_map(Candidate::facts));
        cause = cause.stays_until(format!("broker {} is started again", listed(isr)));
        for id in isr {
            let cost = "nothing: what was acknowledged is in its log".to_owned();
            cause = cause.step(Step { cost, ..steps::start(self.facts, *id) });
        }
        unclean::with_prices(self, cause, candidates, isr)
    }

    fn led(&self, leader: BrokerId) -> Vec<Cause> {
        let mut causes: Vec<Cause> = self.trouble(leader, Severity::Offline).into_iter().collect();
        causes.extend(listener(self.facts, leader, Severity::Offline));
        causes.extend(self.full(leader));
        causes.extend(self.stalled(leader));
        causes.extend(followers::missing(self, leader));
        if self.standing == Standing::UnderMinIsr {
            causes.push(self.below_min());
        }
        causes
    }

    fn full(&self, leader: BrokerId) -> Option<Cause> {
        let health = self.facts.health(leader)?;
        let directory = match self.facts.replica(leader, self.at) {
            Some(replica) => health.directories.iter().find(|d| d.path == replica.directory)?,
            // It was not asked of this one, which lies in one of them.
            None => health.directories.first().filter(|_| broker::is_full(health))?,
        };
        (directory.room == "exhausted").then(|| {
            let cause = broker::full_disk(self.facts, leader, directory, Severity::WritesRefused);
            self.with_room(leader, cause)
        })
    }

    /// What helps this partition: a broker that has room, or fewer records.
    fn with_room(&self, leader: BrokerId, mut cause: Cause) -> Cause {
        let replicas = self.partition.assignment().target();
        let has_room = |id: &&BrokerId| {
            !replicas.contains(id)
                && matches!(self.facts.state(**id), State::Up(health) if !broker::is_full(health))
        };
        if let Some(other) = self.facts.image.brokers.keys().find(has_room)
            && !self.partition.moving.is_under_way()
        {
            let moved = replicas.iter().map(|id| if *id == leader { *other } else { *id });
            let moved: Vec<String> = moved.map(|id| id.to_string()).collect();
            let to = format!("{}:{}", self.at.partition, moved.join(","));
            let command =
                format!("barnabas topic set-replicas {} --assignment {to}", self.at.topic);
            let step = Step::new(command, format!("its log is copied to broker {other}"));
            cause.next.insert(0, step.when("it moves this partition to a broker that has room"));
        }
        let Some(log) = self.facts.log(leader, self.at) else { return cause };
        let all = log.log_end.saturating_sub(log.log_start);
        let half = log.log_start.saturating_add(all / 2);
        let command = format!(
            "barnabas topic delete-records {} --partition {} --before {half}",
            self.at.topic, self.at.partition
        );
        let cost =
            format!("deletes the older half of its records: offsets {} to {half}", log.log_start);
        let step = Step::new(command, cost).loses(Some(all / 2));
        cause.step(step.when("only if its older records are not needed any more"))
    }

    /// Something has held the leader's replica all the time that it was tried: who reads or writes there waits, and others on this
    /// broker with them.
    fn stalled(&self, leader: BrokerId) -> Option<Cause> {
        self.facts.replica(leader, self.at).filter(|r| r.held)?;
        let name = shown(self.at);
        let text =
            format!("a write to the log of {name} on broker {leader}, which leads, does not end");
        Some(
            Cause::new(Kind::DiskStalled, Severity::Offline, &[leader], text)
                .fact(format!(
                    "broker {leader}: {name} was held by the same one for as long as it was tried, at least half a second"
                ))
                .heals("its disk, when it goes on; if it reports an error instead, others lead")
                .step(steps::look_at_disk(self.facts, leader))
                .step(Step {
                    cost: "others lead; records at acks=1 that nobody has copied are lost".to_owned(),
                    ..steps::restart_at_once(self.facts, leader)
                        .when("only if the disk does not go on")
                        .loses(None)
                }),
        )
    }

    fn below_min(&self) -> Cause {
        let (isr, min) = (self.partition.state.isr_ids(), self.topic.config.min_insync_replicas);
        let replicas = self.partition.assignment().original().len();
        let text = format!(
            "{} refuses acks=all: {} of at least {min} replicas are in the ISR",
            shown(self.at),
            isr.len()
        );
        let mut cause = Cause::new(Kind::BelowMinIsr, Severity::WritesRefused, &isr, text)
            .fact(format!("min.insync.replicas {min}, replicas {replicas}, ISR {}", listed(&isr)))
            .aged(self.ages().below_min.map(|since| since.age_ms(self.facts.now)));
        let min = usize::try_from(min).unwrap_or(usize::MAX);
        if min <= replicas {
            // What brings them back, and costs nothing.
            let missing = self.partition.assignment().original();
            let missing = missing.into_iter().filter(|id| !self.partition.state.in_isr(*id));
            let trouble = |id| {
                let trouble = self.trouble(id, Severity::Degraded);
                trouble.or_else(|| self.drained(id))
            };
            let troubles: Vec<Cause> = missing.filter_map(trouble).collect();
            cause = match troubles.iter().all(|trouble| trouble.heals_by_itself) {
                true => cause.heals("the return of the replicas that are missing"),
                false => cause.stays_until("the replicas that are missing are back"),
            };
            cause = cause
                .steps(troubles.into_iter().flat_map(|trouble| trouble.next.into_iter().take(1)));
            if cause.next.is_empty() {
                let again = format!("barnabas explain partition {}", shown(self.at));
                cause = cause.step(Step::new(again, "nothing").when("again: they catch up"));
            }
        } else {
            cause = cause.stays_until("min.insync.replicas is at most the number of replicas");
            // Only where there are brokers for them.
            if min <= self.facts.image.brokers.len() {
                let command = format!(
                    "barnabas topic set-replicas {} --replication-factor {min}",
                    self.at.topic
                );
                cause = cause.next(command, "nothing is lost: the log is copied to other brokers");
            }
        }
        let lower = isr.len().max(1);
        let command =
            format!("barnabas topic alter {} --config min.insync.replicas={lower}", self.at.topic);
        // Every record that can be acknowledged then is where the present ones are.
        let (cost, when) = if lower >= replicas {
            (
                "nothing that is there: what will be acknowledged is on all replicas that there are",
                "",
            )
        } else {
            (
                "what will be acknowledged is on fewer brokers: the loss of those loses it",
                "if writes cannot wait for the replicas that are missing",
            )
        };
        cause.step(Step::new(command, cost).when(when))
    }

    pub(super) fn drained(&self, id: BrokerId) -> Option<Cause> {
        drained_replica(self.facts, id)
    }
}
