//! The page of all keys, as `deploy/configuration.md` has it: made from the table, never written by hand.

use std::fmt::Write as _;

use super::keys::{KEYS, Key};

/// The whole page.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Every key of `broker.yaml`\n\n\
         Made by `barnabas config reference`; a test compares. README says how the file is read and how settings are changed while brokers run.\n\
         `barnabas config explain KEY` tells the same of one key, with the value in force; `barnabas config check FILE` checks a file.\n\n\
         *Changed* is how: in the file (read at the start of a broker, some again on SIGHUP), or while brokers run with `barnabas config alter`, for all brokers or\n\
         for all or one. *Topics call it* is the name under which a topic overrides it (`barnabas topic alter`).\n",
    );
    for (title, keys) in groups() {
        let _ = write!(
            page,
            "\n## {title}\n\n| key | default | unit | form | changed | topics call it | meaning |\n|---|---|---|---|---|---|---|\n"
        );
        for key in keys {
            let code = |text: &str| match text {
                "" => String::new(),
                text => format!("`{text}`"),
            };
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} | {} | {} |",
                key.name,
                code(&key.default),
                key.unit().unwrap_or_default(),
                key.form,
                key.changed(),
                code(key.topics_name().unwrap_or_default()),
                key.meaning
            );
        }
    }
    page
}

/// The keys by subject, in the order of the table.
fn groups() -> [(&'static str, Vec<&'static Key>); 2] {
    let of_topics = |key: &&Key| {
        key.topics_name().is_some()
            || ["log.retention.minutes", "log.retention.hours", "log.roll.hours"]
                .contains(&key.name)
    };
    let (topics, own) = KEYS.iter().partition(of_topics);
    [("The broker's own", own), ("What holds for topics that do not say", topics)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_table_says() {
        let kept = include_str!("../../../deploy/configuration.md");
        assert!(
            kept == reference(),
            "deploy/configuration.md is old; write it with: barnabas config reference > deploy/configuration.md"
        );
    }

    #[test]
    fn every_key_is_on_it_once() {
        let page = reference();
        for key in KEYS.iter() {
            assert_eq!(page.matches(&format!("\n| `{}` |", key.name)).count(), 1, "{}", key.name);
        }
    }
}
