//! A broker process: the cores it runs and what its shell remembers. All of it dies with the process.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{
    BrokerRegistration, Candidate, Controller, ControllerEvent, LoadedTopic, RequestId, SessionId,
};
use barnabas_replica::{FetchPosition, IsrProposal, Replica};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, BrokerSettings, ClusterImage, ConfigEntity, ControllerEpoch,
    FlushMode, Incarnation, LeaderEpoch, Offset, PartitionEpoch, TopicName, TopicPartition,
};

use crate::happening::{Input, Ix};
use crate::store::{Fence, Request};
use crate::world::Before;

/// A produce request that waits.
#[derive(Clone, Debug)]
pub struct Pending {
    /// When it wants an answer.
    pub acks: Acks,
    /// Its records.
    pub values: Vec<u64>,
    /// Epoch of the append, once ordered.
    pub leader_epoch: LeaderEpoch,
    /// An idempotent producer's request that the log lacks this for.
    pub before: Option<Before>,
}

/// A follower's fetch that waits for news.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Who asks.
    pub from: Ix,
    /// In which life.
    pub life: u32,
    /// Its name for the request.
    pub correlation: u64,
    /// Where it stands.
    pub position: FetchPosition,
}

/// One replica and what waits for it.
pub struct Slot {
    /// The core.
    pub replica: Replica,
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// Produce requests by waiter.
    pub pending: BTreeMap<u64, Pending>,
    /// Deletions by waiter.
    pub deletions: BTreeSet<u64>,
    /// The log start is being written.
    pub start_writing: bool,
    /// Followers' fetches.
    pub parked: Vec<Parked>,
    /// The follower's request under way.
    pub fetching: Option<u64>,
    /// The last roll call that it has heard of a leader, and that leader's epoch.
    pub heard: (LeaderEpoch, u64),
    /// The proposal under way.
    pub proposing: Option<(u64, IsrProposal)>,
    /// A flush is scheduled or running.
    pub flush_armed: bool,
    /// Partition epoch at which a proposal was refused (for a planted bug).
    pub refused_at: Option<PartitionEpoch>,
    /// Partition epoch and LEO for which a planted bug has spoken.
    pub told_to: Option<(Option<PartitionEpoch>, Offset)>,
}

/// The push stream to one broker.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Incarnation it leads to.
    pub broker_epoch: BrokerEpoch,
    /// What the broker has; `None`: start with the full image.
    pub acked: Option<u64>,
    /// Sent and not acknowledged.
    pub in_flight: Option<u64>,
    /// Whether that only takes partitions from the broker (for a planted bug).
    pub only_deletes: bool,
}

/// What a new controller has read so far.
#[derive(Default)]
pub struct Loading {
    /// Registrations.
    pub brokers: BTreeMap<BrokerId, BrokerRegistration>,
    /// Topics still to read.
    pub names: Vec<TopicName>,
    /// Settings of brokers.
    pub broker_settings: BrokerSettings,
    /// Topics read.
    pub topics: BTreeMap<TopicName, LoadedTopic>,
}

/// A broker that is being emptied, or filled again.
#[derive(Clone, Debug)]
pub struct Drain {
    /// What the registration is to say.
    pub wanted: bool,
    /// It stops when it is empty.
    pub shutdown: bool,
    /// The registration that says so.
    pub marked: Option<BrokerEpoch>,
}

/// A term as controller.
pub struct Term {
    /// The core.
    pub controller: Controller,
    /// What each write checks.
    pub fence: Fence,
    /// In which session.
    pub session: SessionId,
    /// `None` once loaded.
    pub loading: Option<Loading>,
    /// The registrations changed while loading or reading: read them again.
    pub brokers_dirty: bool,
    /// A read of the registrations is under way.
    pub brokers_reading: bool,
    /// Disconnected: nothing is written or pushed.
    pub paused: bool,
    /// Requests held back while paused.
    pub deferred: Vec<Request>,
    /// Live brokers as the core knows them.
    pub brokers: BTreeMap<BrokerId, BrokerEpoch>,
    /// Push streams.
    pub streams: BTreeMap<BrokerId, Stream>,
    /// Who waits for the answer to a proposal.
    pub askers: BTreeMap<RequestId, Asker>,
    /// Changes of a topic's `flush.mode` that are not answered yet.
    pub switches: BTreeMap<RequestId, (ConfigEntity, FlushMode)>,
    /// Who waits to hear how far a drain has come.
    pub drainers: BTreeMap<RequestId, (Ix, u32, BrokerEpoch, bool)>,
    /// What is stepped when the registrations have been read again.
    pub after_brokers: Vec<ControllerEvent>,
    /// Moves of which only the first of two writes is made (for a planted bug).
    pub half_ended: BTreeSet<TopicPartition>,
    /// Brokers that told this term of a drain (for a planted bug).
    pub told_of_drains: BTreeSet<(BrokerId, BrokerEpoch)>,
    /// Writes that were changed on their way (planted bugs): the core is told that another state is stored.
    pub twisted: BTreeSet<barnabas_controller_core::WriteId>,
    /// Last request id given.
    pub requests: u64,
}

