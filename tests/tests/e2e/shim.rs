//! The fault tools themselves, on small programs whose file calls are known.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use barnabas_tests::Outcome;
use barnabas_tests::cluster::fresh_directory;
use barnabas_tests::power;
use barnabas_tests::shim::{Op, Shim};

/// Seeds that are tried: each of the few states that may be left turns up among them.
const SEEDS: u64 = 32;

struct World {
    directory: PathBuf,
    root: PathBuf,
    shim: Shim,
}

impl World {
    fn new() -> Outcome<Self> {
        let directory = fresh_directory()?;
        let root = directory.join("data");
        fs::create_dir(&root)?;
        let shim = Shim::create(&directory.join("shim"), true)?;
        Ok(Self { directory, root, shim })
    }

    /// Runs a line of shell in the data directory.
    fn run(&self, line: &str) -> Outcome<Output> {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.root);
        let roots = [self.root.clone()];
        Ok(shell.envs(self.shim.environment(&roots)).output()?)
    }

    /// What may be left of a file after a power cut, over many seeds. The directory is what it was afterwards.
    fn outcomes(line: &str, name: &str) -> Outcome<Vec<Option<Vec<u8>>>> {
        let mut seen = Vec::new();
        for seed in 0..SEEDS {
            let world = Self::new()?;
            let output = world.run(line)?;
            assert!(output.status.success(), "{output:?}");
            power::cut(std::slice::from_ref(&world.root), world.shim.journal()?, seed)?;
            let left = fs::read(world.root.join(name)).ok();
            if !seen.contains(&left) {
                seen.push(left);
            }
        }
        seen.sort();
        Ok(seen)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What is left over in the temporary folder harms nobody.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn is(path: &Path, content: &str) -> bool {
    fs::read(path).is_ok_and(|found| found == content.as_bytes())
}

#[test]
fn what_was_synced_stays_and_what_was_not_may_go() -> Outcome<()> {
    let durable = "printf abc > f; sync -d f; sync .; ";
    let seen = World::outcomes(&format!("{durable} printf def >> f"), "f")?;
    assert!(
        seen.iter().all(|left| left.as_ref().is_some_and(|f| f.starts_with(b"abc"))),
        "{seen:?}"
    );
    for left in [&b"abc"[..], b"abcdef", b"abc\0\0\0"] {
        assert!(seen.contains(&Some(left.to_vec())), "{left:?} is not among {seen:?}");
    }
    assert_eq!(World::outcomes(durable, "f")?, [Some(b"abc".to_vec())]);
    assert_eq!(World::outcomes("printf abc > f; sync -f f", "f")?, [Some(b"abc".to_vec())]);
    let seen = World::outcomes("printf abc > f; sync -d f", "f")?;
    assert_eq!(seen, [None, Some(b"abc".to_vec())], "its name was not synced");
    Ok(())
}

#[test]
fn unsynced_renames_deletions_and_cuts_may_be_undone() -> Outcome<()> {
    let old_and_new =
        "printf old > f; sync -d f; sync .; printf new > f.tmp; sync -d f.tmp; mv f.tmp f";
    let seen = World::outcomes(old_and_new, "f")?;
    assert_eq!(seen, [Some(b"new".to_vec()), Some(b"old".to_vec())]);
    assert_eq!(World::outcomes(&format!("{old_and_new}; sync ."), "f")?, [Some(b"new".to_vec())]);
    let seen = World::outcomes("printf old > f; sync -d f; sync .; rm f", "f")?;
    assert_eq!(seen, [None, Some(b"old".to_vec())]);
    let cut = "printf abcdef > f; sync -d f; sync .; truncate -s 2 f; printf xy >> f";
    let seen = World::outcomes(cut, "f")?;
    for left in [&b"abcdef"[..], b"ab", b"abxy"] {
        assert!(seen.contains(&Some(left.to_vec())), "{left:?} is not among {seen:?}");
    }
    let seen = World::outcomes("mkdir -p d; printf abc > d/f; sync -d d/f; sync d", "d/f")?;
    assert_eq!(seen, [None, Some(b"abc".to_vec())], "the directory's own name was not synced");
    let moved = "mkdir d; printf abc > d/f; sync -f d; mv d e; rm e/f; rmdir e";
    assert_eq!(World::outcomes(moved, "d/f")?, [None, Some(b"abc".to_vec())]);
    Ok(())
}

#[test]
fn a_sync_that_only_says_so_keeps_nothing() -> Outcome<()> {
    let mut empty = 0;
    for seed in 0..SEEDS {
        let world = World::new()?;
        world.shim.rules(&["noop sync"])?;
        world.run("printf abc > f; sync -d f; sync .")?;
        power::cut(std::slice::from_ref(&world.root), world.shim.journal()?, seed)?;
        empty += u64::from(!is(&world.root.join("f"), "abc"));
    }
    assert!(empty > SEEDS / 4, "only {empty} of {SEEDS} lost anything");
    Ok(())
}

#[test]
fn rules_fail_shorten_and_lie() -> Outcome<()> {
    let world = World::new()?;
    let file = world.root.join("f");
    world.shim.rules(&["fail:28 write path=*/f", "fail:5 sync path=*/g"])?;
    assert!(!world.run("printf abc > f")?.status.success());
    assert!(is(&file, "") && world.shim.fired(0)? == 1);
    assert!(!world.run("printf abc > g; sync -d g")?.status.success());
    assert_eq!(world.shim.fired(1)?, 1);

    world.shim.rules(&["short write path=*/f nth=1"])?;
    let writes = world.shim.calls(Op::Write)?;
    // dd goes on with the rest.
    assert!(world.run("dd if=/dev/zero of=f bs=4 count=1 status=none")?.status.success());
    assert_eq!((world.shim.fired(0)?, world.shim.calls(Op::Write)?), (1, writes + 2));
    assert!(is(&file, "\0\0\0\0"));

    world.shim.rules(&["noop sync"])?;
    let syncs = world.shim.calls(Op::Fdatasync)?;
    assert!(world.run("printf abc > h; sync -d h")?.status.success());
    assert_eq!((world.shim.fired(0)?, world.shim.calls(Op::Fdatasync)?), (1, syncs + 1));
    Ok(())
}
