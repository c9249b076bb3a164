//! The closed list of what can be wrong, and how one of them is told.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use barnabas_types::{BrokerId, TopicName, TopicPartition};

/// How bad a cause is for what was asked about; the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nobody is served.
    Offline,
    /// Some or all writes are refused, or nothing new can be decided.
    WritesRefused,
    /// Served, with less safety or later than it should be.
    Degraded,
    /// Worth knowing.
    Notice,
}

impl Severity {
    /// Its stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::WritesRefused => "writes_refused",
            Self::Degraded => "degraded",
            Self::Notice => "notice",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What can be wrong. Of two that are equally bad the earlier one is told first: it explains the later ones.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Its stable name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Brokers have no connection to ZooKeeper: nobody is elected, no ISR changes.
    ZooKeeperUnreachable = "zookeeper_unreachable",
    /// Nobody is controller, or the controller does not answer.
    NoController = "no_controller",
    /// A log, or the directory that it lies in, cannot be used.
    DirectoryFailed = "directory_failed",
    /// A broker is starting, or reads its logs again after an unclean stop.
    Recovering = "recovering",
    /// No replica lives.
    AllReplicasDead = "all_isr_members_dead",
    /// The ISR members are dead, replicas outside the ISR live.
    OnlyOutOfSyncAlive = "only_out_of_sync_replicas_alive",
    /// The last ISR member may have lost its tail: all replicas must report before the longest log leads.
    TailLost = "tail_lost",
    /// A leader's disk has no room.
    DiskFull = "disk_full",
    /// A write to a leader's log does not end.
    DiskStalled = "disk_stalled",
    /// A broker is not registered, and no process answers.
    BrokerDown = "broker_down",
    /// A broker's process answers, but is not registered: no ISR takes it.
    BrokerFenced = "broker_fenced",
    /// A broker is registered, and its ports refuse: its process is gone.
    BrokerSuspected = "broker_suspected",
    /// A broker is registered and does not answer.
    BrokerSilent = "broker_silent",
    /// Where a broker tells clients to connect, nobody answers.
    ListenerUnreachable = "advertised_listener_unreachable",
    /// Two live brokers do not reach one another.
    LinkCut = "link_cut",
    /// A follower lives and fetches, and is behind.
    SlowFollower = "slow_follower",
    /// A broker is being emptied.
    Draining = "broker_draining",
    /// The ISR is smaller than min.insync.replicas.
    BelowMinIsr = "below_min_isr",
    /// A move of replicas waits, or copies.
    ReassignmentWaiting = "reassignment_waiting",
    /// Files of a deleted topic wait for their broker.
    DeletionWaiting = "deletion_waiting",
    /// An election is under way.
    Electing = "electing",
    /// Nobody coordinates the group now.
    CoordinatorUnavailable = "coordinator_unavailable",
    /// A group is between two generations.
    GroupRebalancing = "group_rebalancing",
    /// A committed offset is not in the log.
    OffsetOutOfRange = "committed_offset_out_of_range",
    /// A group has no members: nobody reads.
    NoMembers = "no_members",
    /// The ledger has records that were acknowledged, or may have been, and are lost.
    RecordsLost = "records_lost",
}

impl Kind {
    /// Whether this heals without anybody's doing; `None`: that depends on the case. A process that is gone has to be started, one that
    /// stands still has to be woken. The one answer for whoever tells of it: explain's causes are held to it, the page takes it from here.
    #[must_use]
    pub fn heals_by_itself(self) -> Option<bool> {
        Some(match self {
            Self::ZooKeeperUnreachable
            | Self::NoController
            | Self::Recovering
            | Self::BrokerFenced
            | Self::LinkCut
            | Self::SlowFollower
            | Self::Electing => true,
            Self::DirectoryFailed
            | Self::AllReplicasDead
            | Self::OnlyOutOfSyncAlive
            | Self::BrokerDown
            | Self::BrokerSuspected
            | Self::BrokerSilent
            | Self::ListenerUnreachable
            | Self::Draining => false,
            Self::TailLost
            | Self::DiskFull
            | Self::DiskStalled
            | Self::BelowMinIsr
            | Self::ReassignmentWaiting
            | Self::DeletionWaiting
            | Self::CoordinatorUnavailable
            | Self::GroupRebalancing
            | Self::OffsetOutOfRange
            | Self::NoMembers
            | Self::RecordsLost => return None,
        })
    }
}

/// Something to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// To be pasted into a shell as it is; what asks a cluster is without `--admin`.
    pub command: String,
    /// What it costs.
    pub cost: String,
    /// On which host; empty: wherever a broker's admin port is reached.
    pub place: String,
    /// When it is to be run, or what it tells; empty: it needs no word.
    pub when: String,
    /// How many acknowledged records it may lose, as far as is known.
    pub loses: Option<i64>,
}

