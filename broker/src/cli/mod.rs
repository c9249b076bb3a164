//! The command line: one binary, noun then verb, a table for people, `--json` for programs, exit codes that mean something.
//!
//! 0: done. 1: the cluster (or this machine) refused. 2: the command line is wrong. 3: the cluster cannot be reached. 4: not now.
//! 5: never, as things are. 6: of `explain` and `doctor`: something is wrong with what they were asked about.

/// `println!` that ends the command quietly when nobody reads its output any more (`barnabas topic list | head`).
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::cli::say_line(format_args!($($argument)*))
    };
}

mod ask;
mod bench;
mod broker;
mod cluster;
mod config;
mod config_file;
mod delete_records;
mod dial;
mod doctor;
mod durability;
mod explain;
mod group;
mod health;
mod kafka;
mod leader;
mod ledger;
mod log;
mod log_level;
mod partitions;
mod reassign;
mod roll;
mod run;
mod settings;
mod table;
mod timeline;
mod topic;
mod when;
mod zookeeper;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Replicated log brokers that speak Kafka's protocol, coordinated by ZooKeeper.
#[derive(Parser, Debug)]
#[command(name = "barnabas", version)]
struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand, Debug)]
enum Noun {
    /// Run a broker (--config FILE), or list, drain and undrain the brokers of a cluster.
    Broker(BrokerArgs),
    /// Run ZooKeeper and brokers on this machine until Ctrl-C, for trying things out.
    Dev(crate::dev::DevArgs),
    /// Create, list, describe, alter, enlarge, move and delete topics.
    #[command(subcommand)]
    Topic(topic::TopicVerb),
    /// Show the controller, the brokers and the health of a cluster.
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// Show the failovers of a cluster, and how long each of their phases took.
    Timeline(timeline::TimelineArgs),
    /// Elect leaders of partitions.
    #[command(subcommand)]
    Leader(leader::LeaderVerb),
    /// Show, explain and change settings of brokers, and check their files.
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Drive a cluster with load and measure it.
    #[command(subcommand)]
    Bench(bench::BenchVerb),
    /// List, describe and delete consumer groups, and reset their offsets.
    #[command(subcommand)]
    Group(group::GroupVerb),
    /// List the records that logs dropped, or may have, and compare that with the leaders' logs.
    #[command(subcommand)]
    Ledger(ledger::LedgerVerb),
    /// Tell what is wrong with a partition, a broker, a group or the cluster, since when, and what to do.
    #[command(subcommand)]
    Explain(explain::ExplainVerb),
    /// Restart the brokers one by one, without a client noticing.
    Roll(roll::RollArgs),
    /// Tell whether the broker on this machine serves.
    Health(health::HealthArgs),
    /// Look at a broker's machine, its cluster and its ZooKeeper, and say of each thing how it is and what to do.
    Doctor(doctor::DoctorArgs),
    /// Save what ZooKeeper holds of the cluster and make it again; tell whose its nodes are, and make them the brokers' alone.
    #[command(subcommand, name = "zookeeper")]
    ZooKeeper(zookeeper::ZooKeeperVerb),
    /// Look into the files of a data directory.
    #[command(subcommand)]
    Log(log::LogVerb),
    Produce(barnabas_clients::produce::ProduceArgs),
    Consume(barnabas_clients::consume::ConsumeArgs),
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct BrokerArgs {
    #[command(flatten)]
    run: Option<run::RunArgs>,
    #[command(subcommand)]
    verb: Option<broker::BrokerVerb>,
}

/// Whom a command asks, and how it shows the answer.
#[derive(Args, Clone, Debug)]
pub(crate) struct Asking {
    /// The gRPC address of any broker of the cluster; of several, with commas between them, the first that answers is asked.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "BARNABAS_ADMIN",
        default_value = "127.0.0.1:9192",
        value_parser = admin_address
    )]
    admin: String,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

