//! A plain connection to an address that somebody wrote down: each of a name's addresses is tried.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use barnabas_broker::config::HostPort;

/// A connection to the first of a name's addresses where somebody listens; `wait_max` is for each of them.
///
/// # Errors
/// Why the last of them refused, or why there is none.
pub(super) fn connect(address: &HostPort, wait_max: Duration) -> Result<TcpStream, String> {
    let mut refused = "the name has no address".to_owned();
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    for target in found.map_err(|error| error.to_string())? {
        match TcpStream::connect_timeout(&target, wait_max) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error.to_string(),
        }
    }
    Err(refused)
}
