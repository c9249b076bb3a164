//! Work that takes longer than a look: on a thread that may take its time, a few pieces at once, so that the one worker of the control
//! runtime goes on with heartbeats and pushes meanwhile.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Pieces of work at once; whoever comes later waits for one of them to end.
const ASIDE_MAX: usize = 2;

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct Aside(Arc<Semaphore>);

impl Default for Aside {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ASIDE_MAX)))
    }
}

impl Aside {
    /// What the work comes to; `None`: it panicked, or the process ends. Who is not interested any more waits for nothing; work that has begun
    /// goes on and keeps its place.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.0.clone().acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn no_more_work_is_done_at_once_than_there_are_places_and_nothing_else_waits() {
        let aside = Aside::default();
        let (begun, mut begins) = tokio::sync::mpsc::channel(ASIDE_MAX + 1);
        let (mut ends, mut running) = (Vec::new(), Vec::new());
        for n in 0..=ASIDE_MAX {
            let (end, ended) = mpsc::channel::<()>();
            let (aside, begun) = (aside.clone(), begun.clone());
            running.push(tokio::spawn(async move {
                aside
                    .run(move || {
                        let _ = begun.try_send(n);
                        let _ = ended.recv();
                        n
                    })
                    .await
            }));
            ends.push(end);
        }
        for _ in 0..ASIDE_MAX {
            begins.recv().await.unwrap();
        }
        // This thread is free although all places are taken; the last piece has none.
        tokio::task::yield_now().await;
        assert!(begins.try_recv().is_err());
        drop(ends);
        for (n, one) in running.into_iter().enumerate() {
            assert_eq!(one.await.unwrap(), Some(n));
        }
    }

    #[tokio::test]
    async fn work_that_panics_is_nothing_and_its_place_is_free_again() {
        let aside = Aside::default();
        for _ in 0..=ASIDE_MAX {
            assert_eq!(aside.run(|| -> u8 { panic!("on purpose") }).await, None);
        }
        assert_eq!(aside.run(|| 7).await, Some(7));
    }
}