/// Who proposed.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Which broker.
    pub from: Ix,
    /// Which life of it.
    pub life: u32,
    /// Its name for the request.
    pub correlation: u64,
    /// Which partition.
    pub partition: TopicPartition,
    /// What it proposed.
    pub proposal: IsrProposal,
}

/// The client of the ensemble.
#[derive(Default)]
pub struct StoreClient {
    /// Present session.
    pub session: Option<SessionId>,
    /// Whether it is connected, as far as it knows.
    pub connected: bool,
    /// Requests without an answer.
    pub pending: BTreeMap<u64, Request>,
    /// A try to connect is scheduled.
    pub connecting: bool,
}

/// A process.
pub struct Process {
    /// How many processes this broker has had.
    pub life: u32,
    /// Whether it runs.
    pub up: bool,
    /// SIGSTOP: inputs are held.
    pub paused: bool,
    /// What it sent and nobody has got yet is held too.
    pub holds_sent: bool,
    /// Held inputs, in order.
    pub held: Vec<crate::happening::Happening>,
    /// Session, registration, race.
    pub candidate: Candidate,
    /// The ensemble's client.
    pub client: StoreClient,
    /// Reports of failed replicas so far.
    pub failure_reports: u64,
    /// It is draining.
    pub drain: Option<Drain>,
    /// The registration that was asked for last says that a tail may be lost.
    pub marked: bool,
    /// Present broker epoch.
    pub broker_epoch: Option<BrokerEpoch>,
    /// The highest controller epoch known; older ones are refused (R22).
    pub controller_epoch: ControllerEpoch,
    /// Version of the newest image of that controller.
    pub image_version: u64,
    /// What the controller pushed.
    pub image: ClusterImage,
    /// Replicas.
    pub slots: BTreeMap<TopicPartition, Slot>,
    /// R22b.
    pub tombstones: BTreeMap<TopicPartition, (Incarnation, LeaderEpoch, PartitionEpoch)>,
    /// The directories that no state names were deleted after the first full state.
    pub swept: bool,
    /// The term, while elected.
    pub term: Option<Term>,
    /// Sessions that this process has left behind.
    pub left: BTreeSet<SessionId>,
}

impl Process {
    /// A process that does not run yet.
    #[must_use]
    pub fn new(life: u32, candidate: Candidate) -> Self {
        Self {
            life,
            up: false,
            paused: false,
            holds_sent: false,
            held: Vec::new(),
            candidate,
            client: StoreClient::default(),
            failure_reports: 0,
            drain: None,
            marked: false,
            broker_epoch: None,
            controller_epoch: ControllerEpoch(0),
            image_version: 0,
            image: ClusterImage::default(),
            slots: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            swept: false,
            term: None,
            left: BTreeSet::new(),
        }
    }

    /// Whether the term is loaded and may act.
    #[must_use]
    pub fn acts_as_controller(&self) -> bool {
        self.up && self.term.as_ref().is_some_and(|t| t.loading.is_none() && !t.paused)
    }

    /// HW of a replica, if the process hosts it.
    #[must_use]
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<Offset> {
        self.slots.get(partition).map(|slot| slot.replica.high_watermark())
    }
}

/// Whether an input belongs to the network between brokers (and may be held with a stopped sender).
#[must_use]
pub fn is_message(input: &Input) -> bool {
    matches!(
        input,
        Input::Push(_)
            | Input::PushAck { .. }
            | Input::Alter { .. }
            | Input::AlterAnswer { .. }
            | Input::Failed(_)
            | Input::DrainAsk { .. }
            | Input::DrainAnswer { .. }
            | Input::Fetch { .. }
            | Input::Fetched { .. }
    )
}
