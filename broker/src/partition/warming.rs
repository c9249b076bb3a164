//! Reads that somebody waits for because what he wants to send is not in the page cache: made on the threads of the log
//! directories, so that a slow disk holds up nobody else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use barnabas_log::ColdRead;
use barnabas_types::TopicPartition;

use super::hosted::Hosted;

/// Looks that may find a partition cold, one after the other, before the reader waits for the disk himself: what was read a
/// moment ago is gone only if memory is very short.
pub const COLD_LOOKS_MAX: u32 = 3;

/// Reads under way for one reader. Those that have not begun when it is dropped are not made.
pub struct Warming {
    /// Reads that are not over, and one while they are being ordered.
    remaining: AtomicUsize,
    failed: Mutex<Vec<TopicPartition>>,
    /// Tells the reader that it is time to look again.
    tell: Box<dyn Fn() + Send + Sync>,
}

/// One read; however it ends, it is over when this is dropped.
struct Turn(Weak<Warming>);

impl Turn {
    fn run(&self, read: &ColdRead, hosted: &Arc<Hosted>) {
        let Some(warming) = self.0.upgrade() else { return };
        if let Err(error) = read.run() {
            hosted.range_unreadable(&error);
            let topic_partition = hosted.topic_partition.clone();
            warming.failed.lock().unwrap_or_else(PoisonError::into_inner).push(topic_partition);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(warming) = self.0.upgrade()
            && warming.remaining.fetch_sub(1, Ordering::AcqRel) == 1
        {
            (warming.tell)();
        }
    }
}

impl Warming {
    /// Orders the reads; `tell` is called once all of them are over, on any thread, and must not wait. `None`: too many wait
    /// for these disks already.
    #[must_use]
    pub fn begin(
        reads: Vec<(Arc<Hosted>, ColdRead)>,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let warming = Arc::new(Self {
            remaining: AtomicUsize::new(1),
            failed: Mutex::default(),
            tell: Box::new(tell),
        });
        let _ordering = Turn(Arc::downgrade(&warming));
        let mut ordered = 0;
        for (hosted, read) in reads {
            warming.remaining.fetch_add(1, Ordering::AcqRel);
            let turn = Turn(Arc::downgrade(&warming));
            let directory = hosted.directory.clone();
            let read = move || turn.run(&read, &hosted);
            ordered += usize::from(directory.readers().add(read));
        }
        // Without a read there is nothing to tell: it goes before the last turn does.
        (ordered > 0).then_some(warming)
    }

    /// Whether all reads are over.
    pub fn is_over(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    /// Whether this partition could not be read.
    pub fn has_failed(&self, topic_partition: &TopicPartition) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).contains(topic_partition)
    }
}
