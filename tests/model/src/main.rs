//! `barnabas-model`: explores named rows or one given as words, the planted bugs, or the table of what may be lost.

use barnabas_model::rows::{LARGE, Named, QUICK, named};
use barnabas_model::{Finding, Mutation, Protocol, Row, explore, find, losses};

const USAGE: &str = "\
usage: model-check --quick | --large | --all | --row NAME | --mutations | --loss-table | KEY=VALUE... [+MUTATION]
  --quick       the rows of every test run       --large        those that take minutes each; --all: both
  --mutations   each planted bug in its row      --loss-table   the README's table of what may be lost
  keys: rec pc hc all su rr te al epochs min isr sync acks unclean lost told late heal ar tgt mv sd sdto av del net dr ret
  ff set uncl begun fork shown only (see tests/model/src/row.rs)
";

const README: &str = include_str!("../../../README.md");

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let holds = match words[..] {
        ["--quick"] => QUICK.iter().map(run).filter(|holds| !holds).count() == 0,
        ["--large"] => LARGE.iter().map(run).filter(|holds| !holds).count() == 0,
        ["--all"] => QUICK.iter().chain(LARGE).map(run).filter(|holds| !holds).count() == 0,
        ["--row", name] => named(name).map_or_else(|| misused(&format!("no row '{name}'")), run),
        ["--mutations"] => mutations(),
        ["--loss-table"] => {
            let table = losses::table(threads());
            print!("{table}");
            let agrees = README.contains(&table);
            println!("{}", if agrees { "README.md says the same" } else { "README.md DIFFERS" });
            agrees
        }
        [] => misused("what to explore?"),
        _ => match Row::read(&words.join(" ")) {
            Ok(row) => show(&words.join(" "), row, &explore(row, threads())),
            Err(wrong) => misused(&wrong),
        },
    };
    std::process::exit(i32::from(!holds));
}

fn misused(wrong: &str) -> bool {
    eprint!("{wrong}\n{USAGE}");
    std::process::exit(2);
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

fn run(named: &Named) -> bool {
    let row = Row::read(named.words).unwrap_or_else(|wrong| panic!("{}: {wrong}", named.name));
    show(&format!("{} ({})", named.name, named.words), row, &explore(row, threads()))
}

/// Every mutation: found or not, and in how many steps.
fn mutations() -> bool {
    let mut all = true;
    for planted in Mutation::ALL {
        match find(planted, threads()) {
            Ok(Finding { worlds, took, broken, .. }) => {
                let what = broken.first().map(|(invariant, way)| (invariant, way.len()));
                let (_, name, words) = planted;
                println!("{name} ({words}): {what:?} steps; {worlds} worlds, {took:.1?}");
            }
            Err(wrong) => {
                println!("NOT FOUND: {wrong}");
                all = false;
            }
        }
    }
    all
}

/// Prints what came of a row, and the way to what is broken.
fn show(title: &str, row: Row, found: &Finding) -> bool {
    let verdict = if found.holds() { "holds" } else { "BREAKS" };
    let Finding { worlds, depth, took, .. } = found;
    println!("{title}: {verdict}; {worlds} worlds, depth {depth}, {took:.1?}");
    println!("   reached: {}", found.reached.join(", "));
    if let Some((invariant, way)) = found.broken.first() {
        println!("{invariant}, {} steps:", way.len());
        let protocol = Protocol::new(row);
        let mut world = protocol.first();
        for action in way {
            if let Some(next) = protocol.next(&world, *action) {
                world = next;
            }
            println!("   {action:?}\n      {world}");
        }
    }
    found.holds()
}
