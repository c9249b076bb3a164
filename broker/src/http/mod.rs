//! What is served on `http.listener`: health, the operator's page, and the JSON and events that the page reads. Nothing is changed here.

mod answer;
mod api;
mod events;
mod files;
mod glance;
mod history;
mod host;
mod query;
mod routes;
mod server;
mod source;
#[cfg(test)]
mod tests;

pub use glance::PageService;
pub use host::Hosts;
pub use routes::Site;
pub use server::serve;
pub use source::{Parts, Source};
