//! Where reading begins: an end of the log, an offset, or a point in time.

/// Where a partition is read from when nothing else says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    Earliest,
    Latest,
    Offset(i64),
    /// The first record not older than this; milliseconds since 1970, UTC.
    Time(i64),
}

pub(super) fn parse(text: &str) -> Result<From, String> {
    match text {
        "earliest" => return Ok(From::Earliest),
        "latest" => return Ok(From::Latest),
        _ => {}
    }
    if let Some(offset) = text.parse().ok().filter(|offset| *offset >= 0) {
        return Ok(From::Offset(offset));
    }
    time(text).map(From::Time).ok_or_else(|| {
        "expected earliest, latest, an offset, or a time in UTC such as 2026-03-01T12:00:00Z"
            .to_owned()
    })
}

/// `2026-03-01T12:00:00Z` or `2026-03-01T12:00:00.250Z`, or only the day.
fn time(text: &str) -> Option<i64> {
    let (day, clock) = match text.strip_suffix('Z').and_then(|text| text.split_once('T')) {
        Some((day, clock)) => (day, clock),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(day, '-')?;
    let (clock, millis) = match clock.split_once('.') {
        Some((clock, fraction)) if fraction.len() == 3 => (clock, digits(fraction)?),
        Some(_) => return None,
        None => (clock, 0),
    };
    let [hour, minute, second] = numbers(clock, ':')?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = lengths.get(usize::try_from(month - 1).ok()?)?;
    if !(1970..=9999).contains(&year)
        || !(1..=*length).contains(&day)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let before = year - 1;
    // Days before this year since year 1, less those before 1970.
    let days = before * 365 + before / 4 - before / 100 + before / 400 - 719_162;
    let in_year: i64 = lengths.iter().take(usize::try_from(month - 1).ok()?).sum::<i64>() + day - 1;
    Some((((days + in_year) * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + millis)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_end_an_offset_or_a_time() {
        assert_eq!(parse("earliest"), Ok(From::Earliest));
        assert_eq!(parse("latest"), Ok(From::Latest));
        assert_eq!(parse("17"), Ok(From::Offset(17)));
        assert_eq!(parse("1970-01-01T00:00:00Z"), Ok(From::Time(0)));
        assert_eq!(parse("2000-02-29T23:59:59.250Z"), Ok(From::Time(951_868_799_250)));
        assert_eq!(parse("2026-11-30"), Ok(From::Time(1_795_996_800_000)));
        assert_eq!(parse("2100-03-01"), Ok(From::Time(4_107_542_400_000)));
    }

    #[test]
    fn what_is_none_of_them_is_refused() {
        for text in [
            "-1",
            "",
            "now",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00",
            "1969-12-31",
            "2026-1-1-1",
            "2026-01-01T00:00:00.5Z",
            "+2026-01-01",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
