//! The hand that breaks things, and mends them all at the end of the fault phase.

use barnabas_controller_core::Candidate;

use super::{LIVENESS_MS_MAX, World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::process::Process;
use crate::swarm::Operation;

impl World {
    /// Does the next thing of the run's mix.
    pub(crate) fn operate(&mut self) {
        if self.healed {
            return;
        }
        let mean = self.swarm.operation_interval_ms;
        let next = self.choice.range(1, 2 * mean);
        self.queue.after(next, Happening::Operate);
        let topics = self.store.topics.len() as u64;
        // A world without topics shows nothing; the first ones come at once.
        let operation = if topics < self.swarm.topics
            && (topics == 0 || (self.names_used.len() as u64) < self.swarm.topics)
        {
            self.queue.after(10, Happening::Perform(Operation::CreateTopic));
            Operation::CreateTopic
        } else {
            let mut choice = self.choice.clone();
            let operation = self.swarm.operation(&mut choice);
            self.choice = choice;
            operation
        };
        self.perform_operation(operation);
    }

    /// Does one thing.
    pub fn perform_operation(&mut self, operation: Operation) {
        if self.healed {
            return;
        }
        match operation {
            Operation::CreateTopic => self.ask_for_topic(),
            Operation::DeleteTopic => self.ask_for_deletion(),
            Operation::AddPartition => self.ask_for_partition(),
            Operation::CrashProcess => {
                if let Some(b) = self.some_running() {
                    self.crash(b, false);
                }
            }
            Operation::CrashHost => {
                let b = self.choice.index(self.swarm.brokers);
                self.crash(b, true);
            }
            Operation::Bounce => self.bounce(),
            Operation::CrashAll => {
                let host = self.choice.chance(500);
                if host {
                    self.reach(Reached::PowerCut);
                }
                for b in 0..self.swarm.brokers {
                    self.crash(b, host);
                }
            }
            Operation::Pause => {
                if let Some(b) = self.some_running() {
                    let for_ms = self.choice.range(5, 3 * self.swarm.session_timeout_ms);
                    let holds_sent = self.choice.chance(500);
                    self.pause(b, for_ms, holds_sent);
                }
            }
            Operation::ExpireSession => {
                if let Some(b) = self.some_running() {
                    self.expire_session_of(b);
                }
            }
            Operation::DeleteController => {
                if self.store.delete_controller() {
                    self.reach(Reached::ControllerDeleted);
                    self.note(None, "delete", || "/controller".to_owned());
                    self.deliver_watches();
                }
            }
            Operation::SuspectBroker => self.suspect_some_broker(),
            Operation::SuspectController => self.suspect_some_controller(),
            Operation::TouchState => {
                if let Some(at) = self.some_partition()
                    && self.store.touch_state(&at)
                {
                    self.note(None, "touch", || at.to_string());
                }
            }
            Operation::CutStore => {
                let broker = self.choice.index(self.swarm.brokers);
                self.reach(Reached::Cut);
                self.cut_store(broker);
                let for_ms = self.choice.range(5, 2 * self.swarm.session_timeout_ms);
                self.queue.after(for_ms, Happening::HealStore { broker });
            }
            Operation::CutOneWay => {
                let from = self.choice.index(self.swarm.brokers);
                let to =
                    (from + 1 + self.choice.index(self.swarm.brokers - 1)) % self.swarm.brokers;
                self.cut_link(from, to);
            }
            Operation::JumpClock => {
                let b = self.choice.index(self.swarm.brokers);
                let by_ms = self.choice.range(1, 3 * self.swarm.lag_time_max_ms);
                self.jump_clock(b, by_ms);
            }
            Operation::Retention => self.retention(),
            Operation::DeleteRecords => self.ask_to_delete_records(),
            Operation::FillDisk => self.fill_disk(),
            Operation::SwitchFlushMode => self.ask_to_switch(),
            Operation::Reassign => self.ask_to_move(),
            Operation::CancelMove => self.ask_to_cancel(),
            Operation::FailSync => {
                let b = self.choice.index(self.swarm.brokers);
                self.disks[b].sync_fails = true;
            }
            Operation::Shutdown => {
                if let Some(b) = self.some_running() {
                    self.shut_down(b);
                }
            }
            Operation::Drain => self.drain_or_undrain(),
            Operation::ElectPreferred => self.ask_for_election(false),
            Operation::ElectUnclean => self.ask_for_election(true),
            Operation::Isolate => {
                let b = self.choice.index(self.swarm.brokers);
                for other in (0..self.swarm.brokers).filter(|o| *o != b) {
                    self.cut_link(b, other);
                    self.cut_link(other, b);
                }
            }
        }
    }

    fn cut_link(&mut self, from: Ix, to: Ix) {
        self.reach(Reached::Cut);
        self.link[from][to] = false;
        self.note(Some(from), "cut link", || format!("to b{}", to + 1));
        let for_ms = self.choice.range(10, 3 * self.swarm.lag_time_max_ms);
        self.queue.after(for_ms, Happening::HealLink { from, to });
    }

    pub(crate) fn some_running(&mut self) -> Option<Ix> {
        let running: Vec<Ix> = (0..self.swarm.brokers)
            .filter(|b| self.processes[*b].up && !self.processes[*b].paused)
            .collect();
        if running.is_empty() {
            return None;
        }
        let index = self.choice.index(running.len());
        Some(running[index])
    }

    /// SIGKILL, or the power of the host. The broker starts again later.
    pub fn crash(&mut self, b: Ix, host: bool) {
        if self.kill(b, host) {
            let down = self.choice.range(1, self.swarm.down_ms_max);
            self.queue.after(down, Happening::Restart { broker: b });
        }
    }

    /// The same, for good. Whether it ran.
    pub fn kill(&mut self, b: Ix, host: bool) -> bool {
        let was_up = self.processes[b].up;
        if !was_up && !host {
            return false;
        }
        if host {
            self.reach(Reached::HostCrash);
            self.checkers.host_crashes += 1;
            let mut choice = self.choice.clone();
            let lost = self.disks[b].lose_tails(&mut choice);
            self.choice = choice;
            for (at, records) in lost {
                self.reach(Reached::TailLost);
                self.note(Some(b), "tail lost", || format!("{at} {} records", records.len()));
                if let Some(directory) = self.disks[b].directories.get(&at) {
                    let life = (at.clone(), directory.incarnation.czxid);
                    self.checkers.copies_lost(&life, &records);
                }
            }
        } else {
            self.reach(Reached::ProcessCrash);
        }
        if !was_up {
            self.note(Some(b), if host { "host crash" } else { "crash" }, String::new);
            return false;
        }
        self.end_process(b, if host { "host crash" } else { "crash" });
        true
    }

    /// The process is no more.
    pub(crate) fn end_process(&mut self, b: Ix, how: &str) {
        self.note(Some(b), how, String::new);
        self.silence(b);
        self.connections_break(b);
        // What it sent waits in the sockets of others, and outlives it (R30).
        for happening in std::mem::take(&mut self.processes[b].held) {
            let sent = match &happening {
                Happening::Input { from, .. } => *from == Some(b),
                _ => true,
            };
            if sent {
                let delay = self.choice.range(0, 120);
                self.queue.after(delay, happening);
            }
        }
        let life = self.processes[b].life;
        let candidate = Candidate::new(id_of(b), self.disks[b].directory_id);
        self.processes[b] = Process::new(life, candidate);
    }

    /// Holds what a broker sends from now on; its host dies soon. One that is about to join an ISR is taken first.
    fn bounce(&mut self) {
        let joining = self.joining();
        let Some(b) = joining.or_else(|| self.some_running()) else { return };
        let delay = self.choice.range(2, 40);
        let process = &mut self.processes[b];
        if !process.up || process.paused {
            return;
        }
        process.paused = true;
        process.holds_sent = true;
        let life = process.life;
        self.note(Some(b), "bounce", || format!("in {delay} ms"));
        self.queue.after(delay, Happening::Bounce { broker: b, life });
    }

    /// A broker that a leader has proposed and the store does not show yet.
    fn joining(&self) -> Option<Ix> {
        self.processes.iter().filter(|p| p.up).flat_map(|p| p.slots.values()).find_map(|slot| {
            let committed = slot.replica.isr();
            let proposed = slot.replica.maximal_isr();
            proposed.into_iter().find(|m| !committed.iter().any(|(id, _)| id == m)).map(ix_of)
        })
    }

    pub(crate) fn bounced(&mut self, b: Ix, life: u32) {
        let process = &self.processes[b];
        if self.healed || !process.up || process.life != life {
            return;
        }
        self.reach(Reached::Bounce);
        self.crash(b, true);
        let delay = self.choice.range(1, 8);
        self.queue.after(delay, Happening::Restart { broker: b });
    }

    /// A process starts, unless it runs.
    pub fn start(&mut self, b: Ix) {
        if self.processes[b].up {
            return;
        }
        let life = self.processes[b].life + 1;
        let candidate = Candidate::new(id_of(b), self.disks[b].directory_id);
        self.processes[b] = Process::new(life, candidate);
        self.processes[b].up = true;
        let tail_lost = self.disks[b].start();
        self.note(Some(b), "start", || format!("life {life}, tail lost: {tail_lost}"));
        self.start_candidate(b);
        self.later(b, 1, Input::Tick);
    }

    /// SIGSTOP; SIGCONT comes after `for_ms`. `holds_sent`: what it has sent and nobody has got yet comes after that, too.
    pub fn pause(&mut self, b: Ix, for_ms: u64, holds_sent: bool) {
        self.reach(Reached::Pause);
        self.note(Some(b), "stop", || format!("for {for_ms} ms, holds what it sent: {holds_sent}"));
        self.silence(b);
        let process = &mut self.processes[b];
        process.paused = true;
        process.holds_sent = holds_sent;
        let life = process.life;
        self.queue.after(for_ms, Happening::Continue { broker: b, life });
    }

    /// SIGCONT: what was held happens now, in order; the ensemble hears of the broker again.
    pub(crate) fn go_on(&mut self, b: Ix, life: u32) {
        let process = &mut self.processes[b];
        if process.life != life || !process.paused {
            return;
        }
        process.paused = false;
        process.holds_sent = false;
        let held = std::mem::take(&mut process.held);
        self.note(Some(b), "cont", || format!("{} held", held.len()));
        for (index, happening) in held.into_iter().enumerate() {
            self.queue.after(index as u64 / 4, happening);
        }
        let Some(session) = self.processes[b].client.session else { return };
        if self.store.is_live(session) {
            if self.store_link[b] {
                self.heard(session);
            }
        } else {
            // It takes a moment until it learns: meanwhile it acts on what it knew.
            let notice = self.choice.range(1, 30);
            self.later(b, notice, Input::StoreExpired { session });
        }
    }

    /// The ensemble ends the session of a live broker, which learns it a moment later.
    pub fn expire_session_of(&mut self, b: Ix) {
        let Some(session) = self.processes[b].client.session else { return };
        if !self.store.is_live(session) {
            return;
        }
        self.reach(Reached::SessionExpired);
        self.expire(session);
        let notice = self.choice.range(1, 40);
        self.later(b, notice, Input::StoreExpired { session });
    }

    /// Ends the fault phase: everything is mended, nothing is lost or late any more.
    pub fn heal(&mut self) {
        self.healed = true;
        self.note(None, "heal all", String::new);
        for b in 0..self.swarm.brokers {
            self.start(b);
            let life = self.processes[b].life;
            self.go_on(b, life);
            self.heal_store(b);
            self.make_room(b);
            self.disks[b].sync_fails = false;
            for other in 0..self.swarm.brokers {
                self.link[b][other] = true;
            }
        }
        self.end_drains();
        self.deadline_ms = self.queue.now_ms() + LIVENESS_MS_MAX;
        self.queue.after(200, Happening::Judge);
    }
}
