//! How fine the labels are (`metrics.labels`): each label multiplies what a monitor has to keep.

/// The finest label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Detail {
    /// Neither topics nor groups are named.
    None,
    /// Topics and groups are, partitions are not.
    Topic,
    /// All are.
    #[default]
    Partition,
}

impl Detail {
    /// From the word of the configuration.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "topic" => Some(Self::Topic),
            "partition" => Some(Self::Partition),
            _ => None,
        }
    }
}
