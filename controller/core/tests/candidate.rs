//! The candidate against scripted answers, and races of several candidates over one in-memory ZooKeeper.

use barnabas_controller_core::{
    Candidate, CandidateEffect as Effect, CandidateEvent as Event, ControllerNode, DEPOSITIONS_MAX,
    DEPOSITIONS_WINDOW_MS, RegistrationNode, SessionId,
};
use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, Now};

const S: SessionId = SessionId(0x51);
const OTHER: SessionId = SessionId(0x99);
const MINE: DirectoryId = DirectoryId([1; 16]);

fn e(epoch: i32) -> ControllerEpoch {
    ControllerEpoch(epoch)
}

struct Bench {
    candidate: Candidate,
}

impl Bench {
    fn new() -> Self {
        let mut candidate = Candidate::new(BrokerId(1), MINE);
        let mut effects = Vec::new();
        candidate.start(&mut effects);
        candidate.start(&mut effects);
        assert_eq!(effects, [Effect::Connect]);
        Self { candidate }
    }

    /// One event; what is ordered, without the notes.
    fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.candidate.step(event, &mut effects);
        effects.retain(|e| !matches!(e, Effect::Note(_)));
        effects
    }

    fn read(&mut self, owner: Option<SessionId>, epoch: i32, version: i32) -> Vec<Effect> {
        // The id in the node is always ours: it must not matter.
        self.read_between(owner, epoch, version, 30)
    }

    /// The same; the last election wrote `mzxid`, and that of the node 30.
    fn read_between(
        &mut self,
        owner: Option<SessionId>,
        epoch: i32,
        version: i32,
        mzxid: i64,
    ) -> Vec<Effect> {
        let node = owner.map(|owner| ControllerNode { owner, broker: BrokerId(1), czxid: 30 });
        self.step(Event::ControllerRead { session: S, node, epoch: e(epoch), version, mzxid })
    }

    /// Follows the controller of session `OTHER`, elected for epoch 5, version 8.
    fn following() -> Self {
        let mut bench = Self::registered();
        let follow = Effect::Follow { controller: BrokerId(1), epoch: e(5) };
        assert_eq!(bench.read(Some(OTHER), 5, 8), [follow]);
        bench
    }

    fn suspect(&mut self, owner: SessionId, now_ms: u64) -> Vec<Effect> {
        self.step(Event::ControllerSuspected { session: S, owner, now: Now(now_ms) })
    }

    fn registration(&mut self, owner: SessionId, directory: DirectoryId) -> Vec<Effect> {
        let node = RegistrationNode { owner, epoch: BrokerEpoch(70), version: 4, directory };
        self.step(Event::RegistrationRead { session: S, node: Some(node) })
    }

    /// Registered under epoch 70, `/controller` about to be read.
    fn registered() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.step(Event::Connected { session: S }), [Effect::CreateRegistration]);
        let created = Event::RegistrationCreated { session: S, epoch: BrokerEpoch(70) };
        assert_eq!(bench.step(created), [Effect::ReadEpoch]);
        let registered = Effect::Registered { epoch: BrokerEpoch(70), controller_epoch_min: e(5) };
        assert_eq!(
            bench.step(Event::EpochRead { session: S, epoch: e(5), version: 8 }),
            [registered, Effect::ReadController],
            "R22: the oldest controller that may be obeyed is known before the first push"
        );
        bench
    }

    /// Racing on epoch 5 at version 8.
    fn racing() -> Self {
        let mut bench = Self::registered();
        assert_eq!(bench.read(None, 5, 8), [Effect::Race { epoch: e(6), version: 8 }]);
        bench
    }

    /// Elected for epoch 6, version 9, the watch armed.
    fn elected() -> Self {
        let mut bench = Self::racing();
        let won = Event::RaceWon { session: S, epoch: e(6), version: 9 };
        let begin = Effect::BeginTerm { epoch: e(6), version: 9 };
        assert_eq!(bench.step(won), [begin, Effect::ReadController]);
        assert_eq!(bench.read(Some(S), 6, 9), []);
        bench
    }
}

