//! `trellis ls`.

use super::files::{entry, shown};
use super::output::stdout;
use super::owners::Owners;
use super::reach::{Each, PATHS, TreeArgs, below};
use super::{Done, Failure, json};
use crate::tree::{At, Node, Tree, follow, list_all, look};
use crate::{limits, show};
use clap::Args;
use home::{Error, ErrorKind};
use std::cmp::{Ordering, Reverse};
use std::ffi::OsString;
use std::io::Write;
use vfs::Oid;

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = format!("\
Examples:
  trellis ls                          the homes
  trellis ls -l ann@lab/data          attributes too; times are UTC
  trellis ls -ltr ann@lab/data        what was changed last at the end
  trellis ls -a --json scp:lab:.      for programs

{PATHS}

{}", json::ENTRY))]
pub struct LsArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Attributes too; owners have the names that this machine knows, or, where no server runs, numbers
    #[arg(short)]
    long: bool,

    /// The same as -l, with numbers for owners
    #[arg(short = 'n', long)]
    numeric_uid_gid: bool,

    /// One name a line, as always
    #[arg(short = '1')]
    _one: bool,

    /// Names that begin with a dot too, but never `.` and `..`
    #[arg(short, long)]
    all: bool,

    /// The same as -a
    #[arg(short = 'A', long)]
    almost_all: bool,

    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,

    /// Directories below too, each with all that is in it
    #[arg(short = 'R', long)]
    recursive: bool,

    /// What was changed last first
    #[arg(short, overrides_with = "size")]
    time: bool,

    /// The largest first
    #[arg(short = 'S', overrides_with = "time")]
    size: bool,

    /// In the opposite order
    #[arg(short, long)]
    reverse: bool,

    /// With -l, sizes such as 1.5K
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// What to list [default: the current directory in a mount of the tree, else the root of the tree]
    paths: Vec<OsString>,
}

impl LsArgs {
    fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid
    }
}

/// A name, and its object where that is known.
type Named = (Vec<u8>, Option<Node>);

pub(super) async fn ls(args: LsArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let starts = reach.starts(&args.paths)?;
    let mut listing = Listing {
        tree: &mut *reach.tree,
        args: &args,
        each: Each::new(),
        owners: Owners::default(),
        headings: args.recursive || starts.len() > 1,
        begun: false,
    };
    let (mut others, mut directories) = (Vec::new(), Vec::new());
    for (arg, path) in starts {
        match start(&mut *listing.tree, &path, &args).await {
            Ok(node) if node.attr.is_dir() && !args.directory => directories.push((arg, Some(node))),
            Ok(node) => others.push((arg, Some(node))),
            Err(e) => listing.each.note_as(2, &arg, Err(e.into()))?,
        }
    }
    sort(&mut others, &args);
    sort(&mut directories, &args);
    listing.write(None, &others).await?;
    for (arg, node) in directories.into_iter().filter_map(|(arg, node)| Some((arg, node?))) {
        let done = listing.directory(&arg, &node, 0).await;
        listing.each.note_as(2, &arg, done)?;
    }
    listing.each.end()
}

/// What an argument stands for: without -l and -d what a link leads to, if that is a directory.
async fn start(tree: &mut dyn Tree, path: &[u8], args: &LsArgs) -> home::Result<Node> {
    if args.is_long() || args.directory {
        return look(tree, path).await;
    }
    match follow(tree, path).await {
        Ok(node) if node.attr.is_dir() => Ok(node),
        Err(e) if e.kind != ErrorKind::NotFound => Err(e),
        followed => match look(tree, path).await {
            Ok(link) => Ok(link),
            Err(e) => followed.and(Err(e)),
        },
    }
}

fn sort(named: &mut [Named], args: &LsArgs) {
    let first = |(_, one): &Named, (_, other): &Named| match (args.time, args.size) {
        (true, _) => {
            Reverse(one.as_ref().map(|n| n.attr.mtime)).cmp(&Reverse(other.as_ref().map(|n| n.attr.mtime)))
        }
        (_, true) => {
            Reverse(one.as_ref().map(|n| n.attr.size)).cmp(&Reverse(other.as_ref().map(|n| n.attr.size)))
        }
        _ => Ordering::Equal,
    };
    named.sort_by(|one, other| {
        let order = first(one, other).then_with(|| one.0.cmp(&other.0));
        if args.reverse { order.reverse() } else { order }
    });
}

