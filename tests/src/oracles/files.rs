//! The data files of a partition's replicas: the same bytes everywhere, and offsets that increase strictly.

use std::path::{Path, PathBuf};

use barnabas_log::Batches;

use crate::cluster::{Cluster, SETTLE_MAX};
use crate::replicas::{identical, log_bytes};
use crate::wait::wait_for;
use crate::{Fault, Outcome};

/// The log directories, of all brokers, that hold a replica of a partition.
pub fn replicas(cluster: &mut Cluster, topic: &str, partition: i32) -> Vec<PathBuf> {
    let name = format!("{topic}-{partition}");
    let all = cluster.brokers().flat_map(|broker| broker.config().log_dirs.clone());
    all.filter(|log_dir| log_dir.join(&name).is_dir()).collect()
}

/// Waits until all replicas of a partition that nobody writes to are the same, byte for byte.
///
/// # Errors
/// They are not within the deadline; the text says where they differ.
pub async fn until_identical(cluster: &mut Cluster, topic: &str, partition: i32) -> Outcome<()> {
    let index = usize::try_from(partition)?;
    let mut difference = String::new();
    let same = wait_for("all replicas are byte-identical", SETTLE_MAX, || {
        // Anew each time: one that was moved away goes a little later.
        let log_dirs = replicas(cluster, topic, partition);
        let log_dirs: Vec<&Path> = log_dirs.iter().map(PathBuf::as_path).collect();
        let found = identical(&log_dirs, topic, index);
        let same = found.map_err(|error| difference = error.to_string()).is_ok();
        async move { same.then_some(()) }
    })
    .await;
    same.map_err(|error| Fault::from(format!("{error}: {difference}")))
}

/// What is wrong with the order of the offsets, or with a checksum, in any replica's files.
///
/// # Errors
/// The files cannot be read.
pub fn disorder(cluster: &mut Cluster, topic: &str, partition: i32) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    for log_dir in replicas(cluster, topic, partition) {
        let bytes = log_bytes(&log_dir, topic, usize::try_from(partition)?)?;
        let found = disorder_in(&bytes);
        wrong.extend(
            found.map(|found| format!("{topic}-{partition} in {}: {found}", log_dir.display())),
        );
    }
    Ok(wrong)
}

fn disorder_in(bytes: &[u8]) -> Option<String> {
    let mut end = 0;
    for batch in Batches::new(bytes) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return Some(format!("behind offset {end}: {error}")),
        };
        let header = batch.header;
        if header.base_offset < end {
            return Some(format!(
                "a batch at {} behind one that ends at {end}",
                header.base_offset
            ));
        }
        if let Err(error) = batch.check_crc() {
            return Some(format!("the batch at {}: {error}", header.base_offset));
        }
        end = header.next_offset();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_log::testing::batch;

    fn at(base_offset: i64, values: &[&[u8]]) -> Vec<u8> {
        let mut bytes = batch(values);
        bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
        bytes
    }

    #[test]
    fn offsets_that_increase_are_fine_with_gaps_or_without() {
        let log = [at(0, &[b"a", b"b"]), at(2, &[b"c"]), at(9, &[b"d"])].concat();
        assert_eq!(disorder_in(&log), None);
        assert_eq!(disorder_in(&[]), None);
    }

    #[test]
    fn repeated_or_damaged_batches_are_told() {
        let twice = [at(0, &[b"a", b"b"]), at(1, &[b"c"])].concat();
        assert!(disorder_in(&twice).is_some());
        let mut damaged = at(0, &[b"a"]);
        *damaged.last_mut().unwrap() ^= 1;
        assert!(disorder_in(&damaged).is_some());
        let whole = at(0, &[b"a"]);
        assert!(disorder_in(&whole[..whole.len() - 1]).is_some());
    }
}