#[test]
fn own_earlier_incarnation_is_deleted_by_version_and_a_stranger_is_waited_for() {
    let mut bench = Bench::new();
    bench.step(Event::Connected { session: S });
    assert_eq!(bench.step(Event::RegistrationExists { session: S }), [Effect::ReadRegistration]);
    assert_eq!(bench.registration(OTHER, MINE), [Effect::DeleteRegistration { version: 4 }]);
    let tried = Event::RegistrationDeleteTried { session: S };
    assert_eq!(bench.step(tried), [Effect::ReadRegistration]);
    let stranger = DirectoryId([2; 16]);
    assert_eq!(bench.registration(OTHER, stranger), [Effect::AwaitRegistrationGone]);
    assert_eq!(bench.step(Event::RegistrationGone { session: S }), [Effect::CreateRegistration]);
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), [Effect::ReadRegistration]);
    assert_eq!(bench.registration(S, MINE), [Effect::ReadEpoch], "the lost create was done");
}

#[test]
fn registration_that_is_gone_is_created_again() {
    let mut bench = Bench::new();
    bench.step(Event::Connected { session: S });
    bench.step(Event::RegistrationExists { session: S });
    let none = Event::RegistrationRead { session: S, node: None };
    assert_eq!(bench.step(none), [Effect::CreateRegistration]);
}

fn own(epoch: i64) -> Event {
    let node =
        RegistrationNode { owner: S, epoch: BrokerEpoch(epoch), version: 4, directory: MINE };
    Event::RegistrationRead { session: S, node: Some(node) }
}

/// From the answer that the node is gone to the new registration.
fn created_anew(bench: &mut Bench) {
    let gone = Event::RegistrationRead { session: S, node: None };
    assert_eq!(bench.step(gone), [Effect::CreateRegistration]);
    let created = Event::RegistrationCreated { session: S, epoch: BrokerEpoch(80) };
    assert_eq!(bench.step(created), [Effect::ReadEpoch]);
    let registered = Effect::Registered { epoch: BrokerEpoch(80), controller_epoch_min: e(6) };
    assert_eq!(
        bench.step(Event::EpochRead { session: S, epoch: e(6), version: 9 }),
        [registered, Effect::ReadController]
    );
}

#[test]
fn r38_a_controller_registers_anew_in_its_session_and_its_term_goes_on() {
    let mut bench = Bench::elected();
    assert_eq!(bench.step(Event::RegisterAnew { session: S }), [Effect::ReadRegistration]);
    let delete = Effect::DeleteRegistration { version: 4 };
    assert_eq!(bench.step(own(70)), [Effect::Unregistered, delete.clone()]);
    assert_eq!(bench.step(Event::RegistrationGone { session: S }), [], "by its own hand");
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), [Effect::ReadRegistration]);
    assert_eq!(bench.step(own(70)), [Effect::Unregistered, delete], "not deleted: again");
    let tried = Event::RegistrationDeleteTried { session: S };
    assert_eq!(bench.step(tried), [Effect::ReadRegistration]);
    created_anew(&mut bench);
    assert_eq!(bench.read(Some(S), 6, 9), [], "the same term");
    assert_eq!(bench.candidate.term(), Some((e(6), 9)));
}

#[test]
fn r38_registering_anew_waits_for_what_is_under_way_and_outlives_a_disconnection() {
    let mut bench = Bench::racing();
    assert_eq!(bench.step(Event::RegisterAnew { session: S }), [], "a race is under way");
    assert_eq!(bench.step(Event::RaceLost { session: S }), [Effect::ReadController]);
    let follow = Effect::Follow { controller: BrokerId(1), epoch: e(6) };
    assert_eq!(bench.read(Some(OTHER), 6, 9), [follow, Effect::ReadRegistration]);
    bench.step(own(70));
    assert_eq!(bench.step(Event::Disconnected { session: S }), []);
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), []);
    assert_eq!(bench.step(Event::Reconnected { session: S }), [Effect::ReadRegistration]);
    created_anew(&mut bench);
    assert_eq!(bench.step(Event::RegisterAnew { session: OTHER }), [], "of another session");
}

