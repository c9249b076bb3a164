//! Everything that the scheduler can deliver: to the ensemble, to a process, to the clients, to the hand that breaks things.

use barnabas_controller_core::{AlterPartition, Reassign, ReplicaReport, RequestId, SessionId};
use barnabas_replica::{FetchAnswer, FollowerFetch, IsrProposal};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, ClusterDelta, Condition, ConfigEntity, ControllerEpoch,
    FailedReplicas, FlushMode, Incarnation, Offset, PartitionEpoch, PartitionState, TopicId,
    TopicName, TopicPartition,
};

use crate::disk::Record;
use crate::store::{Answer, Request, Watch};
use crate::swarm::Operation;
use crate::world::Before;

/// Index of a broker in the world; its id is the index + 1.
pub type Ix = usize;

/// One scheduled thing.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields' types and names say what they are")]
pub enum Happening {
    /// A request of a session reaches the ensemble.
    Store { from: Ix, life: u32, session: SessionId, id: u64, request: Request, answered: bool },
    /// The ensemble has not heard of a session for its timeout, unless it has (then the generation differs).
    SessionTimeout { session: SessionId, generation: u64 },
    /// Something reaches a process. `life`: only that incarnation; `from`: who sent it over the network.
    Input { to: Ix, life: Option<u32>, from: Option<Ix>, input: Input },
    /// A producer acts.
    Produce,
    /// Something is done on purpose.
    Operate,
    /// The same, named.
    Perform(Operation),
    /// A dead broker starts.
    Restart { broker: Ix },
    /// A stopped process goes on.
    Continue { broker: Ix, life: u32 },
    /// A held host dies.
    Bounce { broker: Ix, life: u32 },
    /// A disk has room again.
    MakeRoom { broker: Ix },
    /// The ensemble is reachable again.
    HealStore { broker: Ix },
    /// A direction between two brokers works again.
    HealLink { from: Ix, to: Ix },
    /// In the liveness phase: is everything well?
    Judge,
}

/// A controller's push.
#[derive(Clone, Debug)]
pub struct Update {
    /// Who pushes.
    pub controller: (BrokerId, ControllerEpoch),
    /// For which incarnation.
    pub target: BrokerEpoch,
    /// Version of the image after it.
    pub version: u64,
    /// What changed.
    pub delta: ClusterDelta,
}

/// What reaches a process.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields' types and names say what they are")]
pub enum Input {
    /// The ensemble answered.
    StoreAnswer { session: SessionId, id: u64, answer: Answer },
    /// A request's outcome will never be known.
    StoreUnknown { session: SessionId, id: u64 },
    /// A watch fired.
    Watch(Watch),
    /// The connection to the ensemble broke.
    StoreDown { session: SessionId },
    /// It is back.
    StoreUp { session: SessionId },
    /// It has been away for half a session.
    StoreHalfAway { session: SessionId, generation: u64 },
    /// The session turned out to be expired.
    StoreExpired { session: SessionId },
    /// Try to get a session.
    TryConnect,
    /// The wait for a stranger's registration is over.
    AwaitedEnough { session: SessionId },
    /// Time passed.
    Tick,
    /// Dial a broker whose connection broke.
    Dial { to: Ix },
    /// A push arrives.
    Push(Box<Update>),
    /// A push was applied.
    PushAck {
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        term: ControllerEpoch,
        version: u64,
        reports: Vec<(TopicPartition, ReplicaReport)>,
    },
    /// A push has not been acknowledged for long.
    PushOverdue { term: ControllerEpoch, broker: BrokerId, broker_epoch: BrokerEpoch, version: u64 },
    /// A leader proposes an ISR to the controller.
    Alter { correlation: u64, life: u32, proposal: Box<AlterPartition> },
    /// The controller answers.
    AlterAnswer {
        partition: TopicPartition,
        correlation: u64,
        proposal: IsrProposal,
        answer: Result<PartitionState, Condition>,
    },
    /// No answer came.
    AlterOverdue { partition: TopicPartition, incarnation: Incarnation, correlation: u64 },
    /// A follower fetches.
    Fetch { partition: TopicPartition, correlation: u64, life: u32, fetch: FollowerFetch },
    /// A leader answers a fetch.
    Fetched {
        partition: TopicPartition,
        correlation: u64,
        roll_call: u64,
        answer: FetchAnswer,
        records: Vec<Record>,
    },
    /// Fetch now, if this replica follows.
    FetchNow { partition: TopicPartition },
    /// No answer came.
    FetchOverdue { partition: TopicPartition, correlation: u64 },
    /// A parked fetch has waited long enough.
    ParkOver { partition: TopicPartition, from: Ix, correlation: u64 },
    /// A producer's request.
    Produce { partition: TopicPartition, acks: Acks, values: Vec<u64> },
    /// An idempotent producer's request, by what comes before it.
    FollowUp { partition: TopicPartition, before: Before },
    /// A client wants records deleted; `None`: up to the high watermark.
    DeleteRecords { partition: TopicPartition, to: Option<Offset> },
    /// It waited too long.
    DeletionOverdue { partition: TopicPartition, incarnation: Incarnation, waiter: u64 },
    /// The log start is written, as it is at this moment.
    WriteStart { partition: TopicPartition, incarnation: Incarnation },
    /// It is durable.
    StartWritten { partition: TopicPartition, incarnation: Incarnation, to: Offset },
    /// It waited too long.
    ProduceOverdue { partition: TopicPartition, incarnation: Incarnation, waiter: u64 },
    /// Flush a partition.
    Flush { partition: TopicPartition, incarnation: Incarnation },
    /// A flush that covers everything below `to` is done, if nothing was truncated since.
    FlushDone { partition: TopicPartition, incarnation: Incarnation, to: Offset, truncations: u64 },
    /// The broker wants another broker epoch, because of replicas that failed.
    RegisterAnew,
    /// A broker tells which replicas it cannot serve.
    Failed(Box<FailedReplicas>),
    /// An operator wants a topic.
    CreateTopic { name: TopicName, id: TopicId },
    /// An operator wants a topic to have one partition more.
    AddPartition { name: TopicName },
    /// An operator wants another `flush.mode`.
    SwitchFlushMode { entity: ConfigEntity, mode: FlushMode },
    /// An operator wants replicas moved.
    Reassign { partition: TopicPartition, wish: Reassign },
    /// The controller makes the second write of a move's end (for a planted bug).
    EndMove { partition: TopicPartition },
    /// The controller waits no longer for leaders to confirm settings.
    ConfirmationDue { term: ControllerEpoch, request: RequestId },
    /// A draining broker acts.
    DrainNow,
    /// It asks the controller how far it has come.
    DrainAsk { life: u32, broker_epoch: BrokerEpoch, draining: bool },
    /// The controller's answer.
    DrainAnswer { broker_epoch: BrokerEpoch, draining: bool, may_stop: bool, refused: bool },
    /// A broker that is to stop waits no longer.
    ShutdownOver,
    /// A broker that may stop has flushed everything.
    StopNow,
    /// An operator wants another leader; an unclean one if the partition is at this epoch.
    Elect { partition: TopicPartition, unclean: Option<PartitionEpoch> },
    /// An operator wants it gone.
    DeleteTopic { name: TopicName },
}
