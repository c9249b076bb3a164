//! Producer ids out of blocks that are taken from ZooKeeper: unique in the cluster, none is given twice.

use std::ops::Range;

use barnabas_controller::ControllerClient;
use barnabas_types::Condition;
use tokio::sync::Mutex;

/// The rest of the present block. The mutex is held while a new block is asked for, so that one request asks and the others
/// wait for it; it is tokio's for that reason.
#[derive(Default)]
pub struct ProducerIds {
    block: Mutex<Range<i64>>,
}

impl ProducerIds {
    /// The next id.
    ///
    /// # Errors
    /// ZooKeeper cannot be reached.
    pub async fn next(&self, controller: &ControllerClient) -> Result<i64, Condition> {
        let mut block = self.block.lock().await;
        if block.is_empty() {
            *block = controller.producer_ids().await?;
        }
        let id = block.start;
        block.start += 1;
        Ok(id)
    }
}
