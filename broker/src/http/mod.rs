//! What is served on `http.listener`: health, and whatever else is looked at with a browser or by a monitor. Nothing is changed here.

mod answer;
mod host;
mod routes;
mod server;

pub use host::Hosts;
pub use routes::Site;
pub use server::serve;
