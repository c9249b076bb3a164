//! Random schedules over the three replicas: late, lost and repeated messages, process restarts, elections from the ISR.
//!
//! Checked after each step: an acknowledged acks=all record is in the log of every later leader (I6), logs agree below
//! both HWs (I5), one (epoch, offset) names one record (LM). At the end everything heals (I12).

use std::collections::BTreeMap;

use super::world::{Answer, World};
use super::*;

/// xorshift64*: enough randomness for schedules, and the same on every machine.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn broker(&mut self) -> i32 {
        1 + self.below(3) as i32
    }
}

struct Run {
    random: Seeded,
    world: World,
    requests: Vec<(i32, FollowerFetch)>,
    answers: Vec<Answer>,
    /// Proposals never leave the net: a controller may apply an old attempt.
    sent: Vec<IsrProposal>,
    pushes: Vec<(i32, StatePush)>,
    /// (epoch, offset) -> value, from every log ever seen.
    named: BTreeMap<(LeaderEpoch, usize), u64>,
    /// acks=all produces.
    all: Vec<u64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Seeded(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let isr: &[i32] = if random.one_in(2) { &[1, 2] } else { &[1, 2, 3] };
        let world = World::new(isr, 1 + random.below(2) as u32);
        Self {
            random,
            world,
            requests: Vec::new(),
            answers: Vec::new(),
            sent: Vec::new(),
            pushes: Vec::new(),
            named: BTreeMap::new(),
            all: Vec::new(),
        }
    }

    fn act(&mut self) {
        let broker = self.random.broker();
        match self.random.below(100) {
            0..20 => {
                let acks = if self.random.one_in(3) { Acks::Leader } else { Acks::All };
                let value = self.world.produce(broker, acks);
                if acks == Acks::All {
                    self.all.push(value);
                }
            }
            20..45 => self.requests.extend(self.world.request(broker)),
            45..65 => self.serve_one(),
            65..80 => self.deliver_one(),
            80..86 => self.push_one(broker),
            86..90 => {
                let ms = self.random.below(LAG_MS as usize / 2) as u64;
                self.world.tick(ms);
            }
            90..95 => self.controller_takes_a_proposal(),
            95..98 => self.election(),
            _ => self.process_restart(broker),
        }
        self.sent.append(&mut self.world.proposals);
        self.check();
    }

    fn serve_one(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let index = self.random.below(self.requests.len());
        let (leader, fetch) = self.requests[index];
        if !self.random.one_in(8) {
            self.requests.swap_remove(index);
        }
        let records_max = self.random.below(4);
        let answer = self.world.serve(leader, fetch, records_max);
        self.answers.push(answer);
    }

    fn deliver_one(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let index = self.random.below(self.answers.len());
        let answer = self.answers[index].clone();
        if !self.random.one_in(8) {
            self.answers.swap_remove(index);
        }
        if !self.random.one_in(8) {
            self.world.deliver(answer);
        }
    }

    /// Pushes today's state, or one of long ago.
    fn push_one(&mut self, broker: i32) {
        let state = self.world.state_for(broker);
        self.pushes.push((broker, state));
        let index = self.random.below(self.pushes.len());
        let (to, state) = self.pushes[index].clone();
        self.world.deliver_push(to, state);
        if self.random.one_in(2) {
            self.world.push(broker);
        }
    }

    fn controller_takes_a_proposal(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let index = self.random.below(self.sent.len());
        let proposal = self.sent[index].clone();
        let written = !self.random.one_in(4) && self.world.admit(&proposal);
        let answered = !self.random.one_in(4);
        if let Some((leader, _)) = proposal.isr.iter().find(|(id, _)| {
            self.world.brokers[&id.0].replica.role()
                == Role::Leader { leader_epoch: proposal.leader_epoch }
        }) {
            let outcome = match (written, answered) {
                (true, true) => self.world.accepted(leader.0),
                (true, false) => ProposalOutcome::Unknown,
                (false, _) => {
                    ProposalOutcome::Refused(Condition::InvalidUpdateVersion { reason: "test" })
                }
            };
            self.world.answer_proposal(leader.0, outcome);
        }
    }

