//! The bytes of replicas on disk, compared across brokers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// The records of one partition on one broker: all its segment files in order.
///
/// # Errors
/// The directory cannot be read.
pub fn log_bytes(log_dir: &Path, topic: &str, partition: usize) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    for segment in segments(log_dir, topic, partition)? {
        bytes.extend(fs::read(segment)?);
    }
    Ok(bytes)
}

/// Bytes of the segment files of one partition on one broker.
///
/// # Errors
/// The directory cannot be read, or changes while it is.
pub fn log_size(log_dir: &Path, topic: &str, partition: usize) -> Outcome<u64> {
    let mut bytes = 0;
    for segment in segments(log_dir, topic, partition)? {
        bytes += fs::metadata(segment)?.len();
    }
    Ok(bytes)
}

fn segments(log_dir: &Path, topic: &str, partition: usize) -> Outcome<Vec<PathBuf>> {
    let folder = log_dir.join(format!("{topic}-{partition}"));
    let mut segments: Vec<_> = fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    Ok(segments)
}

/// Whether a partition is the same, byte for byte, in all directories; its size.
///
/// # Errors
/// A directory cannot be read, or the replicas differ.
pub fn identical(log_dirs: &[&Path], topic: &str, partition: usize) -> Outcome<usize> {
    let mut first: Option<Vec<u8>> = None;
    for log_dir in log_dirs {
        let bytes = log_bytes(log_dir, topic, partition)?;
        match &first {
            None => first = Some(bytes),
            Some(other) if *other == bytes => {}
            Some(other) => {
                let same = other.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
                return Err(format!(
                    "{topic}-{partition} differs at byte {same}: {} bytes in {}, {} in {}",
                    other.len(),
                    log_dirs[0].display(),
                    bytes.len(),
                    log_dir.display()
                )
                .into());
            }
        }
    }
    Ok(first.map_or(0, |bytes| bytes.len()))
}
