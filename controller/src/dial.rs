//! Whether a broker's process is gone although it is registered: all its ports refuse connections. A timeout is no refusal.
//!
//! A dead process on a live host refuses at once; one that stands still is connected by its kernel, and a host that has vanished
//! answers nothing. Both listeners are bound before the registration and until after it, so one that refuses alone is a
//! misconfiguration, and proves nothing.

use std::io::ErrorKind;
use std::time::Duration;

use barnabas_proto::znode::BrokerNode;
use barnabas_types::BrokerImage;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

const DIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What became of a dial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialled {
    /// Somebody listens.
    Accepted,
    /// At every address the host said that nobody does.
    Refused,
    /// No answer, another failure, or no such name.
    Unclear,
}

/// Dials every address of `host:port` until one accepts.
pub(crate) async fn dial(address: &str) -> Dialled {
    let tried = timeout(DIAL_TIMEOUT, async {
        let Ok(addresses) = lookup_host(address).await else { return Dialled::Unclear };
        let (mut dialled, mut refused) = (0, 0);
        for address in addresses {
            dialled += 1;
            match TcpStream::connect(address).await {
                Ok(_) => return Dialled::Accepted,
                Err(error) => refused += usize::from(error.kind() == ErrorKind::ConnectionRefused),
            }
        }
        if dialled > 0 && refused == dialled { Dialled::Refused } else { Dialled::Unclear }
    });
    tried.await.unwrap_or(Dialled::Unclear)
}

/// Where a broker can be dialled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ports {
    pub(crate) control: String,
    kafka: String,
}

impl Ports {
    /// Whether both refuse.
    pub(crate) async fn refuse(&self) -> bool {
        tokio::join!(dial(&self.control), dial(&self.kafka)) == (Dialled::Refused, Dialled::Refused)
    }
}

impl From<&BrokerImage> for Ports {
    fn from(broker: &BrokerImage) -> Self {
        let kafka = format!("{}:{}", bracketed(&broker.host), broker.port);
        Self { control: broker.control_address.clone(), kafka }
    }
}

impl From<&BrokerNode> for Ports {
    fn from(node: &BrokerNode) -> Self {
        let kafka = format!("{}:{}", bracketed(&node.host), node.port);
        Self { control: node.control_address.clone(), kafka }
    }
}

fn bracketed(host: &str) -> String {
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    if bare_v6 { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::BrokerEpoch;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn r17_only_a_process_that_is_gone_refuses() {
        let (admin, kafka) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let address = |of: &TcpListener| of.local_addr().unwrap().to_string();
        let ports = Ports { control: address(&admin), kafka: address(&kafka) };
        // Nobody accepts, as if the process stood still: its kernel does.
        assert_eq!(dial(&ports.control).await, Dialled::Accepted);
        assert!(!ports.refuse().await);
        drop(admin);
        assert_eq!(dial(&ports.control).await, Dialled::Refused);
        assert!(!ports.refuse().await, "the other port is there");
        drop(kafka);
        assert!(ports.refuse().await);
        assert_eq!(dial("no.such.host.invalid:1").await, Dialled::Unclear);
    }

    #[test]
    fn r17_the_ports_are_those_of_the_registration() {
        let image = BrokerImage {
            epoch: BrokerEpoch(1),
            host: "::1".to_owned(),
            port: 9092,
            control_address: "[::1]:9192".to_owned(),
            rack: None,
            tail_lost: false,
            draining: false,
        };
        assert_eq!(
            Ports::from(&image),
            Ports { control: "[::1]:9192".into(), kafka: "[::1]:9092".into() }
        );
    }
}
