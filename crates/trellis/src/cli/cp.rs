//! `trellis cp`: between this machine and the tree, or within the tree.
//!
//! Which arguments mean the tree is decided as scp(1) does it, with one addition for tree paths:
//! a locator (`scp:lab:/x`, `lab:x`) does; a path that begins with `/` does if its first name holds an `@` or a
//! colon as locators do, or is a name that the root directory lists; everything else is a local path.

use super::files::{Opened, TreeArgs, tree_path};
use super::{Done, Failure, complain};
use crate::scl::{Place, RootName};
use crate::show;
use crate::tree::copy::{Copy, Manner, Progress};
use crate::tree::local::Local;
use crate::tree::{Node, Tree, follow};
use clap::Args;
use home::{Error, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = "\
SRC and DST are local paths or places in the tree: scp:[user@]host:/path, [user@]host:path, /[user@]host/path with an
`@` or a colon in its first name, or /NAME/path for a name that `trellis ls /` shows. ./x is always local.")]
pub struct CpArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Directories with all that is in them; links are copied as links
    #[arg(short, long)]
    recursive: bool,

    /// Modification times and exact permission bits too
    #[arg(short, long)]
    preserve: bool,

    /// What to copy, and where to: a new name, or a directory
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    paths: Vec<OsString>,
}

/// An argument.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// A path of this machine.
    Local(Vec<u8>),
    /// A path from the root of the tree.
    Tree(Vec<u8>),
}

impl End {
    fn path(&self) -> &[u8] {
        let (End::Local(path) | End::Tree(path)) = self;
        path
    }
}

/// Tells tree and local paths apart; `names` are the names that the root lists.
fn end(arg: &OsStr, names: &[Vec<u8>]) -> Result<End, Failure> {
    let bytes = arg.as_bytes();
    let first = bytes.strip_prefix(b"/").and_then(|rest| rest.split(|b| *b == b'/').next());
    let of_tree = match first {
        Some(first) => {
            let marked = first.contains(&b'@') || first.contains(&b':');
            names.iter().any(|n| n == first) || marked && RootName::parse(first).is_some()
        }
        None => Place::parse_locator(bytes).is_some() && !bytes.starts_with(b"."),
    };
    match of_tree {
        true => tree_path(arg).map(End::Tree),
        false => Ok(End::Local(bytes.to_vec())),
    }
}

pub(super) async fn cp(args: CpArgs) -> Done {
    let unclear = |a: &OsString| a.as_bytes().starts_with(b"/");
    let names = if args.paths.iter().any(unclear) { args.tree.names().await? } else { Vec::new() };
    let mut ends = args.paths.iter().map(|p| end(p, &names)).collect::<Result<Vec<_>, _>>()?;
    let Some(to) = ends.pop() else { return Err(Failure::Usage("say where to copy to".into())) };
    if ends.iter().chain([&to]).all(|e| matches!(e, End::Local(_))) {
        return Err(Failure::Usage(
            "none of these paths is in the tree: write scp:[user@]host:/path, or use cp(1) for local files"
                .into(),
        ));
    }
    let mut target = open(&args, &to).await?;
    let (dir, name) = destination(&mut *target.tree, to.path(), ends.len()).await?;
    let mut failed = false;
    for (from, arg) in ends.iter().zip(&args.paths) {
        let mut source = open(&args, from).await?;
        let done =
            copy_one(&args, &mut *source.tree, from, &mut *target.tree, &dir, name.as_deref(), &mut failed)
                .await;
        if let Err(e) = done {
            complain(&naming(arg.as_bytes(), &show::message(&e.detail)));
            failed = true;
        }
    }
    if failed { Err(Failure::Failed(None)) } else { Ok(()) }
}

/// An error with the path that was typed, unless it names it already.
fn naming(path: &[u8], error: &str) -> String {
    let path = show::text(path);
    match error.strip_prefix(&path).is_some_and(|rest| rest.starts_with(':')) {
        true => error.to_owned(),
        false => format!("{path}: {error}"),
    }
}

async fn open(args: &CpArgs, end: &End) -> Result<Opened, Failure> {
    match end {
        End::Local(_) => Ok(Opened::without_lock(Local::default())),
        End::Tree(_) => args.tree.open().await,
    }
}

