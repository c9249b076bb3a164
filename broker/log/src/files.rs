//! File steps that must survive a crash in the middle: atomic replacement, directory sync.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::{At as _, LogError};

/// Makes the names in a directory durable: needed after each create, rename and delete that something depends on.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), LogError> {
    File::open(dir).and_then(|d| d.sync_all()).at("sync directory", dir)
}

/// Replaces a file as a whole, so that a reader (also after a crash of the process) sees the old or the new content.
/// Not durable by itself: a host crash may still lose the new content.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), LogError> {
    replace_with(path, content, false)
}

/// As [`replace`], and durable when it returns: content, then name.
pub(crate) fn replace_durably(path: &Path, content: &[u8]) -> Result<(), LogError> {
    replace_with(path, content, true)?;
    path.parent().map_or(Ok(()), sync_dir)
}

fn replace_with(path: &Path, content: &[u8], sync: bool) -> Result<(), LogError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = Path::new(&name);
    let write = || -> io::Result<()> {
        let mut file = File::create(temporary)?;
        file.write_all(content)?;
        if sync {
            file.sync_all()?;
        }
        Ok(())
    };
    write().at("write", temporary)?;
    fs::rename(temporary, path).at("replace", path)
}

/// The content of a text file; `None` if there is no such file or it is no text.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, LogError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("read", path),
    }
}

/// Removes a file; that it does not exist is fine.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), LogError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", path),
        _ => Ok(()),
    }
}
