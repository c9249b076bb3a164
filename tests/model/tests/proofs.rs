//! ARCHITECTURE.md's table of what is proven where names what is there: every rule, every planted bug, and tests that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use barnabas_model::Mutation;

const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");
const HEADING: &str = "| rule | unit tests in |";
const RULES: usize = 39;
/// What stands in a cell without anything.
const NONE: &str = "–";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of each rule, without its name.
fn rows() -> Vec<Vec<&'static str>> {
    let lines = ARCHITECTURE.lines().skip_while(|line| !line.starts_with(HEADING)).skip(2);
    let rows = lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let rows: Vec<Vec<&str>> = rows.collect();
    let named: Vec<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    let all: Vec<String> = (1..=RULES).map(|rule| format!("R{rule}")).collect();
    assert_eq!(named, all, "each rule once, in order");
    rows.into_iter().map(|row| row[1..].to_vec()).collect()
}

fn names(cell: &'static str) -> Vec<&'static str> {
    if cell == NONE { Vec::new() } else { cell.split(", ").collect() }
}

/// The planted bugs of one column are those that exist, no more and no fewer.
fn is_complete(column: usize, planted: &BTreeSet<&str>) {
    let told: BTreeSet<&str> = rows().into_iter().flat_map(|row| names(row[column])).collect();
    let missing: Vec<_> = planted.difference(&told).collect();
    let invented: Vec<_> = told.difference(planted).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing {missing:?}, invented {invented:?}"
    );
}

#[test]
fn every_planted_bug_of_the_model_is_in_the_table() {
    is_complete(1, &Mutation::ALL.iter().map(|planted| planted.0.name()).collect());
}

#[test]
fn every_planted_bug_of_the_simulator_is_in_the_table() {
    let all = barnabas_simulator::Mutation::ALL;
    is_complete(2, &all.iter().map(|(name, _)| *name).collect());
}

#[test]
fn every_rule_has_unit_tests_that_bear_its_name() {
    for (index, row) in rows().iter().enumerate() {
        let path = root().join(row[0].trim_matches('`'));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let name = format!("fn r{}", index + 1);
        let of_rule =
            |at: usize| text[at + name.len()..].starts_with(|c: char| !c.is_ascii_digit());
        let found = text.match_indices(&name).any(|(at, _)| of_rule(at));
        assert!(found, "{path:?} has no test of R{}", index + 1);
    }
}

#[test]
fn every_scenario_with_real_processes_exists() {
    let mut sources = String::new();
    let mut folders = vec![root().join("tests/tests/e2e")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push_str(&std::fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    for row in rows() {
        for name in names(row[3]) {
            assert!(sources.contains(&format!("fn {name}(")), "no scenario '{name}'");
        }
    }
}
