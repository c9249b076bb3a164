//! What is served on `http.listener`: health, the operator's page, the JSON and events that the page reads, and
//! the plans by which an operator with a token changes the cluster.

mod answer;
mod api;
mod aside;
#[cfg(test)]
mod attacks;
mod events;
mod files;
mod glance;
mod history;
mod host;
mod operator;
mod plans;
mod query;
mod routes;
mod server;
mod source;
#[cfg(test)]
mod tests;

pub use glance::PageService;
pub use host::Hosts;
pub use operator::{Operator, Token};
pub use routes::Site;
pub use server::serve;
pub use source::{Parts, Source};
