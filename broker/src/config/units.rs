//! Numbers with units (`5s`, `1 GiB`, `1_000`): what they would be without, for the message that refuses them.

use super::keys::Key;

const TIMES_MS: [(&str, i64); 9] = [
    ("ms", 1),
    ("s", 1_000),
    ("sec", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
    ("days", 86_400_000),
];

const SIZES: [(&str, i64); 10] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
];

/// The number that `value` means in the unit of `key`; `None` if it is no number with a unit that fits, or no whole one.
pub(super) fn plain(key: &Key, value: &str) -> Option<i64> {
    let is_digit = |c: char| c.is_ascii_digit() || c == '_';
    let value = value.trim();
    let end = value.find(|c| !is_digit(c)).unwrap_or(value.len());
    let number: i64 = value[..end].replace('_', "").parse().ok()?;
    let unit = value[end..].trim().to_ascii_lowercase();
    if unit.is_empty() {
        // Only the underscores were wrong, or nothing that a unit explains.
        return value[..end].contains('_').then_some(number);
    }
    let of = |table: &[(&str, i64)]| table.iter().find(|(name, _)| *name == unit).map(|(_, n)| *n);
    let (factor, per) = match key.unit()? {
        "ms" => (of(&TIMES_MS)?, 1),
        "seconds" => (of(&TIMES_MS)?, 1_000),
        "minutes" => (of(&TIMES_MS)?, 60_000),
        "hours" => (of(&TIMES_MS)?, 3_600_000),
        "bytes" | "bytes a second" => (of(&SIZES)?, 1),
        _ => return None,
    };
    let total = number.checked_mul(factor)?;
    (total % per == 0).then_some(total / per)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::find;

    #[test]
    fn numbers_are_told_in_the_keys_own_unit() {
        for (key, value, expected) in [
            ("log.flush.interval.ms", "5s", Some(5_000)),
            ("log.retention.ms", "7 d", Some(604_800_000)),
            ("log.retention.hours", "2d", Some(48)),
            ("log.retention.hours", "30m", None),
            ("leader.imbalance.check.interval.seconds", "5min", Some(300)),
            ("log.segment.bytes", "1GiB", Some(1 << 30)),
            ("log.segment.bytes", "1_000", Some(1_000)),
            ("log.segment.bytes", "5s", None),
            ("num.partitions", "5s", None),
            ("num.partitions", "many", None),
            ("broker.rack", "1s", None),
        ] {
            assert_eq!(plain(find(key).unwrap(), value), expected, "{key}: {value}");
        }
    }
}
