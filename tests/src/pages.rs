//! Pages with commands: their blocks, and a shell that runs them as they stand.
//!
//! A block's info string is `sh` and a name by which a test runs it, `sh norun` (it needs what no test has: only its syntax is checked), or
//! another language. What a page says and a test cannot have, such as an address, is replaced by a table; each entry of it has to be
//! in the block, so that neither can change alone.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cluster::program;
use crate::{Fault, Outcome};

/// How long one block may take.
const BLOCK_MAX_S: &str = "180";

/// In front of each block: whatever fails ends it, but for the commands whose exit code is an answer.
const FRAME: &str = r#"set -uo pipefail -E
failed() {
    local code=$?
    case "$code $BASH_COMMAND" in
        "6 barnabas explain "* | "6 barnabas doctor"* | "1 barnabas ledger verify"*) return 0 ;;
    esac
    echo "ended with $code: $BASH_COMMAND" >&2
    exit 99
}
trap failed ERR
"#;

/// One block of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The line of the page on which it begins, from 1.
    pub line: usize,
    /// What stands behind the three ticks.
    pub info: String,
    /// Its lines.
    pub text: String,
}

impl Block {
    /// Whether it holds commands.
    #[must_use]
    pub fn is_shell(&self) -> bool {
        self.info.split(' ').next() == Some("sh")
    }

    /// The name by which a test runs it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.info.strip_prefix("sh ").filter(|name| *name != "norun")
    }

    /// With what the table says in place of what the page says.
    ///
    /// # Errors
    /// The block does not say that.
    pub fn replaced(&self, table: &[(&str, &str)]) -> Outcome<String> {
        let mut text = self.text.clone();
        for (page, test) in table {
            if !text.contains(page) {
                return Err(format!("the block of line {} does not say '{page}'", self.line).into());
            }
            text = text.replace(page, test);
        }
        Ok(text)
    }
}

/// All blocks of a page, in order.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut open) = (Vec::new(), None::<Block>);
    for (number, line) in (1..).zip(page.lines()) {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let (info, text) = (info.trim().to_owned(), String::new());
                open = Some(Block { line: number, info, text });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// The block of this name.
///
/// # Errors
/// The page has none, or two.
pub fn block(page: &str, name: &str) -> Outcome<Block> {
    let mut found = blocks(page).into_iter().filter(|block| block.name() == Some(name));
    match (found.next(), found.next()) {
        (Some(block), None) => Ok(block),
        _ => Err(format!("the page has not one block '{name}'").into()),
    }
}

/// What a block printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// On stdout.
    pub out: String,
    /// On stderr.
    pub err: String,
}

/// Where blocks are run.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The working directory.
    pub directory: PathBuf,
    /// More of the environment. The binary under test is found as `barnabas` anyway.
    pub environment: Vec<(String, String)>,
    /// Functions that the table may name.
    pub functions: String,
}

impl Shell {
    /// Runs a block in a shell of its own, to its end.
    ///
    /// # Errors
    /// The table does not fit, a command fails, or it does not end in time; with all that it said.
    pub async fn run(&self, block: &Block, table: &[(&str, &str)]) -> Outcome<Said> {
        let text = block.replaced(table)?;
        self.run_text(&format!("line {}", block.line), &text).await
    }

    /// The same for a text.
    ///
    /// # Errors
    /// As [`Shell::run`].
    pub async fn run_text(&self, name: &str, text: &str) -> Outcome<Said> {
        let script = format!("{FRAME}{}\n{text}\nexit 0", self.functions);
        let program = program()?;
        let folder = program.parent().ok_or("a program without a folder")?;
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        // Files, not pipes: brokers that a block starts would keep a pipe open.
        let file = |kind: &str| self.directory.join(format!("block.{kind}"));
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", BLOCK_MAX_S, "bash", "-c", &script])
            .current_dir(&self.directory)
            .env_remove("BARNABAS_ADMIN")
            .env("PATH", path)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(File::create(file("out"))?)
            .stderr(File::create(file("err"))?);
        let status = tokio::task::spawn_blocking(move || command.status()).await??;
        let read =
            |kind: &str| fs::read(file(kind)).map(|b| String::from_utf8_lossy(&b).into_owned());
        let said = Said { out: read("out")?, err: read("err")? };
        println!("== {name}\n{text}\n{}{}", said.out, said.err);
        if status.success() {
            return Ok(said);
        }
        let what = format!("the block of {name} ended with {status}");
        Err(Fault::from(format!("{what}:\n{}\n{}", said.out, said.err)))
    }
}

/// Whether a shell can read the block at all.
///
/// # Errors
/// It cannot; with what it said.
pub fn check_syntax(block: &Block) -> Outcome<()> {
    let checked = Command::new("bash").args(["-n", "-c", &block.text]).output()?;
    if checked.status.success() {
        return Ok(());
    }
    Err(format!("line {}: {}", block.line, String::from_utf8_lossy(&checked.stderr)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "a\n```sh one\nls /x\n```\nb\n```text\nno\n```\n```sh norun\nif\n```\n```sh\n:\n```\n";

    #[test]
    fn blocks_have_names_and_lines() {
        let found = blocks(PAGE);
        let told: Vec<_> = found.iter().map(|b| (b.line, b.is_shell(), b.name())).collect();
        assert_eq!(
            told,
            [(2, true, Some("one")), (6, false, None), (9, true, None), (12, true, None)]
        );
        assert_eq!(block(PAGE, "one").unwrap().replaced(&[("/x", "/y")]).unwrap(), "ls /y\n");
        assert!(block(PAGE, "one").unwrap().replaced(&[("/z", "/y")]).is_err());
        assert!(block(PAGE, "two").is_err());
        assert!(check_syntax(&found[0]).is_ok() && check_syntax(&found[2]).is_err());
    }
}
