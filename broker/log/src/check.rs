//! The checks before batches are appended, a producer's and a leader's, and the stamps; all outside the partition's lock.

use barnabas_types::{LeaderEpoch, Offset, TimestampType, TopicConfig};

use crate::batch::{
    Batch, BatchError, BatchHeader, Batches, LOG_APPEND_TIME, crc_joined, crc_of, crc_of_bytes,
};
use crate::codec::Codec;
use crate::records::{Record, Records, record_bytes};

/// What stands for "no timestamp".
const NO_TIMESTAMP: i64 = -1;

/// Byte at which the max timestamp ends: what a broker may change before it, it can give a new CRC without reading the rest.
pub(crate) const STAMPED_END: usize = 43;

/// What a topic asks of a producer's batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceRules {
    /// `max.message.bytes`.
    pub max_batch_bytes: usize,
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub compacted: bool,
    /// `compression.type`; `None`: as the producer compressed it.
    pub codec: Option<Codec>,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms` (KIP-937).
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms` (KIP-937).
    pub timestamp_after_max_ms: i64,
}

impl From<&TopicConfig> for ProduceRules {
    fn from(topic: &TopicConfig) -> Self {
        Self {
            max_batch_bytes: usize::try_from(topic.max_message_bytes).unwrap_or(usize::MAX),
            compacted: topic.cleanup.compact,
            codec: Codec::wanted(topic.compression_type),
            timestamp_type: topic.message_timestamp_type,
            timestamp_before_max_ms: topic.message_timestamp_before_max_ms,
            timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        }
    }
}

impl ProduceRules {
    /// Whether the records themselves must be looked at, and not only the batch's header: for their keys, or because the
    /// header does not say which timestamp is the least.
    fn ask_for_records(&self) -> bool {
        self.compacted
            || (self.timestamp_type == TimestampType::CreateTime
                && self.timestamp_before_max_ms != i64::MAX)
    }

    /// No timestamp at all is fine, as in Kafka.
    fn check_timestamp(&self, timestamp: i64, now_ms: i64) -> Result<(), BatchError> {
        if self.timestamp_type == TimestampType::LogAppendTime || timestamp == NO_TIMESTAMP {
            return Ok(());
        }
        let least = match self.timestamp_before_max_ms {
            i64::MAX => i64::MIN,
            before_max_ms => now_ms.saturating_sub(before_max_ms),
        };
        let most = now_ms.saturating_add(self.timestamp_after_max_ms);
        if (least..=most).contains(&timestamp) {
            Ok(())
        } else {
            Err(BatchError::Timestamp { found: timestamp, least, most })
        }
    }

    fn check_records(&self, batch: &Batch<'_>, now_ms: i64) -> Result<(), BatchError> {
        let header = &batch.header;
        let bytes = record_bytes(batch.bytes, header)?;
        for (number, record) in (0..).zip(Records::new(&bytes, header)) {
            let record = record?;
            if record.offset_delta != number {
                return Err(BatchError::Records("their offsets do not go on from each other"));
            }
            self.check_record(&record, header, now_ms)?;
        }
        Ok(())
    }

    fn check_record(
        &self,
        record: &Record<'_>,
        header: &BatchHeader,
        now_ms: i64,
    ) -> Result<(), BatchError> {
        if self.compacted && record.key.is_none() {
            return Err(BatchError::NoKey);
        }
        if header.base_timestamp == NO_TIMESTAMP {
            return Ok(());
        }
        self.check_timestamp(record.timestamp(header), now_ms)
    }
}

/// What a producer's batch comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceSummary {
    /// How many offsets it takes, 1 or more.
    pub offsets: i64,
    /// Greatest timestamp, ms, as the producer gave it; -1 if there is none.
    pub max_timestamp: i64,
    /// The time that the leader stamps it with, ms; `None` if the producer's timestamps stay.
    pub append_time_ms: Option<i64>,
    /// CRC of what follows the fields that a leader may change.
    pub(crate) rest_crc: u32,
}

