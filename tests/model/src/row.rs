//! A row: the bounds and settings under which every interleaving is explored, written as `rec=1 pc=1 su=1 isr=3`.

use barnabas_types::{Acks, FlushMode};

use crate::mutation::Mutation;
use crate::properties::{self, Invariant};
use crate::world::BROKERS;

/// How far an operator's first wish has come when a row begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Begun {
    /// `begun=0`: nobody has asked yet.
    Nothing,
    /// `begun=1`: everybody knows of it.
    Known,
    /// `begun=2`: who is being added is in the ISR too.
    Joined,
    /// `begun=3`: and was there when a record was acknowledged, and is not any more.
    Left,
}

impl Begun {
    const ALL: [Self; 4] = [Self::Nothing, Self::Known, Self::Joined, Self::Left];
}

/// Bounds and settings of one exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// `rec`: records produced, at most [`crate::world::RECORDS_MAX`].
    pub records: u8,
    /// `pc`: process crashes.
    pub process_crashes: u8,
    /// `hc`: crashes of one host.
    pub host_crashes: u8,
    /// `all`: crashes of all hosts at once.
    pub crashes_of_all: u8,
    /// `su`: live brokers that the controller takes for gone.
    pub suspicions: u8,
    /// `rr`: sessions of live brokers that expire.
    pub expiries: u8,
    /// `te`: terms; the first goes on beside the second.
    pub terms: u8,
    /// `al`: ISR proposals that reach the net.
    pub proposals: u8,
    /// `epochs`: leader epochs; a step that would need a further one is left out.
    pub epochs: u8,
    /// `min`: `min.insync.replicas`.
    pub min_insync: u8,
    /// `isr`: bit mask of the first ISR.
    pub isr: u8,
    /// `sync=1`: `flush.mode`.
    pub flush_mode: FlushMode,
    /// `acks=1`: what the producers ask for, else all.
    pub acks: Acks,
    /// `unclean=1`: `unclean.leader.election.enable`.
    pub unclean: bool,
    /// `lost=1`: answers to fetches may be lost.
    pub lost_answers: bool,
    /// `told=0`: brokers never say that they may have lost the tail of their log (R6 is off).
    pub tail_loss_told: bool,
    /// `late=1`: a controller's write may land late.
    pub late_writes: bool,
    /// `heal=N`: every Nth state must heal by itself (I12); 0: none.
    pub heal: u32,
    /// `ar`: bit mask of the brokers that hold the partition at first.
    pub assigned: u8,
    /// `tgt`: bit mask of the brokers to which it is moved; the way back leads to `ar`.
    pub target: u8,
    /// `mv`: wishes of an operator to move it.
    pub moves: u8,
    /// `sd`: brokers that want to stop.
    pub stops: u8,
    /// `sdto=1`: they may stop without leave.
    pub stops_anyway: bool,
    /// `av=1`: nothing else happens, not even lag, so that a leader and enough members must be there at any time.
    pub available: bool,
    /// `del`: times that the topic is deleted; it is made again.
    pub lives: u8,
    /// `net`: fetches and answers under way at once; 0: each is answered at once.
    pub messages: u8,
    /// `dr`: deletions of records that a client asks for.
    pub deletions: u8,
    /// `ret`: runs of retention on any broker.
    pub retentions: u8,
    /// `ff`: syncs that fail.
    pub failed_syncs: u8,
    /// `set`: changes of `flush.mode` from async to sync.
    pub switches: u8,
    /// `uncl`: unclean elections by an operator.
    pub unclean_elections: u8,
    /// `begun`: how far the operator's first wish (the move to `tgt`, or sync mode) has come when the row begins.
    pub begun: Begun,
    /// `fork=1`: the row begins when the second member of the first ISR leads, and the first follows it with a record of its own.
    pub forked: bool,
    /// `shown=1`: an operator who elects uncleanly may have been shown the partition as it was earlier.
    pub shown_earlier: bool,
    /// `only=I6`: only the invariant of that name is asked about; by index.
    pub only: Option<usize>,
    /// `+name`: a rule is broken.
    pub mutation: Option<Mutation>,
}

