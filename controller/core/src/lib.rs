//! Given cluster state and an event, says what to write, push, answer and time. Never awaits, reads a clock, or knows ZooKeeper or gRPC.
//!
//! Two state machines: [`Candidate`] owns the session, the registration and the race for `/controller`;
//! [`Controller`] exists for one term and owns topics, leaders and ISRs.

mod announcements;
mod candidate;
mod candidate_api;
mod configs;
mod confirmations;
mod controller;
mod controller_api;
mod decide;
mod drain;
mod elections;
mod failures;
mod grow;
mod image;
mod limit;
mod partitions;
mod placement;
mod reassign;
mod suspicion;
mod topics;

pub use candidate::{Candidate, DEPOSITIONS_MAX, DEPOSITIONS_WINDOW_MS};
pub use candidate_api::{
    CandidateEffect, CandidateEvent, ControllerNode, RegistrationNode, SessionId,
};
pub use controller::{Controller, Defaults};
pub use controller_api::{
    AlterConfig, AlterConfigAnswer, AlterPartition, AlterPartitionAnswer, AlteredConfig,
    AssignmentWrite, BrokerRegistration, ConfigWrite, ControllerEvent, CreatePartitions,
    CreatePartitionsAnswer, CreateTopic, CreateTopicAnswer, DrainProgress, Effects, ElectLeaders,
    ElectLeadersAnswer, ElectPartition, Election, LoadedPartition, LoadedTopic, Note, Obstruction,
    PartitionWrite, Reassign, ReplicaReport, RequestId, Snapshot, StopVerdict, TopicWrite, WriteId,
    WriteOutcome,
};
pub use drain::{OBSTRUCTIONS_SHOWN_MAX, can_stop};
pub use elections::ELECTIONS_MAX;
pub use suspicion::{SUSPICION_WINDOW_MS, SUSPICIONS_PER_REGISTRATION_MAX};
pub use topics::PARTITIONS_PER_CREATE_MAX;
