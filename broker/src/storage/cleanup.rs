//! The threads that let old records go: one a directory for retention, and the cleaners, which compact.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barnabas_log::StopSignal;

use super::cleaner::{Cleaner, Uncleanable};
use super::{Directory, Storage};
use crate::clock::unix_ms;
use crate::config::StorageConfig;
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};

/// The threads; they end with [`Cleanup::stop`].
pub struct Cleanup {
    stop: Arc<StopSignal>,
    threads: Vec<JoinHandle<()>>,
}

impl Cleanup {
    /// Starts them.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn start(
        node: &Arc<Node>,
        storage: &Arc<Storage>,
        config: &StorageConfig,
    ) -> io::Result<Self> {
        let mut cleanup = Self { stop: Arc::default(), threads: Vec::new() };
        for directory in storage.directories() {
            let retention = Retention {
                node: Arc::downgrade(node),
                directory: directory.clone(),
                stop: cleanup.stop.clone(),
                interval: Duration::from_millis(config.retention_check_interval_ms),
            };
            cleanup.spawn("retention", move || retention.run())?;
        }
        let cleaners = if config.cleaner_enable { config.cleaner_threads.max(1) } else { 0 };
        let uncleanable = Arc::<Uncleanable>::default();
        for _ in 0..cleaners {
            let cleaners = cleaners as u64;
            let cleaner = Cleaner {
                node: Arc::downgrade(node),
                stop: cleanup.stop.clone(),
                backoff_ms: config.cleaner_backoff_ms,
                map_bytes_max: usize::try_from(config.cleaner_dedupe_buffer_bytes / cleaners)
                    .unwrap_or(usize::MAX),
                bytes_per_second: config.cleaner_io_max_bytes_per_second,
                cleaners,
                uncleanable: uncleanable.clone(),
            };
            cleanup.spawn("cleaner", move || cleaner.run())?;
        }
        Ok(cleanup)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    /// Ends the threads and waits for them: a compaction under way ends soon, and leaves its log whole. Blocks.
    pub fn stop(mut self) {
        self.stop.stop();
        for thread in self.threads.drain(..) {
            // A panic was logged where it was caught.
            let _ = thread.join();
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

struct Retention {
    node: Weak<Node>,
    directory: Arc<Directory>,
    stop: Arc<StopSignal>,
    /// `log.retention.check.interval.ms`.
    interval: Duration,
}

impl Retention {
    fn run(&self) {
        while !self.stop.wait(self.interval) {
            let Some(node) = self.node.upgrade() else { return };
            if self.directory.usable().is_some() {
                self.pass(&node);
            }
        }
    }

    fn pass(&self, node: &Arc<Node>) {
        for hosted in node.partitions.all() {
            if !Arc::ptr_eq(&hosted.directory, &self.directory) {
                continue;
            }
            if self.stop.wait(Duration::ZERO) {
                return;
            }
            guarded(&hosted, || {
                let mut after = Aftermath::default();
                hosted.clean(node.now(), unix_ms(), &mut after);
                after.settle(&hosted, &**node, &mut Flush::default());
            });
        }
    }
}

/// A fault in one log must not end the thread that serves the others. Whether the work was finished.
pub(super) fn guarded(hosted: &Hosted, work: impl FnOnce()) -> bool {
    let finished = catch_unwind(AssertUnwindSafe(work)).is_ok();
    if !finished {
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let leader_epoch = hosted.leader_epoch();
        tracing::error!(%topic, partition, %leader_epoch, "the cleanup of this log was not finished");
    }
    finished
}

#[cfg(test)]
mod tests {
    use std::fs;

    use barnabas_log::testing::BatchBuilder;
    use barnabas_types::{Acks, CleanupPolicy, Offset, Ratio, TopicConfig};

    use super::*;
    use crate::testing::{Disk, node, produce, push, state, tp};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A partition that keeps at most about 200 bytes in segments of 100, and holds more.
    fn retaining(node: &Arc<Node>, disk: &Disk, isr: &[i32]) -> Arc<Hosted> {
        let hosted = disk.host(node, tp("t", 0));
        let config = TopicConfig {
            segment_bytes: 100,
            retention_bytes: 200,
            retention_ms: -1,
            ..TopicConfig::default()
        };
        let mut after = Aftermath::default();
        hosted.configure(node.now(), &config, &mut after);
        after.settle(&hosted, &**node, &mut Flush::default());
        state(node, &hosted, push(1, 1, isr));
        for sequence in 0..10 {
            produce(node, &hosted, Acks::None, sequence, None);
        }
        hosted
    }

    fn clean(node: &Arc<Node>, hosted: &Arc<Hosted>) {
        let mut after = Aftermath::default();
        hosted.clean(node.now(), unix_ms(), &mut after);
        after.settle(hosted, &**node, &mut Flush::default());
    }

    fn segments(disk: &Disk) -> usize {
        let names = fs::read_dir(disk.temp.path().join("t-0")).unwrap();
        names.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "log")).count()
    }

    async fn until(mut done: impl FnMut() -> bool) {
        let wait = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("in time");
    }

    #[tokio::test]
    async fn r32_retention_moves_the_log_start_and_then_the_files_go() {
        let (node, disk) = (node(), Disk::new());
        let hosted = retaining(&node, &disk, &[1]);
        assert_eq!((hosted.high_watermark(), segments(&disk)), (Offset(10), 10));
        clean(&node, &hosted);
        until(|| hosted.consumer_view(None).unwrap().log_start > Offset(0)).await;
        let start = hosted.consumer_view(None).unwrap().log_start;
        assert!(start < Offset(10), "something stays");
        let left = 10 - usize::try_from(start.0).unwrap();
        until(|| segments(&disk) == left).await;
        let noted = disk.temp.path().join("log-start-offset-checkpoint");
        assert!(fs::read_to_string(noted).unwrap().contains(&format!("t 0 {start}")));
    }

    #[tokio::test]
    async fn r32_nothing_goes_at_or_above_the_high_watermark() {
        let (node, disk) = (node(), Disk::new());
        let hosted = retaining(&node, &disk, &[1, 2]);
        assert_eq!(hosted.high_watermark(), Offset(0), "broker 2 has nothing");
        clean(&node, &hosted);
        assert_eq!((segments(&disk), hosted.log_start_max()), (10, Offset(0)));
    }

    #[tokio::test]
    async fn d8_a_deleted_topic_under_cleanup_is_no_failure_of_the_disk() {
        let (node, disk) = (node(), Disk::new());
        let hosted = retaining(&node, &disk, &[1]);
        node.partitions.remove(&hosted.topic_partition);
        hosted.retire();
        disk.storage.delete_all(&[tp("t", 0)]).unwrap();
        clean(&node, &hosted);
        assert!(!disk.temp.path().join("t-0").exists());
        let waited = tokio::time::timeout(Duration::ZERO, node.failed.taken()).await;
        assert!(waited.is_err(), "no failure is told");
    }

    #[tokio::test]
    async fn a_cleaner_compacts_what_is_flushed_and_committed_and_keeps_the_last_of_each_key() {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        let config = TopicConfig {
            segment_bytes: 300,
            cleanup: CleanupPolicy { delete: false, compact: true },
            min_cleanable_dirty_ratio: Ratio::from_millionths(0),
            flush_messages: 1,
            ..TopicConfig::default()
        };
        let mut after = Aftermath::default();
        hosted.configure(node.now(), &config, &mut after);
        after.settle(&hosted, &*node, &mut Flush::default());
        state(&node, &hosted, push(1, 1, &[1]));
        for n in 0..40_u8 {
            let mut batch = BatchBuilder::new().keyed(b"key", Some(&[n])).build();
            let mut after = Aftermath::default();
            hosted.produce(node.now(), Acks::None, 1, &mut batch, None, &mut after);
            after.settle(&hosted, &*node, &mut Flush::default());
        }
        until(|| hosted.unflushed(node.now()).0 == 0).await;
        let before = hosted.with_log(|log| log.size_bytes());
        let mut config = crate::testing::storage_config();
        config.cleaner_backoff_ms = 1;
        let cleanup = Cleanup::start(&node, &disk.storage, &config).unwrap();
        until(|| hosted.with_log(|log| log.size_bytes()) < before / 2).await;
        let cleaned = || hosted.directory.log_dir().unwrap().cleaned_up_to(&tp("t", 0));
        until(|| cleaned().is_some()).await;
        cleanup.stop();
        assert_eq!(hosted.consumer_view(None).unwrap().log_end, Offset(40));
        let last = hosted
            .read_for_consumer(
                &crate::partition::ConsumerRead::at(Offset(39), 1 << 20),
                None,
                barnabas_log::Wait::ForDisk,
            )
            .unwrap();
        assert!(last.range.is_some());
    }

    #[tokio::test]
    async fn the_threads_look_again_and_again_until_they_are_stopped() {
        let (node, disk) = (node(), Disk::new());
        let mut config = crate::testing::storage_config();
        config.retention_check_interval_ms = 1;
        let cleanup = Cleanup::start(&node, &disk.storage, &config).unwrap();
        let hosted = retaining(&node, &disk, &[1]);
        until(|| hosted.consumer_view(None).unwrap().log_start > Offset(0)).await;
        cleanup.stop();
    }
}