#[test]
fn r38_a_wish_that_comes_after_the_create_was_sent_asks_for_one_more() {
    // Its tail was lost after the create that is under way had said that it was whole.
    let mut bench = Bench::new();
    bench.step(Event::Connected { session: S });
    assert_eq!(bench.step(Event::RegisterAnew { session: S }), []);
    let created = Event::RegistrationCreated { session: S, epoch: BrokerEpoch(70) };
    assert_eq!(bench.step(created), [Effect::ReadEpoch]);
    assert_eq!(bench.step(Event::RegisterAnew { session: S }), []);
    bench.step(Event::EpochRead { session: S, epoch: e(5), version: 8 });
    let follow = Effect::Follow { controller: BrokerId(1), epoch: e(6) };
    assert_eq!(bench.read(Some(OTHER), 6, 9), [follow, Effect::ReadRegistration]);
    bench.step(own(70));
    bench.step(Event::RegistrationDeleteTried { session: S });
    created_anew(&mut bench);
    assert_eq!(
        bench.read(Some(OTHER), 6, 9).last(),
        Some(&Effect::Follow { controller: BrokerId(1), epoch: e(6) }),
        "once"
    );
}

#[test]
fn r38_a_create_whose_answer_is_lost_is_found_by_its_epoch() {
    let mut bench = Bench::elected();
    bench.step(Event::RegisterAnew { session: S });
    bench.step(own(70));
    bench.step(Event::RegistrationDeleteTried { session: S });
    let gone = Event::RegistrationRead { session: S, node: None };
    assert_eq!(bench.step(gone), [Effect::CreateRegistration]);
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), [Effect::ReadRegistration]);
    assert_eq!(bench.step(own(80)), [Effect::ReadEpoch], "ours, and not the old one");
}

#[test]
fn the_loser_follows_and_races_again_when_the_node_goes() {
    let mut bench = Bench::racing();
    assert_eq!(bench.step(Event::RaceLost { session: S }), [Effect::ReadController]);
    let follow = Effect::Follow { controller: BrokerId(1), epoch: e(6) };
    assert_eq!(bench.read(Some(OTHER), 6, 9), [follow], "by session, not by the id in the node");
    assert_eq!(bench.step(Event::ControllerChanged { session: S }), [Effect::ReadController]);
    assert_eq!(bench.read(None, 6, 9), [Effect::Race { epoch: e(7), version: 9 }]);
}

#[test]
fn a_watch_that_fires_during_the_read_causes_another_read() {
    let mut bench = Bench::registered();
    assert_eq!(bench.step(Event::ControllerChanged { session: S }), []);
    let effects = bench.read(Some(OTHER), 6, 9);
    assert_eq!(effects.last(), Some(&Effect::ReadController));
}

#[test]
fn a_race_of_unknown_outcome_is_won_iff_node_and_epoch_say_so() {
    let mut bench = Bench::racing();
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), [Effect::ReadController]);
    assert_eq!(bench.read(Some(S), 6, 9), [Effect::BeginTerm { epoch: e(6), version: 9 }]);

    let mut bench = Bench::racing();
    bench.step(Event::OutcomeUnknown { session: S });
    assert_eq!(
        bench.read(None, 5, 8),
        [Effect::Race { epoch: e(6), version: 8 }],
        "not applied yet"
    );
    // The abandoned multi lands now, the second one meets it.
    assert_eq!(bench.step(Event::RaceLost { session: S }), [Effect::ReadController]);
    assert_eq!(bench.read(Some(S), 6, 9), [Effect::BeginTerm { epoch: e(6), version: 9 }]);

    let mut bench = Bench::racing();
    bench.step(Event::OutcomeUnknown { session: S });
    let effects = bench.read(Some(S), 7, 10);
    assert_eq!(
        effects,
        [Effect::Unregistered, Effect::Connect],
        "a newer epoch is somebody else's"
    );
}

#[test]
fn expiry_ends_everything_and_nothing_of_the_old_session_is_believed() {
    for event in [Event::Expired { session: S }, Event::HalfSessionAway { session: S }] {
        let mut bench = Bench::elected();
        bench.step(Event::Disconnected { session: S });
        let effects = bench.step(event);
        assert_eq!(effects, [Effect::EndTerm, Effect::Unregistered, Effect::Connect]);
        assert_eq!(bench.candidate.term(), None);
        assert_eq!(bench.step(Event::Expired { session: S }), []);
        assert_eq!(bench.step(Event::Connected { session: OTHER }), [Effect::CreateRegistration]);
        for late in [
            Event::RegistrationCreated { session: S, epoch: BrokerEpoch(71) },
            Event::RaceWon { session: S, epoch: e(6), version: 9 },
            Event::Reconnected { session: S },
            Event::Resigned { session: S },
            Event::OutcomeUnknown { session: S },
        ] {
            assert_eq!(bench.step(late), []);
        }
    }
}

