//! What an argument of a file command means, and the way to it.
//!
//! | argument | means |
//! |---|---|
//! | `scp:[user@]host:path`, `[user@]host:path` | that place, as in scp(1): without a path the account's home directory |
//! | a path that leads into a mount of the tree | the place that is seen there |
//! | a path that leads into a mount that another server serves, here or elsewhere | the same, reached through that mount |
//! | `/NAME/path` | that place, `NAME` as in the root of the tree: `user@host`, `host`, a configured name |
//! | `user@host/path` | the same; `cp` and `mv` take it for local if something of that name is there |
//! | any other | `cp` and `mv`: a path of this machine; the others: as with a leading `/` |
//!
//! Relative paths are meant from the current directory where that is in a mount of the tree. Where nothing there has its
//! first name, and a home that the server has used does, it is that home's; not for commands that change the tree, which may
//! be about to make what has that name, or to remove it.

use super::control::{By, Server};
use super::{Done, Failure, StateArg, complain};
use crate::accounts::Ssh;
use crate::control::client::Client;
use crate::control::proto::{Reply, Request};
use crate::control::report::StatusReport;
use crate::gate::Door;
use crate::login::Way;
use crate::mounts::{Mounted, OwnMounts, path_inside, seen_here};
use crate::root::{Dynamic, Root};
use crate::scl::{Place, RootName};
use crate::state::{Lock, StateDir};
use crate::tree::copy::naming;
use crate::tree::direct::Direct;
use crate::tree::served::Served;
use crate::tree::{Tree, list_all, local, wants_directory};
use crate::{config, mounts, show};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::Namespace;

/// For the help of each command.
pub(super) const PATHS: &str = "\
Paths: scp:[user@]host:/path (absolute), scp:[user@]host:path (below the home directory, which is host: alone), both
also without `scp:`; as in the tree: [/]user@host/path, /NAME/path for a host or a configured home; or any path below a mount
of the tree.";

/// How file commands reach the tree.
#[derive(Debug, Clone, Args)]
pub struct TreeArgs {
    #[command(flatten)]
    state: StateArg,

    /// Configuration, where no server runs
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Configuration for ssh (ssh -F), where no server runs
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
}

/// An argument of `cp` or `mv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// A path of this machine.
    Local(Vec<u8>),
    /// A path from the root of the tree.
    Tree(Vec<u8>),
}

impl End {
    pub(super) fn path(&self) -> &[u8] {
        let (End::Local(path) | End::Tree(path)) = self;
        path
    }

    pub(super) fn is_local(&self) -> bool {
        matches!(self, End::Local(_))
    }
}

/// Where a command begins: a path as a person writes it, and the path in the tree.
pub(super) type Start = (Vec<u8>, Vec<u8>);

/// The way to the tree.
pub(super) struct Reach {
    pub(super) tree: Box<dyn Tree>,
    /// Set where a server runs.
    served: Option<StateDir>,
    here: Here,
    /// Where the arguments seen so far lead: into this mount of another server, or not into one.
    through: Option<Option<Vec<u8>>>,
    /// Keeps a server from starting while a command works without one.
    _lock: Option<Lock>,
}

/// What decides what a path means.
pub(super) struct Here {
    /// The current directory, if it is known.
    cwd: Option<PathBuf>,
    mounts: Vec<Mounted>,
    /// Mounts of other servers: those of other state directories, and of other machines.
    others: Vec<Mounted>,
    /// The names of the homes that the server has used.
    homes: Vec<Vec<u8>>,
    /// The names that the root lists; asked for when they are needed.
    names: Option<Vec<Vec<u8>>>,
}

impl TreeArgs {
    /// Through the server if one runs, else straight at the homes.
    pub(super) async fn reach(&self) -> Result<Reach, Failure> {
        let state = self.state.existing()?;
        if let Some(state) = &state
            && let Some(mut client) = Client::reach(state).await?
        {
            let here = Here::of_server(&mut client, state).await?;
            let tree = Box::new(Served::new(client, state.clone()));
            return Ok(Reach { tree, served: Some(state.clone()), here, through: None, _lock: None });
        }
        let lock = state.as_ref().map(StateDir::lock_shared).transpose()?;
        let file = config::load(self.config.as_deref())?;
        let ssh = Ssh::new(Way::new(self.ssh_config.clone().or(file.ssh_config), state.as_ref()));
        let root = Root::new(file.home, Dynamic::All, ssh, Door::new(OwnMounts::default()));
        let namespace: Arc<dyn Namespace> = Arc::new(root);
        let unsent = crate::unsent::check(state.as_ref());
        let here = Here::of(state.as_ref().map(|state| (state, state.chosen())));
        let tree = Box::new(Direct::new(namespace, unsent));
        Ok(Reach { tree, served: None, here, through: None, _lock: lock })
    }
}

