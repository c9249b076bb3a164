//! The harness's side of the fault shim: the environment that preloads it, rules that change while the process runs, counters,
//! and the journal for the power cut. `shim/src/` has the other side and defines rules and layout.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cluster::program;
use crate::{Fault, Outcome};

const CONTROL_BYTES: u64 = 65_536;
const FIRED_AT: u64 = 32_768;
const RULES_MAX: usize = 64;
const CALLS_AT: u64 = FIRED_AT + RULES_MAX as u64 * 8;

/// Disk errors as a rule names them.
pub const EIO: i32 = 5;
/// No space left on the device.
pub const ENOSPC: i32 = 28;

/// An operation that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Any form of write.
    Write = 0,
    /// Truncation and extension.
    Truncate = 4,
    /// `fdatasync`.
    Fdatasync = 6,
    /// `fsync`, of files and directories.
    Fsync = 7,
    /// `syncfs`.
    Syncfs = 8,
}

/// The shim of one process, whether it runs or not.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    control: File,
    control_path: PathBuf,
    journal: Option<PathBuf>,
    generation: AtomicU64,
}

impl Shim {
    /// Makes the control file in a directory of its own, and with `recording` a place for the journal.
    ///
    /// # Errors
    /// The library is not built, or the files cannot be made.
    pub fn create(directory: &Path, recording: bool) -> Outcome<Self> {
        fs::create_dir_all(directory)?;
        let control_path = directory.join("control");
        let control = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&control_path)?;
        control.set_len(CONTROL_BYTES)?;
        let journal = recording.then(|| directory.join("journal"));
        if let Some(journal) = &journal {
            fs::create_dir_all(journal)?;
        }
        let generation = AtomicU64::new(0);
        Ok(Self { library: library()?, control, control_path, journal, generation })
    }

    /// What a process must find in its environment to be looked at below `roots`.
    #[must_use]
    pub fn environment(&self, roots: &[PathBuf]) -> Vec<(&'static str, String)> {
        let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        let mut variables = vec![
            ("LD_PRELOAD", self.library.display().to_string()),
            ("BARNABAS_SHIM_ROOTS", roots.join(":")),
            ("BARNABAS_SHIM_CONTROL", self.control_path.display().to_string()),
        ];
        if let Some(journal) = &self.journal {
            variables.push(("BARNABAS_SHIM_JOURNAL", journal.display().to_string()));
        }
        variables
    }

    /// Replaces all rules; calls that are held are judged by the new ones. Their counters begin at 0.
    ///
    /// # Errors
    /// The control file cannot be written.
    ///
    /// # Panics
    /// There are more rules than fit.
    pub fn rules(&self, rules: &[&str]) -> Outcome<()> {
        let text = rules.join("\n");
        assert!(rules.len() <= RULES_MAX && text.len() < 32_000, "too many rules");
        self.control.write_all_at(text.as_bytes(), 16)?;
        self.control.write_all_at(&(text.len() as u64).to_le_bytes(), 8)?;
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(self.control.write_all_at(&generation.to_le_bytes(), 0)?)
    }

    /// How often a rule fired since the rules were set.
    ///
    /// # Errors
    /// The control file cannot be read.
    pub fn fired(&self, rule: usize) -> Outcome<u64> {
        let number = self.number(FIRED_AT + rule as u64 * 8)?;
        // What the rules before have counted is not theirs.
        let ours = number >> 32 == self.generation.load(Ordering::SeqCst);
        Ok(if ours { number & u64::from(u32::MAX) } else { 0 })
    }

    /// How often an operation was called on what lies below the roots, over all processes of this shim.
    ///
    /// # Errors
    /// The control file cannot be read.
    pub fn calls(&self, op: Op) -> Outcome<u64> {
        self.number(CALLS_AT + op as u64 * 8)
    }

    /// Where the journal is.
    ///
    /// # Errors
    /// Nothing is recorded.
    pub fn journal(&self) -> Outcome<&Path> {
        self.journal.as_deref().ok_or_else(|| "this shim records nothing".into())
    }

    fn number(&self, at: u64) -> Outcome<u64> {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The library: `BARNABAS_SHIM`, or the one beside the binary under test or beside the running test.
fn library() -> Outcome<PathBuf> {
    const NAME: &str = "libbarnabas_shim.so";
    if let Some(given) = std::env::var_os("BARNABAS_SHIM") {
        return Ok(PathBuf::from(given));
    }
    let folders = [program()?, std::env::current_exe()?];
    folders
        .iter()
        .flat_map(|file| file.ancestors().skip(1).take(2))
        .map(|folder| folder.join(NAME))
        .find(|candidate| candidate.is_file())
        .and_then(|found| found.canonicalize().ok())
        .ok_or_else(|| {
            Fault::from(format!(
                "no {NAME}: run `cargo build -p barnabas-shim` (Linux only), or set BARNABAS_SHIM"
            ))
        })
}
