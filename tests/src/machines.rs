//! A cluster whose brokers are started and stopped as an operator does it: by commands in a shell, on machines that are directories.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Outcome;
use crate::cluster::{Cluster, Options, SETTLE_MAX};
use crate::pages::Shell;
use crate::wait::wait_for;

/// Longest wait for a process to end after SIGKILL.
const END_MAX: Duration = Duration::from_secs(30);

/// `machine start 1 2`: what a service manager does on the machines of these brokers; and `stop`, which waits for the end.
const FUNCTIONS: &str = r#"
alive() { [ -r "/proc/$1/status" ] && ! grep -q '^State:.Z' "/proc/$1/status"; }
machine() {
    local what=$1 id pid
    shift
    for id in "$@"; do
        if [ "$what" = start ]; then
            nohup barnabas broker --config "broker-$id.yaml" >> "broker-$id.log" 2>&1 &
            echo $! > "broker-$id.pid"
        else
            pid=$(cat "broker-$id.pid")
            kill "$pid"
            while alive "$pid"; do sleep 0.1; done
        fi
    done
}
"#;

/// The machines, with ZooKeeper beside them. Their end kills every broker by its pid file.
#[derive(Debug)]
pub struct Machines {
    /// Configured, and not started by the harness.
    pub cluster: Cluster,
    /// Where the commands are run: in the directory that holds `broker-N.yaml`.
    pub shell: Shell,
}

impl Machines {
    /// Configures brokers and starts ZooKeeper; nothing else.
    ///
    /// # Errors
    /// ZooKeeper does not start.
    pub async fn configure(options: Options) -> Outcome<Self> {
        let cluster = Cluster::start(Options { start: false, ..options }).await?;
        let shell = Shell {
            directory: cluster.directory().to_owned(),
            environment: vec![("BARNABAS_ADMIN".to_owned(), cluster.admin_address(1))],
            functions: FUNCTIONS.to_owned(),
        };
        Ok(Self { cluster, shell })
    }

    /// Which broker commands without `--admin` ask.
    pub fn ask(&mut self, broker: i32) {
        let admin = self.cluster.admin_address(broker);
        self.shell.environment = vec![("BARNABAS_ADMIN".to_owned(), admin)];
    }

    /// Starts brokers, and waits until all of them know as many.
    ///
    /// # Errors
    /// They do not within the deadline.
    pub async fn start(&mut self, brokers: &[i32]) -> Outcome<()> {
        let named: Vec<String> = brokers.iter().map(ToString::to_string).collect();
        self.shell.run_text("start", &format!("machine start {}", named.join(" "))).await?;
        self.until_known(brokers).await
    }

    /// Waits until each of these brokers knows a controller, and exactly these brokers.
    ///
    /// # Errors
    /// They do not within the deadline.
    pub async fn until_known(&mut self, brokers: &[i32]) -> Outcome<()> {
        for id in brokers {
            let broker = self.cluster.broker(*id);
            wait_for(&format!("broker {id} knows {brokers:?}"), SETTLE_MAX, || async {
                let known = broker.admin().await.ok()?.cluster().await.ok()?;
                (known.controller_id >= 0 && known.brokers.len() == brokers.len()).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    fn pid(&self, broker: i32) -> Option<Pid> {
        let file = self.cluster.directory().join(format!("broker-{broker}.pid"));
        Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn kill(&mut self, broker: i32) -> Outcome<()> {
        let pid = self.pid(broker).ok_or("it was never started")?;
        kill_process(pid, Signal::KILL)?;
        wait_for(&format!("broker {broker} is gone"), END_MAX, || async {
            (!lives(pid)).then_some(())
        })
        .await
    }

    /// The log directory of a broker.
    pub fn log_dir(&mut self, broker: i32) -> PathBuf {
        self.cluster.broker(broker).log_dir().to_owned()
    }
}

/// Whether a process runs: one that has ended and that nobody waited for does not.
fn lives(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

impl Drop for Machines {
    fn drop(&mut self) {
        for id in 1.. {
            if !self.cluster.directory().join(format!("broker-{id}.yaml")).exists() {
                break;
            }
            if let Some(pid) = self.pid(id).filter(|pid| lives(*pid)) {
                // It fails only if it has ended meanwhile.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
