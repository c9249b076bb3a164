//! Where a replica stands, for whoever explains what is wrong with its partition.

use std::sync::{PoisonError, TryLockError};

use barnabas_replica::Replica;

use super::hosted::Hosted;

impl Hosted {
    /// Shows the replica to `look`, unless something else has the partition's lock at this instant: a write that does not end
    /// would hold whoever waited for it. Then it is told for the how many-th time somebody has it: the same number again and again is
    /// the same one, different numbers are a partition with much to do.
    ///
    /// # Errors
    /// That number.
    pub fn try_look<T>(&self, look: impl FnOnce(&Replica) -> T) -> Result<T, u64> {
        let inner = match self.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return Err(self.turns()),
        };
        Ok(look(&inner.replica))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Disk, node, tp};

    #[tokio::test]
    async fn who_holds_a_partition_all_the_time_is_told_from_many_one_after_the_other() {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        assert!(hosted.try_look(|_| ()).is_ok());
        let held = hosted.lock();
        let first = hosted.try_look(|_| ()).unwrap_err();
        assert_eq!(hosted.try_look(|_| ()).unwrap_err(), first, "it is still the same one");
        drop(held);
        let held = hosted.lock();
        assert_ne!(hosted.try_look(|_| ()).unwrap_err(), first, "it is another one");
        drop(held);
        assert!(hosted.try_look(|_| ()).is_ok());
    }
}
