//! Seeded runs of many clients, a log that answers late, out of order or not at all, and coordinators that change: the
//! invariants hold after every step, and when everybody goes home nothing is left. `GROUP_SEED` and `GROUP_SEEDS` say
//! where to begin and how many seeds to run.

mod acts;
mod checks;
mod client;
mod planted;
mod prng;
mod run;
mod seen;

use planted::Planted;
use run::Run;
use seen::Seen;

const SEEDS: u64 = 300;
const STEPS: usize = 400;

/// One run; what it saw, or what was wrong.
fn run(seed: u64, planted: Option<Planted>) -> Result<Seen, String> {
    let result = std::panic::catch_unwind(|| {
        let mut run = Run::new(seed, planted);
        for _ in 0..STEPS {
            run.step()?;
        }
        run.finish()
    });
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default())
    })
}

#[test]
fn every_seed_keeps_the_invariants() {
    let mut seen = Seen::default();
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let first = number("GROUP_SEED", 0);
    for seed in first..first + number("GROUP_SEEDS", SEEDS) {
        match run(seed, None) {
            Ok(more) => seen.add(&more),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    // A run in which nothing happens proves nothing.
    for (what, count) in seen.counts() {
        assert!(count > 0, "never seen in {SEEDS} seeds: {what}; all: {:?}", seen.counts());
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..5 {
        assert_eq!(run(seed, None), run(seed, None));
    }
}

#[test]
fn planted_bugs_are_found() {
    for planted in Planted::ALL {
        let found = (0..SEEDS).find_map(|seed| run(seed, Some(planted)).err());
        let found = found.unwrap_or_else(|| panic!("{planted:?} was not found in {SEEDS} seeds"));
        assert!(planted.is_seen_in(&found), "{planted:?} was found by accident: {found}");
    }
}