    fn members(&self) -> Vec<i32> {
        self.world.partition.state.isr.iter().map(|(id, _)| id.0).collect()
    }

    /// A clean choice on suspicion (R17): another ISR member leads, the suspect leaves, in the next epoch.
    fn election(&mut self) {
        let members = self.members();
        let suspect = self.world.partition.state.leader.map(|l| l.0);
        let rest: Vec<i32> = members.iter().copied().filter(|m| Some(*m) != suspect).collect();
        let (isr, leader) =
            if rest.is_empty() { (members, suspect) } else { (rest.clone(), Some(rest[0])) };
        self.world.elect(leader, &isr);
        if let Some(leader) = leader {
            self.world.push(leader);
        }
    }

    /// R5: a restarted member leaves if another remains; a sole member is confirmed and leads in the next epoch.
    fn process_restart(&mut self, broker: i32) {
        let checkpoint = self.random.below(5) as i64;
        self.world.restart(broker, checkpoint);
        let members = self.members();
        if !members.contains(&broker) {
            return;
        }
        let rest: Vec<i32> = members.iter().copied().filter(|m| *m != broker).collect();
        let isr = if rest.is_empty() { members } else { rest };
        self.world.elect(Some(isr[0]), &isr);
    }

    fn check(&mut self) {
        for broker in self.world.brokers.values() {
            for (offset, (epoch, value)) in broker.log.iter().enumerate() {
                let named = *self.named.entry((*epoch, offset)).or_insert(*value);
                assert_eq!(named, *value, "LM: epoch {epoch}, offset {offset}");
            }
        }
        // I6: everything acked is at the broker that the state node names as leader and in all its ISR.
        for member in self.members() {
            let values = self.world.values(member);
            for value in self.all.iter().filter(|v| self.world.is_acked(**v)) {
                assert!(values.contains(value), "I6: {member} lacks acked record {value}");
            }
        }
        for (one, other) in [(1, 2), (1, 3), (2, 3)] {
            let common = self.world.high_watermark(one).min(self.world.high_watermark(other));
            let common = usize::try_from(common).unwrap();
            let (a, b) = (&self.world.brokers[&one].log, &self.world.brokers[&other].log);
            assert_eq!(a[..common], b[..common], "I5: {one} and {other} differ below HW {common}");
        }
    }

    /// No more faults: everyone hears the state, proposals are answered.
    fn heal(&mut self) {
        for _round in 0..60 {
            self.world.settle();
            self.sent.append(&mut self.world.proposals);
            if let Some(proposal) = self.sent.last().cloned() {
                let admitted = self.world.admit(&proposal);
                let leader = self.world.partition.state.leader.unwrap().0;
                let reason = Condition::InvalidUpdateVersion { reason: "late" };
                let outcome = if admitted {
                    self.world.accepted(leader)
                } else {
                    ProposalOutcome::Refused(reason)
                };
                self.world.answer_proposal(leader, outcome);
            }
            self.world.tick(LAG_MS / 4);
            self.check();
            if self.members().len() == 3 {
                self.world.settle();
                self.world.assert_equal_logs();
                return;
            }
        }
        panic!("I12: the ISR stays {:?}", self.members());
    }
}

#[test]
fn i5_i6_i12_lm_hold_over_random_schedules() {
    let (mut acked, mut elections) = (0, 0);
    for seed in 1..=1_500 {
        let result = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            for _ in 0..300 {
                run.act();
            }
            run.heal();
            let acked = run.all.iter().filter(|v| run.world.is_acked(**v)).count();
            (acked, run.world.partition.state.leader_epoch.0)
        });
        let (acks, epoch) = result.unwrap_or_else(|_| panic!("seed {seed} fails"));
        acked += acks;
        elections += epoch;
    }
    assert!(acked > 5_000 && elections > 10_000, "too little happened: {acked}, {elections}");
}
