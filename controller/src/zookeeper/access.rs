//! Who a session is to ZooKeeper, and who may touch the nodes that it makes. No other file decides on an ACL.
//!
//! With credentials a node belongs to those who present them; the rest of the world may read it, but for what Kafka keeps to itself
//! ([`KEPT`]). Without them a node belongs to everybody who reaches ZooKeeper, as in Kafka.

use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;
use zookeeper_client as zk;

/// Trees that only their owners may read: passwords' verifiers lie there (Kafka's `ZkData.SensitiveRootPaths`).
const KEPT: [&str; 3] = ["/config/users", "/config/brokers", "/delegation_token/tokens"];

static OWNERS: [zk::Acl; 1] = [zk::Acl::new_const(zk::Permission::ALL, "auth", "")];
static OWNERS_AND_READERS: [zk::Acl; 2] = [
    zk::Acl::new_const(zk::Permission::ALL, "auth", ""),
    zk::Acl::new_const(zk::Permission::READ, "world", "anyone"),
];

/// How a session proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheme {
    /// ZooKeeper's own scheme `digest`: whoever presents the password is the user. It travels as it is.
    #[default]
    Digest,
    /// SASL with DIGEST-MD5, as Kafka does it with `DigestLoginModule`: the server knows the users.
    Sasl,
}

impl FromStr for Scheme {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "digest" => Ok(Self::Digest),
            "sasl" => Ok(Self::Sasl),
            _ => Err(()),
        }
    }
}

/// Users and their passwords; at least one. Never printed, never compared.
#[derive(Clone)]
pub struct Credentials {
    scheme: Scheme,
    users: Vec<(String, Zeroizing<String>)>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users: Vec<&str> = self.users.iter().map(|(user, _)| user.as_str()).collect();
        f.debug_struct("Credentials").field("scheme", &self.scheme).field("users", &users).finish()
    }
}

impl Credentials {
    /// Reads lines `user:password`; empty ones and those that begin with `#` are skipped. All users of `digest` are presented, so that a
    /// node belongs to each of them: that is how passwords change while brokers run.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence; it never holds a password.
    pub fn parse(scheme: Scheme, text: &str) -> Result<Self, String> {
        let mut users = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let parts = line
                .split_once(':')
                .filter(|(user, password)| !user.is_empty() && !password.is_empty());
            let Some((user, password)) = parts else {
                return Err(format!("line {number} is not user:password"));
            };
            users.push((user.to_owned(), Zeroizing::new(password.to_owned())));
        }
        match (users.len(), scheme) {
            (0, _) => Err("no line is user:password".to_owned()),
            (1, _) | (_, Scheme::Digest) => Ok(Self { scheme, users }),
            (count, Scheme::Sasl) => {
                Err(format!("it has {count} users, and a SASL session has one; leave one line"))
            }
        }
    }
}

/// What a session presents, and whether the nodes that it makes belong to that.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `None`: nobody in particular.
    pub credentials: Option<Credentials>,
    /// `zookeeper.set.acl`; means nothing without credentials.
    pub set_acl: bool,
}

impl Access {
    /// The connector of a session that presents this.
    pub(super) fn present(&self, connector: zk::Connector) -> zk::Connector {
        let Some(credentials) = &self.credentials else { return connector };
        let mut users = credentials.users.iter();
        match credentials.scheme {
            Scheme::Digest => users.fold(connector, |connector, (user, password)| {
                let told = Zeroizing::new(format!("{user}:{}", password.as_str()));
                connector.with_auth("digest", told.as_bytes())
            }),
            Scheme::Sasl => match users.next() {
                Some((user, password)) => connector
                    .with_sasl(zk::SaslOptions::digest_md5(user.clone(), password.to_string())),
                None => connector,
            },
        }
    }

    /// Whether nodes get owners.
    pub(super) fn protects(&self) -> bool {
        self.set_acl && self.credentials.is_some()
    }
}

