//! The memory of all connections together: bytes of requests under way (`queued.max.request.bytes`), and of answers that their
//! clients have not read.
//!
//! A request reserves as its bytes come, step by step, so that a length that is only announced costs nobody anything. Whoever
//! finds no room waits in order, and its socket is not read meanwhile. That all wait for one another half read is not
//! possible: one of them at a time may go on beyond the limit. Followers have a share of their own: what producers wait for
//! (their acknowledgements) must not wait for what producers send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Reservations are counted in units of this size, rounded up.
const UNIT_BYTES: usize = 1 << 10;
/// Requests up to this size live in the look-ahead that each connection has anyway.
pub(super) const FREE_BYTES_MAX: usize = 4 << 10;
/// What followers' requests may hold: a few that name as many partitions as fit.
const REPLICATION_BYTES: usize = 32 << 20;

/// Counts the bytes of requests and answers of one broker.
#[derive(Debug)]
pub struct Budget {
    max_bytes: usize,
    clients: Share,
    followers: Share,
    /// Connections that wait for room.
    waiting: AtomicUsize,
    /// One more began to wait.
    ran_short: Notify,
    answer_bytes: AtomicUsize,
    /// Answers fell below the limit.
    answers_fell: Notify,
}

#[derive(Debug)]
struct Share {
    units: Arc<Semaphore>,
    /// The right to go on without room, of one request.
    beyond: Arc<Semaphore>,
}

/// Room for one request; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    units: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

/// A request's bytes with their reservation.
struct Held {
    bytes: Bytes,
    _reserved: Reserved,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Reserved {
    /// The bytes, which give the room back when the last reference to them goes.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _reserved: self })
    }

    /// How many more bytes must be reserved to hold so many; 0: none.
    pub(super) fn lacks(&self, bytes: usize) -> usize {
        if self.beyond.is_some() {
            return 0;
        }
        let units = self.units.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        bytes.saturating_sub(units * UNIT_BYTES)
    }

    pub(super) fn add(&mut self, more: Self) {
        match (&mut self.units, more.units) {
            (Some(units), Some(more)) => units.merge(more),
            (units, more) => *units = units.take().or(more),
        }
        self.beyond = self.beyond.take().or(more.beyond);
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

impl Share {
    fn new(bytes: usize) -> Self {
        let units = Arc::new(Semaphore::new(units(bytes) as usize));
        Self { units, beyond: Arc::new(Semaphore::new(1)) }
    }
}

impl Budget {
    /// For `max_bytes` of requests and as many of answers.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            clients: Share::new(max_bytes),
            followers: Share::new(REPLICATION_BYTES),
            waiting: AtomicUsize::new(0),
            ran_short: Notify::new(),
            answer_bytes: AtomicUsize::new(0),
            answers_fell: Notify::new(),
        }
    }

    fn share(&self, of_follower: bool) -> &Share {
        if of_follower { &self.followers } else { &self.clients }
    }

    /// Room for so many bytes if there is some and nobody waits for it.
    pub(super) fn try_reserve(&self, bytes: usize, of_follower: bool) -> Option<Reserved> {
        let share = self.share(of_follower).units.clone();
        let units = share.try_acquire_many_owned(units(bytes)).ok()?;
        Some(Reserved { units: Some(units), beyond: None })
    }

    /// Waits for room for so many bytes, or for the right to go on without.
    pub(super) async fn reserve(self: Arc<Self>, bytes: usize, of_follower: bool) -> Reserved {
        let share = self.share(of_follower);
        let _waiting = Waiting::begin(&self.waiting);
        self.ran_short.notify_waiters();
        // The semaphores are never closed.
        tokio::select! {
            biased;
            Ok(units) = share.units.clone().acquire_many_owned(units(bytes)) => {
                Reserved { units: Some(units), beyond: None }
            }
            Ok(beyond) = share.beyond.clone().acquire_owned() => {
                Reserved { units: None, beyond: Some(beyond) }
            }
            else => std::future::pending().await,
        }
    }

