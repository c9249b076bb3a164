//! A part of a world that many worlds have in common: copied when it is changed, hashed once.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A value shared between worlds. Changed through [`Shared::edit`]; [`Shared::seal`] hashes what was changed.
pub struct Shared<T> {
    value: Arc<T>,
    /// Fingerprint of `value`; `None` while it is being changed.
    fingerprint: Option<u64>,
}

impl<T: Clone + Hash> Shared<T> {
    /// Takes a value.
    #[must_use]
    pub fn new(value: T) -> Self {
        let fingerprint = Some(fingerprint_of(&value));
        Self { value: Arc::new(value), fingerprint }
    }

    /// The value to be changed: a copy of its own, if others have it too.
    pub fn edit(&mut self) -> &mut T {
        self.fingerprint = None;
        Arc::make_mut(&mut self.value)
    }

    /// Ends the changes.
    pub fn seal(&mut self) {
        if self.fingerprint.is_none() {
            self.fingerprint = Some(fingerprint_of(&*self.value));
        }
    }
}

/// A hash that is the same in every run.
pub fn fingerprint_of<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), fingerprint: self.fingerprint }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

impl<T> PartialEq for Shared<T> {
    /// By fingerprint, as the checker tells worlds apart.
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl<T> Eq for Shared<T> {}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
