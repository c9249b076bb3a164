//! The timeline as it is served: the last failovers, then each that comes or gets further.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_proto::v1;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tonic::Status;

/// Records on their way to one reader.
const RECORDS_WAITING_MAX: usize = 16;

/// Where the records of failovers are kept.
pub trait FailoverHistory: Send + Sync + 'static {
    /// The failovers that are kept, a bounded number, the oldest first, each once, as it was told last.
    fn kept(&self) -> Vec<v1::Failover>;
    /// A number that rises with each record.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// One reader of the timeline.
pub(super) struct Reader {
    history: Arc<dyn FailoverHistory>,
    request: v1::TimelineRequest,
    /// What the reader knows, of those that `history` still tells of.
    known: BTreeMap<String, v1::Failover>,
}

impl Reader {
    pub(super) fn new(history: Arc<dyn FailoverHistory>, request: v1::TimelineRequest) -> Self {
        Self { history, request, known: BTreeMap::new() }
    }

    /// What it is to be sent. Ends with the request, or when nobody reads any more.
    pub(super) fn start(
        mut self,
        place: OwnedSemaphorePermit,
    ) -> mpsc::Receiver<Result<v1::Failover, Status>> {
        let (records, reader) = mpsc::channel(RECORDS_WAITING_MAX);
        tokio::spawn(async move {
            let _place = place;
            let mut changes = self.history.changes();
            changes.mark_unchanged();
            let mut owed = self.first();
            loop {
                for record in owed {
                    if records.send(Ok(record)).await.is_err() {
                        return;
                    }
                }
                if !self.request.follow {
                    return;
                }
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = records.closed() => return,
                }
                owed = self.news();
            }
        });
        reader
    }

    /// What was asked for; the rest counts as known.
    fn first(&mut self) -> Vec<v1::Failover> {
        let wanted = usize::try_from(self.request.last).unwrap_or(usize::MAX);
        let mut all = self.wanted();
        for failover in &all {
            self.known.insert(failover.id.clone(), failover.clone());
        }
        let skipped = all.len().saturating_sub(wanted);
        all.split_off(skipped)
    }

    /// What is not known as it is now.
    fn news(&mut self) -> Vec<v1::Failover> {
        let all = self.wanted();
        let news = all.iter().filter(|failover| self.known.get(&failover.id) != Some(failover));
        let news = news.cloned().collect();
        self.known = all.into_iter().map(|failover| (failover.id.clone(), failover)).collect();
        news
    }

    fn wanted(&self) -> Vec<v1::Failover> {
        let mut all = self.history.kept();
        if let Some(id) = &self.request.id {
            all.retain(|failover| failover.id == *id);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Semaphore;

    use super::*;

    /// A history that a test writes.
    struct Written {
        all: Mutex<Vec<v1::Failover>>,
        changes: watch::Sender<u64>,
    }

    impl Written {
        fn of(ids: &[&str]) -> Arc<Self> {
            let all = ids.iter().map(|id| failover(id, 0)).collect();
            Arc::new(Self { all: Mutex::new(all), changes: watch::Sender::new(0) })
        }

        fn set(&self, change: impl FnOnce(&mut Vec<v1::Failover>)) {
            change(&mut self.all.lock().unwrap());
            self.changes.send_modify(|n| *n += 1);
        }
    }

    impl FailoverHistory for Written {
        fn kept(&self) -> Vec<v1::Failover> {
            self.all.lock().unwrap().clone()
        }

        fn changes(&self) -> watch::Receiver<u64> {
            self.changes.subscribe()
        }
    }

    fn failover(id: &str, moved: u32) -> v1::Failover {
        v1::Failover { id: id.to_owned(), moved, ..v1::Failover::default() }
    }

    fn read(
        history: &Arc<Written>,
        request: v1::TimelineRequest,
    ) -> mpsc::Receiver<Result<v1::Failover, Status>> {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Reader::new(history.clone(), request).start(place)
    }

    async fn next(reader: &mut mpsc::Receiver<Result<v1::Failover, Status>>) -> (String, u32) {
        let failover = reader.recv().await.unwrap().unwrap();
        (failover.id, failover.moved)
    }

    #[tokio::test]
    async fn the_last_are_told_and_the_stream_ends() {
        let history = Written::of(&["1-1", "1-2", "2-1"]);
        let request = v1::TimelineRequest { last: 2, ..Default::default() };
        let mut reader = read(&history, request.clone());
        assert_eq!(next(&mut reader).await, ("1-2".into(), 0));
        assert_eq!(next(&mut reader).await, ("2-1".into(), 0));
        assert!(reader.recv().await.is_none());
        let one = v1::TimelineRequest { id: Some("1-1".into()), ..request };
        let mut reader = read(&history, one);
        assert_eq!(next(&mut reader).await, ("1-1".into(), 0));
        assert!(reader.recv().await.is_none());
    }

    #[tokio::test]
    async fn who_follows_is_told_what_is_new_and_what_got_further_and_nothing_twice() {
        let history = Written::of(&["1-1", "1-2"]);
        let request = v1::TimelineRequest { last: 1, follow: true, id: None };
        let mut reader = read(&history, request);
        assert_eq!(next(&mut reader).await, ("1-2".into(), 0));
        history.set(|all| all.push(failover("2-1", 3)));
        assert_eq!(next(&mut reader).await, ("2-1".into(), 3));
        history.set(|all| all[0].moved = 9);
        assert_eq!(next(&mut reader).await, ("1-1".into(), 9), "skipped at first, and news now");
        drop(reader);
    }
}
