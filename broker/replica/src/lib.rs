//! One partition's replica: given its state and an event, says what to append, truncate, ack and propose.
//!
//! Never touches files, sockets or clocks. The shell (the broker, or the simulator) performs the effects in the order
//! that [`Effects`] documents and reports each completion as a further event.

mod accept;
mod committed;
mod effects;
mod event;
mod follower;
mod gaps;
mod isr;
mod leader;
mod log_start;
mod progress;
mod replica;
mod roll_call;
#[cfg(test)]
mod tests;
mod view;

pub use effects::{AppendOrder, Effects, FetchGrant, FetchReply, IsrProposal, Note, Role};
pub use event::{
    Event, FetchAnswer, FetchOutcome, FetchPosition, FlushBound, FollowerFetch, LogState, Produce,
    ProduceGap, ProposalOutcome, StatePush, WaiterId,
};
pub use replica::{Replica, ReplicaOptions};
pub use view::{ConsumerView, FollowerPosition, ReplicaReport};
