//! SIGHUP: the file is read again. What can change while the broker runs does, and the rest is told.

use std::collections::BTreeMap;

use super::Logs;
use crate::config::{BrokerConfig, REREAD};

impl Logs {
    /// Reads the file of the running configuration again and takes from it what it can. A file that is wrong changes nothing; both is
    /// in the log. Reads a file: not for a runtime that must not block.
    pub fn reread(&self, running: &BrokerConfig) {
        let file = running.file.display();
        let new = match BrokerConfig::load(&running.file) {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(%file, %error, "the configuration cannot be read again: everything stays as it is");
                return;
            }
        };
        let waiting = differing(running, &new).join(", ");
        self.take_file(new.logs.levels);
        if waiting.is_empty() {
            tracing::warn!(%file, levels = self.summary(), "the configuration was read again");
        } else {
            tracing::warn!(
                %file, levels = self.summary(), waiting,
                "the configuration was read again; what waits for a restart has other values in the file than in force"
            );
        }
    }

    /// The levels that somebody has given, in a line.
    pub(super) fn summary(&self) -> String {
        let given = self.levels().into_iter().filter(|one| one.source != super::Source::Root);
        given.map(|one| format!("{}={}", one.target, one.level)).collect::<Vec<_>>().join(",")
    }
}

/// The keys that the file has changed since the start, and that are read then only.
fn differing(running: &BrokerConfig, new: &BrokerConfig) -> Vec<&'static str> {
    let before: BTreeMap<_, _> = running.shown.iter().map(|one| (one.name, &one.value)).collect();
    let differs = |name: &str, value| before.get(name).is_some_and(|old| *old != value);
    let new = new.shown.iter().filter(|one| !REREAD.contains(&one.name));
    new.filter(|one| differs(one.name, &one.value)).map(|one| one.name).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_waits_for_a_restart_is_named_and_what_is_read_again_is_not() {
        let parse = |more: &str| {
            let least = "broker.id: 1\nlog.dirs: /d\nzookeeper.connect: 127.0.0.1:2181\n";
            BrokerConfig::parse(Path::new("b.yaml"), &format!("{least}{more}")).unwrap()
        };
        let running = parse("num.partitions: 3\n");
        assert_eq!(differing(&running, &parse("num.partitions: 3")), [""; 0]);
        let new = parse("logging.level: debug\nnum.partitions: 4\nlog.retention.hours: 5\n");
        assert_eq!(
            differing(&running, &new),
            ["num.partitions", "log.retention.hours", "log.retention.ms"]
        );
    }
}
