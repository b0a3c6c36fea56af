//! The command line: what is said, and which family of commands answers.
//!
//! Exit codes: 0 done, 1 something failed (the message says what to do), 2 wrong usage; others are a command's own:
//! those of file commands are their Unix twins' ([`manual`]).

mod agent;
mod attach;
mod change;
mod conflicts;
mod control;
mod cp;
mod doctor;
mod files;
mod find;
mod glob;
mod home_mode;
mod json;
mod login;
mod ls;
mod manual;
mod mode;
mod mount;
mod mv;
mod output;
mod owners;
mod prefetch;
mod reach;
mod refused;
mod rm;
mod same_account;
mod serve;
mod service;
mod space;
#[cfg(test)]
mod tests;
mod transfer;
mod waiting;

use crate::mount::guard::process;
use crate::mount::probe;
use crate::state::StateDir;
use crate::{advice, show};
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use home::io_text;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// One file tree over every machine that you can reach by SSH
#[derive(Debug, Parser)]
#[command(name = "trellis", version, max_term_width = 100)]
pub struct Cli {
    /// The server's state directory [default: $XDG_STATE_HOME/trellis or ~/.local/state/trellis]
    #[arg(id = STATE, long = STATE, value_name = "DIR", global = true)]
    state: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the tree by NFS
    Serve(serve::ServeArgs),
    /// Mount the tree on a directory, without root (FUSE)
    Mount(mount::MountArgs),
    /// Take a mount away
    Umount(mount::UmountArgs),
    /// Show the server, its homes and what they do not have yet
    Status(control::StatusArgs),
    /// Wait until everything acknowledged before is durable at its home
    Sync(control::SyncArgs),
    /// Bring files and directories into the cache before they are wanted
    Prefetch(prefetch::PrefetchArgs),
    /// Send what a home refused once more, now
    Retry(refused::RetryArgs),
    /// Save the files whose changes a home refused
    Export(refused::ExportArgs),
    /// Give up changes that a home refused
    Discard(refused::DiscardArgs),
    /// List and settle what was changed here and at a home at the same time
    Conflicts(conflicts::ConflictsArgs),
    /// Change what a home promises, until the server ends
    Mode(home_mode::ModeArgs),
    /// End the server
    Stop(control::StopArgs),
    /// Keep a server in the background, beyond the logout where the system allows it
    Service(service::ServiceArgs),
    /// A mount that a server on another machine serves; `mount --at` runs it
    #[command(hide = true)]
    Relay(attach::RelayArgs),
    /// The server's end of such a mount
    #[command(hide = true)]
    Attach(attach::AttachArgs),
    /// A way to the server for commands on another machine that it serves
    #[command(hide = true)]
    Control(attach::ControlArgs),
    /// What is kept at the homes
    Agent(agent::AgentArgs),
    /// Log in to a host that asks questions, once, for the server too
    Login(login::LoginArgs),
    /// Check what Trellis needs, here and at the homes, and say what to do
    Doctor(doctor::DoctorArgs),
    /// List directories
    Ls(ls::LsArgs),
    /// Show attributes
    Stat(files::StatArgs),
    /// Write files to standard output
    Cat(files::CatArgs),
    /// Copy files from and to the tree, several at a time; goes on where it was interrupted
    Cp(cp::CpArgs),
    /// Move files in the tree, from and to it
    Mv(mv::MvArgs),
    /// Remove files and directories
    Rm(rm::RmArgs),
    /// Make directories
    Mkdir(change::MkdirArgs),
    /// Give files further names, or make symbolic links
    Ln(change::LnArgs),
    /// Set times of files, or make empty ones
    Touch(change::TouchArgs),
    /// Change permission bits
    Chmod(change::ChmodArgs),
    /// Find files by their names and attributes
    Find(find::FindArgs),
    /// Sum up what directories hold
    Du(space::DuArgs),
    /// Show the space of homes
    Df(space::DfArgs),
    /// Print what a shell needs to complete commands and options
    Completions(manual::CompletionsArgs),
    /// Print a manual page
    Man(manual::ManArgs),
}

/// How the parser calls the option that names a state directory.
const STATE: &str = "state";

/// Which server is meant: `--state` of [`Cli`], before or behind the command.
#[derive(Debug, Clone)]
pub struct StateArg {
    dir: Option<PathBuf>,
}

impl Args for StateArg {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl FromArgMatches for StateArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<StateArg, clap::Error> {
        // The parser of a command alone, without the program, does not know the option.
        Ok(StateArg { dir: matches.try_get_one::<PathBuf>(STATE).ok().flatten().cloned() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        StateArg::from_arg_matches(matches).map(|new| *self = new)
    }
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
    /// A signal ended it; what to do.
    Interrupted(String),
    /// Everything was said; the exit code tells what was found.
    Code(u8),
    /// Nobody reads the output any more.
    Closed,
    /// The output could not be written.
    Output(String),
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
            std::io::ErrorKind::BrokenPipe if output::dies_of_closed_pipes() => Failure::Closed,
            _ => Failure::Output(format!("standard output: {}", io_text(&e))),
        }
    }
}

type Done = Result<(), Failure>;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    crate::crash::ends_the_process();
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(server) = process::wanted(&args) {
        return process::run(server);
    }
    if let Some(mount) = probe::wanted(&args) {
        return probe::run(mount);
    }
    let args = find::with_two_dashes(args);
    let name = args.get(command_at(&args)).map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
    let cli = match parse(&name, args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    crate::log::begin();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            complain(&format!(
                "cannot start threads: {}; raise the limit of processes (ulimit -u)",
                io_text(&e)
            ));
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli.command));
    // Calls that block in the kernel must not hold back the end.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(&name),
    }
}

