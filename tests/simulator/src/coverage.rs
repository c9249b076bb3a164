//! What a run reached: a green run that never failed over, truncated or lost anything proves nothing.

macro_rules! reached {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Something that must happen now and then.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Reached {
            $($(#[$doc])* $variant,)*
        }

        impl Reached {
            /// All of them.
            pub const ALL: &'static [(Reached, &'static str)] =
                &[$((Reached::$variant, $text),)*];
        }
    };
}

reached! {
    /// A move of replicas began, or got another target.
    MoveBegan = "move began",
    /// A move that was under way got another target, or was cancelled.
    MoveTurned = "move turned",
    /// A move ended.
    MoveEnded = "move ended",
    /// A move ended under a controller that had found it.
    MoveTakenOver = "move taken over",
    /// A replica that had left was deleted.
    ReplicaLeft = "replica left",
    /// A partition got another leader.
    Failover = "failover",
    /// A follower cut its log by epoch.
    Truncation = "truncation",
    /// A leader began without something promised, as the loss table allows.
    LossDetected = "allowed loss met",
    /// The ISR lost a member.
    IsrShrink = "ISR shrink",
    /// The ISR gained a member.
    IsrExpand = "ISR expand",
    /// A leaderless partition was elected from the longest log of all replicas.
    LongestLog = "R8 election",
    /// An unclean election.
    Unclean = "unclean election",
    /// A partition had no leader.
    Leaderless = "leaderless",
    /// A controller was elected after the first.
    ControllerChange = "controller change",
    /// Two terms were alive at once.
    TwoTerms = "two terms at once",
    /// A write met a newer controller epoch.
    FencedWrite = "fenced write",
    /// A write met another version.
    WriteConflict = "write conflict",
    /// A write's outcome was not known.
    UnknownOutcome = "unknown outcome",
    /// A write landed after its outcome had been given up.
    LateWrite = "late write",
    /// A broker refused a push.
    PushRefused = "push refused",
    /// A late or duplicate fetch answer changed nothing.
    LateAnswer = "late answer dropped",
    /// A produce at acks=all was acknowledged.
    AckedAll = "acked at acks=all",
    /// The same after the first leader epoch.
    AckedAfterFailover = "acked after failover",
    /// A produce at acks=all ended without success.
    NotAcked = "acks=all refused",
    /// A producer was told that a sequence is missing.
    GapTold = "gap told",
    /// It was told something else, because the leader was not sure to lead.
    GapWithheld = "gap withheld",
    /// A process was killed.
    ProcessCrash = "process crash",
    /// A host was lost.
    HostCrash = "host crash",
    /// A host died and was back before its messages arrived.
    Bounce = "host bounce",
    /// A host crash cost records.
    TailLost = "tail lost",
    /// All hosts died at once.
    PowerCut = "power cut of all",
    /// A sync failed (R38).
    SyncFailed = "sync failed",
    /// The controller took a report of replicas that failed.
    FailureReported = "replica failure reported",
    /// A log was opened anew after a failed sync.
    SyncHealed = "reopened after a failed sync",
    /// `flush.mode` was changed, and every leader had confirmed it when the operator was answered.
    ModeConfirmed = "flush.mode change confirmed",
    /// The same, but a leader had not confirmed.
    ModeUnconfirmed = "flush.mode change unconfirmed",
    /// The settings of the cluster were to be changed.
    ClusterSettings = "cluster settings changed",
    /// A produce at acks=all was acknowledged after a confirmed change to sync.
    AckedAfterSwitch = "acked after a switch to sync",
    /// An append met a full disk.
    DiskFull = "append refused, disk full",
    /// A follower was without room.
    FollowerFull = "follower without room",
    /// Retention moved a log start.
    Retention = "retention moved a start",
    /// A deletion was acknowledged.
    Deleted = "deletion acknowledged",
    /// A deletion was refused, or ended without success.
    NotDeleted = "deletion refused",
    /// A leader began after a deletion was acknowledged.
    FailoverAfterDeletion = "failover after a deletion",
    /// A follower dropped its log and began at its leader's log start, above 0.
    Reset = "reset to a log start",
    /// The lost-tail mark was cleared.
    MarkCleared = "tail mark cleared",
    /// A host's clock jumped ahead.
    ClockJumped = "clock jumped",
    /// A process was stopped and went on.
    Pause = "pause",
    /// A live broker's session expired.
    SessionExpired = "session expired",
    /// `/controller` was deleted under a live controller.
    ControllerDeleted = "/controller deleted",
    /// A suspected controller's node was deleted, or a dead incarnation's.
    ControllerDeposed = "/controller deleted by version",
    /// A controller suspects a broker.
    Suspected = "broker suspected",
    /// The same, of a broker that runs.
    WronglySuspected = "broker wrongly suspected",
    /// A suspicion replaced a leader.
    SuspectReplaced = "suspected leader replaced",
    /// A suspected broker answered.
    SuspicionEnded = "suspicion ended by an answer",
    /// A broker was not suspected, because of a limit or because there was no reason.
    SuspicionLimited = "suspicion not made",
    /// A link was cut.
    Cut = "cut",
    /// A message was dropped.
    Dropped = "message dropped",
    /// A message came twice.
    Duplicated = "message duplicated",
    /// An ISR proposal was refused.
    ProposalRefused = "proposal refused",
    /// A topic was created.
    TopicCreated = "topic created",
    /// A topic got more partitions.
    TopicGrown = "partitions added",
    /// A topic was deleted.
    TopicDeleted = "topic deleted",
    /// A name was created again.
    TopicRecreated = "topic re-created",
    /// A directory of an earlier life was put away.
    Stray = "stray directory",
    /// A broker was asked to stop in order.
    Shutdown = "controlled shutdown",
    /// It was told that it may.
    StopGranted = "stop granted",
    /// It stopped although it was not.
    StoppedAnyway = "stopped without leave",
    /// A draining broker had to wait.
    DrainWaited = "drain waited",
    /// A broker was no longer draining, and still registered.
    Undrained = "undrained",
    /// A leader was elected because somebody asked for it.
    ElectedOnDemand = "elected on demand",
    /// The same, of a replica outside the ISR.
    UncleanOnDemand = "unclean on demand",
    /// Two brokers held the role of leader at once.
    TwoLeaders = "two live leaders",
}

/// How often each was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    counts: Vec<u64>,
    /// Events of the scheduler.
    pub events: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: vec![0; Reached::ALL.len()], events: 0 }
    }
}

impl Coverage {
    /// Counts one.
    pub fn reach(&mut self, what: Reached) {
        self.counts[what as usize] += 1;
    }

    /// How often.
    #[must_use]
    pub fn count(&self, what: Reached) -> u64 {
        self.counts[what as usize]
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.events += other.events;
    }

    /// Name and count of each.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reached::ALL.iter().map(|(what, text)| (*text, self.count(*what)))
    }

    /// What was never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.lines().filter(|(_, count)| *count == 0).map(|(text, _)| text).collect()
    }
}
