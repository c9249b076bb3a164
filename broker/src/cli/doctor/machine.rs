//! This machine: open files, free space, how long a sync takes, whose the log directories are.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use barnabas_broker::config::{BrokerConfig, OPEN_FILES_WISHED, open_files};

use super::Finding;

/// How often a sync is measured.
const SYNCS: usize = 9;
/// Bytes of each: about what a batch of a few records takes.
const SYNC_BYTES: usize = 4_096;
/// From here on a sync holds up producers in sync mode that people notice.
const SLOW_SYNC: Duration = Duration::from_millis(50);
/// Free share of a disk below which somebody should look.
const LOW_PERCENT: u64 = 10;

pub(super) fn look(config: Option<&BrokerConfig>, found: &mut Vec<Finding>) {
    found.push(match open_files() {
        Some(limit) if limit < OPEN_FILES_WISHED => Finding::warn(
            "open files",
            format!("a process started like this one may open {limit}"),
            format!(
                "raise that to {OPEN_FILES_WISHED} or more (LimitNOFILE= of a unit, `ulimit -n`)"
            ),
        ),
        Some(limit) => {
            Finding::ok("open files", format!("a process started like this one may open {limit}"))
        }
        None => Finding::ok("open files", "without a limit"),
    });
    let Some(config) = config else {
        found.push(Finding::skipped(
            "disks",
            "give --config FILE: a broker's file names its log directories",
        ));
        return;
    };
    for path in &config.log_dirs {
        if !path.is_dir() {
            let text = format!("{} is not there yet; a start makes it", path.display());
            found.push(Finding::ok("log directory", text));
            continue;
        }
        found.push(space(path, config.storage.reserve_bytes));
        found.push(syncs(path));
    }
}

fn space(path: &Path, reserve_bytes: u64) -> Finding {
    const CHECK: &str = "free space";
    let shown = path.display();
    let at = match rustix::fs::statvfs(path) {
        Ok(at) => at,
        Err(error) => {
            let text = format!("{shown} cannot be looked at: {error}");
            return Finding::bad(CHECK, text, "mend the disk, or correct log.dirs");
        }
    };
    let free = at.f_bavail.saturating_mul(at.f_frsize);
    let all = at.f_blocks.saturating_mul(at.f_frsize).max(1);
    let percent = u128::from(free) * 100 / u128::from(all);
    let text = format!("{shown} has {} MiB free, {percent} %", free >> 20);
    let advice =
        "shorten retention of what fills it, add a disk to log.dirs, or move replicas away";
    if free < reserve_bytes {
        let text = format!("{text}, less than log.dir.reserve.bytes: its leaders refuse produces");
        Finding::bad(CHECK, text, advice)
    } else if free < reserve_bytes.saturating_mul(2) || percent < u128::from(LOW_PERCENT) {
        Finding::warn(CHECK, text, advice)
    } else {
        Finding::ok(CHECK, text)
    }
}

fn syncs(path: &Path) -> Finding {
    const CHECK: &str = "sync";
    let shown = path.display();
    match median(path) {
        Ok(median) if median > SLOW_SYNC => Finding::warn(
            CHECK,
            format!("{shown}: {:.1} ms for 4 KiB in the median", ms(median)),
            "sync mode waits for each, and so does a start; use a disk with a write cache that outlives a power cut, or leave flush.mode=async",
        ),
        Ok(median) => {
            Finding::ok(CHECK, format!("{shown}: {:.1} ms for 4 KiB in the median", ms(median)))
        }
        Err(error) => Finding::bad(
            CHECK,
            format!("{shown}: {error}"),
            "run this as the user of the broker; if that was so, mend the disk",
        ),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Of some syncs of a file of its own in the directory, which is gone afterwards.
fn median(path: &Path) -> io::Result<Duration> {
    let name = path.join(format!(".barnabas-doctor-{}", std::process::id()));
    let measured = measure(&name);
    let removed = fs::remove_file(&name);
    let mut times = measured?;
    removed?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn measure(name: &Path) -> io::Result<Vec<Duration>> {
    let mut file = File::options().write(true).create_new(true).open(name)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[0; SYNC_BYTES])?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// The cluster that a log directory belongs to, if it says.
pub(super) fn cluster_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path.join("meta.properties")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("cluster.id="))?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Level;

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let folder = std::env::temp_dir().join(format!("barnabas-doctor-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("meta.properties"), "version=1\ncluster.id= abc \n").unwrap();
        assert_ne!(syncs(&folder).level, Level::Bad);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
        assert_eq!(cluster_of(&folder).as_deref(), Some("abc"));
        assert_eq!(space(&folder, 0).check, "free space");
        assert_eq!(space(&folder, u64::MAX).level, Level::Bad);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(syncs(&folder).level, Level::Bad);
        assert_eq!(cluster_of(&folder), None);
    }
}
