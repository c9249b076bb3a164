//! The checks before batches are appended, a producer's and a leader's, and the stamp; all outside the partition's lock.

use barnabas_types::{LeaderEpoch, Offset};

use crate::batch::{BatchError, BatchHeader, Batches};

/// What a producer's batches come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceSummary {
    /// How many offsets they take, 1 or more.
    pub offsets: i64,
    /// How many batches, 1 or more.
    pub batches: u32,
    /// Greatest timestamp, ms; -1 if none has one.
    pub max_timestamp: i64,
}

/// Checks what a producer sent for one partition: whole batches of magic 2 with a right CRC, nothing after them, none larger
/// than `max_batch_bytes`, counts that fit, no control or transactional batch. Do this before taking the partition's lock.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate_produce(
    records: &[u8],
    max_batch_bytes: usize,
) -> Result<ProduceSummary, BatchError> {
    let mut summary = ProduceSummary { offsets: 0, batches: 0, max_timestamp: -1 };
    for batch in Batches::new(records) {
        let batch = batch?;
        batch.header.check_produce(max_batch_bytes)?;
        batch.check_crc()?;
        summary.offsets += i64::from(batch.header.last_offset_delta) + 1;
        summary.batches += 1;
        summary.max_timestamp = summary.max_timestamp.max(batch.header.max_timestamp);
    }
    if summary.batches == 0 { Err(BatchError::Empty) } else { Ok(summary) }
}

/// Gives the batches consecutive offsets from `base_offset` on and the leader epoch; both lie outside the CRC.
/// Returns the offset after the last record.
///
/// # Errors
/// [`BatchError`] if the bytes are not whole batches with sensible offsets; those before the bad one are stamped already.
pub fn stamp(
    records: &mut [u8],
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
) -> Result<Offset, BatchError> {
    let mut next = base_offset.0;
    let mut rest = records;
    while !rest.is_empty() {
        let mut header = BatchHeader::parse(rest)?;
        header.base_offset = next;
        header.check_stored()?;
        let (batch, after) =
            rest.split_at_mut_checked(header.size()).ok_or(BatchError::Truncated)?;
        batch[0..8].copy_from_slice(&next.to_be_bytes());
        batch[12..16].copy_from_slice(&leader_epoch.0.to_be_bytes());
        next = header.next_offset();
        rest = after;
    }
    Ok(Offset(next))
}

/// A leader's answer after its checks: whole batches with right CRCs whose offsets increase and whose epochs do
/// not decrease. Built outside the partition's lock by [`check_fetched`], appended inside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) base: Offset,
    pub(crate) end: Offset,
    pub(crate) epochs: Vec<(LeaderEpoch, Offset)>,
}

impl Fetched<'_> {
    /// Offset of the first record.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Offset after the last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Leader epochs of the records: the first offset of each run, in order.
    #[must_use]
    pub fn epochs(&self) -> &[(LeaderEpoch, Offset)] {
        &self.epochs
    }
}

