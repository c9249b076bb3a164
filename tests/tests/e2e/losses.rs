//! `deploy/losses.md`: its commands show what they say, and each test that it names is there.

use std::path::{Path, PathBuf};

use barnabas_tests::Outcome;
use barnabas_tests::cluster::Options;
use barnabas_tests::machines::Machines;
use barnabas_tests::pages::{block, blocks};

const PAGE: &str = include_str!("../../../deploy/losses.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losses_are_seen_with_the_commands_of_the_page() -> Outcome<()> {
    let config = "replica.lag.time.max.ms: 2000\noffsets.topic.num.partitions: 2\ngroup.initial.rebalance.delay.ms: 0\n";
    let mut machines =
        Machines::configure(Options { config: config.to_owned(), ..Options::default() }).await?;
    machines.start(&[1, 2, 3]).await?;
    let bootstrap = machines.cluster.bootstrap();
    machines.shell.environment.push(("BARNABAS_BOOTSTRAP".to_owned(), bootstrap));
    let run = async |name: &str| machines.shell.run(&block(PAGE, name)?, &[]).await;

    let said = run("look").await?.out;
    assert!(!said.contains("acks="), "nothing is lost: {said}");
    let said = run("min-insync").await?;
    assert!(said.out.contains("warning") || said.err.contains("warning"), "{said:?}");
    let said = run("overtaken").await?.out;
    assert!(said.contains("committed_offset_out_of_range"), "{said}");
    let said = run("forgotten").await?.out;
    assert!(said.contains("all 400 records were read twice"), "{said}");
    let said = run("reset").await?.out;
    assert!(said.contains("of 1401 records, a new group with latest has seen 0"), "{said}");
    Ok(())
}

#[test]
fn every_block_of_the_page_is_run() {
    let source = include_str!("losses.rs");
    let all = blocks(PAGE);
    for block in all.iter().filter(|block| block.is_shell()) {
        let name = block.name().expect("a name");
        assert!(source.contains(&format!("run(\"{name}\")")), "no test runs {name}");
    }
    assert_eq!(all.iter().filter(|block| block.is_shell()).count(), 5);
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_way_names_a_test_that_is_there() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"), &mut found);
    let all: String = found.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let ways: Vec<&str> = PAGE.split("\n## ").skip(1).collect();
    assert_eq!(ways.len(), 12);
    let mut told = 0;
    for way in ways {
        let shown = way.split("*Shown by*").nth(1).unwrap_or_else(|| panic!("no test: {way}"));
        for name in shown.split('`').skip(1).step_by(2) {
            // A long name with many underscores is a test's.
            if name.matches('_').count() >= 3 && !name.contains('/') {
                assert!(all.contains(&format!("fn {name}()")), "there is no test {name}");
                told += 1;
            }
        }
        let has = ["*How.*", "*Remedy.*"].iter().all(|part| way.contains(part));
        assert!(has, "{}", way.lines().next().unwrap_or_default());
    }
    assert!(told >= 12, "{told}");
}