impl Failure {
    /// Says what was not said yet; answers how the command of this name ends.
    fn end(self, name: &str) -> ExitCode {
        let (text, code) = match self {
            Failure::Failed(text) => (text, manual::trouble_code(name)),
            Failure::Usage(text) => (Some(text), manual::usage_code(name)),
            Failure::Interrupted(text) => (Some(text), INTERRUPTED),
            Failure::Output(text) => (Some(text), manual::trouble_code(name)),
            Failure::Code(code) => (None, code),
            Failure::Closed => (None, output::die_of_closed_pipe()),
        };
        text.iter().for_each(|text| complain(text));
        ExitCode::from(code)
    }
}

/// What a shell reports of a command that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Where the command stands among the arguments: behind the program, and the state directory if that is named first.
fn command_at(args: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(word) = args.get(at).map(|a| a.as_encoded_bytes()) {
        match word.strip_prefix(b"--").and_then(|w| w.strip_prefix(STATE.as_bytes())) {
            Some(b"") => at += 2,
            Some([b'=', ..]) => at += 1,
            _ => break,
        }
    }
    at
}

/// The command with its arguments, or how the program ends without one. `name`: that of the command.
fn parse(name: &str, args: Vec<OsString>) -> Result<Cli, ExitCode> {
    let unknown = find::unknown(&args);
    let parsed = manual::command().try_get_matches_from(args).and_then(|m| {
        named_state(&m).iter().for_each(|state| advice::remember(state));
        Cli::from_arg_matches(&m)
    });
    parsed.map_err(|e| {
        let is_unknown = e.kind() == clap::error::ErrorKind::UnknownArgument;
        let unknown = match unknown.filter(|_| is_unknown) {
            // The parser takes one dash for single letters, and its advice would be wrong.
            Some(predicate) => Some(find::unsupported(&predicate)),
            None if is_unknown => manual::unknown_option(name, &e),
            None => None,
        };
        let shown = match &unknown {
            Some(text) => {
                complain(text);
                Ok(())
            }
            None if !e.use_stderr() => {
                output::check().and_then(|()| e.print()).and_then(|()| output::stdout().flush())
            }
            None => e.print(),
        };
        match shown {
            // Help that was asked for is the output; where a complaint cannot be shown there is nobody to tell.
            Err(unshown) if !e.use_stderr() => Failure::from(unshown).end(name),
            _ if e.exit_code() == 0 => ExitCode::SUCCESS,
            _ => ExitCode::from(manual::usage_code(name)),
        }
    })
}

/// The state directory that the command line names.
fn named_state(matches: &ArgMatches) -> Option<PathBuf> {
    match matches.subcommand() {
        Some((_, below)) => named_state(below),
        // With `--at` it is a directory of another machine.
        None if matches.try_get_one::<String>("at").is_ok_and(|at| at.is_some()) => None,
        None => matches.try_get_one::<PathBuf>(STATE).ok().flatten().cloned(),
    }
}

async fn run(command: Command) -> Done {
    match command {
        Command::Serve(args) => serve::serve(args).await,
        Command::Mount(args) => mount::mount(args).await,
        Command::Umount(args) => mount::umount(args).await,
        Command::Status(args) => control::status(args).await,
        Command::Sync(args) => control::sync(args).await,
        Command::Prefetch(args) => prefetch::prefetch(args).await,
        Command::Retry(args) => refused::retry(args).await,
        Command::Export(args) => refused::export(args).await,
        Command::Discard(args) => refused::discard(args).await,
        Command::Conflicts(args) => conflicts::conflicts(args).await,
        Command::Mode(args) => home_mode::mode(args).await,
        Command::Stop(args) => control::stop(args).await,
        Command::Service(args) => service::service(args).await,
        Command::Relay(args) => attach::relay(args).await,
        Command::Attach(args) => attach::attach(args).await,
        Command::Control(args) => attach::control(args).await,
        Command::Agent(args) => agent::agent(args).await,
        Command::Login(args) => login::login(args).await,
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Ls(args) => ls::ls(args).await,
        Command::Stat(args) => files::stat(args).await,
        Command::Cat(args) => files::cat(args).await,
        Command::Cp(args) => cp::cp(args).await,
        Command::Mv(args) => mv::mv(args).await,
        Command::Rm(args) => rm::rm(args).await,
        Command::Mkdir(args) => change::mkdir(args).await,
        Command::Ln(args) => change::ln(args).await,
        Command::Touch(args) => change::touch(args).await,
        Command::Chmod(args) => change::chmod(args).await,
        Command::Find(args) => find::find(args).await,
        Command::Du(args) => space::du(args).await,
        Command::Df(args) => space::df(args).await,
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    }
}

/// A failure with the path that was typed, unless it names it already.
fn named(path: &[u8], e: &home::Error) -> Failure {
    crate::tree::copy::naming(path, &show::message(&e.detail)).into()
}

/// Tells what went wrong; the text is already fit for a terminal.
fn complain(text: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{}", complaint(text));
}

/// What went wrong as a line.
fn complaint(text: &str) -> String {
    format!("trellis: {}", advice::complete(text))
}

/// Says something that is no failure.
fn note(text: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{}", advice::complete(text));
}
