//! Who may be connected: places for all (`max.connections`) and for each address (`max.connections.per.ip`), and what is known
//! of those who are.
//!
//! Who finds no place is let in for a moment all the same: followers must not be shut out by clients, and only the first
//! request tells who is who. If that one is not a follower's, the connection ends. Followers take no client's place.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::out::Out;

/// Connections without a place that may show at once that they are followers'.
pub(super) const PROBATION_MAX: usize = 32;
/// How long they have for that.
pub(super) const PROBATION: Duration = Duration::from_secs(2);
/// Connections for each broker that may follow: the one in use, and what is left of earlier ones until that is noticed.
const FOLLOWER_CONNECTIONS_MAX: usize = 8;
/// Least time between two log lines about refused connections.
const REFUSED_EVERY: Duration = Duration::from_secs(10);
/// Share of the process's file descriptors that connections may have; the rest is for logs, the other ports and ZooKeeper.
const DESCRIPTOR_SHARE: u64 = 2;

/// How many connections there may be, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// `max.connections`.
    pub max: usize,
    /// `max.connections.per.ip`.
    pub per_ip_max: usize,
    /// `max.connections.per.ip.overrides`.
    pub per_ip_overrides: BTreeMap<IpAddr, usize>,
    /// `connections.max.idle.ms`.
    pub idle_max: Duration,
    /// `queued.max.request.bytes`.
    pub queued_max_bytes: usize,
}

/// The connections of one listener.
pub struct Places {
    limits: ConnectionLimits,
    /// How many files the process may open now.
    descriptors: fn() -> u64,
    began: Instant,
    taken: Mutex<Taken>,
    refused: AtomicU64,
}

#[derive(Default)]
struct Taken {
    clients: usize,
    followers: usize,
    probation: usize,
    by_address: BTreeMap<IpAddr, usize>,
    live: BTreeMap<u64, Weak<Live>>,
    next: u64,
    /// When it was last logged that somebody was refused.
    told: Option<Instant>,
}

/// What is known of one connection.
struct Live {
    out: Arc<Out>,
    /// Since the broker began.
    active_ms: AtomicU64,
    is_follower: AtomicBool,
}

/// One connection's place, given back when it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
    kind: Kind,
    number: u64,
    live: Option<Arc<Live>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Client,
    Follower,
    Probation,
}

/// How many connections there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Of clients.
    pub clients: usize,
    /// Of followers.
    pub followers: usize,
    /// Most of clients.
    pub max: usize,
    /// Refused since the start, because there were too many.
    pub refused: u64,
}

/// Which limit a connection met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    All,
    Address,
}

impl Places {
    /// For a process that may open as many files as `descriptors` says; asked for each connection, since it may change.
    #[must_use]
    pub fn new(limits: ConnectionLimits, descriptors: fn() -> u64) -> Arc<Self> {
        let places = Self {
            limits,
            descriptors,
            began: Instant::now(),
            taken: Mutex::default(),
            refused: AtomicU64::new(0),
        };
        let max = places.max();
        if max < places.limits.max {
            tracing::warn!(
                target: "request", max,
                "max.connections is {}, but the process may open too few files for that: {max} are accepted; raise LimitNOFILE (ulimit -n)",
                places.limits.max
            );
        }
        Arc::new(places)
    }

