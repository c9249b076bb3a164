//! Attacks on the part of the HTTP port that changes things: each gets what it deserves, and nothing is changed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::operator::{Operator, Token};
use super::tests::{source, tell};
use super::{Hosts, Site, serve};
use crate::health::Health;
use crate::metrics::{Detail, Metrics};
use crate::node::Node;
use crate::testing::{Disk, ME, node};

const TOKEN: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
const ELECT: &str = r#"{"action": "elect_preferred"}"#;
/// Longest that the port may take over any of this: the deadline of bodies, and time for a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A broker with an operator, and 10,000 partitions that broker 2 leads instead of broker 1.
struct Port {
    node: Arc<Node>,
    address: SocketAddr,
    server: JoinHandle<()>,
    _disk: Disk,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    text: String,
}

impl Answer {
    fn body(&self) -> Value {
        let (_, body) = self.text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

impl Port {
    async fn open() -> Self {
        let (node, disk) = (node(), Disk::new());
        let source = source(&node, &disk);
        tell(&node, 2);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::new(ME, 7);
        let metrics = Metrics::new(ME, Detail::Partition, health.clone());
        let operator = Operator::new(Token::parse(TOKEN).unwrap());
        let site = Site::new(Hosts::default(), health, metrics, Some(operator));
        site.registered(source);
        let server = tokio::spawn(serve(site, listener));
        Self { node, address, server, _disk: disk }
    }

    /// Sends these bytes and reads until the port closes.
    async fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // It may close before it has all of them.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(ANSWER_MAX, read).await.expect("it answers, or hangs up");
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Answer { status, text }
    }

    /// With more headers than those that are needed anyway.
    async fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        let request = format!(
            "POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        self.raw(request.as_bytes()).await
    }

    /// As the page does it.
    async fn operate(&self, path: &str, body: &str) -> Answer {
        self.post(path, &good(), body).await
    }

    async fn preview(&self) -> String {
        let told = self.operate("/api/v1/plans", ELECT).await;
        assert_eq!(told.status, 200, "{}", told.text);
        told.body()["plan_id"].as_str().unwrap().to_owned()
    }
}

fn with(host: &str, token: &str, more: &str) -> String {
    format!(
        "Host: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n{more}"
    )
}

fn good() -> String {
    with("localhost:9292", TOKEN, "Origin: http://localhost:9292\r\n")
}

#[tokio::test]
async fn a_plan_is_previewed_without_changing_anything_and_void_once_the_cluster_has_moved_on() {
    let port = Port::open().await;
    let told = port.operate("/api/v1/plans", ELECT).await;
    assert_eq!(told.status, 200, "{}", told.text);
    let plan = told.body();
    assert_eq!((&plan["moves_leaders"], &plan["steps_total"]), (&1_000.into(), &1_000.into()));
    assert_eq!(plan["steps"][0], "broker 1 leads topic-000-0 instead of broker 2");
    assert_eq!(
        plan["risks"][0]["text"],
        "9000 partitions more are left for another plan; the command takes all"
    );
    assert!(plan["command"].as_str().unwrap().starts_with("barnabas leader elect --admin 127."));
    let id = plan["plan_id"].as_str().unwrap();
    let look = format!("GET /api/v1/plans/{id} HTTP/1.1\r\nConnection: close\r\n{}\r\n", good());
    let looked = port.raw(look.as_bytes()).await.body();
    assert_eq!((&looked["state"], &looked["progress"]["done"]), (&"previewed".into(), &0.into()));
    // Somebody else elects meanwhile.
    tell(&port.node, 3);
    let run = port.operate(&format!("/api/v1/plans/{id}/run"), "{}").await;
    assert_eq!(run.status, 409, "{}", run.text);
    assert!(run.text.contains("partition epoch"), "{}", run.text);
}

#[tokio::test]
async fn a_page_from_elsewhere_gets_nothing_even_with_the_token() {
    let port = Port::open().await;
    let path = "/api/v1/plans";
    for (headers, status) in [
        (with("evil.example", TOKEN, ""), 421),
        (with("localhost", TOKEN, "Origin: http://evil.example\r\n"), 403),
        (with("localhost", TOKEN, "Origin: null\r\n"), 403),
        (with("localhost:9292", TOKEN, "Origin: http://localhost:9293\r\n"), 403),
        (with("localhost", TOKEN, "Sec-Fetch-Site: cross-site\r\n"), 403),
        (with("localhost", TOKEN, "").replace("application/json", "text/plain"), 415),
        (
            with("localhost", TOKEN, "")
                .replace("application/json", "application/x-www-form-urlencoded"),
            415,
        ),
        (format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"), 415),
        (
            format!(
                "Host: localhost\r\nCookie: token={TOKEN}\r\nContent-Type: application/json\r\n"
            ),
            401,
        ),
    ] {
        let told = port.post(path, &headers, ELECT).await;
        assert_eq!(told.status, status, "{headers}: {}", told.text);
        assert!(!told.text.to_lowercase().contains("access-control"), "{}", told.text);
        assert!(!told.text.contains(TOKEN), "{}", told.text);
    }
    // What browsers ask before they let another page send JSON or a token.
    let preflight = "OPTIONS /api/v1/plans HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                     Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    let told = port.raw(preflight.as_bytes()).await;
    assert_eq!(told.status, 405);
    assert!(!told.text.to_lowercase().contains("access-control-allow"), "{}", told.text);
    // A token in an address opens nothing, nor does another method.
    let query = format!("/api/v1/plans?token={TOKEN}");
    let json = "Host: localhost\r\nContent-Type: application/json\r\n";
    assert_eq!(port.post(&query, json, ELECT).await.status, 401);
    for method in ["PUT", "PATCH", "DELETE", "TRACE", "PLAN"] {
        let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{}\r\n", good());
        assert_eq!(port.raw(request.as_bytes()).await.status, 405, "{method}");
    }
}

#[tokio::test]
async fn whoever_guesses_tokens_is_not_heard_after_ten() {
    let port = Port::open().await;
    for n in 0..10 {
        let told =
            port.post("/api/v1/plans", &with("localhost", &format!("guess{n}"), ""), ELECT).await;
        assert_eq!(told.status, 401, "{}", told.text);
        assert!(told.text.to_lowercase().contains("www-authenticate: bearer"), "{}", told.text);
    }
    let right = port.operate("/api/v1/plans", ELECT).await;
    assert_eq!(right.status, 429, "{}", right.text);
    let look = format!("GET /api/v1/plans/0 HTTP/1.1\r\nConnection: close\r\n{}\r\n", good());
    assert_eq!(port.raw(look.as_bytes()).await.status, 429, "a look is a guess, too");
    let health = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(port.raw(health).await.status, 200, "the rest of the port goes on");
}

#[tokio::test]
async fn a_huge_body_is_refused_with_the_token_and_not_even_read_without() {
    let port = Port::open().await;
    let huge = " ".repeat(4 << 20);
    let told = port.post("/api/v1/plans", &with("localhost", "wrong", ""), &huge).await;
    assert!(matches!(told.status, 401 | 0), "{}", told.text);
    let told = port.operate("/api/v1/plans", &huge).await;
    assert!(matches!(told.status, 413 | 0), "{}", told.text);
    // It says so before anything has come.
    let promise =
        format!("POST /api/v1/plans HTTP/1.1\r\nContent-Length: 1000000000000\r\n{}\r\n", good());
    let told = port.raw(promise.as_bytes()).await;
    assert_eq!(told.status, 413, "{}", told.text);
    let nobody = with("localhost", "wrong", "");
    let promise =
        format!("POST /api/v1/plans HTTP/1.1\r\nContent-Length: 1000000000000\r\n{nobody}\r\n");
    assert_eq!(port.raw(promise.as_bytes()).await.status, 401);
    // In chunks, without a promise.
    let chunk = format!("20000\r\n{}\r\n", " ".repeat(0x2_0000));
    let chunks = format!(
        "POST /api/v1/plans HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{}\r\n{}0\r\n\r\n",
        good(),
        chunk.repeat(8)
    );
    let told = port.raw(chunks.as_bytes()).await;
    assert!(matches!(told.status, 413 | 0), "{}", told.text);
    // Two lengths, which proxies read differently.
    let smuggled = format!(
        "POST /api/v1/plans HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 40\r\n{}\r\n{ELECT}",
        good()
    );
    assert_eq!(port.raw(smuggled.as_bytes()).await.status, 400);
    port.preview().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let port = Port::open().await;
    let slow = format!("POST /api/v1/plans HTTP/1.1\r\nContent-Length: 100\r\n{}\r\n{{", good());
    let began = Instant::now();
    let told = port.raw(slow.as_bytes()).await;
    assert_eq!(told.status, 408, "{}", told.text);
    assert!(began.elapsed() < ANSWER_MAX, "{:?}", began.elapsed());
    // Without the token nobody waits for it.
    let slow = slow.replace(TOKEN, "wrong");
    assert_eq!(port.raw(slow.as_bytes()).await.status, 401);
}

#[tokio::test]
async fn ids_of_plans_cannot_be_guessed_and_lead_nowhere_else() {
    let port = Port::open().await;
    let (one, other) = (port.preview().await, port.preview().await);
    assert!(one != other && one.len() == 32, "{one} {other}");
    let mut near = one.clone();
    near.replace_range(31.., if one.ends_with('0') { "1" } else { "0" });
    let long = "a".repeat(4_000);
    for id in [near.as_str(), &one[..31], "0", "", "..", "%2e%2e", "*", &long] {
        let told = port.operate(&format!("/api/v1/plans/{id}/run"), "{}").await;
        assert_eq!(told.status, 404, "{id:.40}: {}", told.text);
    }
    for path in
        ["/api/v1/plans/../plans", "/api/v1/plans/run", &format!("/api/v1/plans/{one}/run/run")]
    {
        let told = port.operate(path, ELECT).await;
        assert_eq!(told.status, 405, "{path}: {}", told.text);
    }
    // A token is needed for looking, too: a plan names what is in the cluster.
    let look =
        format!("GET /api/v1/plans/{one} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(port.raw(look.as_bytes()).await.status, 401);
}

#[tokio::test]
async fn names_with_markup_come_back_as_data_and_never_into_a_command() {
    let port = Port::open().await;
    let markup = r#"<img src=x onerror=alert(1)>"#;
    for body in [
        format!(
            r#"{{"action": "elect_preferred", "partitions": [{{"topic": "{markup}", "partition": 0}}]}}"#
        ),
        format!(
            r#"{{"action": "reassign", "partitions": [{{"topic": "{markup}", "partition": 0, "replicas": [1]}}]}}"#
        ),
        format!(r#"{{"action": "alter_config", "scope": "topic:{markup}", "set": {{"a": "b"}}}}"#),
        format!(r#"{{"action": "{markup}"}}"#),
        format!(r#"{{"action": "drain", "broker": 1, "{markup}": 1}}"#),
        r#"{"action": "elect_preferred", "partitions": [{"topic": "a; reboot", "partition": 0}]}"#
            .to_owned(),
        r#"{"action": "elect_preferred", "partitions": [{"topic": "../../x", "partition": 0}]}"#
            .to_owned(),
        r#"{"action": "elect_preferred", "partitions": [{"topic": "\u0000", "partition": 0}]}"#
            .to_owned(),
    ] {
        let told = port.operate("/api/v1/plans", &body).await;
        assert_eq!(told.status, 400, "{body}: {}", told.text);
        let head = told.text.to_lowercase();
        assert!(
            head.contains("content-type: application/json") && head.contains("nosniff"),
            "{head}"
        );
        assert!(
            told.body()["error"]["message"].is_string() && told.body().get("plan_id").is_none()
        );
    }
}

#[tokio::test]
async fn the_token_is_in_no_answer() {
    let port = Port::open().await;
    let id = port.preview().await;
    let plan = format!("/api/v1/plans/{id}");
    for path in [
        "/metrics",
        "/api/v1/cluster",
        "/api/v1/configs",
        "/api/v1/brokers",
        "/health/ready",
        "/app.js",
        "/operate.js",
        &plan,
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{}\r\n", good());
        let told = port.raw(request.as_bytes()).await;
        assert!(matches!(told.status, 200 | 503), "{path}: {}", told.text);
        assert!(!told.text.contains(TOKEN), "{path}");
    }
}
