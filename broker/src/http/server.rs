//! The HTTP server: GET, and POST of an operator's plans; small requests, a bounded number of connections and none for ever.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::answer::{Answer, Body};
use super::events::Cut;
use super::routes::Site;

/// Connections at once; whoever comes later waits in the socket's backlog.
const CONNECTIONS_MAX: usize = 192;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a request's head may take to come, and how long a connection may be idle.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection takes requests.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(60);
/// How much longer its last answer may take.
const LAST_ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// How long the kernel may fail to get rid of what was sent: whoever does not read for so long is disconnected.
const UNREAD_MAX_MS: u32 = 10_000;
/// Wait after an accept that failed (too many open files).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves for the life of the process.
pub async fn serve(site: Arc<Site>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        if rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_MAX_MS).is_err() {
            // It is gone already.
            continue;
        }
        let site = site.clone();
        tokio::spawn(async move {
            one(site, stream, peer.ip()).await;
            drop(place);
        });
    }
}

/// However it ends, nobody is to be told.
async fn one(site: Arc<Site>, stream: TcpStream, peer: IpAddr) {
    let (cut, streams) = (Cut::default(), Arc::new(AtomicBool::new(false)));
    let (of_answers, told) = (cut.clone(), streams.clone());
    let answer = service_fn(move |request: Request<Incoming>| {
        let (site, cut, streams) = (site.clone(), of_answers.clone(), told.clone());
        async move { Ok::<_, Infallible>(answer(&site, request, peer, &cut, &streams).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = cut.wanted() => return,
        () = tokio::time::sleep(CONNECTION_DEADLINE) => connection.as_mut().graceful_shutdown(),
    }
    if streams.load(Ordering::Acquire) {
        // For as long as it reads.
        tokio::select! {
            _ = connection => {}
            () = cut.wanted() => {}
        }
        return;
    }
    let _ = tokio::time::timeout(LAST_ANSWER_DEADLINE, connection).await;
}

async fn answer(
    site: &Site,
    request: Request<Incoming>,
    peer: IpAddr,
    cut: &Cut,
    streams: &AtomicBool,
) -> Response<Body> {
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let path = request.uri().path();
    let writes = method == Method::POST;
    let looks = matches!(method, Method::GET | Method::HEAD);
    let answer = if !site.hosts.admit(headers.get(HOST)) {
        let said = "this broker is not asked by that name; its own are its addresses, localhost, the hosts of its \
                    listeners and those in http.allowed.hosts";
        Answer::error(StatusCode::MISDIRECTED_REQUEST, "bad_request", said)
    } else if (looks || writes) && Site::is_of_operators(path, writes) {
        site.operate(request, peer).await
    } else if !looks {
        let said = "only GET is served here; POST is for /api/v1/plans and /api/v1/plans/{id}/run";
        Answer::error(StatusCode::METHOD_NOT_ALLOWED, "bad_request", said)
    } else if method == Method::GET
        && let Some(stream) = site.events(path, &headers, cut)
    {
        streams.store(stream.status() == StatusCode::OK, Ordering::Release);
        return stream;
    } else {
        site.get(path, request.uri().query().unwrap_or_default()).await
    };
    let mut response = answer.response(&headers, &site.aside).await;
    let (status, headers) = (response.status(), response.headers_mut());
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if !looks && (status.is_client_error() || status.is_server_error()) {
        // What is left of a body that was refused is not waited for.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::health::Health;
    use crate::http::Hosts;
    use crate::metrics::{Detail, Metrics};
    use crate::testing::ME;

    fn site() -> Arc<Site> {
        let health = Health::new(ME, 7);
        let metrics = Metrics::new(ME, Detail::Partition, health.clone());
        Site::new(Hosts::default(), health, metrics, None)
    }

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may close while it still has unread bytes of ours.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn what_is_asked_well_is_answered_and_the_rest_is_refused_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let site = site();
        let server = tokio::spawn(serve(site, listener));
        let get = |path: &str, host: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        };
        for (request, status, part) in [
            (get("/health/live", "127.0.0.1:9292"), 200, r#""status":"live""#),
            (get("/health/ready", "localhost"), 503, r#""status":"registering""#),
            (get("/health/ready", "[::1]:9292"), 503, r#""broker_id":1"#),
            (get("/metrics", "localhost"), 200, "kafka_server_kafkaserver_brokerstate 1\n"),
            (get("/nowhere", "localhost"), 404, "/health/ready"),
            (get("/", "localhost"), 200, "app.js"),
            (get("/api/v1/cluster", "localhost"), 503, "not_ready"),
            (get("/api/v1/events", "localhost"), 503, "not_ready"),
            (get("/health/live", "evil.example"), 421, "http.allowed.hosts"),
            ("GET /health/live HTTP/1.0\r\n\r\n".to_owned(), 200, "live"),
            (
                "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
                405,
                "GET",
            ),
            (
                "POST /api/v1/plans HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                    .to_owned(),
                403,
                "read_only",
            ),
            (get("/api/v1/plans/0", "localhost"), 403, "read_only"),
            (get("/api/v1/plans", "localhost"), 503, "not_ready"),
            ("nonsense\r\n\r\n".to_owned(), 400, ""),
            (get("/../etc/passwd", "localhost"), 404, "not_found"),
            (get("/%2e%2e/%2e%2e/etc/passwd", "localhost"), 404, "not_found"),
            (get(&format!("/{}", "x".repeat(9000)), "localhost"), 431, ""),
            (format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(9000)), 431, ""),
            (format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200)), 431, ""),
        ] {
            let said = ask(address, &request).await;
            assert!(said.split(' ').nth(1) == Some(&status.to_string()), "{request:.40}: {said}");
            assert!(said.contains(part), "{said}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn a_connection_takes_several_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(site(), listener));
        let one = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let last = "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let said = ask(address, &format!("{one}{last}")).await;
        assert_eq!(said.matches("HTTP/1.1 200").count(), 2, "{said}");
        server.abort();
    }
}
