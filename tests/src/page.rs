//! The HTTP port as a stranger asks it: bytes in, bytes out; and its events.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::Outcome;

/// How long an answer, or the next event, may take.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status; 0: the connection was closed without one.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// The body as it came.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// It is none.
    pub fn json(&self) -> Outcome<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// A GET of `path` in HTTP/1.0, so that nothing is sent in chunks.
///
/// # Errors
/// No connection, or no answer in time.
pub async fn get(address: &str, path: &str) -> Outcome<Answer> {
    raw(address, format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await
}

/// The JSON of a GET that must be answered with 200.
///
/// # Errors
/// It is not.
pub async fn json(address: &str, path: &str) -> Outcome<Value> {
    let answer = get(address, path).await?;
    if answer.status != 200 {
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        return Err(format!("{path}: {}: {body}", answer.status).into());
    }
    answer.json()
}

/// Sends these bytes and reads until the other side closes.
///
/// # Errors
/// No connection, or it is not closed in time.
pub async fn raw(address: &str, request: &[u8]) -> Outcome<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    // It may close before it has read everything, and then both ends of this may fail.
    let _ = stream.write_all(request).await;
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(ANSWER_MAX, stream.read_to_end(&mut bytes)).await;
    let _ = read.map_err(|_| "the connection stays open")?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head, body: bytes.get(end + 4..).unwrap_or_default().to_vec() })
}

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Empty: it has none.
    pub id: String,
    /// Its kind.
    pub name: String,
    /// What it says.
    pub data: Value,
}

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    lines: BufReader<TcpStream>,
}

impl Events {
    /// Opens one, after the event `last` if there is one.
    ///
    /// # Errors
    /// It is refused: the error begins with the status.
    pub async fn open(address: &str, last: Option<&str>) -> Outcome<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let request = format!("GET /api/v1/events HTTP/1.0\r\nHost: {address}\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut events = Self { lines: BufReader::new(stream) };
        let status = events.line().await?;
        let mut line = status.clone();
        while !line.is_empty() {
            line = events.line().await?;
        }
        match status.split(' ').nth(1) {
            Some("200") => Ok(events),
            other => Err(other.unwrap_or("nothing").to_owned().into()),
        }
    }

    async fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(ANSWER_MAX, self.lines.read_line(&mut line));
        if read.await.map_err(|_| "no event comes")?? == 0 {
            return Err("the stream has ended".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// The next one.
    ///
    /// # Errors
    /// The stream has ended, or says nothing.
    pub async fn next(&mut self) -> Outcome<Event> {
        let mut event = Event { id: String::new(), name: String::new(), data: Value::Null };
        loop {
            let line = self.line().await?;
            match line.split_once(": ") {
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data)?,
                _ if line.is_empty() && !event.name.is_empty() => return Ok(event),
                _ => {}
            }
        }
    }

    /// The next one of which this is so.
    ///
    /// # Errors
    /// None comes in time.
    pub async fn until(&mut self, what: &str, is: impl Fn(&Event) -> bool) -> Outcome<Event> {
        let look = async {
            loop {
                let event = self.next().await?;
                if is(&event) {
                    return Ok(event);
                }
            }
        };
        tokio::time::timeout(crate::cluster::SETTLE_MAX, look)
            .await
            .map_err(|_| format!("no event: {what}"))?
    }
}
