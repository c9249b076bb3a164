//! The task of a coordinator: it owns the groups of one partition from the load to the end of the leadership.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barnabas_group::{Effects, Event, Groups, Moment, Note, Waiter};
use barnabas_types::{Sanitised, TopicName, TopicPartition};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::field::display;

use super::coordinator::{Life, Message, Reply};
use super::load;
use super::signals::{Signal, Signals};
use super::writes::Writes;
use crate::clock::{since_boot, unix_ms};
use crate::node::Node;
use crate::partition::{Flush, Hosted};

/// After a load that failed, or what it led to, it is tried again so much later.
const LOAD_RETRY: Duration = Duration::from_secs(1);
/// Requests taken in one go, before the answers that they have given are sent.
const TURN_MAX: usize = 64;

/// The task: load, serve, unload. A broken invariant begins it anew, from what the log says.
pub(super) async fn run(
    node: Arc<Node>,
    hosted: Arc<Hosted>,
    life: Arc<Life>,
    channels: (mpsc::Receiver<Message>, Arc<Signals>),
) {
    let (mut messages, signals) = channels;
    for attempt in 0.. {
        let Some(groups) = loaded(&node, &hosted, &life).await else { break };
        let writes = Writes::new(
            node.clone(),
            hosted.clone(),
            (life.leader_epoch, attempt),
            signals.clone(),
        );
        let mut task = Task {
            node: node.clone(),
            hosted: hosted.clone(),
            life: life.clone(),
            groups,
            attempt,
            writes,
            waiting: HashMap::new(),
            effects: Effects::default(),
            flush: Flush::default(),
            broken: false,
        };
        task.begin();
        if !task.broken {
            life.loaded.store(true, Ordering::Release);
            task.serve(&mut messages, &signals).await;
        }
        if !task.broken {
            break;
        }
        life.loaded.store(false, Ordering::Release);
        // Who waits is answered.
        drop(task);
        pause(&life).await;
    }
}

async fn pause(life: &Life) {
    tokio::select! {
        () = tokio::time::sleep(LOAD_RETRY) => {}
        () = life.over() => {}
    }
}

/// Reads the groups, again and again until it succeeds; `None` once the leadership is over.
async fn loaded(node: &Arc<Node>, hosted: &Arc<Hosted>, life: &Arc<Life>) -> Option<Groups> {
    while !life.is_over() {
        if load::until_committed(hosted, life).await
            && let Some(groups) = load_once(node, hosted, life).await
        {
            return Some(groups);
        }
        pause(life).await;
    }
    None
}

async fn load_once(node: &Arc<Node>, hosted: &Arc<Hosted>, life: &Arc<Life>) -> Option<Groups> {
    let TopicPartition { topic, partition } = &hosted.topic_partition;
    let leader_epoch = life.leader_epoch;
    let began = Instant::now();
    let mut groups = Groups::loading(node.groups.settings().clone());
    let (read_from, reading) = (hosted.clone(), life.clone());
    let read = tokio::task::spawn_blocking(move || {
        load::load(&read_from, &reading, &mut groups).map(|loaded| (groups, loaded))
    });
    match read.await {
        Ok(Some((groups, read))) => {
            tracing::info!(
                target: "group", %topic, partition, %leader_epoch, groups = groups.list().count(),
                records = read.records, skipped = read.skipped, damaged = read.damaged, end = %read.end,
                ms = began.elapsed().as_millis(), "the groups of a partition are loaded"
            );
            Some(groups)
        }
        Ok(None) => None,
        Err(panic) => {
            tracing::error!(target: "group", %topic, partition, %leader_epoch, %panic, "a load failed");
            None
        }
    }
}

struct Task {
    node: Arc<Node>,
    hosted: Arc<Hosted>,
    life: Arc<Life>,
    groups: Groups,
    attempt: u64,
    writes: Writes,
    waiting: HashMap<Waiter, Reply>,
    effects: Effects,
    flush: Flush,
    /// An invariant of the groups is broken: what is in memory is not to be trusted any more.
    broken: bool,
}

impl Task {
    fn moment(&self) -> Moment {
        Moment { now: self.node.now(), wall_ms: unix_ms() }
    }

    /// Members' timers begin, offsets of topics that are gone go, and requests are taken.
    fn begin(&mut self) {
        self.guarded(|task| task.groups.loaded(task.moment(), &mut task.effects));
        if self.broken {
            return;
        }
        let image = self.node.view.image();
        let gone = |topic: &Arc<str>| {
            TopicName::new(topic).is_ok_and(|name| {
                !image.topics.contains_key(&name) && !image.unreadable.contains(&name)
            })
        };
        let gone: Vec<_> = self.groups.committed_topics().into_iter().filter(gone).collect();
        if !gone.is_empty() {
            self.step(Event::TopicsDeleted(gone));
        }
        self.flush.run();
    }

