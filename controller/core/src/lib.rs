//! Given cluster state and an event, says what to write, push, answer and time. Never awaits, reads a clock, or knows ZooKeeper or gRPC.
//!
//! Two state machines: [`Candidate`] owns the session, the registration and the race for `/controller`;
//! [`Controller`] exists for one term and owns topics, leaders and ISRs.

mod candidate_api;
mod controller_api;

pub use candidate_api::{CandidateEffect, CandidateEvent, ControllerNode, RegistrationNode, SessionId};
pub use controller_api::{
    AlterPartition, AlterPartitionAnswer, BrokerRegistration, ControllerEvent, CreateTopic,
    Effects, LoadedPartition, LoadedTopic, Note, PartitionWrite, ReplicaReport, RequestId, Snapshot,
    TopicWrite, WriteId, WriteOutcome,
};
