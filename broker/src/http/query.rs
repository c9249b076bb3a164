//! Paths and queries as they come over the wire: percent-encoded, and maybe nonsense.

use super::api::Refusal;

/// Parameters of one request that are read; the head is bounded besides.
const PARAMETERS_MAX: usize = 32;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(Refusal::bad(format!("at most {PARAMETERS_MAX} parameters are read")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // As forms are written, which is how browsers write queries.
            pairs.push((decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter; an empty one counts as absent.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(
        &self,
        name: &str,
        (least, most): (i64, i64),
    ) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Refusal::bad(format!("{name} must be a whole number from {least} to {most}"))),
        }
    }

    /// How many entries are wanted, from 1 to `most`.
    pub(super) fn limit(&self, default: usize, most: usize) -> Result<usize, Refusal> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let limit = self.number("limit", (1, most))?;
        Ok(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(default))
    }
}

/// The segments of a path, each decoded by itself: a name may have a `/`.
pub(super) fn segments(path: &str) -> Result<Vec<String>, Refusal> {
    path.split('/').map(decoded).collect()
}

/// Percent-decoded UTF-8.
fn decoded(text: &str) -> Result<String, Refusal> {
    let bad = || {
        Refusal::bad(
            "the address has a % that is not followed by two hex digits of UTF-8".to_owned(),
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = digit().zip(digit()).ok_or_else(bad)?;
            bytes.push(u8::try_from(high * 16 + low).map_err(|_| bad())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_come_through_and_nonsense_is_refused() {
        assert_eq!(segments("group/a%2Fb%20%C3%A9").unwrap(), ["group", "a/b é"]);
        assert_eq!(segments("a+b").unwrap(), ["a+b"]);
        for bad in ["%", "%4", "%zz", "%+1", "%ff", "a%c3"] {
            assert!(segments(bad).is_err(), "{bad}");
        }
        let query = Query::parse("q=a+b%26c&state=&limit=7&flag&from=x").unwrap();
        assert_eq!(query.text("q"), Some("a b&c"));
        assert_eq!(
            (query.text("state"), query.text("flag"), query.text("none")),
            (None, None, None)
        );
        assert_eq!(query.limit(100, 500).unwrap(), 7);
        let refused = query.number("from", (0, 9)).unwrap_err();
        assert!(refused.message.contains("from must be a whole number from 0 to 9"));
        assert!(Query::parse("limit=501").unwrap().limit(100, 500).is_err());
        assert!(Query::parse("limit=0").unwrap().limit(100, 500).is_err());
        assert!(Query::parse("limit=99999999999999999999").unwrap().limit(100, 500).is_err());
        assert!(Query::parse("q=%").is_err());
        assert!(Query::parse(&"a=1&".repeat(PARAMETERS_MAX + 1)).is_err());
        assert!(Query::parse(&"&".repeat(1_000)).is_ok());
    }
}
