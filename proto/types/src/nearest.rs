//! The known name that a mistyped one probably meant, for messages that refuse an unknown key.

/// The candidate with the smallest edit distance to `typed`, if it is near enough to be a likely slip.
///
/// Near enough means at most a third of the longer name, and at least one edit is always allowed. Case, `.`, `_` and `-`
/// are not told apart, nor are units of time (`log.retention.hours` means `log.retention.ms`, not `.bytes`). Of equally near
/// candidates the first one wins.
#[must_use]
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const TYPED_BYTES_MAX: usize = 200;
    if typed.len() > TYPED_BYTES_MAX {
        return None;
    }
    let folded = fold(typed);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = fold(candidate);
        let distance = edit_distance(without_time(&folded), without_time(&other));
        let allowed = (folded.len().max(other.len()) / 3).max(1);
        if distance <= allowed && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The name without its unit of time, if it ends in one.
fn without_time(name: &[char]) -> &[char] {
    const UNITS: [&str; 5] = ["ms", "seconds", "minutes", "hours", "days"];
    let Some(dot) = name.iter().rposition(|c| *c == '.') else { return name };
    let is_unit = UNITS.iter().any(|unit| unit.chars().eq(name[dot + 1..].iter().copied()));
    if is_unit { &name[..=dot] } else { name }
}

fn fold(text: &str) -> Vec<char> {
    text.chars()
        .map(|c| if matches!(c, '_' | '-') { '.' } else { c.to_ascii_lowercase() })
        .collect()
}

/// Levenshtein distance, row by row.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_none() {
        let keys = ["min.insync.replicas", "segment.bytes", "max.message.bytes"];
        assert_eq!(nearest("min.insync.replica", keys), Some("min.insync.replicas"));
        assert_eq!(nearest("min_insync_replicas", keys), Some("min.insync.replicas"));
        assert_eq!(nearest("segmnet.bytes", keys), Some("segment.bytes"));
        assert_eq!(nearest("zzzz", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"x".repeat(100_000), keys), None);
    }

    #[test]
    fn another_unit_of_time_is_the_same_name() {
        let keys = ["log.retention.bytes", "log.retention.ms", "log.roll.ms"];
        assert_eq!(nearest("log.retention.hours", keys), Some("log.retention.ms"));
        assert_eq!(nearest("log.rol.hours", keys), Some("log.roll.ms"));
        assert_eq!(nearest("ms", keys), None);
    }

    #[test]
    fn distance_is_the_number_of_edits() {
        let distance = |a: &str, b: &str| edit_distance(&fold(a), &fold(b));
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
