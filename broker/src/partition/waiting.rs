//! Who waits on a partition: producers for the high watermark, consumers for bytes, followers for news.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barnabas_types::{Condition, Offset};
use bytes::Bytes;

use crate::connection::{Out, Slot};

/// What a produce became in one partition: base offset and log start.
pub type ProduceResult = Result<(Offset, Offset), Condition>;
/// Makes the answer to a whole request from the results of its partitions, in their order.
pub type EncodeProduce = Box<dyn Fn(&[Option<ProduceResult>]) -> Vec<Bytes> + Send + Sync>;

/// Takes the result of a batch of the broker's own; called without any partition's lock, and must not wait.
pub(super) type TellAppended = Box<dyn Fn(ProduceResult) + Send + Sync>;

/// One produce request that waits for its partitions; the last of them to finish encodes and sends the answer.
pub struct PendingProduce {
    remaining: AtomicUsize,
    results: Mutex<Vec<Option<ProduceResult>>>,
    asked_by: AskedBy,
}

/// Who wants to know.
enum AskedBy {
    Client { out: Arc<Out>, slot: Slot, encode: EncodeProduce },
    Broker(TellAppended),
}

impl PendingProduce {
    /// A request over `partitions` partitions. `encode` makes the answer from one result each: (base offset, log start).
    pub fn new(out: Arc<Out>, slot: Slot, partitions: usize, encode: EncodeProduce) -> Self {
        Self::asked(partitions, AskedBy::Client { out, slot, encode })
    }

    /// A batch of the broker's own, in one partition.
    pub fn of_broker(tell: Box<dyn Fn(ProduceResult) + Send + Sync>) -> Self {
        Self::asked(1, AskedBy::Broker(tell))
    }

    fn asked(partitions: usize, asked_by: AskedBy) -> Self {
        let results = Mutex::new(vec![None; partitions]);
        Self { remaining: AtomicUsize::new(partitions), results, asked_by }
    }

    /// Notes the result of the partition at `index`; the first result of an index counts. Returns the connection to
    /// flush if the whole request is now answered.
    pub fn finish(&self, index: usize, result: ProduceResult) -> Option<Arc<Out>> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        match results.get_mut(index) {
            Some(place @ None) => *place = Some(result),
            _ => return None,
        }
        if self.remaining.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        match &self.asked_by {
            AskedBy::Client { out, slot, encode } => {
                let answer = encode(&results);
                drop(results);
                out.complete(*slot, answer);
                Some(out.clone())
            }
            AskedBy::Broker(tell) => {
                let result = results.pop().flatten();
                drop(results);
                result.into_iter().for_each(tell);
                None
            }
        }
    }

    /// Whether every partition has its result.
    pub fn is_done(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }
}

/// A consumer's fetch that waits for bytes on several partitions.
pub struct ParkedFetch {
    out: Arc<Out>,
    min_bytes: usize,
    gathered: AtomicUsize,
    fired: AtomicBool,
}

impl ParkedFetch {
    /// Waits until `min_bytes` have come.
    pub fn new(out: Arc<Out>, min_bytes: usize, gathered: usize) -> Self {
        Self { out, min_bytes, gathered: AtomicUsize::new(gathered), fired: AtomicBool::new(false) }
    }

    /// The same wait, begun anew.
    pub fn renewed(&self, min_bytes: usize) -> Self {
        Self::new(self.out.clone(), min_bytes, 0)
    }

    /// The connection that waits.
    pub fn out(&self) -> &Arc<Out> {
        &self.out
    }

    /// This many bytes were found there already.
    pub fn gathered(&self, bytes: usize) {
        if self.gather(bytes) {
            self.fire();
        }
    }

    /// Bytes became readable. Returns `true` once, when the fetch is due: then call [`ParkedFetch::fire`] without a lock.
    pub fn gather(&self, bytes: usize) -> bool {
        let before = self.gathered.fetch_add(bytes, Ordering::AcqRel);
        before < self.min_bytes && before + bytes >= self.min_bytes && !self.is_fired()
    }

    /// Whether more bytes than have come are waited for.
    pub fn is_waiting(&self) -> bool {
        self.gathered.load(Ordering::Acquire) < self.min_bytes && !self.is_fired()
    }

    /// The fetch is due (bytes, role change): wakes its connection.
    pub fn fire(&self) {
        if !self.fired.swap(true, Ordering::AcqRel) {
            self.out.wake();
        }
    }

    /// The fetch was answered for another reason (its time is over).
    pub fn cancel(&self) {
        self.fired.store(true, Ordering::Release);
    }

    /// Whether it is due or answered.
    pub fn is_fired(&self) -> bool {
        self.fired.load(Ordering::Acquire)
    }
}

/// A follower's fetch session, as a partition sees it: something to tell that entry `index` has news.
pub trait FollowerSession: Send + Sync {
    /// New records, or (with `urgent` false) only a higher HW. Called without any partition lock.
    fn news(&self, index: u32, urgent: bool);
}
