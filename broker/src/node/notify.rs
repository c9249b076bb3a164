//! What systemd is told (`Type=notify`): that the broker is registered, what it does, and that it stops. Silent without `NOTIFY_SOCKET`.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// What a stop takes beside the drain, at most: connections, flushes, the session.
const STOP_BESIDE: Duration = Duration::from_secs(60);

/// It is registered, and serves or recovers.
pub(super) fn ready() {
    tell("READY=1\nSTATUS=registered");
}

/// It has begun to stop, and may be emptied for so long before.
pub(super) fn stopping(drain_max: Duration) {
    let micros = (drain_max + STOP_BESIDE).as_micros();
    tell(&format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={micros}"));
}

fn tell(text: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Some(socket) = socket.to_str() else { return };
    if let Err(error) = send(socket, text) {
        tracing::warn!(%error, "systemd is not told: {}", text.lines().next().unwrap_or_default());
    }
}

/// One datagram. A name that begins with `@` is in the abstract namespace of Linux.
fn send(socket: &str, text: &str) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return sender.send_to_addr(text.as_bytes(), &address).map(|_| ());
    }
    sender.send_to(text.as_bytes(), socket).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_datagram_comes_through_either_kind_of_socket() {
        let path = std::env::temp_dir().join(format!("barnabas-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap(), "READY=1").unwrap();
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        std::fs::remove_file(&path).unwrap();
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt as _;
            let name = format!("barnabas-notify-{}", std::process::id());
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
            let listener = UnixDatagram::bind_addr(&address).unwrap();
            send(&format!("@{name}"), "STOPPING=1").unwrap();
            let length = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"STOPPING=1");
        }
        assert!(send("/nowhere/socket", "READY=1").is_err());
    }
}