impl Step {
    /// A step that loses no record.
    pub fn new(command: impl Into<String>, cost: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            cost: cost.into(),
            place: String::new(),
            when: String::new(),
            loses: Some(0),
        }
    }

    /// To be run there.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// To be run then, or told by it.
    #[must_use]
    pub fn when(mut self, when: impl Into<String>) -> Self {
        self.when = when.into();
        self
    }

    /// So many acknowledged records go with it; `None`: nobody knows how many.
    #[must_use]
    pub fn loses(mut self, records: Option<i64>) -> Self {
        self.loses = records;
        self
    }
}

/// A replica that an unclean election could make the leader. Offsets are exclusive ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Who.
    pub broker: BrokerId,
    /// Epoch of its last record; -1: none.
    pub last_epoch: i32,
    /// Where its log ends.
    pub log_end: i64,
    /// Epoch of the last leader; -1: there was none.
    pub last_led: i32,
    /// What was acknowledged from here on, inclusive, would or might be lost.
    pub lost_from: i64,
    /// Where what live replicas are known to have beyond that ends; not below `lost_from`.
    pub lost_until: i64,
}

impl Candidate {
    /// Whether its log is the beginning of the last leader's, to its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.last_epoch >= self.last_led
    }

    /// Records of live replicas that it may lack.
    #[must_use]
    pub fn lost_records(&self) -> i64 {
        self.lost_until - self.lost_from
    }

    /// What is known of its log, in words.
    #[must_use]
    pub fn facts(&self) -> Vec<String> {
        let (broker, end, epoch) = (self.broker, self.log_end, self.last_epoch);
        let mut told = vec![format!("broker {broker}: its log ends at {end}, last epoch {epoch}")];
        if !self.is_whole() {
            told.push(format!(
                "broker {broker}: the last leader's epoch was {}; it may have had other records than this log from offset {} on",
                self.last_led, self.lost_from
            ));
        }
        told
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// What.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// One sentence.
    pub summary: String,
    /// Facts, each in a few words. What begins with `broker N: ` is the word of that broker, if it answered.
    pub evidence: Vec<String>,
    /// For how long (ms), and whether it may be longer.
    pub age: Option<(u64, bool)>,
    /// Whether it heals by itself.
    pub heals_by_itself: bool,
    /// By what it heals.
    pub healing: String,
    /// What to do, the best first.
    pub next: Vec<Step>,
    /// Whom an unclean election could elect.
    pub candidates: Vec<Candidate>,
    /// The brokers that it is about.
    pub brokers: Vec<BrokerId>,
    /// The partitions that it concerns, as far as they were looked at.
    pub partitions: Vec<TopicPartition>,
}

impl Cause {
    /// A cause about `brokers`, of which nothing more is known yet.
    pub fn new(
        kind: Kind,
        severity: Severity,
        brokers: &[BrokerId],
        summary: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            severity,
            summary: summary.into(),
            evidence: Vec::new(),
            age: None,
            heals_by_itself: false,
            healing: String::new(),
            next: Vec::new(),
            candidates: Vec::new(),
            brokers: brokers.to_vec(),
            partitions: Vec::new(),
        }
    }

    /// With one more fact.
    #[must_use]
    pub fn fact(mut self, fact: impl Into<String>) -> Self {
        self.evidence.push(fact.into());
        self
    }

    /// With facts.
    #[must_use]
    pub fn facts(mut self, facts: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(facts);
        self
    }

    /// For so long.
    #[must_use]
    pub fn aged(mut self, age: Option<(u64, bool)>) -> Self {
        self.age = age;
        self
    }

    /// It heals by itself, by this; its kind does not say otherwise.
    #[must_use]
    pub fn heals(mut self, by: impl Into<String>) -> Self {
        debug_assert_ne!(self.kind.heals_by_itself(), Some(false), "{self:?}");
        (self.heals_by_itself, self.healing) = (true, by.into());
        self
    }

    /// What it is about stays, but for its partitions somebody else takes over by itself: so.
    #[must_use]
    pub fn passes(mut self, by: impl Into<String>) -> Self {
        (self.heals_by_itself, self.healing) = (true, by.into());
        self
    }

    /// It does not heal before somebody does this; its kind does not say otherwise.
    #[must_use]
    pub fn stays_until(mut self, by: impl Into<String>) -> Self {
        debug_assert_ne!(self.kind.heals_by_itself(), Some(true), "{self:?}");
        (self.heals_by_itself, self.healing) = (false, by.into());
        self
    }

    /// The same is so elsewhere, or for another reason.
    fn add(&mut self, other: Self) {
        self.severity = self.severity.min(other.severity);
        self.age = self.age.max(other.age);
        if self.heals_by_itself && !other.heals_by_itself {
            // For one of the partitions it does not.
            (self.heals_by_itself, self.healing) = (false, other.healing);
        }
        for fact in other.evidence {
            if !self.evidence.contains(&fact) {
                self.evidence.push(fact);
            }
        }
        for id in other.brokers {
            if !self.brokers.contains(&id) {
                self.brokers.push(id);
            }
        }
        self.partitions.extend(other.partitions);
        self.partitions.sort();
        self.partitions.dedup();
    }

    /// With something to do.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>, cost: impl Into<String>) -> Self {
        self.next.push(Step::new(command, cost));
        self
    }

    /// With something to do.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.next.push(step);
        self
    }

    /// With things to do, the best first.
    #[must_use]
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.next.extend(steps);
        self
    }
}

