//! The topics in a consumer's subscription: the one thing that the coordinator reads in a member's metadata.

use std::sync::Arc;

/// Topics of a ConsumerProtocolSubscription. Version 0 is a prefix of every later version, so only it is read.
/// `None`: not a subscription.
pub(crate) fn topics(metadata: &[u8]) -> Option<Vec<Arc<str>>> {
    let (version, mut rest) = metadata.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, after) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    rest = after;
    let mut topics = Vec::new();
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (topic, after) = after.split_at_checked(length)?;
        topics.push(std::str::from_utf8(topic).ok()?.into());
        rest = after;
    }
    Some(topics)
}
