//! Looking at the tree: `ls`, `stat`, `cat`.

use super::json::{self, Entry};
use super::reach::{Each, PATHS, TreeArgs, below};
use super::{Done, Failure};
use crate::show;
use crate::tree::{Node, Tree, follow, list_all, look};
use clap::Args;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = format!("\
Examples:
  trellis ls                          the homes
  trellis ls -l ann@lab/data          attributes too; times are UTC
  trellis ls -a --json scp:lab:.      for programs

{PATHS}

{}", json::ENTRY))]
pub struct LsArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Attributes too
    #[arg(short)]
    long: bool,

    /// One name a line, as always
    #[arg(short = '1')]
    _one: bool,

    /// Names that begin with a dot too
    #[arg(short)]
    all: bool,

    /// Directories themselves, not what is in them
    #[arg(short)]
    directory: bool,

    /// With -l, sizes such as 1.5K
    #[arg(short = 'h')]
    human: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// What to list [default: the current directory in a mount of the tree, else the root of the tree]
    paths: Vec<OsString>,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis stat ann@lab/data/x
  trellis stat --json scp:lab:x | jq .size

{PATHS}

{}", json::ENTRY))]
pub struct StatArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// What symbolic links lead to, not the links
    #[arg(short = 'L')]
    dereference: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// What to show
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis cat ann@lab/data/log | grep error
  head -1 x | trellis cat - ann@lab/rest      - is standard input

{PATHS}"))]
pub struct CatArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// What to write
    #[arg(required = true)]
    paths: Vec<OsString>,
}

pub(super) async fn ls(args: LsArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let (paths, trees) = match args.paths.is_empty() {
        true => (vec![reach.here()?], vec![reach.here()?]),
        false => (args.paths.iter().map(|p| p.as_bytes().to_vec()).collect(), reach.tree_paths(&args.paths)?),
    };
    let paths: Vec<Vec<u8>> = paths;
    let mut each = Each::new();
    for (at, (arg, path)) in paths.iter().zip(&trees).enumerate() {
        let heading = (paths.len() > 1).then_some(at > 0);
        let done = ls_one(&mut *reach.tree, path, arg, heading, &args, &mut each).await;
        each.note_as(2, arg, done)?;
    }
    each.end()
}

/// `heading`: whether there is one, and whether something stands before it.
async fn ls_one(
    tree: &mut dyn Tree,
    path: &[u8],
    arg: &[u8],
    heading: Option<bool>,
    args: &LsArgs,
    each: &mut Each,
) -> Done {
    let node = if args.long || args.directory { look(tree, path).await? } else { follow(tree, path).await? };
    let inside = node.attr.is_dir() && !args.directory;
    let mut listed = match inside {
        true => list_all(tree, &node).await?,
        false => vec![(arg.to_vec(), Some(node.clone()))],
    };
    if inside {
        listed.retain(|(name, _)| args.all || !name.starts_with(b"."));
    }
    if args.json {
        return write_json(tree, arg, inside, &listed).await;
    }
    if listed.is_empty() && path.iter().all(|b| *b == b'/') {
        // The root is not empty: it has every host, once it is named.
        super::note("no home was used yet: name one, as in `trellis ls HOST:`");
    }
    if let Some(later) = heading.filter(|_| inside) {
        let gap = if later { "\n" } else { "" };
        writeln!(std::io::stdout(), "{gap}{}:", show::text(arg))?;
    }
    match args.long {
        true => write_long(tree, (arg, inside), &listed, args.human, each).await,
        false => write_names(&listed),
    }
}