    async fn serve(&mut self, messages: &mut mpsc::Receiver<Message>, signals: &Signals) {
        let life = self.life.clone();
        let over = life.over();
        tokio::pin!(over);
        loop {
            let wake = self.wake();
            tokio::select! {
                biased;
                () = &mut over => break,
                signal = signals.taken() => self.signal(signal),
                Some(message) = messages.recv() => self.message(message),
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.step(Event::Tick);
                }
            }
            // Each time: while requests come without a pause, the timer has no turn.
            self.writes.time_out(&mut self.flush);
            for _ in 0..TURN_MAX {
                if life.is_over() || self.broken {
                    break;
                }
                if let Some(signal) = signals.next() {
                    self.signal(signal);
                } else if let Ok(message) = messages.try_recv() {
                    self.message(message);
                } else {
                    break;
                }
            }
            self.flush.run();
            if self.broken {
                return;
            }
        }
        // What is still in the inbox is answered the same as it is dropped.
        messages.close();
        self.groups.unload(&mut self.effects);
        self.perform();
        self.waiting.clear();
        self.flush.run();
        let TopicPartition { topic, partition } = &self.hosted.topic_partition;
        tracing::info!(target: "group", %topic, partition, leader_epoch = %life.leader_epoch, "the groups of a partition are unloaded");
    }

    /// When something is due: of the groups, or a write that takes too long.
    fn wake(&self) -> Option<Instant> {
        let groups = self.groups.wake_at().map(|at| {
            let wait_ms = at.0.saturating_sub(self.node.now().0);
            Instant::now() + Duration::from_millis(wait_ms)
        });
        groups.into_iter().chain(self.writes.deadline()).min()
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Appended { attempt, write, result } => {
                if attempt == self.attempt {
                    self.writes.settled(write);
                    self.step(Event::Appended { write, result });
                }
            }
            Signal::Gone(waiter) => self.gone(waiter),
            Signal::TopicsDeleted(topics) => self.step(Event::TopicsDeleted(topics)),
        }
    }

    /// Nobody is there any more who waits for this answer.
    fn gone(&mut self, waiter: Waiter) {
        if !self.broken && self.waiting.remove(&waiter).is_some() {
            self.step(Event::Gone(waiter));
        }
    }

    fn message(&mut self, message: Message) {
        if self.node.pulse.is_doubtful(since_boot()) {
            // Dropped, it is answered "not the coordinator": perhaps somebody else is by now.
            return;
        }
        match message {
            Message::Request { waiter, event, mut reply } => {
                let gone = reply.gone();
                if !matches!(*event, Event::Commit(_)) {
                    // It may wait for other members, for minutes.
                    reply.release();
                }
                self.waiting.insert(waiter, reply);
                self.step(*event);
                if gone.load(Ordering::Acquire) {
                    // Signals overtake requests, so this one's may have been taken already.
                    self.gone(waiter);
                }
            }
            Message::Look(look) => self.guarded(|task| look(&task.groups)),
        }
    }

    fn step(&mut self, event: Event) {
        self.guarded(|task| task.groups.step(task.moment(), event, &mut task.effects));
    }

    /// Does something with the groups, and what they order then.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            let TopicPartition { topic, partition } = &self.hosted.topic_partition;
            let leader_epoch = self.life.leader_epoch;
            tracing::error!(target: "group", %topic, partition, %leader_epoch, "a broken invariant; the groups of the partition are loaded anew");
            self.broken = true;
            self.effects.clear();
        }
        self.perform();
    }

    fn perform(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for append in effects.appends.drain(..) {
            self.writes.append(&append, &mut self.flush);
        }
        for (waiter, answer) in effects.answers.drain(..) {
            if let Some(reply) = self.waiting.remove(&waiter) {
                reply.answer(Ok(answer), &mut self.flush);
            }
        }
        for note in effects.notes.drain(..) {
            self.note(&note);
        }
        // Its lists are used again.
        self.effects = effects;
    }

    fn note(&self, note: &Note) {
        let TopicPartition { topic, partition } = &self.hosted.topic_partition;
        let leader_epoch = self.life.leader_epoch;
        let group = (!note.group.is_empty()).then(|| display(Sanitised::name(&note.group)));
        let (generation, text) = (note.generation, &note.text);
        if note.warn {
            tracing::warn!(target: "group", %topic, partition, %leader_epoch, group, generation, "{text:.1024}");
        } else {
            tracing::info!(target: "group", %topic, partition, %leader_epoch, group, generation, "{text:.1024}");
        }
    }
}
