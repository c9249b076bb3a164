//! The fetch sessions of this broker's clients.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barnabas_types::Now;
use barnabas_wire::messages::FetchRequest;

use super::cache::{Cache, SESSION_PARTITIONS_MAX};
use super::look::Found;
use super::session::Session;

/// All of them. Its lock is never held while a session's or a partition's is taken.
pub(crate) struct FetchSessions {
    cache: Mutex<Cache<Arc<Session>>>,
    /// What ids are made from: nobody guesses another client's.
    ids: RandomState,
    /// Ids tried so far: what one session was called, the next one is not.
    tried: AtomicU64,
}

impl FetchSessions {
    /// At most so many (`max.incremental.fetch.session.cache.slots`); 0: none.
    pub(crate) fn new(slots_max: usize) -> Self {
        let cache = Mutex::new(Cache::new(slots_max));
        Self { cache, ids: RandomState::new(), tried: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Cache<Arc<Session>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions that are open, and the partitions in all of them.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.lock().size()
    }

    /// Opens a session for a client that is told `found`; its id, or 0 if there is no room for it.
    pub(super) fn open(
        &self,
        now: Now,
        version: i16,
        request: &FetchRequest,
        found: &Found,
    ) -> i32 {
        let partitions: usize = request.topics.iter().map(|topic| topic.partitions.len()).sum();
        if partitions == 0 || partitions > SESSION_PARTITIONS_MAX {
            return 0;
        }
        let id = self.id();
        let session = Arc::new(Session::new(id, version, request, found));
        let mut gave_way = Vec::new();
        let partitions = session.partitions();
        let taken = self.lock().insert(id, session, partitions, now, &mut gave_way);
        gave_way.iter().for_each(|session| session.close());
        if taken { id } else { 0 }
    }

    /// The session of this id, which is used now.
    pub(super) fn get(&self, id: i32, now: Now) -> Option<Arc<Session>> {
        self.lock().touch(id, now)
    }

    /// The session has so many partitions now; `false`: too many, and it is closed.
    pub(super) fn resized(&self, id: i32, partitions: usize) -> bool {
        let fits = self.lock().resize(id, partitions);
        if !fits {
            self.close(id);
        }
        fits
    }

    /// Ends a session, if there is one of this id.
    pub(super) fn close(&self, id: i32) {
        let gone = self.lock().remove(id);
        if let Some(session) = gone {
            session.close();
        }
    }

    /// A free id, 1 or more.
    fn id(&self) -> i32 {
        let cache = self.lock();
        loop {
            let tried = self.tried.fetch_add(1, Ordering::Relaxed);
            let id = (self.ids.hash_one(tried) % i32::MAX as u64) as i32 + 1;
            if !cache.has(id) {
                return id;
            }
        }
    }
}
