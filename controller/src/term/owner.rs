//! The task that owns the core for one term. Everything that it starts ends with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use barnabas_controller_core::{
    Controller, ControllerEvent, DrainProgress, Effects, Election, Note, RequestId, WriteId,
    WriteOutcome,
};
use barnabas_proto::znode::paths;
use barnabas_types::{Condition, Now, Sanitised, TopicPartition};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::push::Streams;
use super::timeline::Timeline;
use super::waiters::Waiters;
use super::writes::{Kind, Writes};
use super::{Beginning, TermEvent};
use crate::drive;
use crate::service::Rebalance;
use crate::timeline::Heard;
use crate::translate::{
    ConfigNotices, GivenUp, Load, Loaded, ReadBrokers, ReadConfigNotices, Registrations,
    epoch_check,
};
use crate::zookeeper::{Op, Reply, Request, ZooKeeper};

/// How long a stored change of settings waits for the leaders' confirmation before it is answered without.
const CONFIRMATION_PATIENCE: Duration = Duration::from_secs(10);

/// How long the answer to a stored change of a topic waits until the live brokers have heard of it. Brokers that cannot be reached
/// are not waited for; this is for one that hangs, which is waited for once.
const ANNOUNCEMENT_PATIENCE: Duration = Duration::from_secs(3);

/// When a new controller first looks at the balance of leaderships, as Kafka does.
const REBALANCE_FIRST: Duration = Duration::from_secs(5);

pub(super) struct Setting<Z> {
    pub(super) beginning: Beginning<Z>,
    pub(super) inbox: mpsc::Receiver<TermEvent>,
    pub(super) to_inbox: mpsc::Sender<TermEvent>,
    pub(super) paused: watch::Receiver<bool>,
    pub(super) brokers_changed: Arc<Notify>,
    pub(super) configs_changed: Arc<Notify>,
}

/// What a task of the term brings back.
enum Done {
    Written(Kind, Result<Vec<(WriteId, WriteOutcome)>, GivenUp>),
    Notices(Result<ConfigNotices, GivenUp>),
    /// Patience with the leaders' confirmation, or with brokers that have not heard of a change of a topic, has ended.
    Due(RequestId),
    Brokers(Result<Registrations, GivenUp>),
    /// Whether this term was still in office when it let a broker stop; the answer has gone there.
    Granted,
}

pub(super) struct Owner<Z> {
    setting: Setting<Z>,
    core: Controller,
    begun: Instant,
    tasks: JoinSet<Done>,
    writes: Writes,
    reading_brokers: bool,
    brokers_stale: bool,
    /// What waits for the read under way, and for the one after it. Bounded by the callers' requests, which wait for answers.
    after_brokers: Vec<ControllerEvent>,
    after_next_brokers: Vec<ControllerEvent>,
    reading_notices: bool,
    notices_stale: bool,
    waiters: Waiters,
    request_next: u64,
    streams: Streams,
    timeline: Timeline,
    resigned: bool,
}

/// Ticks whenever the balance of leaderships is to be looked at; with the percentage that is tolerated. The first time soon:
/// the controller may change more often than the interval is long.
fn rebalance_clock(rebalance: Rebalance) -> (tokio::time::Interval, u32) {
    let first = tokio::time::Instant::now() + rebalance.every.min(REBALANCE_FIRST);
    let mut clock = tokio::time::interval_at(first, rebalance.every);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    (clock, rebalance.imbalance_percentage)
}

async fn due(clock: &mut Option<(tokio::time::Interval, u32)>) -> u32 {
    match clock {
        Some((clock, imbalance_percentage)) => {
            clock.tick().await;
            *imbalance_percentage
        }
        None => std::future::pending().await,
    }
}

