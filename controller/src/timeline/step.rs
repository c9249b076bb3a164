//! Why a failover began, and the steps that its record names.

/// Why a broker lost its leaderships.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// Its stream broke and its ports refused (R17).
    Suspicion,
    /// It is not registered any more.
    SessionEnd,
    /// It came back under another broker epoch.
    Restart,
    /// It asked to be emptied.
    Drain,
    /// It told that it cannot serve replicas (R38).
    FailedReplicas,
}

impl Cause {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Suspicion => "suspicion",
            Self::SessionEnd => "session_end",
            Self::Restart => "restart",
            Self::Drain => "drain",
            Self::FailedReplicas => "failed_replicas",
        }
    }
}

/// A step that is reached once, or of which the last time counts. In the order in which they usually come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    ControllerLost,
    ControllerSuspected,
    ControllerGone,
    ControllerElected,
    Loaded,
    StreamBroke,
    Suspected,
    SessionEnded,
    Restarted,
    DrainRequested,
    ReplicasFailed,
    Decided,
    FirstWritten,
    Written,
    Pushed,
    FirstAppend,
    LastAppend,
    FirstAck,
    LastAck,
    LateWritten,
    LatePushed,
    LateAck,
    LedAgain,
    IsrRestored,
    Answered,
}

impl Step {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ControllerLost => "controller_lost",
            Self::ControllerSuspected => "controller_suspected",
            Self::ControllerGone => "controller_gone",
            Self::ControllerElected => "controller_elected",
            Self::Loaded => "loaded",
            Self::StreamBroke => "stream_broke",
            Self::Suspected => "suspected",
            Self::SessionEnded => "session_ended",
            Self::Restarted => "restarted",
            Self::DrainRequested => "drain_requested",
            Self::ReplicasFailed => "replicas_failed",
            Self::Decided => "decided",
            Self::FirstWritten => "first_written",
            Self::Written => "written",
            Self::Pushed => "pushed",
            Self::FirstAppend => "first_append",
            Self::LastAppend => "last_append",
            Self::FirstAck => "first_ack",
            Self::LastAck => "last_ack",
            Self::LateWritten => "late_written",
            Self::LatePushed => "late_pushed",
            Self::LateAck => "late_ack",
            Self::LedAgain => "led_again",
            Self::IsrRestored => "isr_restored",
            Self::Answered => "answered",
        }
    }
}
