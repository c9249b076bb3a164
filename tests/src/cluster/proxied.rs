//! The three proxies of one broker: before its Kafka listener, before its gRPC listener, and between it and ZooKeeper.

use std::net::{Ipv4Addr, SocketAddr};

use super::broker::Ports;
use crate::Outcome;
use crate::proxy::{Link, Proxy};

/// All links of one broker.
#[derive(Debug)]
pub struct Proxies {
    /// Clients and followers to this broker.
    pub kafka: Proxy,
    /// The controller and other brokers to this broker's gRPC services.
    pub admin: Proxy,
    /// This broker to ZooKeeper.
    pub zookeeper: Proxy,
}

impl Proxies {
    pub(super) async fn start(ports: &Ports, zookeeper: &str) -> Outcome<Self> {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self {
            kafka: Proxy::start(local(ports.kafka)).await?,
            admin: Proxy::start(local(ports.admin)).await?,
            zookeeper: Proxy::start(zookeeper.parse()?).await?,
        })
    }

    pub(super) fn configuration(&self) -> String {
        format!(
            "advertised.listeners: PLAINTEXT://{}\nadvertised.admin.listener: {}\n",
            self.kafka.address(),
            self.admin.address()
        )
    }

    /// Sets all three at once: the broker as seen by everybody else.
    pub fn set(&self, link: Link) {
        self.kafka.set(link);
        self.admin.set(link);
        self.zookeeper.set(link);
    }
}
