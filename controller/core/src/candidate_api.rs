//! Events and effects of the candidate: session, registration, race.

use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, Now};

/// Id of a ZooKeeper session; the only proof of ownership of an ephemeral node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

/// What `/brokers/ids/N` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistrationNode {
    /// Session that owns the node.
    pub owner: SessionId,
    /// czxid: the broker epoch.
    pub epoch: BrokerEpoch,
    /// Data version, for a conditional delete.
    pub version: i32,
    /// Directory id in it; the same as ours = our own earlier incarnation (the directory lock proves it dead).
    pub directory: DirectoryId,
}

/// What `/controller` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerNode {
    /// Session that owns the node.
    pub owner: SessionId,
    /// Id written in it (information only: ownership is decided by `owner`).
    pub broker: BrokerId,
    /// czxid: the election that created it.
    pub czxid: i64,
}

/// What the candidate hears. Every answer names the session in which it was asked; answers of an earlier session are ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CandidateEvent {
    /// A new session is established (answer to `Connect`).
    Connected {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The session is gone for good (expired, or replaced).
    Expired {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The connection is lost, the session may live on: stop acting.
    Disconnected {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The same session is connected again.
    Reconnected {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The connection has been away for half a session: resign as if expired.
    HalfSessionAway {
        /// The session it speaks of.
        session: SessionId,
    },
    /// Answer to `CreateRegistration`: done, exists already, or unknown (re-read).
    RegistrationCreated {
        /// The session it speaks of.
        session: SessionId,
        /// czxid of the node: the broker epoch.
        epoch: BrokerEpoch,
    },
    /// Answer to `CreateRegistration`: the node exists.
    RegistrationExists {
        /// The session it speaks of.
        session: SessionId,
    },
    /// Answer to `ReadRegistration` (read after a `sync`); `None`: no node.
    RegistrationRead {
        /// The session it speaks of.
        session: SessionId,
        /// What the node says; `None`: no node.
        node: Option<RegistrationNode>,
    },
    /// Answer to `DeleteRegistration`: done or not, in any case read again.
    RegistrationDeleteTried {
        /// The session it speaks of.
        session: SessionId,
    },
    /// A watched node (registration of a stranger) is gone, or its wait is over.
    RegistrationGone {
        /// The session it speaks of.
        session: SessionId,
    },
    /// Answer to `ReadEpoch` (after `sync`).
    EpochRead {
        /// The session it speaks of.
        session: SessionId,
        /// Value of the node.
        epoch: ControllerEpoch,
        /// Its data version.
        version: i32,
    },
    /// Answer to `ReadController` (after `sync`), with the epoch node read *after* it; a watch is armed if the node exists.
    ControllerRead {
        /// The session it speaks of.
        session: SessionId,
        /// What the node says; `None`: no node.
        node: Option<ControllerNode>,
        /// Value of the epoch node.
        epoch: ControllerEpoch,
        /// Data version of the epoch node.
        version: i32,
        /// mzxid of the epoch node: the last election. If it is the node's czxid, no election came between the two reads.
        mzxid: i64,
    },
    /// Answer to `DeleteController`: done or not, in any case read again.
    ControllerDeleteTried {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The process that owns `/controller` seems to be gone: its stream broke, and whoever dials it is refused. May be repeated.
    ControllerSuspected {
        /// The session it speaks of.
        session: SessionId,
        /// Session that owned `/controller` when that was found.
        owner: SessionId,
        /// When; never before an earlier one.
        now: Now,
    },
    /// The watch on `/controller` fired.
    ControllerChanged {
        /// The session it speaks of.
        session: SessionId,
    },
    /// Answer to `Race`: the multi was applied.
    RaceWon {
        /// The session it speaks of.
        session: SessionId,
        /// Controller epoch of the term.
        epoch: ControllerEpoch,
        /// Version of the epoch node after the multi.
        version: i32,
    },
    /// Answer to `Race`: `NodeExists` or `BadVersion`.
    RaceLost {
        /// The session it speaks of.
        session: SessionId,
    },
    /// Any of the above ended with an unknown outcome (ConnectionLoss, Timeout, Custom): re-read, then decide.
    OutcomeUnknown {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The broker wants another broker epoch (R38): what it can serve has changed in a way that only a new registration tells.
    RegisterAnew {
        /// The session it speaks of.
        session: SessionId,
    },
    /// The controller of this process found itself deposed (a write met a newer epoch), or gave up.
    Resigned {
        /// The session it speaks of.
        session: SessionId,
    },
}

/// What the candidate wants done; performed in order, answered by events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CandidateEffect {
    /// Drop every client of the old session, build a new one; repeat with back-off until it stands.
    Connect,
    /// Plain create of `/brokers/ids/N` (not in a multi: its stat would be invalid on 3.8), ephemeral.
    CreateRegistration,
    /// `sync`, then read `/brokers/ids/N`.
    ReadRegistration,
    /// Delete `/brokers/ids/N` at this version.
    DeleteRegistration {
        /// Data version at which to delete.
        version: i32,
    },
    /// A live stranger holds our id: say so, watch the node, answer `RegistrationGone`.
    /// At first start (never registered before in this process) the shell exits with the message instead.
    AwaitRegistrationGone,
    /// `sync`, then read `/controller_epoch`.
    ReadEpoch,
    /// `sync`, read `/controller` with a watch, then read `/controller_epoch`.
    ReadController,
    /// One multi: check `/controller_epoch` at `version`, create `/controller` (ephemeral), set `/controller_epoch` to `epoch`.
    Race {
        /// The value to set.
        epoch: ControllerEpoch,
        /// The version to check.
        version: i32,
    },
    /// One multi: check `/controller_epoch` at `version`, delete `/controller`. `version` is that of the election which created the
    /// node that is to go: a later controller's node stays, although its data has the same version.
    DeleteController {
        /// The version to check.
        version: i32,
    },
    /// The broker is registered: tell it its epoch and the oldest controller epoch it may obey (R22).
    Registered {
        /// The broker epoch.
        epoch: BrokerEpoch,
        /// Older controllers are refused (R22).
        controller_epoch_min: ControllerEpoch,
    },
    /// Not registered any more (the session is gone, or the registration is about to be renewed); the broker goes on serving.
    Unregistered,
    /// Elected: begin a term. All writes check `/controller_epoch` at `version`.
    BeginTerm {
        /// Controller epoch of the term.
        epoch: ControllerEpoch,
        /// Version of the epoch node that every write checks.
        version: i32,
    },
    /// End the term at once, drop all controller state.
    EndTerm,
    /// Somebody else is controller (information for admin forwarding).
    Follow {
        /// Who is controller.
        controller: BrokerId,
        /// Its epoch, as read after the node.
        epoch: ControllerEpoch,
    },
    /// Pause the controller's writes and pushes (disconnected).
    Pause,
    /// Go on after `Pause`: the same session is back.
    Resume,
    /// A line for the log.
    Note(String),
}