async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl<Z: ZooKeeper> Owner<Z> {
    pub(super) fn new(setting: Setting<Z>) -> Self {
        let begun = Instant::now();
        let beginning = &setting.beginning;
        let (me, lost, records) =
            ((beginning.me, beginning.epoch), beginning.lost, beginning.failovers.clone());
        Self {
            timeline: Timeline::new(me, begun, lost, records),
            core: Controller::new(
                setting.beginning.me,
                setting.beginning.epoch,
                setting.beginning.defaults,
            ),
            begun,
            tasks: JoinSet::new(),
            writes: Writes::new(setting.beginning.epoch_version),
            reading_brokers: false,
            brokers_stale: false,
            after_brokers: Vec::new(),
            after_next_brokers: Vec::new(),
            reading_notices: false,
            notices_stale: false,
            waiters: Waiters::default(),
            request_next: 1,
            streams: Streams::new(
                setting.beginning.me,
                setting.beginning.epoch,
                setting.to_inbox.clone(),
                setting.beginning.suspicion,
            ),
            resigned: false,
            setting,
        }
    }

    /// Runs until the term is over.
    pub(super) async fn run(mut self) {
        let loaded = match drive::run(&self.setting.beginning.client, Load::default()).await {
            Ok(loaded) => loaded,
            Err(error) => return self.give_up(&error),
        };
        self.loaded(loaded).await;
        self.read_notices();
        let mut rebalance = self.setting.beginning.rebalance.map(rebalance_clock);
        while !self.resigned {
            if *self.setting.paused.borrow_and_update() {
                if self.setting.paused.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let tell_again = self.timeline.tell();
            tokio::select! {
                biased;
                changed = self.setting.paused.changed() => if changed.is_err() { return },
                () = self.setting.brokers_changed.notified() => self.read_brokers(),
                () = self.setting.configs_changed.notified() => self.read_notices(),
                imbalance_percentage = due(&mut rebalance) => {
                    self.step(ControllerEvent::RebalanceDue { imbalance_percentage });
                }
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => match done {
                    Ok(done) => self.task_done(done),
                    Err(error) => {
                        tracing::error!(target: "controller", %error, "a write was not finished; resigning");
                        return;
                    }
                },
                event = self.setting.inbox.recv() => match event {
                    Some(event) => self.event(event),
                    None => return,
                },
                () = at(tell_again) => {}
            }
        }
    }

    async fn loaded(&mut self, loaded: Loaded) {
        let Loaded { snapshot, problems, stale_marks } = loaded;
        for problem in problems {
            tracing::warn!(target: "controller", controller_epoch = self.setting.beginning.epoch.0, "{}", Sanitised::sentence(&problem));
        }
        for name in stale_marks {
            let delete = Op::Delete { path: paths::delete_topic(&name), version: None };
            let multi =
                Request::Multi(vec![epoch_check(self.setting.beginning.epoch_version), delete]);
            if let Err(error) = self.setting.beginning.client.submit(multi).await {
                tracing::warn!(target: "controller", topic = %name, %error, "a left-over deletion mark stays");
            }
        }
        tracing::info!(
            target: "controller", controller_epoch = self.setting.beginning.epoch.0, brokers = snapshot.brokers.len(),
            topics = snapshot.topics.len(), took_ms = self.now().0, "loaded the cluster from ZooKeeper"
        );
        self.step(ControllerEvent::Loaded(snapshot));
    }

    fn now(&self) -> Now {
        Now(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn give_up(&mut self, error: &GivenUp) {
        tracing::warn!(target: "controller", controller_epoch = self.setting.beginning.epoch.0, %error, "resigning");
        self.resigned = true;
    }

    fn event(&mut self, event: TermEvent) {
        let request = RequestId(self.request_next);
        self.request_next += 1;
        match event {
            TermEvent::Alter(proposal, answer) => {
                self.waiters.alter.wait(request, answer);
                self.step(ControllerEvent::AlterPartition { request, proposal });
            }
            TermEvent::Create(topic, answer) => {
                self.waiters.create.wait(request, answer);
                self.step(ControllerEvent::CreateTopic { request, topic });
            }
            TermEvent::Delete(topic, answer) => {
                self.waiters.delete.wait(request, answer);
                self.step(ControllerEvent::DeleteTopic { request, topic });
            }
            TermEvent::CreatePartitions(create, answer) => {
                self.waiters.create_partitions.wait(request, answer);
                self.step(ControllerEvent::CreatePartitions { request, create });
            }
            TermEvent::AlterConfig(alter, answer) => {
                self.waiters.alter_config.wait(request, answer);
                self.step(ControllerEvent::AlterConfig { request, alter });
            }
            TermEvent::Failed(report, answer) => {
                self.waiters.failed.wait(request, answer);
                self.step(ControllerEvent::ReplicasFailed { request, report });
            }
            TermEvent::Drain((broker, epoch), draining, answer) => {
                self.waiters.drain.wait(request, answer);
                // Changes of a registration's content are not watched: whoever makes one says so.
                let known = self.core.knows_draining(broker, epoch, draining);
                let event =
                    ControllerEvent::Drain { request, broker, broker_epoch: epoch, draining };
                if known {
                    self.step(event);
                } else {
                    self.after_reading_brokers(event);
                }
            }
            TermEvent::CanStop(broker, answer) => {
                let _ = answer.send(self.core.can_stop(broker));
            }
            TermEvent::Elect(elect, answer) => {
                self.waiters.elect.wait(request, answer);
                let unclean = matches!(elect.election, Election::Unclean { .. });
                let event = ControllerEvent::ElectLeaders { request, elect };
                // R39: a member that has come back is not to be overlooked.
                if unclean {
                    self.after_reading_brokers(event);
                } else {
                    self.step(event);
                }
            }
            TermEvent::Reassign(partition, wish, answer) => {
                self.waiters.reassign.wait(request, answer);
                self.step(ControllerEvent::Reassign { request, partition, wish });
            }
            TermEvent::Reassignments(answer) => {
                let _ = answer.send(self.core.reassignments());
            }
            TermEvent::Resize(topic, replication_factor, answer) => {
                let _ = answer.send(self.core.resized(&topic, replication_factor));
            }
            TermEvent::Gone(broker, broker_epoch) => {
                self.step(ControllerEvent::BrokerSuspected { broker, broker_epoch });
            }
            TermEvent::Push(ready) => {
                if let Some(acked) = self.streams.ready(ready) {
                    self.step(acked);
                }
                self.serve();
            }
            TermEvent::Served(served) => self.timeline.served(&served),
            TermEvent::PushBroken(broker, broker_epoch) => {
                self.step(ControllerEvent::PushBroken { broker, broker_epoch });
            }
        }
    }

    fn task_done(&mut self, done: Done) {
        match done {
            Done::Written(kind, outcomes) => {
                self.writes.ended(kind);
                match outcomes {
                    Ok(outcomes) => {
                        for (write, outcome) in outcomes {
                            self.step(ControllerEvent::Written { write, outcome });
                        }
                    }
                    Err(error) => self.give_up(&error),
                }
            }
            Done::Granted => {}
            Done::Due(request) => self.step(ControllerEvent::ConfirmationDue { request }),
            Done::Notices(read) => {
                self.reading_notices = false;
                match read {
                    Ok(read) => {
                        for entity in read.changed {
                            self.step(ControllerEvent::ConfigChanged { entity });
                        }
                        if std::mem::take(&mut self.notices_stale) || read.more {
                            self.read_notices();
                        }
                    }
                    Err(error) => self.give_up(&error),
                }
            }
            Done::Brokers(read) => {
                self.reading_brokers = false;
                match read {
                    Ok(read) => {
                        for problem in read.problems {
                            tracing::warn!(target: "controller", "{}", Sanitised::sentence(&problem));
                        }
                        self.step(ControllerEvent::Brokers(read.brokers));
                        for event in std::mem::take(&mut self.after_brokers) {
                            self.step(event);
                        }
                        self.after_brokers = std::mem::take(&mut self.after_next_brokers);
                        if std::mem::take(&mut self.brokers_stale) {
                            self.read_brokers();
                        }
                    }
                    Err(error) => self.give_up(&error),
                }
            }
        }
        self.start_writes();
    }

    /// Steps an event once the registrations are read by a read that begins after this moment.
    fn after_reading_brokers(&mut self, event: ControllerEvent) {
        if self.reading_brokers {
            self.after_next_brokers.push(event);
        } else {
            self.after_brokers.push(event);
        }
        self.read_brokers();
    }

    /// One read at a time, so that what is older cannot overtake what is newer.
    fn read_brokers(&mut self) {
        if self.reading_brokers {
            self.brokers_stale = true;
            return;
        }
        self.reading_brokers = true;
        let client = self.setting.beginning.client.clone();
        self.tasks
            .spawn(async move { Done::Brokers(drive::run(&client, ReadBrokers::default()).await) });
    }

    /// One read at a time, as above.
    fn read_notices(&mut self) {
        if self.reading_notices {
            self.notices_stale = true;
            return;
        }
        self.reading_notices = true;
        let client = self.setting.beginning.client.clone();
        let read = ReadConfigNotices::new(self.setting.beginning.epoch_version);
        self.tasks.spawn(async move { Done::Notices(drive::run(&client, read).await) });
    }

    fn step(&mut self, event: ControllerEvent) {
        let registrations =
            matches!(event, ControllerEvent::Loaded(_) | ControllerEvent::Brokers(_));
        let mut effects = Effects::default();
        let heard = Heard::of(&event, &self.core);
        self.core.step(self.now(), event, &mut effects);
        self.timeline.stepped(&heard, &self.core, &effects);
        let Effects {
            partition_writes,
            assignment_writes,
            topic_writes,
            config_writes,
            image_changed,
            alter_answers,
            create_answers,
            delete_answers,
            config_answers,
            confirmations_awaited,
            announcements_awaited,
            failed_answers,
            partitions_answers,
            drain_answers,
            elect_answers,
            reassign_answers,
            resign,
            notes,
        } = effects;
        self.writes.partitions(partition_writes);
        self.writes.assignments(assignment_writes);
        self.writes.topics(topic_writes);
        self.writes.configs(config_writes);
        self.start_writes();
        if registrations || image_changed {
            self.streams.follow(&self.core.image().brokers);
            self.serve();
        }
        self.waiters.alter.answer(alter_answers);
        self.waiters.create.answer(create_answers);
        self.waiters.delete.answer(delete_answers);
        self.waiters.alter_config.answer(config_answers);
        self.waiters.failed.answer(failed_answers);
        self.waiters.create_partitions.answer(partitions_answers);
        self.waiters.elect.answer(elect_answers.into_iter().map(|(of, answer)| (of, Ok(answer))));
        self.waiters.reassign.answer(reassign_answers);
        for (request, answer) in drain_answers {
            if let Some(waiter) = self.waiters.drain.take(request) {
                self.answer_drain(waiter, answer);
            }
        }
        // Those that were answered in the same step are asked about once more, to no effect.
        let confirmations = confirmations_awaited.into_iter().map(|r| (r, CONFIRMATION_PATIENCE));
        let announcements = announcements_awaited.into_iter().map(|r| (r, ANNOUNCEMENT_PATIENCE));
        for (request, patience) in confirmations.chain(announcements) {
            self.tasks.spawn(async move {
                tokio::time::sleep(patience).await;
                Done::Due(request)
            });
        }
        self.resigned |= resign;
        for note in notes {
            self.log(&note);
        }
    }

    fn serve(&mut self) {
        let sent = self.streams.serve(&self.core);
        self.timeline.sent(sent);
    }

    /// That a broker may stop is said only if this term was still in office when it was decided: a newer controller may have
    /// admitted the broker to an ISR of which this one knows nothing.
    fn answer_drain(
        &mut self,
        waiter: oneshot::Sender<Result<DrainProgress, Condition>>,
        answer: Result<DrainProgress, Condition>,
    ) {
        if !answer.as_ref().is_ok_and(|progress| progress.may_stop) {
            let _ = waiter.send(answer);
            return;
        }
        let client = self.setting.beginning.client.clone();
        let version = self.setting.beginning.epoch_version;
        self.tasks.spawn(async move {
            let get = Request::Get { path: paths::CONTROLLER_EPOCH.into(), watch: false };
            let answers = drive::in_order(&client, vec![Request::Sync, get]).await;
            let in_office = matches!(
                answers.last(),
                Some(Ok(Reply::Node(Some(node)))) if node.stat.version == version
            );
            let _ = waiter.send(if in_office { answer } else { Err(Condition::NotController) });
            Done::Granted
        });
    }

    fn start_writes(&mut self) {
        while let Some((kind, write)) = self.writes.next() {
            let client = self.setting.beginning.client.clone();
            self.tasks.spawn(async move { Done::Written(kind, write.run(&client).await) });
        }
    }

    /// One line of the state-change log: always with the partition and its epochs as they now are, spelled as the brokers do.
    fn log(&self, note: &Note) {
        let controller_epoch = self.setting.beginning.epoch.0;
        let text = Sanitised::sentence(&note.text);
        let Some(TopicPartition { topic, partition }) = &note.partition else {
            if note.warn {
                tracing::warn!(target: "state_change", controller_epoch, "{text}");
            } else {
                tracing::info!(target: "state_change", controller_epoch, "{text}");
            }
            return;
        };
        let image = self.core.image().topics.get(topic);
        let state = image.and_then(|t| t.partitions.get(partition)).map(|p| &p.state);
        let leader_epoch = state.map_or(-1, |s| s.leader_epoch.0);
        let partition_epoch = state.map_or(-1, |s| s.partition_epoch.0);
        if note.warn {
            tracing::warn!(target: "state_change", %topic, partition, leader_epoch, partition_epoch, controller_epoch, "{text}");
        } else {
            tracing::info!(target: "state_change", %topic, partition, leader_epoch, partition_epoch, controller_epoch, "{text}");
        }
    }
}