    /// `max.connections`, or less if there are too few descriptors.
    fn max(&self) -> usize {
        let share = usize::try_from((self.descriptors)() / DESCRIPTOR_SHARE).unwrap_or(usize::MAX);
        self.limits.max.min(share.saturating_sub(PROBATION_MAX).max(1))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a connection may be silent.
    pub(super) fn idle_max(&self) -> Duration {
        self.limits.idle_max
    }

    /// How many there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let taken = self.lock();
        Counts {
            clients: taken.clients,
            followers: taken.followers,
            max: self.max(),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// A place for a connection from `address`; `None`: close it.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut taken = self.lock();
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        let overridden = self.limits.per_ip_overrides.get(&address).copied();
        let met = if taken.clients >= self.max() {
            Some(Met::All)
        } else if of_address >= overridden.unwrap_or(self.limits.per_ip_max) {
            Some(Met::Address)
        } else {
            None
        };
        let kind = match met {
            None => Kind::Client,
            Some(_) if taken.probation < PROBATION_MAX => Kind::Probation,
            Some(met) => {
                drop(taken);
                self.refused(address, met);
                return None;
            }
        };
        taken.count(kind, address);
        taken.next += 1;
        let number = taken.next;
        drop(taken);
        Some(Place { places: self.clone(), address, kind, number, live: None })
    }

    fn refused(&self, address: IpAddr, met: Met) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let mut taken = self.lock();
        if taken.told.is_some_and(|told| told.elapsed() < REFUSED_EVERY) {
            return;
        }
        taken.told = Some(Instant::now());
        let clients = taken.clients;
        drop(taken);
        let (key, max) = match met {
            Met::All => ("max.connections", self.max()),
            Met::Address => (
                "max.connections.per.ip (or .overrides)",
                *self.limits.per_ip_overrides.get(&address).unwrap_or(&self.limits.per_ip_max),
            ),
        };
        tracing::warn!(
            target: "request", %address, clients, refused,
            "a connection was refused: {key} allows {max}; raise it, or find out who opens so many"
        );
    }

    /// Milliseconds since the broker began.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends the clients' connections on which nothing came for `connections.max.idle.ms` and nothing is owed. Returns how many.
    pub(super) fn end_idle(&self) -> usize {
        let live: Vec<Arc<Live>> = self.lock().live.values().filter_map(Weak::upgrade).collect();
        let now_ms = self.now_ms();
        let idle_max_ms = u64::try_from(self.limits.idle_max.as_millis()).unwrap_or(u64::MAX);
        let mut ended = 0;
        for live in live {
            let idle_ms = now_ms.saturating_sub(live.active_ms.load(Ordering::Relaxed));
            let is_follower = live.is_follower.load(Ordering::Relaxed);
            if idle_ms > idle_max_ms && !is_follower && !live.out.is_busy() {
                live.out.close();
                ended += 1;
            }
        }
        ended
    }
}

