//! Who may change the cluster through the HTTP port: whoever says the operator's token, from no page but this one.

mod body;
mod failures;
mod origin;
mod token;

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};

pub(super) use body::read;
pub use token::Token;

use super::api::Refusal;
use failures::{Failures, WINDOW};

/// The scheme of the header that carries the token.
const SCHEME: &str = "bearer ";

/// See the module's head.
pub struct Operator {
    token: Token,
    failures: Mutex<Failures>,
}

impl Operator {
    /// Whoever has the token in this file.
    ///
    /// # Errors
    /// Why the file is refused; see [`Token::read`].
    pub fn of(file: &Path) -> Result<Self, String> {
        Ok(Self::new(Token::read(file)?))
    }

    /// Whoever has this token.
    #[must_use]
    pub fn new(token: Token) -> Self {
        Self { token, failures: Mutex::default() }
    }

    /// Whether a request from `peer` with these headers comes from an operator. `writes`: it changes something, so it must be JSON,
    /// which no form of another page can send without being asked for leave first.
    pub(super) fn admit(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        writes: bool,
    ) -> Result<(), Refusal> {
        origin::check(headers)?;
        if writes && !is_json(headers) {
            return Err(Refusal::media_type("the body must be application/json"));
        }
        let now = Instant::now();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failures.admits(now, peer) {
            let said = "too many wrong tokens came from this address; wait a minute";
            return Err(Refusal::too_many(said).after(WINDOW));
        }
        match said(headers) {
            Some(said) if self.token.is(said) => Ok(()),
            // Nobody guesses by saying nothing.
            None => Err(Refusal::unauthorized("this needs the operator's token")),
            Some(_) => {
                failures.failed(now, peer);
                Err(Refusal::unauthorized("this is not the operator's token"))
            }
        }
    }
}

fn said(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(AUTHORIZATION).into_iter();
    let (first, None) = (given.next()?, given.next()) else { return Some(b"") };
    let bytes = first.as_bytes();
    match bytes.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) => Some(token),
        _ => Some(b""),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use hyper::header::{HOST, HeaderName, HeaderValue, ORIGIN};

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn headers(of: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_the_token_itself_opens_and_guesses_end_soon() {
        let operator = Operator::new(Token::parse(TOKEN).unwrap());
        let peer = |n: u8| IpAddr::from([10, 0, 0, n]);
        let right = format!("Bearer {TOKEN}");
        let json = (CONTENT_TYPE, "application/json; charset=utf-8");
        let with = |said: &str| headers(&[(AUTHORIZATION, said), json.clone()]);
        assert!(operator.admit(peer(1), &with(&right), true).is_ok());
        assert!(operator.admit(peer(1), &with(&right.replace("Bearer", "BEARER")), true).is_ok());
        let double = headers(&[(AUTHORIZATION, "Bearer x"), (AUTHORIZATION, &right), json.clone()]);
        assert_eq!(operator.admit(peer(2), &double, true).unwrap_err().status().as_u16(), 401);
        let text = headers(&[(AUTHORIZATION, &right), (CONTENT_TYPE, "text/plain")]);
        assert_eq!(operator.admit(peer(1), &text, true).unwrap_err().status().as_u16(), 415);
        assert!(operator.admit(peer(1), &text, false).is_ok(), "a look has no body");
        let elsewhere = headers(&[
            (AUTHORIZATION, &right),
            json.clone(),
            (HOST, "localhost:9292"),
            (ORIGIN, "http://evil.example"),
        ]);
        assert_eq!(operator.admit(peer(1), &elsewhere, true).unwrap_err().status().as_u16(), 403);
        for said in [
            "",
            "Bearer",
            "Bearer ",
            "Basic YTpi",
            &right[..right.len() - 1],
            &format!("{right} "),
            &format!("{right}0"),
            TOKEN,
            "Bearer 0",
        ] {
            let refused = operator.admit(peer(3), &with(said), true).unwrap_err();
            assert_eq!(refused.status().as_u16(), 401, "{said:?}");
            assert!(!refused.message.contains(TOKEN));
        }
        let _ = operator.admit(peer(3), &with("Bearer last"), true);
        let limited = operator.admit(peer(3), &with(&right), true).unwrap_err();
        assert_eq!(limited.status().as_u16(), 429, "the tenth was the last");
        assert!(operator.admit(peer(4), &with(&right), true).is_ok(), "others go on");
        let silent = headers(std::slice::from_ref(&json));
        for _ in 0..50 {
            assert_eq!(operator.admit(peer(5), &silent, true).unwrap_err().status().as_u16(), 401);
        }
        assert!(operator.admit(peer(5), &with(&right), true).is_ok(), "saying nothing is no guess");
    }
}
