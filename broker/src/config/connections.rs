//! The keys that limit connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::error::ConfigError;
use super::settings::Settings;
use crate::connection::ConnectionLimits;

const OVERRIDES: &str = "max.connections.per.ip.overrides";

pub(super) fn limits(s: &Settings) -> Result<ConnectionLimits, ConfigError> {
    let queued_max_bytes = s.number("queued.max.request.bytes", 1 << 20, 1 << 40)?;
    let largest: usize = s.number("socket.request.max.bytes", 1024, 1 << 30)?;
    if queued_max_bytes < largest {
        let (key, other) = ("queued.max.request.bytes", "socket.request.max.bytes");
        let reason = format!("it must be at least '{other}', {largest}");
        return Err(s.contradicts(key, other, queued_max_bytes, &reason));
    }
    let idle_max: u64 = s.number("connections.max.idle.ms", 100, i32::MAX.into())?;
    Ok(ConnectionLimits {
        max: s.number("max.connections", 1, 10_000_000)?,
        per_ip_max: s.number("max.connections.per.ip", 1, i32::MAX.into())?,
        per_ip_overrides: overrides(s)?,
        idle_max: Duration::from_millis(idle_max),
        queued_max_bytes,
    })
}

/// `address:number`, comma-separated; an IPv6 address in brackets. Names are not looked up: what they stand for may change.
fn overrides(s: &Settings) -> Result<BTreeMap<IpAddr, usize>, ConfigError> {
    let text = s.raw(OVERRIDES)?.unwrap_or_default();
    let mut found = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let parsed = part.rsplit_once(':').and_then(|(address, max)| {
            let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let address: IpAddr = bare.unwrap_or(address).parse().ok()?;
            // Without brackets the last part of an address could be taken for the number.
            let clear = bare.is_some() || address.is_ipv4();
            Some((address.to_canonical(), max.trim().parse().ok()?)).filter(|_| clear)
        });
        let Some((address, max)) = parsed else { return Err(s.bad(OVERRIDES)) };
        if found.insert(address, max).is_some() {
            let reason = format!("{address} is named twice; keep one");
            return Err(s.not_served(OVERRIDES, &text, &reason));
        }
    }
    Ok(found)
}