impl Taken {
    fn of_kind(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Client => &mut self.clients,
            Kind::Follower => &mut self.followers,
            Kind::Probation => &mut self.probation,
        }
    }

    fn count(&mut self, kind: Kind, address: IpAddr) {
        *self.of_kind(kind) += 1;
        if kind == Kind::Client {
            *self.by_address.entry(address).or_default() += 1;
        }
    }

    fn uncount(&mut self, kind: Kind, address: IpAddr) {
        *self.of_kind(kind) -= 1;
        if kind == Kind::Client
            && let Some(count) = self.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Place {
    /// The connection lives: it is ended when it is idle.
    pub(super) fn lives(&mut self, out: &Arc<Out>) {
        let active_ms = AtomicU64::new(self.places.now_ms());
        let live =
            Arc::new(Live { out: out.clone(), active_ms, is_follower: AtomicBool::new(false) });
        self.places.lock().live.insert(self.number, Arc::downgrade(&live));
        self.live = Some(live);
    }

    /// Something came, or was answered.
    pub(super) fn is_active(&self) {
        if let Some(live) = &self.live {
            live.active_ms.store(self.places.now_ms(), Ordering::Relaxed);
        }
    }

    /// Whether only a follower may stay.
    pub(super) fn is_on_probation(&self) -> bool {
        self.kind == Kind::Probation
    }

    /// Whether it is spared the limits of clients.
    pub(super) fn is_followers(&self) -> bool {
        self.kind == Kind::Follower
    }

    /// The first request is a client's: there was no place for one.
    pub(super) fn refuse(&self) {
        let met = match self.places.lock().clients >= self.places.max() {
            true => Met::All,
            false => Met::Address,
        };
        self.places.refused(self.address, met);
    }

    /// It is a follower's connection, if so many brokers may have one more; otherwise it stays what it was.
    pub(super) fn becomes_followers(&mut self, brokers: usize) {
        if self.is_followers() {
            return;
        }
        let mut taken = self.places.lock();
        if taken.followers >= brokers * FOLLOWER_CONNECTIONS_MAX {
            return;
        }
        taken.uncount(self.kind, self.address);
        self.kind = Kind::Follower;
        taken.count(self.kind, self.address);
        drop(taken);
        if let Some(live) = &self.live {
            live.is_follower.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.uncount(self.kind, self.address);
        taken.live.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ConnectionLimits {
        ConnectionLimits {
            max: 4,
            per_ip_max: 2,
            per_ip_overrides: BTreeMap::from([(ip(9), 3)]),
            idle_max: Duration::from_secs(600),
            queued_max_bytes: 1 << 20,
        }
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn places_are_counted_for_all_and_for_each_address_and_given_back() {
        let places = Places::new(limits(), || 1 << 20);
        let take = |address| places.take(address).unwrap();
        let first = [take(ip(1)), take(ip(1))];
        assert!(take(ip(1)).is_on_probation(), "the third of its address");
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(take(mapped).is_on_probation(), "the same address in other words");
        let second = [take(ip(9)), take(ip(9))];
        assert!(second.iter().all(|place| !place.is_on_probation()));
        assert!(take(ip(2)).is_on_probation(), "there are four");
        assert_eq!(places.counts().clients, 4);
        drop((first, second));
        assert_eq!((places.counts().clients, places.lock().by_address.len()), (0, 0));
        let three = [take(ip(9)), take(ip(9)), take(ip(9))];
        assert!(three.iter().all(|place| !place.is_on_probation()), "it may have three");
        assert!(take(ip(9)).is_on_probation());
    }

    #[test]
    fn who_finds_no_place_may_show_that_it_is_a_follower_and_never_are_there_many() {
        let places = Places::new(limits(), || 1 << 20);
        let clients: Vec<Place> = (1..5).map(|last| places.take(ip(last)).unwrap()).collect();
        let mut waiting: Vec<Place> =
            (0..PROBATION_MAX).map(|_| places.take(ip(7)).unwrap()).collect();
        assert!(places.take(ip(7)).is_none());
        assert_eq!(places.counts().refused, 1);
        waiting[0].becomes_followers(3);
        let counts = places.counts();
        assert_eq!((counts.clients, counts.followers), (4, 1));
        assert!(places.take(ip(7)).is_some_and(|place| place.is_on_probation()));
        drop((clients, waiting));
        assert_eq!((places.counts().clients, places.counts().followers), (0, 0));
    }

    #[test]
    fn a_client_that_turns_out_to_be_a_follower_gives_its_place_back() {
        let places = Places::new(limits(), || 1 << 20);
        let mut place = places.take(ip(1)).unwrap();
        place.becomes_followers(3);
        place.becomes_followers(3);
        assert_eq!((places.counts().clients, places.counts().followers), (0, 1));
    }

    #[test]
    fn whoever_says_that_it_follows_is_counted_once_the_brokers_have_their_connections() {
        let limits = ConnectionLimits { max: 1_000, per_ip_max: 1_000, ..limits() };
        let places = Places::new(limits, || 1 << 20);
        let mut taken: Vec<Place> = (0..20).map(|_| places.take(ip(1)).unwrap()).collect();
        taken.iter_mut().for_each(|place| place.becomes_followers(2));
        let counts = places.counts();
        assert_eq!((counts.clients, counts.followers), (4, 16));
        let mut alone = places.take(ip(1)).unwrap();
        alone.becomes_followers(0);
        assert_eq!(places.counts().clients, 5, "no broker is known that could follow");
    }

    #[test]
    fn half_of_the_descriptors_are_kept_for_logs() {
        let places = Places::new(ConnectionLimits { max: 10_000, ..limits() }, || 256);
        assert_eq!(places.counts().max, 128 - PROBATION_MAX);
    }

    #[tokio::test]
    async fn silent_clients_are_ended_unless_they_are_owed_an_answer_or_follow() {
        let idle_max = Duration::ZERO;
        let places = Places::new(ConnectionLimits { idle_max, ..limits() }, || 1 << 20);
        let mut connections = Vec::new();
        for last in 1..4 {
            let (out, client) = crate::testing::connection().await;
            let mut place = places.take(ip(last)).unwrap();
            place.lives(&out);
            connections.push((place, out, client));
        }
        connections[1].1.reserve();
        connections[2].0.becomes_followers(3);
        let began = Instant::now();
        while places.end_idle() == 0 {
            assert!(began.elapsed() < Duration::from_secs(10));
            tokio::task::yield_now().await;
        }
        let closed: Vec<bool> = connections.iter().map(|(_, out, _)| out.is_closed()).collect();
        assert_eq!(closed, [true, false, false]);
    }
}
