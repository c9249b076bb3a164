//! Who a broker is to ZooKeeper: the file with its credentials, and whether its nodes belong to them.

use std::path::{Path, PathBuf};

use barnabas_controller::zookeeper::{Access, Credentials, Scheme};

use super::error::ConfigError;
use super::secret;
use super::settings::Settings;

const FILE: &str = "zookeeper.credentials.file";
const SCHEME: &str = "zookeeper.auth.scheme";
const SET_ACL: &str = "zookeeper.set.acl";
/// What is read of the file; it is much more than anybody needs.
const BYTES_MAX: u64 = 64 << 10;

/// What a broker's file says of it. The credentials themselves are read when they are used ([`ZooKeeperAccess::open`]).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZooKeeperAccess {
    /// `zookeeper.credentials.file`; `None`: the broker is nobody in particular.
    pub file: Option<PathBuf>,
    /// `zookeeper.auth.scheme`.
    pub scheme: Scheme,
    /// `zookeeper.set.acl`; means nothing without credentials.
    pub set_acl: bool,
}

impl ZooKeeperAccess {
    pub(super) fn read(s: &Settings) -> Result<Self, ConfigError> {
        let file = s.text(FILE)?.map(PathBuf::from);
        let scheme = s.required(SCHEME)?.parse().map_err(|()| s.bad(SCHEME))?;
        let set_acl = s.switch(SET_ACL)?;
        if file.is_none() {
            // Kafka refuses it too: nodes cannot belong to nobody.
            for key in [SET_ACL, SCHEME].into_iter().filter(|key| s.entry(key).is_some()) {
                if key == SCHEME || set_acl {
                    let reason = format!(
                        "it says how credentials are used, and there are none; add `{FILE}`"
                    );
                    return Err(s.contradicts(key, FILE, s.required(key)?, &reason));
                }
            }
        }
        Ok(Self { file, scheme, set_acl })
    }

    /// Reads the credentials.
    ///
    /// # Errors
    /// The key, the file, what is wrong with it and what to do: one sentence without a password.
    pub fn open(&self) -> Result<Access, String> {
        let Some(file) = &self.file else { return Ok(Access::default()) };
        let text = secret::read(file, BYTES_MAX).map_err(|reason| told(file, &reason))?;
        let credentials = Credentials::parse(self.scheme, &text).map_err(|reason| {
            told(file, &format!("{reason}; write one line user:password, with the words of the ensemble's administrator"))
        })?;
        Ok(Access { credentials: Some(credentials), set_acl: self.set_acl })
    }

    /// What is wrong with the file on this machine.
    pub(super) fn refused(&self, config: &Path) -> Option<ConfigError> {
        let file = self.file.as_ref()?;
        let reason = self.open().err()?;
        let reason = reason.strip_prefix(&told(file, "")).unwrap_or(&reason).to_owned();
        let (place, value) = (config.display().to_string(), file.display().to_string());
        Some(ConfigError::NotServed { place, key: FILE, value, reason, other: None })
    }
}

fn told(file: &Path, reason: &str) -> String {
    format!("'{FILE}' is '{}': {reason}", file.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_of_credentials_is_its_owners_alone() {
        let folder =
            std::env::temp_dir().join(format!("barnabas-credentials-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("zk");
        let access =
            ZooKeeperAccess { file: Some(file.clone()), scheme: Scheme::Digest, set_acl: true };
        let refused = || {
            let error = access.refused(Path::new("b.yaml")).unwrap().to_string();
            assert!(error.starts_with("b.yaml: 'zookeeper.credentials.file' is '"), "{error}");
            assert_eq!(error.matches("zookeeper.credentials.file").count(), 1, "{error}");
            assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
            error
        };
        assert!(refused().contains("cannot be read"));
        fs::write(&file, "broker:hunter2\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refused().contains("mode 644") && refused().contains("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(access.refused(Path::new("b.yaml")).map(|error| error.to_string()), None);
        let opened = access.open().unwrap();
        assert!(opened.set_acl && opened.credentials.is_some());
        fs::write(&file, "hunter2\n").unwrap();
        assert!(refused().contains("line 1 is not user:password"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(refused().contains("no file"));
        fs::remove_dir_all(folder).unwrap();
    }
}
