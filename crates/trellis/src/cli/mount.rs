//! `trellis mount` and `trellis umount`.

use super::attach::AtArgs;
use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Raw, Reply, Request};
use crate::daemon::{self, Started};
use crate::mount::helper::{self, Unmount};
use crate::mount::place::{self, Look};
use crate::mount::{detach_dead, remembered, write_list};
use crate::state::StateDir;
use crate::{advice, mounts, service, show};
use clap::Args;
use home::io_text;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory below the user's own that is used if none is named.
const USUAL: &str = "trellis";

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis mount                       at ~/trellis, which is made; starts a server if none runs
  trellis mount /scratch/me/tree")]
pub struct MountArgs {
    #[command(flatten)]
    state: StateArg,

    #[command(flatten)]
    at: AtArgs,

    /// An empty directory of your own [default: ~/trellis, which is made]
    #[arg(id = "mount", value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis umount
  trellis umount -z ~/trellis         even if a program uses it")]
pub struct UmountArgs {
    #[command(flatten)]
    state: StateArg,

    /// The mounted directory [default: the only one]
    #[arg(id = "mount", value_name = "DIR")]
    dir: Option<PathBuf>,

    /// At once, even if a program uses it; that program may go on
    #[arg(short = 'z', long)]
    lazy: bool,
}

pub(super) async fn mount(args: MountArgs) -> Done {
    let make = args.dir.is_none();
    let dir = match args.dir {
        Some(dir) => absolute(&dir)?,
        None => usual()?,
    };
    if args.at.is_given() {
        let dir = super::attach::mount(&args.at, args.state.dir.as_deref(), &dir, make).await?;
        return Ok(stdout().write_all(welcome(&dir, false, args.at.host()).as_bytes())?);
    }
    // What is mounted there may have nobody left who answers.
    let ours = place::canonical(&dir).is_ok_and(|at| mounts::fuse_points().contains(&at));
    if !make && !ours && place::is_missing(&dir) {
        // No server is started for it.
        place::check_surroundings(&dir)?;
        return Err(place::missing(&dir).into());
    }
    // Where the state may lie is the server's decision at its start.
    let state = StateDir::create(args.state.dir.as_deref(), true)?;
    let request = Request::Mount { dir: raw(&dir), make };
    let mut started = false;
    let reply = match ask_server(&state, request.clone(), &mut started).await {
        // A server that was killed just now may have taken the question. One that was started for it has answered.
        Err(_) if !started && Client::connect(&state).await?.is_none() => {
            ask_server(&state, request, &mut started).await?
        }
        answered => answered?,
    };
    let Reply::Mounted { dir, before, recovered } = reply else {
        return Err(unexpected().into());
    };
    if recovered {
        super::note("a mount whose server had gone was taken away first");
    }
    Ok(stdout().write_all(welcome(Path::new(OsStr::from_bytes(&dir.0)), before, None).as_bytes())?)
}

/// Asks the server of a state directory, which is started if none runs.
async fn ask_server(state: &StateDir, request: Request, started: &mut bool) -> Result<Reply, Failure> {
    *started = service::start(state).await? == Started::Now;
    if *started {
        let log = show::text(daemon::log_path(state).as_os_str().as_bytes());
        super::note(&format!("started a server in the background; it writes to {log}"));
    }
    let mut client = Client::connect(state).await?.ok_or_else(|| "the server has ended again".to_owned())?;
    client.greet().await?;
    let answer = client.ask(request).await;
    if *started && answer.is_err() {
        end_again(state, client).await;
    }
    Ok(answer?)
}

/// Ends a server that was started for a mount which was refused, unless it has something to do.
async fn end_again(state: &StateDir, mut client: Client) {
    let Ok(Reply::Status(report)) = client.ask(Request::Status).await else { return };
    let serves = report.mounts.iter().any(|mount| mount.problem.is_none());
    if serves || report.homes.iter().any(|home| home.unsent_ops > 0) {
        return super::note(
            "the server that was started for it goes on with what an earlier one has left to it",
        );
    }
    // What it says on the way is no news to anybody.
    if client.ask(Request::Stop { drain_s: 0.0 }).await.is_ok() && super::control::ended(state).await.is_ok()
    {
        super::note("the server that was started for it has ended again");
    }
}

/// What a person can do with a mount, three things to try. `at`: the machine whose server it is, if not this one.
fn welcome(dir: &Path, before: bool, at: Option<&str>) -> String {
    let how = if before { "is mounted already" } else { "is mounted" };
    let there = at.map(|host| format!("ssh {} ", show::word(host.as_bytes()))).unwrap_or_default();
    let (shown, word) = (show::text(dir.as_os_str().as_bytes()), show::path_word(dir));
    let added = advice::addition();
    let tries = [
        [
            format!("  ls {}", show::path_word(&dir.join("HOST"))),
            format!("any host or alias that `{there}ssh HOST` reaches, from its root directory on"),
        ],
        [format!("  trellis status{added}"), "homes, what is unsent, what is cached".into()],
        [format!("  trellis umount {word}{added}"), "take it away again".into()],
    ];
    format!("{shown} {how}; try\n{}", show::table(&tries.map(Vec::from)))
}

pub(super) async fn umount(args: UmountArgs) -> Done {
    let dir = args.dir.as_deref().map(absolute).transpose()?;
    let state = args.state.existing()?;
    let mut client = match &state {
        Some(state) => Client::reach(state).await?,
        None => None,
    };
    if let Some(client) = &mut client {
        client.greet().await?;
    }
    let served = client.is_some() || !state.as_ref().map(remembered).unwrap_or_default().is_empty();
    if let Some(dir) = relayed(dir.as_deref(), served) {
        let how = if args.lazy { Unmount::Lazy } else { Unmount::Idle };
        helper::unmount(&dir, how).await?;
        return Ok(writeln!(stdout(), "{} is unmounted", show::text(dir.as_os_str().as_bytes()))?);
    }
    let text = match client {
        Some(mut client) => {
            let request = Request::Umount { dir: dir.as_deref().map(raw), lazy: args.lazy };
            let Reply::Unmounted(dir) = client.ask(request).await? else { return Err(unexpected().into()) };
            format!("{} is unmounted", show::text(&dir.0))
        }
        None => without_server(state.as_ref(), dir).await?,
    };
    Ok(writeln!(stdout(), "{text}")?)
}

/// The mount that is meant, if another machine's server serves it. Without a name it is the only one, unless there may be
/// mounts of a server of this machine (`served`).
fn relayed(dir: Option<&Path>, served: bool) -> Option<PathBuf> {
    match (dir, &mounts::relayed_points()[..]) {
        (Some(dir), points) => place::canonical(dir).ok().filter(|dir| points.contains(dir)),
        (None, [one]) if !served => Some(one.clone()),
        (None, _) => None,
    }
}

/// Where no server runs, what is left is dead, or only remembered for the next server. Answers what was done.
async fn without_server(state: Option<&StateDir>, dir: Option<PathBuf>) -> Result<String, Failure> {
    let mut known = state.map(remembered).unwrap_or_default();
    let dir = match (dir, &known[..]) {
        (Some(dir), _) => place::canonical(&dir)?,
        (None, [one]) => one.clone(),
        (None, []) => {
            let text = "nothing is mounted: no server runs; `trellis umount DIR` takes away what a dead one has left";
            return Err(text.to_owned().into());
        }
        (None, many) => {
            let dirs: Vec<String> = many.iter().map(|d| show::text(d.as_os_str().as_bytes())).collect();
            return Err(format!("no server runs; say which directory is meant: {}", dirs.join(", ")).into());
        }
    };
    let found = detach_dead(&dir).await?;
    let shown = show::text(dir.as_os_str().as_bytes());
    let is_known = known.contains(&dir);
    if !is_known && found != Look::Dead {
        return Err(format!(
            "{shown} is no mount that a trellis server has left behind; a mount of a server that runs is taken away with \
             the --state DIR of that server"
        )
        .into());
    }
    if let (true, Some(state)) = (is_known, state) {
        known.retain(|other| *other != dir);
        let _no_server = state.lock_shared()?;
        write_list(state, &known.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    Ok(match found {
        Look::Dead => format!("{shown} is unmounted"),
        Look::Free => format!("{shown} was not mounted any more; the next server does not mount it again"),
        Look::Alive => {
            format!(
                "{shown} is left to the server that has mounted it since; the next one here does not mount it again"
            )
        }
    })
}

fn usual() -> Result<PathBuf, Failure> {
    let home = std::env::home_dir().filter(|h| h.is_absolute());
    let home = home.ok_or_else(|| "no home directory is known: name a directory".to_owned())?;
    Ok(home.join(USUAL))
}

fn absolute(dir: &Path) -> Result<PathBuf, Failure> {
    let shown = show::text(dir.as_os_str().as_bytes());
    std::path::absolute(dir).map_err(|e| Failure::Usage(format!("{shown}: {}", io_text(&e))))
}

fn raw(path: &Path) -> Raw {
    Raw::from(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_try_stands_in_columns_however_long_the_path() {
        let text = welcome(Path::new("/home/ann/a long place"), false, Some("login1"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "/home/ann/a long place is mounted; try");
        assert!(
            lines[1].starts_with("  ls '/home/ann/a long place/HOST'  ")
                && lines[1].contains("`ssh login1 ssh HOST`")
        );
        let column = lines[1].find("any host").unwrap();
        assert_eq!([lines[2].find("homes"), lines[3].find("take it")], [Some(column); 2], "{text}");
    }
}