#[test]
fn expiry_in_mid_race_forgets_the_attempt() {
    let mut bench = Bench::racing();
    assert_eq!(bench.step(Event::Expired { session: S }), [Effect::Unregistered, Effect::Connect]);
    bench.step(Event::Connected { session: OTHER });
    bench.step(Event::RegistrationCreated { session: OTHER, epoch: BrokerEpoch(71) });
    bench.step(Event::EpochRead { session: OTHER, epoch: e(6), version: 9 });
    // The old session's node is still there, under (e + 1, v + 1) of the forgotten race: somebody else's.
    let node = Some(ControllerNode { owner: S, broker: BrokerId(1), czxid: 30 });
    let read = Event::ControllerRead { session: OTHER, node, epoch: e(6), version: 9, mzxid: 30 };
    assert_eq!(bench.step(read), [Effect::Follow { controller: BrokerId(1), epoch: e(6) }]);
}

#[test]
fn a_disconnected_controller_pauses_and_resumes_only_after_it_verified_both_nodes() {
    let mut bench = Bench::elected();
    assert_eq!(bench.step(Event::Disconnected { session: S }), [Effect::Pause]);
    assert_eq!(bench.step(Event::Disconnected { session: S }), []);
    let back = Event::Reconnected { session: S };
    assert_eq!(bench.step(back.clone()), [Effect::ReadRegistration]);
    assert_eq!(bench.registration(S, MINE), [Effect::ReadController]);
    assert_eq!(bench.step(Event::Disconnected { session: S }), [], "paused already");
    assert_eq!(bench.read(Some(S), 6, 9), [], "not believed while disconnected");
    assert_eq!(bench.step(back), [Effect::ReadRegistration]);
    bench.registration(S, MINE);
    assert_eq!(bench.read(Some(S), 6, 9), [Effect::Resume]);
}

#[test]
fn a_controller_that_lost_its_nodes_while_away_does_not_resume() {
    let away = || {
        let mut bench = Bench::elected();
        bench.step(Event::Disconnected { session: S });
        bench.step(Event::Reconnected { session: S });
        bench
    };
    let over = [Effect::EndTerm, Effect::Unregistered, Effect::Connect];
    assert_eq!(away().step(Event::RegistrationRead { session: S, node: None }), over);
    assert_eq!(away().registration(OTHER, MINE), over);

    let mut bench = away();
    bench.registration(S, MINE);
    let follow = Effect::Follow { controller: BrokerId(1), epoch: e(7) };
    assert_eq!(bench.read(Some(OTHER), 7, 10), [Effect::EndTerm, follow]);

    let mut bench = away();
    bench.registration(S, MINE);
    assert_eq!(bench.read(Some(S), 7, 10), over, "ours, under a newer epoch");

    let mut bench = away();
    bench.registration(S, MINE);
    let race = Effect::Race { epoch: e(7), version: 9 };
    assert_eq!(bench.read(None, 6, 9), [Effect::EndTerm, race]);
}

#[test]
fn a_reconnection_in_mid_race_verifies_before_it_believes_the_outcome() {
    let mut bench = Bench::racing();
    assert_eq!(bench.step(Event::Disconnected { session: S }), []);
    assert_eq!(bench.step(Event::Reconnected { session: S }), []);
    let won = Event::RaceWon { session: S, epoch: e(6), version: 9 };
    assert_eq!(bench.step(won), [Effect::ReadRegistration]);
    assert_eq!(bench.registration(S, MINE), [Effect::ReadController]);
    assert_eq!(bench.read(Some(S), 6, 9), [Effect::BeginTerm { epoch: e(6), version: 9 }]);
}

#[test]
fn a_registration_whose_answer_was_lost_while_disconnected_is_read_again() {
    let mut bench = Bench::new();
    bench.step(Event::Connected { session: S });
    bench.step(Event::Disconnected { session: S });
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), []);
    assert_eq!(bench.step(Event::Reconnected { session: S }), [Effect::ReadRegistration]);
    assert_eq!(bench.registration(S, MINE), [Effect::ReadEpoch]);
}

#[test]
fn a_deleted_controller_node_ends_the_term_and_starts_a_race() {
    let mut bench = Bench::elected();
    assert_eq!(bench.step(Event::ControllerChanged { session: S }), [Effect::ReadController]);
    let race = Effect::Race { epoch: e(7), version: 9 };
    assert_eq!(bench.read(None, 6, 9), [Effect::EndTerm, race]);
}

