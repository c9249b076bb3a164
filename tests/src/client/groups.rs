//! Consumer groups as one connection sees them.

use barnabas_wire::messages::{
    FindCoordinatorRequest, JoinGroupRequest, LeaveGroupRequest, OffsetFetchRequest,
    join_group_request,
};
use bytes::Bytes;

use super::Client;
use crate::Outcome;

impl Client {
    /// Id of the broker that coordinates a group, or Kafka's error code.
    ///
    /// # Errors
    /// No answer.
    pub async fn coordinator(&mut self, group: &str) -> Outcome<Result<i32, i16>> {
        let mut request = FindCoordinatorRequest::default();
        request.key = group.into();
        let response = self.ask(2, &request).await?;
        Ok(if response.error_code == 0 { Ok(response.node_id) } else { Err(response.error_code) })
    }

    /// The address of the broker that coordinates a group, or Kafka's error code.
    ///
    /// # Errors
    /// No answer.
    pub async fn coordinator_address(&mut self, group: &str) -> Outcome<Result<String, i16>> {
        let mut request = FindCoordinatorRequest::default();
        request.key = group.into();
        let found = self.ask(2, &request).await?;
        let address = format!("{}:{}", found.host.as_str(), found.port);
        Ok(if found.error_code == 0 { Ok(address) } else { Err(found.error_code) })
    }

    /// Kafka's error code of an OffsetFetch for all that a group has committed.
    ///
    /// # Errors
    /// No answer.
    pub async fn offset_fetch(&mut self, group: &str) -> Outcome<i16> {
        let mut request = OffsetFetchRequest::default();
        request.group_id = group.into();
        request.topics = None;
        Ok(self.ask(7, &request).await?.error_code)
    }

    /// Joins a group as a new member, which then owes its SyncGroup: a connection to the coordinator, and the member's id.
    ///
    /// # Errors
    /// No answer, no coordinator, or it refuses.
    pub async fn join_group(
        addresses: &str,
        group: &str,
        session_timeout_ms: i32,
    ) -> Outcome<(Self, String)> {
        let mut find = FindCoordinatorRequest::default();
        find.key = group.into();
        let found = Self::bootstrap(addresses).await?.ask(2, &find).await?;
        if found.error_code != 0 {
            return Err(format!("no coordinator of {group}: {}", found.error_code).into());
        }
        let mut coordinator = Self::connect(&format!("{}:{}", found.host, found.port)).await?;
        let mut request = JoinGroupRequest::default();
        request.group_id = group.into();
        request.session_timeout_ms = session_timeout_ms;
        request.rebalance_timeout_ms = session_timeout_ms;
        request.protocol_type = "consumer".into();
        let mut protocol = join_group_request::JoinGroupRequestProtocol::default();
        protocol.name = "range".into();
        protocol.metadata = Bytes::from_static(b"subscription");
        request.protocols.push(protocol);
        let joined = coordinator.ask(3, &request).await?;
        match joined.error_code {
            0 => Ok((coordinator, joined.member_id.to_string())),
            code => Err(format!("{group} takes no member: {code}").into()),
        }
    }

    /// Takes a member out of its group, at the coordinator.
    ///
    /// # Errors
    /// No answer, or it is refused.
    pub async fn leave_group(&mut self, group: &str, member_id: &str) -> Outcome<()> {
        let mut request = LeaveGroupRequest::default();
        request.group_id = group.into();
        request.member_id = member_id.into();
        match self.ask(2, &request).await?.error_code {
            0 => Ok(()),
            code => Err(format!("{member_id} cannot leave {group}: {code}").into()),
        }
    }
}
