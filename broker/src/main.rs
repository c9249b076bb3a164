//! The binary `barnabas`: a broker, a development cluster, and the commands that ask a cluster.

mod cli;
mod dev;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
