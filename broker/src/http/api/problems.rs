//! What is wrong in the cluster, grouped by cause, the worst first: by what this broker was told, without asking anybody. Whoever wants
//! to know more asks explain.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{BrokerId, ClusterImage, Now, TopicPartition};
use serde_json::{Value, json};

use super::listed;
use super::standing::State;
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
    heals_when: Option<String>,
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
    let whole = |rank, what: &str, why: &str, age_ms, heals: &str| Problem {
        rank,
        kind: "cluster",
        target: String::new(),
        what: what.to_owned(),
        why: why.to_owned(),
        age_ms: Some(age_ms),
        heals_when: Some(heals.to_owned()),
    };
    let mut found = Vec::new();
    if let Some(ms) = seen.zookeeper_away_ms {
        let why = "Reads and writes go on; no leader is elected and no ISR changes";
        found.push(whole(1, "ZooKeeper cannot be reached", why, ms, "when ZooKeeper is back"));
    }
    if let Some(ms) = seen.no_controller_ms.filter(|_| seen.zookeeper_away_ms.is_none()) {
        let why = "Reads and writes go on; no leader is elected and no ISR changes";
        found.push(whole(1, "There is no controller", why, ms, "when one is elected"));
    }
    found
}

fn of_partitions(seen: &Seen<'_>) -> Vec<Problem> {
    let image = seen.image;
    // By rank, and by the brokers that are missed.
    let mut groups: BTreeMap<(u8, Vec<BrokerId>), Together> = BTreeMap::new();
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let state = State::of(topic, partition);
            let rank = match state {
                State::Offline => 0,
                State::UnderMinIsr => 2,
                State::UnderReplicated => 6,
                State::Online => continue,
            };
            let missed: Vec<BrokerId> = match state {
                State::Offline => partition.state.isr_ids(),
                _ => {
                    let outside = partition.assigned_replicas.iter();
                    outside.filter(|id| !partition.state.in_isr(**id)).copied().collect()
                }
            };
            let at = TopicPartition { topic: name.clone(), partition: *index };
            let unwell = seen.ages.unwell(&at);
            let since = match state {
                State::Offline => unwell.leaderless,
                State::UnderMinIsr => unwell.below_min,
                _ => unwell.short,
            };
            groups.entry((rank, missed)).or_default().add(at, since);
        }
    }
    let told = groups.into_iter().map(|((rank, missed), together)| {
        let (names, one) = together.named();
        let (why, heals_when) = reason(seen, rank == 0, &missed);
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

/// Why partitions miss these brokers, and when that heals; `None`: not by itself.
fn reason(seen: &Seen<'_>, offline: bool, missed: &[BrokerId]) -> (String, Option<String>) {
    let image = seen.image;
    let noun = |ids: &[BrokerId]| {
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        format!("{} {}", if ids.len() == 1 { "broker" } else { "brokers" }, listed(&names))
    };
    let capital = |text: String| {
        let mut chars = text.chars();
        chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
    };
    let is = |ids: &[BrokerId]| if ids.len() == 1 { "is" } else { "are" };
    let (down, up): (Vec<BrokerId>, Vec<BrokerId>) =
        missed.iter().partition(|id| !image.brokers.contains_key(id));
    if offline {
        return match (missed, &down[..]) {
            ([], _) => ("No replica is in sync".to_owned(), None),
            (all, down) if down.len() == all.len() => {
                let only = match all {
                    [_] => "The only in-sync replica was",
                    _ => "The in-sync replicas were",
                };
                let heals = format!("when {} {} back", noun(down), is(down));
                (format!("{only} on {}", noun(all)), Some(heals))
            }
            (all, _) => {
                let why = format!("No in-sync replica can lead: they are on {}", noun(all));
                (why, None)
            }
        };
    }
    let mut why = Vec::new();
    if !down.is_empty() {
        why.push(format!("{} {} down", noun(&down), is(&down)));
    }
    let of = |wanted: &dyn Fn(&BrokerId) -> bool| -> Vec<BrokerId> {
        up.iter().filter(|id| wanted(id)).copied().collect()
    };
    let draining = of(&|id| image.brokers.get(id).is_some_and(|broker| broker.draining));
    let silent = of(&|id| seen.silent.contains_key(id) && !draining.contains(id));
    let recovers = |id: &BrokerId| seen.recovering.iter().any(|(known, _)| known == id);
    let recovering = of(&|id| recovers(id) && !draining.contains(id) && !silent.contains(id));
    let told = [&draining, &silent, &recovering];
    let behind = of(&|id| !told.iter().any(|ids| ids.contains(id)));
    if !silent.is_empty() {
        let verb = if silent.len() == 1 { "does" } else { "do" };
        why.push(format!("{} {verb} not answer", noun(&silent)));
    }
    for (ids, how) in
        [(&draining, "being emptied"), (&recovering, "recovering"), (&behind, "out of sync")]
    {
        if !ids.is_empty() {
            why.push(format!("{} {} {how}", noun(ids), is(ids)));
        }
    }
    let verb = if missed.len() == 1 { "has" } else { "have" };
    let heals = (draining.is_empty()).then(|| format!("when {} {verb} caught up", noun(missed)));
    (capital(why.join("; ")), heals)
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
    for (id, ms) in seen.silent.iter().filter(|(id, _)| image.brokers.contains_key(*id)) {
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
        let heals = Some("when it has read them".to_owned());
        found.push(broker(5, *id, format!("Broker {id} is recovering"), why, heals));
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
                "t-0 and t-1 are offline. The only in-sync replica was on broker 3. when broker 3 is back",
                "t-2 refuses acks=all. Broker 3 is down; broker 2 is out of sync. when brokers 2 and 3 have caught up",
                "Broker 3 is down. It is not registered in ZooKeeper. never",
                "t-3 and t-4 have fewer in-sync replicas than assigned. Broker 3 is down. when broker 3 has caught up",
            ]
        );
        let first = &told(&sick, |_| {})[0];
        let json = first.json(1_000_000);
        assert_eq!((&json["severity"], &json["target"]), (&json!("bad"), &json!("t/0")));
        assert_eq!(json["since_ms"], Value::Null, "nobody saw it begin");
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
