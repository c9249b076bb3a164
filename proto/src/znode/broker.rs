//! `/brokers/ids/N`: Kafka's registration (version 5) with one more object for what Kafka does not know.

use barnabas_types::{BrokerEpoch, BrokerId, BrokerImage, DirectoryId};
use serde_json::json;

use super::json::{Fields, ZnodeError};
use super::paths;

/// What a broker says of itself when it registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerNode {
    /// Advertised host of the Kafka listener.
    pub host: String,
    /// Advertised port of the Kafka listener.
    pub port: u16,
    /// `host:port` of the broker's gRPC services.
    pub control_address: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Names the log directory; tells the own earlier incarnation from a stranger.
    pub directory_id: DirectoryId,
    /// The tail of the logs may be lost (R6, R7).
    pub tail_lost: bool,
    /// The broker is being emptied (R25). A new registration never says so.
    pub draining: bool,
    /// When it registered, milliseconds since 1970.
    pub timestamp_ms: u64,
}

impl BrokerNode {
    /// The node's content.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let bracketed = self.host.contains(':') && !self.host.starts_with('[');
        let host = if bracketed { format!("[{}]", self.host) } else { self.host.clone() };
        let mut node = json!({
            "version": 5,
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [format!("PLAINTEXT://{host}:{}", self.port)],
            "host": self.host,
            "port": self.port,
            "jmx_port": -1,
            "timestamp": self.timestamp_ms.to_string(),
            "features": {},
            "barnabas": {
                "control": self.control_address,
                "directory_id": self.directory_id.to_string(),
                "tail_lost": self.tail_lost,
                "draining": self.draining,
            },
        });
        if let (Some(rack), Some(object)) = (&self.rack, node.as_object_mut()) {
            object.insert("rack".into(), json!(rack));
        }
        node.to_string().into_bytes()
    }

    /// Reads the registration of broker `id`.
    ///
    /// # Errors
    /// [`ZnodeError`] that names the field; also for a registration by Kafka itself, which has no `barnabas` object.
    pub fn parse(id: BrokerId, data: &[u8]) -> Result<Self, ZnodeError> {
        let path = paths::broker(id);
        let fields = Fields::parse(&path, data)?;
        let own = fields.inner("barnabas", "barnabas.")?;
        let directory_id = DirectoryId::parse(own.text("directory_id")?)
            .ok_or_else(|| own.error("directory_id", "not 22 characters of URL-safe base64"))?;
        let flag = |field: &str| match own.optional(field) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| own.error(field, "not true or false")),
        };
        let rack = match fields.optional("rack") {
            None => None,
            Some(_) => Some(fields.text("rack")?.to_owned()),
        };
        Ok(Self {
            host: host(&fields, "host")?,
            port: fields.integer("port")?,
            control_address: host(&own, "control")?,
            rack,
            directory_id,
            tail_lost: flag("tail_lost")?,
            draining: flag("draining")?,
            timestamp_ms: fields.text("timestamp").ok().and_then(|t| t.parse().ok()).unwrap_or(0),
        })
    }

    /// The broker as the cluster sees it, under the czxid of this node.
    #[must_use]
    pub fn image(&self, epoch: BrokerEpoch) -> BrokerImage {
        BrokerImage {
            epoch,
            host: self.host.clone(),
            port: self.port,
            control_address: self.control_address.clone(),
            rack: self.rack.clone(),
            tail_lost: self.tail_lost,
            draining: self.draining,
        }
    }
}

fn host(fields: &Fields<'_>, field: &str) -> Result<String, ZnodeError> {
    const LENGTH_MAX: usize = 300;
    let text = fields.text(field)?;
    if text.is_empty() || text.len() > LENGTH_MAX || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(fields.error(field, "not 1 to 300 visible ASCII characters"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> BrokerNode {
        BrokerNode {
            host: "127.0.0.1".into(),
            port: 9092,
            control_address: "127.0.0.1:9192".into(),
            rack: Some("a".into()),
            directory_id: DirectoryId([5; 16]),
            tail_lost: true,
            draining: true,
            timestamp_ms: 12,
        }
    }

    #[test]
    fn registration_reads_back_as_written() {
        assert_eq!(BrokerNode::parse(BrokerId(1), &node().write()), Ok(node()));
        let without = BrokerNode { rack: None, tail_lost: false, draining: false, ..node() };
        assert_eq!(BrokerNode::parse(BrokerId(1), &without.write()), Ok(without));
    }

    #[test]
    fn kafkas_tools_find_their_fields() {
        let value: serde_json::Value = serde_json::from_slice(&node().write()).unwrap();
        assert_eq!(value["endpoints"][0], "PLAINTEXT://127.0.0.1:9092");
        assert_eq!(value["version"], 5);
        let six = BrokerNode { host: "::1".into(), ..node() };
        let value: serde_json::Value = serde_json::from_slice(&six.write()).unwrap();
        assert_eq!(value["endpoints"][0], "PLAINTEXT://[::1]:9092");
    }

    #[test]
    fn nonsense_is_refused_with_path_and_field() {
        let change = |field: &str, value: serde_json::Value| {
            let mut json: serde_json::Value = serde_json::from_slice(&node().write()).unwrap();
            json[field] = value;
            BrokerNode::parse(BrokerId(7), json.to_string().as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(
            change("port", json!(70000)),
            "ZooKeeper node /brokers/ids/7: port: 70000 is out of range"
        );
        assert_eq!(
            change("barnabas", json!(null)),
            "ZooKeeper node /brokers/ids/7: barnabas: missing"
        );
        assert_eq!(
            change("barnabas", json!({"directory_id": "x"})),
            "ZooKeeper node /brokers/ids/7: barnabas.directory_id: not 22 characters of URL-safe base64"
        );
        assert!(change("host", json!("a b")).contains("host"));
        assert!(change("rack", json!(4)).contains("rack"));
    }
}