impl Asking {
    /// Whom to ask, one after the other, until somebody answers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.admin.split(',')
    }
}

/// Why a command ends without success; each text is one sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// This machine or the cluster refused.
    #[error("{0}")]
    Refused(String),
    /// The command line names something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// Nobody answered.
    #[error("{0}")]
    Unreachable(String),
    /// The answer is "not now".
    #[error("{0}")]
    NotNow(String),
    /// The answer is "never", as things are.
    #[error("{0}")]
    Never(String),
    /// What was asked about is not well.
    #[error("{0}")]
    Unwell(String),
}

impl CliError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::Unreachable(_) => ExitCode::from(3),
            Self::NotNow(_) => ExitCode::from(4),
            Self::Never(_) => ExitCode::from(5),
            Self::Unwell(_) => ExitCode::from(6),
        }
    }
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    // clap ends the process with 2 on a wrong command line.
    let outcome = match Cli::parse().noun {
        Noun::Broker(BrokerArgs { verb: Some(verb), .. }) => verb.run(),
        Noun::Broker(BrokerArgs { run: Some(args), .. }) => run::broker(&args),
        // clap asks for one of the two.
        Noun::Broker(_) => Err(CliError::Refused("give --config FILE".to_owned())),
        Noun::Dev(args) => crate::dev::run(&args).map_err(|e| CliError::Refused(e.to_string())),
        Noun::Topic(verb) => verb.run(),
        Noun::Cluster(verb) => verb.run(),
        Noun::Leader(verb) => verb.run(),
        Noun::Timeline(args) => args.run(),
        Noun::Config(verb) => verb.run(),
        Noun::Bench(verb) => verb.run(),
        Noun::Group(verb) => verb.run(),
        Noun::Ledger(verb) => verb.run(),
        Noun::Explain(verb) => verb.run(),
        Noun::Roll(args) => args.run(),
        Noun::Health(args) => args.run(),
        Noun::Doctor(args) => args.run(),
        Noun::ZooKeeper(verb) => verb.run(),
        Noun::Log(verb) => verb.run(),
        Noun::Produce(args) => barnabas_clients::produce::run(&args).map_err(of_client),
        Noun::Consume(args) => barnabas_clients::consume::run(&args).map_err(of_client),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("barnabas: {error}");
            error.exit_code()
        }
    }
}

fn of_client(error: barnabas_clients::Error) -> CliError {
    use barnabas_clients::Error;
    let text = error.to_string();
    match error {
        Error::Usage(_) => CliError::Usage(text),
        Error::Unreachable(_) => CliError::Unreachable(text),
        Error::Refused(_) | Error::NotAll(_) => CliError::Refused(text),
    }
}

