//! What ZooKeeper says, read with a session of its own and parsed without the product's code: an independent witness.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::Outcome;

/// A reader of the cluster's nodes.
#[derive(Clone, Debug)]
pub struct Znodes {
    client: Client,
}

/// One node: its JSON (null if it is none) and what ZooKeeper knows of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Znode {
    /// The data as JSON.
    pub data: Value,
    /// Version of the data.
    pub version: i32,
    /// Transaction that created it.
    pub czxid: i64,
    /// Transaction that changed it last.
    pub mzxid: i64,
    /// Session that owns it; 0 if it is not ephemeral.
    pub ephemeral_owner: i64,
}

/// State of one partition as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionNode {
    /// Leader, -1 if none.
    pub leader: i64,
    /// Leader epoch.
    pub leader_epoch: i64,
    /// Epoch of the controller that wrote it.
    pub controller_epoch: i64,
    /// ISR as stored.
    pub isr: Vec<i64>,
    /// Version of the node: the partition epoch.
    pub version: i32,
}

impl Znodes {
    /// Connects to `host:port[/chroot]`.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn connect(connect: &str) -> Outcome<Self> {
        let client = Client::connector()
            .with_session_timeout(Duration::from_secs(30))
            .connect(connect)
            .await?;
        Ok(Self { client })
    }

    /// Reads a node; `None` if it is not there. What was written before the call is seen.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn read(&self, path: &str) -> Outcome<Option<Znode>> {
        self.client.sync(path).await.or_else(|error| match error {
            Error::NoNode => Ok(()),
            other => Err(other),
        })?;
        match self.client.get_data(path).await {
            Ok((data, stat)) => Ok(Some(Znode {
                data: serde_json::from_slice(&data).unwrap_or(Value::Null),
                version: stat.version,
                czxid: stat.czxid,
                mzxid: stat.mzxid,
                ephemeral_owner: stat.ephemeral_owner,
            })),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Names of the children; none if the node is not there.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn children(&self, path: &str) -> Outcome<Vec<String>> {
        match self.client.list_children(path).await {
            Ok(mut names) => {
                names.sort();
                Ok(names)
            }
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a persistent node (for a chroot, or to play an operator's part).
    ///
    /// # Errors
    /// ZooKeeper refuses.
    pub async fn create(&self, path: &str, data: &[u8]) -> Outcome<()> {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.client.create(path, data, &options).await?;
        Ok(())
    }

    /// Replaces a node's content, whatever its version (to play an operator's part).
    ///
    /// # Errors
    /// ZooKeeper refuses.
    pub async fn set(&self, path: &str, data: &[u8]) -> Outcome<()> {
        self.client.set_data(path, data, None).await?;
        Ok(())
    }

    /// Deletes a node, whatever its version (to play a clumsy operator's part).
    ///
    /// # Errors
    /// ZooKeeper refuses.
    pub async fn delete(&self, path: &str) -> Outcome<()> {
        Ok(self.client.delete(path, None).await?)
    }

    /// Id and epoch of the controller, `None` while there is none.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn controller(&self) -> Outcome<Option<(i64, i64)>> {
        let found = self.controller_node().await?;
        Ok(found.and_then(|(node, epoch)| Some((node.data["brokerid"].as_i64()?, epoch))))
    }

    /// The node of the controller with its epoch, `None` while there is none. An election changes both in one transaction, so
    /// a node that is read between two equal epochs belongs to them.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn controller_node(&self) -> Outcome<Option<(Znode, i64)>> {
        let mut epoch = self.controller_epoch().await?;
        loop {
            let node = self.read("/controller").await?;
            let after = self.controller_epoch().await?;
            if after == epoch {
                return Ok(node.zip(after));
            }
            epoch = after;
        }
    }

    /// Value of `/controller_epoch`.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn controller_epoch(&self) -> Outcome<Option<i64>> {
        Ok(self.read("/controller_epoch").await?.and_then(|node| node.data.as_i64()))
    }

    /// Ids of the registered brokers.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn brokers(&self) -> Outcome<Vec<i64>> {
        let names = self.children("/brokers/ids").await?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Stored state of every partition of a topic.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn partitions(&self, topic: &str) -> Outcome<BTreeMap<i32, PartitionNode>> {
        let folder = format!("/brokers/topics/{topic}/partitions");
        let mut found = BTreeMap::new();
        for name in self.children(&folder).await? {
            let Some(node) = self.read(&format!("{folder}/{name}/state")).await? else { continue };
            let number = |key: &str| node.data[key].as_i64().unwrap_or(i64::MIN);
            let isr = node.data["isr"].as_array().cloned().unwrap_or_default();
            found.insert(
                name.parse()?,
                PartitionNode {
                    leader: number("leader"),
                    leader_epoch: number("leader_epoch"),
                    controller_epoch: number("controller_epoch"),
                    isr: isr.iter().filter_map(Value::as_i64).collect(),
                    version: node.version,
                },
            );
        }
        Ok(found)
    }
}

impl Znodes {
    /// The replicas assigned to each partition of a topic; none if it is not there.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn assignment(&self, topic: &str) -> Outcome<BTreeMap<i32, Vec<i64>>> {
        let node = self.read(&format!("/brokers/topics/{topic}")).await?;
        let mut found = BTreeMap::new();
        if let Some(partitions) = node.as_ref().and_then(|node| node.data["partitions"].as_object())
        {
            for (index, replicas) in partitions {
                let replicas = replicas.as_array().into_iter().flatten();
                found.insert(index.parse()?, replicas.filter_map(Value::as_i64).collect());
            }
        }
        Ok(found)
    }
}

/// Every node with what tells whether it changed, for "this changed nothing".
pub type Tree = BTreeMap<String, (i64, i64, i32)>;

impl Znodes {
    /// All nodes below the root (or chroot), except ZooKeeper's own.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn tree(&self) -> Outcome<Tree> {
        let mut tree = Tree::new();
        let mut folders = vec!["/".to_owned()];
        while let Some(folder) = folders.pop() {
            for name in self.children(&folder).await? {
                let path = format!("{}/{name}", folder.trim_end_matches('/'));
                if path == "/zookeeper" {
                    continue;
                }
                if let Some(node) = self.read(&path).await? {
                    tree.insert(path.clone(), (node.czxid, node.mzxid, node.version));
                    folders.push(path);
                }
            }
        }
        Ok(tree)
    }
}
