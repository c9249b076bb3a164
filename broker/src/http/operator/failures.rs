//! How often a wrong token came from where, so that guessing ends after a few: counted by address, in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Wrong tokens that one address may say in [`WINDOW`].
const FAILURES_MAX: u32 = 10;
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered; those that come when it is full share one count.
const ADDRESSES_MAX: usize = 1_024;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Failures {
    by_address: HashMap<IpAddr, Count>,
    others: Option<Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since: Instant,
    times: u32,
}

impl Count {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

/// Whoever has one address of IPv6 has its whole subnet.
fn subnet(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() >> 64 << 64).to_be_bytes()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Failures {
    /// Whether a token from there is looked at.
    pub(super) fn admits(&self, now: Instant, from: IpAddr) -> bool {
        let count = match self.by_address.get(&subnet(from)) {
            Some(count) => Some(count),
            None if self.by_address.len() >= ADDRESSES_MAX => self.others.as_ref(),
            None => None,
        };
        count.is_none_or(|count| count.is_over(now) || count.times < FAILURES_MAX)
    }

    /// A wrong one came from there.
    pub(super) fn failed(&mut self, now: Instant, from: IpAddr) {
        let from = subnet(from);
        if self.by_address.len() >= ADDRESSES_MAX {
            self.by_address.retain(|_, count| !count.is_over(now));
        }
        let count = if self.by_address.len() < ADDRESSES_MAX || self.by_address.contains_key(&from)
        {
            self.by_address.entry(from).or_insert(Count { since: now, times: 0 })
        } else {
            self.others.get_or_insert(Count { since: now, times: 0 })
        };
        if count.is_over(now) {
            *count = Count { since: now, times: 0 };
        }
        count.times = count.times.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_without_looking_follows_ten_wrong_tokens_and_many_addresses_share_a_count() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let own: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..FAILURES_MAX {
            assert!(failures.admits(start, own));
            failures.failed(start, own);
        }
        assert!(!failures.admits(start, own));
        assert!(!failures.admits(start, "::ffff:192.0.2.1".parse().unwrap()), "the same address");
        assert!(failures.admits(start + WINDOW, own));
        failures.failed(start + WINDOW, own);
        assert!(failures.admits(start + WINDOW, own), "it begins anew");

        let mut failures = Failures::default();
        for n in 0..10_000_u32 {
            failures.failed(start, IpAddr::from(n.to_be_bytes()));
        }
        assert_eq!(failures.by_address.len(), ADDRESSES_MAX);
        assert!(!failures.admits(start, own), "one of too many");
        assert!(failures.admits(start + WINDOW, own));
        failures.failed(start + WINDOW, own);
        assert_eq!(failures.by_address.len(), 1, "those of before are forgotten");

        let mut failures = Failures::default();
        for n in 0..FAILURES_MAX {
            failures.failed(start, format!("2001:db8:1:2::{n}").parse().unwrap());
        }
        assert!(!failures.admits(start, "2001:db8:1:2:ffff::1".parse().unwrap()), "one subnet");
        assert!(failures.admits(start, "2001:db8:1:3::1".parse().unwrap()));
    }
}