fn say_line(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// `HOST:PORT`, or several with commas between them.
fn admin_address(text: &str) -> Result<String, String> {
    let expected = "expected HOST:PORT of a broker's admin.listener, for instance 127.0.0.1:9192";
    let one = |text: &str| barnabas_broker::config::HostPort::parse(text.trim());
    let all: Option<Vec<String>> =
        text.split(',').map(|text| Some(one(text)?.to_string())).collect();
    Ok(all.ok_or(expected)?.join(","))
}

/// `K=V`.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    if key.is_empty() {
        return Err("expected KEY=VALUE".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn broker_runs_with_a_file_or_lists() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["barnabas"], args].concat());
        assert!(parse(&["broker", "--config", "b.yaml"]).is_ok());
        assert!(parse(&["broker", "list", "--json", "--admin", "h:1"]).is_ok());
        assert!(parse(&["broker", "list", "--admin", "h:1, [::1]:2"]).is_ok());
        assert!(parse(&["broker", "list", "--admin", "h:1,"]).is_err());
        assert!(parse(&["broker"]).is_err());
        assert!(parse(&["explain", "broker", "x"]).is_err());
        let dev = |key: &str| parse(&["dev", "--config", &format!("{key}=7")]);
        assert!(dev("min.insync.replicas").is_ok());
        let refused = dev("broker.id").unwrap_err().to_string();
        assert!(refused.contains("log.dirs (--data)"), "{refused}");
        assert!(parse(&["broker", "can-stop", "1"]).is_ok());
        let log_level = ["broker", "log-level", "--broker", "2"];
        assert!(parse(&[&log_level[..], &["warn", "request=debug", "--reset"]].concat()).is_ok());
        assert!(parse(&log_level).is_ok());
        for wrong in ["request", "reqest=debug", "request=verbose", "info,debug", "a=b=c", ""] {
            assert!(parse(&[&log_level[..], &[wrong]].concat()).is_err(), "{wrong}");
        }
        assert!(parse(&["broker", "--config", "b.yaml", "--log-level", "debug"]).is_ok());
        assert!(parse(&["broker", "--config", "b.yaml", "--log-level", "loud"]).is_err());
        assert!(parse(&["leader", "elect", "t:0", "u", "--preferred"]).is_ok());
        assert!(
            parse(&["leader", "elect", "--unclean"]).is_err(),
            "never of everything by accident"
        );
        assert!(parse(&["leader", "elect", "t:0", "--to", "2"]).is_err());
        assert!(parse(&["topic", "create", "t", "--config", "nonsense"]).is_err());
        assert!(
            parse(&["topic", "create", "t", "--assignment", "0:1,2", "--partitions", "1"]).is_err()
        );
        assert!(parse(&["topic", "create", "t", "--assignment", "0:x"]).is_err());
        let delete = ["topic", "delete-records", "t", "--partition", "0", "--before"];
        assert!(parse(&[&delete[..], &["-1"]].concat()).is_ok());
        assert!(parse(&[&delete[..], &["-2"]].concat()).is_err());
        assert!(parse(&["config", "describe", "--broker", "1"]).is_ok());
        assert!(parse(&["config", "alter", "--cluster-default", "--config", "a=b"]).is_ok());
        assert!(parse(&["config", "alter", "--cluster-default"]).is_err());
        assert!(parse(&["config", "describe", "--broker", "1", "--cluster-default"]).is_err());
        assert!(parse(&["config", "describe"]).is_err());
        assert!(parse(&["timeline", "--last", "3", "--follow", "--json"]).is_ok());
        assert!(parse(&["timeline", "show", "7-1", "--admin", "h:1"]).is_ok());
        assert!(parse(&["timeline", "--follow", "show", "7-1"]).is_err());
        assert!(parse(&["ledger", "list", "--since", "2h", "--topic", "t", "--json"]).is_ok());
        assert!(parse(&["ledger", "verify", "--since", "2026-11-30T18:00:00Z"]).is_ok());
        assert!(parse(&["ledger", "list", "--since", "yesterday"]).is_err());
        assert!(parse(&["explain", "partition", "t:0", "--json"]).is_ok());
        assert!(parse(&["explain", "partition", "t"]).is_err());
        assert!(parse(&["explain", "cluster"]).is_ok() && parse(&["explain"]).is_err());
    }

    #[test]
    fn replicas_are_set_in_one_way_at_a_time() {
        let parse = |args: &[&str]| {
            Cli::try_parse_from([&["barnabas", "topic", "set-replicas", "t"], args].concat())
        };
        assert!(parse(&["--assignment", "0:1,2;1:2,3", "--throttle", "1000", "--wait"]).is_ok());
        assert!(parse(&["--replication-factor", "3"]).is_ok());
        assert!(parse(&["--throttle", "0"]).is_ok());
        assert!(parse(&["--cancel", "--wait"]).is_ok());
        assert!(parse(&[]).is_err());
        assert!(parse(&["--wait"]).is_err());
        assert!(parse(&["--cancel", "--throttle", "1"]).is_err());
        assert!(parse(&["--replication-factor", "3", "--assignment", "0:1"]).is_err());
    }
}
