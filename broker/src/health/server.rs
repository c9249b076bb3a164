//! The HTTP server: small requests, few connections, one request each.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::Health;

/// Connections at once; whoever comes later waits in the socket's backlog.
const CONNECTIONS_MAX: usize = 32;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a request's head may take to come.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection may last.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(10);
/// Wait after an accept that failed (too many open files).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves health for the life of the process.
pub async fn serve(health: Arc<Health>, listener: TcpListener) {
    // Behind a loopback address, only names of it are answered: a page in somebody's browser cannot read this through a
    // name of its own that points here.
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let health = health.clone();
        tokio::spawn(async move {
            // However it ends, nobody is to be told.
            let _ = tokio::time::timeout(CONNECTION_DEADLINE, one(health, stream, local)).await;
            drop(place);
        });
    }
}

async fn one(health: Arc<Health>, stream: TcpStream, local: bool) -> hyper::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = answer(&health, &request, local);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

fn answer<B>(health: &Health, request: &Request<B>, local: bool) -> Response<Full<Bytes>> {
    if local && !is_local(request.headers().get(HOST)) {
        let said = json!({ "error": "this address serves 127.0.0.1, [::1] and localhost only" });
        return response(StatusCode::MISDIRECTED_REQUEST, &said);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return response(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "only GET is served" }));
    }
    match request.uri().path() {
        "/health/live" => response(StatusCode::OK, &health.live()),
        "/health/ready" => {
            let (ready, said) = health.ready();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            response(status, &said)
        }
        _ => {
            let said = json!({ "error": "served are /health/live and /health/ready" });
            response(StatusCode::NOT_FOUND, &said)
        }
    }
}

/// Whether the host that the request names is this machine by its loopback names. HTTP/1.0 names none.
fn is_local(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn response(status: StatusCode, said: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{said}\n"))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::testing::ME;

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may close while it still has unread bytes of ours.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn health_is_served_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(Health::new(ME, 7), listener));
        let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        for (request, status, part) in [
            (get("/health/live", "127.0.0.1:9292"), 200, r#""status":"live""#),
            (get("/health/ready", "localhost"), 503, r#""status":"registering""#),
            (get("/health/ready", "[::1]:9292"), 503, r#""broker_id":1"#),
            (get("/", "localhost"), 404, "/health/ready"),
            (get("/health/live", "evil.example"), 421, "127.0.0.1"),
            ("GET /health/live HTTP/1.0\r\n\r\n".to_owned(), 200, "live"),
            ("POST /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405, "GET"),
            ("nonsense\r\n\r\n".to_owned(), 400, ""),
            (get(&format!("/{}", "x".repeat(9000)), "localhost"), 431, ""),
            (format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(9000)), 431, ""),
        ] {
            let said = ask(address, &request).await;
            assert!(said.split(' ').nth(1) == Some(&status.to_string()), "{request:.40}: {said}");
            assert!(said.contains(part), "{said}");
        }
        server.abort();
    }
}
