//! Which offset each key has last, in a bounded piece of memory.
//!
//! Keys are kept as 128-bit hashes, as in Kafka, since keys themselves have any size: two keys with one hash would cost the
//! older record of one of them. Kafka takes MD5, for which such pairs can be made at will. Here the hash is two SipHashes with
//! keys of their own, drawn at random for each map: nobody can prepare a pair for it, and by chance there is one in 2^64 keys.

use std::hash::{BuildHasher as _, RandomState};

/// Bytes of an entry: the hash, and the offset plus 1, so that zeros are an empty place.
const ENTRY_BYTES: usize = 24;
/// Of so many places at most [`FULL_PART`] are used: what makes lookups slow is a table that is nearly full (Kafka's
/// `log.cleaner.io.buffer.load.factor`).
const FULL_WHOLE: usize = 10;
const FULL_PART: usize = 9;

/// Keys (by their hashes) with the offset of the last record of each.
pub(super) struct OffsetMap {
    places: Vec<[u64; 3]>,
    len: usize,
    hashers: [RandomState; 2],
}

impl OffsetMap {
    /// An empty map in at most `bytes_max` bytes, and no more of them than `keys` keys can need; at least one key.
    pub(super) fn new(bytes_max: usize, keys: u64) -> Self {
        let wanted = usize::try_from(keys).unwrap_or(usize::MAX).saturating_add(1);
        let wanted = wanted.saturating_mul(FULL_WHOLE) / FULL_PART + 1;
        let places = wanted.min(bytes_max / ENTRY_BYTES).max(2);
        // Zeroed by the operating system: pages are taken as they are used.
        Self {
            places: vec![[0; 3]; places],
            len: 0,
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Whether a key that is not in it yet has no place.
    pub(super) fn is_full(&self) -> bool {
        self.len >= (self.places.len() * FULL_PART / FULL_WHOLE).max(1)
    }

    /// Where the key is, or where it would be.
    fn place_of(&self, key: &[u8]) -> (usize, [u64; 2]) {
        let hash = [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)];
        let count = self.places.len();
        let mut at = usize::try_from(hash[0] % count as u64).unwrap_or(0);
        // It ends: at least one place is always empty.
        while self.places[at][2] != 0 && self.places[at][..2] != hash {
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        (at, hash)
    }

    /// Notes a key's record; offsets come in order. `false` if there is no place for the key: nothing was noted.
    pub(super) fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let (at, hash) = self.place_of(key);
        if self.places[at][2] == 0 {
            if self.is_full() {
                return false;
            }
            self.len += 1;
        }
        self.places[at] = [hash[0], hash[1], offset.unsigned_abs() + 1];
        true
    }

    /// Offset of the key's last record.
    pub(super) fn get(&self, key: &[u8]) -> Option<i64> {
        let (at, _) = self.place_of(key);
        self.places[at][2].checked_sub(1).and_then(|offset| i64::try_from(offset).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_knows_the_last_offset_of_each_key_until_it_is_full() {
        let mut map = OffsetMap::new(24 * 1000, u64::MAX);
        let mut known: HashMap<Vec<u8>, i64> = HashMap::new();
        let mut full = 0;
        for offset in 0..5000_i64 {
            let key = ((offset * 7919) % 1500).to_string().into_bytes();
            if map.put(&key, offset) {
                known.insert(key, offset);
            } else {
                assert!(map.is_full() && !known.contains_key(&key));
                full += 1;
            }
        }
        assert_eq!((known.len(), full > 0), (900, true));
        for key in 0..1500 {
            let key = key.to_string().into_bytes();
            assert_eq!(map.get(&key), known.get(&key).copied());
        }
    }

    #[test]
    fn it_takes_no_more_memory_than_its_keys_need_and_always_one_key() {
        assert!(OffsetMap::new(1 << 30, 100).places.len() < 120);
        let mut tiny = OffsetMap::new(0, u64::MAX);
        assert!(tiny.put(b"a", 0) && !tiny.put(b"b", 1) && tiny.put(b"a", 2));
        assert_eq!((tiny.get(b"a"), tiny.get(b"b"), tiny.get(b"")), (Some(2), None, None));
        let mut exact = OffsetMap::new(1 << 30, 3);
        assert!((0..3_u8).all(|key| exact.put(&[key], i64::from(key))));
    }
}
