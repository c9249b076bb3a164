//! Replicas that cannot be served: what is done when a log or a directory fails, and the way back.
//!
//! A replica whose log could not be opened or has failed is told to the controller, which treats it as one that is gone: its
//! leadership moves, it leaves the ISR. Opening it is tried again and again, ever more seldom, but never
//! - in the leader epoch in which it led when it failed: an epoch has one leader, in one life;
//! - after a failed sync before the controller has pushed to a new registration that says so (R38): the log then ends below
//!   what it has reported, and a state that was pushed before takes it for whole.
//!
//! One that the disk does not give back when it is read is not opened again before the broker restarts.
//!
//! A directory that fails a small write of its own, or does not give it back, is offline until the broker restarts, and with it what it holds.

use std::sync::Arc;

use barnabas_types::{
    BrokerEpoch, BrokerId, Incarnation, LeaderEpoch, Now, Partition, PartitionEpoch, TopicImage,
    TopicPartition,
};

use super::Agent;
use crate::partition::{Aftermath, FailureKind, Hosted, LogFailure};
use crate::storage::{Directory, OpenError};

/// First and longest wait before a failed replica is opened again.
const RETRY_MS: (u64, u64) = (500, 60_000);

/// A replica that cannot be served now.
#[derive(Debug)]
pub(super) struct Failed {
    incarnation: Incarnation,
    /// What was logged.
    text: String,
    attempts: u32,
    /// `None`: not before the broker restarts.
    retry_at: Option<Now>,
    /// The epoch in which it led when it failed.
    led: Option<LeaderEpoch>,
    /// R38: only under a later broker epoch than this, registered with a lost tail.
    registered_anew: Option<BrokerEpoch>,
}

impl Failed {
    /// Whether it is a replica of this life of its topic, or of an earlier one, which is over then.
    pub(super) fn is_of_or_before(&self, incarnation: Incarnation) -> bool {
        self.incarnation <= incarnation
    }

    /// Whether the state that holds now and the registration let it be opened. `tail_lost_under`: the present broker epoch, if
    /// the newest push was meant for it and shows it with a lost tail.
    pub(super) fn may_open(
        &self,
        topic: &TopicImage,
        partition: &Partition,
        me: BrokerId,
        tail_lost_under: Option<BrokerEpoch>,
    ) -> bool {
        if topic.incarnation != self.incarnation {
            // Another life, another log.
            return true;
        }
        let state = &partition.state;
        let leads_on =
            state.leader == Some(me) && self.led.is_some_and(|led| state.leader_epoch <= led);
        self.retry_at.is_some()
            && !leads_on
            && self.registered_anew.is_none_or(|old| tail_lost_under.is_some_and(|now| now > old))
    }
}

impl Agent {
    pub(super) fn not_opened(
        &mut self,
        tp: TopicPartition,
        incarnation: Incarnation,
        leader_epoch: LeaderEpoch,
        error: &OpenError,
    ) {
        let text = error.to_string();
        let known = self.failed.remove(&tp).filter(|failed| failed.incarnation == incarnation);
        let attempts = known.as_ref().map_or(0, |failed| failed.attempts + 1);
        if known.as_ref().is_none_or(|failed| failed.text != text) {
            let (topic, partition) = (&tp.topic, tp.partition);
            tracing::error!(target: "state_change", %topic, partition, %leader_epoch, %error, "the log cannot be opened; this replica is offline, and opening it is tried again and again");
        }
        let (led, registered_anew) =
            known.map_or((None, None), |failed| (failed.led, failed.registered_anew));
        let retry_at = Some(self.retry_at(attempts));
        let failed = Failed { incarnation, text, attempts, retry_at, led, registered_anew };
        self.failed.insert(tp, failed);
    }

    /// Its log ends below what was flushed or committed (R6): it is served only under a registration that says so. The mark is
    /// durable in its directory, and the next opening takes the log as it is.
    pub(super) fn came_back_shorter(&mut self, tp: TopicPartition, incarnation: Incarnation) {
        let failed = Failed {
            incarnation,
            text: "its log ends below what was flushed or committed".to_owned(),
            attempts: 0,
            retry_at: Some(self.retry_at(0)),
            led: None,
            registered_anew: self.broker_epoch,
        };
        self.failed.insert(tp, failed);
    }

    fn retry_at(&self, attempts: u32) -> Now {
        let (first, longest) = RETRY_MS;
        Now(self.node.now().0 + (first << attempts.min(16)).min(longest))
    }

    /// When something may be opened again.
    pub(super) fn next_retry(&self) -> Option<Now> {
        self.failed.values().filter_map(|failed| failed.retry_at).min()
    }

    /// Everything that may be opened is due at once.
    pub(super) fn retry_now(&mut self) {
        let now = self.node.now();
        for failed in self.failed.values_mut().filter(|failed| failed.retry_at.is_some()) {
            failed.retry_at = Some(now);
        }
    }

