//! What is wrong in the cluster, grouped by cause, the worst first: by what this broker was told, without asking anybody. Whoever wants
//! to know more asks explain.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{BrokerId, ClusterImage, Now, Partition, Standing, TopicPartition};
use serde_json::{Value, json};

use super::listed;
use crate::explain::cause::Kind;
use crate::explain::{Ages, Since};

/// Problems that are told.
const PROBLEMS_MAX: usize = 20;
/// Partitions that are named before they are only counted.
const NAMED_MAX: usize = 3;

/// What is judged.
pub(super) struct Seen<'a> {
    pub(super) image: &'a ClusterImage,
    pub(super) ages: &'a Ages,
    /// The time of `ages`.
    pub(super) now: Now,
    pub(super) zookeeper_away_ms: Option<u64>,
    pub(super) no_controller_ms: Option<u64>,
    /// Brokers that read their logs again, and how far they are.
    pub(super) recovering: Vec<(BrokerId, Option<u64>)>,
    /// Brokers that are registered and do not answer this one, each for how many milliseconds.
    pub(super) silent: &'a BTreeMap<BrokerId, u64>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// 0 is the worst.
    rank: u8,
    /// What explain is asked for.
    kind: &'static str,
    target: String,
    what: String,
    why: String,
    /// For how long, milliseconds; `None`: not known.
    age_ms: Option<u64>,
    /// `None`: not by itself.
    heals_when: Option<String>,
}

/// When a problem of these kinds heals, if they all do by themselves; explain has the word on that.
fn heals(kinds: &[Kind], when: impl Into<String>) -> Option<String> {
    kinds.iter().all(|kind| kind.heals_by_itself() == Some(true)).then(|| when.into())
}

impl Problem {
    /// The last rank that is bad, not only worth a warning.
    const BAD_MAX: u8 = 4;

    /// In the API's words, at `now_ms`, milliseconds since 1970.
    pub(super) fn json(&self, now_ms: i64) -> Value {
        let age = |ms: u64| now_ms.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX));
        json!({
            "severity": if self.rank <= Self::BAD_MAX { "bad" } else { "warn" },
            "kind": self.kind,
            "target": self.target,
            "what": self.what,
            "why": self.why,
            "since_ms": self.age_ms.map(age),
            "heals_by_itself": self.heals_when.is_some(),
            "heals_when": self.heals_when.as_deref().unwrap_or_default(),
        })
    }
}

/// Partitions with something in common.
#[derive(Default)]
struct Together {
    partitions: Vec<TopicPartition>,
    since: Option<Since>,
}

impl Together {
    fn add(&mut self, at: TopicPartition, since: Option<Since>) {
        self.partitions.push(at);
        self.since = match (self.since, since) {
            (Some(known), Some(other)) if other.at < known.at => Some(other),
            (known, other) => known.or(other),
        };
    }

    /// Their names if they are few, else their number; and whether it is one.
    fn named(&self) -> (String, bool) {
        let names: Vec<String> = self
            .partitions
            .iter()
            .take(NAMED_MAX)
            .map(|at| format!("{}-{}", at.topic, at.partition))
            .collect();
        match self.partitions.len() {
            one @ ..=NAMED_MAX => (listed(&names), one == 1),
            many => (format!("{many} partitions"), false),
        }
    }

    fn target(&self) -> String {
        let first = self.partitions.first();
        first.map(|at| format!("{}/{}", at.topic, at.partition)).unwrap_or_default()
    }
}

/// See the module's head.
pub(super) fn problems(seen: &Seen<'_>) -> Vec<Problem> {
    let mut found = coordination(seen);
    found.extend(of_partitions(seen));
    found.extend(of_brokers(seen));
    found.sort_by_key(|problem| problem.rank);
    found.truncate(PROBLEMS_MAX);
    found
}

/// ZooKeeper and the controller.
fn coordination(seen: &Seen<'_>) -> Vec<Problem> {
    let whole = |rank, what: &str, why: &str, age_ms, heals_when| Problem {
        rank,
        kind: "cluster",
        target: String::new(),
        what: what.to_owned(),
        why: why.to_owned(),
        age_ms: Some(age_ms),
        heals_when,
    };
    let mut found = Vec::new();
    if let Some(ms) = seen.zookeeper_away_ms {
        let why = "Reads and writes go on; no leader is elected and no ISR changes";
        let when = heals(&[Kind::ZooKeeperUnreachable], "when ZooKeeper is back");
        found.push(whole(1, "ZooKeeper cannot be reached", why, ms, when));
    }
    if let Some(ms) = seen.no_controller_ms.filter(|_| seen.zookeeper_away_ms.is_none()) {
        let why = "Reads and writes go on; no leader is elected and no ISR changes";
        let when = heals(&[Kind::NoController], "when one is elected");
        found.push(whole(1, "There is no controller", why, ms, when));
    }
    found
}

