//! Addresses in configuration files: `host:port`, `PLAINTEXT://host:port`, and whether an address is loopback.

use std::fmt;
use std::net::IpAddr;

/// A host (name or address literal) and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// Name, IPv4 literal, or IPv6 literal without brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port` or `[v6]:port`; `None` if it is not one, or the port is 0.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.trim().rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if host.is_empty() || !host.chars().all(legal) {
            return None;
        }
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self { host: host.to_owned(), port })
    }

    /// Reads `PLAINTEXT://host:port`; `None` if the listener's name is another or the rest is no address.
    #[must_use]
    pub fn parse_plaintext(text: &str) -> Option<Self> {
        Self::parse(text.trim().strip_prefix("PLAINTEXT://")?)
    }

    /// Whether only this machine reaches it. A host name other than `localhost` counts as reachable from elsewhere.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Whether it is "every address of this machine", which nobody else can dial.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Where ZooKeeper is: servers and chroot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZooKeeperConnect {
    /// One or more servers.
    pub servers: Vec<HostPort>,
    /// Absolute path without a slash at its end; empty if there is none.
    pub chroot: String,
}

impl ZooKeeperConnect {
    /// Reads `host:port[,host:port]...[/chroot]`; a server without a port gets 2181. `None` if it is not that.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (servers, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let servers = servers
            .split(',')
            .map(|server| {
                HostPort::parse(server).or_else(|| HostPort::parse(&format!("{server}:2181")))
            })
            .collect::<Option<Vec<_>>>()?;
        let chroot = chroot.trim_end_matches('/');
        let part_is_legal = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.chars().all(|c| c.is_ascii_graphic())
        };
        if !chroot.is_empty() && !chroot[1..].split('/').all(part_is_legal) {
            return None;
        }
        Some(Self { servers, chroot: chroot.to_owned() })
    }
}

impl fmt::Display for ZooKeeperConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, server) in self.servers.iter().enumerate() {
            write!(f, "{}{server}", if i == 0 { "" } else { "," })?;
        }
        f.write_str(&self.chroot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for text in ["127.0.0.1:9092", "broker-1.example:1", "[::1]:65535"] {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), text);
        }
        for bad in
            ["", "host", ":1", "host:", "host:0", "host:65536", "::1:9", "a b:1", "h:x", "[::1]"]
        {
            assert_eq!(HostPort::parse(bad), None, "{bad}");
        }
        assert!(HostPort::parse_plaintext("SSL://a:1").is_none());
    }

    #[test]
    fn loopback_is_recognised() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("0.0.0.0:1", false),
            ("b:1", false),
        ] {
            assert_eq!(HostPort::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn zookeeper_connect_reads_servers_and_chroot() {
        let connect = ZooKeeperConnect::parse("a:1,b/x/y/").unwrap();
        assert_eq!(connect.to_string(), "a:1,b:2181/x/y");
        assert_eq!(connect.chroot, "/x/y");
        assert_eq!(ZooKeeperConnect::parse("a:1").unwrap().chroot, "");
        for bad in ["", "/x", "a:1,,b:2", "a:0", "a:1//x", "a:1/x/../y"] {
            assert_eq!(ZooKeeperConnect::parse(bad), None, "{bad}");
        }
    }
}