#[test]
fn a_fenced_controller_reads_and_follows_or_leaves_its_session() {
    let resigned = || {
        let mut bench = Bench::elected();
        let effects = bench.step(Event::Resigned { session: S });
        assert_eq!(effects, [Effect::EndTerm, Effect::ReadController]);
        assert_eq!(bench.step(Event::Resigned { session: S }), []);
        bench
    };
    let follow = Effect::Follow { controller: BrokerId(1), epoch: e(7) };
    assert_eq!(resigned().read(Some(OTHER), 7, 10), [follow]);
    assert_eq!(resigned().read(None, 7, 10), [Effect::Race { epoch: e(8), version: 10 }]);
    for (epoch, version) in [(7, 10), (6, 9)] {
        let effects = resigned().read(Some(S), epoch, version);
        assert_eq!(effects, [Effect::Unregistered, Effect::Connect]);
    }
}

#[test]
fn own_registration_that_is_deleted_by_hand_is_noticed() {
    let mut bench = Bench::elected();
    assert_eq!(bench.step(Event::RegistrationGone { session: S }), [Effect::ReadRegistration]);
    let over = [Effect::EndTerm, Effect::Unregistered, Effect::Connect];
    assert_eq!(bench.step(Event::RegistrationRead { session: S, node: None }), over);
}

#[test]
fn an_answer_to_nothing_is_noted_and_ignored() {
    let mut bench = Bench::elected();
    let mut effects = Vec::new();
    bench.candidate.step(Event::RaceWon { session: S, epoch: e(9), version: 12 }, &mut effects);
    assert!(matches!(effects.as_slice(), [Effect::Note(_)]));
    assert_eq!(bench.candidate.term(), Some((e(6), 9)));
}

/// The part of ZooKeeper that the race needs.
#[derive(Default)]
struct Zk {
    zxid: i64,
    /// mzxid of the epoch node.
    elected: i64,
    epoch: (i32, i32),
    controller: Option<ControllerNode>,
    registered: [Option<RegistrationNode>; 3],
    expired: Vec<SessionId>,
}

impl Zk {
    fn end(&mut self, session: SessionId) {
        self.expired.push(session);
        self.controller = self.controller.filter(|n| n.owner != session);
        for node in &mut self.registered {
            *node = node.filter(|n| n.owner != session);
        }
    }

    /// Performs an order of broker `i` in `session`; `None`: it is no request.
    fn perform(&mut self, i: usize, session: SessionId, order: &Effect) -> Option<Event> {
        let (epoch, version) = (e(self.epoch.0), self.epoch.1);
        Some(match *order {
            Effect::CreateRegistration if self.registered[i].is_some() => {
                Event::RegistrationExists { session }
            }
            Effect::CreateRegistration => {
                self.zxid += 1;
                let epoch = BrokerEpoch(self.zxid);
                let directory = DirectoryId([i as u8; 16]);
                self.registered[i] =
                    Some(RegistrationNode { owner: session, epoch, version: 0, directory });
                Event::RegistrationCreated { session, epoch }
            }
            Effect::ReadRegistration => {
                Event::RegistrationRead { session, node: self.registered[i] }
            }
            Effect::DeleteRegistration { version } => {
                self.registered[i] = self.registered[i].filter(|n| n.version != version);
                Event::RegistrationDeleteTried { session }
            }
            Effect::ReadEpoch => Event::EpochRead { session, epoch, version },
            Effect::ReadController => {
                let (node, mzxid) = (self.controller, self.elected);
                Event::ControllerRead { session, node, epoch, version, mzxid }
            }
            Effect::DeleteController { version: expected } => {
                self.controller = self.controller.filter(|_| version != expected);
                Event::ControllerDeleteTried { session }
            }
            Effect::Race { epoch, version: expected } => {
                if self.controller.is_some() || version != expected {
                    return Some(Event::RaceLost { session });
                }
                self.zxid += 1;
                let broker = BrokerId(i32::try_from(i).unwrap());
                self.elected = self.zxid;
                self.controller = Some(ControllerNode { owner: session, broker, czxid: self.zxid });
                self.epoch = (epoch.0, version + 1);
                Event::RaceWon { session, epoch, version: version + 1 }
            }
            _ => return None,
        })
    }
}

