//! Bugs that a run can be given; each must be found, or the checks prove nothing.

/// One planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planted {
    /// Commits are acknowledged when they are ordered.
    AcknowledgedOnTheWish,
    /// The outcome of one append is taken for that of another.
    ConfusedOutcomes,
    /// A coordinator loads only a part of the log.
    PartialLoad,
    /// A timer is lost.
    LostTimer,
    /// `group.max.size` is not heeded.
    SizeIgnored,
    /// Offsets expire too early.
    EarlyExpiry,
    /// A late acknowledgement counts for the next generation.
    StaleAssignment,
    /// An empty group forgets its generation.
    GenerationReset,
    /// A waiting request is forgotten.
    ForgottenWaiter,
    /// A static member keeps its old id beside the new one.
    StaticMemberTwice,
    /// Commits of unknown outcome are forgotten.
    ForgottenDoubts,
}

impl Planted {
    pub(super) const ALL: [Self; 11] = [
        Self::AcknowledgedOnTheWish,
        Self::ConfusedOutcomes,
        Self::PartialLoad,
        Self::LostTimer,
        Self::SizeIgnored,
        Self::EarlyExpiry,
        Self::StaleAssignment,
        Self::GenerationReset,
        Self::ForgottenWaiter,
        Self::StaticMemberTwice,
        Self::ForgottenDoubts,
    ];

    /// Whether this is how the bug must show.
    pub(super) fn is_seen_in(self, error: &str) -> bool {
        let signs: &[&str] = match self {
            Self::AcknowledgedOnTheWish => &["is lost", "was acknowledged"],
            Self::ConfusedOutcomes | Self::PartialLoad => {
                &["restart", "is lost", "was acknowledged"]
            }
            Self::LostTimer => &["without a timer"],
            Self::SizeIgnored => &["ids given out"],
            Self::EarlyExpiry => &["is lost"],
            Self::StaleAssignment => {
                &["assigned twice", "of another generation", "other members after a restart"]
            }
            Self::GenerationReset => &["generation 0 after"],
            Self::ForgottenWaiter => &["has waited"],
            Self::StaticMemberTwice => &["by its instance id"],
            Self::ForgottenDoubts => &["is back after a restart", "was deleted", "other offsets"],
        };
        signs.iter().any(|sign| error.contains(sign))
    }
}
