//! `barnabas zookeeper`: what ZooKeeper holds is written to a file, and made again from files and logs when it is lost; and whose its
//! nodes are.
//!
//! A backup knows the topics, their settings and who was to hold them; the logs know which records there are and under which leader
//! epochs. Together they are enough: a restoration never says who leads, so the longest logs do once all are heard (R8).

mod files;
mod nodes;
mod owners;
mod plan;

use std::path::PathBuf;

use barnabas_broker::config::BrokerConfig;
use barnabas_controller::zookeeper::Wish;
use barnabas_log::holdings;
use clap::{Args, Subcommand};

use self::files::{Backup, Inventory, read};
use self::owners::OwnersArgs;
use self::plan::{Clock, plan};
use super::CliError;
use super::ask::runtime;
use super::topic::counted;

#[derive(Subcommand, Debug)]
pub(super) enum ZooKeeperVerb {
    /// Print what ZooKeeper holds of the cluster, as JSON: topics, settings, states, ids. Reads only, at any time.
    Export(OfBroker),
    /// Print what the log directories of this machine's broker hold, as JSON. Reads only; the broker may run.
    Inventory(OfBroker),
    /// Make again what ZooKeeper held, from a backup and inventories; all brokers have to be stopped.
    Restore(RestoreArgs),
    /// Tell which nodes others than the brokers may change.
    Check(OwnersArgs),
    /// Let every node belong to the credentials of the broker's file; others may only read, and verifiers of passwords not even that.
    Secure(OwnersArgs),
    /// Let every node belong to anybody again, before brokers run without credentials.
    Unsecure(OwnersArgs),
}

#[derive(Args, Debug)]
pub(super) struct OfBroker {
    /// The file of a broker: it names ZooKeeper and the log directories.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    of: OfBroker,
    /// Say what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// What export and inventory have printed: at most one export, and the inventory of every broker that is left.
    #[arg(value_name = "JSON")]
    files: Vec<PathBuf>,
}

impl ZooKeeperVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Export(of) => {
                let config = load(&of)?;
                let nodes = runtime()?.block_on(async {
                    let session = nodes::connect(&config).await?;
                    let nodes = nodes::read_all(&session).await;
                    nodes::end(&session).await;
                    nodes
                })?;
                if !nodes.contains_key(barnabas_proto::znode::paths::CLUSTER_ID) {
                    return Err(CliError::Refused(format!(
                        "ZooKeeper at {} holds no cluster",
                        config.zookeeper_connect
                    )));
                }
                say!("{:#}", Backup { nodes }.write());
                Ok(())
            }
            Self::Inventory(of) => {
                say!("{:#}", inventory(&load(&of)?)?.write());
                Ok(())
            }
            Self::Restore(args) => restore(&args),
            Self::Check(args) => args.run(Wish::Look),
            Self::Secure(args) => args.run(Wish::Secure),
            Self::Unsecure(args) => args.run(Wish::Unsecure),
        }
    }
}

fn load(of: &OfBroker) -> Result<BrokerConfig, CliError> {
    BrokerConfig::load(&of.config).map_err(|error| CliError::Refused(error.to_string()))
}

/// What the log directories hold; all of them have to be of one broker of one cluster.
fn inventory(config: &BrokerConfig) -> Result<Inventory, CliError> {
    let mut found: Option<Inventory> = None;
    for path in &config.log_dirs {
        let refused = |why: String| CliError::Refused(format!("{}: {why}", path.display()));
        let held = holdings(path).map_err(|error| refused(error.to_string()))?;
        let Some(meta) = held.meta else {
            return Err(refused(
                "it belongs to no cluster: there is no meta.properties".to_owned(),
            ));
        };
        let all = found.get_or_insert_with(|| Inventory {
            broker: meta.broker_id,
            cluster_id: meta.cluster_id.clone(),
            held: Vec::new(),
        });
        if (all.broker, &all.cluster_id) != (meta.broker_id, &meta.cluster_id) {
            return Err(refused("it is of another broker or cluster than the first".to_owned()));
        }
        all.held.extend(held.partitions);
    }
    found.ok_or_else(|| CliError::Refused("log.dirs names no directory".to_owned()))
}

fn restore(args: &RestoreArgs) -> Result<(), CliError> {
    let config = load(&args.of)?;
    let (mut backup, mut inventories) = (None, Vec::new());
    for path in &args.files {
        match read(path).map_err(CliError::Refused)? {
            files::Saved::Backup(found) if backup.is_none() => backup = Some(found),
            files::Saved::Backup(_) => {
                return Err(CliError::Usage(format!(
                    "{} is a second export; which of them counts has to be decided before",
                    path.display()
                )));
            }
            files::Saved::Inventory(found) => inventories.push(found),
        }
    }
    runtime()?.block_on(async {
        let session = nodes::connect(&config).await?;
        let restored = write(&config, &session, backup, &inventories, args.dry_run).await;
        nodes::end(&session).await;
        restored
    })
}

async fn write(
    config: &BrokerConfig,
    session: &nodes::Session,
    backup: Option<Backup>,
    inventories: &[Inventory],
    dry_run: bool,
) -> Result<(), CliError> {
    nodes::refuse_live(session, !dry_run).await?;
    let present = nodes::read_all(session).await?;
    let holds_cluster = present.contains_key(barnabas_proto::znode::paths::CLUSTER_ID);
    let base = match backup {
        Some(_) if holds_cluster => {
            return Err(CliError::Refused(format!(
                "ZooKeeper at {} holds a cluster already; leave the export out, then what is there is restored, or empty its chroot first",
                config.zookeeper_connect
            )));
        }
        Some(backup) => backup.nodes,
        None => present,
    };
    let clock = Clock::now().map_err(CliError::Refused)?;
    let planned = plan(&base, inventories, &clock).map_err(CliError::Refused)?;
    for note in &planned.notes {
        say!("{note}");
    }
    if dry_run {
        say!(
            "{} would be written; nothing was",
            counted(i64::try_from(planned.nodes.len()).unwrap_or(i64::MAX), "node")
        );
        return Ok(());
    }
    nodes::write_all(session, &planned.nodes).await?;
    say!(
        "restored; start every broker: of each partition the longest log leads once all its replicas are there"
    );
    Ok(())
}