/// Most facts of one cause that are told.
const FACTS_MAX: usize = 20;

/// Stands for the partition in a summary that other partitions of its topic may have, too.
const ANY: &str = "\u{0}";

/// What a cause has in common with those that are told together with it: its summary, without the partition if it has one. What an
/// unclean election costs is each partition's own.
fn common(cause: &Cause) -> (Option<TopicName>, String) {
    if let [at] = &cause.partitions[..]
        && cause.candidates.is_empty()
    {
        let text = with(&cause.summary, &shown(at), ANY);
        let topic = text.contains(ANY).then(|| at.topic.clone());
        return (topic, text);
    }
    (None, cause.summary.clone())
}

/// One word of a text replaced.
fn with(text: &str, word: &str, by: &str) -> String {
    let words = text.split(' ').map(|known| if known == word { by } else { known });
    words.collect::<Vec<_>>().join(" ")
}

/// The worst first, of equals the one that explains the others; what several partitions have in common is told once. If their topic is
/// a part of it, the steps are those of the first of them.
#[must_use]
pub fn in_order(causes: Vec<Cause>) -> Vec<Cause> {
    let mut told: Vec<((Option<TopicName>, String), Cause)> = Vec::new();
    for cause in causes {
        let key = common(&cause);
        match told.iter_mut().find(|(known, first)| first.kind == cause.kind && *known == key) {
            Some((_, known)) => known.add(cause),
            None => told.push((key, cause)),
        }
    }
    let told = told.into_iter().map(|((topic, text), mut cause)| {
        let all = cause.partitions.len();
        if let Some(topic) = topic.filter(|_| all > 1) {
            cause.summary = with(&text, ANY, &format!("{topic} ({all} partitions)"));
        }
        let more = cause.evidence.len().saturating_sub(FACTS_MAX);
        if more > 0 {
            cause.evidence.truncate(FACTS_MAX);
            cause.evidence.push(format!("{more} more such facts are left out"));
        }
        cause
    });
    let mut told: Vec<Cause> = told.collect();
    told.sort_by_key(|cause| (cause.severity, cause.kind));
    told
}

/// The one that [`in_order`] puts first.
#[must_use]
pub fn first(causes: &[Cause]) -> Option<&Cause> {
    causes.iter().min_by_key(|cause| (cause.severity, cause.kind))
}

/// `orders:3`, as commands take it.
#[must_use]
pub fn shown(at: &TopicPartition) -> String {
    format!("{}:{}", at.topic, at.partition)
}

/// Topics that are named before they are only counted.
const TOPICS_NAMED_MAX: usize = 5;

/// `orders 50, clicks 10`: how many of these partitions are of which topics, those with the most first.
#[must_use]
pub fn by_topic<'a>(partitions: impl IntoIterator<Item = &'a TopicPartition>) -> String {
    topics(partitions.into_iter().map(|at| at.topic.as_str()))
}

/// The same of names, `TOPIC:PARTITION` each.
#[must_use]
pub fn by_topic_of_names(names: &[String]) -> String {
    topics(names.iter().map(|name| name.rsplit_once(':').map_or(name.as_str(), |(topic, _)| topic)))
}

fn topics<'a>(of: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in of {
        *counts.entry(topic).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(topic, count)| (Reverse(*count), *topic));
    let named = counts.iter().take(TOPICS_NAMED_MAX);
    let mut told: Vec<String> = named.map(|(topic, count)| format!("{topic} {count}")).collect();
    match counts.len().saturating_sub(TOPICS_NAMED_MAX) {
        0 => {}
        more => {
            let rest: usize = counts.iter().skip(TOPICS_NAMED_MAX).map(|(_, count)| count).sum();
            told.push(format!("{more} more topics {rest}"));
        }
    }
    told.join(", ")
}

/// A name of somebody else's choice, for a shell: group ids may be anything.
#[must_use]
pub fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/');
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

/// A duration in the unit that people would choose.
#[must_use]
pub fn lasted(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

/// `broker 1`, or `brokers 1, 2 and 3`.
#[must_use]
pub fn named(brokers: &[BrokerId]) -> String {
    let noun = if brokers.len() > 1 { "brokers" } else { "broker" };
    format!("{noun} {}", listed(brokers))
}

/// `1, 2 and 3`.
#[must_use]
pub fn listed(brokers: &[BrokerId]) -> String {
    let names: Vec<String> = brokers.iter().map(ToString::to_string).collect();
    match names.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