/// Checks what a producer sent for one partition: one whole batch of magic 2 with a right CRC, nothing after it, no larger than
/// allowed, counts that fit, no control or transactional batch, timestamps within the topic's bounds (KIP-937), keys if the
/// topic is compacted. Do this before taking the partition's lock. `now_ms`: the broker's clock, ms since 1970.
///
/// Records are looked at, and decompressed for it, only for a compacted topic or one that bounds timestamps of the past;
/// elsewhere the header's first and greatest timestamp stand for all.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate_produce(
    records: &[u8],
    rules: &ProduceRules,
    now_ms: i64,
) -> Result<ProduceSummary, BatchError> {
    let mut batches = Batches::new(records);
    let batch = batches.next().ok_or(BatchError::Empty)??;
    let header = &batch.header;
    header.check_produce(rules.max_batch_bytes)?;
    let stamps = rules.timestamp_type == TimestampType::LogAppendTime;
    let mut rest_crc = 0;
    if stamps {
        // One pass over the bytes, though the stamps before the rest will change. Joining costs more than the CRC of a
        // batch of usual size, so it is done only here.
        let (stamped, rest) = batch.bytes.split_at(STAMPED_END);
        rest_crc = crc_of_bytes(rest);
        let computed = crc_joined(crc_of(stamped), rest_crc, rest.len());
        if computed != header.crc {
            return Err(BatchError::Crc { stored: header.crc, computed });
        }
    } else {
        batch.check_crc()?;
    }
    match batches.next() {
        None => {}
        Some(Ok(_)) => return Err(BatchError::Several),
        Some(Err(error)) => return Err(error),
    }
    rules.check_timestamp(header.max_timestamp, now_ms)?;
    rules.check_timestamp(header.base_timestamp, now_ms)?;
    if rules.ask_for_records() {
        rules.check_records(&batch, now_ms)?;
    }
    Ok(ProduceSummary {
        offsets: i64::from(header.last_offset_delta) + 1,
        max_timestamp: header.max_timestamp,
        append_time_ms: stamps.then_some(now_ms),
        rest_crc,
    })
}

/// Which records of a batch that [`validate_produce`] refused for one of its records ([`BatchError::is_of_records`]) are to blame,
/// by their number in the batch, and why: the first `most` of them. Empty if it is only the header that says so.
#[must_use]
pub fn refused_records(
    records: &[u8],
    rules: &ProduceRules,
    now_ms: i64,
    most: usize,
) -> Vec<(i32, BatchError)> {
    let Some(Ok(batch)) = Batches::new(records).next() else { return Vec::new() };
    let Ok(bytes) = record_bytes(batch.bytes, &batch.header) else { return Vec::new() };
    let numbered = (0..).zip(Records::new(&bytes, &batch.header));
    let refused = numbered.filter_map(|(number, record)| {
        let error = rules.check_record(&record.ok()?, &batch.header, now_ms).err()?;
        Some((number, error))
    });
    refused.take(most).collect()
}

