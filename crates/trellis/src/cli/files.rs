//! Reading the tree: `ls`, `stat`, `cat`; and the way to the tree for all file commands.

use super::{Done, Failure, StateArg, complain};
use crate::accounts::Ssh;
use crate::control::client::Client;
use crate::gate::Door;
use crate::mounts::OwnMounts;
use crate::root::{Dynamic, Root};
use crate::scl::Place;
use crate::state::Lock;
use crate::tree::direct::Direct;
use crate::tree::served::Served;
use crate::tree::{Node, Tree, follow, list_all};
use crate::{config, show};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use vfs::Namespace;

const PATHS: &str = "\
Paths: scp:[user@]host:/path (absolute), scp:[user@]host:path (below the home directory), both also without
`scp:`; or as in the mounted tree: /[user@]host/path, /NAME/path for a configured home.";

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

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(after_help = PATHS)]
pub struct LsArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Attributes too
    #[arg(short)]
    long: bool,

    /// Names that begin with a dot too
    #[arg(short)]
    all: bool,

    /// Directories themselves, not what is in them
    #[arg(short)]
    directory: bool,

    /// What to list [default: the root of the tree]
    paths: Vec<OsString>,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
#[command(after_help = PATHS)]
pub struct StatArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// What to show
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
#[command(after_help = PATHS)]
pub struct CatArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// What to write
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// A way to the tree; the lock keeps a server from starting while a command works without one.
pub(super) struct Opened {
    pub(super) tree: Box<dyn Tree>,
    _lock: Option<Lock>,
}

impl Opened {
    /// A tree that needs nobody kept out.
    pub(super) fn without_lock(tree: impl Tree + 'static) -> Opened {
        Opened { tree: Box::new(tree), _lock: None }
    }
}

impl TreeArgs {
    /// Through the server if one runs, else straight at the homes.
    pub(super) async fn open(&self) -> Result<Opened, Failure> {
        let state = self.state.existing()?;
        if let Some(state) = &state
            && let Some(client) = Client::connect(state).await?
        {
            return Ok(Opened::without_lock(Served::new(client)));
        }
        let lock = state.as_ref().map(|s| s.lock_shared()).transpose()?;
        let file = config::load(self.config.as_deref())?;
        let ssh = Ssh::new(self.ssh_config.clone().or(file.ssh_config));
        let root = Root::new(file.home, Dynamic::All, ssh, Door::new(OwnMounts::default()));
        let namespace: Arc<dyn Namespace> = Arc::new(root);
        let unsent = crate::unsent::check(state.as_ref());
        Ok(Opened { tree: Box::new(Direct::new(namespace, unsent)), _lock: lock })
    }

    /// Names of the root directory that need no syntax to be known as such.
    pub(super) async fn names(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let mut opened = self.open().await?;
        let root = opened.tree.resolve(b"/").await?;
        Ok(list_all(&mut *opened.tree, &root).await?.into_iter().map(|(name, _)| name).collect())
    }
}

/// The path from the root of the tree that an argument means.
pub(super) fn tree_path(arg: &OsStr) -> Result<Vec<u8>, Failure> {
    Place::parse(arg.as_bytes()).map(|p| p.tree_path()).map_err(|e| Failure::Usage(e.detail))
}

/// Does something for each argument; one failure does not keep the others from being tried.
struct Each {
    failed: bool,
}

impl Each {
    fn note(&mut self, arg: &OsStr, done: Done) -> Done {
        match done {
            Err(Failure::Failed(Some(text))) => {
                complain(&format!("{}: {text}", show::text(arg.as_bytes())));
                self.failed = true;
                Ok(())
            }
            other => other,
        }
    }

    fn end(self) -> Done {
        if self.failed { Err(Failure::Failed(None)) } else { Ok(()) }
    }
}

pub(super) async fn ls(args: LsArgs) -> Done {
    let paths = if args.paths.is_empty() { vec![OsString::from("/")] } else { args.paths.clone() };
    let trees = paths.iter().map(|p| tree_path(p)).collect::<Result<Vec<_>, _>>()?;
    let mut opened = args.tree.open().await?;
    let mut each = Each { failed: false };
    for (at, (arg, path)) in paths.iter().zip(&trees).enumerate() {
        let heading = (paths.len() > 1).then_some((arg.as_os_str(), at > 0));
        let done = ls_one(&mut *opened.tree, path, arg, heading, &args).await;
        each.note(arg, done)?;
    }
    each.end()
}