/// A listing in progress.
struct Listing<'a> {
    tree: &'a mut dyn Tree,
    args: &'a LsArgs,
    each: Each,
    owners: Owners,
    /// Each directory has its name above it.
    headings: bool,
    /// Something was printed.
    begun: bool,
}

impl Listing<'_> {
    async fn directory(&mut self, path: &[u8], node: &Node, depth: usize) -> Done {
        if depth >= limits::DEPTH {
            return Err(Error::new(ErrorKind::Loop, "directories are nested too deeply").into());
        }
        let mut listed = list_all(self.tree, node).await?;
        let hidden = self.args.all || self.args.almost_all;
        listed.retain(|(name, _)| hidden || !name.starts_with(b"."));
        self.find_unknown(path, node, &mut listed).await;
        sort(&mut listed, self.args);
        if self.headings && !self.args.json {
            let gap = if self.begun { "\n" } else { "" };
            writeln!(stdout(), "{gap}{}:", show::text(path))?;
            self.begun = true;
        }
        if listed.is_empty() && path.iter().all(|b| *b == b'/') {
            // The root is not empty: it has every host, once it is named.
            super::note("no home was used yet: name one, as in `trellis ls HOST:`");
        }
        self.write(Some(path), &listed).await?;
        if !self.args.recursive {
            return Ok(());
        }
        for (name, child) in listed {
            let path = below(path, &name);
            let child = match child {
                Some(child) => Ok(child),
                None => self.tree.lookup(node, &name).await,
            };
            let done = match child {
                Ok(child) if child.attr.is_dir() => Box::pin(self.directory(&path, &child, depth + 1)).await,
                Ok(_) => Ok(()),
                Err(e) => Err(e.into()),
            };
            self.each.note(&path, done)?;
        }
        Ok(())
    }

    /// Asks for what the listing did not tell, where more than names is shown. In the root that would be a login.
    async fn find_unknown(&mut self, path: &[u8], dir: &Node, listed: &mut [Named]) {
        let args = self.args;
        let is_root = match dir.at {
            At::Served(id) => id.volume == Oid::ROOT_VOLUME,
            _ => matches!(dir.at, At::Root),
        };
        if is_root || !(args.is_long() || args.json || args.time || args.size) {
            return;
        }
        for (name, node) in listed.iter_mut().filter(|(_, node)| node.is_none()) {
            match self.tree.lookup(dir, name).await {
                Ok(found) => *node = Some(found),
                Err(e) => self.each.complain(&below(path, name), &e),
            }
        }
    }

    /// Prints names of a directory, or, without one, arguments.
    async fn write(&mut self, dir: Option<&[u8]>, named: &[Named]) -> Done {
        self.begun |= !named.is_empty();
        let mut text = Vec::new();
        for (name, node) in named {
            let path = dir.map_or_else(|| name.clone(), |dir| below(dir, name));
            if self.args.json {
                json::line(&entry(self.tree, &path, node.as_ref()).await)?;
                continue;
            }
            if self.args.is_long() {
                self.long(&mut text, name, node.as_ref(), &path).await?;
            } else {
                text.extend_from_slice(&shown(name));
            }
            text.push(b'\n');
        }
        Ok(stdout().write_all(&text)?)
    }

    async fn long(
        &mut self,
        text: &mut Vec<u8>,
        name: &[u8],
        node: Option<&Node>,
        path: &[u8],
    ) -> Result<(), Failure> {
        let Some(node) = node else {
            text.extend_from_slice(b"d?????????    ? ?        ?                   ? ?                    ");
            text.extend_from_slice(&shown(name));
            return Ok(());
        };
        let a = &node.attr;
        let time = &show::moment(a.mtime.0, a.mtime.1)[..19];
        let mode = show::mode(a.kind, a.mode);
        let size = if self.args.human_readable { show::short_size(a.size) } else { a.size.to_string() };
        // What a home tells of itself are its own numbers, which mean others here.
        let (user, group) = match self.args.numeric_uid_gid || matches!(node.at, At::Direct(..)) {
            true => (a.uid.to_string(), a.gid.to_string()),
            false => (self.owners.user(a.uid), self.owners.group(a.gid)),
        };
        write!(text, "{mode} {:>4} {user:<8} {group:<8} {size:>12} {time} ", a.nlink)?;
        text.extend_from_slice(&shown(name));
        if a.is_symlink() {
            text.extend_from_slice(b" -> ");
            match self.tree.readlink(node).await {
                Ok(target) => text.extend_from_slice(&shown(&target)),
                Err(e) => {
                    self.each.complain(path, &e);
                    text.push(b'?');
                }
            }
        }
        Ok(())
    }
}
