//! Files that hold a secret: read only where nobody else can read or change them, and never told.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use zeroize::Zeroizing;

/// Modes that give it away: others may read or write it, or its group may write it. (A group may read it: that is how secrets are
/// mounted in containers.)
const TOO_OPEN: u32 = 0o027;

/// The text of the file, at most `bytes_max` of it.
///
/// # Errors
/// What is wrong with the file and what to do, in words that fit after its name; never what is in it.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, String> {
    let cannot = |error: std::io::Error| {
        format!(
            "it cannot be read ({error}); make it with `umask 077` as the user that runs the broker"
        )
    };
    // Before it is opened: opening a pipe waits for whoever writes it.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("it is no file; name one that holds the secret alone".to_owned());
    }
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        return Err(format!(
            "others may read or change it (mode {mode:o}); chmod 600 it, and put another secret into it"
        ));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(bytes_max).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}