fn of_partitions(seen: &Seen<'_>) -> Vec<Problem> {
    let image = seen.image;
    // By standing, and by the brokers that are missed.
    let mut groups: BTreeMap<(Standing, Vec<BrokerId>), Together> = BTreeMap::new();
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let standing = Standing::of(image, name, topic, *index, partition);
            let at = TopicPartition { topic: name.clone(), partition: *index };
            let unwell = seen.ages.unwell(&at);
            let since = match standing {
                Standing::Offline => unwell.offline,
                Standing::UnderMinIsr => unwell.below_min,
                Standing::UnderReplicated => unwell.short,
                Standing::Online => continue,
            };
            groups.entry((standing, missed(standing, partition))).or_default().add(at, since);
        }
    }
    let told = groups.into_iter().map(|((standing, missed), together)| {
        let (names, one) = together.named();
        let (why, heals_when) = match standing {
            Standing::Offline => of_offline(seen, &missed),
            _ => of_missed(seen, &missed),
        };
        let rank = match standing {
            Standing::Offline => 0,
            Standing::UnderMinIsr => 2,
            Standing::UnderReplicated | Standing::Online => 6,
        };
        let what = match (rank, one) {
            (0, true) => format!("{names} is offline"),
            (0, false) => format!("{names} are offline"),
            (2, true) => format!("{names} refuses acks=all"),
            (2, false) => format!("{names} refuse acks=all"),
            (_, true) => format!("{names} has fewer in-sync replicas than assigned"),
            (_, false) => format!("{names} have fewer in-sync replicas than assigned"),
        };
        Problem {
            rank,
            kind: "partition",
            target: together.target(),
            what,
            why,
            age_ms: together.since.map(|since| since.age_ms(seen.now).0),
            heals_when,
        }
    });
    told.collect()
}

/// Whom a partition misses: what is offline its ISR, what is short the replicas outside of it. Those that are only being added are not missed.
fn missed(standing: Standing, partition: &Partition) -> Vec<BrokerId> {
    let state = &partition.state;
    match standing {
        Standing::Offline => state.isr_ids(),
        _ => {
            let meant = partition.assignment().original().into_iter();
            meant.filter(|id| !state.in_isr(*id)).collect()
        }
    }
}

/// `broker 1`, or `brokers 1 and 2`.
fn noun(ids: &[BrokerId]) -> String {
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("{} {}", if ids.len() == 1 { "broker" } else { "brokers" }, listed(&names))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

fn is(ids: &[BrokerId]) -> &'static str {
    if ids.len() == 1 { "is" } else { "are" }
}

/// Why partitions with this ISR are led by nobody, and when that heals; `None`: not by itself.
fn of_offline(seen: &Seen<'_>, isr: &[BrokerId]) -> (String, Option<String>) {
    let image = seen.image;
    let gone = |id: &BrokerId| !image.brokers.contains_key(id) || image.suspected.contains(id);
    let serves = |id: &BrokerId| {
        let broker = image.brokers.get(id).filter(|_| !gone(id) && !seen.silent.contains_key(id));
        broker.is_some_and(|broker| !broker.tail_lost) && !image.failed.contains_key(id)
    };
    let (down, up): (Vec<BrokerId>, Vec<BrokerId>) = isr.iter().partition(|id| gone(id));
    if isr.is_empty() {
        return ("No replica is in sync".to_owned(), None);
    }
    if up.is_empty() {
        let only = match isr {
            [_] => "The only in-sync replica was",
            _ => "The in-sync replicas were",
        };
        let when = format!("when {} {} back", noun(&down), is(&down));
        return (format!("{only} on {}", noun(isr)), heals(&[Kind::AllReplicasDead], when));
    }
    let able: Vec<BrokerId> = up.into_iter().filter(serves).collect();
    if !able.is_empty() {
        let why = format!("{} can lead, and {} not been elected yet", noun(&able), has(&able));
        return (capital(&why), heals(&[Kind::Electing], "with the election"));
    }
    (format!("No in-sync replica can lead: they are on {}", noun(isr)), None)
}

fn has(ids: &[BrokerId]) -> &'static str {
    if ids.len() == 1 { "has" } else { "have" }
}