impl Reach {
    /// The path from the root of the tree that an argument means. An empty one is no path, and leads nowhere.
    pub(super) fn tree_path(&mut self, arg: &OsStr) -> Result<Vec<u8>, Failure> {
        if self.here.is_home(arg.as_bytes()) {
            self.lead(None, arg.as_bytes())?;
            return Ok(with_slash(arg.as_bytes(), parse(arg.as_bytes())?));
        }
        self.changed_path(arg)
    }

    /// The same where something may be made or removed there.
    pub(super) fn changed_path(&mut self, arg: &OsStr) -> Result<Vec<u8>, Failure> {
        let arg = arg.as_bytes();
        if arg.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.here.through(arg);
        let (mount, path) = match found {
            Some((mount, path)) => (Some(mount), path),
            None => (None, self.here.changed_path(arg)?),
        };
        self.lead(mount, arg)?;
        Ok(with_slash(arg, path))
    }

    /// The same for each argument.
    pub(super) fn tree_paths(&mut self, args: &[OsString]) -> Result<Vec<Vec<u8>>, Failure> {
        args.iter().map(|a| self.tree_path(a)).collect()
    }

    /// The same for each argument.
    pub(super) fn changed_paths(&mut self, args: &[OsString]) -> Result<Vec<Vec<u8>>, Failure> {
        args.iter().map(|a| self.changed_path(a)).collect()
    }

    /// The current directory where it is in a mount of the tree, else the root.
    pub(super) fn here(&mut self) -> Result<Start, Failure> {
        let here = b".".to_vec();
        if let Some((mount, path)) = self.here.through(b".") {
            return self.lead(Some(mount), b".").map(|()| (here, path));
        }
        Ok(self.here.inside(b".").map_or_else(|| (b"/".to_vec(), b"/".to_vec()), |path| (here, path)))
    }

    /// Where a command begins that was given these paths, or none.
    pub(super) fn starts(&mut self, args: &[OsString]) -> Result<Vec<Start>, Failure> {
        if args.is_empty() {
            return Ok(vec![self.here()?]);
        }
        args.iter().map(|arg| Ok((arg.as_bytes().to_vec(), self.tree_path(arg)?))).collect()
    }

    /// One command has one tree: that of its first argument.
    fn lead(&mut self, mount: Option<Vec<u8>>, arg: &[u8]) -> Result<(), Failure> {
        match &self.through {
            Some(before) if *before == mount => return Ok(()),
            Some(_) => {
                return Err(Failure::Usage(format!(
                    "{}: a mount that another server serves, and what is not in it, need a command each",
                    show::text(arg)
                )));
            }
            None => {}
        }
        if let Some(point) = &mount {
            self.tree = Box::new(local::Local::at(OsStr::from_bytes(point).into()));
        }
        self.through = Some(mount);
        Ok(())
    }

    /// Tells tree and local paths apart.
    pub(super) async fn end(&mut self, arg: &OsStr) -> Result<End, Failure> {
        if arg.as_bytes().starts_with(b"/") {
            self.know_names().await?;
        }
        Ok(match self.here.end(arg.as_bytes())? {
            End::Tree(path) => End::Tree(with_slash(arg.as_bytes(), path)),
            local => local,
        })
    }

    async fn know_names(&mut self) -> Result<(), Failure> {
        if self.here.names.is_none() {
            let root = self.tree.resolve(b"/").await?;
            let names = list_all(&mut *self.tree, &root).await?.into_iter().map(|(name, _)| name);
            self.here.names = Some(names.collect());
        }
        Ok(())
    }

    /// What to say besides where a path of this machine is not there, but its first name is in the root of the tree.
    pub(super) async fn taken_for_local(&mut self, end: &End) -> Option<String> {
        let End::Local(path) = end else { return None };
        let first = path.split(|b| *b == b'/').next().filter(|first| !first.is_empty())?;
        if Path::new(OsStr::from_bytes(first)).symlink_metadata().is_ok() {
            return None;
        }
        self.know_names().await.ok()?;
        let path = show::text(path);
        self.here
            .names
            .iter()
            .flatten()
            .any(|name| name == first)
            .then(|| format!("{path} was taken for a path of this machine; in the tree it is /{path}"))
    }

