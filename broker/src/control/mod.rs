//! What the controller wants and what it is told: pushes in, acknowledgements, reports and ISR proposals out.

mod agent;
mod copies;
mod failed;
mod proposer;
mod served;
mod service;
mod starting;

pub use agent::{Agent, AgentHandle, TailMark};
pub use failed::FailedReports;
pub use proposer::Proposals;
pub use served::ServedReports;
pub use service::PushService;
pub use starting::SaysStarting;
