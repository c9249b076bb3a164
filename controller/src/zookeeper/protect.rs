//! Walks the nodes of a cluster and looks at, or sets, whose they are: `barnabas zookeeper check | secure | unsecure`.
//!
//! With the adapter the only file that touches the ZooKeeper client. ACLs are not part of the port: no decision hangs on them.

use std::time::Duration;

use barnabas_proto::znode::paths;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client as zk;

use super::access::{Held, held, owned};
use super::adapter::Servers;
use super::port::ConnectError;

/// Most nodes that are asked about at once.
const NODES_AT_ONCE: usize = 64;

/// What is to be done with each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Nothing.
    Look,
    /// It shall be ours.
    Secure,
    /// It shall be anybody's.
    Unsecure,
}

/// A node that was not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// From the chroot down.
    pub path: String,
    /// Whose it was.
    pub held: Held,
    /// Why that was not changed, though it was wished.
    pub refused: Option<String>,
}

/// What a walk came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Walked {
    /// Nodes that were looked at.
    pub nodes: u64,
    /// Nodes that were changed.
    pub changed: u64,
    /// Those that are not as they should be, or were not before; the uppermost first.
    pub found: Vec<Found>,
    /// There is no chroot: the root of the ensemble, which others use too, is left alone. Who may delete there may delete `/controller`.
    pub root_left: bool,
}

/// Why a walk did not come to its end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WalkError {
    /// There is no session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A node is to be ours, and we are nobody.
    #[error("there are no credentials, so no node can belong to anybody")]
    Nobody,
    /// ZooKeeper refused.
    #[error("{path}: {reason}")]
    ZooKeeper {
        /// Of the node.
        path: String,
        /// What it said.
        reason: String,
    },
}

impl Servers {
    /// Walks all nodes of the cluster: below the chroot and the chroot itself, or, without one, those that Barnabas and Kafka make at
    /// the root. A node that vanishes meanwhile is passed over.
    ///
    /// # Errors
    /// [`WalkError`], also if no session comes about within `patience`; what was changed before stays so, and the walk may be repeated.
    pub async fn walk(&self, wish: Wish, patience: Duration) -> Result<Walked, WalkError> {
        if wish == Wish::Secure && self.access().credentials.is_none() {
            return Err(WalkError::Nobody);
        }
        let silent = || ConnectError::Unreachable("no answer".to_owned());
        let client = timeout(patience, self.client()).await.map_err(|_| silent())??;
        let ours = match &self.access().credentials {
            Some(_) => ids(&client).await?,
            None => Vec::new(),
        };
        let has_chroot = self.chroot().is_some();
        let mut walked = Walked { root_left: !has_chroot, ..Walked::default() };
        let mut left: Vec<String> = if has_chroot {
            vec!["/".to_owned()]
        } else {
            paths::TOP.iter().map(|path| (*path).to_owned()).collect()
        };
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < NODES_AT_ONCE
                && let Some(path) = left.pop()
            {
                let (client, ours) = (client.clone(), ours.clone());
                asked.spawn(async move { one(&client, path, &ours, wish).await });
            }
            let Some(done) = asked.join_next().await else { break };
            let failed = |reason: String| WalkError::ZooKeeper { path: "/".to_owned(), reason };
            let Some(looked) = done.map_err(|error| failed(error.to_string()))?? else { continue };
            walked.nodes += 1;
            walked.changed += u64::from(looked.changed);
            left.extend(looked.children);
            walked.found.extend(looked.found);
        }
        let depth = |found: &Found| found.path.matches('/').count();
        walked.found.sort_by(|a, b| depth(a).cmp(&depth(b)).then_with(|| a.path.cmp(&b.path)));
        Ok(walked)
    }
}

struct Looked {
    children: Vec<String>,
    found: Option<Found>,
    changed: bool,
}

/// One node; `None` if it is gone.
async fn one(
    client: &zk::Client,
    path: String,
    ours: &[zk::AuthId],
    wish: Wish,
) -> Result<Option<Looked>, WalkError> {
    let failed =
        |error: zk::Error| WalkError::ZooKeeper { path: path.clone(), reason: error.to_string() };
    let (acl, _) = match client.get_acl(&path).await {
        Err(zk::Error::NoNode) => return Ok(None),
        // Before 3.5.4 everybody may read an ACL, since then only who may read or administer the node.
        Err(zk::Error::NoAuth) => (Vec::new(), None),
        Err(error) => return Err(failed(error)),
        Ok((acl, stat)) => (acl, Some(stat)),
    };
    let held = held(&path, &acl, ours);
    let open: &[zk::Acl] = &zk::Acls::anyone_all();
    let (fits, wished) = match wish {
        Wish::Look => (held == Held::Ours, None),
        Wish::Secure => (held == Held::Ours, Some(owned(&path))),
        Wish::Unsecure => (acl == open, Some(open)),
    };
    let mut refused = None;
    let mut changed = false;
    if let Some(wished) = wished.filter(|_| !fits) {
        match client.set_acl(&path, wished, None).await {
            Ok(_) => changed = true,
            Err(zk::Error::NoNode) => return Ok(None),
            Err(zk::Error::NoAuth) => {
                refused = Some("its ACL gives these credentials no right to change it".to_owned());
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let children = match client.list_children(&path).await {
        Ok(names) => names,
        Err(zk::Error::NoNode | zk::Error::NoAuth) => Vec::new(),
        Err(error) => return Err(failed(error)),
    };
    let parent = if path == "/" { "" } else { path.as_str() };
    // ZooKeeper's own, at the root of the ensemble only.
    let children =
        children.iter().map(|name| format!("{parent}/{name}")).filter(|path| path != "/zookeeper");
    let children = children.collect();
    let found = (!fits).then_some(Found { path, held, refused });
    Ok(Some(Looked { children, found, changed }))
}

/// The ids that ZooKeeper knows this session by, as an ACL names them: those of a node that belongs to it.
async fn ids(client: &zk::Client) -> Result<Vec<zk::AuthId>, WalkError> {
    let path = format!("/barnabas-access-{:x}", client.session_id().0);
    let failed =
        |error: zk::Error| WalkError::ZooKeeper { path: "/".to_owned(), reason: told(&error) };
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::creator_all());
    client.create(&path, &[], &options).await.map_err(failed)?;
    let (acl, _) = client.get_acl(&path).await.map_err(failed)?;
    client.delete(&path, None).await.map_err(failed)?;
    Ok(acl.iter().map(|entry| entry.auth_id().clone()).collect())
}

fn told(error: &zk::Error) -> String {
    match error {
        zk::Error::NoAuth => {
            "its ACL lets these credentials create nothing there: it belongs to others".to_owned()
        }
        zk::Error::InvalidAcl => {
            "the server did not take the credentials: it does not know this user or scheme"
                .to_owned()
        }
        error => error.to_string(),
    }
}
