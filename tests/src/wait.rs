//! Waiting for a condition, with a deadline; the only place where time passes in a test.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::Outcome;

/// How often a condition is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Until the next look at a condition.
pub async fn next_look() {
    tokio::time::sleep(LOOK_INTERVAL).await;
}

/// Lets this time pass: how long a fault lasts, never how long something takes.
pub async fn pass(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Looks at `condition` until it yields a value.
///
/// # Errors
/// It has not within `deadline`; the text names `what`.
pub async fn wait_for<T, F>(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> F,
) -> Outcome<T>
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if started.elapsed() > deadline {
            return Err(format!("{what}: not within {:.1} s", deadline.as_secs_f64()).into());
        }
        next_look().await;
    }
}
