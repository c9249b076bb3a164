//! Consumer groups as one connection sees them.

use barnabas_wire::messages::FindCoordinatorRequest;

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
}