/// One candidate with its shell.
struct Racer {
    candidate: Candidate,
    session: SessionId,
    order: Option<Effect>,
    term: Option<ControllerEpoch>,
}

fn xorshift(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap()
}

/// Three candidates over one store: random order, lost answers, expiries. Returns the terms that began.
fn race(seed: u64, faults: usize) -> Vec<ControllerEpoch> {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut zk = Zk::default();
    let mut terms: Vec<ControllerEpoch> = Vec::new();
    let mut sessions = 0;
    let mut racers: Vec<Racer> = (0..3)
        .map(|i| {
            let mut candidate = Candidate::new(BrokerId(i), DirectoryId([i as u8; 16]));
            let mut effects = Vec::new();
            candidate.start(&mut effects);
            Racer { candidate, session: SessionId(0), order: effects.pop(), term: None }
        })
        .collect();
    let mut faults = faults;
    let mut steps = 0;
    while racers.iter().any(|r| r.order.is_some()) || faults > 0 {
        steps += 1;
        assert!(steps < 10_000, "seed {seed}: no rest");
        let i = xorshift(&mut random) % 3;
        let fault = faults > 0 && xorshift(&mut random).is_multiple_of(8);
        faults -= usize::from(fault);
        let racer = &mut racers[i];
        let session = racer.session;
        let event = match racer.order.take() {
            Some(Effect::Connect) => {
                sessions += 1;
                racer.session = SessionId(sessions);
                Event::Connected { session: racer.session }
            }
            order if fault && xorshift(&mut random).is_multiple_of(2) => {
                drop(order); // never sent
                zk.end(session);
                Event::Expired { session }
            }
            Some(order) if fault => {
                if xorshift(&mut random).is_multiple_of(2) {
                    zk.perform(i, session, &order);
                }
                Event::OutcomeUnknown { session }
            }
            Some(order) => zk.perform(i, session, &order).unwrap(),
            None => Event::ControllerChanged { session },
        };
        let mut effects = Vec::new();
        racer.candidate.step(event, &mut effects);
        for effect in effects {
            match effect {
                Effect::BeginTerm { epoch, .. } => {
                    assert!(!terms.contains(&epoch), "seed {seed}: two terms of epoch {epoch}");
                    assert!(terms.last().is_none_or(|last| *last < epoch));
                    terms.push(epoch);
                    racer.term = Some(epoch);
                }
                Effect::EndTerm => racer.term = None,
                Effect::Connect => {
                    zk.end(racer.session);
                    racer.order = Some(Effect::Connect);
                }
                Effect::Note(_)
                | Effect::Registered { .. }
                | Effect::Unregistered
                | Effect::Follow { .. }
                | Effect::Pause
                | Effect::Resume => {}
                order => {
                    assert_eq!(racer.order.replace(order), None, "one request at a time");
                }
            }
        }
        // Whoever lives under an ended /controller hears its watch.
        if zk.controller.is_none() {
            for racer in &mut racers {
                if racer.order.is_none() {
                    let mut effects = Vec::new();
                    let changed = Event::ControllerChanged { session: racer.session };
                    racer.candidate.step(changed, &mut effects);
                    if effects.contains(&Effect::EndTerm) {
                        racer.term = None;
                    }
                    racer.order = effects.into_iter().find(|e| *e == Effect::ReadController);
                }
            }
        }
    }
    let holders: Vec<_> = racers.iter().filter(|r| r.term == Some(e(zk.epoch.0))).collect();
    assert_eq!(holders.len(), 1, "seed {seed}: one controller of the newest epoch");
    assert_eq!(zk.controller.map(|n| n.owner), Some(holders[0].session));
    assert!(zk.registered.iter().zip(&racers).all(|(n, r)| n.unwrap().owner == r.session));
    terms
}

#[test]
fn a_hundred_simultaneous_starts_elect_exactly_one_controller() {
    for seed in 1..=100 {
        assert_eq!(race(seed, 0), [e(1)], "one term, controller epoch + 1");
    }
}

#[test]
fn races_with_lost_answers_and_expiries_never_begin_one_epoch_twice() {
    let mut elections = 0;
    for seed in 1..=2_000 {
        elections += race(seed, 12).len();
    }
    assert!(elections > 3_000, "the faults do cause elections: {elections}");
}