/// Why partitions miss these brokers, and when that heals; `None`: not by itself.
fn of_missed(seen: &Seen<'_>, missed: &[BrokerId]) -> (String, Option<String>) {
    let image = seen.image;
    if missed.is_empty() {
        let why = "Their min.insync.replicas is greater than the number of their replicas";
        return (why.to_owned(), None);
    }
    let kind = |id: BrokerId| match image.brokers.get(&id) {
        None => Kind::BrokerDown,
        Some(_) if image.suspected.contains(&id) => Kind::BrokerSuspected,
        Some(broker) if broker.draining => Kind::Draining,
        Some(_) if seen.silent.contains_key(&id) => Kind::BrokerSilent,
        Some(_) if seen.recovering.iter().any(|(known, _)| *known == id) => Kind::Recovering,
        Some(_) if image.failed.contains_key(&id) => Kind::DirectoryFailed,
        Some(_) => Kind::SlowFollower,
    };
    let mut by_kind: BTreeMap<Kind, Vec<BrokerId>> = BTreeMap::new();
    for id in missed {
        by_kind.entry(kind(*id)).or_default().push(*id);
    }
    // Whose process is gone is down, whether its session has ended or not.
    if let Some(suspected) = by_kind.remove(&Kind::BrokerSuspected) {
        let down = by_kind.entry(Kind::BrokerDown).or_default();
        down.extend(suspected);
        down.sort();
    }
    let told = by_kind.iter().map(|(kind, ids)| {
        let how = match kind {
            Kind::BrokerDown => "down",
            Kind::Draining => "being emptied",
            Kind::Recovering => "recovering",
            Kind::DirectoryFailed => "not able to serve all of its replicas",
            Kind::BrokerSilent => {
                let verb = if ids.len() == 1 { "does" } else { "do" };
                return format!("{} {verb} not answer", noun(ids));
            }
            _ => "out of sync",
        };
        format!("{} {} {how}", noun(ids), is(ids))
    });
    let why = told.collect::<Vec<_>>().join("; ");
    let kinds: Vec<Kind> = by_kind.into_keys().collect();
    (capital(&why), heals(&kinds, format!("when {} {} caught up", noun(missed), has(missed))))
}

