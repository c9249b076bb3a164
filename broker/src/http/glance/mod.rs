//! What only a broker itself knows: how it tells it (`own`), how it asks the others for it (`peers`, `groups`), and the service by which
//! they ask (`service`).

mod groups;
mod own;
mod peers;
mod rates;
mod service;

pub(super) use groups::{Group, Groups, lag};
pub(super) use own::GroupTold;
pub(super) use peers::{Peers, Told};
pub(super) use rates::{Rates, TopicRates};
pub use service::PageService;
