//! The coordinator of one partition in one leader epoch, as others see it: whom they ask, and who is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barnabas_group::{Answer, Event, GroupError, Groups, Waiter};
use barnabas_types::{Incarnation, LeaderEpoch};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::signals::{Signal, Signals};
use super::task;
use crate::node::Node;
use crate::partition::{Flush, Hosted};

/// Requests that wait to be looked at, in one partition; more are told to come again. Their bytes are bounded by
/// `queued.max.request.bytes` ([`Reply::hold`]).
const INBOX_MAX: usize = 4096;

type Answered = dyn FnOnce(Result<Answer, GroupError>, &mut Flush) + Send;

/// Who is answered by the coordinator; exactly once, with "not the coordinator" if nobody else does it.
pub struct Reply {
    answer: Option<Box<Answered>>,
    /// Becomes true if nobody is there any more to be answered.
    gone: Arc<AtomicBool>,
    /// The request's frame: what is copied from it counts in the budget of requests as long as this is here.
    frame: Bytes,
}

impl Reply {
    /// `answer` is called in the coordinator's task and must not wait; what it completes is flushed afterwards.
    pub fn new(
        answer: impl FnOnce(Result<Answer, GroupError>, &mut Flush) + Send + 'static,
    ) -> Self {
        Self { answer: Some(Box::new(answer)), gone: Arc::default(), frame: Bytes::new() }
    }

    /// Keeps the request's frame, and with it its share of the memory for requests, until the request has been looked at; that
    /// of a commit until it is answered.
    pub fn hold(&mut self, frame: Bytes) {
        self.frame = frame;
    }

    pub(super) fn release(&mut self) {
        self.frame = Bytes::new();
    }

    pub(super) fn answer(mut self, answer: Result<Answer, GroupError>, flush: &mut Flush) {
        if let Some(reply) = self.answer.take() {
            reply(answer, flush);
        }
    }

    /// To be set by who asked, if it goes; counts also if the request has not been looked at yet.
    pub fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(reply) = self.answer.take() {
            reply(Err(GroupError::NotCoordinator), &mut Flush::default());
        }
    }
}

/// What a coordinator is asked; bounded by [`INBOX_MAX`].
pub(super) enum Message {
    Request { waiter: Waiter, event: Box<Event>, reply: Reply },
    Look(Box<dyn FnOnce(&Groups) + Send>),
}

/// The leadership that a coordinator stands on.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) incarnation: Incarnation,
    pub(super) leader_epoch: LeaderEpoch,
    over: watch::Sender<bool>,
    pub(super) loaded: AtomicBool,
}

impl Life {
    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits for the end.
    pub(super) async fn over(&self) {
        // The sender is this value's own.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

/// A handle of a coordinator. Cheap to clone.
#[derive(Clone)]
pub struct Coordinator {
    life: Arc<Life>,
    inbox: mpsc::Sender<Message>,
    signals: Arc<Signals>,
}

impl Coordinator {
    /// Starts the coordinator of `hosted`, which this broker leads in `leader_epoch`.
    pub(super) fn start(
        node: Arc<Node>,
        hosted: Arc<Hosted>,
        leader_epoch: LeaderEpoch,
        data: &tokio::runtime::Handle,
    ) -> Self {
        let life = Arc::new(Life {
            incarnation: hosted.incarnation,
            leader_epoch,
            over: watch::Sender::new(false),
            loaded: AtomicBool::new(false),
        });
        let (inbox, messages) = mpsc::channel(INBOX_MAX);
        let signals = Arc::<Signals>::default();
        data.spawn(task::run(node, hosted, life.clone(), (messages, signals.clone())));
        Self { life, inbox, signals }
    }

    /// (incarnation, leader epoch) that it stands on.
    pub(super) fn stands_on(&self) -> (Incarnation, LeaderEpoch) {
        (self.life.incarnation, self.life.leader_epoch)
    }

    /// Its leadership is over: from now on it answers that it is not the coordinator, also what waits.
    pub(super) fn end(&self) {
        self.life.over.send_replace(true);
    }

    /// Whether it is still reading its partition.
    pub fn is_loading(&self) -> bool {
        !self.life.loaded.load(Ordering::Acquire)
    }

    /// Whether it can answer at present.
    ///
    /// # Errors
    /// Its leadership is over, or it has not read its partition yet.
    pub fn check(&self) -> Result<(), GroupError> {
        if self.life.is_over() {
            Err(GroupError::NotCoordinator)
        } else if self.is_loading() {
            Err(GroupError::CoordinatorLoadInProgress)
        } else {
            Ok(())
        }
    }

    /// Hands a request over. `event` carries `waiter`; it is answered exactly once, here if it is refused.
    pub fn ask(&self, waiter: Waiter, event: Event, reply: Reply, flush: &mut Flush) {
        if let Err(error) = self.check() {
            return reply.answer(Err(error), flush);
        }
        let event = Box::new(event);
        if let Err(refused) = self.inbox.try_send(Message::Request { waiter, event, reply }) {
            let error = match refused {
                mpsc::error::TrySendError::Full(_) => GroupError::CoordinatorNotAvailable,
                mpsc::error::TrySendError::Closed(_) => GroupError::NotCoordinator,
            };
            if let Message::Request { reply, .. } = refused.into_inner() {
                reply.answer(Err(error), flush);
            }
        }
    }

    /// As [`Coordinator::ask`], for one who waits for the answer.
    pub fn request(
        &self,
        waiter: Waiter,
        event: Event,
    ) -> oneshot::Receiver<Result<Answer, GroupError>> {
        let (sender, receiver) = oneshot::channel();
        let reply = Reply::new(move |answer, _: &mut Flush| {
            // Who asked may have gone.
            let _ = sender.send(answer);
        });
        self.ask(waiter, event, reply, &mut Flush::default());
        receiver
    }

    /// Looks at the groups, after everything that was asked before.
    ///
    /// # Errors
    /// It does not coordinate (yet, any more), or is asked too much.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Groups) -> T + Send + 'static,
    ) -> Result<T, GroupError> {
        self.check()?;
        let (sender, receiver) = oneshot::channel();
        let message = Message::Look(Box::new(move |groups| {
            // Who asked may have gone.
            let _ = sender.send(look(groups));
        }));
        let sent = self.inbox.try_send(message);
        sent.map_err(|_| GroupError::CoordinatorNotAvailable)?;
        receiver.await.map_err(|_| GroupError::NotCoordinator)
    }

    /// The connection of this waiter is gone.
    fn gone(&self, waiter: Waiter) {
        self.signals.send(Signal::Gone(waiter));
    }

    /// These topics were deleted.
    pub(super) fn topics_deleted(&self, topics: Vec<Arc<str>>) {
        self.signals.send(Signal::TopicsDeleted(topics));
    }
}

/// A request that may wait for other members; its connection tells the coordinator when it ends before the answer.
pub struct GroupWait {
    coordinator: Coordinator,
    waiter: Waiter,
    answered: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
}

impl GroupWait {
    /// `answered` becomes true with the answer; `gone` is its [`Reply::gone`].
    pub fn new(
        coordinator: Coordinator,
        waiter: Waiter,
        answered: Arc<AtomicBool>,
        gone: Arc<AtomicBool>,
    ) -> Self {
        Self { coordinator, waiter, answered, gone }
    }

    /// Whether it waits no more.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }
}

impl Drop for GroupWait {
    fn drop(&mut self) {
        if !self.is_answered() {
            // First: the signal may overtake the request itself.
            self.gone.store(true, Ordering::Release);
            self.coordinator.gone(self.waiter);
        }
    }
}
