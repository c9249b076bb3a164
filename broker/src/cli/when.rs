//! Times as people write them.

/// Milliseconds since 1970 of `YYYY-MM-DDTHH:MM:SS[.mmm]Z`, or of a number that is that already.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let number = text.parse::<i64>().ok().filter(|ms| *ms >= 0);
    number.or_else(|| instant(text)).ok_or_else(|| {
        "expected a time in UTC like 2026-11-30T18:00:00Z, or milliseconds since 1970".to_owned()
    })
}

fn instant(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let numbers = |text: &str, separator, digits: [usize; 3]| -> Option<[i64; 3]> {
        let parts: Vec<&str> = text.split(separator).collect();
        let [a, b, c] = parts[..] else { return None };
        let mut found = [0; 3];
        for ((part, digits), place) in [a, b, c].into_iter().zip(digits).zip(&mut found) {
            let legal = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            *place = if legal { part.parse().ok()? } else { return None };
        }
        Some(found)
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let digits = fraction.len();
    if !(1..=3).contains(&digits) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ms = format!("{fraction:0<3}").parse::<i64>().ok()?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=length).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years that begin in March, so that the leap day is the last of its year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + ms)
}

/// The same of a time, or of how long ago it was: a number and `s`, `m`, `h` or `d`, for instance `2h`.
pub(super) fn parse_or_ago(text: &str, now_ms: i64) -> Result<i64, String> {
    if let Some(ms) = ago_ms(text) {
        return Ok(now_ms.saturating_sub(ms).max(0));
    }
    parse(text).map_err(|expected| format!("{expected}, or how long ago, like 2h (s, m, h, d)"))
}

fn ago_ms(text: &str) -> Option<i64> {
    let unit = text.chars().last()?;
    let second = 1_000;
    let unit_ms = match unit {
        's' => second,
        'm' => 60 * second,
        'h' => 3_600 * second,
        'd' => 86_400 * second,
        _ => return None,
    };
    let number: i64 = text.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(unit_ms).filter(|ms| *ms >= 0)
}

/// `YYYY-MM-DDTHH:MM:SS.mmmZ` of milliseconds since 1970; what is before that, or after the year 9999, as the number it is.
pub(super) fn show(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    const YEAR_10000_MS: i64 = 253_402_300_800_000;
    if !(0..YEAR_10000_MS).contains(&ms) {
        return ms.to_string();
    }
    let (days, in_day) = (ms / DAY_MS + 719_468, ms % DAY_MS);
    // Years that begin in March, in cycles of 400.
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year_of_cycle = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let m = (5 * day_of_year + 2) / 153;
    let month = if m < 10 { m + 3 } else { m - 9 };
    let year = cycle * 400 + year_of_cycle + i64::from(month <= 2);
    let day_of_month = day_of_year - (153 * m + 2) / 5 + 1;
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_shown_is_read_as_the_same() {
        for (ms, text) in [
            (-1, "-1"),
            (0, "1970-01-01T00:00:00.000Z"),
            (951_825_600_001, "2000-02-29T12:00:00.001Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(show(ms), text);
        }
        // Steps of 17 days and some, over four centuries.
        for n in 0..9_000 {
            let ms = n * 1_500_000_123;
            assert_eq!(parse(&show(ms)), Ok(ms));
        }
    }

    #[test]
    fn how_long_ago_is_a_time_too() {
        let now = 1_796_062_501_500;
        for (text, ms) in [
            ("90s", now - 90_000),
            ("5m", now - 300_000),
            ("2h", now - 7_200_000),
            ("1d", now - 86_400_000),
            ("99999999d", 0),
            ("1970-01-01T00:00:01Z", 1_000),
        ] {
            assert_eq!(parse_or_ago(text, now), Ok(ms), "{text}");
        }
        for bad in ["", "h", "-2h", "2 h", "2w", "1.5h", "99999999999999999d"] {
            assert!(parse_or_ago(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_read_and_what_is_none_is_refused() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("2026-11-30T18:15:01.5Z", 1_796_062_501_500),
            ("1796062501500", 1_796_062_501_500),
        ] {
            assert_eq!(parse(text), Ok(ms), "{text}");
        }
        for bad in [
            "",
            "yesterday",
            "-1",
            "2026-11-30",
            "2026-11-30T18:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-1-30T18:00:00Z",
            "1969-12-31T00:00:00Z",
            "2026-11-30T18:00:00.1234Z",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