/// Whether only the owners of a node may read it.
pub(super) fn is_kept(path: &str) -> bool {
    KEPT.iter().any(|kept| {
        path.strip_prefix(kept).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The ACL of a node that belongs to whoever makes or protects it.
pub(super) fn owned(path: &str) -> &'static [zk::Acl] {
    if is_kept(path) { &OWNERS } else { &OWNERS_AND_READERS }
}

/// Whose a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// Ours alone; others may read it, where that is meant to be.
    Ours,
    /// Anybody's: what anybody may do beyond what is meant.
    Anybody(String),
    /// Somebody else's, or not wholly ours: the whole ACL.
    Others(String),
}

/// Whose a node with this ACL is, if `ours` are the ids that this session has.
pub(super) fn held(path: &str, acl: &[zk::Acl], ours: &[zk::AuthId]) -> Held {
    let is_world = |entry: &&zk::Acl| entry.scheme() == "world";
    let meant = if is_kept(path) { zk::Permission::NONE } else { zk::Permission::READ };
    if let Some(world) = acl.iter().filter(is_world).find(|entry| !meant.has(entry.permission())) {
        return Held::Anybody(world.permission().to_string());
    }
    let owns = |id: &zk::AuthId| {
        acl.iter().any(|entry| entry.auth_id() == id && entry.permission() == zk::Permission::ALL)
    };
    let stranger = acl.iter().any(|entry| !is_world(&entry) && !ours.contains(entry.auth_id()));
    if !stranger && !ours.is_empty() && ours.iter().all(owns) {
        return Held::Ours;
    }
    // A digest's hash would let a password be guessed.
    let name = |entry: &zk::Acl| {
        let user = entry.id().split(':').next().unwrap_or_default();
        format!("{}:{user} {}", entry.scheme(), entry.permission())
    };
    Held::Others(acl.iter().map(name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_lines_and_their_passwords_are_never_shown() {
        let read = |text| Credentials::parse(Scheme::Digest, text);
        let two = read("# new first\nbroker:s3cret:x\n\nold:hunter2\r\n").unwrap();
        let users: Vec<(&str, &str)> =
            two.users.iter().map(|(user, password)| (user.as_str(), password.as_str())).collect();
        assert_eq!(users, [("broker", "s3cret:x"), ("old", "hunter2")]);
        let shown =
            format!("{two:?} {:?}", Access { credentials: Some(two.clone()), set_acl: true });
        assert!(
            shown.contains("broker") && !shown.contains("s3cret") && !shown.contains("hunter2")
        );
        for (text, expected) in [
            ("", "no line is"),
            ("# only this\n", "no line is"),
            ("a:b\nsecretword\n", "line 2 is not"),
            (":b", "line 1 is not"),
            ("a:", "line 1 is not"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secretword"), "{text:?}: {error}");
        }
        assert!(Credentials::parse(Scheme::Sasl, "a:b\nc:d").unwrap_err().contains("2 users"));
        assert_eq!("sasl".parse(), Ok(Scheme::Sasl));
        assert_eq!("x509".parse::<Scheme>(), Err(()));
    }

    #[test]
    fn what_kafka_keeps_to_itself_is_not_readable() {
        for kept in ["/config/users", "/config/users/alice", "/config/brokers/1"] {
            assert_eq!(owned(kept), OWNERS, "{kept}");
        }
        for open in ["/", "/config", "/config/usersx", "/brokers/topics/t"] {
            assert_eq!(owned(open), OWNERS_AND_READERS, "{open}");
        }
    }

    #[test]
    fn a_node_is_ours_if_every_user_of_ours_owns_it_and_nobody_else_does() {
        use zk::{Acl, AuthId, Permission};
        let (me, old) = (AuthId::new("digest", "b:h1="), AuthId::new("digest", "old:h2="));
        let all = |id: &AuthId| Acl::new(Permission::ALL, id.clone());
        let read = Acl::new(Permission::READ, AuthId::anyone());
        let whose = |path, acl: &[Acl], ours: &[AuthId]| held(path, acl, ours);
        assert_eq!(whose("/a", &[all(&me), read.clone()], std::slice::from_ref(&me)), Held::Ours);
        assert_eq!(whose("/a", &[all(&me)], std::slice::from_ref(&me)), Held::Ours);
        let kept = whose("/config/users", &[all(&me), read.clone()], std::slice::from_ref(&me));
        assert_eq!(kept, Held::Anybody("READ".into()));
        let open = whose("/a", &[all(&AuthId::anyone())], std::slice::from_ref(&me));
        assert_eq!(open, Held::Anybody("ALL".into()));
        let delete = Acl::new(Permission::DELETE | Permission::READ, AuthId::anyone());
        assert_eq!(
            whose("/a", &[all(&me), delete], std::slice::from_ref(&me)),
            Held::Anybody("READ|DELETE".into())
        );
        let both = [me.clone(), old.clone()];
        let others = Held::Others("digest:b ALL, world:anyone READ".into());
        assert_eq!(
            whose("/a", &[all(&me), read.clone()], &both),
            others,
            "not yet the other user's"
        );
        let strangers =
            whose("/a", &[all(&me), all(&old), read.clone()], std::slice::from_ref(&me));
        assert!(matches!(strangers, Held::Others(text) if !text.contains("h2")));
        assert!(matches!(whose("/a", &[read], &[]), Held::Others(_)), "nobody may write it");
    }
}
