//! `trellis service`: a server that outlives the shell.

use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::daemon::{self, Started};
use crate::service::{self, Logout, Manager, ServiceReport};
use crate::state::StateDir;
use crate::{advice, show};
use clap::{Args, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

/// Exit code of `service status` where no server runs, as that of systemctl(1).
const NOT_RUNNING: u8 = 3;

/// Arguments of `service`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis service install             starts with the session, or with the machine where lingering is on
  trellis service start
  trellis service status --json")]
pub struct ServiceArgs {
    #[command(subcommand)]
    command: ServiceCommand,
}

#[derive(Debug, Subcommand)]
enum ServiceCommand {
    /// Let the server start by itself: a systemd user unit where there is a manager
    Install(InstallArgs),
    /// Take that back; a running server goes on
    Uninstall(PlainArgs),
    /// Start the server in the background, unless it runs
    Start(PlainArgs),
    /// End the server, if one runs
    Stop(super::control::StopArgs),
    /// Show whether the server runs, and whether it survives the logout (exit code 3: it does not run)
    Status(StatusArgs),
    /// Show what the server wrote
    Logs(LogsArgs),
}

/// Arguments of `service install`.
#[derive(Debug, Args)]
struct InstallArgs {
    #[command(flatten)]
    state: StateArg,

    /// The server's configuration [default: $XDG_CONFIG_HOME/trellis/config.toml or ~/.config/trellis/config.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Arguments of the others.
#[derive(Debug, Args)]
struct PlainArgs {
    #[command(flatten)]
    state: StateArg,
}

/// Arguments of `service status`.
#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    state: StateArg,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `service logs`.
#[derive(Debug, Args)]
struct LogsArgs {
    #[command(flatten)]
    state: StateArg,

    /// How many lines
    #[arg(short = 'n', long, default_value_t = 100)]
    lines: usize,

    /// Go on as it grows
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn service(args: ServiceArgs) -> Done {
    match args.command {
        ServiceCommand::Install(args) => install(args).await,
        ServiceCommand::Uninstall(args) => Ok(service::uninstall(&made(&args.state)?).await?),
        ServiceCommand::Start(args) => start(args).await,
        ServiceCommand::Stop(args) => super::control::stop_service(args).await,
        ServiceCommand::Status(args) => status(args).await,
        ServiceCommand::Logs(args) => logs(args).await,
    }
}

fn made(state: &StateArg) -> Result<StateDir, Failure> {
    // Where the state may lie is the server's decision at its start.
    Ok(StateDir::create(state.dir.as_deref(), true)?)
}

async fn install(args: InstallArgs) -> Done {
    let state = made(&args.state)?;
    let text = match service::install(&state, args.config.as_deref()).await? {
        Manager::Systemd { unit, .. } => {
            format!("installed {unit}; `trellis service start` starts it now\n")
        }
        Manager::Plain { .. } => {
            "no systemd manager of yours runs here, so nothing can start the server by itself; \
                                  `trellis service start` starts it in the background\n"
                .into()
        }
    };
    let report = service::report(&state).await?;
    let text = advice::complete(&format!("{text}{}\n", of_logout(&report)));
    Ok(stdout().write_all(text.as_bytes())?)
}

async fn start(args: PlainArgs) -> Done {
    let state = made(&args.state)?;
    let started = service::start(&state).await?;
    let report = service::report(&state).await?;
    let pid = report.pid.map_or_else(|| "?".into(), |p| p.to_string());
    let head = match started {
        Started::Now => format!("started: process {pid}, log {}\n", shown(&report.log)),
        Started::Before => format!("runs already: process {pid}\n"),
    };
    Ok(stdout().write_all(format!("{head}{}\n", of_logout(&report)).as_bytes())?)
}

async fn status(args: StatusArgs) -> Done {
    let state = made(&args.state)?;
    let report = service::report(&state).await?;
    let text = match args.json {
        true => serde_json::to_string(&report).map_err(|e| e.to_string())? + "\n",
        false => advice::complete(&readable(&report)),
    };
    stdout().write_all(text.as_bytes())?;
    if report.pid.is_some() { Ok(()) } else { Err(Failure::Code(NOT_RUNNING)) }
}

async fn logs(args: LogsArgs) -> Done {
    let state = made(&args.state)?;
    let path = daemon::log_path(&state);
    if !path.exists() {
        let why = format!("{} is not there: the server never ran in the background", shown(&path));
        return Err(why.into());
    }
    let mut tail = tokio::process::Command::new("tail");
    tail.arg("-n").arg(args.lines.to_string()).args(args.follow.then_some("-F")).arg("--").arg(&path);
    let ended = tail.stdin(Stdio::null()).kill_on_drop(true).status().await;
    match ended.map_err(|e| format!("cannot run tail: {e}"))?.success() {
        true => Ok(()),
        false => Err(Failure::Failed(None)),
    }
}

fn shown(path: &std::path::Path) -> String {
    show::text(path.as_os_str().as_encoded_bytes())
}

fn of_logout(report: &ServiceReport) -> String {
    match report.logout {
        Logout::Survives => "it goes on after the logout".into(),
        Logout::Ends => {
            "it ends with your last session on this machine: `loginctl enable-linger` lets it go on (some \
                         sites ask you to tell them first)"
                .into()
        }
        Logout::Unknown => "whether it goes on after the logout is not known: no logind answers here".into(),
    }
}

fn readable(report: &ServiceReport) -> String {
    let keeper = match &report.manager {
        Manager::Systemd { unit, enabled, active } => {
            let enabled = if *enabled { "starts by itself" } else { "does not start by itself" };
            format!("systemd user unit {unit}, {active}, {enabled}")
        }
        Manager::Plain { systemd: true } => {
            "plain background process; `trellis service install` makes it a systemd user unit".into()
        }
        Manager::Plain { systemd: false } => {
            "plain background process (no systemd manager of yours runs here)".into()
        }
    };
    let server = match report.pid {
        Some(pid) => format!("runs, process {pid}"),
        None => "does not run: `trellis service start`".into(),
    };
    let agent = match &report.agent {
        None => None,
        Some(agent) if agent.alive => Some(format!("ssh-agent at {} answers", shown(&agent.path))),
        Some(agent) => Some(format!(
            "ssh-agent at {} is gone: its keys cannot be used. `trellis service stop` and `start` from a session that \
             has one, or use keys in files, or `trellis login HOST`",
            shown(&agent.path)
        )),
    };
    let mut out = format!("service  {keeper}\nserver   {server}\nlog      {}\n", shown(&report.log));
    out += &format!("logout   {}\n", of_logout(report));
    if let Some(agent) = agent {
        out += &format!("keys     {agent}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::AgentSocket;

    #[test]
    fn a_person_is_told_what_to_do() {
        let mut report = ServiceReport {
            manager: Manager::Plain { systemd: true },
            pid: None,
            log: "/s/server.log".into(),
            logout: Logout::Ends,
            agent: None,
        };
        let text = readable(&report);
        for part in ["service install", "service start", "enable-linger", "/s/server.log"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        report.pid = Some(7);
        report.agent = Some(AgentSocket { path: "/a".into(), alive: false });
        assert!(readable(&report).contains("ssh-agent at /a is gone"));
    }
}
