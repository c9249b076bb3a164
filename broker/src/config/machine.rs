//! What only this machine can say of a configuration: whether its log directories are ones, whether its secrets are kept well, and
//! how many files may be open.

use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::BrokerConfig;
use super::error::ConfigError;
use super::traps::Trap;
use crate::http::Token;

/// Files that a broker should be allowed to open: a log in use holds some, each connection one.
pub const OPEN_FILES_WISHED: u64 = 65_536;

/// Everything that is wrong on this machine.
pub(super) fn refused(file: &Path, config: &BrokerConfig) -> Vec<ConfigError> {
    let mut found = directories(file, config);
    found.extend(config.zookeeper_access.refused(file));
    found.extend(token(file, config));
    found
}

/// What is wrong with the log directories: two names for one, one within another, one that is a file or cannot be written.
fn directories(file: &Path, config: &BrokerConfig) -> Vec<ConfigError> {
    const KEY: &str = "log.dirs";
    let refuse = |path: &Path, reason: String| ConfigError::NotServed {
        place: file.display().to_string(),
        key: KEY,
        value: path.display().to_string(),
        reason,
        other: None,
    };
    let mut found = Vec::new();
    let mut seen: Vec<(PathBuf, &Path)> = Vec::new();
    for path in &config.log_dirs {
        let real = real(path);
        let is_file = std::fs::metadata(path).is_ok_and(|at| !at.is_dir());
        if is_file {
            found.push(refuse(path, "it is a file; name a directory".to_owned()));
        } else if let Some((_, other)) = seen.iter().find(|(other, _)| *other == real) {
            let reason = format!("it is the same directory as {}; keep one", other.display());
            found.push(refuse(path, reason));
        } else if let Some((_, other)) =
            seen.iter().find(|(other, _)| other.starts_with(&real) || real.starts_with(other))
        {
            let reason = format!(
                "it and {} lie within each other; give each log directory a place of its own",
                other.display()
            );
            found.push(refuse(path, reason));
        } else if path.is_dir() && access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            let reason = "this user may not write there; give the directory to the user that runs the broker (chown), or \
                          name another";
            found.push(refuse(path, reason.to_owned()));
        }
        seen.push((real, path));
    }
    found
}

/// What is wrong with the file of the operator's token.
fn token(file: &Path, config: &BrokerConfig) -> Option<ConfigError> {
    let path = config.http_operator_token_file.as_ref()?;
    let reason = Token::read(path).err()?;
    Some(ConfigError::NotServed {
        place: file.display().to_string(),
        key: "http.operator.token.file",
        value: path.display().to_string(),
        reason,
        other: None,
    })
}

/// Where a path ends, as far as it exists; the rest as written.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut real = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                real.pop();
            }
            Component::CurDir => {}
            part => real.push(part),
        }
        real = real.canonicalize().unwrap_or(real);
    }
    real
}

/// How many files this process, and a broker started like it, may open at most; `None`: no limit.
#[must_use]
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// A trap if that are few.
#[must_use]
pub fn few_files() -> Option<Trap> {
    let limit = open_files().filter(|limit| *limit < OPEN_FILES_WISHED)?;
    Some(Trap::few_files(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_same_through_links_and_dots() {
        let folder = std::env::temp_dir().join(format!("barnabas-real-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a/b")).unwrap();
        std::os::unix::fs::symlink(folder.join("a"), folder.join("link")).unwrap();
        let expected = real(&folder.join("a/b"));
        for name in ["link/b", "a/./b", "a/b/../b", "link/../a/b/"] {
            assert_eq!(real(&folder.join(name)), expected, "{name}");
        }
        assert_eq!(real(&folder.join("link/new/x")), real(&folder.join("a/new/x")));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
