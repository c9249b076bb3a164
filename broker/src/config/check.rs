//! A configuration file checked as a whole: everything that is wrong with it at once, and what is allowed and a trap.

use std::path::Path;

use serde_yaml::Value;

use super::error::ConfigError;
use super::settings::Settings;
use super::traps::{Trap, traps};
use super::{BrokerConfig, keys, machine, yaml};

/// What there is to say about a file.
#[derive(Debug)]
pub struct Checked {
    /// How many keys it gives.
    pub keys: usize,
    /// Why a broker would not start with it, in the order of the lines.
    pub errors: Vec<ConfigError>,
    /// What a broker would start with, and somebody may regret. Empty if there are errors.
    pub traps: Vec<Trap>,
}

/// What stands for a value that is refused, so that the others are checked: something that contradicts nothing.
const STAND_INS: [(&str, &str); 4] = [
    ("broker.id", "0"),
    ("log.dirs", "/"),
    ("zookeeper.connect", "localhost"),
    ("security.allow.insecure", "PLAINTEXT,GRPC,HTTP"),
];

/// Checks the text of a file. What it says of this machine (its log directories, how many files may be open) is looked at too.
#[must_use]
pub fn check(file: &Path, text: &str) -> Checked {
    let (mut found, text) = doubles(file, text);
    let mut settings = match Settings::lines(file, &text) {
        Ok(settings) => settings,
        Err(error) => {
            found.push((0, error));
            return Checked { keys: 0, errors: in_order(found), traps: Vec::new() };
        }
    };
    let keys = settings.entries.len();
    found.append(&mut strangers(&mut settings));
    // Each round takes something from the file, or adds one of the stand-ins.
    let config = loop {
        match BrokerConfig::of(&settings) {
            Ok(config) => break Some(config),
            Err(error) => {
                let about = error.keys();
                let line = about.iter().find_map(|key| settings.entry(key)?.line);
                let goes_on = stand_in(&mut settings, &about);
                found.push((line.unwrap_or(usize::MAX), error));
                if !goes_on {
                    break None;
                }
            }
        }
    };
    // The machine is asked only about what the file really says.
    let said_before: Vec<&str> = found.iter().flat_map(|(_, error)| error.keys()).collect();
    for error in config.as_ref().map(|config| machine::refused(file, config)).unwrap_or_default() {
        let about = error.keys();
        let entry = about.iter().find_map(|key| settings.entry(key));
        if entry.is_some() && !about.iter().any(|key| said_before.contains(key)) {
            found.push((entry.and_then(|entry| entry.line).unwrap_or(usize::MAX), error));
        }
    }
    let traps = match config {
        Some(config) if found.is_empty() => {
            let mut traps = traps(&config);
            traps.extend(machine::few_files());
            traps
        }
        _ => Vec::new(),
    };
    Checked { keys, errors: in_order(found), traps }
}

type Found = Vec<(usize, ConfigError)>;

fn in_order(mut found: Found) -> Vec<ConfigError> {
    found.sort_by_key(|(line, _)| *line);
    found.into_iter().map(|(_, error)| error).collect()
}

/// Keys that are given twice in block style, and the text without the later lines: the parser would see nothing but the first.
fn doubles(file: &Path, text: &str) -> (Found, String) {
    let (mut found, mut text) = (Found::new(), text.to_owned());
    while let Some((key, first, second)) = yaml::twice(&text) {
        let lines: Vec<&str> = text.lines().collect();
        // What is below it would be another key's.
        if lines[second - 1].trim_end().ends_with(':') {
            break;
        }
        let message = format!(
            "line {second}: '{key}' is given twice, first in line {first}; keep one of them"
        );
        found.push((second, ConfigError::Syntax { file: file.to_owned(), message }));
        let kept = |(n, line): (usize, &&str)| {
            if n + 1 == second { String::new() } else { (*line).to_owned() }
        };
        text = lines.iter().enumerate().map(kept).collect::<Vec<_>>().join("\n");
    }
    (found, text)
}

/// Keys that are not served or stand there twice. What a mistyped one says is checked under the name that it meant, where that
/// one is not there.
fn strangers(settings: &mut Settings) -> Found {
    let mut found = Found::new();
    let mut i = 0;
    while i < settings.entries.len() {
        let Some(error) = settings.refused(i) else {
            i += 1;
            continue;
        };
        let line = settings.entries[i].line.unwrap_or(usize::MAX);
        found.push((line, error));
        let meant = keys::nearest(&settings.entries[i].key)
            .filter(|key| settings.entries.iter().all(|entry| entry.key != *key));
        match meant {
            Some(key) => settings.entries[i].key = key.to_owned(),
            None => {
                settings.entries.remove(i);
            }
        }
    }
    found
}

/// Takes what the keys say out of the way; false if nothing changed.
fn stand_in(settings: &mut Settings, about: &[&'static str]) -> bool {
    let before = settings.entries.len();
    let mut changed = false;
    for (key, value) in STAND_INS.iter().filter(|(key, _)| about.contains(key)) {
        let value = Value::String((*value).to_owned());
        match settings.entries.iter_mut().find(|entry| entry.key == *key) {
            Some(entry) if entry.value == value => {}
            Some(entry) => {
                entry.value = value;
                changed = true;
            }
            None => {
                let key = (*key).to_owned();
                settings.entries.push(yaml::Entry { key, value, line: None });
                changed = true;
            }
        }
    }
    let is_stand_in = |key: &str| STAND_INS.iter().any(|(name, _)| *name == key);
    settings
        .entries
        .retain(|entry| is_stand_in(&entry.key) || !about.contains(&entry.key.as_str()));
    changed || settings.entries.len() < before
}
