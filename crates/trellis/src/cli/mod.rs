//! The command line: what is said, and which family of commands answers.
//!
//! Exit codes: 0 done, 1 something failed (the message says what to do), 2 wrong usage; others are a command's own.

mod agent;
mod control;
mod cp;
mod files;
mod serve;
mod service;
#[cfg(test)]
mod tests;

use crate::show;
use crate::state::StateDir;
use clap::{Args, Parser, Subcommand};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// One file tree over every machine that you can reach by SSH
#[derive(Debug, Parser)]
#[command(name = "trellis", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the tree by NFS
    Serve(serve::ServeArgs),
    /// Show the server, its homes and what they do not have yet
    Status(control::StatusArgs),
    /// Wait until everything acknowledged before is durable at its home
    Sync(control::SyncArgs),
    /// End the server
    Stop(control::StopArgs),
    /// Keep a server in the background, beyond the logout where the system allows it
    Service(service::ServiceArgs),
    /// What is kept at the homes
    Agent(agent::AgentArgs),
    /// List directories
    Ls(files::LsArgs),
    /// Show attributes
    Stat(files::StatArgs),
    /// Write files to standard output
    Cat(files::CatArgs),
    /// Copy files from and to the tree
    Cp(cp::CpArgs),
}

/// Which server is meant.
#[derive(Debug, Clone, Args)]
pub struct StateArg {
    /// The server's state directory [default: $XDG_STATE_HOME/trellis or ~/.local/state/trellis]
    #[arg(long = "state", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl StateArg {
    fn existing(&self) -> Result<Option<StateDir>, Failure> {
        StateDir::existing(self.dir.as_deref()).map_err(Failure::from)
    }
}

/// Why a command did not do all it was told.
#[derive(Debug)]
pub enum Failure {
    /// Something failed, or more than one thing; what was not said yet.
    Failed(Option<String>),
    /// The command was not used as it can be.
    Usage(String),
    /// Everything was said; the exit code tells what was found.
    Code(u8),
    /// Nobody reads the output any more.
    Closed,
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Failed(Some(text))
    }
}

impl From<home::Error> for Failure {
    fn from(e: home::Error) -> Failure {
        Failure::Failed(Some(show::message(&e.detail)))
    }
}

impl From<std::io::Error> for Failure {
    /// An error of standard output.
    fn from(e: std::io::Error) -> Failure {
        match e.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Failed(Some(format!("standard output: {e}"))),
        }
    }
}

type Done = Result<(), Failure>;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("trellis: cannot start threads: {e}; raise the limit of processes (ulimit -u)");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli.command));
    // Calls that block in the kernel must not hold back the end.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => {
            if let Some(text) = text {
                complain(&text);
            }
            ExitCode::from(1)
        }
        Err(Failure::Usage(text)) => {
            complain(&text);
            ExitCode::from(2)
        }
        Err(Failure::Code(code)) => ExitCode::from(code),
        Err(Failure::Closed) => ExitCode::from(1),
    }
}

async fn run(command: Command) -> Done {
    match command {
        Command::Serve(args) => serve::serve(args).await,
        Command::Status(args) => control::status(args).await,
        Command::Sync(args) => control::sync(args).await,
        Command::Stop(args) => control::stop(args).await,
        Command::Service(args) => service::service(args).await,
        Command::Agent(args) => agent::agent(args).await,
        Command::Ls(args) => files::ls(args).await,
        Command::Stat(args) => files::stat(args).await,
        Command::Cat(args) => files::cat(args).await,
        Command::Cp(args) => cp::cp(args).await,
    }
}

/// Tells what went wrong; the text is already fit for a terminal.
fn complain(text: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "trellis: {text}");
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TRELLIS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