    /// A way to the end's tree.
    pub(super) async fn open(&mut self, end: &End) -> Result<Box<dyn Tree>, Failure> {
        match end {
            End::Local(_) => Ok(Box::new(local::Local::default())),
            End::Tree(_) => Ok(self.tree.another().await?),
        }
    }

    /// The names of all homes that the server has used, or, without a server, of all configured ones.
    pub(super) async fn homes(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        if let Some(state) = &self.served
            && let Some(mut client) = Client::connect(state).await?
            && let Reply::Status(report) = client.ask(Request::Status).await?
        {
            let first = |h: crate::control::report::HomeReport| h.names.into_iter().next();
            return Ok(report.homes.into_iter().filter_map(first).map(String::into_bytes).collect());
        }
        let root = self.tree.resolve(b"/").await?;
        Ok(list_all(&mut *self.tree, &root).await?.into_iter().map(|(name, _)| name).collect())
    }
}

/// The path from the root of the tree that an argument of a command to the server means.
pub(super) async fn tree_path(server: &mut Server, arg: &OsStr) -> Result<Vec<u8>, Failure> {
    let here = Here::of_any(server).await?;
    let path = here.tree_path(arg.as_bytes())?;
    let Some(first) = here.name_of_this_machine(arg.as_bytes()) else { return Ok(path) };
    match server.client.ask(Request::Names).await? {
        Reply::Names(names) if names.iter().any(|name| name.0 == first) => Ok(path),
        _ => {
            let (arg, first) = (show::text(arg.as_bytes()), show::text(first));
            Err(format!(
                "{arg}: is on this machine, and not in a mount of the tree, so that it belongs to no home: name a home or \
                 a path in a mount, as `trellis status` shows them; a host of that name is written {first}:/"
            )
            .into())
        }
    }
}

impl Here {
    /// With the mounts of the server of a state directory, which serves NFS there.
    fn of(server: Option<(&StateDir, Vec<SocketAddr>)>) -> Here {
        let mounts = server.map(|(state, listeners)| {
            let uid = rustix::process::geteuid().as_raw();
            seen_here(&mounts::Served { listeners, source: state.source(), uid })
        });
        let mounts = mounts.unwrap_or_default();
        let others = mounts::other_points(&mounts).iter().map(|point| Mounted::whole(point)).collect();
        Here { cwd: std::env::current_dir().ok(), mounts, others, homes: Vec::new(), names: None }
    }

    /// With the mounts of a server, or the one that it is reached through.
    pub(super) async fn of_any(server: &mut Server) -> Result<Here, Failure> {
        match &server.by {
            By::Here(state) => Here::of_server(&mut server.client, state).await,
            By::Mount(record) => {
                let mut here = Here::of(None);
                let point = record.mounted();
                here.others.retain(|m| *m != point);
                here.mounts = vec![point];
                if let Reply::Status(report) = server.client.ask(Request::Status).await? {
                    here.homes = names_of(&report);
                }
                Ok(here)
            }
        }
    }

    async fn of_server(client: &mut Client, state: &StateDir) -> Result<Here, Failure> {
        let Reply::Status(report) = client.ask(Request::Status).await? else {
            return Ok(Here::of(Some((state, Vec::new()))));
        };
        let listeners = report.nfs.iter().filter_map(|a| a.parse().ok()).collect();
        Ok(Here { homes: names_of(&report), ..Here::of(Some((state, listeners))) })
    }

