//! `barnabas health`: whether the broker on this machine lives or serves, for health checks where there is no other HTTP client.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use barnabas_broker::config::{BrokerConfig, HostPort};
use clap::Args;
use serde_json::Value;

use super::CliError;
use super::ask::printable;
use super::dial::connect;
use super::table::print_json;

/// Longest wait for the connection, and for the answer.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// The broker's http.listener.
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9292",
        conflicts_with = "config"
    )]
    http: String,
    /// Take the address from the broker's file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask only whether the process answers, not whether it serves.
    #[arg(long)]
    live: bool,
    /// Print all that it says.
    #[arg(long)]
    json: bool,
}

impl HealthArgs {
    /// Exit codes: 0 yes, 3 it does not answer, 4 it does not serve (yet).
    pub(super) fn run(self) -> Result<(), CliError> {
        let address = match &self.config {
            Some(file) => here(
                BrokerConfig::load(file)
                    .map_err(|e| CliError::Refused(e.to_string()))?
                    .http_listener,
            ),
            None => HostPort::parse(&self.http).ok_or_else(|| {
                CliError::Usage(format!("'{}' is no address; --http expects HOST:PORT", self.http))
            })?,
        };
        let path = if self.live { "/health/live" } else { "/health/ready" };
        let (code, said) = get(&address, path).map_err(|why| {
            CliError::Unreachable(format!(
                "no broker tells of its health at {address} ({why}); start it, or name its http.listener with --http"
            ))
        })?;
        if self.json {
            print_json(&said);
        }
        let status = printable(said["status"].as_str().unwrap_or("no word of it"));
        match code {
            200 if self.json => Ok(()),
            200 => {
                say!("{status}");
                Ok(())
            }
            _ => Err(CliError::NotNow(format!("the broker at {address} is not ready: {status}"))),
        }
    }
}

/// Where this machine reaches a listener.
fn here(listener: HostPort) -> HostPort {
    match listener.is_wildcard() {
        true => HostPort { host: "127.0.0.1".to_owned(), port: listener.port },
        false => listener,
    }
}

/// The status and the JSON of an answer.
fn get(address: &HostPort, path: &str) -> Result<(u16, Value), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = connect(address, WAIT_MAX)?;
    stream.set_read_timeout(Some(WAIT_MAX)).map_err(text)?;
    stream.set_write_timeout(Some(WAIT_MAX)).map_err(text)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(text)?;
    let answer = String::from_utf8_lossy(&answer);
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    let json = body.and_then(|body| serde_json::from_str(body).ok());
    code.zip(json).ok_or_else(|| "what listens there is no broker's http.listener".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_answer_decides_the_exit_code() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ready\"}", None),
            ("HTTP/1.1 503 x\r\n\r\n{\"status\":\"recovering\"}", Some("recovering")),
            ("hello", Some("no broker")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let args = HealthArgs { http: address, config: None, live: false, json: false };
            let said = args.run().map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(said, Ok(())),
                Some(part) => assert!(said.as_ref().unwrap_err().contains(part), "{said:?}"),
            }
            server.join().unwrap();
        }
    }
}
