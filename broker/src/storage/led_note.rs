//! What a leader notes of its leadership, for whoever opens the log next: its next process, or the one after a crash of the host.
//!
//! One note of 64 bytes a partition, in a file of the log directory ([`super::led_file`]); numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | checksum (FNV-1a) of bytes 4 to 47; an empty place is all zeros |
//! | 4 | version, 1 |
//! | 5 | 1: records sent at acks=1 were appended, 2: at acks=all, 4: bytes 48 to 55 are kept up to date |
//! | 6-7 | zeros |
//! | 8-23 | topic id |
//! | 24-27 | partition |
//! | 28-31 | the last epoch in which the replica led |
//! | 32-39 | the first offset that it appended, in this epoch or in those directly before |
//! | 40-47 | under which boot of the host |
//! | 48-55 | the high watermark, exclusive, when it last answered at acks=all; written alone, before the answer |
//! | 56-63 | zeros |

use std::fs;
use std::sync::OnceLock;

use barnabas_types::{LeaderEpoch, LeaderEpochs, Offset, TopicId};

use super::Led;

/// Bytes of a note: no page and no sector has a part of one.
pub(super) const NOTE_BYTES: usize = 64;
/// Where the high watermark stands in it.
pub(super) const MARK_AT: u64 = 48;
/// The checksum covers what comes before.
const SUMMED_TO: usize = 48;
const VERSION: u8 = 1;
const ONE: u8 = 1;
const ALL: u8 = 2;
const MARKED: u8 = 4;

/// Which partition of which topic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NoteKey {
    /// The topic's life.
    pub topic_id: TopicId,
    /// Its partition.
    pub partition: i32,
}

/// How a leader is asked to acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckKind {
    /// acks=1.
    One,
    /// acks=all.
    All,
}

/// The ways in which a leader may have acknowledged: all that it was asked for by what it appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckKinds {
    /// At acks=1.
    pub one: bool,
    /// At acks=all.
    pub all: bool,
}

impl AckKinds {
    /// These, and this one.
    #[must_use]
    pub fn and(self, kind: Option<AckKind>) -> Self {
        match kind {
            Some(AckKind::One) => Self { one: true, ..self },
            Some(AckKind::All) => Self { all: true, ..self },
            None => self,
        }
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, kind: AckKind) -> bool {
        match kind {
            AckKind::One => self.one,
            AckKind::All => self.all,
        }
    }
}

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedNote {
    /// The last epoch in which the replica led.
    pub epoch: LeaderEpoch,
    /// The first offset that it appended, in this epoch or in those directly before.
    pub from: Offset,
    /// How it may have acknowledged that.
    pub kinds: AckKinds,
    /// Nothing at or above it was acknowledged at acks=all; `None`: that was not kept up to date.
    pub committed: Option<Offset>,
}

impl LedNote {
    /// As it lies in the file.
    #[must_use]
    pub(super) fn encode(&self, key: NoteKey, boot: u64) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bytes[4] = VERSION;
        bytes[5] = bit(self.kinds.one, ONE)
            | bit(self.kinds.all, ALL)
            | bit(self.committed.is_some(), MARKED);
        bytes[8..24].copy_from_slice(&key.topic_id.0);
        bytes[24..28].copy_from_slice(&key.partition.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&boot.to_le_bytes());
        let committed = self.committed.unwrap_or_default();
        bytes[48..56].copy_from_slice(&committed.0.to_le_bytes());
        let sum = checksum(&bytes[4..SUMMED_TO]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What lies in the file: whose it is, the note, and under which boot it was written. `None`: no note, or a torn one.
    #[must_use]
    pub(super) fn decode(bytes: &[u8; NOTE_BYTES]) -> Option<(NoteKey, Self, u64)> {
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let small = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if bytes[4] != VERSION || small(0)? != checksum(&bytes[4..SUMMED_TO]) {
            return None;
        }
        let offset = |at: usize| Some(Offset(number(at)?.cast_signed()));
        let topic_id = TopicId(bytes[8..24].try_into().ok()?);
        let key = NoteKey { topic_id, partition: small(24)?.cast_signed() };
        let marked = bytes[5] & MARKED != 0;
        let note = Self {
            epoch: LeaderEpoch(small(28)?.cast_signed()),
            from: offset(32)?,
            kinds: AckKinds { one: bytes[5] & ONE != 0, all: bytes[5] & ALL != 0 },
            committed: if marked { Some(offset(48)?) } else { None },
        };
        Some((key, note, number(40)?))
    }

    /// What it says of a log that ends at `log_end` and has these epochs. That anything was sent at acks=1 is taken for an
    /// acknowledgement of all that was appended: it follows the append at once.
    #[must_use]
    pub fn led(&self, log_end: Offset, epochs: &LeaderEpochs) -> Led {
        let next = epochs.entries().iter().find(|entry| entry.epoch > self.epoch);
        let to = next.map_or(log_end, |entry| entry.start_offset.min(log_end));
        let from = self.from.min(to);
        Led {
            from,
            to: Some(to),
            acked_to: if self.kinds.one { to } else { from },
            epoch: self.epoch,
            committed: self.committed.unwrap_or_default().min(to),
            committed_unseen: self.kinds.all && self.committed.is_none(),
            unasked: self.kinds == AckKinds::default(),
        }
    }
}

/// FNV-1a: a torn or foreign piece of 44 bytes is to be seen, nobody forges it.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Under which boot of the host this process runs; 0: not known.
pub(super) fn boot() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use barnabas_types::EpochStart;

    use super::*;

    const KEY: NoteKey = NoteKey { topic_id: TopicId([9; 16]), partition: 7 };

    fn note() -> LedNote {
        LedNote {
            epoch: LeaderEpoch(4),
            from: Offset(3),
            kinds: AckKinds { one: true, all: false },
            committed: Some(Offset(5)),
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_not_at_all_if_it_is_torn() {
        for committed in [None, Some(Offset(5))] {
            let note = LedNote { committed, ..note() };
            let bytes = note.encode(KEY, 77);
            assert_eq!(LedNote::decode(&bytes), Some((KEY, note, 77)));
            for at in 0..SUMMED_TO {
                let mut torn = bytes;
                torn[at] ^= 0x10;
                assert_eq!(LedNote::decode(&torn), None, "byte {at}");
            }
        }
        assert_eq!(LedNote::decode(&[0; NOTE_BYTES]), None, "an empty place");
        let mut later = note().encode(KEY, 77);
        later[48..56].copy_from_slice(&8_i64.to_le_bytes());
        let (_, read, _) = LedNote::decode(&later).unwrap();
        assert_eq!(read.committed, Some(Offset(8)), "it is written alone");
    }

    #[test]
    fn a_note_speaks_of_what_its_leader_appended_alone() {
        let start = |epoch, start: i64| EpochStart {
            epoch: LeaderEpoch(epoch),
            start_offset: Offset(start),
        };
        let epochs: LeaderEpochs = [start(4, 0), start(6, 10)].into_iter().collect();
        let led = note().led(Offset(20), &epochs);
        assert_eq!((led.from, led.to, led.acked_to), (Offset(3), Some(Offset(10)), Offset(10)));
        assert_eq!((led.committed, led.committed_unseen), (Offset(5), false));
        let kinds = AckKinds { one: false, all: true };
        let none = LedNote { kinds, committed: None, ..note() }.led(Offset(20), &epochs);
        assert_eq!((none.acked_to, none.committed_unseen), (Offset(3), true));
        let cut = note().led(Offset(2), &epochs);
        assert_eq!((cut.from, cut.to, cut.committed), (Offset(2), Some(Offset(2)), Offset(2)));
    }
}
