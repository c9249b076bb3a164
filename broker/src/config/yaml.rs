//! A YAML file as flat key/value pairs: `broker: {id: 1}` and `broker.id: 1` are the same; each key knows its line.

use serde_yaml::Value;

/// One setting of a file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    /// Dotted name.
    pub(super) key: String,
    /// Scalar or sequence; never a mapping.
    pub(super) value: Value,
    /// Line of the key, from 1, if it is written in block style.
    pub(super) line: Option<usize>,
}

/// Deepest nesting that is followed; the longest key that is served has seven parts.
const DEPTH_MAX: usize = 16;

/// Reads a document into its settings.
///
/// # Errors
/// The parser's message, or a sentence on what the document should be.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let document: Value = serde_yaml::from_str(text).map_err(|error| sentence(text, &error))?;
    let mut found = Vec::new();
    match document {
        Value::Null => {}
        Value::Mapping(_) => flatten("", document, 0, &mut found)?,
        _ => {
            let hint = text.lines().enumerate().find_map(|(n, line)| hint(n + 1, line));
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            return Err(format!("the document must be a list of `key: value` lines{hint}"));
        }
    }
    let lines = key_lines(text);
    for entry in &mut found {
        entry.line = lines.iter().find(|(key, _)| *key == entry.key).map(|(_, line)| *line);
    }
    Ok(found)
}

/// What the parser stumbled over, in the words of whoever wrote the file.
fn sentence(text: &str, error: &serde_yaml::Error) -> String {
    if let Some((line, _)) = text
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains('\t') && !line.trim_start().starts_with('#'))
    {
        return format!("line {} has a tab, which YAML does not take: write spaces", line + 1);
    }
    if let Some((key, first, second)) = twice(text) {
        return format!(
            "line {second}: '{key}' is given twice, first in line {first}; keep one of them"
        );
    }
    let Some(location) = error.location() else { return error.to_string() };
    // The parser stops behind what is wrong.
    let nearby = [location.line(), location.line().saturating_sub(1)];
    let hint = nearby.into_iter().find_map(|number| {
        let line = text.lines().nth(number.checked_sub(1)?)?;
        hint(number, line)
    });
    match hint {
        Some(hint) => hint,
        None => format!("line {}: {error}", location.line()),
    }
}

/// A key that stands in block style twice: it, and its two lines.
pub(super) fn twice(text: &str) -> Option<(String, usize, usize)> {
    let lines = key_lines(text);
    lines.iter().enumerate().find_map(|(i, (key, second))| {
        let (_, first) = lines[..i].iter().find(|(earlier, _)| earlier == key)?;
        Some((key.clone(), *first, *second))
    })
}

/// What a line that is no setting probably meant to be.
fn hint(number: usize, line: &str) -> Option<String> {
    let body = line.trim();
    if body.starts_with('#') || body.contains(": ") || body.ends_with(':') {
        return None;
    }
    let is_name = |name: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        name.contains('.') && name.chars().all(legal)
    };
    if let Some((key, value)) = body.split_once('=').filter(|(key, _)| is_name(key.trim())) {
        let (key, value) = (key.trim(), value.trim());
        return Some(format!(
            "line {number} is written as in server.properties: write `{key}: {value}`"
        ));
    }
    let (key, value) = body.split_once(':').filter(|(key, _)| is_name(key))?;
    Some(format!("line {number} has no space behind the colon: write `{key}: {value}`"))
}

fn flatten(prefix: &str, value: Value, depth: usize, found: &mut Vec<Entry>) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("'{prefix}' is nested deeper than any key"));
    }
    let Value::Mapping(mapping) = value else {
        found.push(Entry { key: prefix.to_owned(), value, line: None });
        return Ok(());
    };
    for (key, value) in mapping {
        let key = match key {
            Value::String(key) => key,
            other => return Err(format!("the key {} is not a name", shown(&other))),
        };
        let full = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        flatten(&full, value, depth + 1, found)?;
    }
    Ok(())
}

/// Dotted names of the keys in block style with their lines, from 1.
fn key_lines(text: &str) -> Vec<(String, usize)> {
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let Some((key, _)) = body.split_once(':').filter(|_| !body.starts_with(['#', '-'])) else {
            continue;
        };
        open.retain(|(level, _)| *level < indent);
        let key = key.trim().trim_matches(['"', '\'']);
        let full = match open.last() {
            Some((_, parent)) => format!("{parent}.{key}"),
            None => key.to_owned(),
        };
        lines.push((full.clone(), number + 1));
        open.push((indent, full));
    }
    lines
}

/// A scalar as people wrote it, whole.
pub(super) fn text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => serde_yaml::to_string(other).unwrap_or_default(),
    };
    text.trim().to_owned()
}

/// A value for an error message: on one line, cut to 120 characters.
pub(super) fn shown(value: &Value) -> String {
    let text = match value {
        // As people write it, in one line.
        Value::Sequence(items) => {
            format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        value => text(value),
    };
    text.chars().take(120).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_and_nested_are_the_same_and_know_their_lines() {
        let text =
            "# head\nbroker:\n  id: 1\n  rack: r\nlog.dirs: /x\nzookeeper: {connect: 'a:1'}\n";
        let found = entries(text).unwrap();
        let seen: Vec<_> = found.iter().map(|e| (e.key.as_str(), e.line)).collect();
        assert_eq!(
            seen,
            [
                ("broker.id", Some(3)),
                ("broker.rack", Some(4)),
                ("log.dirs", Some(5)),
                ("zookeeper.connect", None)
            ]
        );
    }

    #[test]
    fn what_is_no_list_of_settings_is_refused() {
        for bad in ["- a\n", "text", "1: 2\n", "a: [", "a: 1\na: 2\n"] {
            assert!(entries(bad).is_err(), "{bad}");
        }
        assert!(entries("").unwrap().is_empty());
    }
}