    fn full(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(path));
        if path.is_absolute() { Some(path.to_owned()) } else { Some(self.cwd.as_ref()?.join(path)) }
    }

    /// The path in the tree, where a path of this machine leads into a mount of it.
    fn inside(&self, path: &[u8]) -> Option<Vec<u8>> {
        path_inside(&self.full(path)?, &self.mounts)
    }

    /// The mount of another server that a path leads into, and the path in its tree.
    fn through(&self, path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        if is_locator(path) || self.others.is_empty() {
            return None;
        }
        let full = self.full(path)?;
        let found = self.others.iter().find_map(|m| Some((m, path_inside(&full, std::slice::from_ref(m))?)));
        found.map(|(mount, inside)| (mount.point.clone(), inside))
    }

    /// The first name of a path that is on this machine and not in the tree, unless it is that of a home.
    fn name_of_this_machine<'a>(&self, arg: &'a [u8]) -> Option<&'a [u8]> {
        let first = arg.split(|b| *b == b'/').find(|p| !p.is_empty())?;
        let at = if arg.starts_with(b"/") { [b"/", first].concat() } else { first.to_vec() };
        let is_there = self.full(&at)?.symlink_metadata().is_ok();
        let in_tree = is_locator(arg) || self.inside(arg).is_some() || self.homes.iter().any(|h| h == first);
        Some(first).filter(|_| is_there && !in_tree)
    }

    /// Whether the first name of a relative path can only be that of a home.
    fn is_home(&self, arg: &[u8]) -> bool {
        let first = arg.split(|b| *b == b'/').next().unwrap_or_default();
        let is_there = || self.full(first).is_some_and(|path| path.symlink_metadata().is_ok());
        self.homes.iter().any(|home| home == first) && !is_there()
    }

    /// The path in the tree that an argument means.
    pub(super) fn tree_path(&self, arg: &[u8]) -> Result<Vec<u8>, Failure> {
        if self.is_home(arg) { parse(arg) } else { self.changed_path(arg) }
    }

    /// The same where something may be made or removed there.
    fn changed_path(&self, arg: &[u8]) -> Result<Vec<u8>, Failure> {
        if is_locator(arg) {
            return parse(arg);
        }
        if let Some(path) = self.inside(arg) {
            return Ok(path);
        }
        if self.through(arg).is_some() {
            return Err(Failure::Usage(format!(
                "{}: is in a mount that another server serves, and not the one that is asked: name its state directory with \
                 --state DIR, or run this on its machine",
                show::text(arg)
            )));
        }
        let first = arg.split(|b| *b == b'/').next().unwrap_or_default();
        if matches!(first, b"." | b"..") {
            return Err(Failure::Usage(format!(
                "{}: the current directory is not in a mount of the tree: write scp:[user@]host:/path",
                show::text(arg)
            )));
        }
        parse(arg)
    }

    fn end(&self, arg: &[u8]) -> Result<End, Failure> {
        if is_locator(arg) {
            return parse(arg).map(End::Tree);
        }
        if let Some(path) = self.inside(arg) {
            return Ok(End::Tree(path));
        }
        if self.through(arg).is_some() {
            return Ok(End::Local(arg.to_vec()));
        }
        let absolute = arg.starts_with(b"/");
        let first = arg.split(|b| *b == b'/').find(|p| !p.is_empty()).unwrap_or_default();
        let marked = first.contains(&b'@') || absolute && first.contains(&b':');
        let listed = absolute && self.names.iter().flatten().any(|n| n == first);
        let local = || {
            let path = Path::new(OsStr::from_bytes(first));
            let base = if absolute { Path::new("/") } else { self.cwd.as_deref().unwrap_or(Path::new(".")) };
            base.join(path).symlink_metadata().is_ok()
        };
        match listed || marked && RootName::parse(first).is_some() && !local() {
            true => parse(arg).map(End::Tree),
            false => Ok(End::Local(arg.to_vec())),
        }
    }
}

fn names_of(report: &StatusReport) -> Vec<Vec<u8>> {
    report.homes.iter().flat_map(|home| &home.names).map(|name| name.clone().into_bytes()).collect()
}

/// A path in the tree asks for a directory where the argument did.
fn with_slash(arg: &[u8], mut path: Vec<u8>) -> Vec<u8> {
    if wants_directory(arg) && !wants_directory(&path) {
        path.push(b'/');
    }
    path
}

fn is_locator(arg: &[u8]) -> bool {
    !arg.starts_with(b".") && Place::parse_locator(arg).is_some()
}

fn parse(arg: &[u8]) -> Result<Vec<u8>, Failure> {
    Place::parse(arg).map(|p| p.tree_path()).map_err(|e| Failure::Usage(e.detail))
}

/// Does something for each argument; one failure does not keep the others from being tried.
pub(super) struct Each {
    worst: u8,
    unwritten: Option<Failure>,
}

impl Each {
    pub(super) fn new() -> Each {
        Each { worst: 0, unwritten: None }
    }