    /// Opens again what may be: the controller, to whom the push counts as applied, will not push an unchanged state again.
    pub(super) fn retry(&mut self) {
        let Some(mine) = self.broker_epoch else { return };
        let now = self.node.now();
        let due = |failed: &Failed| failed.retry_at.is_some_and(|at| at <= now);
        let due: Vec<_> =
            self.failed.iter().filter(|(_, f)| due(f)).map(|(tp, _)| tp.clone()).collect();
        let image = self.node.view.image();
        let mut states = Vec::new();
        for tp in due {
            let topic = image.topics.get(&tp.topic);
            match topic.and_then(|topic| Some((topic, topic.partitions.get(&tp.partition)?))) {
                Some((topic, partition)) => states.push((tp, topic, partition)),
                None => {
                    self.failed.remove(&tp);
                }
            }
        }
        self.open_missing(mine, &states);
        for (tp, topic, partition) in &states {
            self.partition(mine, tp, topic, partition);
            // One that has to wait for a state or a registration is looked at again.
            let wait = self.failed.get(tp).filter(|f| due_again(f, now)).map(|f| f.attempts);
            if let Some(attempts) = wait {
                let at = self.retry_at(attempts);
                if let Some(failed) = self.failed.get_mut(tp) {
                    failed.retry_at = Some(at);
                }
            }
        }
        self.tell_failed();
    }

    /// The logs of these replicas failed; they are fenced.
    pub(super) fn logs_failed(&mut self, failures: Vec<(Arc<Hosted>, LogFailure)>) {
        let mut syncs = false;
        let mut directories: Vec<Arc<Directory>> = Vec::new();
        for (hosted, failure) in failures {
            let tp = &hosted.topic_partition;
            let present = self.node.partitions.get(tp.topic.as_str(), tp.partition);
            if !present.is_some_and(|present| Arc::ptr_eq(&present, &hosted)) {
                // Taken out meanwhile: what becomes of its log is of no interest any more.
                continue;
            }
            let synced = failure.kind == FailureKind::Sync;
            syncs |= synced;
            if failure.kind != FailureKind::Invariant
                && !directories.iter().any(|d| Arc::ptr_eq(d, &hosted.directory))
            {
                directories.push(hosted.directory.clone());
            }
            let opens_again = matches!(failure.kind, FailureKind::Files | FailureKind::Sync);
            let retry_at = opens_again.then(|| self.retry_at(0));
            self.take_out(&hosted, failure.text.clone(), retry_at);
            if let Some(failed) = self.failed.get_mut(tp).filter(|_| synced) {
                failed.registered_anew = self.broker_epoch;
            }
        }
        if syncs {
            self.tail_lost_now();
        }
        for directory in directories {
            if let Some(error) = directory.probe().err().filter(|e| e.shortage().is_none()) {
                self.fail_directory(&directory, error.to_string());
            }
        }
        self.tell_failed();
    }

    /// A replica that failed is not wanted here any more (R22 was checked): its directory goes, and nothing up to these epochs
    /// of its topic's life brings it back.
    pub(super) fn drop_failed(
        &mut self,
        tp: &TopicPartition,
        until: (LeaderEpoch, PartitionEpoch),
    ) {
        if let Some(failed) = self.failed.remove(tp) {
            self.tombstones.insert(tp.clone(), (failed.incarnation, until.0, until.1));
            self.delete_directories(std::slice::from_ref(tp));
        }
    }

    /// Takes a replica that is fenced out of the broker, and remembers it.
    fn take_out(&mut self, hosted: &Arc<Hosted>, text: String, retry_at: Option<Now>) {
        let led = hosted.led_until_fenced();
        hosted.retire();
        self.node.partitions.remove(&hosted.topic_partition);
        let failed = Failed {
            incarnation: hosted.incarnation,
            text,
            attempts: 0,
            retry_at,
            led,
            registered_anew: None,
        };
        self.failed.insert(hosted.topic_partition.clone(), failed);
    }

    /// R38: durable first, then whoever registers the broker does so anew.
    pub(super) fn tail_lost_now(&mut self) {
        match self.storage.mark_tail_lost() {
            Ok(()) => {}
            Err(error) => {
                tracing::error!(target: "state_change", %error, "no log directory takes the lost-tail mark; it is registered nevertheless");
            }
        }
        self.tail_lost.send_modify(|mark| {
            mark.lost = true;
            mark.failures += 1;
        });
    }

    /// A directory is of no use any more: its partitions end here, the others go on.
    pub(super) fn fail_directory(&mut self, directory: &Arc<Directory>, reason: String) {
        if !directory.fail(reason.clone()) {
            return;
        }
        let online = self.storage.directories().iter().filter(|d| d.usable().is_some()).count();
        tracing::error!(
            directory = %directory.path().display(), %reason, online,
            "the log directory failed; its partitions are offline until the broker restarts"
        );
        for hosted in self.node.partitions.all() {
            if !Arc::ptr_eq(&hosted.directory, directory) {
                continue;
            }
            let mut after = Aftermath::default();
            hosted.fence(self.node.now(), &mut after);
            self.settle(&hosted, after);
            self.take_out(&hosted, format!("its log directory failed: {reason}"), None);
        }
        let index = directory.index();
        for failed in self.failed.iter_mut() {
            if self.storage.is_home(failed.0, index) {
                failed.1.retry_at = None;
            }
        }
        // What lay there may have lost its tail by the time that the directory is back (R38).
        if let Err(error) = self.storage.mark_tail_lost() {
            tracing::error!(target: "state_change", %error, "no log directory takes the lost-tail mark");
        }
    }

    /// Tells the controller, through [`crate::control::FailedReports`], what cannot be served.
    pub(super) fn tell_failed(&self) {
        let failed = self.failed.iter().map(|(tp, failed)| (tp.clone(), failed.incarnation));
        let reasons = self.failed.iter().map(|(tp, failed)| (tp.clone(), failed.text.clone()));
        self.node.failed.tell(failed.collect(), reasons.collect());
    }
}

fn due_again(failed: &Failed, now: Now) -> bool {
    failed.retry_at.is_some_and(|at| at <= now)
}
