//! `/controller`, `/controller_epoch` and `/cluster/id`.

use barnabas_types::{BrokerId, ClusterId, ControllerEpoch};
use serde_json::{Value, json};

use super::json::{Fields, ZnodeError, plain_number};
use super::paths;

/// What `/controller` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerNode {
    /// Who wrote it. Information only: who owns the node is decided by the session.
    pub broker: BrokerId,
    /// When it was elected, milliseconds since 1970.
    pub timestamp_ms: u64,
}

impl ControllerNode {
    /// The node's content.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        json!({"version": 1, "brokerid": self.broker.0, "timestamp": self.timestamp_ms.to_string()})
            .to_string()
            .into_bytes()
    }

    /// Reads the node's content.
    ///
    /// # Errors
    /// [`ZnodeError`] if there is no legal broker id in it. The timestamp is 0 if it cannot be read.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(paths::CONTROLLER, data)?;
        let broker: i32 = fields.integer("brokerid")?;
        if broker < 0 {
            return Err(fields.error("brokerid", format!("{broker} is negative")));
        }
        let timestamp_ms = fields.text("timestamp").ok().and_then(|t| t.parse().ok()).unwrap_or(0);
        Ok(Self { broker: BrokerId(broker), timestamp_ms })
    }
}

/// Content of `/controller_epoch`.
#[must_use]
pub fn write_controller_epoch(epoch: ControllerEpoch) -> Vec<u8> {
    epoch.to_string().into_bytes()
}

/// Reads `/controller_epoch`.
///
/// # Errors
/// [`ZnodeError`] if it is no number of 0 or more.
pub fn parse_controller_epoch(data: &[u8]) -> Result<ControllerEpoch, ZnodeError> {
    plain_number(paths::CONTROLLER_EPOCH, data).map(ControllerEpoch)
}

/// Content of `/cluster/id`.
#[must_use]
pub fn write_cluster_id(id: &ClusterId) -> Vec<u8> {
    json!({"version": "1", "id": id.0}).to_string().into_bytes()
}

/// A field of our own in `/cluster/id`: the last restoration of what ZooKeeper holds.
const RESTORED: &str = "restored";

/// Content of `/cluster/id` after a restoration, which 1 to 64 visible ASCII characters name.
#[must_use]
pub fn write_restored_cluster_id(id: &ClusterId, restored: &str) -> Vec<u8> {
    json!({"version": "1", "id": id.0, RESTORED: restored}).to_string().into_bytes()
}

/// The last restoration that `/cluster/id` names; `None` if nothing was ever restored.
///
/// # Errors
/// [`ZnodeError`] if it is not 1 to 64 visible ASCII characters.
pub fn parse_restored(data: &[u8]) -> Result<Option<String>, ZnodeError> {
    let fields = Fields::parse(paths::CLUSTER_ID, data)?;
    if fields.optional(RESTORED).is_none() {
        return Ok(None);
    }
    let restored = fields.text(RESTORED)?;
    if restored.is_empty() || restored.len() > 64 || !restored.bytes().all(|b| b.is_ascii_graphic())
    {
        return Err(fields.error(RESTORED, "not 1 to 64 visible ASCII characters"));
    }
    Ok(Some(restored.to_owned()))
}

/// The newest version of `/cluster/id` that is read; it stands for the format of everything in ZooKeeper.
const CLUSTER_VERSION_MAX: u64 = 1;

/// Reads `/cluster/id`.
///
/// # Errors
/// [`ZnodeError`] if there is no id of 1 to 64 visible ASCII characters in it, or if it is of a newer version.
pub fn parse_cluster_id(data: &[u8]) -> Result<ClusterId, ZnodeError> {
    const LENGTH_MAX: usize = 64;
    let fields = Fields::parse(paths::CLUSTER_ID, data)?;
    // Kafka writes it as text.
    let version = match fields.optional("version") {
        Some(Value::String(text)) => text.parse().ok(),
        Some(number) => number.as_u64(),
        None => Some(CLUSTER_VERSION_MAX),
    };
    if version.is_none_or(|version| version > CLUSTER_VERSION_MAX) {
        let reason = format!(
            "this version of barnabas knows {CLUSTER_VERSION_MAX} at most: a newer one has used this cluster; start that one"
        );
        return Err(fields.error("version", reason));
    }
    let id = fields.text("id")?;
    if id.is_empty() || id.len() > LENGTH_MAX || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(fields.error("id", "not 1 to 64 visible ASCII characters"));
    }
    Ok(ClusterId(id.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_of_a_newer_version_is_refused() {
        for old in [r#"{"version":1,"id":"x"}"#, r#"{"id":"x"}"#] {
            assert!(parse_cluster_id(old.as_bytes()).is_ok(), "{old}");
        }
        for newer in [r#"{"version":"2","id":"x"}"#, r#"{"version":2,"id":"x"}"#] {
            let said = parse_cluster_id(newer.as_bytes()).unwrap_err().to_string();
            assert!(said.contains("newer"), "{said}");
        }
    }

    #[test]
    fn nodes_read_back_as_written() {
        let node = ControllerNode { broker: BrokerId(3), timestamp_ms: 1_700_000_000_000 };
        assert_eq!(ControllerNode::parse(&node.write()), Ok(node));
        assert_eq!(
            parse_controller_epoch(&write_controller_epoch(ControllerEpoch(9))),
            Ok(ControllerEpoch(9))
        );
        let id = ClusterId::from_bytes([3; 16]);
        assert_eq!(parse_cluster_id(&write_cluster_id(&id)), Ok(id));
    }

    #[test]
    fn a_restoration_is_named_beside_the_id() {
        let id = ClusterId::from_bytes([3; 16]);
        let node = write_restored_cluster_id(&id, "1-a");
        assert_eq!(parse_cluster_id(&node), Ok(id.clone()));
        assert_eq!(parse_restored(&node), Ok(Some("1-a".to_owned())));
        assert_eq!(parse_restored(&write_cluster_id(&id)), Ok(None));
        assert!(parse_restored(&write_restored_cluster_id(&id, "a\nb")).is_err());
    }

    #[test]
    fn kafkas_own_nodes_are_read() {
        let kafka =
            br#"{"version":2,"brokerid":1,"timestamp":"1650000000000","kraftControllerEpoch":-1}"#;
        assert_eq!(ControllerNode::parse(kafka).unwrap().broker, BrokerId(1));
        assert_eq!(
            parse_cluster_id(br#"{"version":"1","id":"6wAOhKSrRZ-wAOhKSrRZgQ"}"#).unwrap().0.len(),
            22
        );
    }

    #[test]
    fn nonsense_is_refused_with_path_and_field() {
        let error = ControllerNode::parse(br#"{"brokerid":-4}"#).unwrap_err();
        assert_eq!(error.to_string(), "ZooKeeper node /controller: brokerid: -4 is negative");
        assert!(parse_controller_epoch(b"-1").is_err());
        assert!(parse_controller_epoch(b"99999999999").is_err());
        assert!(parse_controller_epoch(b"\xff").is_err());
        assert!(parse_cluster_id(br#"{"id":"a\nb"}"#).is_err());
        assert!(parse_cluster_id(b"[]").is_err());
    }
}
