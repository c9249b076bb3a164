//! What this broker knows of the cluster: the controller's pushes, applied in order; served to clients and to itself.

use std::sync::{Arc, PoisonError, RwLock};

use barnabas_controller::ClusterView;
use tokio::sync::watch;

use barnabas_types::{
    BrokerId, ClusterDelta, ClusterId, ClusterImage, ControllerEpoch, TopicId, TopicName,
};

/// The newest image. Written by the control agent alone, read by everybody.
pub struct View {
    me: BrokerId,
    cluster_id: ClusterId,
    image: RwLock<Arc<ClusterImage>>,
    changes: watch::Sender<u64>,
}

impl ClusterView for View {
    fn image(&self) -> Arc<ClusterImage> {
        View::image(self)
    }

    fn me(&self) -> BrokerId {
        self.me
    }

    fn cluster_id(&self) -> ClusterId {
        self.cluster_id.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl View {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(me: BrokerId, cluster_id: ClusterId) -> Self {
        Self { me, cluster_id, image: RwLock::default(), changes: watch::Sender::new(0) }
    }

    /// The present image; cheap.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.image.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a push ([`ClusterImage::apply`]); returns the topics that are gone.
    pub fn apply(
        &self,
        controller: (BrokerId, ControllerEpoch),
        delta: &ClusterDelta,
    ) -> Vec<TopicName> {
        let mut image = ClusterImage::clone(&self.image());
        let gone = image.apply(controller, delta);
        *self.image.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(image);
        self.changes.send_modify(|version| *version += 1);
        gone
    }

    /// The topic with this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<TopicName> {
        let image = self.image();
        image
            .topics
            .iter()
            .find(|(_, topic)| topic.incarnation.topic_id == id)
            .map(|(name, _)| name.clone())
    }
}