    /// Whether some request waits for room.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How many connections wait for room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Bytes that requests of clients have reserved.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        let free = self.clients.units.available_permits() * UNIT_BYTES;
        (units(self.max_bytes) as usize * UNIT_BYTES).saturating_sub(free)
    }

    /// Bytes of answers in memory.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        self.answer_bytes.load(Ordering::Relaxed)
    }

    /// Most bytes of each kind.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(crate) fn answers_grew(&self, bytes: usize) {
        self.answer_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn answers_shrank(&self, bytes: usize) {
        let before = self.answer_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before > self.max_bytes && before - bytes <= self.max_bytes {
            self.answers_fell.notify_waiters();
        }
    }

    /// Whether a connection that has an answer of its own under way must wait before it takes another request, and records
    /// stay in their files.
    pub(crate) fn answers_exceed(&self) -> bool {
        self.answer_bytes.load(Ordering::Acquire) > self.max_bytes
    }

    /// Until answers no longer exceed.
    pub(super) async fn answers_fit(&self) {
        until(&self.answers_fell, || !self.answers_exceed()).await;
    }

    /// Until some request waits for room.
    pub(super) async fn runs_short(&self) {
        until(&self.ran_short, || self.is_short()).await;
    }
}

/// Waits for what each change tells of.
async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    loop {
        let change = changed.notified();
        tokio::pin!(change);
        // From here on a notification is not missed.
        change.as_mut().enable();
        if is_so() {
            return;
        }
        change.await;
    }
}

/// Counts one who waits, also when it stops waiting half way.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_like::poll_once;

    /// Polls a future once.
    mod futures_like {
        use std::future::Future;
        use std::pin::Pin;
        use std::task::{Context, Poll, Waker};

        pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
            match future.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            }
        }
    }

    #[test]
    fn one_request_at_a_time_goes_beyond_the_limit_and_the_others_wait_in_order() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut first = budget.try_reserve(900 << 10, false).unwrap();
        assert!(budget.try_reserve(200 << 10, false).is_none());
        let mut second = Box::pin(budget.clone().reserve(200 << 10, false));
        let second = poll_once(second.as_mut()).unwrap();
        assert_eq!(second.lacks(usize::MAX), 0, "it may go on to its end");
        let mut third = Box::pin(budget.clone().reserve(500 << 10, false));
        assert!(poll_once(third.as_mut()).is_none());
        let mut fourth = Box::pin(budget.clone().reserve(1 << 10, false));
        assert!(poll_once(fourth.as_mut()).is_none(), "small ones do not overtake");
        assert_eq!(budget.waiting(), 2);
        assert!(budget.try_reserve(4 << 20, true).is_some(), "followers have their own");
        first.add(budget.try_reserve(0, false).unwrap());
        assert_eq!((first.lacks(900 << 10), first.lacks(901 << 10)), (0, 1 << 10));
        let bytes = first.hold(Bytes::from_static(b"request"));
        let kept = bytes.slice(0..1);
        drop(bytes);
        assert!(poll_once(third.as_mut()).is_none(), "a part of the request is still there");
        drop(kept);
        assert!(poll_once(third.as_mut()).is_some_and(|room| room.lacks(500 << 10) == 0));
        assert!(poll_once(fourth.as_mut()).is_some());
        drop(second);
        assert_eq!((budget.request_bytes(), budget.waiting()), (0, 0));
    }

    #[test]
    fn whoever_waits_for_answers_to_be_read_is_told() {
        let budget = Budget::new(100);
        budget.answers_grew(101);
        let mut fit = Box::pin(budget.answers_fit());
        assert!(poll_once(fit.as_mut()).is_none());
        budget.answers_shrank(1);
        assert!(poll_once(fit.as_mut()).is_some());
    }
}
