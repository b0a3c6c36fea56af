//! Mounts that are served by a server on another machine: `trellis mount --at`, and its two halves.

use super::{Done, Failure, StateArg};
use crate::attach::client::{At, serve};
use crate::attach::record::{self, Record};
use crate::attach::{Attached, MARKER};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Raw, Reply, Request};
use crate::daemon::{self, Background};
use crate::mount::guard::Guard;
use crate::mount::{helper, place};
use crate::state::StateDir;
use crate::{mounts, service, show};
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt;

/// Which server serves a mount of this machine.
#[derive(Debug, Clone, Args)]
pub struct AtArgs {
    /// Serve it from the server of your account on this machine: [user@]host, as for ssh; --state is then a path there
    #[arg(long, value_name = "HOST")]
    at: Option<String>,

    /// With --at: this program on that machine [default: the same path as here, else `trellis` in PATH]
    #[arg(long, value_name = "FILE", requires = "at")]
    program: Option<String>,

    /// With --at: configuration for ssh (ssh -F)
    #[arg(long, value_name = "FILE", requires = "at")]
    ssh_config: Option<PathBuf>,
}

/// Arguments of `relay`, which `mount --at` runs in the background.
#[derive(Debug, Args)]
pub struct RelayArgs {
    #[command(flatten)]
    at: AtArgs,

    #[command(flatten)]
    state: StateArg,

    #[arg(long)]
    make: bool,

    /// The directory.
    dir: PathBuf,
}

/// Arguments of `attach`, which `relay` runs on the server's machine.
#[derive(Debug, Args)]
pub struct AttachArgs {
    #[command(flatten)]
    state: StateArg,

    #[arg(long)]
    session: String,

    #[arg(long)]
    received: u64,

    #[arg(long)]
    uid: u32,

    #[arg(long)]
    gid: u32,
}

impl AtArgs {
    /// Whether another machine's server is meant.
    pub fn is_given(&self) -> bool {
        self.at.is_some()
    }

