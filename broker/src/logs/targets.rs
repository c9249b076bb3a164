//! The targets of log lines: what can be turned up or down on its own.

/// Stands for whatever no other target names.
pub const ROOT: &str = "root";

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As lines bear it; also what begins with it.
    pub name: &'static str,
    /// What its lines tell.
    pub meaning: &'static str,
}

/// Every target of this project, then those of libraries that are worth turning up.
pub const TARGETS: &[Target] = &[
    Target {
        name: "controller",
        meaning: "ZooKeeper sessions, registrations, who is the controller, pushes, stops",
    },
    Target {
        name: "state_change",
        meaning: "each partition: leaders, epochs, ISRs, logs that are cut, lost or failed",
    },
    Target { name: "group", meaning: "consumer groups and the partitions of their offsets" },
    Target {
        name: "request",
        meaning: "connections of clients; at debug their requests, one line each",
    },
    Target {
        name: "barnabas",
        meaning: "the rest, by module: log directories, flushes, compaction, the journal, the start",
    },
    Target { name: "zookeeper_client", meaning: "the ZooKeeper client's own lines" },
    Target { name: "h2", meaning: "frames of gRPC connections" },
];

/// Whether levels may be given to a target of this name: one of the table, or a module below it.
pub(super) fn is_target(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    name.chars().all(legal)
        && TARGETS.iter().any(|target| match name.strip_prefix(target.name) {
            Some(rest) => {
                let of_crate = target.name == "barnabas" && rest.starts_with('_');
                rest.is_empty() || rest.starts_with("::") || of_crate
            }
            None => false,
        })
}

/// The names of all, for a message.
pub(super) fn names() -> String {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    format!("{ROOT}, {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn targets_are_those_of_the_table_and_modules_below() {
        for name in ["controller", "h2", "barnabas", "barnabas_broker::storage", "h2::codec"] {
            assert!(is_target(name), "{name}");
        }
        for name in ["", "root", "controllers", "stat", "hyper", "barnabasx", "h2 ", "h2::\n"] {
            assert!(!is_target(name), "{name}");
        }
    }

    /// Every `target: "…"` below this folder.
    fn named(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                named(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let after = text.split("target: \"").skip(1);
                found.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
            }
        }
    }

    #[test]
    fn the_table_has_every_target_of_the_source() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = Vec::new();
        for folder in ["broker/src", "controller/src"] {
            named(&root.join(folder), &mut found);
        }
        // This test's own words.
        found.retain(|name| name != ")" && name != "…");
        assert!(found.len() > 50, "{found:?}");
        for name in &found {
            assert!(TARGETS.iter().any(|target| target.name == name), "{name} is not in TARGETS");
        }
        for target in &TARGETS[..4] {
            assert!(found.iter().any(|name| name == target.name), "nobody logs to {}", target.name);
        }
    }
}
