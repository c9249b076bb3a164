//! File steps that must survive a crash in the middle: atomic replacement, directory sync.

use std::fs;
use std::io;
use std::path::Path;

use crate::disk::Disk;
use crate::error::{At as _, LogError};

/// Makes the names in a directory durable: needed after each create, rename and delete that something depends on.
pub(crate) fn sync_dir(disk: &Disk, dir: &Path) -> Result<(), LogError> {
    disk.sync_dir(dir).at("sync directory", dir)
}

/// Replaces a file as a whole, so that a reader (also after a crash of the process) sees the old or the new content.
/// Not durable by itself: a host crash may still lose the new content.
pub(crate) fn replace(disk: &Disk, path: &Path, content: &[u8]) -> Result<(), LogError> {
    replace_with(disk, path, content, false)
}

/// Replaces a file as a whole, so that after any crash it has the old or the new content; durable when it returns.
///
/// # Errors
/// [`LogError::Io`]; the old content stays.
pub fn replace_durably(disk: &Disk, path: &Path, content: &[u8]) -> Result<(), LogError> {
    replace_with(disk, path, content, true)?;
    path.parent().map_or(Ok(()), |parent| sync_dir(disk, parent))
}

/// As [`replace_durably`], without syncing the directory: whoever calls it does that.
pub(crate) fn replace_synced(disk: &Disk, path: &Path, content: &[u8]) -> Result<(), LogError> {
    replace_with(disk, path, content, true)
}

fn replace_with(disk: &Disk, path: &Path, content: &[u8], sync: bool) -> Result<(), LogError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = Path::new(&name);
    let write = || -> io::Result<()> {
        let file = disk.create(temporary)?;
        file.write_all_at(content, 0)?;
        if sync { file.sync_data() } else { Ok(()) }
    };
    let result = write()
        .at("write", temporary)
        .and_then(|()| disk.rename(temporary, path).at("replace", path));
    if result.is_err() {
        // Its bytes may be what a full disk lacks; that it stays is harmless.
        let _ = disk.remove_file(temporary);
    }
    result
}

/// The content of a text file; `None` if there is no such file or it is no text.
///
/// # Errors
/// [`LogError::Io`].
pub fn read_text(path: &Path) -> Result<Option<String>, LogError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("read", path),
    }
}

/// Removes a file; that it does not exist is fine.
pub(crate) fn remove_if_there(disk: &Disk, path: &Path) -> Result<(), LogError> {
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", path),
        _ => Ok(()),
    }
}