    /// Tells of a failure with the path that was typed.
    pub(super) fn note(&mut self, arg: &[u8], done: Done) -> Done {
        self.note_as(1, arg, done)
    }

    /// The same, with another exit code for it.
    pub(super) fn note_as(&mut self, code: u8, arg: &[u8], done: Done) -> Done {
        match done {
            Err(Failure::Failed(text)) => {
                if let Some(text) = text {
                    complain(&naming(arg, &text));
                    hint(arg, &text).iter().for_each(|hint| complain(hint));
                }
                self.worst = self.worst.max(code);
                Ok(())
            }
            other => other,
        }
    }

    /// Tells of a failure below an argument.
    pub(super) fn complain(&mut self, path: &[u8], e: &home::Error) {
        complain(&naming(path, &show::message(&e.detail)));
        self.worst = self.worst.max(1);
    }

    /// Remembers that something could not be said of work that goes on.
    pub(super) fn output(&mut self, written: std::io::Result<()>) {
        if let Err(e) = written {
            self.unwritten.get_or_insert(e.into());
        }
    }

    pub(super) fn end(self) -> Done {
        if let Some(unwritten) = self.unwritten {
            return Err(unwritten);
        }
        if self.worst == 0 { Ok(()) } else { Err(Failure::Code(self.worst)) }
    }
}

/// What to say besides where a path of this machine was taken for one of the tree, or leads into a dead mount.
fn hint(arg: &[u8], failure: &str) -> Option<String> {
    if failure.contains("Transport endpoint is not connected") {
        return Some("the server of that mount has gone: `trellis doctor` says what to do".into());
    }
    let is_here = Path::new(OsStr::from_bytes(arg)).symlink_metadata().is_ok();
    (is_here && failure.contains("no host ")).then(|| {
        let arg = show::text(arg);
        format!(
            "{arg} is there on this machine, but in no mount of this server's, so that its first name was taken for a host's"
        )
    })
}

/// The path of a name in a directory, for a person.
pub(super) fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let gap: &[u8] = if dir.ends_with(b"/") || dir.ends_with(b":") { b"" } else { b"/" };
    [dir, gap, name].concat()
}