async fn ls_one(
    tree: &mut dyn Tree,
    path: &[u8],
    arg: &OsStr,
    heading: Option<(&OsStr, bool)>,
    args: &LsArgs,
) -> Done {
    let node =
        if args.long || args.directory { tree.resolve(path).await? } else { follow(tree, path).await? };
    let mut listed = match node.attr.is_dir() && !args.directory {
        true => list_all(tree, &node).await?,
        false => vec![(arg.as_bytes().to_vec(), Some(node.clone()))],
    };
    let mut out = std::io::stdout().lock();
    if node.attr.is_dir() && !args.directory {
        listed.retain(|(name, _)| args.all || !name.starts_with(b"."));
        if let Some((arg, later)) = heading {
            let gap = if later { "\n" } else { "" };
            writeln!(out, "{gap}{}:", show::text(arg.as_bytes()))?;
        }
    }
    drop(out);
    match args.long {
        true => write_long(tree, &listed).await,
        false => write_names(&listed),
    }
}

/// A name as standard output should have it: escaped for a person, exact for a program.
fn shown(name: &[u8]) -> Vec<u8> {
    if std::io::stdout().is_terminal() { show::text(name).into_bytes() } else { name.to_vec() }
}

fn write_names(listed: &[(Vec<u8>, Option<Node>)]) -> Done {
    let mut text = Vec::new();
    for (name, _) in listed {
        text.extend_from_slice(&shown(name));
        text.push(b'\n');
    }
    Ok(std::io::stdout().write_all(&text)?)
}

async fn write_long(tree: &mut dyn Tree, listed: &[(Vec<u8>, Option<Node>)]) -> Done {
    let mut text = Vec::new();
    for (name, node) in listed {
        match node {
            None => {
                text.extend_from_slice(b"d?????????    ?      ?      ?            ? ?                    ")
            }
            Some(Node { attr: a, .. }) => {
                let time = &show::moment(a.mtime.0, a.mtime.1)[..19];
                let mode = show::mode(a.kind, a.mode);
                write!(text, "{mode} {:>4} {:>6} {:>6} {:>12} {time} ", a.nlink, a.uid, a.gid, a.size)?;
            }
        }
        text.extend_from_slice(&shown(name));
        if let Some(link) = node.as_ref().filter(|n| n.attr.is_symlink()) {
            let target = tree.readlink(link).await.unwrap_or_else(|_| b"?".to_vec());
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(&shown(&target));
        }
        text.push(b'\n');
    }
    Ok(std::io::stdout().write_all(&text)?)
}

pub(super) async fn stat(args: StatArgs) -> Done {
    let trees = args.paths.iter().map(|p| tree_path(p)).collect::<Result<Vec<_>, _>>()?;
    let mut opened = args.tree.open().await?;
    let mut each = Each { failed: false };
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = stat_one(&mut *opened.tree, path, arg).await;
        each.note(arg, done)?;
    }
    each.end()
}

async fn stat_one(tree: &mut dyn Tree, path: &[u8], arg: &OsStr) -> Done {
    let node = tree.resolve(path).await?;
    let a = &node.attr;
    let kind = match a.kind {
        '-' => "regular file",
        'd' => "directory",
        'l' => "symbolic link",
        'p' => "named pipe",
        _ => "socket",
    };
    let target = match a.is_symlink() {
        true => format!(" -> {}", show::text(&tree.readlink(&node).await?)),
        false => String::new(),
    };
    let moment = |(sec, nsec)| show::moment(sec, nsec);
    let text = format!(
        "  File: {}{target}\n  Size: {}  Allocated: {}  Type: {kind}\n  Mode: {:04o}/{}  Uid: {}  Gid: {}  Links: {}  \
         Inode: {}\nAccess: {}\nModify: {}\nChange: {}\n",
        show::text(arg.as_bytes()),
        a.size,
        a.used,
        a.mode,
        show::mode(a.kind, a.mode),
        a.uid,
        a.gid,
        a.nlink,
        a.fileid,
        moment(a.atime),
        moment(a.mtime),
        moment(a.ctime)
    );
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

pub(super) async fn cat(args: CatArgs) -> Done {
    let trees = args.paths.iter().map(|p| tree_path(p)).collect::<Result<Vec<_>, _>>()?;
    let mut opened = args.tree.open().await?;
    let mut each = Each { failed: false };
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = cat_one(&mut *opened.tree, path).await;
        each.note(arg, done)?;
    }
    each.end()
}

async fn cat_one(tree: &mut dyn Tree, path: &[u8]) -> Done {
    let file = follow(tree, path).await?;
    if file.attr.is_dir() {
        return Err(home::Error::from(home::ErrorKind::IsDir).into());
    }
    if !file.attr.is_file() {
        return Err("neither a file nor a link to one; its bytes are not passed on".to_owned().into());
    }
    let mut at = 0;
    loop {
        let (data, eof) = tree.read(&file, at).await?;
        std::io::stdout().write_all(&data)?;
        at += data.len() as u64;
        if eof || data.is_empty() {
            return Ok(std::io::stdout().flush()?);
        }
    }
}