/// The directory that is copied into, and the new name there; `None`: each source keeps its own.
async fn destination(
    tree: &mut dyn Tree,
    path: &[u8],
    sources: usize,
) -> Result<(Node, Option<Vec<u8>>), Failure> {
    let shown = || show::text(path);
    match follow(tree, path).await {
        Ok(node) if node.attr.is_dir() => return Ok((node, None)),
        Ok(_) if sources > 1 => return Err(Failure::Usage(format!("{}: not a directory", shown()))),
        Ok(_) => {}
        Err(e) if e.kind == ErrorKind::NotFound && sources == 1 => {}
        Err(e) => return Err(naming(path, &show::message(&e.detail)).into()),
    }
    let (dir, name) = split(path);
    if name.is_empty() {
        return Err(Failure::Usage(format!("{}: no such directory", shown())));
    }
    let node = follow(tree, &dir).await;
    let node = node.map_err(|e| naming(&dir, &show::message(&e.detail)))?;
    Ok((node, Some(name)))
}

/// Directory and last name of a path.
fn split(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    match path[..end].iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/".to_vec(), path[1..end].to_vec()),
        Some(at) => (path[..at].to_vec(), path[at + 1..end].to_vec()),
        None => (b".".to_vec(), path[..end].to_vec()),
    }
}

async fn copy_one(
    args: &CpArgs,
    source: &mut dyn Tree,
    from: &End,
    target: &mut dyn Tree,
    dir: &Node,
    name: Option<&[u8]>,
    failed: &mut bool,
) -> home::Result<()> {
    let node = match args.recursive {
        true => source.resolve(from.path()).await?,
        false => follow(source, from.path()).await?,
    };
    let own = split(from.path()).1;
    let name = name.unwrap_or(&own);
    if name.is_empty() || matches!(name, b"." | b"..") {
        return Err(Error::new(ErrorKind::Invalid, "has no name of its own: say the new name"));
    }
    let root = show::text(from.path());
    let mut complain = |path: &[u8], e: &Error| {
        *failed = true;
        complain(&format!("{root}{}: {}", show::text(path), show::message(&e.detail)));
    };
    let manner = Manner { recursive: args.recursive, preserve: args.preserve };
    let progress = Progress::on_terminal();
    let mut copy = Copy { from: source, to: target, manner, progress, complain: &mut complain };
    copy.object(&node, dir, name).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_and_local_paths_are_told_apart() {
        let names = vec![b"lab".to_vec()];
        let tree = |p: &str| End::Tree(p.into());
        let local = |p: &str| End::Local(p.into());
        for (arg, want) in [
            ("scp:ann@lab:/x", tree("/scp:ann@lab:/x")),
            ("lab:x", tree("/scp:lab:./x")),
            ("/ann@lab/x", tree("/ann@lab/x")),
            ("/scp:lab:/x", tree("/scp:lab:/x")),
            ("/lab/x", tree("/lab/x")),
            ("/tmp/x", local("/tmp/x")),
            ("/a b@c/x", local("/a b@c/x")),
            ("x", local("x")),
            ("x/y:z", local("x/y:z")),
            ("./x:y", local("./x:y")),
            ("../lab", local("../lab")),
        ] {
            assert_eq!(end(OsStr::new(arg), &names).unwrap(), want, "{arg}");
        }
        assert!(matches!(end(OsStr::new("-x:y"), &names), Err(Failure::Usage(_))));
    }

    #[test]
    fn an_error_names_its_path_once() {
        assert_eq!(naming(b"/nope", "/nope: No such file"), "/nope: No such file");
        assert_eq!(naming(b"lab:x", "no such file"), "lab:x: no such file");
        assert_eq!(naming(b"/no", "/nope: No such file"), "/no: /nope: No such file");
    }

    #[test]
    fn paths_have_a_directory_and_a_name() {
        for (path, dir, name) in
            [("a", ".", "a"), ("a/b", "a", "b"), ("/a", "/", "a"), ("/a/b/", "/a", "b"), ("/", ".", "")]
        {
            assert_eq!(split(path.as_bytes()), (dir.as_bytes().to_vec(), name.as_bytes().to_vec()), "{path}");
        }
    }
}