impl Row {
    /// What holds where a row says nothing.
    pub const UNSAID: Self = Self {
        records: 1,
        process_crashes: 0,
        host_crashes: 0,
        crashes_of_all: 0,
        suspicions: 0,
        expiries: 0,
        terms: 1,
        proposals: 0,
        epochs: 4,
        min_insync: 1,
        isr: 0b111,
        flush_mode: FlushMode::Async,
        acks: Acks::All,
        unclean: false,
        lost_answers: false,
        tail_loss_told: true,
        late_writes: false,
        heal: 0,
        assigned: 0b111,
        target: 0b111,
        moves: 0,
        stops: 0,
        stops_anyway: false,
        available: false,
        lives: 0,
        messages: 0,
        deletions: 0,
        retentions: 0,
        failed_syncs: 0,
        switches: 0,
        unclean_elections: 0,
        begun: Begun::Nothing,
        forked: false,
        shown_earlier: false,
        only: None,
        mutation: None,
    };
}

impl Default for Row {
    fn default() -> Self {
        Self::UNSAID
    }
}

impl Row {
    /// Reads `key=value` words.
    ///
    /// # Errors
    /// What is wrong with which word.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut row = Self::default();
        for word in text.split_whitespace() {
            if let Some(name) = word.strip_prefix('+') {
                let named = Mutation::named(name);
                row.mutation = Some(named.ok_or_else(|| format!("no mutation '{name}'"))?);
                continue;
            }
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("'{word}': KEY=VALUE"))?;
            if key == "only" {
                let of_that_name = |(name, _): &Invariant| name.split(' ').next() == Some(value);
                let found = properties::ALL.iter().position(of_that_name);
                row.only = Some(found.ok_or_else(|| format!("no invariant '{value}'"))?);
                continue;
            }
            let number: u32 = value.parse().map_err(|_| format!("'{word}': not a number"))?;
            let small = u8::try_from(number).map_err(|_| format!("'{word}': at most 255"))?;
            row.set(key, small, number).ok_or_else(|| format!("no key '{key}'"))?;
        }
        if usize::from(row.records) > crate::world::RECORDS_MAX {
            return Err("too many records".to_owned());
        }
        let all = (1 << BROKERS) - 1;
        if row.isr == 0 || row.isr & !row.assigned != 0 || (row.assigned | row.target) & !all != 0 {
            return Err(
                "the first ISR has a member, all hold the partition, and are brokers".to_owned()
            );
        }
        Ok(row)
    }

    fn set(&mut self, key: &str, small: u8, number: u32) -> Option<()> {
        let switch = small == 1;
        match key {
            "rec" => self.records = small,
            "pc" => self.process_crashes = small,
            "hc" => self.host_crashes = small,
            "all" => self.crashes_of_all = small,
            "su" => self.suspicions = small,
            "rr" => self.expiries = small,
            "te" => self.terms = small,
            "al" => self.proposals = small,
            "epochs" => self.epochs = small,
            "min" => self.min_insync = small,
            "isr" => self.isr = small,
            "sync" => self.flush_mode = if switch { FlushMode::Sync } else { FlushMode::Async },
            "acks" => self.acks = if switch { Acks::Leader } else { Acks::All },
            "unclean" => self.unclean = switch,
            "lost" => self.lost_answers = switch,
            "told" => self.tail_loss_told = switch,
            "late" => self.late_writes = switch,
            "heal" => self.heal = number,
            "ar" => {
                self.assigned = small;
                self.isr &= small;
            }
            "tgt" => self.target = small,
            "mv" => self.moves = small,
            "sd" => self.stops = small,
            "sdto" => self.stops_anyway = switch,
            "av" => self.available = switch,
            "del" => self.lives = small,
            "net" => self.messages = small,
            "dr" => self.deletions = small,
            "ret" => self.retentions = small,
            "ff" => self.failed_syncs = small,
            "set" => self.switches = small,
            "begun" => self.begun = Begun::ALL.get(usize::from(small)).copied()?,
            "fork" => self.forked = switch,
            "shown" => self.shown_earlier = switch,
            "uncl" => self.unclean_elections = small,
            _ => return None,
        }
        Some(())
    }

    /// The brokers that ever hold the partition, as a bit mask.
    #[must_use]
    pub fn holders(&self) -> u8 {
        if self.moves > 0 { self.assigned | self.target } else { self.assigned }
    }

    /// Whether replicas are deleted.
    #[must_use]
    pub fn deletes(&self) -> bool {
        self.moves > 0 || self.lives > 0
    }

    /// Whether this rule is broken.
    #[must_use]
    pub fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
