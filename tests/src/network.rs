//! A network of its own for brokers: each in a namespace behind a bridge, so that packets can vanish, both ways and without a word, between
//! two of them, or between one and all the others. Linux, and root.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::Outcome;

/// What nobody's interface answers to.
const NOBODY: &str = "02:00:00:00:00:ff";
/// Lets a namespace drop what does not come from where an answer would go.
const STRICT: &str = "echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter";

/// The bridge and the namespaces; its end removes them.
#[derive(Debug)]
pub struct Network {
    /// Short: names of interfaces have at most 15 bytes.
    name: String,
    third: u8,
    brokers: i32,
}

impl Network {
    /// Makes it for brokers 1 to `brokers`.
    ///
    /// # Errors
    /// This system or this user cannot.
    pub fn create(brokers: i32) -> Outcome<Self> {
        let process = std::process::id() % 100_000;
        let third = u8::try_from(process % 250)?;
        let network = Self { name: format!("bt{process}"), third, brokers };
        let bridge = network.name.clone();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        for own in [network.outside(), network.zookeeper()] {
            ip(&["address", "add", &format!("{own}/24"), "dev", &bridge])?;
        }
        ip(&["link", "set", &bridge, "up"])?;
        for id in 1..=brokers {
            let (space, port) = (network.space(id), network.port(id));
            ip(&["netns", "add", &space])?;
            ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
            ip(&["link", "set", &port, "master", &bridge, "up"])?;
            let address = format!("{}/24", network.address(id));
            ip(&["-n", &space, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            // What comes from where nothing would be sent to is dropped ([`Network::cut_zookeeper`]).
            ip(&["netns", "exec", &space, "sh", "-c", STRICT])?;
        }
        Ok(network)
    }

    /// Where clients are.
    fn outside(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.third, 1)
    }

    /// Where ZooKeeper is.
    #[must_use]
    pub fn zookeeper(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.third, 2)
    }

    /// Where a broker is.
    #[must_use]
    pub fn address(&self, id: i32) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.third, 10 + u8::try_from(id).unwrap_or(0))
    }

    /// The namespace of a broker.
    #[must_use]
    pub fn space(&self, id: i32) -> String {
        format!("{}-{id}", self.name)
    }

    fn port(&self, id: i32) -> String {
        format!("{}p{id}", self.name)
    }

    /// From now on no packet of this broker reaches anybody, and none reaches it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn vanish(&self, id: i32) -> Outcome<()> {
        // Down, not only off the bridge: a port of its own would go on to be answered by the system that it belongs to.
        ip(&["link", "set", &self.port(id), "down"])
    }

    /// It is there again.
    ///
    /// # Errors
    /// The system refuses.
    pub fn appear(&self, id: i32) -> Outcome<()> {
        ip(&["link", "set", &self.port(id), "up"])
    }

    /// From now on no packet of either of two brokers reaches the other.
    ///
    /// # Errors
    /// The system refuses.
    pub fn cut(&self, one: i32, other: i32) -> Outcome<()> {
        self.misdirect(one, self.address(other))?;
        self.misdirect(other, self.address(one))
    }

    /// They reach one another again.
    ///
    /// # Errors
    /// The system refuses.
    pub fn mend(&self, one: i32, other: i32) -> Outcome<()> {
        self.direct(one, self.address(other))?;
        self.direct(other, self.address(one))
    }

    /// From now on no packet of this broker reaches ZooKeeper, and none of ZooKeeper's reaches it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn cut_zookeeper(&self, id: i32) -> Outcome<()> {
        // Not by a wrong neighbour at the other end: clients live there, too.
        let (own, to) = (self.address(id).to_string(), format!("{}/32", self.zookeeper()));
        ip(&["-n", &self.space(id), "route", "add", &to, "dev", "lo", "src", &own])
    }

    /// It reaches ZooKeeper again.
    ///
    /// # Errors
    /// The system refuses.
    pub fn mend_zookeeper(&self, id: i32) -> Outcome<()> {
        ip(&[
            "-n",
            &self.space(id),
            "route",
            "del",
            &format!("{}/32", self.zookeeper()),
            "dev",
            "lo",
        ])
    }

    fn misdirect(&self, from: i32, to: Ipv4Addr) -> Outcome<()> {
        let (space, to) = (self.space(from), to.to_string());
        ip(&[
            "-n",
            &space,
            "neigh",
            "replace",
            &to,
            "lladdr",
            NOBODY,
            "dev",
            "eth0",
            "nud",
            "permanent",
        ])
    }

    fn direct(&self, from: i32, to: Ipv4Addr) -> Outcome<()> {
        ip(&["-n", &self.space(from), "neigh", "del", &to.to_string(), "dev", "eth0"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What was never made cannot be removed.
        for id in 1..=self.brokers {
            let _ = ip(&["netns", "del", &self.space(id)]);
            let _ = ip(&["link", "del", &self.port(id)]);
        }
        let _ = ip(&["link", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Outcome<()> {
    let output = Command::new("ip").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