/// Checks the records of a leader's answer (R15): see [`Fetched`].
///
/// # Errors
/// The first thing that is wrong; [`BatchError::Empty`] if there is nothing.
pub fn check_fetched(records: &[u8]) -> Result<Fetched<'_>, BatchError> {
    let mut expected: Option<i64> = None;
    let mut fetched =
        Fetched { bytes: records, base: Offset(0), end: Offset(0), epochs: Vec::new() };
    for batch in Batches::new(records) {
        let batch = batch?;
        let header = batch.header;
        header.check_stored()?;
        batch.check_crc()?;
        match expected {
            None => fetched.base = Offset(header.base_offset),
            // Records between may have been compacted away on the leader.
            Some(expected) if header.base_offset < expected => {
                return Err(BatchError::OffsetOrder { found: header.base_offset, expected });
            }
            Some(_) => {}
        }
        let epoch = LeaderEpoch(header.partition_leader_epoch);
        match fetched.epochs.last() {
            Some((before, _)) if epoch < *before => {
                return Err(BatchError::EpochOrder { found: epoch.0, before: before.0 });
            }
            Some((before, _)) if epoch == *before => {}
            _ => fetched.epochs.push((epoch, Offset(header.base_offset))),
        }
        expected = Some(header.next_offset());
    }
    fetched.end = Offset(expected.ok_or(BatchError::Empty)?);
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{CONTROL, CRC_FROM, CrcStream, TRANSACTIONAL, crc_of};
    use crate::testing::{BatchBuilder, batch};

    #[test]
    fn crc_is_crc32c() {
        // "123456789" is the check value of the algorithm's definition; 21 bytes stand before what is covered.
        let mut bytes = vec![0; CRC_FROM];
        bytes.extend_from_slice(b"123456789");
        assert_eq!(crc_of(&bytes), 0xE306_9283);
        let mut stream = CrcStream::new();
        stream.update(b"1234");
        stream.update(b"56789");
        assert_eq!(stream.finish(), 0xE306_9283);
    }

    #[test]
    fn a_good_batch_is_taken_and_summed() {
        let mut records = batch(&[b"a", b"bb", b"ccc"]);
        records.extend(BatchBuilder::new().timestamp(77).record(b"d").build());
        let summary = validate_produce(&records, 1 << 20).unwrap();
        assert_eq!(summary, ProduceSummary { offsets: 4, batches: 2, max_timestamp: 77 });
    }

    #[test]
    fn d1_every_cut_and_every_flipped_byte_is_refused() {
        let good = batch(&[b"some", b"records"]);
        for length in 0..good.len() {
            assert!(validate_produce(&good[..length], 1 << 20).is_err(), "cut at {length}");
        }
        // Base offset (0..8) and leader epoch (12..16) are the broker's to write: everything else is guarded.
        for at in (8..12).chain(16..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(validate_produce(&bad, 1 << 20).is_err(), "flipped at {at}");
        }
        let mut long = good;
        long.push(0);
        assert_eq!(validate_produce(&long, 1 << 20), Err(BatchError::Truncated));
    }

    #[test]
    fn what_producers_may_not_send_is_named() {
        let check = |b: BatchBuilder| validate_produce(&b.build(), 200);
        let one = || BatchBuilder::new().record(b"x");
        assert_eq!(check(one().attributes(CONTROL)), Err(BatchError::Control));
        assert_eq!(check(one().attributes(TRANSACTIONAL)), Err(BatchError::Transactional));
        assert_eq!(check(one().attributes(5)), Err(BatchError::Codec(5)));
        assert!(matches!(check(one().record_count(2)), Err(BatchError::Count { .. })));
        assert!(matches!(check(one().record_count(i32::MIN)), Err(BatchError::Count { .. })));
        assert!(matches!(check(one().counts(1000)), Err(BatchError::Count { .. })));
        assert!(matches!(check(BatchBuilder::new()), Err(BatchError::Count { .. })));
        assert_eq!(check(one().producer(7, 0, -1)), Err(BatchError::Sequence));
        assert!(check(one().producer(7, 0, 0)).is_ok());
        let large = one().record(&[0; 300]);
        assert!(matches!(check(large), Err(BatchError::TooLarge { .. })));
        assert_eq!(validate_produce(&[], 200), Err(BatchError::Empty));
        let mut old = one().build();
        old[16] = 1;
        assert_eq!(validate_produce(&old, 200), Err(BatchError::Magic(1)));
        let mut negative = one().build();
        negative[8..12].copy_from_slice(&(-1_i32).to_be_bytes());
        assert_eq!(validate_produce(&negative, 200), Err(BatchError::Length(-1)));
    }

    #[test]
    fn stamping_keeps_the_crc_right() {
        let mut records = batch(&[b"a", b"b"]);
        records.extend(batch(&[b"c"]));
        assert_eq!(stamp(&mut records, Offset(40), LeaderEpoch(6)), Ok(Offset(43)));
        let fetched = check_fetched(&records).unwrap();
        assert_eq!((fetched.base(), fetched.end()), (Offset(40), Offset(43)));
        assert_eq!(fetched.epochs(), [(LeaderEpoch(6), Offset(40))]);
    }

    #[test]
    fn fetched_batches_must_go_on_from_each_other() {
        let make = |base, epoch| {
            let mut records = batch(&[b"a", b"b"]);
            stamp(&mut records, Offset(base), LeaderEpoch(epoch)).unwrap();
            records
        };
        let join = |a: Vec<u8>, b: Vec<u8>| [a, b].concat();
        let good = join(make(4, 1), make(6, 3));
        let epochs = check_fetched(&good).unwrap().epochs;
        assert_eq!(epochs, [(LeaderEpoch(1), Offset(4)), (LeaderEpoch(3), Offset(6))]);
        for bad in [join(make(4, 1), make(5, 1)), join(make(4, 2), make(6, 1))] {
            assert!(check_fetched(&bad).is_err());
        }
    }
}
