//! Whether a request comes from the page that this broker serves, or from no page at all.

use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};

use super::super::api::Refusal;

/// What browsers say of where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

/// `Origin` must be absent, as programs leave it, or the address under which this broker is asked. Whether it is reached through a proxy
/// with TLS does not matter: the scheme is not looked at.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    let no = || {
        Refusal::forbidden(
            "this is answered to the page of this broker only, not to one from elsewhere",
        )
    };
    if let Some(site) = headers.get(FETCH_SITE)
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err(no());
    }
    let mut origins = headers.get_all(ORIGIN).into_iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let text = |value: &hyper::header::HeaderValue| value.to_str().ok().map(str::to_lowercase);
    let origin = text(origin).ok_or_else(no)?;
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let host = headers.get(HOST).and_then(text);
    match (authority, host) {
        (Some(authority), Some(host)) if authority == host && origins.next().is_none() => Ok(()),
        _ => Err(no()),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_page_from_elsewhere_is_refused_whatever_it_calls_itself() {
        for (host, origin, site, admitted) in [
            ("localhost:9292", "", "", true),
            ("localhost:9292", "http://localhost:9292", "same-origin", true),
            ("LocalHost:9292", "http://localhost:9292", "", true),
            ("b1.example", "https://b1.example", "same-origin", true),
            ("[::1]:9292", "http://[::1]:9292", "", true),
            ("localhost:9292", "", "none", true),
            ("localhost:9292", "", "cross-site", false),
            ("localhost:9292", "", "same-site", false),
            ("localhost:9292", "http://localhost:9292", "cross-site", false),
            ("localhost:9292", "http://localhost:9293", "", false),
            ("localhost:9292", "http://localhost", "", false),
            ("localhost:9292", "http://127.0.0.1:9292", "", false),
            ("localhost:9292", "null", "", false),
            ("localhost:9292", "http://evil.example", "", false),
            ("localhost:9292", "http://localhost:9292.evil.example", "", false),
            ("localhost:9292", "http://evil.example/localhost:9292", "", false),
            ("localhost:9292", "file://localhost:9292", "", false),
            ("localhost:9292", "localhost:9292", "", false),
            ("", "http://", "", false),
        ] {
            let mut headers = HeaderMap::new();
            let site_name = HeaderName::from_static(FETCH_SITE);
            for (name, value) in [(HOST, host), (ORIGIN, origin), (site_name, site)] {
                if !value.is_empty() {
                    headers.insert(name, HeaderValue::from_str(value).unwrap());
                }
            }
            assert_eq!(check(&headers).is_ok(), admitted, "{host} {origin} {site}");
        }
        let mut two = HeaderMap::new();
        two.insert(HOST, HeaderValue::from_static("localhost"));
        two.append(ORIGIN, HeaderValue::from_static("http://localhost"));
        two.append(ORIGIN, HeaderValue::from_static("http://evil.example"));
        assert!(check(&two).is_err());
    }
}
