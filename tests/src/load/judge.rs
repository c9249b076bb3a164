//! What became of the records of a load: lost, doubled, out of order, elsewhere, never sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::{Account, Acked, Target, value};
use crate::{Outcome, kcat};

/// What became of acknowledged records.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Acknowledged.
    pub acked: u64,
    /// Acknowledged and not there.
    pub lost: u64,
    /// There, at another offset than the last acknowledgement said.
    pub misplaced: u64,
    /// Read with other bytes than were sent, or never sent.
    pub phantom: u64,
    /// Records of idempotent producers that are there more than once.
    pub duplicated: u64,
    /// Records that stand behind one that the same producer sent later.
    pub reordered: u64,
    /// How often idempotent producers began anew.
    pub restarts: u64,
    /// Offsets of lost records by partition, with the time of their acknowledgement.
    pub lost_offsets: BTreeMap<i32, Vec<(i64, Instant)>>,
}

impl Verdict {
    /// Records that should not be as they are, beside the lost ones.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.misplaced + self.phantom + self.duplicated + self.reordered
    }

    /// Whether every promise of acks=all held, and those to idempotent producers.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.lost + self.wrong() + self.restarts == 0
    }

    /// The numbers, and where the first lost records of each partition were.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { acked, lost, misplaced, phantom, duplicated, reordered, restarts, .. } = self;
        let first: BTreeMap<_, Vec<_>> = self
            .lost_offsets
            .iter()
            .map(|(partition, lost)| (partition, lost.iter().take(3).map(|(at, _)| at).collect()))
            .collect();
        format!(
            "{acked} acknowledged, {lost} lost (by partition, the first at {first:?}), {misplaced} misplaced, {phantom} \
             phantom, {duplicated} duplicated, {reordered} reordered, {restarts} began anew"
        )
    }

    /// Adds up two topics, or two loads; what was lost where is not kept.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            acked: self.acked + other.acked,
            lost: self.lost + other.lost,
            misplaced: self.misplaced + other.misplaced,
            phantom: self.phantom + other.phantom,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            restarts: self.restarts + other.restarts,
            lost_offsets: BTreeMap::new(),
        }
    }
}

/// Takes batches of which a record is lost out of what is judged again.
pub fn forget(accounts: &mut [Account], verdict: &Verdict) {
    for account in accounts {
        let Some(lost) = verdict.lost_offsets.get(&account.partition) else { continue };
        let hit = |batch: &Acked| {
            (0..batch.count as i64).any(|n| {
                lost.binary_search_by_key(&(batch.offset + n), |(offset, _)| *offset).is_ok()
            })
        };
        account.acked.retain(|batch| !hit(batch));
    }
}

/// Reads the whole topic and compares.
///
/// # Errors
/// It cannot be read.
pub fn judge(target: &Target, accounts: &[Account]) -> Outcome<Verdict> {
    judge_beside(target, accounts, &BTreeSet::new())
}

/// The same where others sent `known` values, too.
///
/// # Errors
/// It cannot be read.
pub fn judge_beside(
    target: &Target,
    accounts: &[Account],
    known: &BTreeSet<Vec<u8>>,
) -> Outcome<Verdict> {
    let mut found: BTreeMap<(usize, u64), BTreeSet<i64>> = BTreeMap::new();
    let mut verdict = Verdict::default();
    let arguments =
        ["-C", "-t", &target.topic, "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"];
    let output =
        kcat::run(&target.bootstrap, &[&arguments[..], &["-f", "%p %o %s\\n"]].concat(), b"")?;
    if !output.status.success() {
        return Err(format!("kcat: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match parse(line) {
            Some((partition, offset, producer, n))
                if accounts.iter().any(|account| {
                    account.producer == producer && account.partition == partition
                }) =>
            {
                found.entry((producer, n)).or_default().insert(offset);
            }
            // `partition offset value`
            _ => {
                let value = line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
                verdict.phantom += u64::from(!known.contains(value));
            }
        }
    }
    let promised = |producer: &usize| {
        accounts.iter().any(|account| account.producer == *producer && account.acks_all)
    };
    found.retain(|(producer, _), _| promised(producer));
    verdict.reordered = reordered(&found);
    for account in accounts.iter().filter(|account| account.acks_all) {
        verdict.restarts += account.restarts;
        for batch in &account.acked {
            for n in 0..batch.count {
                let offset = batch.offset + i64::try_from(n)?;
                verdict.acked += 1;
                match found.get(&(account.producer, batch.first + n)) {
                    None => {
                        verdict.lost += 1;
                        let lost = verdict.lost_offsets.entry(account.partition).or_default();
                        lost.push((offset, batch.at));
                    }
                    Some(offsets) => {
                        verdict.misplaced += u64::from(!offsets.contains(&offset));
                        if account.idempotent {
                            verdict.duplicated += offsets.len() as u64 - 1;
                        }
                    }
                }
            }
        }
    }
    verdict.lost_offsets.values_mut().for_each(|lost| lost.sort());
    Ok(verdict)
}

/// Of each producer's records in the order in which they were sent: how many stand, first copy each, before an earlier one.
fn reordered(found: &BTreeMap<(usize, u64), BTreeSet<i64>>) -> u64 {
    let mut behind = 0;
    let mut last: Option<(usize, i64)> = None;
    for ((producer, _), offsets) in found {
        let Some(first) = offsets.first() else { continue };
        match last {
            Some((of, greatest)) if of == *producer && *first < greatest => behind += 1,
            _ => last = Some((*producer, *first)),
        }
    }
    behind
}

/// Partition, offset, producer and number of a line that kcat printed, if the value is the one that was sent.
fn parse(line: &[u8]) -> Option<(i32, i64, usize, u64)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.splitn(3, ' ');
    let (partition, offset) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let sent = words.next()?;
    let mut parts = sent.splitn(3, ':');
    let (producer, n) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (value(producer, n) == sent.as_bytes()).then_some((partition, offset, producer, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_copy_behind_a_later_record_is_reordered() {
        let offsets = |offsets: &[i64]| offsets.iter().copied().collect::<BTreeSet<_>>();
        let mut found = BTreeMap::from([
            ((0, 0), offsets(&[4, 9])),
            ((0, 1), offsets(&[5])),
            ((0, 2), offsets(&[7])),
            ((1, 0), offsets(&[1])),
            ((1, 1), offsets(&[2])),
        ]);
        assert_eq!(reordered(&found), 0);
        found.insert((0, 1), offsets(&[8]));
        assert_eq!(reordered(&found), 1);
    }
}