/// A name as standard output should have it: escaped for a person, exact for a program.
pub(super) fn shown(name: &[u8]) -> Vec<u8> {
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

async fn write_json(
    tree: &mut dyn Tree,
    dir: &[u8],
    inside: bool,
    listed: &[(Vec<u8>, Option<Node>)],
) -> Done {
    for (name, node) in listed {
        let path = if inside { below(dir, name) } else { name.clone() };
        json::line(&entry(tree, &path, node.as_ref()).await)?;
    }
    Ok(())
}

/// An object for a program; a link that cannot be read has no target.
pub(super) async fn entry(tree: &mut dyn Tree, path: &[u8], node: Option<&Node>) -> Entry {
    let target = match node.filter(|n| n.attr.is_symlink()) {
        Some(link) => tree.readlink(link).await.ok(),
        None => None,
    };
    Entry::new(path, node.map(|n| &n.attr), target)
}

async fn write_long(
    tree: &mut dyn Tree,
    (dir, inside): (&[u8], bool),
    listed: &[(Vec<u8>, Option<Node>)],
    human: bool,
    each: &mut Each,
) -> Done {
    let mut text = Vec::new();
    for (name, node) in listed {
        match node {
            None => {
                text.extend_from_slice(b"d?????????    ?      ?      ?            ? ?                    ")
            }
            Some(Node { attr: a, .. }) => {
                let time = &show::moment(a.mtime.0, a.mtime.1)[..19];
                let mode = show::mode(a.kind, a.mode);
                let size = if human { show::short_size(a.size) } else { a.size.to_string() };
                write!(text, "{mode} {:>4} {:>6} {:>6} {size:>12} {time} ", a.nlink, a.uid, a.gid)?;
            }
        }
        text.extend_from_slice(&shown(name));
        if let Some(link) = node.as_ref().filter(|n| n.attr.is_symlink()) {
            text.extend_from_slice(b" -> ");
            match tree.readlink(link).await {
                Ok(target) => text.extend_from_slice(&shown(&target)),
                Err(e) => {
                    each.complain(&if inside { below(dir, name) } else { name.clone() }, &e);
                    text.push(b'?');
                }
            }
        }
        text.push(b'\n');
    }
    Ok(std::io::stdout().write_all(&text)?)
}

pub(super) async fn stat(args: StatArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    let trees = reach.tree_paths(&args.paths)?;
    let mut each = Each::new();
    for (arg, path) in args.paths.iter().zip(&trees) {
        let done = stat_one(&mut *reach.tree, path, arg.as_bytes(), &args).await;
        each.note(arg.as_bytes(), done)?;
    }
    each.end()
}

async fn stat_one(tree: &mut dyn Tree, path: &[u8], arg: &[u8], args: &StatArgs) -> Done {
    let node = if args.dereference { follow(tree, path).await? } else { look(tree, path).await? };
    if args.json {
        return json::line(&entry(tree, arg, Some(&node)).await);
    }
    let a = &node.attr;
    let kind = match a.kind {
        '-' => "regular file",
        'l' => "symbolic link",
        'p' => "named pipe",
        other => json::kind_name(other),
    };
    let target = match a.is_symlink() {
        true => format!(" -> {}", show::text(&tree.readlink(&node).await?)),
        false => String::new(),
    };
    let moment = |(sec, nsec)| show::moment(sec, nsec);
    let text = format!(
        "  File: {}{target}\n  Size: {}  Allocated: {}  Type: {kind}\n  Mode: {:04o}/{}  Uid: {}  Gid: {}  Links: {}  \
         Inode: {}\nAccess: {}\nModify: {}\nChange: {}\n",
        show::text(arg),
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
    let mut reach = args.tree.reach().await?;
    let named: Vec<OsString> = args.paths.iter().filter(|p| *p != "-").cloned().collect();
    let mut trees = reach.tree_paths(&named)?.into_iter();
    let mut each = Each::new();
    for arg in &args.paths {
        let path = if arg == "-" { None } else { trees.next() };
        let done = match path {
            Some(path) => cat_one(&mut *reach.tree, &path).await,
            None => Ok(std::io::copy(&mut std::io::stdin(), &mut std::io::stdout()).map(drop)?),
        };
        each.note(arg.as_bytes(), done)?;
    }
    each.end()
}

async fn cat_one(tree: &mut dyn Tree, path: &[u8]) -> Done {
    let file = follow(tree, path).await?;
    if file.attr.is_dir() {
        return Err(home::Error::from(home::ErrorKind::IsDir).into());
    }
    if !file.attr.is_file() {
        return Err(Failure::from(
            "neither a file nor a link to one; its bytes are not passed on".to_owned(),
        ));
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
