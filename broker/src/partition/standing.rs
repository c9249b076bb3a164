//! Where a replica stands, for whoever explains what is wrong with its partition.

use std::sync::{PoisonError, TryLockError};

use barnabas_replica::Replica;

use super::hosted::Hosted;

impl Hosted {
    /// Shows the replica to `look`, unless something else has the partition's lock at this instant: a write that does not end
    /// would hold whoever waited for it.
    pub fn try_look<T>(&self, look: impl FnOnce(&Replica) -> T) -> Option<T> {
        let inner = match self.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(look(&inner.replica))
    }
}