fn of_brokers(seen: &Seen<'_>) -> Vec<Problem> {
    let image = seen.image;
    let mut found = Vec::new();
    let broker = |rank, id: BrokerId, what: String, why: String, heals_when| Problem {
        rank,
        kind: "broker",
        target: id.to_string(),
        what,
        why,
        age_ms: seen.ages.departed(id).map(|gone| gone.since.age_ms(seen.now).0),
        heals_when,
    };
    let assigned: BTreeSet<BrokerId> = image
        .topics
        .values()
        .flat_map(|topic| topic.partitions.values())
        .flat_map(|partition| partition.assigned_replicas.iter().copied())
        .collect();
    for id in assigned.into_iter().filter(|id| !image.brokers.contains_key(id)) {
        let why = "It is not registered in ZooKeeper".to_owned();
        found.push(broker(3, id, format!("Broker {id} is down"), why, None));
    }
    for id in &image.suspected {
        let why = "Its ports refuse connections; its session in ZooKeeper has not ended yet";
        found.push(broker(3, *id, format!("Broker {id} is down"), why.to_owned(), None));
    }
    let silent = seen.silent.iter();
    let silent = silent.filter(|(id, _)| image.brokers.contains_key(*id));
    for (id, ms) in silent.filter(|(id, _)| !image.suspected.contains(*id)) {
        let why = "It is registered in ZooKeeper, and its admin port does not answer".to_owned();
        let silent = broker(3, *id, format!("Broker {id} does not answer"), why, None);
        found.push(Problem { age_ms: Some(*ms), ..silent });
    }
    for (id, failed) in &image.failed {
        let what = match failed.len() {
            1 => format!("Broker {id} cannot serve one of its replicas"),
            many => format!("Broker {id} cannot serve {many} of its replicas"),
        };
        let why = "Their log directory or their logs have failed".to_owned();
        found.push(broker(4, *id, what, why, None));
    }
    for (id, percent) in &seen.recovering {
        let percent = percent.map_or_else(String::new, |percent| format!(", {percent} % done"));
        let why = format!("It reads its logs again after a stop that was not clean{percent}");
        let when = heals(&[Kind::Recovering], "when it has read them");
        found.push(broker(5, *id, format!("Broker {id} is recovering"), why, when));
    }
    if !image.unreadable.is_empty() {
        let names: Vec<String> =
            image.unreadable.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        found.push(Problem {
            rank: 4,
            kind: "cluster",
            target: String::new(),
            what: format!("The nodes of {} cannot be read", listed(&names)),
            why: "What ZooKeeper has of them makes no sense to the controller".to_owned(),
            age_ms: None,
            heals_when: None,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::standing::tests::image;
    use super::*;

    const SILENT: BTreeMap<BrokerId, u64> = BTreeMap::new();

    fn told(image: &ClusterImage, more: impl FnOnce(&mut Seen<'_>)) -> Vec<Problem> {
        let (ages, silent) = (Ages::default(), SILENT);
        let mut seen = Seen {
            image,
            ages: &ages,
            now: Now(5_000),
            zookeeper_away_ms: None,
            no_controller_ms: None,
            recovering: Vec::new(),
            silent: &silent,
        };
        more(&mut seen);
        problems(&seen)
    }

    fn sentences(problems: &[Problem]) -> Vec<String> {
        let one = |p: &Problem| {
            let heals = p.heals_when.as_deref().unwrap_or("never");
            format!("{}. {}. {heals}", p.what, p.why)
        };
        problems.iter().map(one).collect()
    }

    #[test]
    fn a_healthy_cluster_has_no_problem() {
        let well = image(&[1, 2, 3], &[(1, &[1, 2, 3]), (2, &[1, 2, 3])]);
        assert_eq!(told(&well, |_| {}), []);
    }

    #[test]
    fn what_has_one_cause_is_one_problem_and_the_worst_comes_first() {
        let states: [(i32, &[i32]); 5] =
            [(-1, &[3]), (-1, &[3]), (1, &[1]), (1, &[1, 2]), (2, &[1, 2])];
        let sick = image(&[1, 2], &states);
        assert_eq!(
            sentences(&told(&sick, |_| {})),
            [
                "t-0 and t-1 are offline. The only in-sync replica was on broker 3. never",
                "t-2 refuses acks=all. Broker 3 is down; broker 2 is out of sync. never",
                "Broker 3 is down. It is not registered in ZooKeeper. never",
                "t-3 and t-4 have fewer in-sync replicas than assigned. Broker 3 is down. never",
            ]
        );
        let first = &told(&sick, |_| {})[0];
        let json = first.json(1_000_000);
        assert_eq!((&json["severity"], &json["target"]), (&json!("bad"), &json!("t/0")));
        assert_eq!(json["since_ms"], Value::Null, "nobody saw it begin");
    }

    #[test]
    fn a_leader_that_is_suspected_makes_offline_what_nobody_else_can_lead() {
        let states: [(i32, &[i32]); 3] = [(3, &[3]), (3, &[1, 3]), (1, &[1, 2])];
        let mut dying = image(&[1, 2, 3], &states);
        dying.suspected.insert(BrokerId(3));
        assert_eq!(
            sentences(&told(&dying, |_| {})),
            [
                "t-1 is offline. Broker 1 can lead, and has not been elected yet. with the election",
                "t-0 is offline. The only in-sync replica was on broker 3. never",
                "Broker 3 is down. Its ports refuse connections; its session in ZooKeeper has not ended yet. never",
                "t-2 has fewer in-sync replicas than assigned. Broker 3 is down. never",
            ]
        );
        let behind = image(&[1, 2, 3], &[(1, &[1, 2])]);
        assert!(sentences(&told(&behind, |_| {}))[0].ends_with("when broker 3 has caught up"));
    }

    #[test]
    fn a_broker_that_is_registered_and_silent_is_not_merely_behind() {
        let states: [(i32, &[i32]); 1] = [(1, &[1, 2])];
        let (image, ages) = (image(&[1, 2, 3], &states), Ages::default());
        let silent = BTreeMap::from([(BrokerId(3), 700)]);
        let seen = Seen {
            image: &image,
            ages: &ages,
            now: Now(5_000),
            zookeeper_away_ms: None,
            no_controller_ms: None,
            recovering: Vec::new(),
            silent: &silent,
        };
        let found = problems(&seen);
        assert_eq!(found[0].what, "Broker 3 does not answer");
        assert_eq!(found[0].age_ms, Some(700));
        assert_eq!(found[1].why, "Broker 3 does not answer");
    }

    #[test]
    fn many_are_counted_and_the_list_is_bounded() {
        let states: Vec<(i32, &[i32])> = vec![(1, &[1, 2]); 1_244];
        let problems = told(&image(&[1, 2, 3], &states), |_| {});
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.starts_with("1244 partitions have"), "{problems:?}");
        assert_eq!(problems[0].why, "Broker 3 is out of sync");
    }

    #[test]
    fn coordination_and_recovery_are_told() {
        let well = image(&[1, 2, 3], &[(1, &[1, 2, 3])]);
        let away = told(&well, |seen| {
            seen.zookeeper_away_ms = Some(7_000);
            seen.no_controller_ms = Some(6_000);
        });
        assert_eq!(away.len(), 1, "one is the reason of the other");
        assert_eq!(away[0].json(10_000)["since_ms"], 3_000);
        let none = told(&well, |seen| seen.no_controller_ms = Some(1));
        assert_eq!(none[0].what, "There is no controller");
        let states: [(i32, &[i32]); 1] = [(1, &[1, 2])];
        let recovering = told(&image(&[1, 2, 3], &states), |seen| {
            seen.recovering = vec![(BrokerId(3), Some(40))]
        });
        assert_eq!(recovering[0].what, "Broker 3 is recovering");
        assert!(recovering[0].why.ends_with("40 % done"));
        assert_eq!(recovering[1].why, "Broker 3 is recovering");
    }
}