    /// That machine.
    pub fn host(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// What is to be mounted on `dir`; `state` is the server's.
    fn record(&self, dir: &Path, state: Option<String>) -> Result<Record, Failure> {
        let config = self.ssh_config.as_deref();
        crate::serve::check_ssh_config(config)?;
        let program = match &self.program {
            Some(program) => program.clone(),
            // What is not there is looked for by its name.
            None => std::env::current_exe()?.to_str().unwrap_or("trellis").to_owned(),
        };
        let record = Record {
            dir: Raw::from(dir.as_os_str().as_bytes()),
            host: self.at.clone().unwrap_or_default(),
            program,
            named: self.program.is_some(),
            state,
            ssh_config: config.map(std::path::absolute).transpose()?,
        };
        match record.at() {
            Err(e) if e.kind == home::ErrorKind::Invalid => Err(Failure::Usage(e.detail)),
            at => Ok(at.map(|_| record)?),
        }
    }
}

/// Mounts `dir` from another machine's server. Returns when programs can use it; the rest is done in the background.
pub(super) async fn mount(
    args: &AtArgs,
    state: Option<&Path>,
    dir: &Path,
    make: bool,
) -> Result<PathBuf, Failure> {
    // What is wrong with the arguments is said here, not in a log.
    let state = state.map(spoken).transpose()?;
    args.record(dir, state.clone())?;
    let host = args.at.as_deref().unwrap_or_default();
    let mut words = vec!["relay".into(), "--at".into(), host.into()];
    for (name, value) in [("--program", &args.program), ("--state", &state)] {
        words.extend(value.iter().flat_map(|v| [name.into(), v.into()]));
    }
    if let Some(config) = &args.ssh_config {
        words.extend(["--ssh-config".into(), std::path::absolute(config)?.into()]);
    }
    if make {
        words.push("--make".into());
    }
    words.extend(["--".into(), dir.into()]);
    let log = relay_log()?;
    daemon::until_ready(Background { args: words, log }).await?;
    Ok(dir.to_owned())
}

/// A path as it is told to the other machine's shell, where bytes that are no text might mean another one.
fn spoken(path: &Path) -> Result<String, Failure> {
    let told = path.to_str().map(str::to_owned);
    told.ok_or_else(|| {
        let shown = show::text(path.as_os_str().as_bytes());
        Failure::Usage(format!("{shown}: a path that is told to another machine must be UTF-8"))
    })
}

/// A log for each machine: login and compute nodes often share the user's home directory.
fn relay_log() -> Result<PathBuf, Failure> {
    let dir = StateDir::create(None, true)?;
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(dir.path().join(format!("relay-{node}.log")))
}

pub(super) async fn relay(args: RelayArgs) -> Done {
    let place = place::prepare(&args.dir, args.make).await?;
    if place.mounted {
        let (dir, word) = (show::text(place.dir.as_os_str().as_bytes()), show::path_word(&place.dir));
        return Err(format!("{dir} is mounted already: `trellis umount {word}` takes it away").into());
    }
    let state = args.state.dir.as_deref().map(spoken).transpose()?;
    let record = args.at.record(&place.dir, state)?;
    let at = record.at()?;
    // Mounted before anything is started at the other machine for it: what this one refuses leaves nothing there.
    let device = helper::mount(&place.dir, &format!("{}{}", mounts::RELAYED, at.target))?;
    let guard = Guard::default();
    guard.watch(&place.dir);
    let served = carry(&at, &record, device).await;
    if served.is_err() {
        // Whoever unmounted it may have been faster.
        let _ = helper::unmount(&place.dir, helper::Unmount::Lazy).await;
    }
    served
}

/// Connects to the server and serves the kernel from there.
async fn carry(at: &At, record: &Record, device: OwnedFd) -> Done {
    let session = new_session()?;
    let link = at.connect(&session, 0).await?;
    let state = StateDir::create(None, true)?;
    record::keep(&state, record)?;
    let said = daemon::say_ready();
    let served = match said {
        Ok(()) => serve(at, &session, link, device).await,
        Err(why) => Err(why),
    };
    record::forget(&state, record.dir());
    Ok(served?)
}

/// A name that nobody else has chosen.
fn new_session() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// Arguments of `control`, which commands on another machine run on the server's.
#[derive(Debug, Args)]
pub struct ControlArgs {
    #[command(flatten)]
    state: StateArg,
}

/// Gives a command on another machine a way to the server that runs here.
pub(super) async fn control(args: ControlArgs) -> Done {
    let (client, _) = super::control::connect(&args.state).await?;
    pipe(client, Attached { received: 0, fresh: false }).await
}

pub(super) async fn attach(args: AttachArgs) -> Done {
    let state = StateDir::create(args.state.dir.as_deref(), true)?;
    service::start(&state).await?;
    let mut client = Client::connect(&state).await?.ok_or_else(|| "the server has ended again".to_owned())?;
    let request =
        Request::Attach { session: args.session, received: args.received, owner: (args.uid, args.gid) };
    let Reply::Attached { received, fresh } = client.ask(request).await? else {
        return Err(unexpected().into());
    };
    pipe(client, Attached { received, fresh }).await
}

/// Carries what the server and the other machine say to one another.
async fn pipe(client: Client, attached: Attached) -> Done {
    let line = serde_json::to_string(&attached).map_err(|e| e.to_string())?;
    let mut out = tokio::io::stdout();
    out.write_all(format!("\n{MARKER}{line}\n").as_bytes()).await?;
    out.flush().await?;
    let (mut reader, mut writer) = tokio::io::split(client.into_stream());
    let mut input = tokio::io::stdin();
    // Whichever side ends first ends the connection.
    tokio::select! {
        _ = tokio::io::copy(&mut input, &mut writer) => {}
        _ = tokio::io::copy(&mut reader, &mut out) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_is_told_as_it_is_or_not_at_all() {
        assert_eq!(spoken(Path::new("/tmp/sch\u{f6}n")).unwrap(), "/tmp/sch\u{f6}n");
        let why = spoken(Path::new(OsStr::from_bytes(b"/tmp/sch\xf6n"))).unwrap_err();
        assert!(matches!(&why, Failure::Usage(text) if text.starts_with("/tmp/sch\\xf6n: ")), "{why:?}");
    }
}
