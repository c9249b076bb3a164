//! Runs seeds, on both cores, and finds the first that breaks an invariant.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Coverage, Options, Outcome, Trace, Violation, World};

/// Lines kept for a failing seed.
const LAST_LINES: usize = 40;

/// A seed that broke an invariant.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// The last lines of its trace.
    pub last_lines: Vec<String>,
}

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub runs: u64,
    /// The failing seeds that were met, lowest first.
    pub failures: Vec<Failure>,
    /// What all of them reached.
    pub coverage: Coverage,
    /// Virtual time of all of them, in milliseconds.
    pub virtual_ms: u64,
}

/// One run; a core's panic (a broken assertion) is a violation like any other.
#[must_use]
pub fn one(options: Options, trace: Trace) -> (Outcome, Trace) {
    let keep = trace.is_on();
    match catch_unwind(AssertUnwindSafe(|| World::new(options, trace).run())) {
        Ok(done) => done,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_else(|| "a panic without a message".to_owned());
            let violation = Some(Violation { invariant: "assertion", text });
            let outcome = Outcome { violation, coverage: Coverage::default(), virtual_ms: 0 };
            (outcome, if keep { Trace::keep(1) } else { Trace::off() })
        }
    }
}

/// The trace of a run until it breaks, also if it breaks by a panic.
#[must_use]
pub fn traced(options: Options, keep_max: usize) -> (Option<Violation>, Vec<String>) {
    let mut world = World::new(options, Trace::keep(keep_max));
    let result = catch_unwind(AssertUnwindSafe(|| world.run_in_place()));
    let text = result.err().map(|panic| {
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "a panic without a message".to_owned())
    });
    let violation = match text {
        Some(text) => Some(Violation { invariant: "assertion", text }),
        None => world.violation().cloned(),
    };
    (violation, world.trace_lines())
}

/// Runs `count` seeds from `first` on `threads` threads; stops soon after `failures_max` failures.
#[must_use]
pub fn many(
    first: u64,
    count: u64,
    options: Options,
    threads: u64,
    failures_max: usize,
) -> Summary {
    let next = AtomicU64::new(first);
    let failed = AtomicU64::new(0);
    let work = || {
        let mut mine = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failed.load(Ordering::Relaxed) >= failures_max as u64 {
                return mine;
            }
            let options = Options { seed, ..options };
            let (outcome, _) = one(options, Trace::off());
            mine.runs += 1;
            mine.virtual_ms += outcome.virtual_ms;
            mine.coverage.add(&outcome.coverage);
            if let Some(violation) = outcome.violation {
                failed.fetch_add(1, Ordering::Relaxed);
                let (_, last_lines) = traced(options, LAST_LINES);
                mine.failures.push(Failure { seed, violation, last_lines });
            }
        }
    };
    let mut all = Summary::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            if let Ok(mine) = worker.join() {
                all.runs += mine.runs;
                all.virtual_ms += mine.virtual_ms;
                all.coverage.add(&mine.coverage);
                all.failures.extend(mine.failures);
            }
        }
    });
    all.failures.sort_by_key(|f| f.seed);
    all
}
