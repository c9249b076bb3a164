//! A row: the bounds and settings under which every interleaving is explored, written as `rec=1 pc=1 su=1 isr=3`.

use barnabas_types::{Acks, FlushMode};

use crate::mutation::Mutation;
use crate::world::BROKERS;

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
    /// `+name`: a rule is broken.
    pub mutation: Option<Mutation>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
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
            mutation: None,
        }
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
            let number: u32 = value.parse().map_err(|_| format!("'{word}': not a number"))?;
            let small = u8::try_from(number).map_err(|_| format!("'{word}': at most 255"))?;
            match key {
                "rec" => row.records = small,
                "pc" => row.process_crashes = small,
                "hc" => row.host_crashes = small,
                "all" => row.crashes_of_all = small,
                "su" => row.suspicions = small,
                "rr" => row.expiries = small,
                "te" => row.terms = small,
                "al" => row.proposals = small,
                "epochs" => row.epochs = small,
                "min" => row.min_insync = small,
                "isr" => row.isr = small,
                "sync" => {
                    row.flush_mode = if small == 1 { FlushMode::Sync } else { FlushMode::Async }
                }
                "acks" => row.acks = if small == 1 { Acks::Leader } else { Acks::All },
                "unclean" => row.unclean = small == 1,
                "lost" => row.lost_answers = small == 1,
                "told" => row.tail_loss_told = small == 1,
                "late" => row.late_writes = small == 1,
                "heal" => row.heal = number,
                _ => return Err(format!("no key '{key}'")),
            }
        }
        if usize::from(row.records) > crate::world::RECORDS_MAX {
            return Err("too many records".to_owned());
        }
        if row.isr & 1 == 0 || row.isr >= 1 << BROKERS {
            return Err("the first ISR has broker 1, which leads".to_owned());
        }
        Ok(row)
    }

    /// Whether this rule is broken.
    #[must_use]
    pub fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
