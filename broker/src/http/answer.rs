//! One answer: its status, its body, the headers that every answer has, and gzip where it was asked for.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{Either, Full, StreamBody};
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::aside::Aside;
use super::events::Feed;

/// What is sent.
pub(super) type Body = Either<Full<Bytes>, StreamBody<Feed>>;

/// Answers over so many bytes are compressed for whoever takes that.
const GZIP_FROM_BYTES: usize = 1_000;
/// Nothing from elsewhere is loaded, nothing is framed, nothing is sent anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    /// The body in gzip, if that was made before.
    packed: Option<Bytes>,
}

impl Answer {
    /// `body` is of the kind `content_type`.
    pub(crate) fn of(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type, body: body.into(), packed: None }
    }

    /// An object, and a line end for whoever reads it at a terminal.
    pub(crate) fn json(said: &Value) -> Self {
        Self::of("application/json", format!("{said}\n"))
    }

    /// The same with another status.
    pub(super) fn with(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same with its body in gzip, too.
    pub(super) fn packed(self, packed: Option<Bytes>) -> Self {
        Self { packed, ..self }
    }

    /// `{"error": {"code", "message"}}`.
    pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Self {
        Self::json(&json!({ "error": { "code": code, "message": message } })).with(status)
    }

    /// As it goes out to whoever sent these headers.
    pub(super) async fn response(mut self, asked: &HeaderMap, aside: &Aside) -> Response<Body> {
        let wanted = self.body.len() > GZIP_FROM_BYTES && takes_gzip(asked);
        let packed = match self.packed.take().filter(|_| wanted) {
            Some(packed) => Some(packed),
            None if wanted => {
                let body = self.body.clone();
                aside.run(move || gzip(&body)).await.flatten()
            }
            None => None,
        };
        self.sent(packed)
    }

    /// As it goes out to anybody: not compressed.
    pub(super) fn plain(self) -> Response<Body> {
        self.sent(None)
    }

    fn sent(self, packed: Option<Bytes>) -> Response<Body> {
        let is_packed = packed.is_some();
        let body = Either::Left(Full::new(packed.unwrap_or(self.body)));
        let mut response = safe(Response::new(body), self.content_type);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// A stream of events.
pub(super) fn streaming(feed: Feed) -> Response<Body> {
    safe(Response::new(Either::Right(StreamBody::new(feed))), "text/event-stream")
}

/// With the headers that every answer has.
fn safe(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    let headers = response.headers_mut();
    let mut put = |name, value| headers.insert(name, HeaderValue::from_static(value));
    put(CONTENT_TYPE, content_type);
    put(CACHE_CONTROL, "no-store");
    put(CONTENT_SECURITY_POLICY, POLICY);
    put(X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(REFERRER_POLICY, "no-referrer");
    response
}

/// Whether gzip is named, and not with a weight of 0.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let lists = asked.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        named && weight != Some(0.0)
    })
}

/// `None`: it cannot be packed, and goes as it is.
pub(super) fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut packer = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    packer.write_all(body).ok()?;
    packer.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    fn asking(encodings: &str) -> HeaderMap {
        [(ACCEPT_ENCODING, HeaderValue::from_str(encodings).unwrap())].into_iter().collect()
    }

    #[tokio::test]
    async fn long_answers_are_packed_where_that_was_asked_for() {
        let long = "barnabas ".repeat(1_000);
        for (encodings, packed) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("deflate", false),
            ("xgzip", false),
        ] {
            let answer = Answer::of("text/plain", long.clone());
            let response = answer.response(&asking(encodings), &Aside::default()).await;
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), packed, "{encodings}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let mut read = String::new();
            if packed {
                assert!(body.len() < long.len() / 10);
                flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut read).unwrap();
            } else {
                read = String::from_utf8(body.to_vec()).unwrap();
            }
            assert_eq!(read, long);
        }
        let short = Answer::of("text/plain", "short");
        let short = short.response(&asking("gzip"), &Aside::default()).await;
        assert!(!short.headers().contains_key(CONTENT_ENCODING));
    }

    #[test]
    fn every_answer_forbids_what_a_page_could_be_abused_for() {
        let response = Answer::error(StatusCode::NOT_FOUND, "not_found", "no").plain();
        let header = |name| response.headers()[name].to_str().unwrap().to_owned();
        assert!(header(CONTENT_SECURITY_POLICY).starts_with("default-src 'none'"));
        assert_eq!(header(X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(header(REFERRER_POLICY), "no-referrer");
        assert_eq!(header(CACHE_CONTROL), "no-store");
        assert!(!response.headers().contains_key("access-control-allow-origin"));
    }
}
