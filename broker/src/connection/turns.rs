//! Which connection speaks for a follower: the youngest, and no other.
//!
//! A follower has one connection at a time. It gives a silent one up and dials anew; but what it had sent over the old one is
//! still the system's to repeat, also after the close, and may come when the network is back: long after the requests of the
//! new one, and with the position of that time. Were it noted, the high watermark would wait for a position that the
//! follower has told already and has no reason to tell again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use barnabas_types::BrokerId;

use super::out::Out;

/// The followers' youngest connections. There are as many entries as brokers have followed here; whoever calls [`Turns::of`]
/// sees to it that they are registered ones.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    numbers: AtomicU64,
    youngest: Mutex<BTreeMap<BrokerId, Arc<Turn>>>,
}

/// One follower's youngest connection. Locked while a request of the follower is handled, so that none of an older one is
/// handled beside it.
#[derive(Debug, Default)]
pub(super) struct Turn(Mutex<Youngest>);

#[derive(Debug, Default)]
pub(super) struct Youngest {
    /// In the order in which connections were accepted.
    number: u64,
    out: Weak<Out>,
}

impl Turns {
    /// The number of a connection that was just accepted.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn of(&self, follower: BrokerId) -> Arc<Turn> {
        let mut youngest = self.youngest.lock().unwrap_or_else(PoisonError::into_inner);
        youngest.entry(follower).or_default().clone()
    }
}

impl Turn {
    /// Begins a request on the connection of this number; the older connection ends, if there is one.
    ///
    /// # Errors
    /// A younger connection speaks for this follower: nothing that comes over this one counts any more.
    pub(super) fn take(
        &self,
        number: u64,
        out: &Arc<Out>,
    ) -> Result<MutexGuard<'_, Youngest>, String> {
        let mut youngest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if number < youngest.number {
            return Err("a younger connection of the same follower is here".to_owned());
        }
        if number > youngest.number {
            let older =
                std::mem::replace(&mut *youngest, Youngest { number, out: Arc::downgrade(out) });
            if let Some(older) = older.out.upgrade() {
                older.close();
            }
        }
        Ok(youngest)
    }
}
