//! Total conversions between the messages and the vocabulary: everything of ours can be written, hostile input is refused.

mod cluster;
mod control;
mod failed;
mod failover;
mod failure;
mod served;

pub use control::{Ack, IsrProposal, IsrProposals, Report, StateUpdate};
pub use failover::{
    TIMELINE_DETAIL_MAX, failover_from_json, failover_json, failover_outage, failover_shown,
};
pub use failure::kafka_error_name;
pub use served::{LeaderServed, LeadersServed};

use barnabas_types::{BrokerId, TopicId, TopicName};

/// A message that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ConvertError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl ConvertError {
    pub(crate) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

impl From<ConvertError> for tonic::Status {
    fn from(error: ConvertError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

pub(crate) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, ConvertError> {
    value.ok_or_else(|| ConvertError::new(field, "missing"))
}

/// A number that is 0 or more.
pub(crate) fn not_negative<T: PartialOrd + Default + std::fmt::Display>(
    field: &'static str,
    value: T,
) -> Result<T, ConvertError> {
    if value < T::default() {
        return Err(ConvertError::new(field, format!("{value} is negative")));
    }
    Ok(value)
}

pub(crate) fn broker_id(field: &'static str, value: i32) -> Result<BrokerId, ConvertError> {
    not_negative(field, value).map(BrokerId)
}

/// -1 is none; less is refused.
pub(crate) fn optional_broker_id(
    field: &'static str,
    value: i32,
) -> Result<Option<BrokerId>, ConvertError> {
    if value == -1 { Ok(None) } else { broker_id(field, value).map(Some) }
}

pub(crate) fn topic_id(field: &'static str, value: &[u8]) -> Result<TopicId, ConvertError> {
    let bytes = value.try_into();
    bytes
        .map(TopicId)
        .map_err(|_| ConvertError::new(field, format!("{} bytes instead of 16", value.len())))
}

pub(crate) fn topic_name(field: &'static str, value: &str) -> Result<TopicName, ConvertError> {
    TopicName::new(value).map_err(|error| ConvertError::new(field, error.to_string()))
}

/// Broker ids without a duplicate.
pub(crate) fn broker_ids(
    field: &'static str,
    values: &[i32],
) -> Result<Vec<BrokerId>, ConvertError> {
    let mut ids = Vec::with_capacity(values.len());
    for value in values {
        let id = broker_id(field, *value)?;
        if ids.contains(&id) {
            return Err(ConvertError::new(field, format!("broker {id} stands twice")));
        }
        ids.push(id);
    }
    Ok(ids)
}
