//! Which names of this machine a request may use: a page in somebody's browser must not read this through a name of its own that
//! points here (DNS rebinding).

use std::net::IpAddr;

use hyper::header::HeaderValue;

use crate::config::BrokerConfig;

/// Names that are answered, besides `localhost` and every address: a browser that was led here says the name by which it was led,
/// never an address.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Those of the listeners, those that others are told, and `http.allowed.hosts`.
    #[must_use]
    pub fn of(config: &BrokerConfig) -> Self {
        let own =
            [&config.http_listener, &config.advertised_listener, &config.advertised_admin_listener];
        let own = own.into_iter().map(|address| address.host.clone());
        Self(own.chain(config.http_allowed_hosts.iter().cloned()).collect())
    }

    /// Whether a request with this `Host` is answered. HTTP/1.0 names none.
    pub(super) fn admit(&self, host: Option<&HeaderValue>) -> bool {
        let Some(host) = host else { return true };
        let Ok(host) = host.to_str() else { return false };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.0.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_and_addresses_are_admitted_and_a_strangers_name_is_not() {
        let hosts = Hosts(vec!["Broker-1.example".to_owned()]);
        for (host, admitted) in [
            ("localhost", true),
            ("LocalHost:9292", true),
            ("127.0.0.1:9292", true),
            ("10.1.2.3", true),
            ("[::1]:9292", true),
            ("[::1", true),
            ("broker-1.example:9292", true),
            ("broker-1.example.", true),
            ("evil.example", false),
            ("broker-1.example.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
            (":9292", false),
        ] {
            let value = HeaderValue::from_str(host).unwrap();
            assert_eq!(hosts.admit(Some(&value)), admitted, "{host:?}");
        }
        assert!(hosts.admit(None), "HTTP/1.0");
        assert!(!hosts.admit(Some(&HeaderValue::from_bytes(b"\xff").unwrap())));
    }
}
