//! From figures to samples, one file a subject.

mod broker;
mod cluster;
mod groups;
mod logs;
mod traffic;

pub(super) use broker::{broker, process};
pub(super) use cluster::cluster;
pub(super) use groups::groups;
pub(super) use logs::logs;
pub(super) use traffic::traffic;