#[test]
fn own_registration_that_is_deleted_during_a_request_is_noticed_after_it() {
    let mut bench = Bench::registered();
    assert_eq!(bench.step(Event::RegistrationGone { session: S }), []);
    assert_eq!(bench.read(Some(OTHER), 5, 8), [Effect::ReadRegistration]);
    let over = [Effect::Unregistered, Effect::Connect];
    assert_eq!(bench.step(Event::RegistrationRead { session: S, node: None }), over);
}

#[test]
fn r17_a_suspected_controller_is_deposed_at_the_version_of_its_election_and_the_race_goes_on() {
    let mut bench = Bench::following();
    assert_eq!(bench.suspect(OTHER, 10), [Effect::DeleteController { version: 8 }]);
    assert_eq!(bench.suspect(OTHER, 11), [], "one request at a time");
    let tried = Event::ControllerDeleteTried { session: S };
    assert_eq!(bench.step(tried), [Effect::ReadController]);
    assert_eq!(bench.read(None, 5, 8), [Effect::Race { epoch: e(6), version: 8 }]);
}

#[test]
fn r17_a_controller_whose_election_is_not_known_exactly_is_not_deposed() {
    let mut bench = Bench::registered();
    // Between the two reads somebody else was elected: version 9 is that one's.
    bench.read_between(Some(OTHER), 6, 9, 31);
    assert_eq!(bench.suspect(OTHER, 10), []);
    assert_eq!(Bench::following().suspect(SessionId(0x98), 10), [], "another owner is suspected");
    assert_eq!(Bench::elected().suspect(S, 10), [], "nobody suspects itself");
    let mut away = Bench::following();
    away.step(Event::Disconnected { session: S });
    assert_eq!(away.suspect(OTHER, 10), []);
}

#[test]
fn r17_a_deposition_of_unknown_outcome_is_read_before_anything_else_happens() {
    let mut bench = Bench::following();
    bench.suspect(OTHER, 10);
    assert_eq!(bench.step(Event::OutcomeUnknown { session: S }), [Effect::ReadController]);
    let follow = Effect::Follow { controller: BrokerId(1), epoch: e(6) };
    assert_eq!(bench.read(Some(OTHER), 6, 9), [follow]);
}

#[test]
fn r17_controllers_are_deposed_so_often_and_no_more() {
    let mut bench = Bench::following();
    let deposes = |bench: &mut Bench, now_ms: u64| {
        let ordered = !bench.suspect(OTHER, now_ms).is_empty();
        if ordered {
            bench.step(Event::ControllerDeleteTried { session: S });
            bench.read(Some(OTHER), 5, 8);
        }
        ordered
    };
    let made = (0..10).filter(|i| deposes(&mut bench, 100 + i)).count();
    assert_eq!(u32::try_from(made), Ok(DEPOSITIONS_MAX));
    assert!(deposes(&mut bench, 100 + DEPOSITIONS_WINDOW_MS), "later again");
}

#[test]
fn a_restarted_controller_deletes_what_its_dead_incarnation_left_and_nothing_else() {
    let restarted = || {
        let mut bench = Bench::new();
        bench.step(Event::Connected { session: S });
        bench.step(Event::RegistrationExists { session: S });
        let delete = Effect::DeleteRegistration { version: 4 };
        assert_eq!(bench.registration(OTHER, MINE), [delete]);
        bench.step(Event::RegistrationDeleteTried { session: S });
        bench.step(Event::RegistrationRead { session: S, node: None });
        bench.step(Event::RegistrationCreated { session: S, epoch: BrokerEpoch(80) });
        bench.step(Event::EpochRead { session: S, epoch: e(5), version: 8 });
        bench
    };
    let mut bench = restarted();
    assert_eq!(bench.read(Some(OTHER), 5, 8), [Effect::DeleteController { version: 8 }]);
    let tried = Event::ControllerDeleteTried { session: S };
    assert_eq!(bench.step(tried), [Effect::ReadController]);
    let follow = |epoch| Effect::Follow { controller: BrokerId(1), epoch: e(epoch) };
    assert_eq!(bench.read(Some(OTHER), 5, 8), [follow(5)], "once");
    // The node of the dead incarnation, but the epoch of a later election; and a stranger's node.
    assert_eq!(restarted().read_between(Some(OTHER), 6, 9, 31), [follow(6)]);
    assert_eq!(restarted().read(Some(SessionId(0x98)), 5, 8), [follow(5)]);
}
