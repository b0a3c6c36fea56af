//! The developers' commands, as `cargo xtask COMMAND`.
//!
//! # Layout
//! - [`check`]: what must hold before a commit: format, clippy, licences, tidy, tests.
//! - [`tidy`]: the rules of this tree that no other tool knows, as a test.
//! - [`e2e`]: the whole product against real programs: OpenSSH servers and the Linux kernel's NFS client.
//! - [`bench`]: rates and CPU per call, beside another server, from one run.
//! - [`nfs`]: an NFSv3 client in user space, for scenarios and load that no kernel would produce.
//! - [`wan_link`]: a relay that behaves like a long and narrow wire.
//! - [`kernel_client`]: a real kernel client in a guest, where the machine's own kernel has none.
//! - [`packages`], [`run`]: programs of the system, found, installed and run.

mod bench;
mod check;
mod e2e;
mod kernel_client;
mod nfs;
mod packages;
mod run;
mod tidy;
mod wan_link;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The developers' commands of Trellis.
#[derive(Parser)]
#[command(name = "cargo xtask", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, clippy, licences, tidy and the crates' tests: run this before a commit
    Check,
    /// Everything in `check`, then the end-to-end scenarios; installs missing Debian packages when root
    Test,
    /// The rules of this tree: layer order, module docs, sizes, leftovers
    Tidy,
    /// End-to-end scenarios (root): all of the CI part, or those whose name contains a FILTER
    E2e(e2e::Args),
    /// The inside of a scenario
    #[command(hide = true)]
    E2eInside(e2e::InsideArgs),
    /// An SFTP server that lies
    #[command(hide = true)]
    EvilSftp,
    /// Worlds made of seeds: the engine and the agent's code while everything around them fails (`-- --help`)
    Sim {
        /// What `sim` is told
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Every interleaving of small batches at a home with another program, kills and power cuts, within bounds (`-- --help`)
    Model {
        /// What `model` is told
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Rates and server CPU per call; writes its table into docs/BENCHMARKS.md
    Bench(bench::Args),
    /// The inside of a measurement
    #[command(hide = true)]
    BenchInside(bench::InsideArgs),
    /// A program that is measured
    #[command(hide = true)]
    BenchCalls(bench::CallsArgs),
    /// A relay that behaves like a long and narrow wire
    WanLink(wan_link::Args),
    /// Run a command under a Linux kernel NFS client (`cargo xtask kernel-client help`)
    KernelClient(kernel_client::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check => check::check(),
        Command::Test => check::test(),
        Command::Tidy => tidy::command(),
        Command::E2e(args) => e2e::command(args),
        Command::E2eInside(args) => e2e::inside(args),
        Command::EvilSftp => e2e::evil_sftp::serve(),
        Command::Sim { args } => check::sim(&args),
        Command::Model { args } => check::model(&args),
        Command::Bench(args) => bench::command(args),
        Command::BenchInside(args) => bench::inside(args),
        Command::BenchCalls(args) => bench::calls(args),
        Command::WanLink(args) => wan_link::command(args),
        Command::KernelClient(args) => kernel_client::command(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