/// Permission bits that new objects do not get (umask(2)).
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|l| l.strip_prefix("Umask:"));
    value.and_then(|v| u32::from_str_radix(v.trim(), 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(cwd: &str) -> Here {
        let mounts = vec![Mounted { point: b"/mnt/tree".to_vec(), inside: Vec::new() }];
        Here {
            cwd: Some(cwd.into()),
            mounts,
            others: vec![Mounted::whole(Path::new("/home/ann/at"))],
            homes: Vec::new(),
            names: Some(vec![b"lab".to_vec()]),
        }
    }

    #[test]
    fn tree_and_local_paths_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("me@there"), "").unwrap();
        let here = here(dir.path().to_str().unwrap());
        let tree = |p: &str| End::Tree(p.into());
        let local = |p: &str| End::Local(p.into());
        for (arg, want) in [
            ("scp:ann@lab:/x", tree("/scp:ann@lab:/x")),
            ("lab:x", tree("/scp:lab:./x")),
            ("/ann@lab/x", tree("/ann@lab/x")),
            ("ann@lab/x", tree("/ann@lab/x")),
            ("me@there", local("me@there")),
            ("/scp:lab:/x", tree("/scp:lab:/x")),
            ("/lab/x", tree("/lab/x")),
            ("/mnt/tree/lab/x", tree("/lab/x")),
            ("/tmp/x", local("/tmp/x")),
            ("/a b@c/x", local("/a b@c/x")),
            ("x", local("x")),
            ("lab/x", local("lab/x")),
            ("x/y:z", local("x/y:z")),
            ("./x:y", local("./x:y")),
            ("../lab", local("../lab")),
        ] {
            assert_eq!(here.end(arg.as_bytes()).unwrap(), want, "{arg}");
        }
        assert!(matches!(here.end(b"-x:y"), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_path_of_this_machine_is_told_from_an_unknown_host() {
        let unknown = "no host tmp is known. Check the name with `ssh tmp`";
        assert!(hint(b"/tmp", unknown).unwrap().contains("/tmp is there on this machine"));
        assert_eq!(hint(b"/tmp", "no such file or directory"), None);
        assert_eq!(hint(b"/no such place", unknown), None);
        assert_eq!(hint(b"tmp", unknown), None);
    }

    #[test]
    fn commands_of_the_tree_take_everything_for_the_tree() {
        let outside = here("/usr");
        for (arg, want) in [
            ("lab/x", "/lab/x"),
            ("ann@lab/x", "/ann@lab/x"),
            ("/lab/x", "/lab/x"),
            ("lab:/x", "/scp:lab:/x"),
            ("/mnt/tree/lab/x", "/lab/x"),
            ("/mnt/../mnt/tree", "/"),
        ] {
            assert_eq!(String::from_utf8(outside.tree_path(arg.as_bytes()).unwrap()).unwrap(), want, "{arg}");
        }
        assert!(matches!(outside.tree_path(b"./x"), Err(Failure::Usage(_))));
        assert_eq!(outside.inside(b"."), None);
        let inside = here("/mnt/tree/ann@lab/d");
        for (arg, want) in [
            ("x", "/ann@lab/d/x"),
            (".", "/ann@lab/d"),
            ("../y", "/ann@lab/d/../y"),
            ("lab:x", "/scp:lab:./x"),
        ] {
            assert_eq!(String::from_utf8(inside.tree_path(arg.as_bytes()).unwrap()).unwrap(), want, "{arg}");
        }
        assert_eq!(inside.end(b"x").unwrap(), End::Tree(b"/ann@lab/d/x".to_vec()));
    }

    #[test]
    fn a_home_is_meant_where_nothing_in_the_current_directory_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("taken")).unwrap();
        let point = dir.path().to_str().unwrap().as_bytes().to_vec();
        let mounts = vec![Mounted { point: point.clone(), inside: b"lab/work".to_vec() }];
        let homes = [&b"lab"[..], b"ann@lab", b"taken"].map(<[u8]>::to_vec).to_vec();
        let here = Here { mounts, homes, ..here(dir.path().to_str().unwrap()) };
        let all: Vec<u8> = [&point[..], b"/lab"].concat();
        for (arg, want, changed) in [
            (&b"lab"[..], "/lab", "/lab/work/lab"),
            (b"ann@lab/work", "/ann@lab/work", "/lab/work/ann@lab/work"),
            (b"taken", "/lab/work/taken", "/lab/work/taken"),
            (b"./lab", "/lab/work/lab", "/lab/work/lab"),
            (b"other", "/lab/work/other", "/lab/work/other"),
            (&all, "/lab/work/lab", "/lab/work/lab"),
        ] {
            let text = |path: Result<Vec<u8>, Failure>| String::from_utf8(path.unwrap()).unwrap();
            assert_eq!(text(here.tree_path(arg)), want, "{}", show::text(arg));
            assert_eq!(text(here.changed_path(arg)), changed, "{}", show::text(arg));
        }
    }

    #[test]
    fn what_is_on_this_machine_alone_is_told_from_a_home() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let here = Here { homes: vec![b"etc".to_vec()], ..here(dir.path().to_str().unwrap()) };
        for (arg, first) in [
            ("/tmp", Some("tmp")),
            ("/tmp/none", Some("tmp")),
            ("data/x", Some("data")),
            ("lab/x", None),
            ("/etc", None),
            ("/", None),
            ("tmp:/x", None),
            ("/mnt/tree/x", None),
        ] {
            assert_eq!(here.name_of_this_machine(arg.as_bytes()), first.map(str::as_bytes), "{arg}");
        }
    }

    #[test]
    fn what_is_in_a_mount_of_another_server_is_no_host() {
        for (cwd, arg, inside) in [
            ("/home/ann", "at/lab/x", "/lab/x"),
            ("/home/ann/at/lab", "x", "/lab/x"),
            ("/home/ann/at/lab", ".", "/lab"),
            ("/", "/home/ann/at", "/"),
        ] {
            let found = here(cwd).through(arg.as_bytes());
            assert_eq!(found, Some((b"/home/ann/at".to_vec(), inside.into())), "{cwd}: {arg}");
            assert_eq!(here(cwd).end(arg.as_bytes()).unwrap(), End::Local(arg.into()));
            assert!(matches!(here(cwd).tree_path(arg.as_bytes()), Err(Failure::Usage(_))));
        }
        assert!(here("/home/ann").tree_path(b"at2/lab/x").is_ok());
        assert!(here("/home/ann").tree_path(b"at:lab/x").is_ok(), "a locator");
    }
}
