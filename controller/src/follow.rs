//! Watches the process of the controller that this broker follows: while none of its push streams is open here, it is looked for,
//! and if its ports refuse connections it is suspected (R17).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use barnabas_controller_core::SessionId;
use barnabas_proto::znode::{BrokerNode, ControllerNode, paths};
use barnabas_types::{BrokerId, ControllerEpoch};
use tokio::sync::{mpsc, oneshot, watch};

use crate::dial::Ports;
use crate::drive::Backoff;
use crate::membership::{Asked, Membership};
use crate::zookeeper::{Reply, Request, ZooKeeper};

/// What is known of the streams at this broker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    /// Open ones, by controller epoch.
    counts: BTreeMap<ControllerEpoch, usize>,
    /// When a controller lost its last one.
    last_closed: Option<(ControllerEpoch, Instant)>,
    /// The last controller that said that its own broker is being emptied.
    draining: Option<ControllerEpoch>,
}

/// The push streams that are open at this broker, counted by controller epoch. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PushStreams(watch::Sender<Open>);

impl PushStreams {
    /// A stream of the controller of this epoch is open, until the value is dropped.
    #[must_use]
    pub fn opened(&self, epoch: ControllerEpoch) -> PushStream {
        self.0.send_modify(|open| *open.counts.entry(epoch).or_default() += 1);
        PushStream { epoch, streams: self.clone() }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Open> {
        self.0.subscribe()
    }

    /// Whether the controller of this epoch has a stream here.
    pub(crate) fn is_open(&self, epoch: ControllerEpoch) -> bool {
        self.0.borrow().counts.contains_key(&epoch)
    }

    /// Whether the controller of this epoch was being emptied when it pushed last.
    pub(crate) fn is_draining(&self, epoch: ControllerEpoch) -> bool {
        self.0.borrow().draining == Some(epoch)
    }

    /// Since when the controller of this epoch has no stream here any more; `None`: it has one, or never had.
    pub(crate) fn closed_since(&self, epoch: ControllerEpoch) -> Option<Instant> {
        let closed = self.0.borrow().last_closed.filter(|(of, _)| *of == epoch)?.1;
        (!self.is_open(epoch)).then_some(closed)
    }
}

/// One open stream.
#[derive(Debug)]
pub struct PushStream {
    epoch: ControllerEpoch,
    streams: PushStreams,
}

impl PushStream {
    /// What the controller's push says of its own broker: whether that is being emptied.
    pub fn says_draining(&self, drains: bool) {
        self.streams.0.send_if_modified(|open| {
            let known = open.draining == Some(self.epoch);
            if drains {
                open.draining = Some(self.epoch);
            } else if known {
                open.draining = None;
            }
            false // nobody waits for it
        });
    }
}

impl Drop for PushStream {
    fn drop(&mut self) {
        self.streams.0.send_modify(|open| {
            if let Some(count) = open.counts.get_mut(&self.epoch) {
                *count -= 1;
                if *count == 0 {
                    open.counts.remove(&self.epoch);
                    open.last_closed = Some((self.epoch, Instant::now()));
                }
            }
        });
    }
}

/// Runs until the shell has ended. Asks it to look for the controller as long as that has no stream here: at once, then more and
/// more rarely.
pub(crate) async fn run(
    me: BrokerId,
    mut membership: watch::Receiver<Membership>,
    mut streams: watch::Receiver<Open>,
    shell: mpsc::WeakSender<Asked>,
) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    loop {
        let followed = membership.borrow_and_update().controller.filter(|(id, _)| *id != me);
        let away =
            followed.filter(|(_, epoch)| !streams.borrow_and_update().counts.contains_key(epoch));
        let wait = match away {
            Some((controller, _)) => {
                let (done, looked) = oneshot::channel();
                let Some(shell) = shell.upgrade() else { return };
                if shell.send(Asked::LookForController(controller, done)).await.is_err() {
                    return;
                }
                drop(shell);
                let _ = looked.await; // dropped when that is done
                backoff.wait()
            }
            None => {
                backoff.reset();
                Duration::MAX
            }
        };
        tokio::select! {
            changed = membership.changed() => if changed.is_err() { return },
            changed = streams.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The session of the controller, if its process seems to be gone: the ports of its registration refuse, or its broker is
/// registered by another process meanwhile.
pub(crate) async fn gone<Z: ZooKeeper>(client: &Z, controller: BrokerId) -> Option<SessionId> {
    let get = |path: String| client.submit(Request::Get { path, watch: false });
    let Ok(Reply::Node(Some(node))) = get(paths::CONTROLLER.to_owned()).await else { return None };
    let owner = node.stat.owner?;
    if ControllerNode::parse(&node.data).ok()?.broker != controller {
        return None;
    }
    let Ok(Reply::Node(Some(node))) = get(paths::broker(controller)).await else { return None };
    if node.stat.owner == Some(owner) {
        let ports = Ports::from(&BrokerNode::parse(controller, &node.data).ok()?);
        if !ports.refuse().await {
            return None;
        }
    }
    Some(owner)
}
