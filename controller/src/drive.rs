//! Runs procedures against a ZooKeeper client: awaits the replies, pauses after unknown outcomes.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::translate::{Answer, Procedure, Step};
use crate::zookeeper::{Error, Request, ZooKeeper};

/// Requests of one `AnyOrder` step under way at once.
const READS_IN_FLIGHT_MAX: usize = 32;

/// Waits after unknown outcomes: doubles from one to the other bound.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    /// For whatever is asked of ZooKeeper.
    pub(crate) fn zookeeper() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(2))
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }

    /// The next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.most);
        wait
    }
}

/// Runs a procedure to its end. Dropping the future leaves what was submitted to its fate, which versions make harmless.
pub(crate) async fn run<Z: ZooKeeper, P: Procedure>(client: &Z, mut procedure: P) -> P::Output {
    let mut backoff = Backoff::zookeeper();
    let mut step = procedure.begin();
    loop {
        let answers = match step {
            Step::Done(output) => return output,
            Step::InOrder(requests) => {
                backoff.reset();
                in_order(client, requests).await
            }
            Step::AnyOrder(requests) => {
                backoff.reset();
                any_order(client, requests).await
            }
            Step::Later(requests) => {
                tokio::time::sleep(backoff.wait()).await;
                in_order(client, requests).await
            }
        };
        step = procedure.advance(answers);
    }
}

/// One after the other, up to and including the first failure.
pub(crate) async fn in_order<Z: ZooKeeper>(client: &Z, requests: Vec<Request>) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let answer = client.submit(request).await;
        let failed = answer.is_err();
        answers.push(answer);
        if failed {
            break;
        }
    }
    answers
}

async fn any_order<Z: ZooKeeper>(client: &Z, requests: Vec<Request>) -> Vec<Answer> {
    let lost = || Err(Error::OutcomeUnknown("the request was not finished".into()));
    let mut answers: Vec<Answer> = requests.iter().map(|_| lost()).collect();
    let mut under_way = JoinSet::new();
    let mut left = requests.into_iter().enumerate();
    loop {
        while under_way.len() < READS_IN_FLIGHT_MAX
            && let Some((index, request)) = left.next()
        {
            let client = client.clone();
            under_way.spawn(async move { (index, client.submit(request).await) });
        }
        match under_way.join_next().await {
            None => return answers,
            Some(Ok((index, answer))) => answers[index] = answer,
            Some(Err(_)) => {}
        }
    }
}
