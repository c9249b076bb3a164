//! The cluster's ZooKeeper: stopped, started where it was, or standing still.

use std::path::Path;

use barnabas_broker::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use rustix::process::{Pid, Signal, kill_process};

use super::Cluster;
use super::standstill::stand_still;
use crate::Outcome;

impl Cluster {
    /// SIGKILL to ZooKeeper, and waits until it is gone. Its data stay.
    pub fn stop_zookeeper(&mut self) {
        self.zookeeper = None;
    }

    /// Starts ZooKeeper where it was, with the data that it had, and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_zookeeper(&mut self) -> Outcome<()> {
        let (_, port) = self.zookeeper_connect.rsplit_once(':').ok_or("no port")?;
        let options = options(&self.directory, port.parse()?);
        self.zookeeper = Some(ZooKeeperServer::start(&options).await?);
        Ok(())
    }

    /// A signal to ZooKeeper; after SIGSTOP it stands still when this returns.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal_zookeeper(&self, signal: Signal) -> Outcome<()> {
        let server = self.zookeeper.as_ref().ok_or("ZooKeeper does not run")?;
        let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).ok_or("process 0")?;
        if signal == Signal::STOP { stand_still(pid) } else { Ok(kill_process(pid, signal)?) }
    }
}

pub(super) fn options(directory: &Path, port: u16) -> ZooKeeperOptions {
    ZooKeeperOptions {
        data_dir: directory.join("zookeeper"),
        port: Some(port),
        tick_time_ms: 100,
        force_sync: false,
        ensemble: None,
    }
}