/// Gives a checked batch the leader's time if its topic wants that (`LogAppendTime`): the attribute, the greatest timestamp and
/// a CRC that fits them again, without a look at the records. Their own timestamps stay in place and count no more, as in
/// Kafka. Do this before taking the partition's lock.
///
/// # Errors
/// [`BatchError`] if the bytes are not the batch that was checked.
pub fn stamp_append_time(batch: &mut [u8], summary: &ProduceSummary) -> Result<(), BatchError> {
    let Some(time_ms) = summary.append_time_ms else { return Ok(()) };
    let header = BatchHeader::parse(batch)?;
    let attributes = header.attributes | LOG_APPEND_TIME;
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    batch[35..STAMPED_END].copy_from_slice(&time_ms.to_be_bytes());
    let rest_bytes = batch.len() - STAMPED_END;
    let crc = crc_joined(crc_of(&batch[..STAMPED_END]), summary.rest_crc, rest_bytes);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    Ok(())
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
    use crate::batch::{CONTROL, CRC_FROM, CrcStream, DELETE_HORIZON, TRANSACTIONAL};
    use crate::testing::{BatchBuilder, batch};

    const NOW: i64 = 1_700_000_000_000;

    fn rules(max_batch_bytes: usize) -> ProduceRules {
        ProduceRules { max_batch_bytes, ..ProduceRules::from(&TopicConfig::default()) }
    }

    fn check(records: &[u8]) -> Result<ProduceSummary, BatchError> {
        validate_produce(records, &rules(1 << 20), NOW)
    }

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
        let one = BatchBuilder::new().timestamp(77).record(b"a").record(b"b").record(b"c").build();
        let summary = check(&one).unwrap();
        assert_eq!((summary.offsets, summary.max_timestamp, summary.append_time_ms), (3, 77, None));
        let two = [one, batch(&[b"d"])].concat();
        assert_eq!(check(&two), Err(BatchError::Several));
    }

    #[test]
    fn d1_every_cut_and_every_flipped_byte_is_refused() {
        let good = batch(&[b"some", b"records"]);
        for length in 0..good.len() {
            assert!(check(&good[..length]).is_err(), "cut at {length}");
        }
        // Base offset (0..8) and leader epoch (12..16) are the broker's to write: everything else is guarded.
        for at in (8..12).chain(16..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(check(&bad).is_err(), "flipped at {at}");
        }
        let mut long = good;
        long.push(0);
        assert_eq!(check(&long), Err(BatchError::Truncated));
    }

    #[test]
    fn what_producers_may_not_send_is_named() {
        let check = |b: BatchBuilder| validate_produce(&b.build(), &rules(200), NOW);
        let one = || BatchBuilder::new().record(b"x");
        assert_eq!(check(one().attributes(CONTROL)), Err(BatchError::Control));
        assert_eq!(check(one().attributes(TRANSACTIONAL)), Err(BatchError::Transactional));
        assert_eq!(check(one().attributes(5)), Err(BatchError::Codec(5)));
        assert_eq!(check(one().attributes(LOG_APPEND_TIME)), Err(BatchError::Stamped));
        assert_eq!(check(one().attributes(DELETE_HORIZON)), Err(BatchError::Stamped));
        assert!(matches!(check(one().record_count(2)), Err(BatchError::Count { .. })));
        assert!(matches!(check(one().record_count(i32::MIN)), Err(BatchError::Count { .. })));
        assert!(matches!(check(one().counts(1000)), Err(BatchError::Count { .. })));
        assert!(matches!(check(BatchBuilder::new()), Err(BatchError::Count { .. })));
        assert_eq!(check(one().producer(7, 0, -1)), Err(BatchError::Sequence));
        assert!(check(one().producer(7, 0, 0)).is_ok());
        let large = one().record(&[0; 300]);
        assert!(matches!(check(large), Err(BatchError::TooLarge { .. })));
        assert_eq!(validate_produce(&[], &rules(200), NOW), Err(BatchError::Empty));
        let mut old = one().build();
        old[16] = 1;
        assert_eq!(validate_produce(&old, &rules(200), NOW), Err(BatchError::Magic(1)));
        let mut negative = one().build();
        negative[8..12].copy_from_slice(&(-1_i32).to_be_bytes());
        assert_eq!(validate_produce(&negative, &rules(200), NOW), Err(BatchError::Length(-1)));
    }

    #[test]
    fn d10_timestamps_outside_the_topics_bounds_are_refused() {
        let at = |timestamp: i64| BatchBuilder::new().timestamp(timestamp).record(b"x");
        let strict = ProduceRules {
            timestamp_before_max_ms: 1000,
            timestamp_after_max_ms: 10,
            ..rules(1 << 20)
        };
        let check = |b: BatchBuilder, rules| validate_produce(&b.build(), rules, NOW).map(|_| ());
        let refused = |found| {
            let (least, most) = (NOW - 1000, NOW + 10);
            Err(BatchError::Timestamp { found, least, most })
        };
        for (timestamp, fine) in
            [(-1000, true), (-1001, false), (10, true), (11, false), (i64::MAX - NOW, false)]
        {
            let timestamp = NOW + timestamp;
            let expected = if fine { Ok(()) } else { refused(timestamp) };
            assert_eq!(check(at(timestamp), &strict), expected, "{timestamp}");
        }
        // Kafka's defaults: the past is not bounded, the future to an hour.
        let default = rules(1 << 20);
        assert_eq!(check(at(0), &default), Ok(()));
        assert_eq!(check(at(i64::MIN), &default), Ok(()));
        assert_eq!(check(at(NOW + 3_600_000), &default), Ok(()));
        assert!(check(at(NOW + 3_600_001), &default).is_err());
        // A record between good ones is found, also in compressed batches; one without a timestamp is fine.
        for codec in 0..=4 {
            let middle =
                at(NOW).codec(codec).timestamp(5).record(b"old").timestamp(NOW).record(b"y");
            assert_eq!(check(middle.clone(), &strict), refused(5), "codec {codec}");
            assert_eq!(check(middle, &default), Ok(()));
        }
        assert_eq!(check(at(-1), &strict), Ok(()));
        // Where the leader's time counts, the producer's does not matter.
        let append = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..strict };
        assert_eq!(check(at(5), &append), Ok(()));
    }

    #[test]
    fn the_leaders_time_is_stamped_without_a_look_at_the_records() {
        let rules = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..rules(1 << 20) };
        for length in [0, 1, 61, 3000] {
            let produced = BatchBuilder::new().timestamp(5).record(&vec![3; length]).build();
            let summary = validate_produce(&produced, &rules, NOW).unwrap();
            assert_eq!(summary.append_time_ms, Some(NOW));
            let mut stamped = produced.clone();
            stamp_append_time(&mut stamped, &summary).unwrap();
            let batch = Batches::new(&stamped).next().unwrap().unwrap();
            batch.check_crc().unwrap();
            assert!(batch.header.is_log_append_time());
            assert_eq!((batch.header.base_timestamp, batch.header.max_timestamp), (5, NOW));
            assert_eq!(stamped[STAMPED_END..], produced[STAMPED_END..]);
        }
    }

    #[test]
    fn a_compacted_topic_takes_keyed_records_only() {
        let rules = ProduceRules { compacted: true, ..rules(1 << 20) };
        let check = |b: BatchBuilder| validate_produce(&b.build(), &rules, NOW).map(|_| ());
        for codec in 0..=4 {
            let keyed = BatchBuilder::new().codec(codec).keyed(b"k", Some(b"v")).keyed(b"", None);
            assert_eq!(check(keyed.clone()), Ok(()));
            assert_eq!(check(keyed.record(b"no key")), Err(BatchError::NoKey));
        }
        let garbage = BatchBuilder::new().record(b"not gzip").attributes(1);
        assert!(refused_records(&garbage.clone().build(), &rules, NOW, 9).is_empty());
        assert_eq!(check(garbage), Err(BatchError::Compression(Codec::Gzip)));
        let nonsense = BatchBuilder::new().record(b"").record_count(1).counts(2);
        assert!(check(nonsense).is_err());
    }

    #[test]
    fn the_records_to_blame_are_named_by_their_numbers() {
        let keyed = ProduceRules { compacted: true, ..rules(1 << 20) };
        for codec in 0..=4 {
            let good = BatchBuilder::new().codec(codec).timestamp(NOW).keyed(b"k", None);
            let mixed = good.clone().record(b"x").keyed(b"k", None).record(b"y").build();
            assert_eq!(validate_produce(&mixed, &keyed, NOW), Err(BatchError::NoKey));
            let no_key = [(1, BatchError::NoKey), (3, BatchError::NoKey)];
            assert_eq!(refused_records(&mixed, &keyed, NOW, 9), no_key);
            assert_eq!(refused_records(&mixed, &keyed, NOW, 1), no_key[..1]);
            // Found by the header alone; the records are looked at afterwards.
            let late = good.timestamp(NOW + 3_600_001).record(b"late").build();
            let error = validate_produce(&late, &rules(1 << 20), NOW).unwrap_err();
            assert!(error.is_of_records() && BatchError::NoKey.is_of_records());
            assert_eq!(refused_records(&late, &rules(1 << 20), NOW, 9), [(1, error)]);
        }
        assert!(!BatchError::Several.is_of_records());
        assert!(refused_records(b"no batch", &keyed, NOW, 9).is_empty());
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
