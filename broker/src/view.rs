//! What this broker knows of the cluster: the controller's pushes, applied in order; served to clients and to itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use barnabas_controller::ClusterView;
use barnabas_proto::v1;
use barnabas_types::broker_settings::is_dynamic;
use tokio::sync::watch;

use barnabas_types::{
    BrokerId, ClusterDelta, ClusterId, ClusterImage, ControllerEpoch, Now, TopicId, TopicName,
};

use crate::clock::Clock;
use crate::config::{Shown, Source, values};
use crate::explain::Ages;
use crate::metrics::LedChanges;

/// The newest image. Written by the control agent alone, read by everybody.
pub struct View {
    me: BrokerId,
    cluster_id: ClusterId,
    /// Every setting of this broker, as its file has them.
    shown: Arc<[Shown]>,
    known: RwLock<Known>,
    changes: watch::Sender<u64>,
    clock: Clock,
    ages: Mutex<Ages>,
    /// What became of the partitions that this broker leads.
    pub led: LedChanges,
}

/// The image, and what is looked up in it on every request.
#[derive(Clone, Default)]
struct Known {
    image: Arc<ClusterImage>,
    names: Arc<HashMap<TopicId, TopicName>>,
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

    fn settings(&self, cluster_default: bool) -> Vec<v1::BrokerSetting> {
        let settings = &self.image().broker_settings;
        if cluster_default {
            let stored = settings.get(&None).into_iter().flatten();
            let one = |(name, value): (&String, &String)| v1::BrokerSetting {
                name: name.clone(),
                value: Some(value.clone()),
                source: Source::Cluster.name().to_owned(),
                read_only: false,
            };
            return stored.map(one).collect();
        }
        let one = |shown: &Shown| {
            let (source, value) = values(shown, settings, self.me).swap_remove(0);
            v1::BrokerSetting {
                name: shown.name.to_owned(),
                value,
                source: source.name().to_owned(),
                read_only: !is_dynamic(shown.name),
            }
        };
        self.shown.iter().map(one).collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl View {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(me: BrokerId, cluster_id: ClusterId, shown: Arc<[Shown]>) -> Self {
        Self {
            me,
            cluster_id,
            shown,
            known: RwLock::default(),
            changes: watch::Sender::new(0),
            clock: Clock::start(),
            ages: Mutex::default(),
            led: LedChanges::default(),
        }
    }

    /// Since when what is wrong has been so, and the present time on the same clock.
    pub fn ages(&self) -> (Ages, Now) {
        (self.ages.lock().unwrap_or_else(PoisonError::into_inner).clone(), self.clock.now())
    }

    /// The present image; cheap.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).image.clone()
    }

    /// Applies a push ([`ClusterImage::apply`]); returns the topics that are gone.
    pub fn apply(
        &self,
        controller: (BrokerId, ControllerEpoch),
        delta: &ClusterDelta,
    ) -> Vec<TopicName> {
        let before = self.image();
        let mut image = ClusterImage::clone(&before);
        let gone = image.apply(controller, delta);
        self.ages.lock().unwrap_or_else(PoisonError::into_inner).note(
            self.clock.now(),
            &before,
            &image,
            (delta, &gone),
        );
        self.led.note(self.me, &before, delta);
        let ids =
            image.topics.iter().map(|(name, topic)| (topic.incarnation.topic_id, name.clone()));
        let known = Known { names: Arc::new(ids.collect()), image: Arc::new(image) };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        self.changes.send_modify(|version| *version += 1);
        gone
    }

    /// The topic with this id; the zero id is nobody's.
    pub fn topic_by_id(&self, id: TopicId) -> Option<TopicName> {
        let names = self.known.read().unwrap_or_else(PoisonError::into_inner).names.clone();
        names.get(&id).filter(|_| id != TopicId::default()).cloned()
    }
}
