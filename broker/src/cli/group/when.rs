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

#[cfg(test)]
mod tests {
    use super::*;

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
